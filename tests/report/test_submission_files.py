from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pinchpoint.cli import main

FOLDER = Path(__file__).parents[1] / "fixtures" / "io500" / "cephfs-2025"


@pytest.fixture(autouse=True)
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert invoke("import", "--name=mine", "--tag=job=7", str(FOLDER)).exit_code == 0


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_the_draft_is_two_files_and_what_is_missing_is_printed(tmp_path: Path) -> None:
    done = invoke("report", "mine", "--io500", str(tmp_path / "new" / "draft"))

    assert done.exit_code == 0, done.output
    assert "  Site / IO500: exclusive_cluster_usage\n" in done.output
    assert "questionnaire.md: 10 answers need words of yours." in done.output
    system = json.loads((tmp_path / "new" / "draft" / "system.json").read_text())
    assert system["DATA"]["childs"][0]["att"]["number_clientNodes"] == 10
    text = (tmp_path / "new" / "draft" / "questionnaire.md").read_text()
    assert "- config.ini, [ior-easy]: transferSize = 4m (default: 2m)\n" in text
    assert "- 160 ranks ran on 10 client nodes.\n- job: 7\n" in text
    assert "sha256" not in text


def test_a_draft_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    invoke("report", "mine", "--io500", str(tmp_path))
    (tmp_path / "questionnaire.md").write_text("mine\n")

    done = invoke("report", "mine", "--io500", str(tmp_path))

    assert done.exit_code == 1
    assert "system.json: it is there, and may have been edited; name another directory, or move it" in done.output
    assert (tmp_path / "questionnaire.md").read_text() == "mine\n"


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    done = invoke("report", "mine", "--io500", str(tmp_path / "file" / "draft"))

    assert done.exit_code == 1
    assert "file/draft: Not a directory" in done.output


def test_a_run_without_a_result_folder_is_refused(tmp_path: Path) -> None:
    invoke("import", "--name=bare", str(FOLDER / "result_summary.txt"))

    done = invoke("report", "bare", "--io500", str(tmp_path))

    assert done.exit_code == 1
    assert "its result folder was not read; `pinchpoint import DIR` reads one" in done.output
