from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pinchpoint.cli import main
from pinchpoint.session import store
from report.made import CLIENT, START, made_record, record
from serving import serving

SEEDS = Path(__file__).parents[1] / "fixtures" / "seeds"
DAY = 86400.0
EARLIER = "20270114T080000Z-base"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def invoke(*args: str, columns: int = 100) -> Result:
    result = CliRunner().invoke(main, list(args), env={"COLUMNS": str(columns)})
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def document(*args: str) -> Any:
    """Return the printed JSON, with the keys of its objects as attributes."""
    result = invoke("report", "--json", *args)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout, object_hook=lambda found: SimpleNamespace(**found))


@pytest.fixture
def kept() -> Path:
    """The made-up run, and the same a day earlier with other tags and settings; the later one's directory."""
    keep(EARLIER, START - DAY, governor="performance", c6="off")
    return keep(made_record().marker.run, START, c6="on")


def keep(run: str, start: float, governor: str = "powersave", **tags: str) -> Path:
    directory = store.new_run_directory(run)[1]
    store.save(directory, made_record(run, start, **tags))
    record(directory / "samples.om.gz", run, start, governor)
    return directory


@pytest.mark.usefixtures("kept")
def test_a_recorded_run_is_judged_phase_by_phase() -> None:
    text = invoke("report", "last").stdout

    assert "20270115T080000Z-base  io500 finished" in text
    assert "mdtest_easy_write: limited by mds_lock of mds.a" in text
    assert "ior_hard_write: latency-bound" in text
    assert "Use more active ranks" in text


@pytest.mark.usefixtures("kept")
def test_a_thread_that_no_role_names_is_told_of_in_the_phase_that_it_was_hot_in(tmp_path: Path) -> None:
    """In a terminal, as JSON and on the page; nothing with a role is full in that phase."""
    page = tmp_path / "report.html"
    invoke("report", "last", "--html", str(page))
    text = " ".join(invoke("report", "last").stdout.split())
    found = {phase.phase: phase for phase in document("last").phases}

    words = "`my_thread` of `foo` on mds1:9748 at 96%; a thread without a role was full for 100% of the time"
    assert (
        f"no role {words}: nothing that has a role is the limit" in text.partition("ior_hard_write: latency-bound")[2]
    )
    assert text.count("my_thread") == 1
    assert page.read_text().count("`my_thread` of `foo`") == 1
    hot = found["ior_hard_write"]
    assert [(one.thread, one.process, one.host) for one in hot.unknown] == [("my_thread", "foo", "mds1:9748")]
    assert hot.unknown[0].busy == pytest.approx(0.96)
    assert hot.verdict is not None
    assert hot.verdict.no_role[0].startswith(words)
    assert not any(phase.unknown for name, phase in found.items() if name != "ior_hard_write")


@pytest.mark.usefixtures("kept")
def test_json_is_one_document_with_the_same_verdicts() -> None:
    found = document("last")

    assert [phase.verdict.words for phase in found.phases if phase.verdict][:2] == [
        "limited by writeback_worker of ceph-1",
        "limited by mds_lock of mds.a",
    ]
    assert (found.recorded, found.state, found.warnings) == (True, "finished", [])
    assert {host.host for host in found.hosts} == {CLIENT, "mds1:9748"}


def test_a_phase_that_went_on_after_its_stonewall_is_judged_in_two_stages(kept: Path) -> None:
    saved = store.load(kept)
    mark = saved.marker.phases[0]
    assert mark.end is not None
    mark.expected, mark.seconds = 10.0, None
    store.save(kept, saved)

    phase = document("last").phases[0]

    assert [(one.stage, one.end - one.start) for one in phase.stages] == [
        ("stonewall", 10.0),
        ("tail", mark.end - mark.start - 10.0),
    ]
    assert {bool(one.verdict) for one in phase.stages} == {True}
    assert phase.tail.words == [f"stonewall after 10.0 s, then a tail of {mark.end - mark.start - 10:.1f} s"]
    assert "tail, " in invoke("report", "last").stdout


@pytest.mark.usefixtures("kept")
def test_what_was_changed_is_told_against_the_run_before_of_the_same_name_or_the_one_that_is_given() -> None:
    keep("20270114T090000Z-other", START - DAY / 2, c6="maybe")

    changes = {change.name: (change.before, change.after) for change in document("last").changed}

    assert changes == {"c6": (["off"], ["on"]), "governor": (["performance"], ["powersave"])}
    assert document("last").against == EARLIER
    assert document("--against", "other", "last").against == "20270114T090000Z-other"
    assert document("20270114T08").against is None


def test_a_page_is_written_and_said_where(kept: Path, tmp_path: Path) -> None:
    result = invoke("report", "--html", str(tmp_path / "last.html"), "last")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "last.html" in result.stderr
    page = (tmp_path / "last.html").read_text()
    assert "What the benchmark waits for" in page
    assert "limited by mds_lock of mds.a" in page
    assert page.count("<svg") == 7


@pytest.mark.usefixtures("kept")
def test_a_page_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    result = invoke("report", "--html", str(tmp_path / "missing" / "last.html"), "last")

    assert result.exit_code == 1
    assert "missing/last.html: No such file or directory" in result.stderr


def test_an_imported_run_says_that_it_has_no_samples() -> None:
    assert invoke("import", str(SEEDS / "io500-diary.txt")).exit_code == 0

    result = invoke("report", "diary-09")

    assert result.exit_code == 0
    assert "the run has no samples, as it was imported" in " ".join(result.stdout.split())
    found = document("diary-09")
    assert (found.recorded, {phase.verdict for phase in found.phases}) == (False, {None})
    assert len(found.warnings) == 1


def test_a_run_whose_recording_was_cut_off_or_damaged_shows_what_is_there(kept: Path) -> None:
    recording = kept / "samples.om.gz"
    whole = recording.read_bytes()

    recording.write_bytes(whole[: len(whole) // 2])
    cut = document("last")
    border = whole.rindex(b"\x1f\x8b\x08", 0, len(whole) // 2)  # where a moment begins (RFC 1952)
    recording.write_bytes(whole[:border] + b"\0" * 1000)
    damaged = document("last")

    for found in (cut, damaged):
        kinds = [phase.verdict.kind if phase.verdict else None for phase in found.phases]
        assert kinds[:2] == ["resource", "resource"]
        assert kinds[-1] is None
    assert cut.warnings == []
    assert "the recording is damaged" in damaged.warnings[0]


def test_a_recording_that_is_none_or_empty_is_told(kept: Path) -> None:
    (kept / "samples.om.gz").write_bytes(b"no gzip")
    assert "not a recording" in document("last").warnings[0]

    (kept / "samples.om.gz").write_bytes(b"")
    assert "the recording has no sample of any phase" in document("last").warnings

    (kept / "samples.om.gz").unlink()
    assert "as it was not recorded" in document("last").warnings[0]


def test_settings_that_are_kept_with_a_run_are_taken_from_there(kept: Path) -> None:
    kept_record = store.load(kept)
    kept_record.facts = {CLIENT: {"governor": ["schedutil"]}}
    store.save(kept, kept_record)

    assert [(host.host, vars(host.facts)) for host in document("last").hosts] == [(CLIENT, {"governor": ["schedutil"]})]


@pytest.fixture
def server() -> Iterator[str]:
    times = [[START + second, "1"] for second in range(60, 110, 2)]
    labels = {"alertname": "MdsLockSaturated", "severity": "warning"}
    body = json.dumps({"status": "success", "data": {"result": [{"metric": labels, "values": times}]}})
    with serving(lambda path: body) as address:
        yield f"http://{address}"


def test_alerts_are_those_that_prometheus_knows_or_those_that_are_kept(kept: Path, server: str) -> None:
    kept_record = store.load(kept)
    kept_record.marker.phases[0].alerts = ["WritebackWorkerSaturated"]
    store.save(kept, kept_record)

    assert [phase.alerts for phase in document("last").phases[:2]] == [["WritebackWorkerSaturated"], None]
    asked = [phase.alerts for phase in document("--prometheus", server, "last").phases]
    assert asked == [[], ["MdsLockSaturated"], [], [], []]


@pytest.mark.usefixtures("kept")
def test_a_prometheus_that_does_not_answer_is_a_note_and_no_failure() -> None:
    found = document("--prometheus", "http://127.0.0.1:1", "last")

    assert found.warnings[0].startswith("no alerts: http://127.0.0.1:1")
    assert found.phases[1].alerts is None


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["zzz"], 1, "no run is 'zzz'"),
        (["--against", "zzz", "last"], 1, "no run is 'zzz'"),
        (["base"], 1, "means 2 runs"),
        ([], 2, "Missing argument"),
        (["--html", "/", "last"], 2, "is a directory"),
    ],
)
@pytest.mark.usefixtures("kept")
def test_what_cannot_be_reported_is_a_clear_error(args: list[str], status: int, words: str) -> None:
    result = invoke("report", *args)

    assert result.exit_code == status
    assert words in result.stderr


@pytest.mark.parametrize(
    ("first", "second"), [("--folded", "--json"), ("--pprof=x", "--html=y"), ("--io500=x", "--folded")]
)
def test_options_that_ask_for_two_things_are_refused(first: str, second: str) -> None:
    result = invoke("report", second, first, "last")

    assert result.exit_code == 2
    assert f"{first.partition('=')[0]} writes something else than {second.partition('=')[0]}" in result.stderr


def test_a_report_without_pictures_does_not_wait_for_matplotlib() -> None:
    code = "import sys, pinchpoint.commands.report; print('matplotlib' in sys.modules, 'jinja2' in sys.modules)"

    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False False\n"
