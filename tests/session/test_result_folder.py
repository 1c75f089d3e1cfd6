from __future__ import annotations

from pathlib import Path

import pytest

from pinchpoint.benchmarks.io500_folder import folder_runs
from pinchpoint.runs import RunState
from pinchpoint.session.result_folder import folder_of, folder_within

FOLDERS = Path(__file__).parents[1] / "fixtures" / "io500"


@pytest.fixture
def state() -> RunState:
    (run,) = folder_runs(FOLDERS / "cephfs-2025", 0.0, lambda line: None)
    return run.run.state


@pytest.fixture
def output(tmp_path: Path) -> Path:
    path = tmp_path / "stdout"
    path.write_text("[SCORE ] ...\n\nThe result files are stored in the directory: ./cephfs-2025\n")
    return path


def test_the_folder_that_io500_names_is_read_from_where_it_ran(output: Path, state: RunState) -> None:
    found = folder_of(output, FOLDERS, state)

    assert found is not None
    assert (found.version, found.nodes) == ("io500-isc25_v1", 10)
    assert folder_within(60, output, FOLDERS, state) == found


def test_a_folder_of_another_run_is_not_taken(output: Path, state: RunState) -> None:
    state.scores = state.scores[:1]

    assert folder_of(output, FOLDERS, state) is None


def test_an_output_that_names_no_folder_or_one_that_is_gone_has_none(output: Path, state: RunState) -> None:
    assert folder_of(output, FOLDERS / "elsewhere", state) is None
    output.write_text("nothing\n")
    assert folder_of(output, FOLDERS, state) is None
    output.unlink()
    assert folder_within(60, output, FOLDERS, state) is None
