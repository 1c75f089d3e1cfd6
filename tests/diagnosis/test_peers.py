from __future__ import annotations

import gc
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.history import MadeHost, snapshots
from pinchpoint.diagnosis.peers import is_above, is_below, outliers, uneven_resources
from pinchpoint.diagnosis.usage import ResourceUse, Usage
from pinchpoint.diagnosis.verdict import Verdict, verdict

WAITS = {"osd": 3.6, "cpu": 0.4}


def osd(number: int, commit: float, *, rate: float = 100.0, cluster: str = "c1") -> MadeHost:
    """Return the host of an OSD whose commits take so many seconds."""
    name = f"osd.{number}"
    return (
        MadeHost()
        .counter("pinchpoint_osd_kv_syncs_total", rate, daemon=name)
        .counter("pinchpoint_osd_kv_sync_seconds_total", rate * commit, daemon=name)
        .gauge("pinchpoint_ceph_daemon_info", 1, daemon=name, cluster=cluster, version="18.2.7")
        .resource("osd_op", name, 0.3, "osd")
    )


def judged(*osds: MadeHost, waits: dict[str, float] | None = None) -> Verdict:
    hosts = {f"osd{place}": host for place, host in enumerate(osds)}
    return verdict(*snapshots(client=MadeHost().works(waits or WAITS), **hosts))


def test_a_slow_osd_of_six_under_the_same_load_is_named() -> None:
    found = judged(*(osd(number, 0.010 + 0.0005 * number) for number in range(5)), osd(5, 0.040))

    assert found.peers == (
        "osd.5 on osd5 is slower than its peers: a commit takes 40 ms, the median of 6 OSDs 11.2 ms",
    )  # fmt: skip


def test_osds_whose_times_differ_widely_have_no_outlier() -> None:
    assert judged(*(osd(number, 0.006 + 0.002 * number) for number in range(6))).peers == ()


def test_of_three_osds_one_is_slow_from_twice_the_median_on() -> None:
    assert judged(osd(0, 0.01), osd(1, 0.01), osd(2, 0.018)).peers == ()
    assert judged(osd(0, 0.01), osd(1, 0.01), osd(2, 0.022)).peers
    assert judged(osd(0, 0.01), osd(1, 0.09)).peers == ()


def test_an_osd_with_little_to_do_or_of_another_cluster_is_no_peer() -> None:
    even = [osd(number, 0.010) for number in range(5)]

    assert judged(*even, osd(5, 0.09, rate=3)).peers == ()
    assert judged(*even, osd(5, 0.09, cluster="c2")).peers == ()


def test_an_osd_that_is_so_slow_that_it_does_little_is_named() -> None:
    even = [osd(number, 0.001) for number in range(5)]

    assert judged(*even, osd(5, 0.4, rate=1.5)).peers == (
        "osd.5 on osd5 is slower than its peers: a commit takes 400 ms, the median of 6 OSDs 1 ms",
    )  # fmt: skip
    assert judged(*even, osd(5, 0.2, rate=1.5)).peers == ()


def test_reads_are_compared_with_reads() -> None:
    hosts = []
    for number in range(6):
        names = {"daemon": f"osd.{number}", "type": "read"}
        took = 0.03 if number == 2 else 0.002
        hosts.append(
            osd(number, 0.01)
            .counter("pinchpoint_osd_ops_total", 50.0, **names)
            .counter("pinchpoint_osd_op_seconds_total", 50.0 * took, **names)
            .counter("pinchpoint_osd_ops_total", 50.0, daemon=f"osd.{number}", type="write")
            .counter("pinchpoint_osd_op_seconds_total", 5.0 * number, daemon=f"osd.{number}", type="write")
        )
    (line,) = judged(*hosts).peers
    assert line.startswith("osd.2 on osd2 is slower than its peers: a read takes 30 ms")


def test_a_benchmark_that_computes_is_told_of_no_osd() -> None:
    slow = [*(osd(number, 0.01) for number in range(5)), osd(5, 0.04)]

    assert judged(*slow, waits={"cpu": 4.0}).peers == ()


def test_a_disk_that_is_twice_as_busy_as_its_peers_is_named() -> None:
    hosts = []
    for number in range(6):
        busy = 0.95 if number == 4 else 0.3 + 0.01 * number
        hosts.append(osd(number, 0.01).device(f"osd.{number}", "sdb").resource("disk", "sdb", busy, "disk"))

    assert judged(*hosts).peers == (
        "disk sdb on osd4 is busier than its peers: 95%, the median of 6 is 32%",
    )  # fmt: skip


@pytest.mark.parametrize("deviation", [0.02, 0.1, 0.2])
def test_of_200_even_clusters_at_most_two_have_a_slow_osd(deviation: float) -> None:
    named = 0
    for seed in range(200):
        chance = random.Random(f"{deviation} {seed}")
        times = {str(osd): max(0.1, chance.gauss(1, deviation)) for osd in range(chance.choice([3, 5, 6, 12, 60]))}
        named += bool(outliers(times, 1.5))
    assert named <= 2


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1e18), max_size=12), st.floats(1, 10))
def test_never_does_half_of_the_peers_stand_out(values: dict[str, float], least: float) -> None:
    found = outliers(values, least)

    assert 2 * len(found) <= len(values)
    assert all(ratio > least for ratio in found.values())


@pytest.mark.parametrize(
    ("value", "number", "found"),
    [
        (2.0, 4, (False, False)),
        (2.1, 4, (False, True)),
        (0.5, 4, (False, False)),
        (0.4, 4, (True, False)),
        (2.1, 5, (False, True)),
        (1.0 + 0.1 * 5 * 1.4826, 5, (False, False)),
        (1.0 - 0.1 * 5 * 1.4827, 5, (True, False)),
        (0.4, 5, (False, False)),
    ],
)
def test_a_few_peers_differ_by_half_and_more_by_their_deviation(
    value: float, number: int, found: tuple[bool, bool]
) -> None:
    deviation = 0.1 if value != 0.4 else 0.2

    assert (is_below(value, 1.0, deviation, number), is_above(value, 1.0, deviation, number)) == found


def test_the_farthest_outlier_comes_first() -> None:
    even = {f"osd.{number}": 1.0 for number in range(6)}

    assert [*outliers({**even, "osd.6": 2.0, "osd.7": 4.0, "osd.8": 3.0}, 1.5).items()] == [
        ("osd.7", 4.0),
        ("osd.8", 3.0),
        ("osd.6", 2.0),
    ]


def test_a_link_or_disk_matters_beside_its_peers_from_half_busy_on() -> None:
    def hosts(busy: float) -> dict[str, Usage]:
        return {
            f"h{place}": Usage(
                time=0.0,
                seconds=1.0,
                resources=(ResourceUse("link", "eth0", ("network",), busy if place == 3 else 0.1, 0.0, None, 0.9),),
            )
            for place in range(4)
        }

    assert [*uneven_resources(hosts(0.49))] == []
    assert [*uneven_resources(hosts(0.5))] == ["link eth0 on h3 is busier than its peers: 50%, the median of 4 is 10%"]


def test_a_verdict_leaves_nothing_to_the_garbage_collector_which_a_judge_runs_seldom() -> None:
    def judge() -> None:
        assert judged(*(osd(number, 0.010) for number in range(5)), osd(5, 0.040)).peers

    judge()
    gc.collect()
    gc.disable()
    try:
        judge()
        left = gc.collect()
    finally:
        gc.enable()
    assert left < 100  # which a thread of the test runner may leave; a copy of roles.toml would leave thousands
