from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from machine import Machine
from pinchpoint.benchmarks.markers import MAX_EXPORTED_RUNS, Marker
from pinchpoint.clock import Clock
from pinchpoint.host.users import Users
from pinchpoint.model import Snapshot
from pinchpoint.probes.benchmark import (
    EVERYDAY_AGE_SECONDS,
    MAX_EXPORTED_PHASES,
    MAX_EXPORTED_RESULTS,
    MAX_GIVEN_NAMES,
    MAX_USER_PHASES,
    NAME_INTERVAL_SECONDS,
    NAMED_ANYHOW_SECONDS,
    BenchmarkProbe,
)
from pinchpoint.quotas import MAX_USER_SERIES, NEW_SERIES_PER_MINUTE, SeriesQuota
from pinchpoint.runs import PhaseMark, Result
from pinchpoint.sampler import Sampler
from pinchpoint.threads.processes import Process
from pinchpoint.user_labels import MAX_LABEL_BYTES, user_of
from pinchpoint.wire.exposition import text
from toy import Toy

NOW = 1_700_000_000.0
RUN = {"benchmark": "fio", "run": "r"}


def at(wall: Callable[[], float]) -> Clock:
    """Return a clock that shows the test's time, as the wall clock does."""
    return Clock(wall, wall)


@pytest.fixture
def probe(machine: Machine) -> BenchmarkProbe:
    machine.process(10, "pinchpoint", start=77)
    return BenchmarkProbe(machine.host(), at(lambda: NOW))


def written(probe: BenchmarkProbe, *phases: PhaseMark, **changes: object) -> Snapshot:
    """Write a run's marker, have the probe read it, and return the series."""
    fields: dict[str, object] = {"benchmark": "fio", "pid": 10, "pid_start": 77, "command_pid": 11, "start": NOW}
    probe.host.runs.write(Marker("r", **{**fields, **changes}, phases=list(phases)))  # type: ignore[arg-type]
    return read(probe)


def read(probe: BenchmarkProbe) -> Snapshot:
    probe.sample(1.0)
    return Snapshot.of(0, probe.points())


def test_the_phase_that_goes_on_is_active_and_those_before_it_are_not(probe: BenchmarkProbe) -> None:
    found = written(probe, PhaseMark("write", NOW, NOW + 1), PhaseMark("read", NOW + 1))

    assert found.value("pinchpoint_phase_active", **RUN, phase="write") == 0
    assert found.value("pinchpoint_phase_active", **RUN, phase="read") == 1
    assert found.value("pinchpoint_phase_start_timestamp_seconds", **RUN, phase="read") == NOW + 1


def test_a_run_keeps_the_host_from_resting_until_it_ends(probe: BenchmarkProbe) -> None:
    read(probe)
    assert probe.host.activity.rests(1.0)

    written(probe, state="finished", end=NOW)
    assert probe.host.activity.rests(1.0)

    written(probe, PhaseMark("write", NOW))
    assert not probe.host.activity.rests(1.0)


def test_a_run_that_died_has_no_active_phase(probe: BenchmarkProbe, machine: Machine) -> None:
    written(probe, PhaseMark("write", NOW))
    machine.end(10)

    assert read(probe).value("pinchpoint_phase_active", **RUN, phase="write") == 0


def test_results_are_shown_by_operation_and_unit(probe: BenchmarkProbe) -> None:
    results = [Result("write", "bytes_per_second", 2e9), Result("write", "operations_per_second", 5e5)]
    found = written(probe, PhaseMark("write", NOW, NOW + 1, results))
    labels = {**RUN, "phase": "write", "operation": "write"}

    assert found.value("pinchpoint_phase_result", **labels, unit="bytes_per_second") == 2e9
    assert found.value("pinchpoint_phase_result", **labels, unit="operations_per_second") == 5e5


def test_a_phase_that_is_repeated_shows_its_last_time(probe: BenchmarkProbe) -> None:
    found = written(probe, PhaseMark("stat", NOW, NOW + 1), PhaseMark("x", NOW, NOW), PhaseMark("stat", NOW + 5))

    assert found.value("pinchpoint_phase_active", **RUN, phase="stat") == 1
    assert found.value("pinchpoint_phase_start_timestamp_seconds", **RUN, phase="stat") == NOW + 5


def test_no_run_is_no_series_and_no_failure(probe: BenchmarkProbe) -> None:
    assert read(probe).values == {}


def test_series_are_bounded_whatever_a_marker_holds(probe: BenchmarkProbe) -> None:
    phases = [PhaseMark(f"phase {number}", NOW, NOW) for number in range(3 * MAX_EXPORTED_PHASES)]
    phases[-1].results = [Result("write", f"unit {number}", 1.0) for number in range(3 * MAX_EXPORTED_RESULTS)]
    found = written(probe, *phases)

    assert len(found.values["pinchpoint_phase_active"]) == MAX_EXPORTED_PHASES
    assert len(found.values["pinchpoint_phase_result"]) == MAX_EXPORTED_RESULTS
    assert found.value("pinchpoint_phase_active", **RUN, phase=f"phase {3 * MAX_EXPORTED_PHASES - 1}") == 0


def test_a_phase_that_goes_on_says_how_far_it_is(probe: BenchmarkProbe) -> None:
    phase = PhaseMark("write", NOW - 20, progress=0.5, moved=NOW - 3, expected=60.0, number=2, pace=0.7, source="fd")
    phase.rates = [Result("write", "bytes_per_second", 1e9)]
    found = written(probe, phase, total=13, state="running")
    labels = {**RUN, "phase": "write"}

    assert found.value("pinchpoint_phase_elapsed_seconds", **labels) == 20
    assert found.value("pinchpoint_phase_expected_seconds", **labels) == 60
    assert found.value("pinchpoint_phase_progress_ratio", **labels) == 0.5
    assert found.value("pinchpoint_phase_stalled_seconds", **labels) == 3
    assert found.value("pinchpoint_phase_second_half_ratio", **labels) == 0.7
    assert found.value("pinchpoint_phase_number", **labels) == 2
    assert found.value("pinchpoint_phase_source_info", **labels, source="fd") == 1
    assert found.value("pinchpoint_phase_rate", **labels, operation="write", unit="bytes_per_second") == 1e9
    assert found.value("pinchpoint_run_phases", **RUN) == 13
    assert found.value("pinchpoint_run_state", **RUN, state="running") == 1
    assert found.value("pinchpoint_run_state", **RUN, state="failed") == 0


def test_what_cannot_be_seen_has_no_series(probe: BenchmarkProbe) -> None:
    found = written(probe, PhaseMark("write", NOW - 20))

    for name in ("phase_stalled_seconds", "phase_progress_ratio", "phase_expected_seconds", "run_valid", "run_score"):
        assert f"pinchpoint_{name}" not in found.values


def test_what_the_benchmark_calls_invalid_is_kept_and_marked(probe: BenchmarkProbe) -> None:
    phase = PhaseMark("write", NOW - 20, NOW, [Result("write", "bytes_per_second", 1e9)], valid=False)
    found = written(probe, phase, scores=[Result("total", "score", 3.2)])

    assert found.value("pinchpoint_phase_valid", **RUN, phase="write") == 0
    assert found.value("pinchpoint_run_valid", **RUN) == 0
    assert found.value("pinchpoint_run_score", **RUN, operation="total", unit="score") == 3.2


def test_a_run_that_died_has_failed(probe: BenchmarkProbe, machine: Machine) -> None:
    written(probe, PhaseMark("write", NOW), state="running")
    machine.end(10)

    assert read(probe).value("pinchpoint_run_state", **RUN, state="failed") == 1


def test_a_run_that_goes_on_is_not_forgotten_for_newer_ones_that_have_ended(machine: Machine) -> None:
    machine.process(10, "pinchpoint", start=77)
    probe = BenchmarkProbe(replace(machine.host(), benchmarks=(Toy,)), at(lambda: NOW))
    written(probe, PhaseMark("write", NOW - 20), start=NOW - 20)
    for number in range(20, 20 + 2 * MAX_EXPORTED_RUNS):
        machine.process(number, "toy", argv=("toy", "write"))
        probe.sample(float(number))
        machine.end(number)
        probe.sample(number + 0.5)

    found = Snapshot.of(0, probe.points())

    assert found.value("pinchpoint_phase_active", **RUN, phase="write") == 1
    assert len(found.values["pinchpoint_run_start_timestamp_seconds"]) == MAX_EXPORTED_RUNS


@pytest.fixture
def finder(machine: Machine) -> BenchmarkProbe:
    """Return a probe that looks for toys, without a run of ours."""
    return BenchmarkProbe(replace(machine.host(), benchmarks=(Toy,)), at(lambda: NOW))


def test_a_benchmark_that_somebody_else_started_is_found(finder: BenchmarkProbe, machine: Machine) -> None:
    machine.process(20, "toy", argv=("toy", "write"))
    finder.sample(1.0)
    (run,) = {labels["run"] for labels, _ in Snapshot.of(0, finder.points()).series("pinchpoint_phase_active")}
    machine.end(20)
    finder.sample(1.5)
    found = Snapshot.of(0, finder.points())

    assert run == "20231114T221320Z-toy"
    assert found.value("pinchpoint_phase_active", benchmark="toy", run=run, phase="write") == 0
    assert found.value("pinchpoint_run_state", benchmark="toy", run=run, state="finished") == 1


def test_a_host_without_processes_by_a_benchmarks_name_is_gone_through_once_a_scan(
    finder: BenchmarkProbe, machine: Machine
) -> None:
    machine.process(20, "systemd")
    finder.sample(1.0)
    assert not finder.host.found.leaders

    machine.process(21, "toy", argv=("toy", "write"))
    finder.sample(2.0)
    assert [leader.pid for leader in finder.host.found.leaders] == [21]


def test_whoever_needs_the_runs_that_were_found_is_told_of_them_under_the_same_names(
    finder: BenchmarkProbe, machine: Machine
) -> None:
    machine.process(20, "toy", argv=("toy", "write"))
    finder.sample(1.0)
    (run,) = {labels["run"] for labels, _ in Snapshot.of(0, finder.points()).series("pinchpoint_phase_active")}
    (leader,) = finder.host.found.leaders
    assert (leader.pid, leader.start, leader.workload) == (20, 100, ("toy", run))

    machine.end(20)
    finder.sample(1.5)
    assert finder.host.found.leaders == ()


def test_two_that_began_at_once_have_two_names(finder: BenchmarkProbe, machine: Machine) -> None:
    machine.process(20, "toy", argv=("toy", "write"))
    machine.process(21, "toy", argv=("toy", "write"))
    for now in (1.0, 1.5):
        finder.sample(now)

    assert len(Snapshot.of(0, finder.points()).values["pinchpoint_phase_active"]) == 2


def test_the_benchmark_of_a_run_of_ours_is_not_found_a_second_time(machine: Machine) -> None:
    machine.process(10, "pinchpoint", start=77)
    machine.process(20, "toy", argv=("toy", "write"), ppid=10)
    probe = BenchmarkProbe(replace(machine.host_with_runs(NOW), benchmarks=(Toy,)), at(lambda: NOW))
    fields = {"pid": 10, "pid_start": 77, "command_pid": 20}
    probe.host.runs.write(Marker("r", "toy", NOW, phases=[PhaseMark("write", NOW)], **fields))  # type: ignore[arg-type]
    probe.sample(1.0)

    assert {labels["run"] for labels, _ in Snapshot.of(0, probe.points()).series("pinchpoint_phase_active")} == {"r"}


def test_a_benchmark_that_was_found_before_its_run_was_marked_is_the_run_alone(machine: Machine) -> None:
    machine.process(10, "pinchpoint", start=77)
    machine.process(20, "toy", argv=("toy", "write"), ppid=10)
    probe = BenchmarkProbe(replace(machine.host_with_runs(NOW), benchmarks=(Toy,)), at(lambda: NOW))
    probe.sample(1.0)
    before = {labels["run"] for labels, _ in Snapshot.of(0, probe.points()).series("pinchpoint_run_state")}
    fields = {"pid": 10, "pid_start": 77, "command_pid": 20}
    probe.host.runs.write(Marker("r", "toy", NOW, phases=[PhaseMark("write", NOW)], **fields))  # type: ignore[arg-type]
    probe.sample(1.1)

    assert before == {"20231114T221320Z-toy"}
    assert {labels["run"] for labels, _ in Snapshot.of(0, probe.points()).series("pinchpoint_run_state")} == {"r"}


def test_a_program_of_every_day_is_a_benchmark_when_it_runs_for_a_while(
    finder: BenchmarkProbe, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Toy, "everyday", True)
    machine.process(20, "toy", argv=("toy", "write"))
    finder.sample(1.0)
    early = list(finder.points())
    monkeypatch.setattr(finder, "_clock", at(lambda: NOW + EVERYDAY_AGE_SECONDS))
    finder.sample(6.0)

    assert early == []
    assert any(point.metric.name == "pinchpoint_phase_active" for point in finder.points())


class Everyday(Toy):
    """An everyday program."""

    name = "everyday"
    comms = ("everyday",)
    everyday = True


def test_programs_of_every_day_do_not_displace_a_benchmark(machine: Machine) -> None:
    walls = [NOW]
    probe = BenchmarkProbe(replace(machine.host(), benchmarks=(Toy, Everyday)), at(lambda: walls[-1]))
    machine.process(20, "toy", argv=("toy", "write"))
    probe.sample(1.0)
    walls.append(NOW + 10)
    for pid in range(30, 30 + MAX_EXPORTED_RUNS):
        machine.process(pid, "everyday", argv=("everyday", "write"))
    probe.sample(11.0)
    walls.append(NOW + 20)
    probe.sample(21.0)

    kinds = [labels["benchmark"] for labels, _ in Snapshot.of(0, probe.points()).series("pinchpoint_phase_active")]
    assert sorted(kinds) == ["everyday"] * (MAX_EXPORTED_RUNS - 1) + ["toy"]


def test_names_of_runs_are_bounded_however_many_processes_somebody_starts(machine: Machine) -> None:
    clock = [0.0]
    probe = BenchmarkProbe(replace(machine.host(), benchmarks=(Toy,)), at(lambda: NOW + clock[-1]))
    runs: set[str] = set()

    def sample(seconds: float) -> None:
        clock.append(clock[-1] + seconds)
        probe.sample(clock[-1])
        runs.update(point.labels[1] for point in probe.points())

    for number in range(2 * MAX_GIVEN_NAMES):
        machine.process(100 + number, "toy", argv=("toy", "write"))
        sample(0.5)
        machine.end(100 + number)
        sample(0.5)

    assert len(runs) == MAX_GIVEN_NAMES

    machine.process(10_000, "toy", argv=("toy", "long"))
    sample(NAMED_ANYHOW_SECONDS / 2)
    sample(NAMED_ANYHOW_SECONDS)

    assert len(runs) == MAX_GIVEN_NAMES + 1

    machine.end(10_000)
    sample(NAME_INTERVAL_SECONDS)
    machine.process(10_001, "toy", argv=("toy", "write"))
    sample(1.0)
    sample(1.0)

    assert len(runs) == MAX_GIVEN_NAMES + 2


def test_labels_of_a_hostile_marker_are_short_can_be_printed_and_name_no_series_twice(
    probe: BenchmarkProbe, machine: Machine
) -> None:
    names = ["a\nb", "a\rb", "a\x1b[31mb", "a\0b", "x" * 10_000, "x" * 20_000, 'q"\\', "\u202e"]
    marker = {"run": "r", "benchmark": "\x1b]0;owned\7", "pid": 10, "pid_start": 77, "command_pid": 1, "start": NOW}
    phases = [{"name": name, "start": NOW} for name in names]
    machine.write("runs/r.json", json.dumps({**marker, "phases": phases}))
    probe.sample(1.0)
    points = list(probe.points())
    labels = [label for point in points for label in point.labels]

    assert all(label.isprintable() and len(label.encode()) <= MAX_LABEL_BYTES + 2 for label in labels)
    assert len({point[:2] for point in points}) == len(points)
    families = {family.name for family in text_string_to_metric_families(text(points))}
    assert families >= {"pinchpoint_phase_active", "pinchpoint_phase_start_timestamp_seconds", "pinchpoint_run_state"}


NUMBERS = st.integers() | st.integers(-(10**450), 10**450) | st.floats(allow_nan=False, allow_infinity=False)
RESULTS = st.fixed_dictionaries({"operation": st.just("write"), "unit": st.just("bytes_per_second"), "value": NUMBERS})
PHASES = st.fixed_dictionaries(
    {"name": st.just("hostile"), "start": NUMBERS},
    optional={
        **dict.fromkeys(["end", "seconds", "progress", "moved", "pace", "expected", "number"], NUMBERS),
        **dict.fromkeys(["results", "rates"], st.lists(RESULTS, max_size=2)),
    },
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(["start", "end", "total", "pid", "pid_start", "command_pid"], NUMBERS),
            "scores": st.lists(RESULTS, max_size=2),
            "phases": st.lists(PHASES, max_size=2),
        },
    )
)
@example({"total": 10**400})
@example({"phases": [{"name": "hostile", "start": NOW, "number": 10**400}]})
def test_whatever_numbers_a_stranger_writes_into_a_marker_everything_else_is_served(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, object]
) -> None:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.process(10, "pinchpoint", start=77)
    marker = {"run": "hostile", "benchmark": "fio", "pid": 10, "pid_start": 77, "command_pid": 11, "start": NOW}
    machine.write("runs/hostile.json", json.dumps({**marker, **changes}))
    probe = BenchmarkProbe(machine.host(), at(lambda: NOW))
    probe.host.runs.write(
        Marker("own", "fio", NOW, phases=[PhaseMark("write", NOW)], pid=10, pid_start=77, command_pid=11)
    )
    sampler = Sampler([probe], clock=lambda: 1.0, unix=at(lambda: NOW))
    sampler.step()
    exposition = text(sampler.points())

    assert 'pinchpoint_phase_active{benchmark="fio",phase="write",run="own"} 1.0\n' in exposition
    assert 'pinchpoint_probe_success{probe="benchmark"} 1.0\n' in exposition


def test_a_clock_that_is_set_changes_the_labels_of_a_run_and_no_duration(machine: Machine) -> None:
    machine.process(10, "pinchpoint", start=77)
    machine.process(20, "toy", argv=("toy", "write"))
    time = [NOW, 100.0]
    probe = BenchmarkProbe(
        replace(machine.host_with_runs(NOW), benchmarks=(Toy,)), Clock(lambda: time[0], lambda: time[1])
    )
    # `pinchpoint run` began 50 s before, with a wall clock that was an hour slow.
    offset = NOW - 3600.0 - 100.0
    phases = [PhaseMark("read", NOW - 3600.0 - 50.0)]
    marker = Marker("r", "fio", NOW - 3650.0, phases=phases, pid=10, pid_start=77, command_pid=11, offset=offset)
    probe.host.runs.write(marker)
    probe.sample(1.0)
    time[:] = [NOW + 86_400.0, 110.0]
    probe.sample(2.0)
    found = Snapshot.of(0, probe.points())

    def values(name: str) -> dict[str, float]:
        return {labels["phase"]: value for labels, value in found.series(f"pinchpoint_phase_{name}")}

    assert values("elapsed_seconds") == {"read": 60.0, "write": pytest.approx(10.0)}
    assert values("start_timestamp_seconds") == {"read": NOW + 86_340.0, "write": pytest.approx(NOW + 86_390.0)}


UID = 1000


def test_no_number_of_another_users_benchmarks_hides_ours(machine: Machine) -> None:
    walls = [NOW]
    probe = BenchmarkProbe(replace(machine.host(), benchmarks=(Toy,)), at(lambda: walls[-1]))
    machine.process(10, "toy", argv=("toy", "write"))
    probe.sample(1.0)
    walls.append(NOW + 10)
    for number in range(3 * MAX_EXPORTED_RUNS):
        machine.process(20 + number, "toy", argv=("toy", "write"), uid=UID)
    probe.sample(11.0)

    runs = {labels["run"] for labels, _ in Snapshot.of(0, probe.points()).series("pinchpoint_run_state")}
    assert [run for run in runs if user_of(run) is None] == ["20231114T221320Z-toy"]
    assert len(runs) == 1 + MAX_EXPORTED_RUNS


def test_programs_of_every_day_of_another_user_do_not_hide_ours(machine: Machine) -> None:
    walls = [NOW]
    probe = BenchmarkProbe(replace(machine.host(), benchmarks=(Everyday,)), at(lambda: walls[-1]))
    for pid in range(20, 60):
        machine.process(pid, "everyday", argv=("everyday", "write"), uid=UID)
    probe.sample(1.0)
    machine.process(60, "everyday", argv=("everyday", "write"))
    probe.sample(2.0)
    walls.append(NOW + 2 * EVERYDAY_AGE_SECONDS)
    probe.sample(20.0)

    runs = {labels["run"] for labels, _ in Snapshot.of(0, probe.points()).series("pinchpoint_run_state")}
    assert "20231114T221320Z-everyday" in runs


def test_benchmarks_of_many_users_do_not_hide_roots(machine: Machine) -> None:
    probe = BenchmarkProbe(replace(machine.host(), benchmarks=(Toy,)), at(lambda: NOW))
    for number in range(120):
        machine.process(100 + number, "toy", argv=("toy", "write"), uid=UID + number % 6)
    probe.sample(1.0)
    machine.process(300, "toy", argv=("toy", "write"))
    probe.sample(2.0)

    assert any(leader.pid == 300 for leader in probe.host.found.leaders)


def test_a_run_that_was_found_has_its_users_mark_and_no_other_run_has_its_id(machine: Machine) -> None:
    host = replace(machine.host(), benchmarks=(Toy,), users=Users([1001]))
    probe = BenchmarkProbe(host, at(lambda: NOW))
    for pid, uid in ((20, 0), (21, UID), (22, UID), (23, 1001)):
        machine.process(pid, "toy", argv=("toy", "write"), uid=uid)
    machine.process(10, "pinchpoint", start=77)
    taken = Marker("20231114T221320Z-toy", "toy", NOW, pid=10, pid_start=77, command_pid=11)
    probe.host.runs.write(taken)
    probe.sample(1.0)

    assert {leader.pid: leader.workload.run for leader in probe.host.found.leaders} == {
        20: "20231114T221320Z-toy-2",
        21: "20231114T221320Z-toy@uid1000",
        22: "20231114T221320Z-toy-2@uid1000",
        23: "20231114T221320Z-toy-3",
    }


def test_names_of_one_users_runs_leave_all_others_theirs(machine: Machine) -> None:
    probe = BenchmarkProbe(replace(machine.host(), benchmarks=(Toy,)), at(lambda: NOW))
    for number in range(2 * MAX_GIVEN_NAMES):
        machine.process(100, "toy", argv=("toy", "write"), uid=UID, start=number)
        probe.sample(float(number))
    machine.process(101, "toy", argv=("toy", "write"))
    probe.sample(2.0 * MAX_GIVEN_NAMES)

    assert any(leader.pid == 101 for leader in probe.host.found.leaders)


def test_of_an_untrusted_users_run_the_last_phases_are_shown(machine: Machine) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    phases = [{"name": f"p{number}", "start": NOW + number, "end": NOW + number} for number in range(20)]
    marker = {"run": "r", "benchmark": "fio", "pid": 10, "pid_start": 77, "command_pid": 11, "start": NOW}
    os.chown(machine.write("runs/r.json", json.dumps({**marker, "phases": phases})), UID, UID)
    probe = BenchmarkProbe(machine.host(), at(lambda: NOW + 30))
    found = read(probe)

    shown = {labels["phase"] for labels, _ in found.series("pinchpoint_phase_active")}
    assert shown == {f"p{number}" for number in range(20 - MAX_USER_PHASES, 20)}


def test_a_marker_gives_ranks_to_processes_of_its_own_user_only(machine: Machine) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    marker = {"run": "r", "benchmark": "fio", "pid": 10, "pid_start": 77, "command_pid": 11, "start": NOW}
    os.chown(machine.write("runs/r.json", json.dumps({**marker, "ranks": [[12, 100, 5]]})), UID, UID)
    probe = BenchmarkProbe(machine.host(), at(lambda: NOW + 30))
    machine.process(10, "pinchpoint", start=77, uid=UID)
    read(probe)

    own = Process(12, 100, "fio", "benchmark", f"fio@uid{UID}")
    assert probe.host.found.rank(own) == 5
    for other in (f"fio@uid{UID + 1}", "fio"):
        assert probe.host.found.rank(replace(own, owner=other)) is None
    assert probe.host.found.rank(replace(own, start=101)) is None


def test_an_untrusted_user_begins_few_series_whatever_is_written_and_started(machine: Machine) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    time = [0.0]
    host = replace(machine.host(), benchmarks=(Toy,))
    probe = BenchmarkProbe(host, at(lambda: NOW + time[0]))
    quota = SeriesQuota(host.users.trusts, lambda: time[0])
    sampler = Sampler([probe], clock=lambda: time[0], unix=at(lambda: NOW), admit=quota.admit)
    machine.process(10, "toy", argv=("toy", "write"))
    begun: set[tuple[str, tuple[str, ...]]] = set()
    for second in range(20):
        time[0] = float(second)
        for number in range(20):
            name = f"{second}-{number}"
            fields = {"run": name, "benchmark": "fio", "pid": 1, "pid_start": 1, "command_pid": 1, "start": NOW}
            phases = [{"name": f"{name}-{phase}", "start": NOW} for phase in range(50)]
            os.chown(machine.write(f"runs/{name}.json", json.dumps({**fields, "phases": phases})), UID, UID)
            machine.process(100 + number, "toy", argv=("toy", f"{name}"), uid=UID, start=second)
        sampler.step()
        points = sampler.points()
        begun.update((point.metric.name, point.labels) for point in points if "@uid1000" in "".join(point.labels))
        assert any("20231114T221320Z-toy" in point.labels for point in points)

    assert len(begun) <= MAX_USER_SERIES + 20 * NEW_SERIES_PER_MINUTE / 60 + 1
