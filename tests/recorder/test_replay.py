"""Every capture replayed, and what a capture must not be able to do."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.captures import CAPTURES, EXPECTED, Phase
from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.registry import BENCHMARKS
from recorder.capture import Capture, CaptureError, Change, read_capture
from recorder.replay import INTERVAL, Replay, main, replay, table
from recorder.stage import Stage

TOLERANCE = INTERVAL + 0.1
"""Seconds: the time until the next look, plus the time between two looks of the recording."""
UNLISTED = frozenset({"timestamp"})
"""Phases that end at once: only one look of many may meet them."""


@cache
def replayed(name: str, *, output: bool = True) -> Replay:
    return replay(read_capture(CAPTURES / name), output=output)


def phases(found: Replay) -> list[dict[str, Any]]:
    """Return the distinct phases; one that stands for the whole of a failed run does not count."""
    seen = zip(found.document["phases"], found.state.phases, strict=True)
    return [phase for phase, mark in seen if mark.name not in UNLISTED and (mark.results or not mark.vague)]


def test_every_capture_is_expected_and_says_where_it_comes_from() -> None:
    folders = {path.name for path in CAPTURES.iterdir() if path.is_dir()}

    assert set(EXPECTED) == folders
    assert [name for name in folders if not json.loads((CAPTURES / name / "meta.json").read_text()).get("note")] == []


@pytest.mark.parametrize("name", EXPECTED)
def test_run(name: str) -> None:
    document, expected = replayed(name).document, EXPECTED[name]
    assert document["capture"] == name
    assert (document["benchmark"], document["state"]) == (expected.benchmark, expected.state)
    assert document["valid"] == expected.valid
    assert document["score"] == (None if expected.score is None else pytest.approx(expected.score))


@pytest.mark.parametrize("name", EXPECTED)
def test_phases(name: str) -> None:
    assert len(list(pairs(name))) == len(EXPECTED[name].phases)


@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if expected.phases])
def test_times(name: str) -> None:
    for seen, expected in pairs(name):
        for key, time in (("start", expected.start), ("end", expected.end)):
            if time is not None:
                assert seen[key] == pytest.approx(time, abs=TOLERANCE), (expected.name, key)


@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if expected.phases])
def test_results(name: str) -> None:
    for seen, expected in pairs(name):
        assert seen["valid"] == expected.valid, expected.name
        for index, (unit, value) in enumerate(expected.figures):
            found = [result["value"] for result in seen["results"] if result["unit"] == unit]
            assert any(other == pytest.approx(value, rel=1e-6) for other in found), (expected.name, unit, value)
            if index == 0:
                assert (seen["unit"], seen["value"]) == (unit, pytest.approx(value, rel=1e-6)), expected.name


def pairs(name: str) -> Iterator[tuple[dict[str, Any], Phase]]:
    seen, expected = phases(replayed(name)), EXPECTED[name].phases
    if EXPECTED[name].unordered:
        order = [phase.name for phase in expected]
        seen = sorted((phase for phase in seen if phase["results"]), key=lambda phase: order.index(phase["phase"]))
    assert [phase["phase"] for phase in seen] == [phase.name for phase in expected]
    return zip(seen, expected, strict=True)


@pytest.mark.parametrize("name", EXPECTED)
def test_phases_follow_one_another(name: str) -> None:
    document = replayed(name).document
    for phase in document["phases"]:
        assert phase["end"] is not None
        assert phase["start"] <= phase["end"] <= replayed(name).capture.duration + 0.001
    starts = [phase["start"] for phase in document["phases"]]
    assert starts == sorted(starts)
    spans = document["spans"]
    assert [span["end"] for span in spans[:-1]] == [span["start"] for span in spans[1:]]


@pytest.mark.parametrize("name", EXPECTED)
def test_table_has_a_line_for_each_phase(name: str) -> None:
    found = replayed(name)
    lines = table(found)
    for mark in found.state.phases:
        assert any(line.startswith(mark.name) for line in lines[1:-1])
    assert lines[-1].startswith(f"{EXPECTED[name].benchmark}: {EXPECTED[name].state}")


RECORDED = ["io500-main-openmpi-pipe", "io500-main-mpich-pipe", "io500-sc20-openmpi-pipe", "io500-main-twohosts"]


@pytest.mark.parametrize("name", RECORDED)
def test_phases_are_seen_without_the_output_too(name: str) -> None:
    """The file of results is enough; only results in a file that was not recorded are missing."""
    seen = {phase["phase"]: phase for phase in phases(replayed(name, output=False))}
    for expected in EXPECTED[name].phases:
        if expected.end is not None and expected.start is not None and expected.end - expected.start > 2 * TOLERANCE:
            assert seen[expected.name]["start"] == pytest.approx(expected.start, abs=TOLERANCE)
            assert seen[expected.name]["end"] == pytest.approx(expected.end, abs=TOLERANCE)


def test_pause_is_seen() -> None:
    spans = replayed("io500-main-pausedir").document["spans"]
    paused = [span for span in spans if span["state"] == "paused"]
    assert [span["phase"] for span in paused] == [None]
    assert paused[0]["start"] == pytest.approx(3.4, abs=TOLERANCE)
    assert paused[0]["end"] == pytest.approx(8.37, abs=TOLERANCE)


# Readers on all outputs.


@cache
def stdout(name: str) -> bytes:
    path = CAPTURES / name / "stdout.txt"
    return path.read_bytes() if path.exists() else b""


@pytest.mark.parametrize("kind", BENCHMARKS, ids=lambda kind: kind.name)
def test_foreign_output_says_nothing(kind: type[Benchmark]) -> None:
    for name, expected in EXPECTED.items():
        if expected.benchmark != kind.name:
            reader = kind.reader()
            assert [*reader.feed(stdout(name)), *reader.close()] == [], name


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(sorted(EXPECTED)), st.lists(st.integers(0, 1 << 18), max_size=20))
def test_pieces_of_any_size_say_the_same(name: str, cuts: list[int]) -> None:
    data = stdout(name)
    for kind in BENCHMARKS:
        if kind.name == EXPECTED[name].benchmark:
            whole, parts = kind.reader(), kind.reader()
            edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
            events = [event for begin, end in pairwise(edges) for event in parts.feed(data[begin:end])]
            assert [*events, *parts.close()] == [*whole.feed(data), *whole.close()]


# Optional and missing content.


def copy(name: str, to: Path, *files: str) -> Path:
    for file in files or os.listdir(CAPTURES / name):
        if (CAPTURES / name / file).is_file():
            shutil.copy(CAPTURES / name / file, to / file)
    return to


def test_bytes_may_stand_in_the_rows(tmp_path: Path) -> None:
    """As in captures that other tools record, where stdout.txt may also be missing."""
    name = "io500-main-openmpi-pipe"
    copy(name, tmp_path)
    text = (CAPTURES / name / "stdout.txt").read_text()
    rows = [row.split("\t") for row in (CAPTURES / name / "arrivals.tsv").read_text().splitlines()[1:]]
    rows_with_bytes = (f"{t}\tout\t9999\t9999\t{text[int(at) : int(at) + int(n)]!r}\n" for t, _, at, n in rows)
    (tmp_path / "arrivals.tsv").write_text("".join(rows_with_bytes))
    (tmp_path / "stdout.txt").unlink()
    document = {**replay(read_capture(tmp_path)).document, "capture": name}
    assert document == replayed(name).document


@pytest.mark.parametrize(
    "files",
    [("stdout.txt",), ("stdout.txt", "cmd.txt"), ("stdout.txt", "meta.json"), ("stdout.txt", "arrivals.tsv")],
)
def test_results_need_the_output_only(tmp_path: Path, files: tuple[str, ...]) -> None:
    name = "io500-main-openmpi-pipe"
    found = replay(read_capture(copy(name, tmp_path, *files)))
    assert [phase["phase"] for phase in phases(found)] == [phase.name for phase in EXPECTED[name].phases]
    assert found.document["score"] == EXPECTED[name].score


def test_output_in_one_file(tmp_path: Path) -> None:
    found = CliRunner().invoke(main, [str(CAPTURES / "rados-bench-seq" / "stdout.txt"), "--json"])
    assert found.exit_code == 0
    assert [phase["phase"] for phase in json.loads(found.stdout)["phases"]] == ["seq"]


def test_command_line_alone(tmp_path: Path) -> None:
    (tmp_path / "cmd.txt").write_text("nice -n 5 mpirun -np 4 /opt/io500 config.ini\n")
    assert replay(read_capture(tmp_path)).document["benchmark"] == "io500"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("meta.json", "{", "meta.json: not JSON"),
        ("meta.json", "[" * 100000, "meta.json: not JSON"),
        ("meta.json", "[]", "meta.json: not a JSON object"),
        ("meta.json", '{"duration_s": 1e12}', "it lasts 1000000000000 s"),
        ("arrivals.tsv", "0.1\tout\t0\n", "arrivals.tsv:1: not a row"),
        ("arrivals.tsv", "0.1\tout\t0\t1\tprint(1)\n", "arrivals.tsv:1: not a row"),
        ("arrivals.tsv", "nan\tout\t0\t1\n", "arrivals.tsv:1: not a row"),
        ("procs.tsv", "# a\n0\t1\t0\tfio\tsomething\t/\tfio | \n", "procs.tsv:2: not a row"),
        ("procs.tsv", "0\t99999999999\t0\tfio\tnew\t/\tfio | \n", "procs.tsv:1: not a row"),
        ("files.tsv", "-1\t/a\tnew\t1\t'a'\n", "files.tsv:1: not a row"),
    ],
)
def test_damage_is_one_line(tmp_path: Path, file: str, content: str, message: str) -> None:
    (tmp_path / file).write_text(content)
    found = CliRunner().invoke(main, [str(tmp_path)])
    assert found.exit_code == 2
    assert message in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("path", ["nowhere", ".", "x" * 300])
def test_no_capture_is_one_line(tmp_path: Path, path: str) -> None:
    found = CliRunner().invoke(main, [str(tmp_path / path)])
    assert found.exit_code == 2
    assert found.stderr.count("\n") == 1


def test_a_row_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "stdout.txt").write_text("a\n")
    (tmp_path / "arrivals.tsv").write_text("0.5\tout\t0\t1\n0.7\tou")
    assert [arrival.data for arrival in read_capture(tmp_path).output] == [b"a"]


def test_a_link_in_a_capture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "stdout.txt").symlink_to("/etc/hostname")
    with pytest.raises(CaptureError, match="not a regular file"):
        read_capture(tmp_path)


HOSTILE = """\
0\t7\t1\tio500\tnew\t{outside}\t/opt/io500 {outside}/x.ini | 3:{outside}/result.txt@9:0100001 4:../../etc/passwd@1:01
0\t8\t7\t) Z 1 (\tnew\t../../..\tior -w -o {outside}/data | 5:{outside}@0:0100000 5:/elsewhere@1:0100000
0.1\t9\t9\tfio\tnew\t\tfio {outside}/x.fio | 1:{outside}/secret@0:0100001
"""
ESCAPES = """\
0\t{outside}/../{name}/a/result.txt\tnew\t1\t'a'
0\t../../../../../..{outside}/b\tnew\t1\t'b'
0\t/../../../../../../..{outside}/c\tnew\t1\t'c'
0\t/x/result.txt\tnew\t1\t'd'
0\t/x/result.txt/below\tnew\t1\t'e'
0\t/\tnew\t1\t'f'
0\t/{long}/g\tnew\t1\t'g'
0\t/nul\\0/h\tnew\t1\t'h'
"""


def test_nothing_outside_is_read_or_written(tmp_path: Path) -> None:
    """Paths and links of a capture never lead out of the temporary directory."""
    outside, capture = tmp_path / "outside", tmp_path / "capture"
    outside.mkdir()
    capture.mkdir()
    (outside / "result.txt").write_text("[ior-easy-write]\nt_start = 2026-11-21 00:02:36\n")
    (outside / "x.ini").write_text(f"[global]\nresultdir = {outside}\n")
    (outside / "secret").write_text("secret")
    (capture / "procs.tsv").write_text(HOSTILE.format(outside=outside))
    (capture / "files.tsv").write_text(ESCAPES.format(outside=outside, name=outside.name, long="x" * 300))
    (capture / "meta.json").write_text(json.dumps({"cmd": ["io500", f"{outside}/x.ini"], "duration_s": 1.0}))
    before = sorted(path for path in tmp_path.rglob("*"))
    opened: list[str] = []
    watching = True

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if watching and event in ("open", "os.mkdir", "os.rename", "os.symlink", "os.remove", "os.utime", "os.listdir"):
            path = args[1] if event == "os.symlink" else args[0]
            if isinstance(path, str | bytes | os.PathLike):
                opened.append(os.fsdecode(path))

    sys.addaudithook(watch)
    try:
        replay(read_capture(capture), interval=0.1)
    finally:
        watching = False
    assert any("pinchpoint-replay-" in path for path in opened)
    assert [path for path in opened if path.startswith(str(outside))] == []
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_links_of_a_stage_lead_nowhere(tmp_path: Path) -> None:
    """They are text; the tree reads files through the replayed root."""
    (tmp_path / "stage").mkdir()
    (tmp_path / "secret").write_text("secret")
    stage = Stage(tmp_path / "stage", 1e9)
    stage.change(Change(0.0, 5, 1, "io500", cwd=str(tmp_path), argv=("io500", "secret")))
    tree = stage.tree(1.0)
    assert tree.cwd(5) == str(tmp_path)
    with pytest.raises(FileNotFoundError):
        tree.read_file(5, "secret")
    with pytest.raises(FileNotFoundError):
        tree.read_file(5, "/proc/self/environ")


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["0", "0.1", "1e9", "x"]),
        st.sampled_from(["1", "7", "out", "/a", "/a/../b", "\udcff"]),
        st.sampled_from(["0", "1", "new", "grow", "gone"]),
        st.sampled_from(["fio", "3", "io500", "\udc80"]),
        st.sampled_from(["new", "chg", "gone", "'a'", "b'\\xff'", "'", "''''"]),
        st.text(max_size=5),
        st.sampled_from(["fio x | 3:/a@1:0", " | ", "", "io500 a.ini | ?"]),
    ).map("\t".join),
    max_size=5,
).map(lambda rows: "".join(f"{row}\n" for row in rows).encode("utf-8", "surrogateescape"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["cmd.txt", "meta.json", "stdout.txt", "arrivals.tsv", "procs.tsv", "files.tsv"]),
        st.binary(max_size=64) | ROWS,
    )
)
def test_any_bytes(tmp_path: Path, files: dict[str, bytes]) -> None:
    folder = tmp_path / "capture"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    try:
        capture = read_capture(folder)
    except CaptureError as error:
        message = str(error)
        capture = Capture(message)
    assert "\n" not in capture.name
    capture.duration = min(capture.duration, 0.5)
    json.dumps(replay(capture).document)
