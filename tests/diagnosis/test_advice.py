from __future__ import annotations

from pinchpoint.diagnosis.advice import Advice, advice_on, kind_advice
from pinchpoint.resources import all_resources


def test_a_resource_has_the_advice_of_its_own_entry_and_its_runbook() -> None:
    entry = all_resources()["mds_lock"]

    found = advice_on("mds_lock", "resource")

    assert found == Advice(entry.do, "MdsLockSaturated")
    assert found.page == "runbooks/MdsLockSaturated.md"


def test_a_verdict_without_a_resource_has_the_advice_of_its_kind() -> None:
    assert advice_on("", "latency-bound") == kind_advice()["latency-bound"]
    assert advice_on("a resource of a later release", "idle") == kind_advice()["idle"]


def test_what_nothing_is_known_about_has_no_advice_and_the_page_of_verdicts() -> None:
    assert advice_on("", "resource") == Advice("")
    assert Advice("").page == "docs/verdict.md"


def test_a_resource_that_only_shows_where_time_goes_leaves_the_advice_to_the_kind() -> None:
    silent = next(name for name, entry in all_resources().items() if not entry.do)

    assert advice_on(silent, "unknown") == kind_advice()["unknown"]
