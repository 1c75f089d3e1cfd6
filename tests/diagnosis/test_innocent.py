from __future__ import annotations

import pytest

from diagnosis.history import MadeHost, snapshots
from pinchpoint.diagnosis.verdict import verdict

SERVES_DISKS = "disk,writeback"


def cleared(host: MadeHost) -> tuple[str, ...]:
    """Return what is cleared on a host beside a benchmark that computes."""
    return verdict(*snapshots(h=host.works({"cpu": 1.0}))).innocent


@pytest.mark.parametrize(
    ("busy", "queue", "reason"),
    [
        (0.49, 0.0, ""),
        (0.5, 0.0, "work is in it, but hardly ever waits in front of it: a queue makes a disk full, not busy time"),
        (0.99, 1.0, "full, but it holds no file that the benchmark waits for"),
    ],
)
def test_a_busy_disk_is_cleared_by_its_files_or_its_queue(busy: float, queue: float, reason: str) -> None:
    found = cleared(MadeHost().resource("disk", "vda", busy, SERVES_DISKS, saturated=queue))

    assert found == ((f"disk of vda on h is busy for {busy:.0%}: {reason}",) if reason else ())


@pytest.mark.parametrize(("busy", "shown"), [(0.24, False), (0.25, True)])
def test_a_link_below_its_speed_is_cleared_from_a_quarter_on(busy: float, shown: bool) -> None:
    found = cleared(MadeHost().resource("link", "eth0", busy, "network", saturated=0.0))

    assert found == (
        (f"link of eth0 on h is busy for {busy:.0%}: below its speed, and without a queue",) if shown else ()
    )


@pytest.mark.parametrize(
    ("busy", "stalls", "reason"),
    [
        (0.49, 0.0, ""),
        (1.0, 0.0, "it keeps up: no task had to reclaim memory itself"),
        (1.0, 0.1, "tasks had to reclaim memory themselves 1 times, but the benchmark does not wait for it"),
        (1.0, None, ""),
    ],
)
def test_a_busy_kswapd_is_cleared_by_the_stalls_of_tasks(busy: float, stalls: float | None, reason: str) -> None:
    host = MadeHost().resource("kswapd", "node0", busy, "memory", runqueue=0.0)
    if stalls is not None:
        host.counter("pinchpoint_memory_allocation_stalls_total", stalls)

    assert cleared(host) == ((f"kswapd of node0 on h is busy for {busy:.0%}: {reason}",) if reason else ())


def test_what_is_full_and_serves_nothing_that_is_waited_for_is_cleared() -> None:
    def lock(busy: float) -> MadeHost:
        return MadeHost().resource("mds_lock", "mds.a", busy, "mds", runqueue=0.0)

    assert cleared(lock(0.95)) == (
        "mds_lock of mds.a on h is busy for 95%: full, but nothing that the benchmark waits for is served by it",
    )
    assert cleared(lock(0.6)) == ()


@pytest.mark.parametrize(
    ("waits", "reason"),
    [
        (0.003, "full, but nothing that the benchmark waits for is served by it"),
        (0.09, "full, but it answers for only 9% of the benchmark's time"),
    ],
)
def test_what_is_full_and_serves_a_little_of_what_is_waited_for_is_cleared_by_that(waits: float, reason: str) -> None:
    host = MadeHost().works({"cpu": 1 - waits, "mds": waits}).resource("mds_lock", "mds.a", 0.98, "mds", runqueue=0.0)

    assert verdict(*snapshots(h=host)).innocent == (f"mds_lock of mds.a on h is busy for 98%: {reason}",)


def test_the_fullest_six_are_told() -> None:
    host = MadeHost()
    for number in range(8):
        host.resource("mds_lock", f"mds.{number}", 0.91 + number / 100, "mds", runqueue=0.0)

    assert [line.split()[2] for line in cleared(host)] == [f"mds.{number}" for number in (7, 6, 5, 4, 3, 2)]


@pytest.mark.parametrize(
    ("runqueue", "blocked", "reason"),
    [
        (0.6, 0.0, "for 60% it only waits for a CPU, and that is full"),
        (0.1, 0.6, "for 60% it only waits for its disk, and that is full"),
    ],
)
def test_a_full_commit_that_mostly_waits_is_cleared_by_what_it_waits_for(
    runqueue: float, blocked: float, reason: str
) -> None:
    """It keeps too little of what the benchmark waits for to be to blame itself."""
    busy = 0.96
    host = (
        MadeHost()
        .works({"osd": 0.15, "cpu": 0.85})
        .resource("kv_sync", "osd.0", busy - blocked, "osd", runqueue=runqueue)
        .resource("kv_commit", "osd.0", busy, "osd")
        .resource("disk", "vda", 0.99, SERVES_DISKS)
        .device("osd.0", "vda")
        .cpu(1.0)
    )

    assert f"kv_sync of osd.0 on h is busy for 96%: {reason}" in verdict(*snapshots(h=host)).innocent


@pytest.mark.parametrize(("size", "shown"), [(95.0, False), (96.0, True)])
def test_a_cache_near_its_limit_is_cleared_where_nothing_is_read_again(size: float, shown: bool) -> None:
    host = MadeHost().resource("mds_cache", "mds.a", 0.0, "mds")
    host.gauge("pinchpoint_mds_cache_bytes", size, daemon="mds.a")
    host.gauge("pinchpoint_mds_cache_limit_bytes", 100.0, daemon="mds.a")

    reason = "nobody waits for a directory that it had to read again, so its fill costs nothing"
    words = f"the cache of mds.a on h is at 96% of its limit: {reason}"
    assert cleared(host) == ((words,) if shown else ())


def test_a_cache_that_is_to_blame_is_not_cleared() -> None:
    host = MadeHost().works({"mds": 1.0}).resource("mds_cache", "mds.a", 0.9, "mds")
    host.gauge("pinchpoint_mds_cache_bytes", 100.0, daemon="mds.a")
    host.gauge("pinchpoint_mds_cache_limit_bytes", 100.0, daemon="mds.a")

    assert verdict(*snapshots(h=host)).innocent == ()
