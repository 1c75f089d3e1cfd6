"""Lists that the kernel sends over netlink (man 7 netlink, include/uapi/linux/netlink.h): one request, many answers.

An answer is a datagram of messages, and a message of the type NLMSG_DONE ends the list. The caller interprets the
others.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pinchpoint.host.procfs import FormatError

if TYPE_CHECKING:
    from typing import Self  # novermin: for mypy alone

__all__ = ["MAX_READS", "Message", "Netlink", "attributes", "parse_messages"]

NLMSG_ERROR, NLMSG_DONE, NLMSG_OVERRUN = 2, 3, 4
NLMSG_MIN_TYPE = 0x10
"""Types below it are netlink's own."""
NLM_F_REQUEST, NLM_F_DUMP = 0x001, 0x300
NLA_TYPE_MASK = 0x3FFF

HEADER = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence number, port."""
ERROR = struct.Struct("=i")
"""What follows it in an error and at the end of a list (netlink_dump_done, net/netlink/af_netlink.c): -errno or 0."""
ATTRIBUTE = struct.Struct("=HH")
"""struct nlattr: length, type."""
MAX_ERRNO = 4095
"""include/linux/err.h"""

KERNEL_ADDRESS = (0, 0)
"""The kernel's port, and no multicast group."""
RECEIVE_BYTES = 1 << 16
"""Bytes of one read: the kernel fills at most 32 KiB (netlink_recvmsg, net/netlink/af_netlink.c)."""
MAX_READS = 1 << 12
"""Reads of one list; a longer one is abandoned. 300,000 connections still fit: 79 of them fill 32 KiB."""
ANSWER_TIMEOUT_SECONDS = 1.0
"""Seconds to wait for an answer; the kernel gives one before the request returns."""

T = TypeVar("T")


class Message(NamedTuple):
    """A message of the list that was asked for, not one of netlink's own."""

    type: int
    body: bytes


def parse_messages(raw: bytes, sequence: int | None = None) -> tuple[list[Message], bool]:
    """Return the messages in one answer of the kernel, and whether it was the last one.

    With `sequence`, answers to a request with another number are left out. Raises FormatError for truncated data, and
    OSError with the kernel's errno if it refuses or (ENOBUFS) has lost part of the list.
    """
    found: list[Message] = []
    offset = 0
    while offset < len(raw):
        start = offset + HEADER.size
        if start > len(raw):
            raise FormatError("truncated netlink header")
        length, type_, _, number, _ = HEADER.unpack_from(raw, offset)
        end = offset + length
        if end < start or end > len(raw):
            raise FormatError("truncated netlink message")
        if sequence is None or number == sequence:
            if type_ >= NLMSG_MIN_TYPE:
                found.append(Message(type_, raw[start:end]))
            elif type_ == NLMSG_OVERRUN:
                raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
            elif type_ in (NLMSG_DONE, NLMSG_ERROR):
                _check(type_, raw[start:end])
                return found, True
        offset += _aligned(length)
    return found, False


def _check(type_: int, body: bytes) -> None:
    """Raise the error in the end of a list, or in an error message."""
    if len(body) < ERROR.size:
        raise FormatError("truncated netlink error")
    number = -ERROR.unpack_from(body)[0]
    if number > MAX_ERRNO:
        raise FormatError(f"invalid netlink error: {number}")
    if number > 0:
        raise OSError(number, os.strerror(number))
    if type_ == NLMSG_ERROR:
        raise FormatError("the kernel acknowledges the request but refuses the list")


def attributes(raw: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the type of each attribute between two places, and where its value begins and ends.

    It stops at a damaged one.
    """
    while start + ATTRIBUTE.size <= end:
        length, type_ = ATTRIBUTE.unpack_from(raw, start)
        if length < ATTRIBUTE.size or start + length > end:
            return
        yield type_ & NLA_TYPE_MASK, start + ATTRIBUTE.size, start + length
        start += _aligned(length)


def _aligned(length: int) -> int:
    """Return where the next one begins (NLMSG_ALIGN and NLA_ALIGN)."""
    return (length + 3) & ~3


def _socket(protocol: int) -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)


class Netlink:
    """Asks the kernel for lists of the network namespace that its socket is opened in; for one thread at a time.

    `open_socket` opens a socket for a protocol, by default in this process' namespace. A list that needs more than
    `reads` is abandoned.
    """

    def __init__(
        self,
        protocol: int,
        open_socket: Callable[[int], socket.socket] | None = None,
        reads: int = MAX_READS,
    ) -> None:
        self._protocol = protocol
        self._open = open_socket or _socket
        self._reads = reads
        self._socket: socket.socket | None = None
        self._sequence = 0

    def dump(self, type_: int, body: bytes, parse: Callable[[bytes, int], tuple[list[T], bool]]) -> list[T]:
        """Ask for a list and return what `parse`, which works like `parse_messages`, makes of its answers.

        Raises OSError if the kernel refuses or loses part of it, and FormatError.
        """
        try:
            return self._dump(type_, body, parse)
        except BaseException:
            # Until a list is read to its end, its socket can't ask for another (EBUSY of __netlink_dump_start).
            self.close()
            raise

    def _dump(self, type_: int, body: bytes, parse: Callable[[bytes, int], tuple[list[T], bool]]) -> list[T]:
        if self._socket is None:
            self._socket = self._open(self._protocol)
            self._socket.settimeout(ANSWER_TIMEOUT_SECONDS)
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        header = HEADER.pack(HEADER.size + len(body), type_, NLM_F_REQUEST | NLM_F_DUMP, self._sequence, 0)
        self._socket.sendto(header + body, KERNEL_ADDRESS)
        found: list[T] = []
        for _ in range(self._reads):
            raw, _, flags, sender = self._socket.recvmsg(RECEIVE_BYTES)
            if sender != KERNEL_ADDRESS:
                continue  # root may write to anybody's socket
            if flags & socket.MSG_TRUNC:
                raise FormatError("a netlink answer longer than the kernel makes them")
            part, last = parse(raw, self._sequence)
            found += part
            if last:
                return found
        raise FormatError("an endless netlink list")

    def close(self) -> None:
        """Close the socket; the next request opens another one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
