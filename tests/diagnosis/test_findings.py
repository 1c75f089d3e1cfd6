from __future__ import annotations

import pytest

from pinchpoint.diagnosis.findings import Check, Level, Outcome, alert_threshold, checked, found, listed, unseen
from pinchpoint.diagnosis.series import MAX_VALUE
from pinchpoint.metrics import ALERT_THRESHOLD
from pinchpoint.model import Snapshot

CHECK = Check(what="a clock", level=Level.HINT, when="it is slow", source=["pinchpoint_clock"], found="{value}")


def test_the_texts_of_a_check_may_name_what_it_looks_for() -> None:
    check = Check(
        what="", level=Level.HINT, when="", source=[], found="",
        threshold=0.25, words=["a", "b"], ranges=["17.2.0-17.2.8", "16.2.0-16.2.9"], since="5.0", before="5.19",
    )  # fmt: skip

    assert check.fields() == {
        "threshold": "0.25",
        "words": "a, b",
        "ranges": "from 17.2.0 (fixed in 17.2.8), from 16.2.0 (fixed in 16.2.9)",
        "since": "5.0",
        "before": "5.19",
    }
    assert CHECK.fields() == {"threshold": "", "words": "", "ranges": "", "since": "", "before": ""}


def test_a_check_without_a_runbook_has_its_section_of_the_page_of_checks() -> None:
    assert CHECK.page("clock_slow") == "docs/check.md#clock_slow"
    assert Check(what="", level=Level.HINT, when="", source=[], found="", runbook="CpuClockLow").page("clock_slow") == (
        "runbooks/CpuClockLow.md"
    )


def test_a_finding_has_the_texts_of_its_check_and_what_is_well_needs_no_reason() -> None:
    bad = checked("health", found(status="HEALTH_ERR", checks="PG_DEGRADED"), ("a",))
    missing = checked("health", unseen(), ("a",))
    elsewhere = checked("health", Outcome(Level.UNSEEN, {}, ("b",)), ("a",))

    assert bad is not None
    assert (bad.level, bad.hosts, bad.page) == (Level.PROBLEM, ("a",), "runbooks/ClusterDegradedDuringRun.md")
    assert bad.text == "The cluster is in HEALTH_ERR: PG_DEGRADED."
    assert bad.harmless == "you know each of these checks, and none concerns data, OSDs or the network"
    assert bad.what == "health of the cluster"
    assert bad.matters
    for one in (missing, elsewhere):
        assert one is not None
        assert (one.level, one.what, one.matters, one.harmless) == (Level.UNSEEN, bad.what, "", "")
    assert elsewhere is not None
    assert elsewhere.hosts == ("b",)


@pytest.mark.parametrize(
    ("check", "threshold"),
    [
        (Check(what="", level=Level.HINT, when="", source=[], found="", threshold=5.0, alert="Slow"), 7.0),
        (Check(what="", level=Level.HINT, when="", source=[], found="", threshold=5.0, alert="Other"), 5.0),
        (Check(what="", level=Level.HINT, when="", source=[], found="", threshold=5.0), 5.0),
        (Check(what="", level=Level.HINT, when="", source=[], found=""), MAX_VALUE),
    ],
)
def test_the_threshold_of_an_alert_is_the_hosts(check: Check, threshold: float) -> None:
    snapshot = Snapshot(0.0, {ALERT_THRESHOLD.name: {(("alert", "Slow"),): 7.0, (("alert", ""),): 9.0}})

    assert alert_threshold(snapshot, check) == threshold


def test_of_many_names_the_first_are_listed_and_the_others_counted() -> None:
    names = [f"osd.{number}" for number in range(8)]

    assert listed([*names[:6], *names[:6]]) == "osd.0, osd.1, osd.2, osd.3, osd.4, osd.5"
    assert listed(names) == "osd.0, osd.1, osd.2, osd.3, osd.4, and 3 more"
    assert listed([]) == ""
