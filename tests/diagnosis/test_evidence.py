from __future__ import annotations

import pytest

from pinchpoint.diagnosis.blame import BenchmarkWork, Limit
from pinchpoint.diagnosis.evidence import blind, evidence, words


def limit(resource: str = "mds_lock", owner: str = "mds.a", **shares: float) -> Limit:
    found = {"busy": 0.94, "runqueue": 0.0, "blocked": 0.0, "blame": 0.6, "threshold": 0.9, "saturated": 1.0, **shares}
    full = found["busy"] >= found["threshold"]
    return Limit(resource=resource, owner=owner, host="h", serves=("mds",), full=full, reach=found["blame"], **found)


def work(benchmark: str = "fio", **seconds: float) -> BenchmarkWork:
    return BenchmarkWork(benchmark, "r", seconds, {}, ())


def nothing() -> BenchmarkWork:
    return work(other=0.0)


def test_a_sentence_on_each_wait_counts_the_processes_that_do_not_work() -> None:
    assert evidence("resource", work(mds=2.0, cpu=1.0, idle=0.9, osd=0.1), (), ()) == (
        "50% of fio's time waits for the MDS (2.0 of 4.0 processes at a time)",
        "25% of fio's time works on a CPU",
        "22% of fio's time sleeps or polls",
    )


def test_a_tenth_of_the_time_is_worth_a_sentence_and_less_is_not() -> None:
    assert evidence("resource", work("", disk=9.0, lock=1.0), (), ())[1:] == (
        "10% of the benchmark's time waits for locks in the kernel (1.0 of 10.0 processes at a time)",
    )
    assert len(evidence("resource", work(disk=9.1, lock=0.9), (), ())) == 1


def test_a_wait_that_has_no_words_is_told_by_its_name() -> None:
    assert evidence("resource", work(tape=1.0), (), ()) == (
        "100% of fio's time is spent on tape (1.0 of 1.0 processes at a time)",
    )


@pytest.mark.parametrize(
    ("runqueue", "blocked", "detail"),
    [
        (0.04, 0.04, ""),
        (0.05, 0.0, " (89% on a CPU, 5% waiting for a CPU)"),
        (0.0, 0.05, " (89% on a CPU, 5% waiting for what is below it)"),
        (0.2, 0.7, " (20% waiting for a CPU, 70% waiting for what is below it)"),
    ],
)
def test_the_parts_of_a_limits_busy_time_are_told_where_they_matter(
    runqueue: float, blocked: float, detail: str
) -> None:
    (told,) = evidence("resource", nothing(), (limit(runqueue=runqueue, blocked=blocked),), ())

    assert told == (
        f"mds_lock of mds.a is busy for 94% of the time{detail}, full from 90% on, "
        "and answers for 60% of the benchmark's time"
    )


def test_a_limit_of_the_slowest_rank_answers_for_that_ranks_time() -> None:
    (told,) = evidence("straggler", nothing(), (limit(),), ())

    assert told.endswith("and answers for 60% of the slowest rank's time")


def test_what_is_stuck_is_not_busy() -> None:
    assert evidence("stuck", work(idle=1.0), (limit("stuck", "osd.0"),), ()) == (
        "100% of fio's time passes without an answer to any of its requests",
        "osd.0 on h is stopped or hangs: nothing moves in it",
    )


def test_of_many_similar_limits_three_have_a_sentence() -> None:
    limits = [limit("kv_sync", f"osd.{number}", busy=0.9 + number / 100) for number in range(6)]

    told = evidence("resource", nothing(), limits, ())

    assert [line.partition(" is busy")[0] for line in told[:3]] == [f"kv_sync of osd.{number}" for number in range(3)]
    assert told[3:] == ("3 more of this resource are busy for 93% to 95%",)
    assert words("resource", limits) == "limited by kv_sync of osd.0, osd.1, osd.2 and 3 more"


def test_the_nearest_is_told_beside_a_limit_and_three_where_there_is_none() -> None:
    ranking = [
        limit("osd_op", f"osd.{number}", busy=busy, blame=0.1) for number, busy in enumerate((0.95, 0.5, 0.4, 0.3))
    ]
    ranking.append(limit("cpu", "host", blame=0.09))

    assert evidence("resource", nothing(), (limit(),), (limit(), *ranking))[1:] == (
        "osd_op of osd.0 serves it as well and is full too: busy for 95% of the time",
    )
    assert [line.split()[2] for line in evidence("latency-bound", nothing(), (), ranking)] == [
        "osd.0",
        "osd.1",
        "osd.2",
    ]
    assert "osd_op of osd.1 serves it as well and is not full: busy for 50% of the time" in (
        evidence("latency-bound", nothing(), (), ranking)
    )


def test_a_latency_without_anything_near_says_so() -> None:
    assert evidence("latency-bound", nothing(), (), (limit(blame=0.09),)) == (
        "nothing that serves it is busy for a tenth of the time",
    )
    assert evidence("resource", nothing(), (), ()) == ()


def test_a_straggler_is_named_with_its_limit_if_that_is_known() -> None:
    assert words("straggler", (limit(),), "rank 3") == "held by rank 3, limited by mds_lock of mds.a"
    assert words("straggler", (), "rank 3") == "held by rank 3"
    assert words("idle", ()) == "idle"
    assert words("resource", (limit(), limit("cpu", "host"))) == "limited by mds_lock of mds.a and cpu of h"


def test_what_nobody_sees_names_the_host_that_has_no_exporter() -> None:
    assert blind({}, {"mds": 0.6, "osd": 0.3}) == (
        "60% of the time waits for the MDS, and no exporter is on its host, or it was not asked",
        "30% of the time waits for OSDs, and no exporter is on their hosts, or it was not asked",
    )


@pytest.mark.parametrize("share", [0.0, 0.04, 0.05, 0.6])
def test_time_in_a_library_without_a_socket_has_its_remedy(share: float) -> None:
    told = (
        f"{share:.0%} of the time is inside of a Ceph library without an admin socket: "
        "set admin_socket for [client] in ceph.conf"
    )

    assert blind({"ceph": share}, {}) == ((told,) if share >= 0.05 else ())
