from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import count
from threading import Event

from pinchpoint.judge.hosts import Hosts
from pinchpoint.judge.pace import MAX_READING_INTERVAL_SECONDS, Pace
from pinchpoint.model import STALE_SECONDS, Snapshot, Snapshots
from pinchpoint.wire.poller import Problem
from pinchpoint.wire.sources import SourceError
from polling import until

ASKED = 0.02
OWN: Mapping[str, Mapping[tuple[tuple[str, str], ...], float]] = {"pinchpoint_a": {(): 1.0}}


class Answers:
    """A source with a test's answers, which counts the queries."""

    def __init__(self, name: str = "a") -> None:
        self.name = name
        self.problems: Mapping[str, str] = {}
        self.hosts: Snapshots = {name: Snapshot(1.0, OWN)}
        self.error: Exception | None = None
        self.hang = Event()
        self.hang.set()
        self.asked = 0
        self.closed = False

    def snapshots(self) -> Snapshots:
        self.asked += 1
        assert self.hang.wait(60)
        if self.error is not None:
            raise self.error
        return {host: Snapshot(snapshot.time + self.asked, snapshot.values) for host, snapshot in self.hosts.items()}

    def close(self) -> None:
        self.closed = True


def asking(*sources: Answers, every: float = ASKED) -> Hosts:
    hosts = Hosts(Pace(every))
    hosts.set({source.name: lambda source=source: source for source in sources})  # type: ignore[misc]
    return hosts


def _asked_twice(sources: list[Answers]) -> bool:
    return all(source.asked > 1 for source in sources)


def test_of_a_host_that_several_sources_know_the_newest_is_given() -> None:
    for times in ((1.0, 100_000.0), (100_000.0, 1.0)):
        sources = [Answers("a"), Answers("b")]
        for source, time in zip(sources, times, strict=True):
            source.hosts = {"x": Snapshot(time, OWN)}
        hosts = asking(*sources)

        assert until(20, partial(_asked_twice, sources))
        assert hosts.collect()["x"].time > 100_000
        hosts.stop()


def test_what_has_come_is_given_once() -> None:
    source = Answers()
    hosts = asking(source)

    assert until(20, lambda: "a" in hosts.collect())
    source.hang.clear()
    until(20, lambda: not hosts.collect())
    assert hosts.collect() == {}
    source.hang.set()
    assert until(20, hosts.collect)
    hosts.stop()
    assert until(20, lambda: source.closed)


def test_a_source_that_hangs_holds_up_no_other() -> None:
    slow, well = Answers("slow"), Answers("well")
    slow.hang.clear()
    hosts = asking(slow, well)

    assert until(20, lambda: well.asked > 5)
    assert slow.asked == 1
    slow.hang.set()
    hosts.stop()


def test_what_all_sources_say_is_awaited() -> None:
    prompt, late = Answers("a"), Answers("b")
    prompt.hang.clear()
    late.hang.clear()
    hosts = asking(prompt, late, every=60.0)
    hosts.collect()

    prompt.hang.set()
    assert not hosts.wait(0.1)
    late.hang.set()
    assert hosts.wait(60)
    hosts.collect()
    assert not hosts.wait(0)
    hosts.wake()
    assert hosts.wait(60)

    hosts.stop()


def test_a_source_that_fails_is_not_awaited() -> None:
    works, fails = Answers("a"), Answers("b")
    fails.error = SourceError("b", "connection refused")
    hosts = asking(works, fails, every=1.0)

    assert until(20, lambda: "b" in hosts.problems())
    hosts.collect()
    assert hosts.wait(60)

    hosts.stop()


def test_why_a_source_gives_no_answer_is_known_and_forgotten_when_it_does() -> None:
    source = Answers()
    source.error = SourceError("a", "refused")
    hosts = asking(source)

    problem = until(20, hosts.problems)["a"]
    assert problem.reason == "refused"
    assert until(20, hosts.problems)["a"].since == problem.since
    source.error = None
    assert until(60, lambda: not hosts.problems())
    hosts.stop()


def test_whatever_a_foreign_server_makes_a_parser_do_blinds_only_itself() -> None:
    source = Answers()
    source.error = RecursionError("deep")
    hosts = asking(source, Answers("b"))

    assert "RecursionError: deep" in until(20, lambda: hosts.problems().get("a")).reason
    assert until(20, lambda: "b" in hosts.collect())
    hosts.stop()


def test_what_is_no_exporter_of_ours_and_hosts_that_a_server_has_lost_are_named() -> None:
    source = Answers()
    source.hosts = {"a": Snapshot(1.0, OWN), "node": Snapshot(1.0, {"node_load1": {(): 1.0}})}
    hosts = asking(source)
    assert until(20, lambda: hosts.problems().get("node"))
    assert until(20, lambda: set(hosts.collect()) == {"a"})

    source.hosts = {"node": source.hosts["node"]}

    assert until(20, lambda: hosts.problems().get("a")).reason == "no samples"
    hosts.stop()


def test_sources_that_are_not_wanted_any_more_are_released() -> None:
    first, second = Answers("a"), Answers("b")
    hosts = asking(first)
    assert until(20, lambda: first.asked)

    hosts.set({"b": lambda: second})

    assert until(20, lambda: first.closed and second.asked)
    assert not second.closed
    hosts.stop()


def test_hosts_that_are_read_less_often_last_longer() -> None:
    source = Answers()
    pace = Pace(ASKED)
    hosts = Hosts(pace)
    hosts.set({"a": lambda: source})

    assert until(20, hosts.collect)["a"].lasts == STALE_SECONDS
    pace.interval = 10.0
    assert until(20, hosts.collect)["a"].lasts == 25.0
    hosts.stop()


class Slow:
    """A poller whose last answer took so many seconds."""

    failure = None

    def __init__(self, took: float) -> None:
        self.took = took

    def collect(self) -> Snapshots:
        return {"a": Snapshot(1.0, OWN)}

    def problems(self, patience: float) -> Mapping[str, Problem]:
        return {}


def test_hosts_last_until_a_slow_server_has_answered_again_and_it_is_named() -> None:
    hosts = Hosts(Pace(1.0))
    poller = Slow(8.0)
    hosts._pollers = {"http://prometheus": poller}  # type: ignore[dict-item]

    assert hosts.collect()["a"].lasts == 20.0
    problem = hosts.problems()["http://prometheus"]
    assert problem.reason == "its answers take more than 5 s, so that verdicts are late"
    assert not problem.unseen
    assert hosts.problems()["http://prometheus"].since == problem.since

    poller.took = 0.5
    assert hosts.collect()["a"].lasts == STALE_SECONDS
    assert not hosts.problems()


def test_all_sources_are_queried_at_the_new_pace() -> None:
    """At each look its clock has gone on by a second, and its CPU time by many."""
    now = count()
    sources = Answers("a"), Answers("b")
    pace = Pace(ASKED, clock=lambda: float(next(now)), cpu=lambda: 1000.0 * next(now))
    hosts = Hosts(pace)
    hosts.set({source.name: lambda source=source: source for source in sources})  # type: ignore[misc]

    assert until(20, lambda: pace.interval == MAX_READING_INTERVAL_SECONDS)
    asked = [source.asked for source in sources]
    assert not any(source.asked > before + 1 for source, before in zip(sources, asked, strict=True))
    hosts.stop()


def test_hosts_come_in_the_order_of_their_sources() -> None:
    """The time of a moment is that of its first host, and must not depend on the order of a set."""
    sources = [Answers(name) for name in ("c", "a", "d", "b", "e")]
    hosts = asking(*sources)

    assert until(20, lambda: list(hosts.collect()) == [source.name for source in sources])
    hosts.stop()
