from __future__ import annotations

import pytest
from msgspec.structs import replace

from diagnosis.history import START, MadeHost
from judge.watched import NAMES, watched
from pinchpoint.diagnosis.inputs import INPUTS
from pinchpoint.diagnosis.series import picked
from pinchpoint.judge.engine import KEEP_ENDED_SECONDS, Engine
from pinchpoint.model import Labels, Snapshot
from pinchpoint.probes.benchmark import run_points
from pinchpoint.report import document
from pinchpoint.runs import PhaseMark, RunState, shifted
from report.made import CLIENT, GAP, MDS, PHASES, made_record


def engine() -> Engine:
    return Engine(lambda: 0.0)


def test_every_phase_is_judged_over_all_of_it_when_it_has_ended() -> None:
    found = engine()
    for moment in watched():
        found.take(moment)

    words = {one.phase: one.verdict.words for one in found.phases}
    assert list(words) == [act.name for act in PHASES]
    assert words["mdtest_easy_write"] == "limited by mds_lock of mds.a"
    assert words["ior_easy_write"] == "limited by writeback_worker of ceph-1"
    assert words["ior_hard_write"] == "latency-bound"
    marks = {mark.name: mark for mark in made_record().marker.phases}
    for one in found.phases:
        assert (one.start, one.end) == (marks[one.phase].start, marks[one.phase].end)


def test_of_a_phase_that_has_ended_no_resources_are_kept_that_nobody_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAX_RANKED", 1)
    found = engine()
    for moment in watched():
        found.take(moment)

    assert max(len(one.verdict.ranking) for one in found.phases) == 1


def of_inputs(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, values={name: series for name, series in snapshot.values.items() if name in INPUTS})


def test_the_metrics_that_a_verdict_depends_on_are_enough_for_all_that_is_said() -> None:
    whole, part = engine(), engine()
    for moment in watched():
        whole.take(moment)
        part.take({host: of_inputs(snapshot) for host, snapshot in moment.items()})
        assert part.step(moment[CLIENT].time) == whole.step(moment[CLIENT].time)

    assert list(part.phases) == list(whole.phases)
    assert part.facts == whole.facts


def test_what_limits_a_run_now_has_its_phase_and_since_when() -> None:
    found = engine()
    for moment in watched():
        found.take(moment)
        said = found.step(moment[CLIENT].time)
        if moment[CLIENT].time == START + 70:
            break

    (one,) = said
    assert (one.benchmark, one.run, one.phase) == ("io500", NAMES["run"], "mdtest_easy_write")
    assert one.verdict.words == "limited by mds_lock of mds.a"
    assert START + 3 * GAP + PHASES[0].seconds - 5 < one.since < START + 60


def test_a_host_that_is_lost_is_not_judged_by_what_it_did_last() -> None:
    found = engine()
    for moment in watched():
        found.take(moment)
        if moment[CLIENT].time == START + 70:
            break
    assert found.step(START + 70)

    found.lose(CLIENT)

    assert found.step(START + 71) == []
    assert set(found._recent) == {MDS}


def test_a_phase_whose_host_falls_silent_ends_where_it_was_seen_last() -> None:
    found = engine()
    for moment in watched():
        silent = moment[CLIENT].time > START + 70
        found.take({MDS: moment[MDS]} if silent else moment)

    assert [(one.phase, one.end) for one in found.phases][1:] == [("mdtest_easy_write", START + 70)]


@pytest.mark.parametrize("step", [0.0, 30.0, -30.0])
def test_a_phase_goes_on_when_the_clock_of_its_host_is_set(step: float) -> None:
    found, made = engine(), MadeHost(1.0).works({"disk": 0.95}, device="sda").resource("disk", "sda", 0.99, "disk")
    _, values = made.pair()
    for second in range(40):
        now, ahead = START + second, step if second >= 20 else 0.0
        mark = PhaseMark("write", START + 5.123, None if second < 35 else START + 35)
        run = RunState("r", "fio", START, phases=[mark], state="running")
        points = Snapshot.of(now, run_points(shifted(run, ahead), now + ahead))
        clock: dict[str, dict[Labels, float]] = {"pinchpoint_sampler_clock_set_seconds": {(): ahead}}
        found.take({"a": Snapshot(now, {**values.values, **(points.values if second > 5 else {}), **clock})})

    assert [(one.phase, round(one.end - one.start)) for one in found.phases] == [("write", 30)]


def test_hosts_that_are_scraped_every_15_s_are_judged_over_all_of_a_phase() -> None:
    found, said = engine(), []
    for second, moment in enumerate(watched()):
        rare = {host: Snapshot(one.time, one.values, lasts=37.5) for host, one in moment.items()}
        if second % 15 in (0, 7):
            host = CLIENT if second % 15 else MDS
            found.take({host: rare[host]})
        said += [(one.phase, one.verdict.words) for one in found.step(moment[CLIENT].time)]

    phases = {one.phase: one.verdict.words for one in found.phases}
    assert phases["mdtest_easy_write"] == "limited by mds_lock of mds.a"
    assert ("mdtest_easy_write", "limited by mds_lock of mds.a") in said


def test_a_judge_that_starts_in_the_middle_of_a_phase_judges_the_rest_of_it() -> None:
    found = engine()
    for moment in watched():
        if moment[CLIENT].time >= START + 70:
            found.take(moment)

    assert found.phases[0].phase == "mdtest_easy_write"
    assert found.phases[0].verdict.words == "limited by mds_lock of mds.a"
    assert found.phases[0].verdict.seconds == pytest.approx(36.0)


def test_verdicts_on_phases_that_are_long_over_are_forgotten() -> None:
    found = engine()
    for moment in watched():
        found.take(moment)
    last = found.phases[-1].end

    found.step(last + KEEP_ENDED_SECONDS - 1)
    assert len(found.phases) == 1
    found.step(last + KEEP_ENDED_SECONDS + 1)
    assert len(found.phases) == 0


def test_a_judge_that_runs_for_months_forgets_what_is_over() -> None:
    found = engine()
    for second in range(0, 20_000, 10):
        found.take({"a": Snapshot(START + second, {"pinchpoint_unknown_thread_busy_ratio": {(): 1.0}})})

    assert 90 <= len(found._windows._times) < 100
    assert 90 <= len(list(found._sightings)) < 100


def test_a_judge_that_runs_for_months_forgets_runs_that_ended_and_hosts_that_left() -> None:
    found = engine()
    for second in range(0, 20_000, 10):
        run = second // 100
        spent = (("benchmark", "fio"), ("run", f"r{run}"), ("wait", "cpu"))
        snapshot = Snapshot(START + second, {"pinchpoint_workload_seconds_total": {spent: float(second % 100)}})
        found.take({"a": snapshot, f"left{run}": snapshot})

    assert 9 <= len(found._stream.latest["a"].values["pinchpoint_workload_seconds_total"]) < 14
    assert 9 <= len(found._stream.latest) < 14
    assert 9 <= len(found._windows._hosts) < 14


def test_a_judge_that_runs_for_months_remembers_the_labels_of_series_that_it_still_has() -> None:
    found = engine()
    for run in range(300):
        host = MadeHost().works({"cpu": 1.0}, run=f"r{run}").resource("kv_sync", f"osd.{run}", 0.5, "osd", runqueue=0.0)
        for second, snapshot in enumerate(host.pair()):
            found.take({"a": replace(snapshot, time=START + 20.0 * run + 10 * second)})
            found.step(START + 20.0 * run + 10 * second)

    assert 0 < picked.cache_info().currsize < 150


def test_what_ended_in_a_phase_that_lasts_for_hours_belongs_to_it() -> None:
    found = engine()
    for second in range(0, 10_000, 10):
        host = MadeHost().gauge("pinchpoint_phase_active", 1, benchmark="fio", run="r", phase="p")
        host.gauge("pinchpoint_phase_elapsed_seconds", second, benchmark="fio", run="r", phase="p")
        values = dict(host.pair()[1].values)
        if second < 100:
            values["pinchpoint_thread_cpu_seconds_total"] = {(("owner", "o"), ("role", "r")): float(second)}
        found.take({"a": Snapshot(START + second, values)})

    assert found._stream.latest["a"].values["pinchpoint_thread_cpu_seconds_total"]


def test_a_host_that_shows_phases_without_end_is_followed_in_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinchpoint.judge.engine.MAX_OPEN_PHASES", 8)
    found = engine()
    for second in range(3):
        host = MadeHost()
        for number in range(100):
            host.gauge("pinchpoint_phase_active", 1, benchmark="fio", run="r", phase=str(number))
        found.take({"a": Snapshot(START + second, host.pair()[1].values)})

    assert len(found._open) == 8


def test_runs_for_which_no_time_is_left_wait_for_the_next_round() -> None:
    """Each judgement takes a second, and a round has one second: two runs are judged before it is over."""
    clock = iter(range(1000))
    found = Engine(lambda: float(next(clock)))
    for pair in zip(*(_busy(name).pair() for name in "abcd"), strict=True):
        found.take(dict(zip("abcd", pair, strict=True)))

    first = {one.run for one in found.step(START + 10, 1.0)}
    assert found.verdicts.behind == 4 - len(first) > 0
    both = {one.run for one in found.step(START + 11, 1.0)}
    assert both > first


def test_a_run_is_judged_even_if_no_time_is_left_for_it() -> None:
    clock = iter(range(1000))
    found = Engine(lambda: float(next(clock)))
    for snapshot in _busy("a").pair():
        found.take({"a": snapshot})

    assert [one.run for one in found.step(START + 10, 0.0)] == ["a"]
    assert found.verdicts.behind == 0


def _busy(run: str) -> MadeHost:
    return MadeHost().works({"disk": 1.0}, run=run, device="vda").resource("disk", "vda", 0.95, "disk")


def with_governor(snapshot: Snapshot, governor: str, run: str) -> Snapshot:
    """Return a snapshot of another run, with another governor."""
    values = {
        name: {
            tuple((key, run if key == "run" and value else value) for key, value in labels): value_
            for labels, value_ in series.items()
        }
        for name, series in snapshot.values.items()
    }
    values["pinchpoint_host_fact_info"] = {(("fact", "governor"), ("value", governor)): 1.0}
    return Snapshot(snapshot.time, values)


def test_a_run_has_the_settings_that_hosts_had_while_it_went_on() -> None:
    found = engine()
    governors: list[dict[str, list[str]]] = []
    for moment in watched():
        now = moment[CLIENT].time
        run = "first" if now < START + 60 else "second"
        governor = "powersave" if now < START + 80 else "performance"
        found.take({host: with_governor(snapshot, governor, run) for host, snapshot in moment.items()})
        found.step(now)
        governors.append({run: known[CLIENT]["governor"] for run, known in found.facts.items()})

    assert {"first": ["powersave"]} in governors
    assert {"second": ["powersave"]} in governors
    assert {"second": ["performance", "powersave"]} in governors
