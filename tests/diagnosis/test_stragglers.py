from __future__ import annotations

import random

import msgspec
import pytest

from crew import Crew, Rank
from diagnosis.history import MadeHost
from pinchpoint.diagnosis.blame import BenchmarkWork
from pinchpoint.diagnosis.stragglers import RankSpread, rank_spread, sentences
from pinchpoint.diagnosis.usage import RankUse, Usage, WorkloadUse
from pinchpoint.diagnosis.verdict import Kind, Verdict, verdict
from pinchpoint.model import Snapshot

QUOTA = {"runqueue": 0.9, "cpu": 0.1}


def judged(*crews: Crew, other: MadeHost | None = None, seconds: int | None = None) -> Verdict:
    """Let all crews work together, each on a host of its own; `other` adds the resources of the first one."""
    before = {f"client{place}": crew.snapshot() for place, crew in enumerate(crews)}
    while not all(crew.finished for crew in crews) and (seconds is None or crews[0].now < seconds):
        for crew in crews:
            crew.pass_second()
    after = {f"client{place}": crew.snapshot() for place, crew in enumerate(crews)}
    if other is not None:
        first, last = other.pair()
        before["client0"] = Snapshot(before["client0"].time, {**first.values, **before["client0"].values})
        after["client0"] = Snapshot(after["client0"].time, {**last.values, **after["client0"].values})
    return verdict(before, after, benchmark="ior", run="r")


def crew(count: int, rate: float = 1e6, seconds: float = 20.0, first: int = 0) -> Crew:
    return Crew([Rank(rate, rate * seconds) for _ in range(count)], first=first)


def test_a_rank_under_a_quota_holds_the_seven_others_and_the_quota_is_the_reason() -> None:
    ranks = crew(8)
    ranks.ranks[5] = Rank(2.5e5, 2e7, QUOTA)
    quota = MadeHost(80.0).resource("cpu_quota", "ior", 0.95, "cpu,runqueue").cpu(0.4)

    found = judged(ranks, other=quota)

    assert found.kind is Kind.STRAGGLER
    assert found.words == "held by rank 5 on client0, limited by cpu_quota of ior"
    assert found.ranks[0].startswith("rank 5 on client0 has 25% of the median rate of 8 ranks")
    assert "is ready to work and has no CPU 90%" in found.ranks[0]
    assert found.ranks[1] == "the 8 ranks spent 66% of their time waiting for the last ones"
    about = [line for line in found.evidence if "cpu_quota of ior" in line]
    assert about == [
        "cpu_quota of ior is busy for 95% of the time, full from 50% on, and answers for 86% of the slowest rank's time"
    ]


def test_a_straggler_without_anything_that_is_full_is_named_all_the_same() -> None:
    ranks = crew(8)
    ranks.ranks[2].rate /= 3

    found = judged(ranks)

    assert found.words == "held by rank 2 on client0"
    assert found.runbook


def test_of_two_that_differ_neither_is_the_usual_one() -> None:
    ranks = crew(2)
    ranks.ranks[1].rate /= 3

    assert judged(ranks).kind is not Kind.STRAGGLER


def test_a_rank_with_more_to_do_holds_the_others_though_it_is_as_fast() -> None:
    ranks = crew(8)
    ranks.ranks[0].work *= 3

    found = judged(ranks)

    assert found.words == "held by rank 0 on client0"
    assert "times the work of the median rank" in found.ranks[0]


def test_the_slowest_host_is_named_where_all_of_its_ranks_hold_the_others() -> None:
    slow = crew(8, rate=3e5, seconds=66, first=8)

    found = judged(crew(8), slow, crew(8, first=16), seconds=60)

    assert found.words == "held by the 8 ranks on client1"


def test_of_hosts_with_one_rank_each_the_slow_one_is_named() -> None:
    hosts = [crew(1, rate=2e5 if place == 3 else 1e6, first=place) for place in range(6)]
    for host in hosts:
        host.ranks[0].work = 2e7

    found = judged(*hosts, seconds=60)

    assert found.words == "held by rank 3 on client3"
    assert any("5 of 6 ranks are done" in line for line in found.ranks)


def test_a_thread_that_holds_the_others_is_called_one() -> None:
    ranks = [Rank(2.5e5 if place == 7 else 1e6, 2e7) for place in range(8)]

    assert judged(Crew(ranks, threads=True)).words == "held by thread 7 on client0"


def test_while_all_ranks_work_a_slow_one_is_mentioned_and_holds_nobody() -> None:
    ranks = crew(8)
    ranks.ranks[5] = Rank(6e5, 2e7, {"osd": 0.95, "cpu": 0.05})

    found = judged(ranks, seconds=10)

    assert found.kind is not Kind.STRAGGLER
    assert found.ranks == (
        "rank 5 on client0 has 60% of the median rate of 8 ranks (586 KiB/s of 977 KiB/s): waits for OSDs 95%",
    )


def test_the_slowest_rank_says_when_the_phase_will_end() -> None:
    ranks = crew(8, seconds=10)
    ranks.ranks[5].rate = 2e5

    found = judged(ranks, seconds=30)

    assert any("7 of 8 ranks are done, rank 5 on client0 is the slowest: it needs about 20 s more" in line
               for line in found.ranks)  # fmt: skip


def test_of_four_ranks_one_that_is_a_little_slower_is_no_outlier() -> None:
    ranks = crew(4)
    ranks.ranks[1].rate *= 0.7

    assert judged(ranks).kind is not Kind.STRAGGLER


@pytest.mark.parametrize("deviation", [0.01, 0.05, 0.1])
def test_of_200_even_runs_at_most_two_have_a_straggler(deviation: float) -> None:
    named = 0
    for seed in range(200):
        chance = random.Random(f"{deviation} {seed}")
        count = chance.choice([2, 4, 8, 16, 64])
        hosts = chance.choice([1, 1, 2, 4])
        crews = []
        for host in range(hosts):
            ranks = [Rank(1e6 * max(0.3, chance.gauss(1, deviation)), 3e7) for _ in range(count)]
            crews.append(Crew(ranks, first=host * count))
        named += judged(*crews).kind is Kind.STRAGGLER
    assert named <= 2


SLOW_OF_EIGHT = RankSpread(
    working=3, done=5, waited=0.4, since=0.4, host="client1", slowest="rank 5", rate=250.0, median=1000.0, unit="waits",
    outlier=True, uneven=1.0, left=7.4, waits={"osd": 0.5, "cpu": 0.05, "mds": 0.45}, alone=False,
)  # fmt: skip


def test_the_sentences_on_a_slow_rank_have_its_rate_its_waits_and_its_end() -> None:
    assert [*sentences(SLOW_OF_EIGHT, {"osd": "waits for OSDs"})] == [
        "rank 5 on client1 has 25% of the median rate of 8 ranks (250 waits/s of 1e+03 waits/s): "
        "waits for OSDs 50%, mds 45%",
        "the 8 ranks spent 40% of their time waiting for the last ones",
        "5 of 8 ranks are done, rank 5 on client1 is the slowest: it needs about 7 s more",
    ]


def test_a_wait_of_the_slowest_rank_is_told_from_a_tenth_of_its_time_on() -> None:
    def told(share: float) -> str:
        spread = msgspec.structs.replace(SLOW_OF_EIGHT, waits={"osd": 2 * (1 - share), "mds": 2 * share})
        return next(sentences(spread, {}))

    assert told(0.1).endswith(": osd 90%, mds 10%")
    assert told(0.09).endswith(": osd 91%")
    assert next(sentences(msgspec.structs.replace(SLOW_OF_EIGHT, waits={}), {})).endswith("waits/s)")


def test_a_rank_with_more_to_do_is_told_with_its_work() -> None:
    spread = msgspec.structs.replace(SLOW_OF_EIGHT, outlier=False, uneven=2.5, rate=900.0, left=None, waited=0.0)

    assert [*sentences(spread, {})] == [
        "rank 5 on client1 has done 2.5 times the work of the median rank, at 90% of its rate: osd 50%, mds 45%",
        "5 of 8 ranks are done, rank 5 on client1 is the slowest",
    ]


def ranks(working: int, done: int, slowest: int | None, **given: object) -> WorkloadUse:
    fields: dict[str, object] = {
        "worked": float(working), "waited": float(done), "since": 0.5, "rates": {"slowest": 10.0, "median": 20.0},
        "work": {"slowest": 100.0, "median": 200.0, "furthest": 300.0}, "unit": "bytes", "numbered": "mpi",
        "waits": {"osd": 1.0}, **given,
    }  # fmt: skip
    found = msgspec.convert({"working": working, "done": done, "slowest": slowest, **fields}, RankUse)
    return WorkloadUse("ior", "r", {}, (), (), found)


def spread_of(**hosts: WorkloadUse) -> RankSpread | None:
    uses = {name: Usage(time=0.0, seconds=10.0, workloads=(use,)) for name, use in hosts.items()}
    return rank_spread(uses, BenchmarkWork("ior", "r", {}, {}, ()))


def test_two_ranks_are_a_spread_and_one_or_one_of_another_run_is_not() -> None:
    found = spread_of(a=ranks(1, 1, 1))

    assert found is not None
    assert (found.working, found.done, found.waited, found.since, found.slowest) == (1, 1, 0.5, 0.5, "rank 1")
    assert (found.rate, found.median, found.uneven, found.left) == (10.0, 20.0, 0.5, 20.0)
    assert spread_of(a=ranks(1, 0, 0)) is None
    assert spread_of(a=ranks(0, 8, None, worked=0.0)) is None
    other = Usage(time=0.0, seconds=10.0, workloads=(ranks(4, 4, 1),))
    assert rank_spread({"a": other}, BenchmarkWork("fio", "r", {}, {}, ())) is None


def test_where_no_rank_works_any_more_nobody_is_the_slowest() -> None:
    found = spread_of(a=ranks(0, 8, None, worked=1.0, rates={}, work={}, unit="", waits={}))

    assert found is not None
    assert (found.slowest, found.host, found.rate, found.unit, found.left, found.waits) == ("", "", 0.0, "", None, {})


def test_hosts_that_measure_otherwise_than_most_are_not_compared() -> None:
    slow = ranks(2, 2, 0, unit="waits", rates={"slowest": 1.0, "median": 1.0})
    found = spread_of(a=ranks(2, 2, 4), b=ranks(2, 2, 8), c=slow)

    assert found is not None
    assert (found.unit, found.host, found.rate, found.working) == ("bytes", "a", 10.0, 6)


def test_what_is_called_neither_rank_nor_thread_is_a_process() -> None:
    found = spread_of(a=ranks(2, 2, 4, numbered="start"))

    assert found is not None
    assert found.slowest == "process 4"
