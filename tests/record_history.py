"""Cuts the recording of a run to what the rules of the verdict read, so that it can be a fixture.

``python tests/record_history.py RECORDING FILE [SECONDS]``: the last 44 s of ``samples.om.gz`` that end so many seconds
before its end, every two seconds one moment.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pinchpoint.catalogue import all_metrics
from pinchpoint.model import Snapshot, time_of
from pinchpoint.recording import Recorder, read_recording
from verdict_agreement import KEPT, PACE, READ

KINDS = {metric.name: (metric.kind.value, "") for metric in all_metrics()}


def main(source: Path, target: Path, left: float = 0.0) -> None:
    """Write the cut recording."""
    moments = list(read_recording(source))
    end = time_of(moments[-1]) - left
    target.unlink(missing_ok=True)
    recorder = Recorder(target)
    last = float("-inf")
    for moment in moments:
        time = time_of(moment)
        if not end - KEPT < time <= end or time - last < PACE * 0.9:
            continue
        last = time
        kept = {
            host: Snapshot(one.time, {name: series for name, series in one.values.items() if name in READ})
            for host, one in moment.items()
        }
        recorder.add(kept, KINDS)
    recorder.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.0)
