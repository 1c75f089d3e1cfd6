"""Queues in front of network interfaces (qdiscs), as rtnetlink lists them.

A packet in a qdisc waits for its link: a backlog shows that a link is full even if its speed is unknown or a shaper is
slower than the link. Messages: RTM_GETQDISC of linux/rtnetlink.h, statistics of linux/gen_stats.h.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from pinchpoint.host.netlink import MAX_READS, Message, Netlink, attributes, parse_messages
from pinchpoint.host.procfs import FormatError, decode

__all__ = ["Qdisc", "QdiscReader", "backlogs", "parse_links", "parse_qdiscs"]

RTM_NEWQDISC, RTM_GETQDISC = 36, 38  # linux/rtnetlink.h
RTM_NEWLINK, RTM_GETLINK = 16, 18
IFLA_IFNAME = 3  # linux/if_link.h
TCA_KIND, TCA_STATS2 = 1, 7
TC_H_ROOT = 0xFFFFFFFF  # linux/pkt_sched.h
TCA_STATS_QUEUE = 3  # linux/gen_stats.h

TCMSG = struct.Struct("=BBHiIII")
"""struct tcmsg: family, two pads, interface index, handle, parent, info."""
IFINFOMSG = struct.Struct("=BxHiII")
"""struct ifinfomsg: family, type, interface index, flags, change mask."""
QUEUE = struct.Struct("=II")
"""The beginning of struct gnet_stats_queue: packets, bytes."""

MULTIQUEUE = frozenset({"mq", "mqprio"})
"""Kinds that have one queue per hardware queue, and only sum these up (net/sched/sch_mq.c)."""
HOLDING = frozenset({"fq", "netem", "etf", "taprio"})
"""Kinds that hold packets back until they are due (pacing, delay): a backlog there says nothing about the link."""
QUEUELESS = frozenset({"noqueue", "ingress", "clsact"})
MAX_FOREIGN_READS = 32
"""Answers of 32 KiB that a list of another namespace may have: more than 500 interfaces."""


class Qdisc(NamedTuple):
    """One queue of an interface."""

    ifindex: int
    handle: int
    parent: int
    kind: str
    backlog: int
    """Bytes that wait in it."""


def parse_qdiscs(raw: bytes, sequence: int | None = None) -> tuple[list[Qdisc], bool]:
    """Return the queues in one answer of the kernel, and whether it was the last one.

    `sequence` and the exceptions are those of `parse_messages`.
    """
    messages, last = parse_messages(raw, sequence)
    return [qdisc for message in messages if (qdisc := _qdisc(message)) is not None], last


def _qdisc(message: Message) -> Qdisc | None:
    body = message.body
    if message.type != RTM_NEWQDISC or len(body) < TCMSG.size:
        return None
    _, _, _, ifindex, handle, parent, _ = TCMSG.unpack_from(body)
    kind, backlog = "", 0
    for name, start, end in attributes(body, TCMSG.size, len(body)):
        if name == TCA_KIND:
            kind = decode(body[start:end].rstrip(b"\0"))
        elif name == TCA_STATS2:
            for inner, value, value_end in attributes(body, start, end):
                if inner == TCA_STATS_QUEUE and value_end - value >= QUEUE.size:
                    _, backlog = QUEUE.unpack_from(body, value)
    return Qdisc(ifindex, handle, parent, kind, backlog)


def parse_links(raw: bytes, sequence: int | None = None) -> tuple[list[tuple[int, str]], bool]:
    """Return index and name of each interface in one answer of the kernel, and whether it was the last one.

    `sequence` and the exceptions are those of `parse_messages`.
    """
    messages, last = parse_messages(raw, sequence)
    found = []
    for message in messages:
        body = message.body
        if message.type != RTM_NEWLINK or len(body) < IFINFOMSG.size:
            continue
        index = IFINFOMSG.unpack_from(body)[2]
        for kind, start, end in attributes(body, IFINFOMSG.size, len(body)):
            if kind == IFLA_IFNAME:
                found.append((index, decode(body[start:end].rstrip(b"\0"))))
    return found, last


def backlogs(qdiscs: Iterable[Qdisc]) -> dict[int, int]:
    """Return the bytes that wait for each interface, by its index, without interfaces whose queues can't show it.

    The root queue counts, or every queue below it if the root stands for the hardware's queues.
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
    """Asks the kernel for the queues of a network namespace: this process' own, or that of `open_socket`.

    A request waits for the rtnl mutex while an interface is reconfigured (rtnetlink_rcv_msg, net/core/rtnetlink.c), so
    don't send it on a thread that must not block.
    """

    def __init__(self, open_socket: Callable[[int], socket.socket] | None = None) -> None:
        # A foreign namespace may have any number of interfaces.
        self._netlink = Netlink(socket.NETLINK_ROUTE, open_socket, MAX_FOREIGN_READS if open_socket else MAX_READS)

    @staticmethod
    def sees(procfs: Path) -> bool:
        """Return whether `procfs` shows this process's own network namespace, the only one read by default."""
        try:
            return os.stat(procfs / "self" / "ns" / "net").st_ino == os.stat("/proc/self/ns/net").st_ino
        except OSError:
            return False

    def read(self) -> dict[int, int] | None:
        """Return what `backlogs` makes of the queues now; None if the kernel does not say."""
        try:
            return self.ask()
        except (OSError, FormatError):
            return None

    def ask(self) -> dict[int, int]:
        """Return what `backlogs` makes of the queues now. Raises OSError, FormatError."""
        request = TCMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0, 0)
        return backlogs(self._netlink.dump(RTM_GETQDISC, request, parse_qdiscs))

    def names(self) -> dict[int, str]:
        """Return the names of the interfaces by their index. Raises OSError, FormatError."""
        request = IFINFOMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        return dict(self._netlink.dump(RTM_GETLINK, request, parse_links))

    def close(self) -> None:
        """Close the socket; the next read opens another one."""
        self._netlink.close()
