"""What the shell completes; its own part is click's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
RUNS = ("20261121T000255Z-fio", "20261122T000255Z-io500")


def completed(words: str, home: Path) -> list[str]:
    """Return what bash is told after `words`, while the last one is being typed."""
    environment = {
        "PYTHONPATH": str(ROOT / "exporter"),
        "PATH": os.environ["PATH"],
        "XDG_STATE_HOME": str(home),
        "_PINCHPOINT_COMPLETE": "bash_complete",
        "COMP_WORDS": f"pinchpoint {words}",
        "COMP_CWORD": str(len(words.split(" "))),
    }
    program = "from pinchpoint.cli import main; main(prog_name='pinchpoint')"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for run in RUNS:
        (tmp_path / "pinchpoint" / "runs" / run).mkdir(parents=True)
    return tmp_path


def test_commands_are_completed(home: Path) -> None:
    assert completed("rep", home) == ["report", "replay"]


@pytest.mark.parametrize("command", ["report", "replay", "export", "compare last", "report --against"])
def test_runs_are_completed_the_newest_first(command: str, home: Path) -> None:
    assert completed(f"{command} ", home) == ["last", *reversed(RUNS)]
    assert completed(f"{command} 20261121", home) == [RUNS[0]]
    assert completed(f"{command} i", home) == ["io500"]


def test_without_saved_runs_only_the_word_for_the_last_is_completed(tmp_path: Path) -> None:
    assert completed("report ", tmp_path) == ["last"]
