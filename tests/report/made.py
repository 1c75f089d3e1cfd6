"""A made-up run of IO500 on two hosts, second by second: a recording, and the kept record of the run."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pinchpoint.benchmarks.markers import Marker
from pinchpoint.diagnosis.window import Sightings, Window, Windows
from pinchpoint.model import Labels, Snapshot, Snapshots
from pinchpoint.runs import PhaseMark, Result
from pinchpoint.session.store import RunRecord

__all__ = ["CLIENT", "MDS", "PHASES", "RUN", "START", "Act", "cut", "made_record", "moments", "record"]

START = 1_800_000_000.0
RUN = "20270115T080000Z-base"
CLIENT, MDS = "client1:9748", "mds1:9748"
GIB = 2.0**30


class Act(NamedTuple):
    """The activity of a phase, in each second of it."""

    name: str
    seconds: float
    result: Result
    waits: Mapping[str, float]
    """Processes in each wait class."""
    busy: Mapping[tuple[str, str, str, str], tuple[float, float]]
    """By host, resource, owner and classes that it serves: busy share, and run-queue share of the time."""


IDLE_OSD = {(MDS, "kv_sync", "osd.0", "osd"): (0.2, 0.02), (MDS, "osd_op", "osd.0", "osd"): (0.25, 0.03)}
CALM = {(CLIENT, "cpu", "host", "cpu,runqueue"): (0.3, 0.0), (MDS, "cpu", "host", "cpu,runqueue"): (0.4, 0.0)}
PHASES = (
    Act(
        "ior_easy_write",
        40,
        Result("write", "bytes_per_second", 1.21 * GIB, "1.21 GiB/s"),
        {"writeback": 2.4, "cpu": 1.0, "osd": 0.4, "runqueue": 0.2},
        CALM | IDLE_OSD | {(CLIENT, "writeback_worker", "ceph-1", "writeback"): (0.96, 0.04)},
    ),
    Act(
        "mdtest_easy_write",
        60,
        Result("write", "operations_per_second", 4120.0, "4.120000 kIOPS"),
        {"mds": 3.5, "cpu": 0.3, "runqueue": 0.1, "lock": 0.1},
        CALM
        | IDLE_OSD
        | {(MDS, "mds_lock", "mds.a", "mds"): (0.95, 0.05), (CLIENT, "kswapd", "node0", "memory"): (0.97, 0.0)},
    ),
    Act(
        "ior_hard_write",
        50,
        Result("write", "bytes_per_second", 0.07 * GIB, "0.070 GiB/s"),
        {"osd": 3.6, "cpu": 0.2, "idle": 0.2},
        CALM
        | {(MDS, "kv_sync", "osd.0", "osd"): (0.35, 0.02), (MDS, "osd_op", "osd.0", "osd"): (0.3, 0.03)}
        | {(MDS, "unknown_thread", "host", ""): (0.97, 0.0)},
    ),
    Act(
        "find",
        1,
        Result("find", "operations_per_second", 152000.0, "152.000000 kIOPS"),
        {"mds": 2.0, "cpu": 2.0},
        CALM | IDLE_OSD,
    ),
    Act(
        "mdtest_hard_stat",
        45,
        Result("stat", "operations_per_second", 6900.0, "6.900000 kIOPS"),
        {"mds": 2.2, "runqueue": 1.4, "cpu": 0.4},
        {
            (CLIENT, "cpu", "host", "cpu,runqueue"): (0.99, 0.0),
            (MDS, "cpu", "host", "cpu,runqueue"): (0.95, 0.0),
            (MDS, "mds_lock", "mds.a", "mds"): (0.97, 0.6),
        }
        | IDLE_OSD,
    ),
)
GAP = 3.0
"""Seconds between two phases."""
THRESHOLDS = {"writeback_worker": 0.7}
FACTS = {
    CLIENT: {"kernel": "6.1.0-18-amd64", "cpus": "8", "governor": "powersave", "vm.dirty_ratio": "20"},
    MDS: {"kernel": "6.1.0-18-amd64", "cpus": "16", "governor": "performance", "vm.dirty_ratio": "20"},
}


class _Host:
    """Counters of one host, which only increase."""

    def __init__(self) -> None:
        self.values: dict[str, dict[Labels, float]] = {}

    def add(self, name: str, amount: float, /, **labels: str) -> None:
        series = self.values.setdefault(name, {})
        key = tuple(sorted(labels.items()))
        series[key] = series.get(key, 0.0) + amount

    def set(self, name: str, value: float, /, **labels: str) -> None:
        self.values.setdefault(name, {})[tuple(sorted(labels.items()))] = value

    def snapshot(self, time: float) -> Snapshot:
        return Snapshot(time, {name: dict(series) for name, series in self.values.items()})


def made_record(run: str = RUN, start: float = START, **tags: str) -> RunRecord:
    """Return the kept record of the run."""
    marks = []
    began = start + GAP
    for number, act in enumerate(PHASES, 1):
        end = began + act.seconds
        marks.append(
            PhaseMark(
                name=act.name,
                start=began,
                end=end,
                results=[act.result],
                benchmark="io500",
                state="finished",
                source="fd",
                seconds=float(act.seconds),
                number=number,
            )
        )
        began = end + GAP
    marker = Marker(
        run,
        "io500",
        start,
        began,
        "finished",
        marks,
        total=len(marks),
        scores=[Result("total", "score", 3.94)],
        pid=1,
        pid_start=2,
        command_pid=3,
        tags=tags,
    )
    return RunRecord(marker, ["mpirun", "-np", "4", "./io500", "config.ini"], 0)


def moments(run: str = RUN, start: float = START, interval: float = 1.0) -> Iterator[Snapshots]:
    """Yield the recorded moments of the run, one every `interval` seconds."""
    hosts = {CLIENT: _Host(), MDS: _Host()}
    marks = made_record(run, start).marker.phases
    end = marks[-1].end or start
    time = start
    while time <= end + GAP:
        yield {name: host.snapshot(time) for name, host in hosts.items()}
        time += interval
        act = next((PHASES[place] for place, mark in enumerate(marks) if mark.start < time <= (mark.end or 0)), None)
        _advance(hosts, act, run, interval, time - start)


def _advance(hosts: Mapping[str, _Host], act: Act | None, run: str, seconds: float, elapsed: float) -> None:
    wobble = 1 + 0.04 * ((elapsed * 7) % 11 / 5 - 1)
    for key in {key for phase in PHASES for key in phase.busy}:
        at, resource, owner, serves = key
        share, runqueue = act.busy.get(key, (0.05, 0.0)) if act is not None else (0.02, 0.0)
        share = min(1.0, share * wobble)
        threshold = THRESHOLDS.get(resource, 0.8)
        names = {"resource": resource, "owner": owner}
        of = hosts[at]
        of.add("pinchpoint_resource_busy_seconds_total", share * seconds, **names, serves=serves)
        full = seconds if share >= threshold else 0.0
        of.add("pinchpoint_resource_saturated_seconds_total", full, **names, serves=serves)
        if resource not in ("cpu", "kswapd"):
            of.add("pinchpoint_resource_runqueue_seconds_total", runqueue * seconds, **names)
        of.set("pinchpoint_resource_threshold_ratio", threshold, resource=resource)
    client, mds = hosts[CLIENT], hosts[MDS]
    names = {"benchmark": "io500", "run": run}
    waits = act.waits if act is not None else {"idle": 4.0}
    for wait in {wait for phase in PHASES for wait in phase.waits} | {"idle"}:
        client.add("pinchpoint_workload_seconds_total", waits.get(wait, 0.0) * seconds, **names, wait=wait)
    client.set("pinchpoint_workload_owner_info", 1, **names, owner="io500")
    client.set("pinchpoint_workload_client_info", 1, **names, client="ceph-1")
    strange = "pinchpoint_unknown_thread_busy_ratio"
    mds.values.pop(strange, None)
    if act is not None and (MDS, "unknown_thread", "host", "") in act.busy:
        mds.set(strange, 0.96, thread="my_thread", process="foo")
    _advance_steps(mds, act.name if act is not None else "", seconds)
    if act is not None and act.name == "mdtest_easy_write":
        _advance_chain(client, names, seconds)
    client.set("pinchpoint_storage_device_info", 1, owner="io500", device="", bdi="ceph-1")
    mds.add("pinchpoint_thread_cpu_seconds_total", 0.4 * seconds, role="mds_lock", owner="mds.a")
    mds.add("pinchpoint_thread_runqueue_seconds_total", 0.5 * seconds, role="mds_lock", owner="mds.a")
    mds.set("pinchpoint_mds_cache_bytes", min(4.4, 0.4 + elapsed / 40) * GIB, daemon="mds.a")
    mds.set("pinchpoint_mds_cache_limit_bytes", 4 * GIB, daemon="mds.a")
    for name, host in hosts.items():
        host.add("pinchpoint_memory_allocation_stalls_total", 0.0)
        _advance_cpus(host, name, seconds, wobble, hard=act is not None and "hard" in act.name)
        for fact, value in FACTS[name].items():
            host.set("pinchpoint_host_fact_info", 1, fact=fact, value=value)
        host.set("pinchpoint_ceph_option_daemons", 8, type="osd", option="osd_memory_target", value="4294967296")


CHAIN = {("", "", "cpu"): 0.08, ("", "", "runqueue"): 0.02, ("ceph-1", "client_lock", "cpu"): 0.15,
         ("mds.a", "mds_lock", "cpu"): 0.55, ("mds.a", "mds_lock", "runqueue"): 0.1, ("osd.0", "kv_sync", "disk"): 0.1,
         }  # fmt: skip
"""Who answers for which part of the time of the benchmark's threads."""
PASSED = {("ceph-1", "client_lock", "", ""): 0.15, ("mds.a", "mds_lock", "ceph-1", "client_lock"): 0.65,
          ("osd.0", "kv_sync", "mds.a", "mds_lock"): 0.1}  # fmt: skip


def _advance_chain(host: _Host, run: Mapping[str, str], seconds: float) -> None:
    for (owner, role, kind), share in CHAIN.items():
        host.add("pinchpoint_path_seconds_total", share * seconds, **run, owner=owner, role=role, kind=kind)
    for (owner, role, to_owner, to_role), share in PASSED.items():
        to = {"to_owner": to_owner, "to_role": to_role}
        host.add("pinchpoint_path_passed_seconds_total", share * seconds, **run, owner=owner, role=role, **to)


STEPS = {"receive": 0.1, "write_process": 3.9, "write_prepare": 0.5, "store_prepare": 0.2, "kv_queue": 0.3,
         "kv_commit": 2.9}  # fmt: skip
"""Milliseconds of the steps of a write, which takes 4.1 in all."""


def _advance_steps(host: _Host, phase: str, seconds: float) -> None:
    writes, requests = 800 * seconds * (phase == "ior_hard_write"), 4120 * seconds * (phase == "mdtest_easy_write")
    host.add("pinchpoint_osd_ops_total", writes, daemon="osd.0", type="write")
    host.add("pinchpoint_osd_op_seconds_total", writes * 4.1e-3, daemon="osd.0", type="write")
    for step, milliseconds in STEPS.items():
        host.add("pinchpoint_osd_steps_total", writes, daemon="osd.0", step=step)
        host.add("pinchpoint_osd_step_seconds_total", writes * milliseconds / 1e3, daemon="osd.0", step=step)
    host.add("pinchpoint_mds_replies_total", requests, daemon="mds.a")
    host.add("pinchpoint_mds_reply_seconds_total", requests * 4e-4, daemon="mds.a")


def _advance_cpus(host: _Host, name: str, seconds: float, wobble: float, *, hard: bool) -> None:
    states = {"POLL": (0.02, 0.0), "C1": (0.15, 2e-6), "C1E": (0.1, 1e-5), "C6": (0.5 if hard else 0.2, 1.33e-4)}
    for number, (state, (share, latency)) in enumerate(states.items()):
        for cpu in ("0", "1"):
            amount = share * wobble * seconds
            host.add("pinchpoint_cpu_idle_state_seconds_total", amount, cpu=cpu, state=state)
        host.set("pinchpoint_cpu_idle_state_exit_latency_seconds", latency + number * 1e-9, state=state)
    slow = name == CLIENT and hard
    for cpu in ("0", "1"):
        host.set("pinchpoint_cpu_frequency_hertz", (1.2e9 if slow else 3.1e9) * wobble, cpu=cpu)
        host.set("pinchpoint_cpu_frequency_max_hertz", 3.7e9, cpu=cpu)


def cut(marks: Iterable[PhaseMark], taken: Iterable[Snapshots] = ()) -> list[Window]:
    """Return the windows of phases in these moments."""
    windows, sightings = Windows(), Sightings()
    found = [windows.open(mark.start, mark.end) for mark in marks]
    for moment in taken:
        windows.take(moment)
        sightings.take(moment)
    windows.finish()
    for window in found:
        window.hottest = sightings.hottest(window.start, window.end or sightings.times[-1]) if window.moments else None
    return found


def record(path: Path, run: str = RUN, start: float = START, governor: str = "powersave") -> None:
    """Write a recording of the run, whose client has this frequency governor."""
    with path.open("wb") as file:
        for moment in moments(run, start):
            lines = sorted(
                f"{name}{{{_labels({**dict(labels), 'instance': host}, governor)}}} {value!r} {taken.time!r}\n"
                for host, taken in moment.items()
                for name, series in taken.values.items()
                for labels, value in series.items()
            )
            text = "".join(lines)
            file.write(gzip.compress(f"{text}# EOF\n".encode(), compresslevel=1))


def _labels(labels: Mapping[str, str], governor: str) -> str:
    if labels.get("fact") == "governor" and labels["instance"] == CLIENT:
        labels = {**labels, "value": governor}
    return ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
