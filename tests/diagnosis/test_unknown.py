from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from diagnosis.history import MadeHost, snapshots
from pinchpoint.diagnosis.unknown import hot_threads, short
from pinchpoint.diagnosis.usage import UnknownThread, usage
from pinchpoint.diagnosis.verdict import Confidence, Kind, Verdict, verdict


def host(busy: float = 0.98, saturated: float = 0.95) -> MadeHost:
    """A host on which a thread without a role is hot."""
    made = MadeHost().resource("unknown_thread", "host", busy, "", runqueue=0.0, saturated=saturated)
    return made.gauge("pinchpoint_unknown_thread_busy_ratio", busy, thread="my_thread", process="foo")


def judged(**hosts: MadeHost) -> Verdict:
    return verdict(*snapshots(**hosts))


def test_it_is_known_by_name_with_how_busy_it_was_and_how_long_such_a_thread_was_full() -> None:
    (found,) = usage(*host().pair()).unknown

    assert (found.thread, found.process, found.busy) == ("my_thread", "foo", 0.98)
    assert found.saturated == pytest.approx(0.95)
    assert usage(*MadeHost().cpu(0.5).pair()).unknown == ()


def test_of_threads_beside_the_hottest_one_it_is_known_for_how_long_they_were_full_at_least() -> None:
    made = host(1.0, 0.95)
    for name, busy in (("second", 0.9), ("third", 0.7)):
        made.gauge("pinchpoint_unknown_thread_busy_ratio", busy, thread=name, process="foo")
    hottest, second, third = usage(*made.pair()).unknown

    assert (hottest.thread, second.thread, third.thread) == ("my_thread", "second", "third")
    assert hottest.saturated == pytest.approx(0.95)
    assert second.saturated == pytest.approx(0.5)  # full from 0.8 on
    assert third.saturated == 0


def test_it_is_told_of_in_a_few_words() -> None:
    assert short(UnknownThread("my_thread", "foo", 1.0, 1.0)) == "no role: `my_thread` of `foo` at 100%"


def test_the_busier_of_two_threads_comes_first() -> None:
    seen = usage(*host().pair())
    hosts = {
        name: replace(seen, unknown=(UnknownThread("my_thread", "foo", busy, 0.95),))
        for name, busy in (("a", 0.91), ("b", 0.98))
    }

    assert [one.host for one in hot_threads(hosts)] == ["b", "a"]


@pytest.mark.parametrize(
    ("waits", "kind"),
    [
        ({"osd": 3.0, "cpu": 1.0}, Kind.LATENCY_BOUND),
        ({"other": 3.0, "cpu": 1.0}, Kind.UNKNOWN),
        ({"idle": 4.0}, Kind.IDLE),
    ],
)
def test_where_nothing_else_is_the_limit_it_may_be_and_the_verdict_says_so(waits: dict[str, float], kind: Kind) -> None:
    found = judged(a=MadeHost().works(waits).resource("kv_sync", "osd.0", 0.1, "osd", runqueue=0.0), b=host())

    assert found.kind is kind
    (line,) = found.no_role
    assert line.startswith("`my_thread` of `foo` on b at 98%; a thread without a role was full for 95% of the time: ")
    assert "nothing that has a role is the limit, so this may be" in line
    assert found.confidence is not Confidence.HIGH
    assert "a thread without a role was full, and may be the limit" in found.doubts


def test_it_changes_nothing_about_a_verdict_that_names_a_limit() -> None:
    def mds() -> MadeHost:
        made = MadeHost().works({"mds": 3.6, "cpu": 0.4}).cpu(0.5).threads("mds.a", 0.9, 0.0)
        return made.resource("mds_lock", "mds.a", 0.95, "mds", runqueue=0.05)

    alone, beside = judged(a=mds(), b=MadeHost()), judged(a=mds(), b=host())

    assert (beside.kind, beside.limits, beside.ranking) == (alone.kind, alone.limits, alone.ranking)
    assert (beside.confidence, beside.doubts, beside.innocent) == (alone.confidence, alone.doubts, alone.innocent)
    assert beside.no_role == ("`my_thread` of `foo` on b at 98%; a thread without a role was full for 95% of the time",)


def test_it_is_neither_blamed_nor_called_innocent_by_whatever_waits() -> None:
    waits = (
        "cpu",
        "runqueue",
        "mds",
        "osd",
        "client",
        "writeback",
        "disk",
        "network",
        "memory",
        "lock",
        "other",
        "idle",
    )
    for wait in waits:
        found = judged(a=host().works({wait: 1.0}).cpu(1.0))

        assert "unknown_thread" not in {limit.resource for limit in found.ranking}
        assert not any("unknown_thread" in line for line in found.innocent)


@pytest.mark.parametrize(("busy", "saturated", "told"), [(0.3, 0.1, 0), (0.6, 0.0, 1), (0.2, 0.4, 1)])
def test_one_that_is_not_hot_is_not_worth_a_word(busy: float, saturated: float, told: int) -> None:
    assert len(judged(a=host(busy, saturated).works({"osd": 1.0})).no_role) == told


def test_of_a_whole_phase_the_name_that_was_seen_most_counts_and_not_the_last_one() -> None:
    before, after = snapshots(a=host().works({"osd": 1.0}))

    (found,) = verdict(before, after, seen={"a": [("other", "bar", 0.7)]}).unknown
    assert (found.host, found.thread.thread, found.thread.process, found.thread.busy) == ("a", "other", "bar", 0.7)
    assert found.thread.saturated == pytest.approx(0.95)
    assert verdict(before, after, seen={}).unknown == ()


def test_the_hottest_hosts_come_first_and_a_cluster_does_not_fill_the_page() -> None:
    hosts = {f"h{n}": host(0.9, 0.5 + n / 20) for n in range(8)}

    found = judged(client=MadeHost().works({"osd": 1.0}), **hosts)

    assert [one.host for one in found.unknown] == [f"h{n}" for n in range(7, -1, -1)]
    assert len(found.no_role) == 3


@given(st.text(), st.floats(), st.floats())
def test_whatever_an_exporter_says_there_is_a_verdict(name: str, busy: float, saturated: float) -> None:
    made = MadeHost().works({"osd": 1.0}).gauge("pinchpoint_unknown_thread_busy_ratio", busy, thread=name, process=name)
    made.counter(
        "pinchpoint_resource_saturated_seconds_total", saturated, resource="unknown_thread", owner="host", serves=""
    )

    assert all(0 <= one.thread.busy <= 1 for one in judged(a=made).unknown)
