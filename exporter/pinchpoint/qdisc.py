"""Queues in front of network interfaces (qdiscs), as rtnetlink tells of them.

A packet that waits in a qdisc waits for its link: a backlog says that a link is full where its speed is unknown or a
shaper is slower than the link. Messages: RTM_GETQDISC of linux/rtnetlink.h, statistics of linux/gen_stats.h.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pinchpoint.procfs import FormatError, decode

__all__ = ["Qdisc", "QdiscReader", "backlogs", "parse_qdiscs"]

NLMSG_ERROR, NLMSG_DONE = 2, 3  # linux/netlink.h
NLM_F_REQUEST, NLM_F_DUMP = 0x001, 0x300
RTM_NEWQDISC, RTM_GETQDISC = 36, 38  # linux/rtnetlink.h
TCA_KIND, TCA_STATS2 = 1, 7
TC_H_ROOT = 0xFFFFFFFF  # linux/pkt_sched.h
TCA_STATS_QUEUE = 3  # linux/gen_stats.h
NLA_TYPE_MASK = 0x3FFF  # linux/netlink.h

HEADER = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence number, port."""
TCMSG = struct.Struct("=BBHiIII")
"""struct tcmsg: family, two pads, interface index, handle, parent, info."""
ATTRIBUTE = struct.Struct("=HH")
"""struct rtattr: length, type."""
QUEUE = struct.Struct("=II")
"""The beginning of struct gnet_stats_queue: packets, bytes."""

RECEIVE_SIZE = 1 << 16
"""Bytes of one read: the kernel fills at most 32 KiB (netlink_recvmsg, net/netlink/af_netlink.c)."""
RECEIVE_LIMIT = 1 << 10
"""Reads of one dump; a dump that is longer is given up."""
ANSWER_TIMEOUT = 1.0
"""Seconds to wait for an answer; the kernel gives one before the request returns."""

MULTIQUEUE = frozenset({"mq", "mqprio"})
"""Kinds that have one queue for each hardware queue, and only add up what is in these (net/sched/sch_mq.c)."""
HOLDING = frozenset({"fq", "netem", "etf", "taprio"})
"""Kinds that hold packets back until their time has come (pacing, delay): a backlog there says nothing of the link."""
QUEUELESS = frozenset({"noqueue", "ingress", "clsact"})


class Qdisc(NamedTuple):
    """One queue of an interface."""

    ifindex: int
    handle: int
    parent: int
    kind: str
    backlog: int
    """Bytes that wait in it."""


def parse_qdiscs(raw: bytes) -> tuple[list[Qdisc], bool]:
    """Return the queues in one answer of the kernel, and whether it was the last one. Raises FormatError."""
    found: list[Qdisc] = []
    offset = 0
    while offset + HEADER.size <= len(raw):
        length, type_, _, _, _ = HEADER.unpack_from(raw, offset)
        end = offset + length
        if length < HEADER.size or end > len(raw):
            raise FormatError("a netlink message that is cut")
        if type_ == NLMSG_DONE:
            return found, True
        if type_ == NLMSG_ERROR:
            raise FormatError("the kernel refuses to tell of queues")
        if type_ == RTM_NEWQDISC and length >= HEADER.size + TCMSG.size:
            _, _, _, ifindex, handle, parent, _ = TCMSG.unpack_from(raw, offset + HEADER.size)
            kind, backlog = "", 0
            for name, start, stop in _attributes(raw, offset + HEADER.size + TCMSG.size, end):
                if name == TCA_KIND:
                    kind = decode(raw[start:stop].rstrip(b"\0"))
                elif name == TCA_STATS2:
                    for inner, value, value_end in _attributes(raw, start, stop):
                        if inner == TCA_STATS_QUEUE and value_end - value >= QUEUE.size:
                            _, backlog = QUEUE.unpack_from(raw, value)
            found.append(Qdisc(ifindex, handle, parent, kind, backlog))
        offset += (length + 3) & ~3
    return found, False


def _attributes(raw: bytes, offset: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the type of each attribute, and where its value begins and ends."""
    while offset + ATTRIBUTE.size <= end:
        length, type_ = ATTRIBUTE.unpack_from(raw, offset)
        if length < ATTRIBUTE.size or offset + length > end:
            return
        yield type_ & NLA_TYPE_MASK, offset + ATTRIBUTE.size, offset + length
        offset += (length + 3) & ~3


def backlogs(qdiscs: Iterable[Qdisc]) -> dict[int, int]:
    """Return the bytes that wait for each interface, by its index; interfaces without a queue that can tell are not in.

    What counts is the root queue, or every queue below it where the root stands for the queues of the hardware.
    """
    found: dict[int, int] = {}
    multiqueue: dict[int, int] = {}
    children: list[Qdisc] = []
    for qdisc in qdiscs:
        if qdisc.parent != TC_H_ROOT:
            children.append(qdisc)
        elif qdisc.kind in MULTIQUEUE:
            multiqueue[qdisc.ifindex] = qdisc.handle
        elif qdisc.kind not in HOLDING and qdisc.kind not in QUEUELESS:
            found[qdisc.ifindex] = qdisc.backlog
    for qdisc in children:
        handle = multiqueue.get(qdisc.ifindex)
        if handle is None or qdisc.parent >> 16 != handle >> 16:
            continue
        if qdisc.kind not in HOLDING and qdisc.kind not in QUEUELESS:
            found[qdisc.ifindex] = found.get(qdisc.ifindex, 0) + qdisc.backlog
    return found


class QdiscReader:
    """Asks the kernel for the queues of the network namespace that this process is in.

    A request waits for the rtnl mutex as long as anybody reconfigures an interface (rtnetlink_rcv_msg,
    net/core/rtnetlink.c), so it belongs on no thread that must not block.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._sequence = 0

    @staticmethod
    def sees(procfs: Path) -> bool:
        """Return whether `procfs` tells of the same network namespace; of another one this process knows nothing."""
        try:
            return os.stat(procfs / "self" / "ns" / "net").st_ino == os.stat("/proc/self/ns/net").st_ino
        except OSError:
            return False

    def read(self) -> dict[int, int] | None:
        """Return what `backlogs` makes of the queues now; None where the kernel does not tell."""
        try:
            return backlogs(self._dump())
        except (OSError, FormatError):
            self.close()  # the rest of an answer must not be taken for the next one
            return None

    def _dump(self) -> list[Qdisc]:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
            self._socket.settimeout(ANSWER_TIMEOUT)
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        length = HEADER.size + TCMSG.size
        header = HEADER.pack(length, RTM_GETQDISC, NLM_F_REQUEST | NLM_F_DUMP, self._sequence, 0)
        self._socket.sendto(header + TCMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0, 0), (0, 0))
        found: list[Qdisc] = []
        for _ in range(RECEIVE_LIMIT):
            part, last = parse_qdiscs(self._socket.recv(RECEIVE_SIZE))
            found += part
            if last:
                return found
        raise FormatError("an endless list of queues")

    def close(self) -> None:
        """Close the socket; the next read opens another one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
