"""Real experiments with a known truth: nothing changes, or a gain is planted.

The knob is a file. fio runs in memory; its rate is this machine's, or the one that the file says.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from experimented import conducted, in_words

GROUP = "Experiments"
SECONDS = 500.0
FIO = "fio --name=memory --ioengine=null --size=1g --bs=4k --rw=write --time_based --runtime=2 --output-format=normal"

Measured = MutableMapping[str, str]


def restored(directory: Path, name: str, knob: Mapping[str, str], command: list[str]) -> dict[str, Any]:
    """Return what an experiment found; it has restored its knob."""
    found = conducted(directory, name, knob, command, os.environ, SECONDS)
    assert found["restored"] is True
    return found


def report(found: Mapping[str, Any], measured: Measured) -> str:
    """Note the change and its interval; return the decision."""
    (figure,) = (figure for figure in found["figures"] if figure["primary"])
    measured["change"] = in_words(figure)
    measured["decision"] = found["decision"]
    return str(found["decision"])


def file_knob(directory: Path, off: str, on: str) -> dict[str, str]:
    (directory / "knob").write_text(off)
    return {"set": f"printf {on} > knob", "undo": 'printf %s "$PINCHPOINT_OLD" > knob', "check": "cat knob"}


@pytest.fixture(autouse=True)
def _fio() -> None:
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed")


def test_an_experiment_with_a_knob_that_does_nothing_claims_nothing(tmp_path: Path, measured: Measured) -> None:
    knob = file_knob(tmp_path, "off", "on")

    found = restored(tmp_path, "nothing", knob, FIO.split())

    assert report(found, measured) in ("did not help", "undecided")


def test_an_experiment_finds_a_planted_gain_of_ten_percent(tmp_path: Path, measured: Measured) -> None:
    knob = file_knob(tmp_path, "2000", "2200")

    found = restored(tmp_path, "planted", knob, ["sh", "-c", f"exec {FIO} --rate_iops=$(cat knob)"])

    assert report(found, measured) == "helped"
    (figure,) = (figure for figure in found["figures"] if figure["primary"])
    # fio keeps the rate to within some thousandths, and the interval of a rate that hardly varies is as narrow.
    assert figure["interval"][0] < 0.105
    assert figure["interval"][1] > 0.095
