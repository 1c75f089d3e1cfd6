from __future__ import annotations

import pytest

from thrash.consequences import Use, allowed, restarted, short, silencing
from thrash.invariants import Limit, wrong
from thrash.plan import Fault, Kind


def fault(kind: Kind, target: str) -> Fault:
    return Fault(kind, target, 0.0, 1.0)


def named(name: str) -> Limit:
    return Limit("thrash-1-files", "resource", name, "high")


@pytest.mark.parametrize(
    ("kind", "target", "name"),
    [
        (Kind.FREEZE_DAEMON, "osd.0", "stuck osd.0"),
        (Kind.FREEZE_DAEMON, "mds.a", "stuck"),
        (Kind.KILL_DAEMON, "osd.1", "kv_sync osd.1"),
        (Kind.QUOTA, "mds.a", "cpu_quota mds.a"),
        (Kind.HOGS, "host", "cpu host"),
        (Kind.FORKS, "host", "cpu host"),
    ],
)
def test_a_fault_may_be_named_by_what_it_limits(kind: Kind, target: str, name: str) -> None:
    assert not list(wrong([named(name)], allowed([fault(kind, target)])))


@pytest.mark.parametrize(
    ("kind", "target", "name"),
    [
        (Kind.FREEZE_DAEMON, "osd.0", "stuck osd.1"),
        (Kind.FREEZE_DAEMON, "osd.0", "mds_lock mds.a"),
        (Kind.QUOTA, "mds.a", "cpu host"),
        (Kind.HOGS, "host", "mds_lock mds.a"),
        (Kind.SLOW_OSD, "osd.0", "osd_op osd.0"),
        (Kind.LIES, "osd.77", "stuck osd.77"),
        (Kind.STEP, "clock", "stuck"),
        (Kind.FREEZE_PART, "pinchpoint", "stuck"),
    ],
)
def test_a_fault_does_not_explain_other_limits(kind: Kind, target: str, name: str) -> None:
    assert list(wrong([named(name)], allowed([fault(kind, target)])))


def test_only_a_killed_daemon_starts_to_count_again() -> None:
    assert restarted([fault(Kind.KILL_DAEMON, "osd.0"), fault(Kind.FREEZE_DAEMON, "osd.1")]) == {"osd.0"}


def test_only_a_part_that_was_hit_may_be_silent() -> None:
    assert silencing([fault(Kind.PIDS, "pinchpoint")], "pinchpoint")
    assert not silencing([fault(Kind.PIDS, "pinchpoint")], "judge")
    assert not silencing([fault(Kind.HOGS, "host")], "pinchpoint")


def test_what_others_filled_for_two_seconds_may_be_named() -> None:
    idle = [Use(second, 0.2 * second, 2.0 * second, {"sda": 0.1 * second}) for second in range(8)]
    busy = [Use(second, 1.8 * second, 2.0 * second, {"sda": 0.9 * second, "sdb": 5.0}) for second in range(8)]

    assert short(idle) == set()
    assert short(busy) == {"cpu host", "disk sda"}
    assert short(busy[:2]) == set()
