from __future__ import annotations

from collections.abc import Iterator

import pytest

from thrash.invariants import (
    LARGEST,
    Exposition,
    Limit,
    Size,
    complaints,
    fallen,
    limits,
    oversized,
    own,
    parse,
    slow,
    standing,
    uncounted,
    wrong,
)

PROCESS = (100, 5.0)
CLUSTER = "0123abcd-4567"
"""The fsid of our cluster."""
FOREIGN = "fedc4567-0123"
REQUESTS = 'pinchpoint_mds_requests_total{daemon="mds.a@0123abcd"}'


def exposition(text: str, at: float = 0.0, process: tuple[int, float] = PROCESS) -> Exposition:
    return Exposition(at, at + 0.1, process, parse("\n".join([*text.splitlines(), ""])))


def sampled(
    at: float,
    samples: float,
    lost: float = 0.0,
    other: float | None = None,
    interval: float = 1.0,
    name: str = "memory",
) -> Exposition:
    """Return an exposition of two probes, by default with one sample a second; the other one took one at each."""
    counts = {"tasks": (samples, lost), name: (at if other is None else other, 0.0)}
    lines = []
    for probe, (taken, missed) in counts.items():
        lines.append(f'pinchpoint_probe_interval_seconds{{probe="{probe}"}} {interval if probe == "tasks" else 1}')
        lines.append(f'pinchpoint_sampler_samples_total{{probe="{probe}"}} {taken}')
        lines.append(f'pinchpoint_sampler_lost_samples_total{{probe="{probe}"}} {missed}')
    return exposition("\n".join(lines), at)


def said(name: str, kind: str = "resource", confidence: str = "high") -> Limit:
    return Limit("thrash-1-files", kind, name, confidence)


def test_a_counter_that_falls_is_a_violation() -> None:
    before, after = exposition(f"{REQUESTS} 7"), exposition(f"{REQUESTS} 6")

    assert list(fallen(before, after, (), CLUSTER)) == [f"{REQUESTS} fell from 7 to 6"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (exposition(f"{REQUESTS} 6"), exposition(f"{REQUESTS} 6")),
        (exposition("pinchpoint_threads 7"), exposition("pinchpoint_threads 6")),
        (exposition(f"{REQUESTS} 7"), exposition(f"{REQUESTS} 6", process=(101, 9.0))),
        (exposition("pinchpoint_self_cpu_seconds_total 7"), exposition(f"{REQUESTS} 6")),
    ],
    ids=["equal", "gauge", "another process", "new series"],
)
def test_what_did_not_fall_or_may_is_none(before: Exposition, after: Exposition) -> None:
    assert not list(fallen(before, after, (), CLUSTER))


def test_only_the_counters_of_a_daemon_that_was_restarted_may_fall() -> None:
    before, after = exposition(f"{REQUESTS} 7"), exposition(f"{REQUESTS} 0")

    assert not list(fallen(before, after, {"mds.a"}, CLUSTER))
    assert list(fallen(before, after, {"mds.b"}, CLUSTER))


def test_the_counters_of_another_cluster_may_fall() -> None:
    before, after = exposition(f"{REQUESTS} 7"), exposition(f"{REQUESTS} 0")

    assert not list(fallen(before, after, (), FOREIGN))


def test_a_daemon_of_another_cluster_is_not_taken_for_ours() -> None:
    assert own("osd.0@0123abcd", CLUSTER) == own("osd.0", CLUSTER) == "osd.0"
    assert own("osd.0@0123abcd", FOREIGN) == "osd.0@0123abcd"


def test_samples_that_are_taken_or_lost_are_counted() -> None:
    assert not list(uncounted([sampled(at, at) for at in range(30)]))
    assert not list(uncounted([sampled(at, at - min(at, 9.0), min(at, 9.0)) for at in range(30)]))


def test_samples_that_stay_away_and_are_not_counted_are_a_violation() -> None:
    history = [sampled(at, min(at, 10.0) if at < 12 else at - 6.0) for at in range(40)]

    (violation,) = uncounted(history)
    assert violation.endswith("samples of the probe tasks were neither taken nor counted as lost")


def test_samples_that_are_counted_late_are_none() -> None:
    frozen = [sampled(at, at) for at in range(20)] + [sampled(40, 20.0)]

    assert not list(uncounted(frozen))
    assert not list(uncounted([*frozen, *(sampled(at, at - 20.0, 20.0) for at in range(41, 60))]))


def test_a_host_at_rest_takes_fewer_samples_and_none_is_missing() -> None:
    busy = [sampled(at, at) for at in range(20)]
    resting = [sampled(at, 20.0 + (at - 20) // 5, interval=5.0) for at in range(20, 60)]
    again = [sampled(at, 28.0 + at - 60) for at in range(60, 90)]

    for history in (busy, [*busy, *resting], [*busy, *resting, *again]):
        assert not list(uncounted(history))


def test_more_samples_than_there_was_time_for_are_a_violation() -> None:
    (violation,) = uncounted([sampled(at, 1.3 * at) for at in range(30)])

    assert violation.startswith("the probe tasks counted ")


def test_a_probe_that_was_seen_at_a_shorter_interval_may_have_had_it_between_two_looks() -> None:
    hurried = [sampled(at, 10.0 * (at + 10), interval=0.1) for at in range(-9, 1)]

    assert not list(uncounted([*hurried, *(sampled(at, 100.0 + 1.3 * at) for at in range(1, 30))]))


def test_a_probe_that_stands_still_beside_others_is_a_violation() -> None:
    (violation,) = standing([sampled(at, min(at, 5.0)) for at in range(20)])

    assert violation.startswith("the probe tasks took no sample")
    assert not list(standing([sampled(at, at) for at in range(20)]))


def test_an_exporter_that_was_frozen_did_not_stand_still() -> None:
    history = [sampled(at, at) for at in range(8)] + [sampled(30, 7.0, other=7.0), sampled(31, 7.0, other=7.0)]

    assert not list(standing(history))


def test_a_limit_that_nothing_made_is_a_violation_if_it_has_high_confidence() -> None:
    (violation,) = wrong([said("mds_lock mds.a")], {"cpu host"})

    assert "mds_lock mds.a" in violation


@pytest.mark.parametrize(
    "limit",
    [
        said("cpu host"),
        said("mds_lock mds.a", confidence="medium"),
        said("latency-bound", "latency-bound"),
        said("idle", "idle"),
        said("blind", "blind"),
    ],
    ids=lambda limit: f"{limit.name} {limit.confidence}",
)
def test_a_limit_that_is_allowed_or_doubted_or_none_is_none(limit: Limit) -> None:
    assert not list(wrong([limit], {"cpu host"}))


def test_what_the_judge_says_is_read_from_its_exposition() -> None:
    pairs = 'benchmark="fio",run="r1",phase="",host="h"'
    text = (
        f'pinchpoint_verdict_info{{{pairs},kind="stuck",resource="stuck",owner="osd.0@0123abcd",confidence="high"}} 1\n'
        f'pinchpoint_verdict_info{{{pairs},kind="idle",resource="",owner="",confidence="medium"}} 1\n'
    )

    assert list(limits(parse(text), CLUSTER)) == [
        Limit("r1", "stuck", "stuck osd.0", "high"),
        Limit("r1", "idle", "idle", "medium"),
    ]


def test_a_scrape_may_fail_at_its_timeout_and_not_later() -> None:
    assert not list(slow(10.5))
    assert list(slow(16.0))


def test_a_process_that_is_too_large_is_a_violation() -> None:
    small = Size(45.0, 150, 20)

    assert not list(oversized("the judge", small))
    for field in LARGEST:
        (violation,) = oversized("the judge", small._replace(**{field: LARGEST[field] + 1}))
        assert violation.startswith(f"the {field} of the judge")


def lines() -> Iterator[str]:
    yield "INFO pinchpoint: listens"
    yield "Traceback (most recent call last):"
    yield "INFO exited: judge (terminated by SIGSEGV (core dumped); not expected)"
    yield "INFO exited: judge (terminated by SIGKILL; not expected)"


def test_a_traceback_or_a_crash_in_a_log_is_a_violation() -> None:
    assert [line.partition(":")[0] for line in complaints("judge.log", lines())] == ["judge.log says"] * 2
