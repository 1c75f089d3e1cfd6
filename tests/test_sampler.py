from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from machine import Machine
from patience import Stopwatch, patience
from pinchpoint import sampler as sampler_module
from pinchpoint.activity import HOLD_SECONDS, Activity
from pinchpoint.build import HostSampler, local_sampler
from pinchpoint.clock import Clock as SteadyClock
from pinchpoint.config import Config
from pinchpoint.cost_limit import CostLimit
from pinchpoint.host.capabilities import Capability
from pinchpoint.metrics import EXPORTER, PROBE_SUCCESS
from pinchpoint.model import Metric, Point, Snapshot
from pinchpoint.probes import PROBES, Host, NotPresent, Probe
from pinchpoint.sampler import POINTS_TIMEOUT_SECONDS, Sampler, raise_priority
from pinchpoint.wire.recording import Recorder, read_recording
from polling import until

VALUE = Metric("test_value", "A test's value.", labels=("probe",))


class Fake(Probe):
    """A probe that counts its samples, and calls `work` at each."""

    name: ClassVar[str] = "fake"
    help: ClassVar[str] = "a test's probe"
    metrics: ClassVar[tuple[Metric, ...]] = (VALUE,)
    interval: float | None = 1.0

    def __init__(self, host: Host, work: Callable[[], None] = lambda: None) -> None:
        super().__init__(host)
        self.work = work
        self.times: list[float] = []
        self.closed = False

    def sample(self, now: float) -> None:
        self.times.append(now)
        self.work()

    def points(self) -> Iterable[Point]:
        yield VALUE.point(len(self.times), self.name)

    def close(self) -> None:
        self.closed = True


def fake(machine: Machine, name: str, work: Callable[[], None] = lambda: None, **attributes: object) -> Fake:
    """Return a probe of its own class."""
    made: Fake = type(name, (Fake,), {"name": name, **attributes})(machine.host(), work)
    return made


class Clock:
    """A clock that moves on command."""

    def __init__(self) -> None:
        self.now = 100.0
        self.set = 0.0
        """By how much the wall clock was set forward."""

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def stepped(clock: Clock, *probes: Probe, interval: float = 0.1) -> Sampler:
    return Sampler(probes, interval, clock=clock, unix=SteadyClock(lambda: 1e9 + clock.now + clock.set, clock))


def value(sampler: Sampler, name: str, probe: str) -> float | None:
    return Snapshot.of(0, sampler.points()).value(f"pinchpoint_{name}", probe=probe)


def broken() -> None:
    raise RuntimeError("it broke")


def absent() -> None:
    raise NotPresent("no such file")


def test_each_probe_is_sampled_at_its_own_pace_or_at_the_samplers(machine: Machine, clock: Clock) -> None:
    slow, fast = fake(machine, "slow"), fake(machine, "quick", interval=None)
    sampler = stepped(clock, slow, fast)
    for tick in range(31):
        clock.now = 100.0 + tick / 10 + 0.001
        sampler.step()

    assert len(slow.times) == 4
    assert len(fast.times) == 31
    assert value(sampler, "sampler_late_samples_total", "quick") == 0
    assert value(sampler, "sampler_lost_samples_total", "quick") == 0
    assert value(sampler, "probe_interval_seconds", "quick") == 0.1


def test_a_probe_that_needs_no_short_intervals_is_sampled_no_oftener_than_it_needs(
    machine: Machine, clock: Clock
) -> None:
    for interval, samples in ((0.1, 16), (0.4, 8)):
        probe = fake(machine, "calm", interval=None, min_interval=0.2)
        sampler = stepped(clock, probe, interval=interval)
        begin = clock.now
        for tick in range(31):
            clock.now = begin + tick / 10 + 0.001
            sampler.step()
        assert len(probe.times) == samples


def test_a_probe_may_change_its_pace_from_one_sample_to_the_next(machine: Machine, clock: Clock) -> None:
    probe = fake(machine, "changes", interval=0.5)

    def change() -> None:
        probe.interval = None if len(probe.times) >= 3 else 0.5

    probe.work = change
    sampler = stepped(clock, probe)
    for tick in range(21):
        clock.now = 100.0 + tick / 10 + 0.001
        sampler.step()

    assert [round(then - 100.0, 1) for then in probe.times][:5] == [0.0, 0.5, 1.0, 1.1, 1.2]
    assert value(sampler, "sampler_lost_samples_total", "changes") == 0


def test_what_a_probe_looks_at_between_two_samples_changes_neither_their_times_nor_their_number(
    machine: Machine, clock: Clock
) -> None:
    probe = fake(machine, "watches", interval=0.5)

    def watch() -> None:
        probe.again = 0.1 if 2 <= len(probe.times) < 5 else None

    probe.work = watch
    sampler = stepped(clock, probe)
    for tick in range(21):
        clock.now = 100.0 + tick / 10 + 0.001
        sampler.step()

    assert [round(then - 100.0, 1) for then in probe.times] == [0.0, 0.5, 0.6, 0.7, 0.8, 1.0, 1.5, 2.0]
    assert value(sampler, "sampler_samples_total", "watches") == 5
    assert value(sampler, "sampler_lost_samples_total", "watches") == 0
    assert value(sampler, "sampler_late_samples_total", "watches") == 0
    assert value(sampler, "probe_interval_seconds", "watches") == 0.5


def resting(clock: Clock, activity: Activity, *probes: Probe) -> Sampler:
    return Sampler(probes, 0.1, clock=clock, activity=activity)


def run_for(sampler: Sampler, clock: Clock, seconds: float) -> None:
    end = clock.now + seconds
    while clock.now < end - 1e-9:
        clock.now += 0.1
        sampler.step()


def test_while_nothing_happens_probes_are_sampled_at_their_rest_intervals(machine: Machine, clock: Clock) -> None:
    quick = fake(machine, "quick", interval=None, rest_interval=1.0)
    steady, slow = fake(machine, "steady"), fake(machine, "slow", interval=5.0, rest_interval=2.0)
    sampler = resting(clock, Activity(), quick, steady, slow)
    sampler.step()
    clock.now += 0.001
    run_for(sampler, clock, 10)

    assert [len(probe.times) for probe in (quick, steady, slow)] == [11, 11, 3]
    assert value(sampler, "probe_interval_seconds", "quick") == 1.0
    assert value(sampler, "sampler_lost_samples_total", "quick") == 0
    assert Snapshot.of(0, sampler.points()).value("pinchpoint_sampler_resting") == 1


def test_when_something_happens_all_are_sampled_at_once_and_then_at_the_full_rate(
    machine: Machine, clock: Clock
) -> None:
    quick = fake(machine, "quick", interval=None, rest_interval=1.0)
    slow = fake(machine, "slow", rest_interval=5.0)
    activity = Activity()
    sampler = resting(clock, activity, quick, slow)
    clock.now += 0.001
    run_for(sampler, clock, 2)
    taken = len(quick.times), len(slow.times)
    began = clock.now
    activity.note(began)
    run_for(sampler, clock, 1)

    assert (len(quick.times) - taken[0], len(slow.times) - taken[1]) == (10, 1)
    assert slow.times[-1] == pytest.approx(began + 0.1)
    assert value(sampler, "probe_interval_seconds", "quick") == 0.1
    assert value(sampler, "sampler_lost_samples_total", "slow") == 0

    run_for(sampler, clock, HOLD_SECONDS + 1)
    assert value(sampler, "probe_interval_seconds", "quick") == 1.0


def test_what_was_missed_at_rest_is_lost_at_that_rate(machine: Machine, clock: Clock) -> None:
    """The exporter is stopped, and a load begins as it goes on: all are due at once, and from now on at full rate."""
    quick = fake(machine, "quick", interval=None, rest_interval=1.0)
    activity = Activity()
    sampler = resting(clock, activity, quick)
    sampler.step()
    clock.now += 0.001
    run_for(sampler, clock, 3)
    clock.now += 12.0
    activity.note(clock.now)
    sampler.step()

    assert value(sampler, "sampler_lost_samples_total", "quick") == 11
    run_for(sampler, clock, 1)
    assert value(sampler, "sampler_lost_samples_total", "quick") == 11


def test_the_full_rate_can_be_asked_for(machine: Machine, clock: Clock) -> None:
    quick = fake(machine, "quick", interval=None, rest_interval=1.0)
    sampler = resting(clock, Activity(), quick)
    sampler.hold_full_rate(60)
    clock.now += 0.001
    run_for(sampler, clock, 5)

    assert len(quick.times) == 50


def test_what_a_machine_does_not_have_is_looked_for_once_a_second(machine: Machine, clock: Clock) -> None:
    there = fake(machine, "there", interval=0.2)
    gone = fake(machine, "gone", absent, interval=0.2)
    sampler = stepped(clock, there, gone)
    clock.now += 0.001
    run_for(sampler, clock, 10)

    assert (len(there.times), len(gone.times)) == (51, 11)


def test_above_its_limit_of_cost_it_samples_less_often_and_says_so(machine: Machine, clock: Clock) -> None:
    quick = fake(machine, "quick", interval=None)
    steady = fake(machine, "phases", interval=0.5, steady=True)
    used = 0.0
    limit = CostLimit(0.02, lambda: used)
    sampler = Sampler([quick, steady], 0.1, clock=clock, limit=limit)
    for _ in range(200):
        clock.now += 0.1
        used += 0.003 / limit.factor
        sampler.step()

    assert value(sampler, "probe_interval_seconds", "quick") == pytest.approx(0.2)
    assert value(sampler, "probe_interval_seconds", "phases") == 0.5
    assert Snapshot.of(0, sampler.points()).value("pinchpoint_sampler_degraded") == 2


def test_a_host_that_comes_to_rest_begins_the_next_load_at_the_full_rate(machine: Machine, clock: Clock) -> None:
    quick = fake(machine, "quick", interval=None, rest_interval=1.0)
    used, activity = 0.0, Activity()
    limit = CostLimit(0.02, lambda: used)
    sampler = Sampler([quick], 0.1, clock=clock, limit=limit, activity=activity)
    activity.note(clock.now, 30.0)
    for _ in range(250):
        clock.now += 0.1
        used += 0.01
        sampler.step()
    assert limit.factor > 1

    run_for(sampler, clock, 20)
    assert limit.factor == 1


def test_a_sign_of_activity_wakes_threads_that_rest(machine: Machine) -> None:
    """They would sleep for an hour."""
    quick = fake(machine, "quick", interval=None, rest_interval=3600.0, fast=True)
    slow = fake(machine, "slow", rest_interval=3600.0)
    ahead = [0.0]
    sampler = Sampler([quick, slow], activity=Activity(), clock=lambda: time.monotonic() + ahead[0])
    sampler.start()
    try:
        assert until(10, lambda: bool(quick.times and slow.times))
        ahead[0] = HOLD_SECONDS
        assert until(10, lambda: value(sampler, "probe_interval_seconds", "quick") == 3600.0)
        before = len(quick.times)
        sampler.hold_full_rate(HOLD_SECONDS)
        assert until(10, lambda: len(quick.times) >= before + 3)
    finally:
        sampler.stop()


def test_what_samples_cost_is_counted(machine: Machine, clock: Clock) -> None:
    def work() -> None:
        until_used = time.thread_time() + 0.002
        while time.thread_time() < until_used:
            pass

    sampler = stepped(clock, fake(machine, "heavy", work), fake(machine, "light"))
    sampler.step()

    heavy, light = (value(sampler, "probe_cpu_seconds_total", name) for name in ("heavy", "light"))
    assert heavy is not None
    assert light is not None
    assert heavy >= 0.002 > light


def test_a_step_says_when_the_next_sample_is_due(machine: Machine, clock: Clock) -> None:
    sampler = stepped(clock, fake(machine, "slow"), fake(machine, "quick", interval=0.25))

    assert sampler.step() == pytest.approx(100.25)


@pytest.mark.parametrize(
    ("behind", "late", "lost"), [(0.0, 0, 0), (0.04, 0, 0), (0.06, 1, 0), (0.13, 1, 1), (0.58, 1, 5)]
)
def test_a_sample_behind_time_is_late_and_those_between_are_lost(
    machine: Machine, clock: Clock, behind: float, late: int, lost: int
) -> None:
    sampler = stepped(clock, fake(machine, "quick", interval=None))
    sampler.step()
    clock.now = 100.1 + behind
    sampler.step()

    assert value(sampler, "sampler_samples_total", "quick") == 2
    assert value(sampler, "sampler_late_samples_total", "quick") == late
    assert value(sampler, "sampler_lost_samples_total", "quick") == lost


def test_after_a_delay_samples_keep_their_old_rhythm(machine: Machine, clock: Clock) -> None:
    sampler = stepped(clock, fake(machine, "quick", interval=None))
    sampler.step()
    clock.now = 100.47

    assert sampler.step() == pytest.approx(100.5)


def test_a_slow_sample_makes_those_of_others_late_in_the_counts(machine: Machine, clock: Clock) -> None:
    def dawdle() -> None:
        clock.now += 0.25

    sampler = stepped(clock, fake(machine, "slow", dawdle), fake(machine, "quick", interval=None))
    sampler.step()

    assert value(sampler, "sampler_lost_samples_total", "quick") == 2
    assert value(sampler, "probe_duration_seconds", "slow") == pytest.approx(0.25)


def test_timestamps_follow_the_wall_clock_and_by_how_much_it_was_set_is_told(machine: Machine, clock: Clock) -> None:
    sampler = stepped(clock, fake(machine, "good"))
    sampler.step()
    clock.set = 3600.0

    assert value(sampler, "probe_last_success_timestamp_seconds", "good") == 1e9 + 3700
    assert Snapshot.of(0, sampler.points()).value("pinchpoint_sampler_clock_set_seconds") == 3600

    clock.set = -30.0
    clock.now += 1.0
    sampler.step()
    assert value(sampler, "probe_last_success_timestamp_seconds", "good") == 1e9 + 71
    assert Snapshot.of(0, sampler.points()).value("pinchpoint_sampler_clock_set_seconds") == -30


def test_a_probe_that_raises_has_no_success_and_stops_nobody_else(
    machine: Machine, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = fake(machine, "bad", broken), fake(machine, "good")
    sampler = stepped(clock, bad, good)
    for _ in range(3):
        sampler.step()
        clock.now += 1.0

    assert (value(sampler, "probe_success", "bad"), value(sampler, "probe_success", "good")) == (0, 1)
    assert value(sampler, "probe_present", "bad") == 1
    assert value(sampler, "probe_last_success_timestamp_seconds", "bad") is None
    assert value(sampler, "probe_last_success_timestamp_seconds", "good") == 1e9 + 102
    assert (len(bad.times), len(good.times)) == (3, 3)
    assert caplog.messages == ["probe bad: RuntimeError: it broke"]


def test_a_failure_that_goes_on_is_logged_again_after_five_minutes(
    machine: Machine, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    sampler = stepped(clock, fake(machine, "bad", broken))
    for _ in range(301):
        sampler.step()
        clock.now += 1.0

    assert len(caplog.messages) == 2


def test_a_probe_recovers_as_soon_as_it_works(machine: Machine, clock: Clock) -> None:
    probe = fake(machine, "bad", broken)
    sampler = stepped(clock, probe)
    sampler.step()
    probe.work = lambda: None
    clock.now += 1.0
    sampler.step()

    assert value(sampler, "probe_success", "bad") == 1


def test_what_this_machine_does_not_have_is_no_failure_and_has_no_series(
    machine: Machine, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    sampler = stepped(clock, fake(machine, "missing", absent))
    sampler.step()

    assert value(sampler, "probe_success", "missing") == 1
    assert value(sampler, "probe_present", "missing") == 0
    assert "test_value" not in Snapshot.of(0, sampler.points()).values
    assert [record for record in caplog.records if record.levelno >= logging.INFO] == []


def test_points_that_raise_cost_the_probe_its_success_and_nobody_else(machine: Machine, clock: Clock) -> None:
    def points(self: Fake) -> Iterator[Point]:
        yield VALUE.point(1, "first")
        broken()

    sampler = stepped(clock, fake(machine, "bad", points=points), fake(machine, "good"))
    sampler.step()

    assert (value(sampler, "probe_success", "bad"), value(sampler, "probe_success", "good")) == (0, 1)
    assert Snapshot.of(0, sampler.points()).value("test_value", probe="good") == 1


def test_a_probe_that_was_never_sampled_has_no_success(machine: Machine, clock: Clock) -> None:
    sampler = stepped(clock, fake(machine, "new"))

    assert value(sampler, "probe_success", "new") == 0


def test_the_number_of_series_counts_itself(machine: Machine, clock: Clock) -> None:
    sampler = stepped(clock, fake(machine, "one"), fake(machine, "two"))
    sampler.step()
    found = sampler.points()

    assert Snapshot.of(0, found).value("pinchpoint_self_series") == len(found)


class Foreign(Fake):
    """A probe whose values and labels come from foreign text."""

    def points(self) -> Iterable[Point]:
        yield VALUE.point(10**400, "number")
        yield VALUE.point(1, "name \udcff")
        yield VALUE.point(7, "own")


def test_a_series_that_cannot_be_written_is_dropped_and_counted_at_each_exposition(
    machine: Machine, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    sampler = stepped(clock, Foreign(machine.host()), fake(machine, "good"))
    sampler.step()
    before, after = (Snapshot.of(0, sampler.points()) for _ in range(2))

    assert after.values["test_value"] == {(("probe", "own"),): 7, (("probe", "good"),): 1}
    assert before.value("pinchpoint_self_dropped_series_total") == 2
    assert after.value("pinchpoint_self_dropped_series_total") == 4
    assert after.value("pinchpoint_self_series") == sum(map(len, after.values.values()))
    assert [record.getMessage() for record in caplog.records] == [
        "test_value: a series is left out: its value or a label cannot be written"
    ]


def test_where_all_can_be_written_none_is_dropped(machine: Machine, clock: Clock) -> None:
    sampler = stepped(clock, fake(machine, "good"))

    assert Snapshot.of(0, sampler.points()).value("pinchpoint_self_dropped_series_total") == 0


def test_what_a_sampler_gives_can_be_recorded_whatever_its_probes_found(
    machine: Machine, clock: Clock, tmp_path: Path
) -> None:
    sampler = stepped(clock, Foreign(machine.host()))
    sampler.step()
    kinds = {metric.name: (metric.kind.value, metric.help) for metric in [*EXPORTER, VALUE]}
    recorder = Recorder(tmp_path / "recording")
    recorder.add({"here": Snapshot.of(1.0, sampler.points())}, kinds)
    recorder.close()
    (moment,) = read_recording(tmp_path / "recording")

    assert moment["here"].values["test_value"] == {(("probe", "own"),): 7}


@pytest.fixture
def of_this_host() -> Iterator[Callable[[Config], HostSampler]]:
    """Return what makes samplers of this host, and stop them at the end: their probes have files and BPF objects."""
    made: list[HostSampler] = []

    def make(config: Config) -> HostSampler:
        made.append(local_sampler(config))
        return made[-1]

    yield make
    for sampler in made:
        sampler.stop()


@pytest.mark.parametrize("rest", [True, False])
def test_who_asks_for_the_full_rate_also_learns_for_whom_daemons_work(
    of_this_host: Callable[[Config], HostSampler], rest: bool
) -> None:
    sampler = of_this_host(Config(rest=rest, probe={probe.name: False for probe in PROBES}))
    sampler.hold_full_rate(60)

    assert sampler.host.activity.asked(time.monotonic())


def test_the_number_of_series_counts_the_thresholds_too(of_this_host: Callable[[Config], HostSampler]) -> None:
    found = of_this_host(Config()).points()

    assert Snapshot.of(0, found).value("pinchpoint_self_series") == len(found)
    assert Snapshot.of(0, found).value("pinchpoint_alert_threshold", alert="SamplerLate") is not None


def test_what_a_probe_lacks_is_exported_by_name(
    monkeypatch: pytest.MonkeyPatch, of_this_host: Callable[[Config], HostSampler]
) -> None:
    monkeypatch.setattr("pinchpoint.build.effective", lambda: frozenset({Capability.SYS_PTRACE, Capability.SYS_NICE}))
    found = Snapshot.of(0, of_this_host(Config(probe={"osd": False})).points())
    lacking = {
        (labels["probe"], labels["capability"])
        for labels, _ in found.series("pinchpoint_probe_missing_capability_info")
    }

    assert {("tasks", "CAP_BPF"), ("tasks", "CAP_PERFMON"), ("storage", "CAP_DAC_READ_SEARCH")} < lacking
    assert not {probe for probe, _ in lacking} & {"osd", "cpu", "devices"}
    assert not {capability for _, capability in lacking} & {"CAP_SYS_PTRACE", "CAP_SYS_NICE"}


@pytest.fixture
def hanging(machine: Machine) -> Iterator[list[Fake]]:
    """Four probes that hang for ever, as far as the sampler can tell."""
    release = threading.Event()

    def hang() -> None:
        release.wait(60)

    yield [fake(machine, f"hangs{number}", hang) for number in range(4)]
    release.set()


def test_probes_that_hang_make_only_themselves_blind(machine: Machine, hanging: list[Fake]) -> None:
    good, fast = fake(machine, "good", interval=0.02), fake(machine, "quick", interval=0.02, fast=True)
    sampler = Sampler([*hanging, good, fast])
    sampler.start()
    try:
        assert until(10, lambda: all(probe.times for probe in hanging))
        before = len(good.times), len(fast.times)
        assert until(10, lambda: len(good.times) > before[0] + 10 and len(fast.times) > before[1] + 10, 0.01)
        time.sleep(POINTS_TIMEOUT_SECONDS)
        watch = Stopwatch()
        snapshot = Snapshot.of(0, sampler.points())

        assert watch.tick() < len(hanging) * POINTS_TIMEOUT_SECONDS
        for probe in hanging:
            assert snapshot.value("pinchpoint_probe_success", probe=probe.name) == 0
            assert snapshot.value("test_value", probe=probe.name) is None
        assert snapshot.value("pinchpoint_probe_success", probe="good") == 1
        assert snapshot.value("pinchpoint_probe_success", probe="quick") == 1
    finally:
        watch = Stopwatch()
        sampler.stop()
        stopped = watch.tick()

    assert stopped < 5  # they hang for ever
    assert (good.closed, fast.closed) == (True, True)
    assert not any(probe.closed for probe in hanging)


@contextmanager
def beats_of(*probes: Fake) -> Iterator[list[int]]:
    """Yield the beats of a sampler that runs these probes: a list that grows."""
    beats: list[int] = []
    sampler = Sampler(probes, beat=lambda: beats.append(1))
    sampler.start()
    yield beats
    sampler.stop()


def test_the_fast_thread_says_that_it_is_alive_whatever_hangs_beside_it(machine: Machine, hanging: list[Fake]) -> None:
    with beats_of(*hanging, fake(machine, "quick", interval=0.02, fast=True)) as beats:
        assert until(10, lambda: all(probe.times for probe in hanging))
        before = len(beats)
        assert until(10, lambda: len(beats) > before + 10, 0.01)


def test_a_sampler_whose_fast_thread_hangs_says_nothing_although_others_go_on(
    machine: Machine, hanging: list[Fake]
) -> None:
    stuck = fake(machine, "stuck", hanging[0].work, fast=True)
    good = fake(machine, "good", interval=0.02)
    with beats_of(stuck, good) as beats:
        assert until(10, lambda: len(good.times) > 10, 0.01)
        assert beats == []


def test_without_a_fast_probe_the_shared_thread_says_it_also_after_one_of_its_probes_hangs(
    machine: Machine, hanging: list[Fake]
) -> None:
    good = fake(machine, "good", interval=0.02)
    with beats_of(good, hanging[0]) as beats:
        assert until(10, lambda: hanging[0].times and len(good.times) > 10, 0.01)
        before = len(beats)
        assert until(10, lambda: len(beats) > before + 10, 0.01)


def test_a_sampler_with_nothing_to_do_for_a_minute_says_that_it_is_alive(machine: Machine) -> None:
    with beats_of(fake(machine, "rare", interval=60.0)) as beats:
        assert until(10, lambda: len(beats) > 1)


def test_probes_that_are_not_fast_and_not_urgent_share_a_thread(machine: Machine) -> None:
    names: dict[str, set[str]] = {}

    def probe(name: str, **attributes: object) -> Fake:
        return fake(
            machine,
            name,
            lambda: names.setdefault(name, set()).add(threading.current_thread().name),
            interval=0.01,
            **attributes,
        )

    sampler = Sampler([probe("a"), probe("b"), probe("quick", fast=True), probe("hasty", urgent=True)])
    sampler.start()
    assert until(10, lambda: len(names) == 4)
    sampler.stop()

    assert names == {"a": {"probes"}, "b": {"probes"}, "quick": {"sampler"}, "hasty": {"probe-hasty"}}


def test_a_sampler_that_gets_no_thread_leaves_none_behind(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, other = fake(machine, "fast", fast=True), fake(machine, "other")
    sampler = Sampler([fast, other])
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "probes":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError):
        sampler.start()

    assert not any(thread.is_alive() for thread in sampler._threads)
    assert fast.closed
    assert other.closed


def test_probes_whose_new_thread_is_refused_go_on_later(
    machine: Machine, hanging: list[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = fake(machine, "good")
    sampler = Sampler([hanging[0], good])
    refused: list[threading.Thread] = []
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "probes" and hanging[0].times and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    sampler.start()
    try:
        assert until(10, lambda: refused and good.times)
    finally:
        sampler.stop()


def test_a_probe_that_hung_and_goes_on_is_sampled_again_and_no_other_is_sampled_twice_at_once(
    machine: Machine,
) -> None:
    release = threading.Event()
    others: list[Fake] = []
    at_once: list[str] = []

    def work(name: str, busy: threading.Lock) -> Callable[[], None]:
        def once() -> None:
            if not busy.acquire(blocking=False):
                at_once.append(name)
                return
            time.sleep(0.001)
            busy.release()

        return once

    def hang() -> None:
        release.wait(60)

    for name in "abc":
        others.append(fake(machine, name, work(name, threading.Lock()), interval=0.005))
    hangs = fake(machine, "hangs", hang, interval=0.005)
    sampler = Sampler([others[0], hangs, *others[1:]])
    sampler.start()
    try:
        assert until(10, lambda: hangs.times)
        before = [len(probe.times) for probe in others]
        assert until(10, lambda: all(len(p.times) > n + 10 for p, n in zip(others, before, strict=True)), 0.01)
        assert len(hangs.times) == 1
        release.set()
        before = [len(probe.times) for probe in others]
        assert until(10, lambda: len(hangs.times) > 10, 0.01)
        assert until(10, lambda: all(len(p.times) > n + 10 for p, n in zip(others, before, strict=True)), 0.01)
    finally:
        release.set()
        sampler.stop()

    assert at_once == []


def test_a_probe_that_hung_returns_to_the_thread_of_the_others_when_it_is_quick_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_module, "APART_SECONDS", 0.2)
    releases = [threading.Event(), threading.Event()]
    threads: dict[str, int] = {}

    def work(name: str) -> None:
        threads[name] = threading.get_ident()

    def hang(name: str, release: threading.Event) -> Callable[[], None]:
        def once() -> None:
            release.wait(60)
            work(name)

        return once

    good = fake(machine, "good", lambda: work("good"), interval=0.02)
    hung = [fake(machine, f"hangs{n}", hang(f"hangs{n}", one), interval=0.02) for n, one in enumerate(releases)]
    sampler = Sampler([hung[0], good, hung[1]])
    sampler.start()
    try:
        for _ in range(2):
            threads.clear()
            good.times.clear()
            assert until(10, lambda: len(good.times) > 10, 0.01)
            assert threads.keys() == {"good"}
            for release in releases:
                release.set()
            assert until(10, lambda: len(threads) == 3 and len(set(threads.values())) == 1, 0.01)
            assert until(10, lambda: len([thread for thread in sampler._threads if thread.is_alive()]) == 2, 0.01)
            for release in releases:
                release.clear()
    finally:
        for release in releases:
            release.set()
        sampler.stop()


def test_a_probe_that_hangs_again_and_again_keeps_its_thread(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "MAX_BLOCKING_SECONDS", 0.05)
    threads: set[int] = set()

    def work() -> None:
        threads.add(threading.get_ident())
        time.sleep(0.1)

    slow, good = fake(machine, "slow", work, interval=0.02), fake(machine, "good", interval=0.02)
    sampler = Sampler([slow, good])
    sampler.start()
    try:
        assert until(20, lambda: len(slow.times) > 10, 0.01)
    finally:
        sampler.stop()

    assert len(threads) == 1


def test_an_exposition_waits_for_a_first_sample_that_ends_soon_and_is_a_success(machine: Machine) -> None:
    begun, release = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        release.wait(10)

    sampler = Sampler([fake(machine, "slow", work, interval=100.0)])
    sampler.start()
    assert begun.wait(10)
    threading.Timer(0.1, release.set).start()
    snapshot = Snapshot.of(0, sampler.points())
    sampler.stop()

    assert snapshot.value("test_value", probe="slow") == 1
    # Otherwise the probe seems to have worked and then failed, and nothing that began since would count from zero.
    assert snapshot.value("pinchpoint_probe_success", probe="slow") == 1
    assert snapshot.value("pinchpoint_probe_last_success_timestamp_seconds", probe="slow") is not None


def test_points_are_never_taken_in_the_middle_of_a_sample(machine: Machine) -> None:
    class Torn(Fake):
        name = "torn"
        interval = 0.001

        def __init__(self, host: Host) -> None:
            super().__init__(host)
            self.series: dict[str, int] = {}

        def sample(self, now: float) -> None:
            super().sample(now)
            self.series = {}
            for index in range(50):
                self.series[str(index)] = len(self.times)

        def points(self) -> Iterable[Point]:
            for label, count in self.series.items():
                yield VALUE.point(count, label)

    probe = Torn(machine.host())
    sampler = Sampler([probe])
    sampler.start()
    assert until(10, lambda: probe.times, 0.001)
    seen = []
    while len(probe.times) < 200:
        values = list(Snapshot.of(0, sampler.points()).values["test_value"].values())
        seen.append((len(values), len(set(values))))
    sampler.stop()

    assert set(seen) == {(50, 1)}


def test_nothing_is_sampled_after_the_stop(machine: Machine) -> None:
    probe = fake(machine, "quick", interval=0.005, fast=True)
    sampler = Sampler([probe])
    sampler.start()
    assert until(10, lambda: len(probe.times) > 3, 0.005)
    sampler.stop()
    count = len(probe.times)

    assert probe.closed
    assert not any(thread.name == "sampler" for thread in threading.enumerate())
    assert len(probe.times) == count


def test_a_sampler_that_never_started_can_be_stopped(machine: Machine) -> None:
    probe = fake(machine, "quick")
    Sampler([probe]).stop()

    assert probe.closed


def test_the_fast_thread_alone_asks_for_its_priority_and_says_what_it_got(machine: Machine) -> None:
    asked: list[str] = []

    def ask() -> tuple[str, str]:
        asked.append(threading.current_thread().name)
        return "nice", "SCHED_FIFO: not today"

    sampler = Sampler([fake(machine, "quick", fast=True), fake(machine, "slow")], priority=ask)
    sampler.start()
    assert until(10, lambda: asked)
    labels = {"policy": "nice", "reason": "SCHED_FIFO: not today"}
    found = until(10, lambda: Snapshot.of(0, sampler.points()).value("pinchpoint_sampler_priority_info", **labels))
    sampler.stop()

    assert found == 1
    assert asked == ["sampler"]


def test_a_probe_with_a_thread_of_its_own_asks_for_that_priority_too_if_it_is_urgent(machine: Machine) -> None:
    asked: list[str] = []

    def ask() -> tuple[str, str]:
        asked.append(threading.current_thread().name)
        return "nice", ""

    sampler = Sampler([fake(machine, "calm"), fake(machine, "hasty", urgent=True)], priority=ask)
    sampler.start()
    assert until(10, lambda: asked)
    sampler.stop()

    assert asked == ["probe-hasty"]


@pytest.mark.parametrize(
    ("fifo", "nice", "policy", "reason"),
    [
        (None, None, "fifo", ""),
        (PermissionError(1, "Operation not permitted"), None, "nice", "SCHED_FIFO: Operation not permitted"),
        (
            PermissionError(1, "Operation not permitted"),
            PermissionError(13, "Permission denied"),
            "other",
            "SCHED_FIFO: Operation not permitted; nice: Permission denied",
        ),
    ],
    ids=["all", "no real time", "nothing"],
)
def test_the_best_priority_that_is_allowed_is_taken_and_the_reason_said(
    monkeypatch: pytest.MonkeyPatch, fifo: OSError | None, nice: OSError | None, policy: str, reason: str
) -> None:
    def answer(error: OSError | None) -> Callable[..., None]:
        def call(*_: object) -> None:
            if error is not None:
                raise error

        return call

    monkeypatch.setattr(os, "sched_setscheduler", answer(fifo))
    monkeypatch.setattr(os, "setpriority", answer(nice))

    assert raise_priority() == (policy, reason)


def test_children_of_a_raised_thread_have_a_normal_priority() -> None:
    code = """
import subprocess, sys
from pinchpoint.sampler import raise_priority
print(raise_priority()[0], flush=True)
subprocess.run([sys.executable, "-c", "import os; print(os.sched_getscheduler(0), os.nice(0))"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=patience(30), check=True
    )
    policy, scheduler, nice = done.stdout.split()

    if policy != "fifo":
        pytest.skip(f"this user may not ask for a real-time priority, it got {policy}")
    # Not the nice value of this process: sched_fork (kernel/sched/core.c) gives the child of a real-time thread 0.
    assert (int(scheduler), int(nice)) == (os.SCHED_OTHER, 0)


def test_what_lasts_is_shown_while_a_sample_hangs(
    machine: Machine, hanging: list[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    lasting = hanging[0]
    monkeypatch.setattr(lasting, "lasting", True, raising=False)
    sampler = Sampler(hanging[:2])
    sampler.start()
    try:
        assert until(10, lambda: all(probe.times for probe in hanging[:2]))
        found = sampler.points()
    finally:
        sampler.stop()

    assert [point.labels for point in found if point.metric is VALUE] == [(lasting.name,)]
    assert [point.value for point in found if point.metric is PROBE_SUCCESS] == [0.0, 0.0]
