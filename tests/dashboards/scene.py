"""A cluster in use, which every query of the dashboards can be about: runs, clients, alerts, slow operations.

`make recording` keeps what Prometheus sees of it, and tests query that (recording.py); a proof queries it live.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.cluster import Cluster, LabError, Mount
from lab.loads import metadata
from lab.observer import Observer
from machine import Machine
from machines import MACHINES
from native import Stack
from patience import patience
from polling import get_json
from ports import free_port, stack_ports

__all__ = ["Scene", "scene"]

PINCHPOINT = str(Path(sys.executable).with_name("pinchpoint"))
CACHE = 8 << 20
"""Bytes of the MDS cache; clients hold more open files than fit in it."""
OPEN_FILES = 8_000
DELAY, SLOW_SECONDS = 0.05, 0.01
"""Seconds that an OSD waits before each operation, and the age at which it calls one slow. Without the delay the loads
would take all CPUs."""
SIGNS_OF_THE_FIRST = (
    'max_over_time(pinchpoint:run_alert:info{alertname="MdsCacheOversized", run=~".*first"}[1m])',
    'max_over_time(pinchpoint_phase_verdict_info{run=~".*first"}[1m])',
    'max_over_time(pinchpoint_run_fact_hosts{run=~".*first"}[1m])',
)
SIGNS = (
    'ALERTS{alertstate="firing", alertname="ExporterDown"}',
    'pinchpoint_phase_elapsed_seconds{run=~".*second"} > 20',
    'pinchpoint_phase_elapsed_seconds{run=~".*fio"} > 20',
    'pinchpoint_verdict_info{run=~".*second"}',
    f'pinchpoint_run_fact_hosts{{run=~".*second", fact="mds:mds_cache_memory_limit", value="{2 * CACHE}"}}',
    "ceph_healthcheck_slow_ops > 0",
    'pinchpoint_storage_device_info{owner=~"osd[.].+", device!=""}',
)
COMES_AND_GOES = (
    'rate(pinchpoint_ceph_client_requests_total{target="mds"}[8s]) > 0 and on () count(up{job="pinchpoint"} == 1) == 3 '
    "and on () count(ceph_pg_total) and on () count(rate(pinchpoint_ceph_client_io_seconds_total[8s]) > 0)"
)
"""The last sign: the dashboards show that moment."""


@dataclass(frozen=True)
class Scene:
    """What Prometheus has seen."""

    stack: Stack
    end: float
    """When everything was there, in Unix seconds."""
    kinds: dict[str, str]
    """The types of the metrics: counter, gauge and so on."""


@contextlib.contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """Play the scene in a new directory; the stack still runs when it is over. Raises LabError if a sign is missing."""
    with Stack(folder / "stack", stack_ports(), runs=folder / "runs") as stack:
        observer = Observer(stack)
        with contextlib.ExitStack() as running:
            _play(folder, observer, running)
            end = time.time()
            found = get_json(f"{stack.urls['prometheus']}/api/v1/metadata")["data"]
        yield Scene(stack, end, {metric: entries[0]["type"] for metric, entries in found.items()})


def _play(folder: Path, observer: Observer, running: contextlib.ExitStack) -> None:
    stack = observer.stack
    observer.wait_for("pinchpoint_build_info")
    if others := observer.query("pinchpoint_phase_active == 1"):
        raise LabError(f"Alerts name a run only if it is the only one, but others are active: {others}")
    hosts = [running.enter_context(_simulated_host(folder / one, one)) for one in ("powersave", "performance")]
    _name(stack.state / "targets" / "pinchpoint.yml", [*hosts, f"127.0.0.1:{free_port()}"])
    cluster = running.enter_context(Cluster(osds=2, mdss=2, max_mds=2, store="bluestore"))
    observer.wait_for("pinchpoint_mds_rank_held")
    observer.watch(cluster)
    _limit_cache(cluster, CACHE)
    running.enter_context(metadata(cluster, "hold", files=OPEN_FILES))
    # The run needs the alert for one evaluation of the rules only, however slow the disk is that it begins on.
    observer.wait_for('ALERTS{alertstate="firing", alertname="MdsCacheOversized"}', 120)
    _slow_down(cluster)
    with _run(cluster, stack, folder, "first", 24) as first:
        if first.wait(patience(90)) != 0:
            raise LabError((folder / "first.log").read_text())
    for sign in SIGNS_OF_THE_FIRST:
        observer.wait_for(sign)
    _limit_cache(cluster, 2 * CACHE)
    second = running.enter_context(_run(cluster, stack, folder, "second", 120))
    running.callback(second.terminate)
    running.enter_context(metadata(cluster, "storm", rate=50))
    running.callback(cluster.spawn(_small_files(cluster.mount()), "small").terminate)
    for sign in (*SIGNS, COMES_AND_GOES):
        observer.wait_for(sign)


def _name(file: Path, targets: list[str]) -> None:
    """Write a list of targets."""
    file.write_text(json.dumps([{"targets": targets}]))


def _limit_cache(cluster: Cluster, limit: int) -> None:
    cluster.command("config set", who="mds", name="mds_cache_memory_limit", value=str(limit))


def _slow_down(cluster: Cluster) -> None:
    """Make each operation slow enough for a slow op."""
    for option, value in {
        "osd_op_complaint_time": SLOW_SECONDS,
        "osd_debug_inject_dispatch_delay_duration": DELAY,
        "osd_debug_inject_dispatch_delay_probability": 1,
    }.items():
        cluster.command("config set", who="osd", name=option, value=str(value))


def _small_files(mount: Mount) -> list[str]:
    """Return a fio that creates, writes and removes small files all the time."""
    return [
        "fio", "--name=small", f"--directory={mount.path}", "--rw=write", "--bs=4k", "--size=1M", "--nrfiles=64",
        "--numjobs=2", "--create_on_open=1", "--unlink_each_loop=1", "--loops=1000000", "--rate_iops=20",
    ]  # fmt: skip


def _run(cluster: Cluster, stack: Stack, folder: Path, name: str, seconds: int) -> subprocess.Popen[bytes]:
    """Start `rados bench` under `pinchpoint run`, which logs problems in NAME.log."""
    command = [PINCHPOINT, "run", f"--name={name}", "--quiet", f"--path.runs={folder / 'runs'}"]
    command += [f"--target=127.0.0.1:{stack.ports['pinchpoint']}", f"--prometheus={stack.urls['prometheus']}", "--"]
    command += ["rados", "bench", "-p", "rbd", str(seconds), "write", "-b", "4096", "--no-cleanup"]
    environment = cluster.environment() | {"XDG_STATE_HOME": str(folder / "kept")}
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
        )


@contextlib.contextmanager
def _simulated_host(folder: Path, governor: str) -> Iterator[str]:
    """Run an exporter on a fake host with idle states and clocks, and give its address."""
    machine = Machine(folder)
    at = MACHINES["xeon"](machine)
    for policy in (machine.sysfs / "devices/system/cpu/cpufreq").iterdir():
        (policy / "scaling_governor").write_text(f"{governor}\n")
    at(0.0)
    address = f"127.0.0.1:{free_port()}"
    paths = [f"--path.procfs={machine.procfs}", f"--path.sysfs={machine.sysfs}", f"--path.runs={machine.runs}"]
    command = [PINCHPOINT, "exporter", f"--web.listen-address={address}", *paths]
    ended = threading.Event()

    def move() -> None:
        began = time.monotonic()
        while not ended.wait(0.2):
            at(time.monotonic() - began)

    mover = threading.Thread(target=move)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as exporter:
        mover.start()
        try:
            yield address
        finally:
            exporter.terminate()
            ended.set()
            mover.join()
