"""What the probe makes of windows, with made-up ones; real ones are in tests/bpf/test_path_bpf.py."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from pathlib import Path as File
from typing import Any, cast

import msgspec
import pytest

from machine import Machine
from pinchpoint.benchmarks.workloads import Member, Workload, Workloads
from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.bpf.path import MAX_CHOSEN, OUTSIDE, Answers, Endpoint, Responsible, Share, ThreadTime, Window
from pinchpoint.metrics import (
    KEEP_ENDED_SECONDS,
    PATH_FULL,
    PATH_LOST_SECONDS,
    PATH_OPEN_SECONDS,
    PATH_PASSED_SECONDS,
    PATH_RATIO,
    PATH_SECONDS,
    PATH_SERVED_ANSWERS,
    PATH_SERVED_PASSED_SECONDS,
    PATH_SERVED_SECONDS,
    PATH_SOURCE_INFO,
    PATH_THREAD_SECONDS,
    PATH_TRIP_SECONDS,
    PATH_TRIPS,
    PATH_WAKEUPS,
)
from pinchpoint.model import MetricKind, Snapshot
from pinchpoint.probes import path
from pinchpoint.probes.path import (
    MAX_NODES,
    MAX_OTHER_END_NODES,
    MAX_OTHER_ENDS,
    MAX_PERIOD_SECONDS,
    MAX_USER_WORKLOADS,
    MAX_WORKLOADS,
    PATH_LOOK_SECONDS,
    PATH_WINDOW_SECONDS,
    PERIOD_SECONDS,
    UNLOAD_SECONDS,
    Path,
)
from pinchpoint.sampler import Sampler
from pinchpoint.threads.processes import Process
from pinchpoint.threads.roles import BENCHMARK
from pinchpoint.user_labels import marked, user_mark
from pinchpoint.waits.chain import Node

RUN = Workload("fio", "1-fio")
SERVER = Responsible(0, b"kworker")


class Made:
    """Windows in which each chosen process waited for the same all the time."""

    opened: list[set[int]]
    ended: int
    closed: int
    lasted: float
    work: int
    shares: list[Share]
    answers: list[Answers]

    def __init__(self, procfs: File) -> None:
        self._chosen: Collection[int] = ()

    @classmethod
    def reset(cls, *shares: Share) -> None:
        cls.opened, cls.ended, cls.closed, cls.shares, cls.answers = [], 0, 0, [*shares], []
        cls.lasted, cls.work, cls.spent = 0.5, 640, False

    def open(self, processes: Collection[int], budget: int, listening: Collection[int] = ()) -> None:
        self._chosen = processes
        self.opened.append({*processes})

    spent: bool

    def end(self) -> Window:
        type(self).ended += 1
        threads = [ThreadTime(pid, pid, 0.1, 0.0, 5, self.shares, 0.0) for pid in self._chosen]
        return Window(self.lasted, 640, threads, 0.25, 3, self.answers, self.work)

    def close(self) -> None:
        type(self).closed += 1


class Working:
    """Benchmarks, by pid."""

    def __init__(self, **runs: int) -> None:
        self.runs = runs

    def current(self, now: float) -> dict[int, Member]:
        return {
            pid: Member(Process(pid, 1, "fio", BENCHMARK, "fio"), Workload("fio", run))
            for run, pid in self.runs.items()
        }


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    Made.reset(Share(SERVER, None, 0.4, 0.1))
    monkeypatch.setattr(path, "Windows", Made)


def probe(machine: Machine, working: Any) -> Path:
    return Path(machine.host(), cast(Workloads, working))


def sampled(found: Path, *, start: float = 100.0, windows: int = 1) -> float:
    """Let some windows pass; return the time then."""
    now = start
    while windows:
        ended = Made.ended
        found.sample(now)
        windows -= Made.ended > ended
        now += PATH_WINDOW_SECONDS
    return now


def seen(found: Path) -> Snapshot:
    return Snapshot.of(0.0, found.points())


def windows_of(found: Path, seconds: float) -> list[tuple[float, float]]:
    """Let the sampler work; return when each window was opened and for how long."""
    now = 0.0
    sampler = Sampler([found], 0.125, clock=lambda: now)
    spans: list[tuple[float, float]] = []
    while now < seconds:
        opened, ended = len(Made.opened), Made.ended
        due = sampler.step()
        if len(Made.opened) > opened:
            spans.append((now, 0.0))
        elif Made.ended > ended:
            spans[-1] = spans[-1][0], now - spans[-1][0]
        now = due
    return [(round(begin, 6), round(length, 6)) for begin, length in spans if length]


def test_a_window_of_half_a_second_is_opened_every_four_seconds(machine: Machine) -> None:
    spans = windows_of(probe(machine, Working(a=7)), 30.0)

    assert spans == [(PERIOD_SECONDS * number, PATH_WINDOW_SECONDS) for number in range(8)]


def test_a_window_whose_wake_ups_are_spent_is_closed_at_the_next_look(machine: Machine) -> None:
    Made.spent = True
    spans = windows_of(probe(machine, Working(a=7)), 9.0)

    assert spans[0] == (0.0, PATH_LOOK_SECONDS)
    assert [length for _, length in spans] == [PATH_LOOK_SECONDS] * 3


@pytest.mark.parametrize(("used", "work"), [(0.032, 0), (0.016, 10_667)])
def test_the_more_a_window_costs_the_later_the_next_one_begins(machine: Machine, used: float, work: int) -> None:
    Made.work = work
    steps = itertools.cycle([0.0, used / 2])
    spans = windows_of(Path(machine.host(), cast(Workloads, Working(a=7)), cpu=lambda: next(steps)), 30.0)

    assert [begin for begin, _ in spans] == [8.0 * number for number in range(4)]


def test_to_load_the_programs_delays_no_window(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    used = 0.0

    def load(procfs: File) -> Made:
        nonlocal used
        used += 1.0
        return Made(procfs)

    monkeypatch.setattr(path, "Windows", load)
    spans = windows_of(Path(machine.host(), cast(Workloads, Working(a=7)), cpu=lambda: used), 9.0)

    assert [begin for begin, _ in spans] == [0.0, 4.0, 8.0]


def test_shares_last_through_a_longer_pause(machine: Machine) -> None:
    steps = itertools.cycle([0.0, 0.2])
    found = Path(machine.host(), cast(Workloads, Working(**{"1-fio": 7})), cpu=lambda: next(steps))
    now = sampled(found)
    found.sample(now + 3.9 * MAX_PERIOD_SECONDS)
    shares = [point.value for point in found.points() if point.metric is PATH_RATIO]

    assert sorted(shares) == [pytest.approx(0.2), pytest.approx(0.8)]


def test_a_window_begins_soon_after_a_benchmark(machine: Machine) -> None:
    working = Working()
    found = probe(machine, working)
    assert windows_of(found, 9.0) == []

    working.runs = {"a": 7}
    spans = windows_of(found, 9.0)
    assert spans[0] == (0.0, PATH_WINDOW_SECONDS)


def test_series_have_who_was_responsible_for_what_in_seconds(machine: Machine) -> None:
    found = probe(machine, Working(**{"1-fio": 7}))
    sampled(found)
    snapshot = seen(found)
    named = {"benchmark": "fio", "run": "1-fio"}

    assert snapshot.value(PATH_SECONDS.name, **named, owner="", role="", kind="cpu") == pytest.approx(0.1)
    worker = {"owner": "kernel", "role": "kworker"}
    assert snapshot.value(PATH_SECONDS.name, **named, **worker, kind="cpu") == pytest.approx(0.3)
    assert snapshot.value(PATH_SECONDS.name, **named, **worker, kind="runqueue") == pytest.approx(0.1)
    passed = snapshot.value(PATH_PASSED_SECONDS.name, **named, **worker, to_owner="", to_role="")
    assert passed == pytest.approx(0.4)
    assert snapshot.value(PATH_THREAD_SECONDS.name, **named) == pytest.approx(0.5)
    assert snapshot.value(PATH_WAKEUPS.name) == 640
    assert snapshot.value(PATH_LOST_SECONDS.name) == 0.25
    assert snapshot.value(PATH_OPEN_SECONDS.name) == 0.5
    assert snapshot.value(PATH_FULL.name) == 3
    assert snapshot.value(PATH_SOURCE_INFO.name, source="bpf", reason="") == 1


@pytest.mark.parametrize(
    ("name", "uid", "left_out"),
    [("pinchpoint", 0, True), ("pinchpoint", 1000, False), ("python3", 0, False)],
    ids=["another of ours", "an untrusted user's of that name", "another program"],
)
def test_who_waits_for_a_question_of_pinchpoint_alone_has_no_part_in_a_benchmark(
    machine: Machine, name: str, uid: int, left_out: bool
) -> None:
    machine.write("proc/55/comm", f"{name}\n")
    machine.write("proc/55/status", f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    found = probe(machine, Working(a=7))
    Made.shares = [Share(Responsible(55, b"ceph-asker"), None, 0.45, 0.0)]
    sampled(found)
    seconds = seen(found).value(PATH_THREAD_SECONDS.name, benchmark="fio", run="a")

    assert seconds == (0.0 if left_out else pytest.approx(0.55))


def test_counters_only_grow(machine: Machine) -> None:
    found = probe(machine, Working(a=7))
    now = sampled(found)

    def counters() -> dict[tuple[str, tuple[str, ...]], float]:
        points = (point for point in found.points() if point.metric.kind is MetricKind.COUNTER)
        return {(point.metric.name, tuple(point.labels)): point.value for point in points}

    before = counters()
    Made.shares = [Share(Responsible(9, b"other"), None, 0.4, 0.0)]
    sampled(found, start=now + PERIOD_SECONDS)
    after = counters()

    assert all(after[key] >= value for key, value in before.items())
    assert len(after) > len(before)


def test_shares_are_those_of_the_last_four_windows_and_go_when_there_are_no_more(machine: Machine) -> None:
    working = Working(**{"1-fio": 7})
    found = probe(machine, working)
    now = sampled(found, windows=8)
    worker = {"benchmark": "fio", "run": "1-fio", "owner": "kernel", "role": "kworker"}
    assert seen(found).value(PATH_RATIO.name, **worker) == pytest.approx(0.8)

    Made.shares = []
    now = sampled(found, start=now, windows=2)
    assert seen(found).value(PATH_RATIO.name, **worker) == pytest.approx(0.8 * 5 / 6)

    working.runs = {}
    found.sample(now)
    found.sample(now + 60)
    assert seen(found).value(PATH_RATIO.name, **worker) is None


def test_without_a_benchmark_nothing_is_loaded_and_soon_nothing_is_kept(machine: Machine) -> None:
    working = Working()
    found = probe(machine, working)
    for second in range(10):
        found.sample(float(second))
    assert (Made.opened, list(found.points())) == ([], [])

    working.runs = {"a": 7}
    now = sampled(found)
    working.runs = {}
    found.sample(now + UNLOAD_SECONDS / 2)
    assert Made.closed == 0
    found.sample(now + 2 * UNLOAD_SECONDS)
    assert Made.closed == 1

    found.sample(now + 2 * UNLOAD_SECONDS + KEEP_ENDED_SECONDS)
    assert seen(found).value(PATH_THREAD_SECONDS.name, benchmark="fio", run="a") is None


def test_series_are_bounded_whatever_threads_are_called(machine: Machine) -> None:
    found = probe(machine, Working(**{f"run{number}": number for number in range(2 * MAX_WORKLOADS)}))
    for number in range(5):
        Made.shares = [
            Share(Responsible(1000 + one, b"%c%c" % (97 + number, 97 + one % 26)), None, 1e-3 * one, 0.0)
            for one in range(100)
        ]
        sampled(found, start=100.0 + number * 2 * PERIOD_SECONDS)
    series = [point.labels for point in found.points() if point.metric is PATH_SECONDS]
    pairs = [point.labels for point in found.points() if point.metric is PATH_PASSED_SECONDS]

    assert len({labels[1] for labels in series}) == MAX_WORKLOADS
    assert len(pairs) <= MAX_WORKLOADS * MAX_NODES
    assert len(series) <= MAX_WORKLOADS * (MAX_NODES + 1) * 3
    assert sum(point.value for point in found.points() if point.metric is PATH_SECONDS) == pytest.approx(
        sum(point.value for point in found.points() if point.metric is PATH_THREAD_SECONDS)
    )


def test_untrusted_users_take_no_place_of_others(machine: Machine) -> None:
    working = Working(**{marked(f"run{number}", user_mark(1000)): 10 + number for number in range(MAX_WORKLOADS)})
    found = probe(machine, working)
    now = sampled(found)
    working.runs = {**working.runs, "trusted": 7}
    sampled(found, start=now + PERIOD_SECONDS)
    runs = {point.labels[1] for point in found.points() if point.metric is PATH_THREAD_SECONDS}

    assert "trusted" in runs
    assert len(runs) == MAX_USER_WORKLOADS + 1


def test_a_new_run_takes_the_place_of_one_that_has_ended(machine: Machine) -> None:
    working = Working(**{f"run{number}": 10 + number for number in range(MAX_WORKLOADS)})
    found = probe(machine, working)
    now = sampled(found)
    working.runs = {"next": 7}
    sampled(found, start=now + PERIOD_SECONDS)
    runs = {point.labels[1] for point in found.points() if point.metric is PATH_THREAD_SECONDS}

    assert "next" in runs
    assert len(runs) == MAX_WORKLOADS


def test_more_processes_than_can_be_chosen_are_left_out(machine: Machine) -> None:
    found = probe(machine, Working(**{f"run{number}": number for number in range(MAX_CHOSEN + 5)}))
    sampled(found)

    assert len(Made.opened[0]) == MAX_CHOSEN


def end(number: int = 2) -> Endpoint:
    return Endpoint(bytes(10) + b"\xff\xff" + bytes([10, 0, number // 250, number % 250]), 6800)


def answering(where: Endpoint, *, here: bool, pid: int = 0) -> Answers:
    """Return ten answers of a process within half a second."""
    parts = [Share(Responsible(pid, b"server"), None, 0.3, 0.1), Share(SERVER, Responsible(pid, b"server"), 0.2, 0.0)]
    return Answers(where, here, 10, 0.5, parts if here else [])


def test_without_a_benchmark_there_are_windows_while_somebody_asks_for_the_full_rate(machine: Machine) -> None:
    found = probe(machine, Working())
    found.sample(100.0)
    assert Made.opened == []

    found.host.activity.ask(100.0, 60.0)
    Made.answers = [answering(end(), here=True, pid=7)]
    sampled(found)
    snapshot = seen(found)

    assert Made.opened == [set()]
    labels = {"endpoint": "10.0.0.2:6800", "owner": "server", "role": "server"}
    assert snapshot.value(PATH_SERVED_SECONDS.name, **labels, kind="cpu") == pytest.approx(0.2)
    assert snapshot.value(PATH_SERVED_SECONDS.name, **labels, kind="runqueue") == pytest.approx(0.1)
    assert snapshot.value(PATH_SERVED_PASSED_SECONDS.name, **labels, to_owner="", to_role="") == pytest.approx(0.3)
    assert snapshot.value(PATH_SERVED_ANSWERS.name, endpoint="10.0.0.2:6800") == 10

    found.sample(100.0 + 61.0)
    assert Made.opened == [set()]


def test_answers_of_other_hosts_are_counted_if_somebody_waits_for_them(machine: Machine) -> None:
    Made.reset(Share(end(), None, 0.4, 0.0))
    Made.answers = [answering(end(), here=False), answering(end(3), here=False)]
    found = probe(machine, Working(a=7))
    sampled(found)
    snapshot = seen(found)

    assert snapshot.value(PATH_TRIP_SECONDS.name, endpoint="10.0.0.2:6800") == 0.5
    assert snapshot.value(PATH_TRIPS.name, endpoint="10.0.0.2:6800") == 10
    assert snapshot.value(PATH_TRIPS.name, endpoint="10.0.0.3:6800") is None
    waited = {"benchmark": "fio", "run": "a", "owner": "network", "role": "10.0.0.2:6800", "kind": "network"}
    assert snapshot.value(PATH_SECONDS.name, **waited) == 0.4


def test_ends_of_connections_that_any_user_can_have_are_few(machine: Machine) -> None:
    found = probe(machine, Working(a=7))
    for first in range(0, 200, 20):
        Made.answers = [answering(end(number), here=True, pid=number + 100) for number in range(first, first + 20)]
        sampled(found, start=100.0 + first)
    series = [point.labels for point in found.points() if point.metric is PATH_SERVED_SECONDS]

    assert len({labels[0] for labels in series}) == MAX_OTHER_ENDS


def test_an_end_whose_answers_take_no_time_has_no_series(machine: Machine) -> None:
    found = probe(machine, Working(a=7))
    beats = answering(end(), here=True, pid=7)
    Made.answers = [msgspec.structs.replace(beats, seconds=0.004)]
    sampled(found)

    assert seen(found).value(PATH_SERVED_ANSWERS.name, endpoint="10.0.0.2:6800") is None


def test_series_of_an_end_are_bounded_whatever_threads_are_called(machine: Machine) -> None:
    found = probe(machine, Working(a=7))
    names = [b"%c%c" % (97 + one // 26, 97 + one % 26) for one in range(100)]
    parts = [Share(Responsible(7, name), Responsible(7, names[0]), 0.01, 0.0) for name in names]
    Made.answers = [Answers(end(), True, 10, 1.0, [*parts, Share(Responsible(7, names[0]), None, 0.01, 0.0)])]
    sampled(found)
    series = [point.labels for point in found.points() if point.metric is PATH_SERVED_SECONDS]
    pairs = [point.labels for point in found.points() if point.metric is PATH_SERVED_PASSED_SECONDS]

    assert len(series) <= MAX_OTHER_END_NODES + 1
    assert len(pairs) <= MAX_OTHER_END_NODES


def test_what_other_pid_namespaces_answer_is_left_to_them(machine: Machine) -> None:
    found = probe(machine, Working(a=7))
    Made.answers = [answering(end(), here=True, pid=OUTSIDE)]
    sampled(found)

    assert seen(found).value(PATH_SERVED_ANSWERS.name, endpoint="10.0.0.2:6800") is None


def test_daemons_have_places_of_their_own(machine: Machine) -> None:
    found = probe(machine, Working(a=7))
    Made.answers = [answering(end(number), here=True, pid=number + 100) for number in range(20)]
    now = sampled(found)
    osd = Process(500, 1, "ceph-osd", "ceph-osd", "osd.0", daemon=True)
    found.host.processes.followed = lambda now: {500: osd}  # type: ignore[method-assign]
    Made.answers = [answering(end(99), here=True, pid=500)]
    sampled(found, start=now + PERIOD_SECONDS)

    assert seen(found).value(PATH_SERVED_ANSWERS.name, endpoint="10.0.0.99:6800") == 10


def test_ends_are_forgotten_a_while_after_their_last_answer(machine: Machine) -> None:
    found = probe(machine, Working(a=7))
    Made.answers = [answering(end(), here=True, pid=9)]
    now = sampled(found)
    Made.answers = []
    sampled(found, start=now + KEEP_ENDED_SECONDS + 1)
    found.sample(now + KEEP_ENDED_SECONDS + 2 * PERIOD_SECONDS)

    assert seen(found).value(PATH_SERVED_ANSWERS.name, endpoint="10.0.0.2:6800") is None


def test_a_chain_goes_on_in_a_container_of_the_same_host(machine: Machine) -> None:
    Made.reset(Share(end(), None, 0.4, 0.0))
    Made.answers = [answering(end(), here=True, pid=9), answering(end(), here=False)]
    found = probe(machine, Working(a=7))
    found.sample(100.0)
    (chain,) = found.finish(100.5).values()

    assert next(iter(found.joined(chain).steps())).node == Node("server", "server")


def test_where_it_does_not_work_a_series_says_why_and_it_is_not_tried_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def fail(procfs: File) -> Made:
        tried.append(procfs)
        raise BpfError("no libbpf.so.1")

    monkeypatch.setattr(path, "Windows", fail)
    found = probe(machine, Working(a=7))
    for now in range(20):
        found.sample(float(now))

    assert seen(found).value(PATH_SOURCE_INFO.name, source="none", reason="no libbpf.so.1") == 1
    assert len(tried) == 1


def test_its_end_closes_an_open_window(machine: Machine) -> None:
    found = probe(machine, Working(a=7))
    found.sample(100.0)
    found.close()

    assert Made.closed == 1
    assert found.finish(101.0) == {}
