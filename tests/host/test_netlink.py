from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.host import netlink
from pinchpoint.host.netlink import Message, Netlink, attributes, parse_messages
from pinchpoint.host.procfs import FormatError

NOOP, ERROR, DONE, OVERRUN = 1, 2, 3, 4
NEWLINK, GETLINK = 16, 18
KERNEL = (0, 0)


def message(type_: int, body: bytes = b"", sequence: int = 1, length: int | None = None) -> bytes:
    raw = struct.pack("=IHHII", 16 + len(body) if length is None else length, type_, 2, sequence, 0) + body
    return raw + bytes(-len(raw) % 4)


def number(value: int) -> bytes:
    return struct.pack("=i", value)


END = message(DONE, number(0))


def test_an_answer_gives_each_message_and_says_whether_it_was_the_last() -> None:
    raw = message(NEWLINK, b"odd") + message(NOOP) + message(NEWLINK, b"even")

    assert parse_messages(raw) == ([Message(NEWLINK, b"odd"), Message(NEWLINK, b"even")], False)
    assert parse_messages(raw + END + message(NEWLINK)) == (parse_messages(raw)[0], True)
    assert parse_messages(b"") == ([], False)


def test_messages_of_another_request_are_left_out_whatever_they_say() -> None:
    old = message(NEWLINK, b"old") + message(ERROR, number(-errno.EPERM)) + message(OVERRUN) + END
    raw = old + message(NEWLINK, b"new", sequence=2)

    assert parse_messages(raw, 2) == ([Message(NEWLINK, b"new")], False)


@pytest.mark.parametrize("type_", [DONE, ERROR])
def test_a_refusal_is_an_error_with_the_kernels_number(type_: int) -> None:
    with pytest.raises(PermissionError):
        parse_messages(message(NEWLINK) + message(type_, number(-errno.EPERM)))


def test_lost_messages_are_an_error() -> None:
    with pytest.raises(OSError, match=os.strerror(errno.ENOBUFS)) as raised:
        parse_messages(message(NEWLINK) + message(OVERRUN))
    assert raised.value.errno == errno.ENOBUFS


@pytest.mark.parametrize(
    "raw",
    [
        message(NEWLINK, length=0),
        message(NEWLINK, length=15),
        message(NEWLINK, length=17),
        message(NEWLINK, length=0xFFFFFFFF),
        message(NEWLINK)[:15],
        message(NEWLINK) + b"\0",
        message(DONE, b"\0\0"),
        message(ERROR, number(-(1 << 31))),
    ],
    ids=["empty", "short", "long", "huge", "header", "rest", "end", "number"],
)
def test_what_no_kernel_writes_is_a_format_error(raw: bytes) -> None:
    with pytest.raises(FormatError):
        parse_messages(raw)


def test_an_acknowledgement_is_no_list() -> None:
    with pytest.raises(FormatError, match="acknowledges"):
        parse_messages(message(ERROR, number(0) + bytes(16)))


ANY_MESSAGE = st.builds(
    message,
    st.integers(0, 40),
    st.binary(max_size=24),
    st.integers(0, 2),
    st.none() | st.integers(0, 64) | st.integers(0, 0xFFFFFFFF),
)


@given(st.binary(max_size=200) | st.lists(ANY_MESSAGE | st.binary(max_size=8), max_size=6).map(b"".join))
def test_any_bytes_give_messages_that_are_in_them_or_an_error(raw: bytes) -> None:
    for sequence in (None, 1):
        try:
            messages, _ = parse_messages(raw, sequence)
        except FormatError:
            continue
        except OSError as error:
            assert error.errno  # noqa: PT017 - either way is fine
            continue
        assert sum(16 + len(found.body) for found in messages) <= len(raw)
        assert all(found.body in raw for found in messages)


ANY_ATTRIBUTE = st.builds(struct.Struct("=HH").pack, st.integers(0, 16), st.integers(0, 0xFFFF))


@given(st.lists(ANY_ATTRIBUTE | st.binary(max_size=8), max_size=8).map(b"".join), st.integers(0, 8), st.integers(0, 8))
def test_any_bytes_give_attributes_that_are_in_them(raw: bytes, start: int, rest: int) -> None:
    end = len(raw) - rest
    for type_, begin, stop in attributes(raw, start, end):
        assert 0 <= type_ < 1 << 14
        assert start + 4 <= begin <= stop <= end


@pytest.mark.parametrize("length", [0, 3, 9, 0xFFFF])
def test_a_damaged_attribute_is_the_end_of_them(length: int) -> None:
    raw = struct.pack("=HHHH", 4, 1, length, 2) + bytes(4)

    assert list(attributes(raw, 0, len(raw))) == [(1, 4, 4)]


def test_attributes_are_aligned_and_their_flags_are_no_part_of_their_type() -> None:
    raw = struct.pack("=HH", 5, 0x8007) + b"a" + bytes(3) + struct.pack("=HH", 4, 8)

    assert list(attributes(raw, 0, len(raw))) == [(7, 4, 5), (8, 12, 12)]


@given(st.lists(st.tuples(st.integers(16, 0xFFFF), st.binary(max_size=40)), max_size=5))
def test_what_is_written_is_read_again(written: list[tuple[int, bytes]]) -> None:
    raw = b"".join(message(type_, body) for type_, body in written)

    assert parse_messages(raw + END, 1) == ([Message(*entry) for entry in written], True)


class Kernel:
    """A netlink socket with prepared answers; each is bytes, or an error that reading it raises."""

    def __init__(self) -> None:
        self.answers: list[tuple[bytes | OSError, int, tuple[int, int]]] = []
        self.requests: list[bytes] = []
        self.opened = self.closed = 0

    def answer(self, raw: bytes | OSError, flags: int = 0, sender: tuple[int, int] = KERNEL) -> None:
        self.answers.append((raw, flags, sender))

    def open(self, *_: object) -> Kernel:
        self.opened += 1
        return self

    def settimeout(self, seconds: float) -> None:
        assert 0 < seconds < 10

    def sendto(self, raw: bytes, address: tuple[int, int]) -> None:
        assert address == KERNEL
        self.requests.append(raw)

    def recvmsg(self, size: int) -> tuple[bytes, list[object], int, tuple[int, int]]:
        if not self.answers:
            raise TimeoutError("timed out")
        raw, flags, sender = self.answers.pop(0)
        if isinstance(raw, OSError):
            raise raw
        assert len(raw) <= size
        return raw, [], flags, sender

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    found = Kernel()
    monkeypatch.setattr("pinchpoint.host.netlink.socket.socket", found.open)
    return found


def dump(asker: Netlink) -> list[bytes]:
    return [found.body for found in asker.dump(GETLINK, b"body", parse_messages)]


def test_a_list_in_many_answers_is_put_together(kernel: Kernel) -> None:
    kernel.answer(message(NEWLINK, b"a") + message(NEWLINK, b"b"))
    kernel.answer(message(NEWLINK, b"c"))
    kernel.answer(message(NEWLINK, b"d") + END)

    assert dump(Netlink(socket.NETLINK_ROUTE)) == [b"a", b"b", b"c", b"d"]
    assert kernel.requests == [struct.pack("=IHHII", 20, GETLINK, 0x301, 1, 0) + b"body"]


def test_one_socket_asks_again_with_another_number(kernel: Kernel) -> None:
    with Netlink(socket.NETLINK_ROUTE) as asker:
        kernel.answer(message(NEWLINK, b"a") + END)
        assert dump(asker) == [b"a"]
        kernel.answer(message(NEWLINK, b"late") + END)
        kernel.answer(message(NEWLINK, b"b", 2) + message(DONE, number(0), 2))
        assert dump(asker) == [b"b"]
        assert (kernel.opened, kernel.closed) == (1, 0)
    assert kernel.closed == 1


def test_what_another_process_writes_is_not_believed(kernel: Kernel) -> None:
    kernel.answer(message(NEWLINK, b"forged") + END, sender=(4711, 0))
    kernel.answer(message(NEWLINK, b"true") + END)

    assert dump(Netlink(socket.NETLINK_ROUTE)) == [b"true"]


def overrun(kernel: Kernel) -> None:
    kernel.answer(message(NEWLINK))
    kernel.answer(OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS)))


def silence(kernel: Kernel) -> None:
    kernel.answer(message(NEWLINK))


def truncation(kernel: Kernel) -> None:
    kernel.answer(message(NEWLINK) + END, flags=socket.MSG_TRUNC)


def damage(kernel: Kernel) -> None:
    kernel.answer(message(NEWLINK, length=3) + END)


def no_end(kernel: Kernel) -> None:
    for _ in range(netlink.MAX_READS):
        kernel.answer(message(NEWLINK))
    kernel.answer(END)


def refusal(kernel: Kernel) -> None:
    kernel.answer(message(ERROR, number(-errno.ENOENT)))


@pytest.mark.parametrize(
    ("fails", "error"),
    [
        (overrun, OSError),
        (silence, TimeoutError),
        (truncation, FormatError),
        (damage, FormatError),
        (no_end, FormatError),
        (refusal, FileNotFoundError),
    ],
)
def test_after_a_failure_the_next_list_comes_over_a_socket_of_its_own(
    kernel: Kernel, fails: Callable[[Kernel], None], error: type[Exception]
) -> None:
    asker = Netlink(socket.NETLINK_ROUTE)
    fails(kernel)
    with pytest.raises(error):
        dump(asker)
    assert (kernel.opened, kernel.closed) == (1, 1)

    kernel.answers.clear()
    kernel.answer(message(NEWLINK, b"a", 2) + message(DONE, number(0), 2))
    assert dump(asker) == [b"a"]
    assert kernel.opened == 2


def names(asker: Netlink) -> set[str]:
    """Return the names of this machine's interfaces (RTM_GETLINK, man 7 rtnetlink)."""
    ifinfo, ifla_ifname = 16, 3
    return {
        body[start : end - 1].decode()
        for body in (found.body for found in asker.dump(GETLINK, bytes(ifinfo), parse_messages))
        for type_, start, end in attributes(body, ifinfo, len(body))
        if type_ == ifla_ifname
    }


def test_this_kernel_tells_of_its_interfaces_again_and_again() -> None:
    with Netlink(socket.NETLINK_ROUTE) as asker:
        try:
            found = names(asker)
        except OSError as error:
            pytest.skip(f"this kernel does not answer over netlink: {error}")
        assert names(asker) == found == {name for _, name in socket.if_nameindex()}


def test_this_kernel_refuses_with_its_number() -> None:
    unknown = 0x7FFF
    with Netlink(socket.NETLINK_ROUTE) as asker:
        try:
            names(asker)
        except OSError as error:
            pytest.skip(f"this kernel does not answer over netlink: {error}")
        with pytest.raises(OSError, match=os.strerror(errno.EOPNOTSUPP)) as raised:
            asker.dump(unknown, bytes(16), parse_messages)
        assert raised.value.errno == errno.EOPNOTSUPP
        assert names(asker)
