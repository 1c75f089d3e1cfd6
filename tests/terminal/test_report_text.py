from __future__ import annotations

from io import StringIO

import msgspec
import pytest
from rich.console import Console

from pinchpoint.diagnosis.waterfall import Step, Waterfall
from pinchpoint.report.document import Document, SettingChange, build
from pinchpoint.report.words import waterfall_text
from pinchpoint.runs import PhaseMark, Result
from pinchpoint.terminal.report import report_parts
from report.made import cut, made_record, moments


@pytest.fixture(scope="module")
def made() -> Document:
    record = made_record(c6="on", sha256="0")
    record.marker.phases[1].results.append(Result("latency", "seconds", 0.000242))
    record.marker.phases[1].alerts = ["MdsLockSaturated", "KswapdSaturated"]
    return build(record, cut(record.marker.phases, moments()), {}, state="finished", recorded=True)


def shown(document: Document, width: int = 80) -> str:
    output = StringIO()
    console = Console(file=output, width=width, highlight=False)
    for part in report_parts(document):
        console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_table_names_each_phases_result_verdict_and_waits(made: Document) -> None:
    lines = [line.split() for line in shown(made, 120).splitlines()]

    row = ["mdtest_easy_write", "60.0", "s", "write", "4.12", "kIOPS", "limited", "by", "mds_lock", "of", "mds.a"]
    assert row in lines
    assert lines[lines.index(row) + 1] == ["mds", "88%", "cpu", "7%"]
    assert ["find", "1.0", "s", "find", "152", "kIOPS", "too", "short"] in lines


def test_below_it_each_phase_has_its_evidence_and_what_to_do(made: Document) -> None:
    text = shown(made)
    part = flat(text.partition("\nmdtest_easy_write: ")[2].partition("\nior_hard_write")[0])

    assert part.startswith("limited by mds_lock of mds.a waits mds 88% cpu 7% lock 2% runqueue 2% evidence - 88% of")
    assert "not the limit kswapd of node0 on client1:9748 is busy for 97%: it keeps up" in part
    assert "what to do Use more active ranks" in part
    assert "(`pinchpoint runbook MdsLockSaturated`)" in part
    assert "confidence high" in part
    assert "alerts MdsLockSaturated, KswapdSaturated" in part
    assert "figures latency 242 us" in part


@pytest.mark.parametrize(("rate", "words"), [(4873.2, "4,873"), (1000.0, "1,000"), (512.34, "512"), (0.25, "0.25")])
def test_the_rate_of_a_waterfall_is_written_without_an_exponent(rate: float, words: str) -> None:
    fall = Waterfall("OSD write", "osd.3", rate, 4.1e-3, (Step("kv commit", 4.1e-3),))

    assert waterfall_text(fall) == f"OSD write of osd.3: 4.1 ms, {words} per second"


def test_a_waterfall_has_a_line_for_each_step_that_begins_where_the_one_before_ends(made: Document) -> None:
    part = shown(made).partition("\nior_hard_write: ")[2]
    rows = [line for line in part.splitlines() if "#" in line]

    assert "OSD write: 4.1 ms, 800 per second" in part
    commit = next(line for line in rows if "kv commit" in line)
    later = next(line for line in rows if "replicas" in line)
    assert commit.count("#") == 18
    assert later.index("#") >= len(commit) - 1


def test_a_phase_that_is_too_short_has_no_part_of_its_own(made: Document) -> None:
    assert "\nfind:" not in shown(made)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(made: Document, width: int) -> None:
    assert max(len(line) for line in shown(made, width).splitlines()) <= width


def test_the_run_its_score_and_its_tags_stand_above(made: Document) -> None:
    head = shown(made).splitlines()

    assert head[0] == "20270115T080000Z-base  io500 finished"
    assert ", took 3:34" in head[1]
    assert head[2:5] == ["score 3.94", "c6=on", "mpirun -np 4 ./io500 config.ini"]


def test_what_was_changed_is_told_with_its_hosts(made: Document) -> None:
    changed = [
        SettingChange("tag", "c6", [], [""], ["on"]),
        SettingChange("fact", "governor", ["client1", "client2"], ["performance"], ["powersave"]),
    ]

    text = shown(msgspec.structs.replace(made, against="old", changed=changed))

    assert "changed since old\n  tag c6: not set -> on\n" in text
    assert "governor on client1, client2: performance -> powersave" in text
    assert "nothing that is known" in shown(msgspec.structs.replace(made, against="old"))


def test_a_run_without_samples_shows_its_results_and_says_why() -> None:
    record = made_record()
    windows = cut(record.marker.phases)
    found = build(record, windows, {}, state="failed", recorded=False, warnings=["the run has no samples"])

    text = shown(found)

    assert "no samples" in text
    assert "write 1.21 GiB/s" in text
    assert "note: the run has no samples" in text


def test_phases_of_one_name_have_a_number() -> None:
    record = made_record()
    record.marker.phases = [PhaseMark("write", 1.0, 2.0, valid=False), PhaseMark("write", 3.0, 4.0)]
    found = build(record, cut(record.marker.phases), {}, state="finished", recorded=True)

    text = shown(found)

    assert "write INVALID" in text
    assert "write (2): no samples" in text


def test_control_characters_do_not_reach_the_terminal(made: Document) -> None:
    phases = [msgspec.structs.replace(made.phases[0], phase="\x1b[31mred", alerts=["\x07"])]

    text = shown(msgspec.structs.replace(made, run="\x1b]0;x", tags={"\x9b": "\r"}, phases=phases))

    assert not {character for character in text if not character.isprintable()} - {"\n"}
