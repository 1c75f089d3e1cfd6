from __future__ import annotations

import re
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.metrics import KEEP_ENDED_SECONDS
from pinchpoint.model import Snapshot
from pinchpoint.threads.role_table import MAX_OWNERS_PER_ROLE, RoleTable, RoleTotals
from pinchpoint.threads.roles import Role

MILLISECOND = 1_000_000
Unit = Literal["thread", "lock", "pool"]


def role(unit: Unit | None, name: str = "r") -> Role:
    return Role(
        name=name,
        classes=frozenset({"c"}),
        pattern=re.compile(".*"),
        owner=None,
        unit=unit,
        serves=("mds",),
        threshold=0.8,
    )


def entry(table: RoleTable, unit: Unit | None, owner: str = "o") -> RoleTotals:
    return table.use(role(unit), owner)


def busy(table: RoleTable, name: str = "busy", owner: str = "o") -> float | None:
    labels = {"resource": "r", "owner": owner} | ({"serves": "mds"} if name in ("busy", "saturated") else {})
    return Snapshot.of(0, table.points()).value(f"pinchpoint_resource_{name}_seconds_total", **labels)


def test_a_role_of_threads_is_as_busy_as_its_busiest_thread() -> None:
    table = RoleTable()
    use = entry(table, "thread")
    for run in (30, 90, 50):
        table.charge(use, 1, run * MILLISECOND, 0)
    table.settle(0.1)

    assert busy(table) == pytest.approx(0.09)
    assert busy(table, "saturated") == pytest.approx(0.1)


def test_what_another_source_calls_full_is_so_whatever_its_threads_use() -> None:
    table = RoleTable()
    use, idle = entry(table, "thread"), entry(table, "thread", "idle")
    for told, full in (((), []), ([("r", "o")], [use]), ((), [])):
        for each in (use, idle):
            table.charge(each, 1, 30 * MILLISECOND, 0)
        table.settle(0.1, told)
        assert table.full == full

    assert busy(table, "saturated") == 0.0


def test_a_lock_is_as_busy_as_all_that_take_it_together() -> None:
    table = RoleTable()
    use = entry(table, "lock")
    for run in (30, 40, 15):
        table.charge(use, 1, run * MILLISECOND, 0)
    table.settle(0.1)

    assert busy(table) == pytest.approx(0.085)
    assert busy(table, "saturated") == pytest.approx(0.1)


def test_a_lock_is_never_busier_than_all_of_the_time() -> None:
    table = RoleTable()
    use = entry(table, "lock")
    table.charge(use, 1, 80 * MILLISECOND, 20 * MILLISECOND)
    table.charge(use, 1, 80 * MILLISECOND, 20 * MILLISECOND)
    table.settle(0.1)

    assert busy(table) == pytest.approx(0.1)
    assert busy(table, "runqueue") == pytest.approx(0.02)


def test_a_pool_is_as_busy_as_the_mean_of_its_threads_idle_ones_included() -> None:
    table = RoleTable()
    use = entry(table, "pool")
    use.threads[1] = 4
    table.charge(use, 1, 90 * MILLISECOND, 10 * MILLISECOND)
    table.charge(use, 1, 100 * MILLISECOND, 0)
    table.settle(0.1)

    assert busy(table) == pytest.approx(0.05)
    assert busy(table, "runqueue") == pytest.approx(0.0025)
    assert busy(table, "saturated") == 0


def test_waiting_for_a_cpu_is_busy_time() -> None:
    table = RoleTable()
    table.charge(entry(table, "thread"), 1, 10 * MILLISECOND, 80 * MILLISECOND)
    table.settle(0.1)

    assert busy(table) == pytest.approx(0.09)
    assert busy(table, "runqueue") == pytest.approx(0.08)
    assert busy(table, "saturated") == pytest.approx(0.1)


@pytest.mark.parametrize("unit", ["lock", "pool", "thread"])
def test_of_two_processes_with_one_owner_the_busiest_speaks_and_they_are_never_added(unit: Unit) -> None:
    table = RoleTable()
    use = entry(table, unit)
    table.charge(use, 1, 60 * MILLISECOND, 0)
    table.charge(use, 2, 50 * MILLISECOND, 0)
    table.settle(0.1)

    assert busy(table) == pytest.approx(0.06)
    assert busy(table, "saturated") == 0


def test_saturation_is_judged_by_each_sample() -> None:
    table = RoleTable()
    use = entry(table, "thread")
    for tenth in range(30):
        table.charge(use, 1, 100 * MILLISECOND if tenth < 3 else 0, 0)
        table.settle(0.1)

    assert busy(table, "saturated") == pytest.approx(0.3)
    assert busy(table) == pytest.approx(0.3)


def test_what_was_charged_counts_in_one_sample_only() -> None:
    table = RoleTable()
    table.charge(entry(table, "thread"), 1, 100 * MILLISECOND, 0)
    table.settle(0.1)
    table.settle(0.1)

    assert busy(table) == pytest.approx(0.1)


def test_a_role_without_a_unit_is_shown_and_is_no_resource() -> None:
    table = RoleTable()
    table.charge(entry(table, None), 1, 100 * MILLISECOND, 50 * MILLISECOND)
    table.settle(0.1)
    snapshot = Snapshot.of(0, table.points())

    assert snapshot.value("pinchpoint_thread_cpu_seconds_total", role="r", owner="o") == pytest.approx(0.1)
    assert snapshot.value("pinchpoint_thread_runqueue_seconds_total", role="r", owner="o") == pytest.approx(0.05)
    assert "pinchpoint_resource_busy_seconds_total" not in snapshot.values


def test_threads_are_counted_over_all_processes_of_an_owner() -> None:
    table = RoleTable()
    for process in (1, 1, 1, 1, 2, 2, 2):
        entry(table, "pool").count(process)

    assert Snapshot.of(0, table.points()).value("pinchpoint_threads", role="r", owner="o") == 7
    table.clear_threads()
    assert Snapshot.of(0, table.points()).value("pinchpoint_threads", role="r", owner="o") == 0


def test_threads_that_nobody_counts_are_not_exported_as_none() -> None:
    table = RoleTable()
    entry(table, "lock")

    assert "pinchpoint_threads" not in Snapshot.of(0, table.points()).values


def test_owners_beyond_the_limit_share_one_entry() -> None:
    table = RoleTable()
    uses = {id(entry(table, "thread", f"osd.{number}")) for number in range(3 * MAX_OWNERS_PER_ROLE)}
    snapshot = Snapshot.of(0, table.points())

    assert len(uses) == MAX_OWNERS_PER_ROLE + 1
    assert len(snapshot.values["pinchpoint_thread_cpu_seconds_total"]) == MAX_OWNERS_PER_ROLE + 1
    assert entry(table, "thread", "osd.1") is not entry(table, "thread", "more")


def test_daemons_have_entries_of_their_own_however_many_other_owners_there_are() -> None:
    table = RoleTable()
    others = [entry(table, "thread", f"script{number}") for number in range(2 * MAX_OWNERS_PER_ROLE)]
    daemons = [table.use(role("thread"), f"osd.{number}", daemon=True) for number in range(MAX_OWNERS_PER_ROLE)]

    assert len({id(use) for use in daemons}) == MAX_OWNERS_PER_ROLE
    assert not {id(use) for use in daemons} & {id(use) for use in others}
    assert table.use(role("thread"), "osd.x", daemon=True) is entry(table, "thread", "more")


@given(
    st.sampled_from(["thread", "lock", "pool"]),
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 10**9), st.integers(0, 10**9)), max_size=8),
    st.floats(0.001, 10),
)
def test_busy_is_never_more_than_all_that_was_used_and_the_wait_is_a_part_of_it(
    unit: Unit, charges: list[tuple[int, int, int]], elapsed: float
) -> None:
    table = RoleTable()
    use = entry(table, unit)
    use.threads[1] = 5
    for group, run, wait in charges:
        table.charge(use, group, run, wait)
    table.settle(elapsed)

    total = busy(table)
    assert total is not None
    assert 0 <= (busy(table, "runqueue") or 0) <= total + 1e-9
    assert total <= sum(run + wait for _, run, wait in charges) / 1e9 + 1e-9
    assert unit != "lock" or total <= elapsed + 1e-9


def test_an_owner_whose_threads_have_ended_is_forgotten_after_a_quarter_of_an_hour() -> None:
    table = RoleTable()
    gone, alive, worker = (entry(table, "thread", owner) for owner in ("gone", "alive", "worker"))
    gone.count(1)
    alive.count(2)
    table.forget(0.0)
    table.clear_threads()
    alive.count(2)
    table.forget(KEEP_ENDED_SECONDS - 1)
    before = Snapshot.of(0, table.points())
    table.forget(KEEP_ENDED_SECONDS)
    after = Snapshot.of(0, table.points())

    name = "pinchpoint_thread_cpu_seconds_total"
    owners = [{labels["owner"] for labels, _ in snapshot.series(name)} for snapshot in (before, after)]
    # Workers are not counted: they have a role only while they work.
    assert owners == [{"gone", "alive", "worker"}, {"alive", "worker"}]
    assert entry(table, "thread", "gone") is not gone
    assert entry(table, "thread", "worker") is worker


def test_at_the_limit_the_owner_that_has_been_gone_for_longest_makes_room() -> None:
    table = RoleTable()
    for number in range(MAX_OWNERS_PER_ROLE):
        entry(table, "thread", f"o{number}").count(number)
    table.forget(0.0)
    table.clear_threads()
    for number in range(2, MAX_OWNERS_PER_ROLE):
        entry(table, "thread", f"o{number}").count(number)

    newcomers = [entry(table, "thread", owner) for owner in ("new", "newer", "newest")]

    owners = {labels["owner"] for labels, _ in Snapshot.of(0, table.points()).series("pinchpoint_threads")}
    assert {"o0", "o1"} & owners == set()
    assert newcomers[0] is not newcomers[1]
    assert newcomers[2] is entry(table, "thread", "more")


def test_where_threads_are_not_counted_the_owner_that_did_nothing_for_longest_makes_room() -> None:
    table = RoleTable()
    for number in range(MAX_OWNERS_PER_ROLE):
        entry(table, "thread", f"o{number}")
    table.settle(KEEP_ENDED_SECONDS - 1.0)
    assert entry(table, "thread", "new") is entry(table, "thread", "more")
    for number in range(2, MAX_OWNERS_PER_ROLE):
        table.charge(entry(table, "thread", f"o{number}"), number, MILLISECOND, 0)
    table.settle(1.0)

    newcomers = [entry(table, "thread", owner) for owner in ("new", "newer", "newest")]

    owners = {
        labels["owner"] for labels, _ in Snapshot.of(0, table.points()).series("pinchpoint_thread_cpu_seconds_total")
    }
    assert owners == {"new", "newer", "more", *(f"o{number}" for number in range(2, MAX_OWNERS_PER_ROLE))}
    assert newcomers[2] is entry(table, "thread", "more")


def test_one_users_owners_leave_all_others_theirs() -> None:
    table = RoleTable()
    for number in range(2 * MAX_OWNERS_PER_ROLE):
        entry(table, "thread", f"name-{number}@uid1000")

    assert entry(table, "thread", "fio") is not entry(table, "thread", "more")
    assert entry(table, "thread", "late@uid1000") is entry(table, "thread", "more@uid1000")
    assert entry(table, "thread", "fio@uid1001") is not entry(table, "thread", "more@uid1001")
