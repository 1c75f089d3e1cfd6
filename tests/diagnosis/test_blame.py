from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.history import MadeHost, snapshots
from pinchpoint.diagnosis.blame import Limit, blame, workloads
from pinchpoint.diagnosis.usage import usages

SHARES = st.floats(0, 1)
CLASSES = ("cpu", "runqueue", "mds", "osd", "disk", "client", "network", "memory", "idle")
WAITS = st.dictionaries(st.sampled_from(CLASSES), SHARES, min_size=1).filter(lambda waits: sum(waits.values()) > 0.1)
RESOURCES = {
    ("benchmark", "fio"): "cpu,runqueue",
    ("mds_lock", "mds.a"): "mds",
    ("kv_sync", "osd.0"): "osd",
    ("messenger", "osd.0"): "mds,osd",
    ("client_lock", "ceph-fuse"): "client",
    ("disk", "vda"): "disk,writeback",
    ("link", "eth0"): "network,mds,osd",
    ("cpu", "host"): "cpu,runqueue",
    ("cpu_quota", "mds.a"): "cpu,runqueue",
    ("memory", "host"): "memory",
}
"""What each resource serves."""
STAGES = ("benchmark", "mds_lock", "kv_sync", "messenger", "client_lock")
"""Resources whose waits for a CPU are known."""
BUSY = st.dictionaries(st.sampled_from(sorted(RESOURCES)), st.tuples(SHARES, SHARES), max_size=6)
"""How busy each resource is, and which part of that it waits for a CPU."""


def blamed(**hosts: MadeHost) -> dict[tuple[str, str], Limit]:
    """Return what is blamed for the time of the one benchmark that runs, by resource and owner."""
    found = usages(*snapshots(**hosts))
    (work,) = workloads(found)
    return {(limit.resource, limit.owner): limit for limit in blame(found, work)}


def host(waits: dict[str, float], busy: dict[tuple[str, str], tuple[float, float]]) -> MadeHost:
    made = MadeHost().works(waits)
    for (name, owner), (share, waiting) in busy.items():
        made.resource(name, owner, share, RESOURCES[name, owner], runqueue=share * waiting if name in STAGES else None)
    return made


@given(WAITS, BUSY)
def test_nothing_answers_for_more_than_what_waits_for_it(
    waits: dict[str, float], busy: dict[tuple[str, str], tuple[float, float]]
) -> None:
    total = sum(waits.values())
    for limit in blamed(a=host(waits, busy)).values():
        waiting = sum(waits.get(wait, 0.0) for wait in limit.serves) / total
        assert -1e-9 <= limit.blame <= waiting + 1e-9, limit
        assert limit.reach <= waiting + 1e-9, limit


@given(WAITS, BUSY)
def test_a_host_that_does_nothing_changes_no_blame(
    waits: dict[str, float], busy: dict[tuple[str, str], tuple[float, float]]
) -> None:
    alone = blamed(a=host(waits, busy))
    beside = blamed(a=host(waits, busy), b=MadeHost().cpu(0.0).resource("disk", "sdz", 0.0, "disk,writeback"))

    assert {key: limit.blame for key, limit in beside.items() if limit.host == "a"} == {
        key: pytest.approx(limit.blame) for key, limit in alone.items()
    }


@given(st.floats(0.01, 1), SHARES, st.floats(0.8, 1))
def test_what_a_stage_waits_for_a_full_cpu_is_blamed_on_that_and_on_nothing_twice(
    lock: float, waiting: float, cpu: float
) -> None:
    found = blamed(a=host({"mds": 1.0}, {("mds_lock", "mds.a"): (lock, waiting), ("cpu", "host"): (cpu, 0.0)}))

    assert found["cpu", "host"].blame == pytest.approx(lock * waiting * cpu)
    assert found["mds_lock", "mds.a"].blame + found["cpu", "host"].blame == pytest.approx(lock)


@pytest.mark.parametrize("cpu", [0.0, 0.5, 0.79])
def test_a_cpu_that_is_not_full_leaves_the_blame_with_the_stage(cpu: float) -> None:
    found = blamed(a=host({"mds": 1.0}, {("mds_lock", "mds.a"): (0.9, 0.5), ("cpu", "host"): (cpu, 0.0)}))

    assert found["mds_lock", "mds.a"].blame == pytest.approx(0.9)
    assert ("cpu", "host") not in found


def test_a_stage_that_serves_nothing_the_benchmark_waits_for_is_not_blamed() -> None:
    found = blamed(a=host({"disk": 1.0}, {("mds_lock", "mds.a"): (1.0, 0.0), ("disk", "vda"): (0.9, 0.0)}))

    assert set(found) == {("disk", "vda")}


def test_the_most_blamed_comes_first_and_of_equals_the_one_that_is_full() -> None:
    made = MadeHost().works({"disk": 1.0})
    made.resource("disk", "vda", 0.9, "disk,writeback", saturated=0.0).resource("disk", "vdb", 0.9, "disk,writeback")
    made.resource("disk", "vdc", 0.95, "disk,writeback", saturated=0.0)

    assert [owner for _, owner in blamed(a=made)] == ["vdc", "vdb", "vda"]
