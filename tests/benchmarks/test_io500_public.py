from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pinchpoint.benchmarks.io500_public import MAX_LEVELS, TOTAL, PublicRun, file_systems, public_runs, submissions

FOLDERS = Path(__file__).parents[1] / "fixtures" / "io500"
HERE = "INFN/Tier1/CephFS/2025/submission-745"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with one submission."""
    shutil.copytree(FOLDERS / "cephfs-2025", tmp_path / HERE / "results" / "2025.05.13-11.32.38")
    return tmp_path


def test_submissions_are_found_below_any_names_in_order(clone: Path) -> None:
    for name in ("CNRS/Jean/work  /  fs2/2019/submission-9", "A/b/c/2020/submission-2", "A/b/c/2020/submission-1"):
        (clone / name).mkdir(parents=True)
    (clone / ".git" / "submission-3").mkdir(parents=True)
    (clone / "A" / "b" / "submission-x").mkdir()

    found = list(submissions(clone))

    assert found == [
        "A/b/c/2020/submission-1", "A/b/c/2020/submission-2", "CNRS/Jean/work  /  fs2/2019/submission-9", HERE,
    ]  # fmt: skip


def test_links_are_not_followed_and_depth_is_bounded(clone: Path) -> None:
    (clone / "loop").symlink_to(clone)
    (clone / "A").mkdir()
    (clone / "A" / "submission-1").symlink_to(clone / HERE)
    (clone / "/".join("d" * (MAX_LEVELS + 2)) / "submission-2").mkdir(parents=True)

    assert list(submissions(clone)) == [HERE]


def test_a_run_has_its_figures_and_its_nodes(clone: Path) -> None:
    (run,) = public_runs(clone, HERE)

    assert run.nodes == 10
    assert run.figures[TOTAL] == 8.125945
    assert run.figures["mdtest_hard_read"] == 4858.707
    assert run.figures["ior_easy_write"] == pytest.approx(27.030023 * 2**30)
    assert len(run.figures) == 13
    assert run.storage == "Tier1/CephFS"


def test_a_summary_that_stands_there_twice_is_one_run(clone: Path) -> None:
    summary = clone / HERE / "results" / "2025.05.13-11.32.38" / "result_summary.txt"
    (clone / HERE / "again").mkdir()
    shutil.copy(summary, clone / HERE / "again")
    shutil.copy(summary, clone / HERE)

    assert len(public_runs(clone, HERE)) == 1


def test_an_invalid_run_and_one_without_a_score_do_not_count(clone: Path) -> None:
    folder = clone / HERE / "results" / "2025.05.13-11.32.38"
    shutil.rmtree(folder)
    folder.mkdir()
    text = (FOLDERS / "cephfs-2025" / "result_summary.txt").read_text()
    lines = text.splitlines(keepends=True)

    (folder / "result_summary.txt").write_text("".join(line for line in lines if "SCORE" not in line))
    assert public_runs(clone, HERE) == []
    (folder / "result_summary.txt").write_text(
        "".join(f"{line.rstrip()} [INVALID]\n" if "SCORE" in line else line for line in lines)
    )
    assert public_runs(clone, HERE) == []
    assert public_runs(clone, "gone/submission-1") == []


@pytest.mark.parametrize(
    ("submission", "names"),
    [
        ("SUSE/HammerHead/SUSE Enterprise Storage - CephFS/2020/submission-136", {"ceph"}),
        ("GWDG/Emmy/Garden Linux, Ceph/2024/submission-734", {"ceph"}),
        ("DDN/AI400X2/EXAScaler/2021/submission-1", {"lustre"}),
        ("IBM/Arches/IBM Storage Scale 5.1.7/2023/submission-1", {"storage-scale"}),
        ("Weka/Mistral/lustre02/2018/submission-1", {"lustre"}),
        ("Xi/iFLYTEK/YRCloudFile/2020/submission-1", set()),
    ],
)
def test_a_file_system_is_known_by_words_in_the_names_of_system_and_storage(submission: str, names: set[str]) -> None:
    run = PublicRun(submission, None, {})

    assert {name for name, words in file_systems().items() if run.is_of(words)} == names
