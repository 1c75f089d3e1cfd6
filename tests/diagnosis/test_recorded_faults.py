"""The verdict on real faults: recordings of `make prove`, judged without a machine.

Each file of tests/fixtures/faults has the two moments between which a scenario of tests/proofs was judged, and the
truth about it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from pinchpoint.diagnosis.inputs import INPUTS
from pinchpoint.diagnosis.verdict import Kind, Verdict, verdict
from pinchpoint.wire.recording import read_recording
from truth import Truth

FAULTS = Path(__file__).parents[1] / "fixtures" / "faults"
NAMES = sorted(path.stem for path in FAULTS.glob("*.json"))


def recorded(name: str, metrics: Callable[[str], bool] = lambda name: True) -> tuple[Truth, Verdict]:
    """Return the truth about a fault, and the verdict on it by these metrics."""
    facts = json.loads((FAULTS / f"{name}.json").read_bytes())
    run = facts.pop("run")
    facts["kind"] = [Kind(kind) for kind in facts["kind"]]
    before, after = (
        {
            host: replace(snapshot, values={name: series for name, series in snapshot.values.items() if metrics(name)})
            for host, snapshot in moment.items()
        }
        for moment in read_recording(FAULTS / f"{name}.om.gz")
    )
    return Truth(**facts), verdict(before, after, run=run)


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_on_a_recorded_fault_is_right(name: str) -> None:
    truth, found = recorded(name)

    assert truth.fits(found), f"{found.kind} ({found.words}), true is {truth.words()}"


@pytest.mark.parametrize("name", NAMES)
def test_the_metrics_that_a_verdict_depends_on_are_enough_for_it(name: str) -> None:
    assert recorded(name, INPUTS.__contains__)[1] == recorded(name)[1]


def test_what_is_full_by_who_wakes_whom_is_the_true_limit_and_contradicts_no_verdict() -> None:
    judged = {name: recorded(name) for name in NAMES}
    woken = {name for name, (_, found) in judged.items() if found.woken}

    assert len(woken) >= 5
    assert [name for name in woken if not judged[name][0].names(judged[name][1].woken)] == []
    assert [doubt for _, found in judged.values() for doubt in found.doubts if "full instead" in doubt] == []


def test_every_kind_of_verdict_that_a_fault_can_have_is_recorded() -> None:
    found = {recorded(name)[1].kind for name in NAMES}

    assert found >= {Kind.RESOURCE, Kind.SEVERAL, Kind.LATENCY_BOUND, Kind.STUCK, Kind.BLIND, Kind.IDLE}
