from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pinchpoint.cli import main

FOLDERS = Path(__file__).parents[1] / "fixtures" / "io500"
SUMMARY = (FOLDERS / "cephfs-2025" / "result_summary.txt").read_text()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with five runs on Ceph, a faster one on another file system, and the saved run itself."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "160")
    assert invoke("import", "--name=mine", str(FOLDERS / "cephfs-2025")).exit_code == 0
    clone = tmp_path / "submission-data"
    for number in range(5):
        faster = SUMMARY.replace("ior-hard-read        2.", f"ior-hard-read        {number + 4}.")
        add(clone, f"SITE/SYSTEM/CephFS/2024/submission-{number}", faster)
    add(clone, "SITE/HPC/DAOS/2024/submission-7", SUMMARY.replace("ior-easy-write       2", "ior-easy-write      92"))
    shutil.copytree(FOLDERS / "cephfs-2025", clone / "INFN/Tier1/CephFS/2025/submission-745")
    return clone


def add(clone: Path, name: str, summary: str) -> None:
    (clone / name).mkdir(parents=True)
    (clone / name / "result_summary.txt").write_text(summary)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_each_phase_has_its_place_and_the_one_that_is_furthest_behind_is_named(clone: Path) -> None:
    done = invoke("standing", "--list", str(clone))

    assert done.exit_code == 0, done.output
    assert "mine, client nodes: 10" in done.output
    assert "all runs (6)" in done.output
    assert "ceph (5)" in done.output
    behind = (
        "Furthest behind ceph: ior_hard_read has 43% of the median; with the median the score would be 11.3% higher."
    )
    assert behind in done.output
    assert "Then behind" not in done.output


def test_the_document_has_the_same(clone: Path) -> None:
    document = json.loads(invoke("standing", "--list", str(clone), "--file-system", "daos", "--json").output)

    assert (document["nodes"], document["file_system"]) == (10, "daos")
    score, first, *_ = document["figures"]
    assert (score["figure"], score["unit"]) == ("total", "score")
    assert first["among_kin"]["runs"] == 1
    assert first["among_all"] == {"runs": 6, "below": pytest.approx(2.5 / 6), "median": pytest.approx(first["value"])}
    assert first["among_kin_per_node"] is None


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (
            ["--list", ".", "mine"],
            2,
            "no folder in it is called submission-N; get the list's data with git clone https://",
        ),
        (["--list", "CLONE", "--file-system", "zfs", "mine"], 2, "known are beegfs, ceph, daos"),
        (["--list", "CLONE", "--nodes", "0"], 2, "0 is not in the range"),
        (["--list", "nowhere", "mine"], 2, "nowhere: not a directory"),
        (["--list", "CLONE", "other"], 1, "not a run of IO500 with a score"),
        (["--list", "CLONE", "gone"], 1, "gone"),
    ],
)
def test_what_it_cannot_compare_is_named(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], status: int, words: str
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    (tmp_path / "other.txt").write_text("[RESULT]       ior-easy-write        2.000000 GiB/s : time 300.0 seconds\n")
    invoke("import", "--name=other", str(tmp_path / "other.txt"))
    given = [str(clone) if one == "CLONE" else one for one in arguments]

    done = invoke("standing", *given)

    assert (done.exit_code, words in done.output) == (status, True), done.output


def test_a_clone_whose_files_are_missing_is_named(clone: Path) -> None:
    for path in clone.rglob("result*.txt"):
        path.write_text("version https://git-lfs.github.com/spec/v1\n")

    done = invoke("standing", "--list", str(clone))

    assert done.exit_code == 2
    assert "none of its 7 submissions has a valid run with a score" in done.output
