"""The verdict's arithmetic stands twice: for Prometheus in alerts/verdict.yml, and in the code. Both say the same."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import verdict_agreement
from pinchpoint.diagnosis import blame
from pinchpoint.diagnosis import verdict as judging
from pinchpoint.diagnosis.verdict import Kind, Verdict, verdict
from pinchpoint.model import Labels, Snapshot, Snapshots
from pinchpoint.recording import read_recording
from verdict_agreement import RULES, disagreement

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")

RECORDINGS = Path(__file__).parents[1] / "fixtures" / "runs"
WAITS = (
    *("mds", "osd", "client", "ceph"),
    *("cpu", "runqueue", "writeback", "disk", "network", "memory", "lock", "other", "idle"),
)
EXPRESSIONS = {rule["record"]: rule["expr"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}


class Cluster:
    """Two clients, of which one does not know whose ranks it has, and two hosts of Ceph; what they do is random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._crowded = self.random.uniform(0.05, 0.5)
        """Share of the resources that are full."""
        self._waits_for = WAITS[seed % len(WAITS)]
        self._one_sided = self.random.choice((1, 4, 30))
        self.rates: dict[tuple[str, str, Labels], float] = {}
        """Gain of each counter in a second, by host, metric and labels."""
        self.gauges: dict[tuple[str, str, Labels], float] = {}
        self._clients()
        self._servers()
        if seed % 8 == 0:
            self._freeze("s2", "osd.2")
        if seed % 4 == 1:
            self._other_runs()

    def history(self) -> list[Snapshots]:
        """Return a minute of it, every 2 s; neither the pace nor what happens is quite steady."""
        values = dict.fromkeys(self.rates, 1000.0)
        times = dict.fromkeys(("c1", "c2", "s1", "s2"), 1.7e9)
        found: list[Snapshots] = []
        for step in range(30):
            for host, last in times.items():
                now = 1.7e9 + 2 * step + self.random.uniform(0, 0.1)
                for key, rate in self.rates.items():
                    if key[0] == host:
                        values[key] += rate * max(0.0, now - last) * self.random.uniform(0.9, 1.1)
                times[host] = now
            found.append({host: self._snapshot(host, now, values) for host, now in times.items()})
        return found

    def _snapshot(self, host: str, now: float, counters: dict[tuple[str, str, Labels], float]) -> Snapshot:
        values: dict[str, dict[Labels, float]] = {}
        for (where, name, labels), value in (counters | self.gauges).items():
            if where == host:
                values.setdefault(name, {})[labels] = value
        return Snapshot(now, values)

    def _counter(self, host: str, name: str, rate: float, **labels: str) -> None:
        self.rates[host, name, tuple(sorted(labels.items()))] = rate

    def _gauge(self, host: str, name: str, value: float, **labels: str) -> None:
        self.gauges[host, name, tuple(sorted(labels.items()))] = value

    def _resource(self, host: str, resource: str, owner: str, serves: str, threshold: float, *, stage: bool) -> None:
        # Nothing is near its threshold: what is full must not depend on how a mean is taken.
        full = self.random.random() < self._crowded
        busy = self.random.uniform(threshold + 0.15, 1.0) if full else self.random.uniform(0, 0.8 * threshold)
        labels = {"resource": resource, "owner": owner}
        self._counter(host, "pinchpoint_resource_busy_seconds_total", busy, **labels, serves=serves)
        saturated = self.random.uniform(0.5, 1.0) if full else 0.1
        self._counter(host, "pinchpoint_resource_saturated_seconds_total", saturated, **labels, serves=serves)
        self._gauge(host, "pinchpoint_resource_threshold_ratio", threshold, resource=resource)
        if stage:
            waited = busy * self.random.uniform(0, 0.9)
            self._counter(host, "pinchpoint_resource_runqueue_seconds_total", waited, **labels)
            for role, part in (("messenger", 2), (resource, 1)):
                self._counter(host, "pinchpoint_thread_cpu_seconds_total", busy / 2 / part, role=role, owner=owner)
                self._counter(host, "pinchpoint_thread_runqueue_seconds_total", waited / part, role=role, owner=owner)

    def _host(self, host: str, *disks: str) -> None:
        self._resource(host, "cpu", "host", "cpu,runqueue", 0.8, stage=False)
        self._resource(host, "link", "eth0", "network,mds,osd", 0.8, stage=False)
        self._resource(host, "memory", "host", "memory", 0.1, stage=False)
        for disk in disks:
            self._resource(host, "disk", disk, "disk,writeback", 0.8, stage=False)

    def _workload(self, host: str, benchmark: str, run: str, owner: str, processes: int) -> None:
        labels = {"benchmark": benchmark, "run": run}
        self._gauge(host, "pinchpoint_workload_processes", processes, **labels)
        self._gauge(host, "pinchpoint_workload_owner_info", 1, **labels, owner=owner)
        weights = {wait: self.random.random() ** 3 for wait in WAITS}
        weights[self._waits_for] += self._one_sided
        for wait, weight in weights.items():
            seconds = processes * weight / sum(weights.values())
            self._counter(host, "pinchpoint_workload_seconds_total", seconds, **labels, wait=wait)

    def _clients(self) -> None:
        for host, run, processes in (("c1", "r1", 2), ("c2", "", 3)):
            self._host(host, "vda", "vdb")
            self._workload(host, "ior", run, "ior", processes)
            self._resource(host, "benchmark", "ior", "cpu,runqueue", 0.8, stage=True)
            self._resource(host, "cpu_set", "ior", "cpu,runqueue", 0.8, stage=False)
            self._resource(host, "client_lock", "ceph-fuse", "client", 0.8, stage=True)
            self._resource(host, "client_lock", "rbd-nbd", "client", 0.8, stage=True)
            self._resource(host, "writeback_worker", "254:0", "writeback", 0.7, stage=True)
            self._resource(host, "writeback_worker", "0:45", "writeback", 0.7, stage=True)
            self._resource(host, "journal", "vda1", "disk", 0.8, stage=True)
        if self.random.random() < 0.5:
            labels = {"benchmark": "ior", "run": "", "client": "ceph-fuse"}
            self._gauge("c2", "pinchpoint_workload_client_info", 1, **labels)
        if self.random.random() < 0.5:
            self._gauge("c1", "pinchpoint_storage_device_info", 1, owner="ior", device="vda", bdi="254:0")
        if self.random.random() < 0.5:
            self._resource("c1", "io_quota", "ior", "disk,writeback", 0.8, stage=False)

    def _servers(self) -> None:
        for host, daemons in (("s1", ("mds.a", "osd.0", "osd.1")), ("s2", ("mds.b", "osd.2", "mon.a"))):
            self._host(host, "sdb", "sdc", "sdd")
            for number, daemon in enumerate(daemons):
                self._resource(host, "messenger", daemon, "mds,osd", 0.8, stage=True)
                if daemon.startswith("mds."):
                    self._resource(host, "mds_lock", daemon, "mds", 0.8, stage=True)
                    self._resource(host, "mds_cache", daemon, "mds", 0.8, stage=False)
                if daemon.startswith("osd."):
                    self._resource(host, "osd_op", daemon, "osd", 0.8, stage=True)
                    self._resource(host, "kv_sync", daemon, "osd", 0.8, stage=True)
                    self._resource(host, "kv_commit", daemon, "osd", 0.8, stage=False)
                    disk = ("sdb", "sdc", "sdd")[number]
                    self._gauge(host, "pinchpoint_storage_device_info", 1, owner=daemon, device=disk, bdi="8:16")
                if self.random.random() < 0.3:
                    self._resource(host, "cpu_quota", daemon, "cpu,runqueue", 0.5, stage=False)
                if self.random.random() < 0.3:
                    self._resource(host, "io_quota", daemon, "disk,writeback", 0.8, stage=False)

    def _freeze(self, host: str, daemon: str) -> None:
        self._gauge(host, "pinchpoint_ceph_socket_problem_info", 1, daemon=daemon, reason="timeout")
        self._gauge(host, "pinchpoint_ceph_daemon_stuck", 1, daemon=daemon)

    def _other_runs(self) -> None:
        self._workload("c1", "ior", "r2", "ior", 1)
        self._workload("c1", "fio", "r3", "fio", 4)
        self._resource("c1", "benchmark", "fio", "cpu,runqueue", 0.8, stage=True)
        self._gauge("c1", "pinchpoint_storage_device_info", 1, owner="fio", device="vdb", bdi="254:16")


SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
def test_rules_and_code_agree(seed: int, tmp_path: Path) -> None:
    assert disagreement(Cluster(seed).history(), tmp_path) == ""


def test_the_seeds_lead_to_every_kind_of_verdict_that_data_can_have() -> None:
    kinds = set()
    for seed in SEEDS:
        history = Cluster(seed).history()
        kinds.add(verdict(history[-8], history[-1], benchmark="ior", run="r1").kind)
    assert kinds == set(Kind) - {Kind.TOO_SHORT}


def other_share(found: Verdict) -> Verdict:
    return replace(found, waits={**found.waits, "mds": found.waits["mds"] + 0.06})


def other_class(found: Verdict) -> Verdict:
    return replace(found, waits={**found.waits, "tape": 0.06})


def other_blame(found: Verdict) -> Verdict:
    first = found.ranking[0]
    return replace(found, ranking=(replace(first, blame=first.blame - 0.06), *found.ranking[1:]))


@pytest.mark.parametrize("recording", sorted(RECORDINGS.glob("*.om.gz")), ids=lambda path: path.name)
def test_rules_and_code_say_the_same_of_real_runs(recording: Path, tmp_path: Path) -> None:
    assert disagreement(list(read_recording(recording)), tmp_path) == ""


def test_there_are_real_runs_to_compare() -> None:
    assert len(list(RECORDINGS.glob("*.om.gz"))) >= 2


def other_owner(found: Verdict) -> Verdict:
    return replace(found, ranking=(replace(found.ranking[0], owner="somebody"), *found.ranking[1:]))


def other_kind(found: Verdict) -> Verdict:
    return replace(found, kind=Kind.UNKNOWN)


def fewer_limits(found: Verdict) -> Verdict:
    return replace(found, limits=found.limits[1:])


SEVERAL = 6
"""A seed that leads to several limits."""


@pytest.mark.parametrize("change", [other_share, other_class, other_blame, other_owner, other_kind, fewer_limits])
def test_a_difference_is_seen(
    change: Callable[[Verdict], Verdict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(before: Snapshots, after: Snapshots, *, benchmark: str, run: str) -> Verdict:
        return change(verdict(before, after, benchmark=benchmark, run=run))

    monkeypatch.setattr(verdict_agreement, "verdict", changed)
    assert "FAILED" in disagreement(Cluster(SEVERAL).history(), tmp_path)


def test_a_history_that_nothing_can_be_said_about_is_no_agreement(tmp_path: Path) -> None:
    history = Cluster(SEVERAL).history()
    with pytest.raises(ValueError, match=r"20 s of data, 30 s are needed"):
        disagreement(history[:11], tmp_path)
    for moment in history:
        for snapshot in moment.values():
            assert isinstance(snapshot.values, dict)
            snapshot.values.pop("pinchpoint_workload_seconds_total", None)
    with pytest.raises(ValueError, match=r"0 benchmarks in the last 15 s"):
        disagreement(history, tmp_path)


FLOOR = 0.01
"""What is less than this is no answer: the rules leave it out. What adds up over the classes is kept for longer."""


KINDS = {judging.IDLE, judging.IDLE_BLAME, judging.MOST, judging.LEAD, judging.TIE, judging.TOGETHER}
BORDERS: dict[str, set[float]] = {
    "pinchpoint:resource_busy:ratio": {FLOOR},
    "pinchpoint:reach:ratio": {FLOOR / 10},
    "pinchpoint:blame:ratio": {FLOOR},
    "pinchpoint:resource_full:ratio": {blame.FULL_SAMPLES},
    "pinchpoint:verdict_kind:info": KINDS,
    "pinchpoint:verdict:info": {judging.LEAD, judging.TIE},
}


@pytest.mark.parametrize("rule", EXPRESSIONS)
def test_rules_and_code_have_the_same_borders(rule: str) -> None:
    text = re.sub(r'"[^"]*"', "", EXPRESSIONS[rule])
    assert {float(number) for number in re.findall(r"(?<![\w.])0\.\d+", text)} == BORDERS.get(rule, set())
