from __future__ import annotations

from pinchpoint.resources import Resource
from pinchpoint.threads.full import MAX_FULL_RESOURCES, FullThreads
from pinchpoint.threads.role_table import RoleTotals
from pinchpoint.threads.roles import load_roles

ROLE = load_roles().thread_role("benchmark", "fio").role


def full(owner: str) -> RoleTotals:
    return RoleTotals(ROLE, Resource("r", owner, (), 0.8), daemon=False)


def test_names_without_end_are_not_followed_without_end() -> None:
    found = FullThreads()
    for number in range(4 * MAX_FULL_RESOURCES):
        found.note(number / 1000, 0.1, [full(str(number))])
    assert len(found._known) <= MAX_FULL_RESOURCES

    for second in range(100, 110):
        found.note(float(second), 1.0, [full("new")])
    assert [one.owner for one in found.resources(110.0)] == ["new"]


def test_what_is_told_to_be_full_is_so_for_as_long_as_was_said() -> None:
    found = FullThreads()
    assert found.told(1.0) == ()
    found.tell("kv_sync", "osd.0", 3.0)
    found.tell("kv_sync", "osd.1", 5.0)

    assert found.told(2.0) == (("kv_sync", "osd.0"), ("kv_sync", "osd.1"))
    assert found.told(3.0) == (("kv_sync", "osd.1"),)
    assert found.told(9.0) == ()
