from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pinchpoint.cli import main
from pinchpoint.commands import import_
from pinchpoint.session import store
from pinchpoint.session.store import RunRecord

SEEDS = Path(__file__).parents[1] / "fixtures" / "seeds"
DIARY = SEEDS / "io500-diary.txt"
FOLDERS = Path(__file__).parents[1] / "fixtures" / "io500"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "pinchpoint" / "runs"


def call(*args: str | Path, input: bytes | None = None) -> Result:
    result = CliRunner().invoke(main, ["import", *map(str, args)], input=input)
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def kept() -> list[RunRecord]:
    return store.runs()


def test_the_results_of_the_diary_are_kept_as_runs_named_by_file_and_number(state: Path) -> None:
    result = call(DIARY)

    assert result.exit_code == 0
    assert [store.name_of(record.marker.run) for record in kept()] == [
        f"io500-diary-{number:02}" for number in range(1, 19)
    ]
    lines = result.stdout.splitlines()
    assert len(lines) == 18
    assert lines[8].split("  ")[1:] == ["io500", "12 phases", "score 11.28", "finished"]


def test_a_run_is_kept_with_all_that_is_known_of_it(state: Path) -> None:
    os.utime(DIARY)
    call("--tag", "c6=off", "--tag", "mtu=9000", DIARY)

    first = kept()[0]
    marker = first.marker

    assert marker.tags.items() > {"c6": "off", "mtu": "9000"}.items()
    assert (first.origin, first.command, first.exit_status) == (str(DIARY), [], None)
    assert (marker.benchmark, marker.state, marker.valid) == ("io500", "finished", True)
    assert marker.start == pytest.approx(DIARY.stat().st_mtime)
    assert marker.end == pytest.approx(marker.start + sum(mark.seconds or 0 for mark in marker.phases))
    assert [mark.name for mark in marker.phases[:2]] == ["ior_easy_write", "ior_hard_write"]
    assert marker.phases[1].start == marker.phases[0].end
    assert [result.printed for result in marker.scores] == ["0.822726 GiB/s", "12.6286 kiops", "3.22333"]


def test_the_line_before_a_result_is_kept_with_it(state: Path) -> None:
    call(DIARY)

    notes = [record.note for record in kept()]

    assert all(notes)
    assert "C6" in notes[0]
    assert "12 GB" in notes[5]
    assert [number for number, note in enumerate(notes, 1) if "MTU = 9000" in note or "MTU 9000" in note] == [11, 18]


def test_one_run_has_the_files_name_or_the_one_that_is_given(state: Path) -> None:
    call(SEEDS / "osd-bench.txt")
    call("--name", "my osd/3", SEEDS / "rados-bench-burst.txt")

    assert {store.name_of(record.marker.run) for record in kept()} == {"osd-bench", "my-osd-3"}


def test_a_file_name_that_is_too_long_leaves_room_for_the_numbers(state: Path, tmp_path: Path) -> None:
    diary = tmp_path / f"{'n' * 100}.txt"
    diary.write_bytes(DIARY.read_bytes())

    call(diary)

    names = [store.name_of(record.marker.run) for record in kept()]
    assert names[0] == "n" * 40 + "-01"
    assert len({*names}) == 18


def test_a_name_that_is_too_long_is_refused_and_not_cut(state: Path) -> None:
    result = call("--name", "n" * 41, DIARY)

    assert result.exit_code == 2
    assert "41 characters: a name has 40 at most" in result.stderr
    assert kept() == []


def test_what_was_imported_before_is_not_kept_twice_wherever_it_is_read_from(state: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.txt"
    copy.write_bytes(DIARY.read_bytes())
    call(DIARY)

    again = call(DIARY, copy, "-", input=DIARY.read_bytes())

    assert again.exit_code == 0
    assert len(kept()) == 18
    assert again.stdout.count("imported before as") == 3
    assert "nothing is saved twice" in again.stdout


def test_of_a_diary_that_grew_only_the_new_runs_are_kept(state: Path, tmp_path: Path) -> None:
    diary = tmp_path / "diary.txt"
    diary.write_bytes(DIARY.read_bytes())
    call(diary)
    with diary.open("ab") as file:
        file.write((SEEDS / "osd-bench.txt").read_bytes())

    result = call(diary)

    assert len(kept()) == 19
    assert "18 runs imported before" in result.stdout
    assert store.find("diary-19").marker.benchmark == "ceph_osd_bench"


def test_standard_input_is_read(state: Path) -> None:
    call("-", input=(SEEDS / "osd-bench.txt").read_bytes())

    assert [(store.name_of(record.marker.run), record.origin) for record in kept()] == [("stdin", "standard input")]


def test_another_text_with_equal_figures_on_standard_input_is_another_run(state: Path) -> None:
    text = (SEEDS / "osd-bench.txt").read_bytes()

    call("-", input=text)
    result = call("-", input=text + b"repeated\n")

    assert len(kept()) == 2
    assert "imported before" not in result.stdout


def test_standard_input_is_empty_when_it_was_read(state: Path) -> None:
    result = call("-", "-", input=(SEEDS / "osd-bench.txt").read_bytes())

    assert (result.exit_code, len(kept())) == (1, 1)
    assert "-: it is empty" in result.stderr


def test_json_says_all_and_keeps_nothing(state: Path) -> None:
    documents = json.loads(call("--json", SEEDS / "osd-bench.txt", DIARY).stdout)["runs"]

    assert not state.exists()
    assert [document["file"] for document in documents] == [str(SEEDS / "osd-bench.txt")] + [str(DIARY)] * 18
    assert (documents[0]["line"], documents[0]["benchmark"]) == (2, "ceph_osd_bench")
    assert "ceph tell osd.3 bench" in documents[0]["note"]
    assert [document["score"] for document in documents[1:3]] == [3.22333, 3.35687]
    phase = documents[1]["phases"][0]
    assert (phase["phase"], phase["value"], phase["printed"]) == ("ior_easy_write", 6.021 * 2**30, "6.021 GiB/s")
    lines = [document["line"] for document in documents[1:]]
    assert lines == sorted(set(lines))


def test_what_cannot_be_read_is_one_clear_line_each_and_keeps_the_others(state: Path, tmp_path: Path) -> None:
    prose, empty, binary, fifo, huge = (tmp_path / name for name in ("prose", "empty", "binary", "fifo", "huge"))
    prose.write_text("we ran fio and it was fast\n")
    empty.touch()
    binary.write_bytes(bytes(range(256)) * 1000)
    os.mkfifo(fifo)
    with huge.open("wb") as file:
        file.truncate(10 << 30)
    missing = tmp_path / "missing"
    empty_folder = tmp_path / "folder"
    empty_folder.mkdir()

    result = call(prose, empty, binary, fifo, huge, missing, empty_folder, "/dev/zero", DIARY)

    assert result.exit_code == 1
    assert len(kept()) == 18
    reasons = {
        prose: "no benchmark's output is found in it; understood are IO500",
        empty: "it is empty",
        binary: "it is not text",
        fifo: "not a regular file; give its content on standard input",
        huge: "longer than 128 MiB",
        missing: "No such file or directory",
        empty_folder: "no IO500 run is in it",
        Path("/dev/zero"): "not a regular file",
    }
    lines = result.stderr.splitlines()
    assert len(lines) == len(reasons)
    for line, (path, reason) in zip(lines, reasons.items(), strict=True):
        assert line.startswith(f"pinchpoint: {path}: {reason}")


def test_standard_input_without_end_is_given_up(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(import_, "MAX_TEXT_BYTES", 1 << 20)
    with Path("/dev/zero").open("rb") as endless:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(endless))
        with pytest.raises(SystemExit) as ended:
            main(["import", "-"])

    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("pinchpoint: -: longer than 1 MiB")


def test_a_closed_standard_input_is_a_clear_error(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)

    with pytest.raises(SystemExit) as ended:
        main(["import", "-"])

    assert ended.value.code == 1


@pytest.mark.parametrize("tag", ["novalue", "=x", "sha256=1"])
def test_a_tag_that_is_none_is_refused(state: Path, tag: str) -> None:
    result = call("--tag", tag, DIARY)

    assert result.exit_code == 2
    assert tag.partition("=")[0] in result.stderr
    assert kept() == []


def test_a_state_directory_that_cannot_be_written_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))

    result = call(SEEDS / "osd-bench.txt")

    assert result.exit_code == 1
    assert "set XDG_STATE_HOME" in result.stderr or "Not a directory" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_what_a_text_says_cannot_steer_the_terminal(state: Path, tmp_path: Path) -> None:
    evil = tmp_path / "evil.txt"
    evil.write_bytes(b"IO500 version io500-x\nFATAL (src/main.c:1) \x1b]0;owned\x07\xe2\x80\xae\n")

    result = call(evil)

    assert "FATAL" in result.stdout
    assert not set(result.stdout) & {"\x1b", "\x07", "\u202e"}


def test_a_result_folder_is_a_run_with_tails_ranks_and_rules() -> None:
    result = call(FOLDERS / "cephfs-2025")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[0].split("  ")[1:] == ["io500", "14 phases", "score 8.126", "finished"]
    assert "the score would be 8.597 (8.594 to 8.601), 5.8% more" in result.stdout
    assert "ior_easy_write: slow: node 8 (from rank 128 on) (408.7 s)" in result.stdout
    (record,) = kept()
    assert record.origin == str(FOLDERS / "cephfs-2025")
    assert record.folder is not None
    assert (record.folder.nodes, len(record.folder.rules)) == (10, 9)


def test_an_archive_of_a_folder_is_the_same_run(tmp_path: Path) -> None:
    archive = tmp_path / "run.tgz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(FOLDERS / "cephfs-2025", "results")

    first = call(archive)

    assert first.exit_code == 0
    assert store.name_of(kept()[0].marker.run) == "run"
    assert kept()[0].origin == f"{archive}/results"
    assert "nothing is saved twice" in call(FOLDERS / "cephfs-2025").stdout


def test_a_folder_is_told_as_json() -> None:
    (run,) = json.loads(call("--json", FOLDERS / "cephfs-2025").stdout)["runs"]

    assert run["folder"]["tails"]["ior_easy_write"]["cost"] == 0.2288
    assert run["folder"]["score_without_tails"]["gain"] == 0.058
    assert run["folder"]["gains"][0] == ["ior_easy_write", 0.033]
    assert {rule["state"] for rule in run["folder"]["rules"]} == {"kept"}
    assert kept() == []


def test_a_broken_archive_is_named_and_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "bad.tgz").write_bytes(b"\x1f\x8bnonsense")

    result = call(tmp_path / "bad.tgz", FOLDERS / "cephfs-2019")

    assert result.exit_code == 1
    assert "bad.tgz: not a tar archive that can be read" in result.stderr
    assert len(kept()) == 1


def test_a_folder_without_a_run_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    result = call(tmp_path)

    assert result.exit_code == 1
    assert "no IO500 run is in it" in result.stderr


def test_a_line_that_looks_like_a_result_and_is_not_understood_is_named(tmp_path: Path) -> None:
    text = (FOLDERS / "cephfs-2019" / "result_summary.txt").read_text()
    (tmp_path / "summary.txt").write_text(text.replace("GB/s : time", "furlongs : time", 1))

    result = call(tmp_path / "summary.txt")

    assert (
        "summary.txt:1: looks like a result, and is not understood: [RESULT] BW phase 1 ior_easy_write" in result.stderr
    )
    assert len(kept()[0].marker.phases) == 12


def test_the_four_bandwidths_of_an_old_summary_are_read() -> None:
    call(FOLDERS / "cephfs-2019" / "result_summary.txt")

    figures = {mark.name: mark.results[0] for mark in kept()[0].marker.phases if mark.name.startswith("ior")}
    assert len(figures) == 4
    assert all(figure.unit == "bytes_per_second" and figure.printed.endswith("GB/s") for figure in figures.values())


def test_names_that_are_not_utf8_are_replaced(tmp_path: Path) -> None:
    file = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
    Path(file).write_bytes(DIARY.read_bytes())
    result = call(file, "--tag", os.fsdecode(b"k=\xff"))

    assert result.exit_code == 0
    assert len(kept()) == 18
    assert kept()[0].marker.tags["k"] == "?"
    assert (kept()[0].origin or "").endswith("/caf?.txt")
