"""The made-up run as exporters show it, including the phase series of its client."""

from __future__ import annotations

from collections.abc import Iterator

from pinchpoint.model import Snapshot, Snapshots
from report.made import CLIENT, made_record, moments

__all__ = ["NAMES", "watched"]

NAMES = {"benchmark": "io500", "run": made_record().marker.run}


def watched(interval: float = 1.0) -> Iterator[Snapshots]:
    """Yield the moments of the run; the clock of its client is an hour behind."""
    marks = made_record().marker.phases
    for moment in moments(interval=interval):
        client = moment[CLIENT]
        values = {name: dict(series) for name, series in client.values.items()}
        for mark in marks:
            assert mark.end is not None
            if mark.start <= client.time:
                labels = tuple(sorted({**NAMES, "phase": mark.name}.items()))
                active = client.time < mark.end
                values.setdefault("pinchpoint_phase_active", {})[labels] = float(active)
                values.setdefault("pinchpoint_phase_start_timestamp_seconds", {})[labels] = mark.start - 3600
                elapsed = min(client.time, mark.end) - mark.start
                values.setdefault("pinchpoint_phase_elapsed_seconds", {})[labels] = elapsed
        yield {**moment, CLIENT: Snapshot(client.time, values)}
