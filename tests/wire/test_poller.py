from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from patience import Stopwatch
from pinchpoint.model import Snapshot, Snapshots
from pinchpoint.wire import sources
from pinchpoint.wire.poller import Poller, Together
from pinchpoint.wire.sources import SourceError
from polling import until


class Fake:
    """A source that answers as a test says, once `open` is set."""

    def __init__(self, name: str, *answers: Snapshots | SourceError) -> None:
        self.name = name
        self.problems: dict[str, str] = {}
        self.answers = list(answers)
        self.open = threading.Event()
        self.open.set()
        self.asked = 0
        self.closed = False

    def snapshots(self) -> Snapshots:
        self.asked += 1
        assert self.open.wait(30)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, SourceError):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


def host(name: str, time: float = 1.0) -> Snapshots:
    return {name: Snapshot(time, {"a": {(): time}})}


@contextmanager
def together(*sources: Fake, patience: float = 20.0) -> Iterator[Together]:
    found = Together(sources, patience)
    yield found
    for source in sources:
        source.open.set()
    found.close()


def test_several_sources_are_one_with_the_hosts_of_all() -> None:
    with together(Fake("a", host("a")), Fake("b", {**host("c"), **host("d")})) as source:
        assert list(source.snapshots()) == ["a", "c", "d"]
        assert source.problems == {}
        assert source.name == "a, b"


def test_sources_are_asked_at_the_same_time() -> None:
    class Meeting(Fake):
        def snapshots(self) -> Snapshots:
            barrier.wait(30)
            return super().snapshots()

    barrier = threading.Barrier(3)
    sources = [Meeting(name, host(name)) for name in "abc"]
    with together(*sources) as source:
        assert source.snapshots().keys() == {"a", "b", "c"}


def test_a_source_that_is_down_is_named_and_the_others_are_heard() -> None:
    down = Fake("b", SourceError("b", "refused"), host("b"))
    down.problems = {"c": "not scraped"}
    with together(Fake("a", host("a")), down) as source:
        assert source.snapshots().keys() == {"a"}
        assert source.problems == {"b": "refused"}
        # It is queried again, and waited for again once it works.
        assert until(20, lambda: "b" in source.snapshots())
        assert source.problems == {"c": "not scraped"}


def test_a_source_that_hangs_holds_up_the_others_once() -> None:
    hanging = Fake("b", host("b", 1.0), host("b", 2.0))
    hanging.open.clear()
    with together(Fake("a", host("a")), hanging, patience=1.0) as source:
        source.snapshots()
        clock = Stopwatch()
        for _ in range(50):
            assert source.snapshots().keys() == {"a"}

        assert clock.tick() < 20  # 50 if every call waited for it
        assert hanging.asked == 1
        assert source.problems["b"].startswith("no answer for ")
        hanging.open.set()
        assert until(20, lambda: "b" in source.snapshots())


def test_a_late_answer_is_given_the_next_time() -> None:
    late = Fake("b", host("b", 1.0))
    late.open.clear()
    with together(Fake("a", host("a")), late, patience=0.2) as source:
        source.snapshots()
        late.open.set()
        assert until(20, lambda: late.asked == 1 and not source._pollers[1].under_way)
        late.open.clear()
        found = source.snapshots()

        assert found["b"].time == 1.0


def test_a_source_that_breaks_is_one_that_is_down() -> None:
    class Broken(Fake):
        def snapshots(self) -> Snapshots:
            raise RecursionError("too deep")

    with together(Fake("a", host("a")), Broken("b", host("b"))) as source:
        assert source.snapshots().keys() == {"a"}
        assert source.problems == {"b": "not an exposition of metrics: RecursionError: too deep"}


def test_no_answer_at_all_is_an_error_that_names_the_first() -> None:
    sources = [Fake(name, SourceError(name, "refused")) for name in "ab"]
    with together(*sources) as source, pytest.raises(SourceError, match=r"^a: refused$"):
        source.snapshots()

    assert until(20, lambda: all(fake.closed for fake in sources))


def test_a_poller_asks_at_its_interval_and_rings_after_each_question() -> None:
    rings: list[int] = []
    source = Fake("a", host("a", 1.0), host("a", 2.0))
    poller = Poller(source, 0.01, others=True, ring=lambda: rings.append(source.asked))

    assert until(20, lambda: poller.rounds >= 5)
    assert poller.collect()["a"].time == 2.0
    assert rings[:3] == [1, 2, 3]
    poller.close()
    assert until(20, lambda: source.closed)


def test_a_poller_without_an_interval_asks_when_it_is_told_to() -> None:
    source = Fake("a", host("a"))
    poller = Poller(source, others=True)

    assert source.asked == 0
    poller.ask()
    assert until(20, lambda: poller.rounds == 1)
    assert poller.collect() == host("a")
    assert poller.collect() == {}
    poller.close()


def test_a_source_that_fails_is_asked_ever_more_rarely() -> None:
    source = Fake("a", SourceError("a", "refused"))
    poller = Poller(source, 0.001, slowest=60.0)

    # After 2 + 4 + ... + 2**n ms: a few queries, where a working source would get hundreds.
    assert until(20, lambda: poller.rounds >= 8)
    assert poller.problems(60)["a"].reason == "refused"
    assert source.asked < 20
    poller.close()


def test_a_host_that_a_server_lacks_is_a_problem_until_it_has_gone_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Fake("server", {**host("a"), **host("b")}, host("a"))
    poller = Poller(source, 0.01, others=True)
    assert until(20, lambda: poller.missing.keys() == {"b"})

    monkeypatch.setattr(sources, "FORGET_HOST_SECONDS", 0.0)

    assert until(20, lambda: not poller.missing)
    poller.close()


def test_a_question_that_takes_too_long_is_a_problem_of_all_hosts_of_the_source() -> None:
    source = Fake("server", {**host("a"), **host("b")})
    poller = Poller(source, 0.01, others=True)
    assert until(20, poller.collect)
    source.open.clear()

    found = until(20, lambda: poller.problems(0.05))

    assert {name: problem.reason for name, problem in found.items()} == dict.fromkeys("ab", "no answer")
    source.open.set()
    assert until(20, lambda: not poller.problems(10))
    poller.close()
