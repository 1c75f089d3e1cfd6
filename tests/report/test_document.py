from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinchpoint.benchmarks.markers import Marker
from pinchpoint.diagnosis.facts import Facts, facts, merged
from pinchpoint.diagnosis.knobs import Settings
from pinchpoint.report import document
from pinchpoint.report.document import Document, DocumentPhase, build, document_json, ranking
from pinchpoint.runs import PhaseMark
from pinchpoint.session.store import RunRecord
from report.made import CLIENT, MDS, cut, made_record, moments

PAGE = Path(__file__).parents[2] / "docs" / "report.md"


def reported(record: RunRecord | None = None, skip: range = range(0), **options: Any) -> Document:
    record = record or made_record()
    taken = [moment for second, moment in enumerate(moments()) if second not in skip]
    known: Facts = {}
    for moment in taken:
        known = merged(known, facts(moment))
    return build(record, cut(record.marker.phases, taken), known, state="finished", recorded=True, **options)


def phase(found: Document, name: str) -> DocumentPhase:
    return next(phase for phase in found.phases if phase.phase == name)


def test_each_phase_has_its_result_its_verdict_and_what_it_rests_on() -> None:
    found = phase(reported(), "mdtest_easy_write")

    assert found.verdict is not None
    assert found.verdict.words == "limited by mds_lock of mds.a"
    assert (found.verdict.kind, found.verdict.runbook) == ("resource", "MdsLockSaturated")
    assert any("3.5 of 4.0 processes" in line for line in found.verdict.evidence)
    (first, named), *_ = ranking(found.verdict)
    assert (first.resource, first.owner, first.host, named) == ("mds_lock", "mds.a", MDS, True)
    assert first.blame == pytest.approx(0.875 * first.busy, abs=0.01)
    assert (found.results[0].value, found.seconds) == (4120.0, 60)


def test_verdicts_differ_from_phase_to_phase() -> None:
    kinds = {phase.phase: phase.verdict.kind for phase in reported().phases if phase.verdict}

    assert kinds["ior_easy_write"] == "resource"
    assert kinds["ior_hard_write"] == "latency-bound"
    assert kinds["find"] == "too short"
    assert kinds["mdtest_hard_stat"] == "several"


def test_samples_that_are_not_there_when_a_phase_begins_are_told() -> None:
    found = phase(reported(skip=range(44, 52)), "mdtest_easy_write")

    assert found.warnings == [f"samples of {host} begin 3.0 s before the phase's start" for host in (CLIENT, MDS)]
    assert found.verdict is not None


def test_a_phase_without_samples_has_no_verdict_and_says_so() -> None:
    record = made_record()
    found = build(
        record,
        cut(record.marker.phases),
        {},
        state="finished",
        recorded=True,
    )

    assert [phase.verdict for phase in found.phases] == [None] * 5
    assert all("no samples" in phase.warnings[0] for phase in found.phases)
    assert "the recording has no sample of any phase" in found.warnings


def test_a_run_without_a_recording_says_nothing_of_samples_in_each_phase() -> None:
    record = made_record()
    found = build(record, cut(record.marker.phases), {}, state="finished", recorded=False)

    assert [(phase.verdict, phase.warnings) for phase in found.phases] == [(None, [])] * 5


def test_a_phase_that_goes_on_is_as_long_as_it_was_seen() -> None:
    start = made_record().marker.start
    mark = PhaseMark("mdtest_easy_write", start + 46.0)
    marker = Marker("r", "io500", start, phases=[mark], pid=1, pid_start=2, command_pid=3)

    found = reported(RunRecord(marker, ["io500"]), skip=range(80, 1000)).phases[0]

    assert (found.end, found.seconds) == (None, 33.0)
    assert found.verdict is not None
    assert found.verdict.kind == "blind"  # the samples belong to another run


def test_alerts_are_those_that_were_kept_or_those_that_are_given() -> None:
    record = made_record()
    record.marker.phases[0].alerts = ["WritebackWorkerSaturated"]

    assert [phase.alerts for phase in reported(record).phases[:2]] == [["WritebackWorkerSaturated"], None]
    given = reported(record, alerts=[[], ["MdsLockSaturated"], [], [], []])
    assert [phase.alerts for phase in given.phases[:2]] == [[], ["MdsLockSaturated"]]


def test_what_was_changed_since_an_earlier_run_are_tags_command_and_settings() -> None:
    facts = {host.host: dict(host.facts) for host in reported().hosts}
    facts[CLIENT]["governor"] = ["performance"]
    earlier = Settings("old", {"c6": "off"}, ["mpirun", "-np", "2", "./io500", "config.ini"], facts)

    found = reported(made_record(c6="on"), earlier=earlier)

    assert found.against == "old"
    assert [(change.origin, change.name, change.before, change.after) for change in found.changed] == [
        ("tag", "c6", ["off"], ["on"]),
        ("command", "command", ["mpirun -np 2 ./io500 config.ini"], ["mpirun -np 4 ./io500 config.ini"]),
        ("fact", "governor", ["performance"], ["powersave"]),
    ]
    assert found.changed[2].hosts == [CLIENT]


def test_an_earlier_run_whose_settings_nobody_knows_is_told() -> None:
    found = reported(earlier=Settings("old"))

    assert found.warnings == ["what was changed is not fully known: old has no settings of hosts"]


def printed() -> dict[str, Any]:
    """Return the run as JSON, with an alert, a change, and a thread without a role."""
    document = reported(made_record(c6="on"), earlier=Settings("old", {"c6": "off"}), alerts=[["A"], [], [], [], []])
    return document_json(document)


def test_shares_are_printed_as_exactly_as_they_are_known() -> None:
    found = next(phase for phase in printed()["phases"] if phase["phase"] == "mdtest_easy_write")

    assert found["waits"] == {"mds": 0.875, "cpu": 0.075, "lock": 0.025, "runqueue": 0.025}
    assert found["verdict"]["words"] == "limited by mds_lock of mds.a"
    assert found["ranking"][0]["named"]
    assert json.loads(json.dumps(found)) == found


NAMED_FREELY = {"tags", "facts", "waits"}
"""Objects with foreign keys."""


def keys(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of an object and of everything in it, each with the name of its parent."""
    for item in value if isinstance(value, list) else [value]:
        for key, below in item.items() if isinstance(item, dict) else ():
            if name not in NAMED_FREELY:
                yield name, key
            yield from keys(below, key)


def test_the_page_names_every_key() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE.read_text().partition("## JSON")[2]))
    found = {key for _, key in keys(printed())}

    assert len(found) > 60
    assert found - named == set()


def test_the_pages_example_is_a_document() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)

    found = json.loads(example)

    assert found["schema"] == document.REPORT_SCHEMA
    assert set(keys(found)) == set(keys(printed()))
