from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from diagnosis.history import MadeHost, snapshots
from pinchpoint.diagnosis.blame import Limit
from pinchpoint.diagnosis.costs import Cost, all_cost_advice, cost_advice, cost_sentence, costs
from pinchpoint.diagnosis.verdict import verdict
from pinchpoint.model import Labels, Snapshot
from pinchpoint.profile.classes import load_costs

SAMPLES = "pinchpoint_cost_samples_total"
RATIO = "pinchpoint_cost_ratio"
KV_SYNC = {"resource": "kv_sync", "owner": "osd.0"}
LIMIT = Limit(resource="kv_sync", owner="osd.0", host="h0", serves=("osd",), busy=0.95, runqueue=0.0, blocked=0.0,
              saturated=0.9, threshold=0.8, full=True, blame=0.9, reach=0.9)  # fmt: skip


def sampled(host: MadeHost, **rates: float) -> MadeHost:
    """Give kv_sync of osd.0 samples by class, per second."""
    for cost, rate in rates.items():
        host.counter(SAMPLES, rate, **KV_SYNC, **{"class": cost})
    return host


def shown(host: MadeHost, **shares: float) -> MadeHost:
    for cost, share in shares.items():
        host.gauge(RATIO, share, **KV_SYNC, **{"class": cost})
    return host


def found(host: MadeHost) -> Cost | None:
    return next(iter(costs([LIMIT], *snapshots(h0=host))), None)


def test_the_samples_of_the_interval_are_divided_by_class() -> None:
    cost = found(sampled(MadeHost(), rocksdb_memtable=25, block_io=15, checksum=5, other=5))

    assert cost is not None
    assert cost.samples >= 400
    assert cost.shares == pytest.approx({"rocksdb_memtable": 0.5, "block_io": 0.3, "checksum": 0.1, "other": 0.1})
    assert cost_sentence(cost) == (
        "kv_sync of osd.0 is full: its CPU time is 50% RocksDB memtable, 30% block and file I/O in the kernel, "
        f"10% checksums ({cost.samples} samples)"
    )


def test_below_400_samples_shares_are_about() -> None:
    cost = Cost("kv_sync", "osd.0", "h0", 399, {"rocksdb_memtable": 0.41, "other": 0.4, "checksum": 0.09})

    assert cost_sentence(cost) == "kv_sync of osd.0 is full: its CPU time is about 41% RocksDB memtable (399 samples)"
    assert "about" not in cost_sentence(replace(cost, samples=400))


def test_nothing_is_told_from_less_than_100_samples() -> None:
    assert found(sampled(MadeHost(), checksum=0.5)) is None


def test_a_short_interval_uses_the_last_shares() -> None:
    cost = found(shown(sampled(MadeHost(), checksum=0.5), checksum=0.75, other=0.25))

    assert cost is not None
    assert cost.shares == {"checksum": 0.75, "other": 0.25}
    assert cost_sentence(cost) == "kv_sync of osd.0 is full: its CPU time is about 75% checksums"


def test_a_counter_that_began_anew_counts_from_zero() -> None:
    _, after = snapshots(h0=sampled(MadeHost(), checksum=30))
    labels = (("class", "checksum"), ("owner", "osd.0"), ("resource", "kv_sync"))

    (cost,) = costs([LIMIT], {"h0": Snapshot(0.0, {SAMPLES: {labels: 10_000.0}})}, after)

    assert cost.samples == round(after["h0"].values[SAMPLES][labels])


def test_classes_that_are_all_small_are_not_named() -> None:
    cost = Cost("kv_sync", "osd.0", "h0", 500, {"other": 0.91, "checksum": 0.09})

    assert cost_sentence(cost) == ""


def test_other_resources_and_owners_do_not_count() -> None:
    host = MadeHost()
    host.counter(SAMPLES, 100, resource="kv_sync", owner="osd.1", **{"class": "checksum"})
    host.counter(SAMPLES, 100, resource="osd_op", owner="osd.0", **{"class": "checksum"})

    assert found(host) is None
    assert costs([LIMIT], {}, {}) == ()


def test_a_verdict_tells_what_its_limit_spends_time_on() -> None:
    host = MadeHost().works({"osd": 2.0})
    sampled(host.resource("kv_sync", "osd.0", 0.97, "osd"), rocksdb_memtable=40, other=10)

    said = verdict(*snapshots(h0=host))

    assert [limit.resource for limit in said.limits] == ["kv_sync"]
    assert [cost.shares for cost in said.costs] == [pytest.approx({"rocksdb_memtable": 0.8, "other": 0.2})]
    assert any("80% RocksDB memtable" in line for line in said.evidence)


@given(st.dictionaries(st.text(max_size=8), st.floats(allow_nan=True), max_size=20))
def test_shares_add_up_to_one_whatever_a_server_sends(values: dict[str, float]) -> None:
    labels: dict[Labels, float] = {
        (("class", cost), ("owner", "osd.0"), ("resource", "kv_sync")): value for cost, value in values.items()
    }
    for metric in (SAMPLES, RATIO):
        for cost in costs([LIMIT], {}, {"h0": Snapshot(1.0, {metric: labels})}):
            assert sum(cost.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("owner", "shares", "words"),
    [
        ("osd.0", {"encryption": 0.34, "allocator": 0.3}, "about encryption: If the network is trusted"),
        ("fio", {"encryption": 0.34, "allocator": 0.3}, ""),
        ("osd.0", {"encryption": 0.19, "other": 0.8}, ""),
        ("osd.0", {"rocksdb_memtable": 0.5, "allocator": 0.25}, "about allocating and freeing memory: Use packages"),
        ("fio", {"iommu": 0.4}, "about the IOMMU: Boot with iommu=pt"),
    ],
)
def test_the_first_step_is_told_for_a_class_with_a_fifth_of_the_time(
    owner: str, shares: dict[str, float], words: str
) -> None:
    found = cost_advice(Cost("messenger", owner, "h0", 500, shares))

    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_every_class_has_a_section_and_every_advice_a_class() -> None:
    page = (Path(__file__).parents[2] / "docs" / "costs.md").read_text()
    sections = re.findall(r"^## (\w+)$", page, re.MULTILINE)

    assert sections == sorted(load_costs().words)
    assert all_cost_advice().keys() <= set(sections)
    for section in page.split("\n## ")[1:]:
        assert "**Do:**" in section
        assert "**How sure:**" in section
