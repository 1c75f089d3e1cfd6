from __future__ import annotations

import random

import pytest

from crew import Crew, Rank
from diagnosis.history import MadeHost
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
