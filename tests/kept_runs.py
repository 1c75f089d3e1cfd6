"""Saved runs with made-up recordings, for tests of the commands that read them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pinchpoint.benchmarks.markers import Marker
from pinchpoint.metrics import EXPORTER
from pinchpoint.model import Labels, Snapshot, Snapshots
from pinchpoint.runs import PhaseMark
from pinchpoint.session import store
from pinchpoint.wire.recording import FILE, Recorder

START = 1_700_000_000.0
RUN = "20231114T221320Z-base"
KINDS = {metric.name: (metric.kind.value, metric.help) for metric in EXPORTER}


def second(number: int, *, full: bool, hosts: Iterable[str] = ("here", "there")) -> Snapshots:
    """Return a moment in which a disk has been full in every second so far, or idle."""
    labels: Labels = (("owner", "vda"), ("resource", "filesystem_kernel"), ("serves", "disk"))
    busy = float(number) if full else 0.0
    values: dict[str, dict[Labels, float]] = {
        "pinchpoint_resource_busy_seconds_total": {labels: busy},
        "pinchpoint_resource_saturated_seconds_total": {labels: busy},
        "pinchpoint_resource_threshold_ratio": {(("resource", "filesystem_kernel"),): 0.8},
    }
    return {host: Snapshot(START + number + 0.125, values) for host in hosts}


def keep(moments: Iterable[Snapshots] | None, *, ended: bool = True, origin: str = "") -> Path:
    """Save a run of 20 s with two phases, and these moments; return its recording."""
    run, directory = store.new_run_directory(RUN)
    marks = [PhaseMark("write", START, START + 10), PhaseMark("read", START + 10, START + 20 if ended else None)]
    marker = Marker(run, "fio", START, START + 20 if ended else None, phases=marks, pid=0, pid_start=0, command_pid=0)
    store.save(directory, store.RunRecord(marker, ["fio"], origin=origin))
    if moments is not None:
        recorder = Recorder(directory / FILE)
        for moment in moments:
            recorder.add(moment, KINDS)
        recorder.close()
    return directory / FILE
