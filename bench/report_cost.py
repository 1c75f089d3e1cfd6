"""How long `pinchpoint report` takes for a saved run of two minutes: the section "report" of the page.

The run is real: `rados bench`, then fio, on a host with a whole Ceph cluster, recorded by `pinchpoint run`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.cluster import Cluster
from page import Goal, machine, parser, publish, table

PHASE_SECONDS = 40
REPORTS = 5
PINCHPOINT = (sys.executable, "-m", "pinchpoint")


def record(directory: str, environment: Mapping[str, str]) -> None:
    """Run three phases on a new cluster, and save the run. Raises CalledProcessError if they fail."""
    job = ["fio", f"--directory={directory}", "--size=256m", "--time_based", f"--runtime={PHASE_SECONDS}"]
    phases = [*job, "--name=write", "--rw=write", "--bs=128k", "--name=read", "--stonewall", "--rw=randread"]
    rados = f"rados bench -p rbd {PHASE_SECONDS} write -t 16 -b 4096 --no-cleanup"
    with Cluster() as cluster:
        subprocess.run(
            [*PINCHPOINT, "run", "--quiet", "--", "sh", "-c", f"{rados} && exec {' '.join(phases)}"],
            env={**environment, **cluster.environment()}, stdout=subprocess.DEVNULL, check=True,
        )  # fmt: skip


def timed(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the wall and CPU seconds of a report."""
    before, begin = os.times(), time.monotonic()
    subprocess.run([*PINCHPOINT, "report", "last", *arguments], env=environment, capture_output=True, check=True)
    took, after = time.monotonic() - begin, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return took, used


def main() -> None:
    """Record a run, report it several times, and write the section of the page."""
    chosen = parser(__doc__).parse_args()
    rows, goals = [], []
    with tempfile.TemporaryDirectory(dir=".") as directory:
        environment = {**os.environ, "XDG_STATE_HOME": directory}
        record(directory, environment)
        (samples,) = Path(directory).rglob("samples.om.gz")
        for name, limit, arguments in (
            ("`pinchpoint report`", 1.0, ()),
            ("`pinchpoint report --html`", 3.0, ("--html", f"{directory}/report.html")),
        ):
            took, used = zip(*(timed(arguments, environment) for _ in range(REPORTS)), strict=True)
            rows.append([name, f"{statistics.median(took):.2f} ({min(took):.2f} to {max(took):.2f})",
                         f"{statistics.median(used):.2f}"])  # fmt: skip
            goals.append(Goal(f"{name} of a run of two minutes: time", limit, "s", statistics.median(took)))
        about = f"a recording of {samples.stat().st_size / 1e6:.1f} MB, compressed; median of {REPORTS}"
    head = ["command", "time, s (lowest to highest)", "CPU, s"]
    publish("report", f"{machine()}; {about}.\n\n{table(head, rows)}", chosen, goals)


if __name__ == "__main__":
    main()
