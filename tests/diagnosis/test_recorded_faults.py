"""The verdict on faults that were made for real: recordings of `make prove`, judged without a machine.

Each file of tests/fixtures/faults has the two moments between which a scenario of tests/proofs was judged there, and
what is true of it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pinchpoint.diagnosis.verdict import Kind, Verdict, verdict
from pinchpoint.wire.recording import read_recording
from truth import Truth

FAULTS = Path(__file__).parents[1] / "fixtures" / "faults"
NAMES = sorted(path.stem for path in FAULTS.glob("*.json"))


def recorded(name: str) -> tuple[Truth, Verdict]:
    facts = json.loads((FAULTS / f"{name}.json").read_bytes())
    run = facts.pop("run")
    facts["kind"] = [Kind(kind) for kind in facts["kind"]]
    before, after = read_recording(FAULTS / f"{name}.om.gz")
    return Truth(**facts), verdict(before, after, run=run)


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_on_a_recorded_fault_is_right(name: str) -> None:
    truth, found = recorded(name)

    assert truth.fits(found), f"{found.kind} ({found.words}), true is {truth.words()}"


def test_every_kind_of_verdict_that_a_fault_can_have_is_recorded() -> None:
    found = {recorded(name)[1].kind for name in NAMES}

    assert found >= {Kind.RESOURCE, Kind.SEVERAL, Kind.LATENCY_BOUND, Kind.STUCK, Kind.BLIND, Kind.IDLE}
