from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pinchpoint.benchmarks.io500_folder import FolderRun, folder_runs, last_digit
from pinchpoint.benchmarks.result_files import ResultFilesError
from pinchpoint.runs import Result

FOLDERS = Path(__file__).parents[1] / "fixtures" / "io500"
START = 1_700_000_000.0


def runs(path: Path) -> list[FolderRun]:
    return folder_runs(path, START, lambda line: None)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the C app's result folder, below a directory of its own."""
    return Path(shutil.copytree(FOLDERS / "cephfs-2025", tmp_path / "all" / "results" / "2025.05.13-11.32.38"))


def changed(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_the_files_of_a_folder_are_one_run() -> None:
    (run,) = runs(FOLDERS / "cephfs-2025")

    assert (run.name, run.config_name, run.notes) == ("result.txt", "config.ini", [])
    assert len(run.run.state.phases) == 14
    assert [detail.phase for detail in run.details] == [
        "ior_easy_write",
        "mdtest_easy_write",
        "ior_hard_write",
        "mdtest_hard_write",
        "find",
        "mdtest_hard_read",
    ]
    assert {detail.tasks for detail in run.details} == {160}


def test_the_stonewall_is_that_of_result_txt_and_that_of_ior() -> None:
    (run,) = runs(FOLDERS / "cephfs-2025")

    assert [rate.source for rate in run.details[0].wall_rates] == [
        "result.txt: throughput-stonewall",
        "ior-easy-write.txt: mean data of the ranks",
    ]


def test_ranks_are_on_the_nodes_of_mdtests_map() -> None:
    (run,) = runs(FOLDERS / "cephfs-2025")

    ranks = run.details[0].ranks
    assert ranks is not None
    assert (ranks.nodes[0].node, ranks.nodes[0].first, ranks.node_count) == (8, 128, 10)


def test_the_shell_drivers_folder_is_a_run_that_began_with_its_first_phase() -> None:
    (run,) = runs(FOLDERS / "cephfs-2019")

    assert (run.name, run.result, run.config) == ("result_summary.txt", "", "")
    assert [detail.phase for detail in run.details if detail.wall_rates] == [
        "ior_easy_write",
        "mdtest_easy_write",
        "ior_hard_write",
        "mdtest_hard_write",
    ]
    assert 1559112000 < run.run.state.start < 1559132000


def test_a_copy_of_the_summary_is_not_another_run(copy: Path) -> None:
    shutil.copy(copy / "result_summary.txt", copy.parents[1])

    (run,) = runs(copy.parents[1])

    assert run.directory == "results/2025.05.13-11.32.38"
    assert run.notes == []


def test_a_copy_that_differs_in_one_figure_is_reported_and_not_used(copy: Path) -> None:
    shutil.copy(copy / "result_summary.txt", copy.parents[1])
    changed(copy.parents[1] / "result_summary.txt", "27.030", "37.030")

    (run,) = runs(copy.parents[1])

    assert run.run.state.phases[0].results[0].printed.startswith("27.03")
    assert len(run.notes) == 1
    assert run.notes[0].startswith("ior_easy_write: results/2025.05.13-11.32.38/result.txt has 27.03")


def test_a_summary_of_another_run_is_a_run_of_its_own(copy: Path) -> None:
    shutil.copy(FOLDERS / "cephfs-2019" / "result_summary.txt", copy.parents[1])

    found = runs(copy.parents[1])

    assert [run.directory for run in found] == ["", "results/2025.05.13-11.32.38"]
    assert "is of another run: 13 of 13 figures differ" in found[1].notes[0]


def test_figures_that_contradict_each_other_are_reported_and_none_is_changed(copy: Path) -> None:
    changed(copy / "result_summary.txt", "27.030", "27.130")

    (run,) = runs(copy)

    assert run.run.state.phases[0].results[0].printed.startswith("27.03")
    assert [note.partition(":")[0] for note in run.notes] == ["ior_easy_write"]
    assert run.notes[0].endswith("result.txt is used")


def test_a_summary_above_the_phases_files_has_them(tmp_path: Path) -> None:
    shutil.copytree(FOLDERS / "cephfs-2019", tmp_path / "results")
    (tmp_path / "results" / "result_summary.txt").rename(tmp_path / "result_summary.txt")

    (run,) = runs(tmp_path)

    assert len(run.details) == 4


def test_a_line_that_looks_like_a_result_and_is_not_understood_is_named(copy: Path) -> None:
    changed(copy / "result_summary.txt", "GiB/s : time 409", "furlongs : time 409")

    (run,) = runs(copy)

    assert run.notes[0].startswith(
        "result_summary.txt:2: looks like a result, and is not understood: [RESULT] ior-easy"
    )


def test_renamed_files_are_known_by_the_phase_in_their_name(copy: Path) -> None:
    (copy / "ior-easy-write.csv").rename(copy / "node1-ior_easy_write.csv")
    (copy / "result.txt").rename(copy / "result-old.txt")

    (run,) = runs(copy)

    assert run.name == "result-old.txt"
    assert run.details[0].ranks is not None


def test_a_half_written_folder_is_a_failed_run(copy: Path) -> None:
    text = (copy / "result.txt").read_text()
    (copy / "result.txt").write_text(text[: text.index("[mdtest-hard-stat]")])
    (copy / "result_summary.txt").write_text("")

    (run,) = runs(copy)

    assert (run.run.state.state, len(run.run.state.phases)) == ("failed", 9)


def test_what_macos_adds_to_an_archive_is_not_a_run(copy: Path) -> None:
    (copy / "._result.txt").write_bytes(b"\0\5\26\7Mac OS X")

    assert [run.notes for run in runs(copy)] == [[]]


def test_a_folder_without_a_run_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ResultFilesError, match="no IO500 run is in it"):
        runs(tmp_path)


@pytest.mark.parametrize(
    ("printed", "value", "digit"),
    [
        ("2.25 GiB/s", 2.25e9, 1e7),
        ("1.5e3 MB/s", 1.5e9, 1e8),
        ("7 ops/sec", 7.0, 1.0),
        ("0.00 s", 0.0, 0.01),
        ("", 5.0, 0.0),
        ("fast", 5.0, 0.0),
    ],
)
def test_a_result_may_be_rounded_by_what_its_last_digit_stands_for(printed: str, value: float, digit: float) -> None:
    assert last_digit(Result("write", "bytes_per_second", value, printed)) == pytest.approx(digit)
