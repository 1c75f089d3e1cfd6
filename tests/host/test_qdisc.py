from __future__ import annotations

import errno
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.host.procfs import FormatError
from pinchpoint.host.qdisc import TC_H_ROOT, Qdisc, QdiscReader, backlogs, parse_links, parse_qdiscs

NEWQDISC, DONE, ERROR = 36, 3, 2


def attribute(type_: int, value: bytes) -> bytes:
    raw = struct.pack("=HH", 4 + len(value), type_) + value
    return raw + bytes(-len(raw) % 4)


def message(type_: int, body: bytes = b"") -> bytes:
    raw = struct.pack("=IHHII", 16 + len(body), type_, 0, 1, 0) + body
    return raw + bytes(-len(raw) % 4)


def qdisc(ifindex: int, kind: str, backlog: int, parent: int = TC_H_ROOT, handle: int = 0) -> bytes:
    """Return an answer as ``tc_fill_qdisc`` (net/sched/sch_api.c) builds it."""
    statistics = attribute(1, bytes(12)) + attribute(3, struct.pack("=5I", 1, backlog, 0, 0, 0))
    attributes = attribute(1, kind.encode() + b"\0") + attribute(2, b"options") + attribute(7, statistics)
    return message(NEWQDISC, struct.pack("=BBHiIII", 0, 0, 0, ifindex, handle, parent, 0) + attributes)


def test_an_answer_gives_each_queue_and_says_whether_it_was_the_last() -> None:
    first = qdisc(4, "tbf", 3028, handle=0x80010000) + qdisc(5, "noqueue", 0)
    assert parse_qdiscs(first) == (
        [Qdisc(4, 0x80010000, TC_H_ROOT, "tbf", 3028), Qdisc(5, 0, TC_H_ROOT, "noqueue", 0)],
        False,
    )
    assert parse_qdiscs(qdisc(4, "tbf", 1) + message(DONE, bytes(4)))[1]


def test_an_error_and_a_cut_answer_are_format_errors() -> None:
    with pytest.raises(FormatError, match="refuses"):
        parse_qdiscs(message(ERROR, bytes(20)))
    with pytest.raises(FormatError, match="truncated"):
        parse_qdiscs(qdisc(4, "tbf", 1)[:-8])


def test_only_queues_that_can_tell_of_their_link_count() -> None:
    queues = [
        Qdisc(1, 0, TC_H_ROOT, "noqueue", 0),
        Qdisc(2, 0, TC_H_ROOT, "fq_codel", 1500),
        Qdisc(3, 0, TC_H_ROOT, "fq", 9000),  # paced: waits for its time, not for the link
        Qdisc(4, 0x10000, TC_H_ROOT, "htb", 700),
        Qdisc(4, 0x20000, 0x10001, "fq_codel", 700),  # is in the sum of its parent
        Qdisc(2, 0xFFFF0000, 0xFFFFFFF1, "ingress", 0),
    ]
    assert backlogs(queues) == {2: 1500, 4: 700}


def test_queues_of_the_hardware_are_added_up_below_their_root() -> None:
    queues = [
        Qdisc(6, 0, TC_H_ROOT, "mq", 999),
        Qdisc(6, 0, 0x1, "fq_codel", 100),
        Qdisc(6, 0, 0x2, "fq_codel", 200),
        Qdisc(7, 0x80010000, TC_H_ROOT, "mq", 999),
        Qdisc(7, 0, 0x80010001, "fq", 999),
    ]
    assert backlogs(queues) == {6: 300}


@given(st.binary(max_size=200) | st.builds(lambda n, b: qdisc(1, "tbf", 5)[:n] + b, st.integers(0, 120), st.binary()))
def test_any_bytes_give_queues_a_refusal_or_a_format_error(raw: bytes) -> None:
    try:
        found, _ = parse_qdiscs(raw)
    except (FormatError, OSError):
        return
    assert all(entry.backlog >= 0 and entry.kind.isprintable() for entry in found)


def interface(index: int, name: bytes) -> bytes:
    """Return an answer as ``rtnl_fill_ifinfo`` (net/core/rtnetlink.c) builds it."""
    return message(16, struct.pack("=BxHiII", 0, 1, index, 0, 0) + attribute(3, name + b"\0") + attribute(4, bytes(4)))


def test_interfaces_have_their_names() -> None:
    raw = interface(1, b"lo") + interface(4, b"eth0") + message(NEWQDISC, bytes(30))

    assert parse_links(raw + message(DONE, bytes(4))) == ([(1, "lo"), (4, "eth0")], True)


@given(st.binary(max_size=200) | st.builds(lambda n, b: interface(1, b"lo")[:n] + b, st.integers(0, 60), st.binary()))
def test_any_bytes_give_interfaces_a_refusal_or_a_format_error(raw: bytes) -> None:
    try:
        found, _ = parse_links(raw)
    except (FormatError, OSError):
        return
    assert all(name.isprintable() for _, name in found)


def test_a_procfs_of_another_network_namespace_is_not_believed(tmp_path: Path) -> None:
    assert not QdiscReader.sees(tmp_path)


def test_without_netlink_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("pinchpoint.host.qdisc.socket.socket", refuse)
    assert QdiscReader().read() is None


def test_what_the_kernel_refuses_is_an_error_with_its_number() -> None:
    with pytest.raises(PermissionError):
        parse_qdiscs(message(ERROR, struct.pack("=i", -errno.EPERM) + bytes(16)))


def test_this_kernel_tells_of_its_queues() -> None:
    reader = QdiscReader()
    if not QdiscReader.sees(Path("/proc")) or (found := reader.read()) is None:
        pytest.skip("this kernel does not report queues over netlink")
    assert reader.read() is not None
    reader.close()
    assert all(backlog >= 0 for backlog in found.values())


SHAPED = """
import socket
from pinchpoint.host.qdisc import QdiscReader
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(50):
    sender.sendto(bytes(1000), ("127.0.0.1", 9))
print(QdiscReader().read())
"""


def test_a_shaped_link_has_a_backlog_here() -> None:
    for tool in ("unshare", "ip", "tc"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} on this machine")
    set_up = "ip link set lo up && tc qdisc add dev lo root tbf rate 64kbit burst 4kb latency 60s"
    prepared = subprocess.run(["unshare", "-n", "sh", "-c", set_up], capture_output=True, text=True, check=False)
    if os.geteuid() != 0 or prepared.returncode:
        pytest.skip(f"no network namespace with a token bucket can be made: {prepared.stderr.strip() or 'not root'}")
    script = f'{set_up} && exec "$0" -c "$1"'
    answer = subprocess.run(
        ["unshare", "-n", "sh", "-c", script, sys.executable, SHAPED], capture_output=True, text=True, check=True
    )
    assert answer.stdout.startswith("{1: ")
    assert int(answer.stdout.strip("{}\n").split(": ")[1]) > 10_000
