"""An OSD on a real disk: threads and commits compared with the test's own measurements, and a disk that is too slow."""

from __future__ import annotations

import contextlib
import itertools
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import NamedTuple

import pytest

from disks import device_of
from lab import loads
from lab.cluster import Cluster, Daemon
from lab.observer import Observer, started
from patience import patience
from pinchpoint.model import Snapshot
from pinchpoint.wire.sources import TargetSource
from polling import until

GROUP = "Threads and disks of an OSD"
SHARDS, THREADS = 3, 2
COMPLAINT_SECONDS = 3
SCRUB_SLEEP_SECONDS = 1.0
"""Pause of a scrub between two chunks of a placement group: it lasts longer than the manager needs to report it."""
SLOW, QUICK = 128 << 10, 8 << 20
"""Bytes per second that the OSD may write: 16 writes of 64 KiB take 8 s, or an eighth of a second."""
TIMES = 3
"""How often Ceph's check must be raised. With a constant 256 KiB/s it took 30 s, as batch after batch completed."""

ROLES = {
    "osd_op": ("tp_osd_tp",),
    "kv_sync": ("bstore_kv_sync",),
    "kv_final": ("bstore_kv_final",),
    "bluestore_aio": ("bstore_aio", "bstore_discard"),
    "messenger": ("msgr-worker-0", "msgr-worker-1", "msgr-worker-2"),
    "finisher": ("finisher", "cfin", "fn_anonymous"),
}
"""The roles of an OSD that can be full, and the names of their threads in Ceph 16.2.15."""
CPU_SECONDS = 4.0
"""CPU time of an OSD in the compared window: long relative to the exporter's interval of 0.1 s."""
RELATIVE, ABSOLUTE = 0.12, 0.03
"""Tolerated difference: a window has two ends, and at each the exporter is up to one sample behind."""


@pytest.fixture(scope="module")
def shared(module_clusters: Callable[..., Cluster]) -> Cluster:
    options = {
        "osd_op_complaint_time": str(COMPLAINT_SECONDS),
        "osd_op_num_shards": str(SHARDS),
        "osd_op_num_threads_per_shard": str(THREADS),
    }
    return module_clusters(store="bluestore", options={"osd": options})


class Look(NamedTuple):
    """What the exporter and the kernel report about an OSD at one time."""

    time: float
    exported: Snapshot
    used: Mapping[str, float]
    """Seconds of CPU by role."""
    synced: float
    """Seconds inside commits."""


def look(observer: Observer, osd: Daemon, daemon: str) -> Look:
    """Read both just after the exporter has queried the OSD, which it does once a second."""
    source = TargetSource(f"{observer.stack.urls['pinchpoint']}/metrics", timeout=patience(10))
    metric = "pinchpoint_osd_kv_syncs_total"
    before = source.snapshot().value(metric, daemon=daemon)
    exported = until(30, lambda: new if (new := source.snapshot()).value(metric, daemon=daemon) != before else None)
    assert exported, f"the exporter had nothing new of {daemon}"
    synced = osd.ask("perf dump")["bluestore"]["kv_sync_lat"]["sum"]
    return Look(time.monotonic(), exported, cpu_by_role(osd.pid), synced)


def cpu_by_role(pid: int) -> dict[str, float]:
    """Return the seconds of CPU that the threads of each role have used."""
    used = dict.fromkeys(ROLES, 0.0)
    for task in Path(f"/proc/{pid}/task").iterdir():
        comm, times = ((task / name).read_text() for name in ("comm", "schedstat"))
        for role, names in ROLES.items():
            if comm.strip() in names:
                used[role] += int(times.split()[0]) / 1e9
    return used


def increase(before: Look, after: Look, metric: str, **labels: str) -> float:
    old, new = before.exported.value(metric, **labels), after.exported.value(metric, **labels)
    assert old is not None, f"no {metric} {labels}"
    assert new is not None, f"no {metric} {labels}"
    return new - old


def by_cpu(seconds: Mapping[str, float]) -> list[str]:
    return sorted(seconds, key=lambda role: seconds[role], reverse=True)


@contextlib.contextmanager
def blkio(directory: Path) -> Iterator[Path]:
    """Give the cgroup v1 hierarchy blkio, mounted in `directory` if it is not mounted elsewhere."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, options, *_ = line.split()
        if kind == "cgroup" and "blkio" in options.split(","):
            yield Path(point)
            return
    directory.mkdir()
    command = ["mount", "-t", "cgroup", "-o", "blkio", "blkio", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no hierarchy blkio of cgroup v1: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


@contextlib.contextmanager
def throttled(pid: int, device: str, directory: Path) -> Iterator[Callable[[int], None]]:
    """Give a function that limits how many bytes per second a process may write to a disk past the page cache."""
    with blkio(directory) as hierarchy:
        line = re.search(r"^\d+:(?:.*,)?blkio(?:,.*)?:(/.*)$", Path(f"/proc/{pid}/cgroup").read_text(), re.MULTILINE)
        assert line, "with a hierarchy, every process is in a group of it"
        home, group = hierarchy / line[1].lstrip("/"), hierarchy / f"pinchpoint-lab-{pid}"
        try:
            group.mkdir()
            (group / "cgroup.procs").write_text(str(pid))
        except OSError as problem:
            pytest.skip(f"may not use cgroups: {problem}")
        try:
            yield lambda rate: write(group / "blkio.throttle.write_bps_device", f"{device} {rate}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                write(home / "cgroup.procs", str(pid))
            assert until(10, lambda: not (group / "cgroup.procs").read_text()), "the OSD is still in its group"
            group.rmdir()


def write(path: Path, text: str) -> None:
    path.write_text(text)


def test_the_cpu_of_roles_is_what_their_threads_used_and_the_commit_what_the_osd_says(
    shared: Cluster, observer: Observer, measured: MutableMapping[str, str]
) -> None:
    osd, daemon = shared.daemon("osd.0"), observer.daemon(shared, "osd.0")

    with loads.rados_bench(shared, block=4096, threads=16):
        before = look(observer, osd, daemon)
        until(60, lambda: sum(cpu_by_role(osd.pid).values()) - sum(before.used.values()) > CPU_SECONDS, pause=0.5)
        after = look(observer, osd, daemon)

    used = {role: cpu - before.used[role] for role, cpu in after.used.items()}
    exported = {
        role: increase(before, after, "pinchpoint_thread_cpu_seconds_total", role=role, owner=daemon) for role in used
    }
    synced = after.synced - before.synced
    commit = increase(
        before, after, "pinchpoint_resource_busy_seconds_total", resource="kv_commit", owner=daemon, serves="osd"
    )
    hottest = by_cpu(used)[0]
    measured[f"CPU of {hottest}"] = f"{exported[hottest]:.2f} s of {used[hottest]:.2f} s"
    measured["commit"] = f"{commit:.2f} s of {synced:.2f} s"
    assert exported == {role: pytest.approx(cpu, rel=RELATIVE, abs=ABSOLUTE) for role, cpu in used.items()}
    clear = [role for role in by_cpu(used) if used[role] > 2 * ABSOLUTE]
    assert clear[0] == "osd_op"
    for more, less in itertools.combinations(clear, 2):
        if used[more] - used[less] > RELATIVE * (used[more] + used[less]):
            assert exported[more] > exported[less]
    assert after.exported.value("pinchpoint_threads", role="osd_op", owner=daemon) == SHARDS * THREADS
    assert commit == pytest.approx(synced, rel=RELATIVE, abs=ABSOLUTE)
    assert commit > used["kv_sync"]


@pytest.mark.long
def test_writes_behind_a_disk_that_is_slow_again_and_again_are_one_alert_where_ceph_has_many(
    shared: Cluster, observer: Observer, tmp_path: Path, measured: MutableMapping[str, str]
) -> None:
    osd = shared.daemon("osd.0")
    device = device_of(shared.directory / "data" / "osd.0" / "block")
    disk = Path(f"/sys/dev/block/{device}").resolve().name
    observer.watch(shared)
    observer.wait_until_gone("OsdSlowOps")
    began = time.time()
    raised = [False]
    starts: set[float] = set()
    slow_ops: set[float] = set()
    limits: set[float] = set()

    def values(selector: str) -> set[float]:
        return {float(series["value"][1]) for series in observer.query(selector)}

    def was_raised_again() -> bool:
        """Keep the disk slow until Ceph raises the check, and fast until it clears; collect the effects."""
        if ("SLOW_OPS" in shared.health()) != raised[-1]:
            raised.append(not raised[-1])
            limit(QUICK if raised[-1] else SLOW)
        starts.update(started(alert) for alert in observer.alerts(alertname="OsdSlowOps"))
        daemon = observer.daemon(shared, "osd.0")  # it changes when a second cluster appears
        slow_ops.update(values(f'pinchpoint_osd_slow_ops{{daemon="{daemon}"}}'))
        limits.update(
            values(f'pinchpoint_cgroup_io_limit{{owner="{daemon}",device="{disk}",limit="write_bytes_per_second"}}')
        )
        return bool(starts) and raised.count(True) >= TIMES

    with loads.metadata(shared, "create") as creator:
        creator.wait_ready()
        with (
            throttled(osd.pid, device, tmp_path / "blkio") as limit,
            loads.rados_bench(shared, block=64 << 10, threads=16),
        ):
            limit(SLOW)
            enough = until(150, was_raised_again, pause=0.5)
            alert = observer.wait_for_alert("OsdSlowOps")
            ended = time.time()
        observer.wait_until_gone("OsdSlowOps", 60)
    measured["checks of Ceph"] = f"{raised.count(True)} in {ended - began:.0f} s"
    measured["alerts"] = str(len(starts))

    window = f"{ended - began:.0f}s"
    changes = observer.query(f'changes(ALERTS_FOR_STATE{{alertname="OsdSlowOps"}}[{window}] @ {ended:.3f})')
    at_once = observer.query(f'max_over_time(count(ALERTS{{alertname="OsdSlowOps"}})[{window}:1s] @ {ended:.3f})')
    assert enough, f"Ceph's check changed {len(raised) - 1} times"
    assert [series["value"][1] for series in changes] == ["0"]
    assert [series["value"][1] for series in at_once] == ["1"], changes
    assert len(starts) < TIMES
    assert "osd.0" in alert["annotations"]["description"]
    assert max(slow_ops) > 0
    assert SLOW in limits


def test_a_scrub_during_a_phase_is_an_alert_and_leaves_the_run_valid(
    shared: Cluster, observer: Observer, measured: MutableMapping[str, str]
) -> None:
    observer.watch(shared)
    shared.set_option("osd.0", "osd_scrub_sleep", SCRUB_SLEEP_SECONDS)
    shared.set_option("osd.0", "osd_scrub_chunk_max", 1)
    shared.set_option("osd.0", "osd_scrub_chunk_min", 1)
    # Many objects, so that a scrub lasts, but not without end, which would fill the OSD's store.
    with loads.fio_rbd(shared, bs="64k", iodepth=1, size="64M", object_size="64K", extra=["--rate_iops=100"]):
        pools = shared.command("osd lspools")
        groups = [f"{pool['poolnum']}.{number:x}" for pool in pools for number in range(8)]
        for group in groups:
            shared.command("pg deep-scrub", to="mgr", pgid=group)
        alert = observer.wait_for_alert("BackgroundWorkDuringRun", 120)
        degraded = observer.alerts(alertname="ClusterDegradedDuringRun")
        shared.set_option("osd.0", "osd_scrub_sleep", 0)
    observer.wait_until_gone("BackgroundWorkDuringRun", 120)
    measured["text"] = alert["annotations"]["description"]
    assert "scrubbing" in alert["annotations"]["description"]
    assert degraded == []
