from __future__ import annotations

import pytest

from pinchpoint.diagnosis.blame import Limit
from pinchpoint.diagnosis.marks import MAX_KEPT_LIMITS, bottleneck, verdict_mark
from pinchpoint.diagnosis.verdict import Kind, Verdict
from pinchpoint.diagnosis.waterfall import Step, Waterfall
from pinchpoint.runs import LimitMark, StepMark, VerdictMark


def limit(resource: str, owner: str, blame: float) -> Limit:
    return Limit(
        resource=resource,
        owner=owner,
        host="this host",
        serves=("mds",),
        busy=0.9,
        runqueue=0.1,
        blocked=0.0,
        saturated=0.9,
        threshold=0.8,
        full=True,
        blame=blame,
        reach=blame,
    )


def mark(kind: str, *limits: tuple[str, str, float], confidence: str = "") -> VerdictMark:
    return VerdictMark(kind, tuple(LimitMark(*entry) for entry in limits), confidence)


LOCK = mark("resource", ("mds_lock", "mds.a", 0.8))


def test_of_a_verdict_its_kind_and_the_resources_that_it_names_are_kept() -> None:
    limits = (limit("mds_lock", "mds.a", 0.61234), limit("cpu", "", 0.4))

    kept = verdict_mark(Verdict(Kind.SEVERAL, 3.0, limits=limits, ranking=(*limits, limit("disk", "vda", 0.1))))

    assert kept == mark("several", ("mds_lock", "mds.a", 0.612), ("cpu", "", 0.4), confidence="high")
    assert verdict_mark(Verdict(Kind.IDLE, 3.0)) == VerdictMark("idle", confidence="high")


def test_the_steps_of_the_mean_operation_are_kept_and_not_those_of_one_daemon() -> None:
    steps = (Step("queue", 1e-3), Step("kv commit", 2.00000004e-3))
    falls = (Waterfall("OSD write", "", 5.0, 3e-3, steps), Waterfall("OSD write", "osd.1", 5.0, 3e-3, steps))

    kept = verdict_mark(Verdict(Kind.LATENCY_BOUND, 3.0, waterfalls=falls))

    assert kept.steps == (StepMark("OSD write", "queue", 1e-3), StepMark("OSD write", "kv commit", 2e-3))


def test_a_verdict_that_names_very_many_resources_is_kept_short() -> None:
    limits = tuple(limit(f"r{number // 10}", f"osd.{number}", 0.5) for number in range(100))

    kept = verdict_mark(Verdict(Kind.SEVERAL, 3.0, limits=limits)).limits

    assert [(entry.resource, entry.owner) for entry in kept] == [
        (f"r{number}", f"osd.{number * 10}") for number in range(MAX_KEPT_LIMITS)
    ]


def test_the_bottleneck_of_repeats_is_the_most_frequent_verdict_and_the_others_are_named() -> None:
    other = mark("latency-bound")

    found = bottleneck([other, LOCK, mark("resource", ("mds_lock", "mds.a", 0.6))])

    assert found is not None
    assert (found.kind, found.agreeing, found.runs, found.dissent) == ("resource", 2, 3, (other,))
    assert [(entry.resource, entry.owner) for entry in found.limits] == [("mds_lock", "mds.a")]
    assert found.limits[0].blame == pytest.approx(0.7)


def test_of_verdicts_that_are_equally_frequent_the_first_is_taken() -> None:
    found = bottleneck([LOCK, mark("idle")])

    assert found is not None
    assert (found.kind, found.agreeing, found.dissent) == ("resource", 1, (mark("idle"),))


@pytest.mark.parametrize(
    ("resource", "owner", "other", "same"),
    [
        ("mds_lock", "mds.a", "mds.b", True),
        ("writeback_worker", "ceph-1", "ceph-12", True),
        ("cpu_quota", "mds.a", "osd.0", False),
        ("disk", "vda", "vdb", False),
    ],
)
def test_another_daemon_of_its_type_is_the_same_verdict_and_another_disk_is_not(
    resource: str, owner: str, other: str, same: bool
) -> None:
    first, second = mark("resource", (resource, owner, 0.8)), mark("resource", (resource, other, 0.8))

    found = bottleneck([first, second, first])

    assert found is not None
    assert (found.agreeing, found.limits[0].owner) == (3 if same else 2, owner)


def test_the_order_of_resources_makes_no_other_verdict() -> None:
    first, second = ("cpu", "", 0.5), ("disk", "vda", 0.45)

    found = bottleneck([mark("several", first, second), mark("several", second, first)])

    assert found is not None
    assert found.agreeing == 2
    assert [entry.resource for entry in found.limits] == ["cpu", "disk"]


def test_a_phase_that_was_never_judged_has_no_bottleneck() -> None:
    assert bottleneck([]) is None
