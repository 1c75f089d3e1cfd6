"""Real experiments: knobs of a Ceph cluster that help, do nothing and hurt, and knobs that change nothing at all.

The cluster is started for this. Each experiment is a `pinchpoint experiment run` with four pairs, and the table has
what its ledger says. The knob that changes nothing is a file that nobody reads: whatever is claimed of it is wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experimented import conducted, in_words
from lab.cluster import Cluster, lacking
from page import machine, parser, publish, table
from pinchpoint.figures import format_figure

PAGE = Path(__file__).resolve().parent.parent / "docs" / "experiments.md"
SMALL_CACHE = 1 << 20
FILES = 3000
RATE = "bytes_per_second"
"""The rate of fio and of `rados bench`; of stats it is their number times the size of a file."""
STAT = [
    "fio", "--name=stat", "--ioengine=filestat", "--filesize=4k", f"--nrfiles={FILES}", "--openfiles=1",
    "--file_service_type=random",
]  # fmt: skip
WRITE = ["rados", "bench", "-p", "rbd", "4", "write", "-b", "16384", "-t", "32"]
MEMORY = [
    "fio", "--name=memory", "--ioengine=null", "--size=1g", "--bs=4k", "--rw=write", "--time_based", "--runtime=1",
]  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """One knob of the cluster, and the load that it is tried on."""

    daemons: str
    option: str
    before: int
    value: int
    load: str
    command: Sequence[str]

    @property
    def turns(self) -> dict[str, str]:
        """The commands of the knob."""
        setting = f"ceph config set {self.daemons} {self.option}"
        return {
            "set": f"{setting} {self.value}",
            "undo": f'{setting} "$PINCHPOINT_OLD"',
            "check": f"ceph config get {self.daemons} {self.option}",
        }


def trials(mount: Path) -> list[Trial]:
    """Return the knobs in the order in which they are tried."""
    stat = f"fio filestat, {FILES:,} files"
    write = "rados bench, 32 x 16 KiB"
    return [
        Trial("mds", "mds_cache_memory_limit", SMALL_CACHE, 4 << 30, stat, [*STAT, f"--directory={mount}"]),
        Trial("osd", "osd_memory_target", 4 << 30, 8 << 30, write, WRITE),
        Trial("osd", "bluestore_throttle_bytes", 64 << 20, 64 << 10, write, WRITE),
    ]


def rate(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the figure of the rate."""
    figure: Mapping[str, Any] = next(figure for figure in found["figures"] if figure["unit"] == RATE)
    return figure


def size(value: int) -> str:
    """Return a number of bytes in words."""
    return format_figure(value, "bytes")


def of_the_cluster(folder: Path) -> list[list[str]]:
    """Try each knob of a cluster; return the rows of the table."""
    rows = []
    with Cluster(store="bluestore") as cluster:
        environment = cluster.environment()
        mount = cluster.mount().path
        subprocess.run(
            [*STAT, f"--directory={mount}", "--ioengine=filecreate"], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        for trial in trials(mount):
            print(f"trying {trial.option} ...", file=sys.stderr)
            cluster.command("config set", who=trial.daemons, name=trial.option, value=str(trial.before))
            began = time.monotonic()
            found = conducted(folder, trial.option, trial.turns, trial.command, environment)
            figure = rate(found)
            rows.append(
                [
                    f"`{trial.option}` {size(trial.before)} to {size(trial.value)}", trial.load, str(figure["pairs"]),
                    in_words(figure), f"**{figure['decision']}**", "yes" if found["restored"] else "**no**",
                    f"{time.monotonic() - began:.0f} s",
                ]
            )  # fmt: skip
    return rows


def of_nothing(folder: Path, times: int) -> str:
    """Conduct experiments in which nothing changes; return a sentence with their decisions."""
    (folder / "knob").write_text("off")
    turns = {"set": "printf on >knob", "undo": 'printf %s "$PINCHPOINT_OLD" >knob', "check": "cat knob"}
    decisions: Counter[str] = Counter()
    for number in range(times):
        print(f"nothing, {number + 1} of {times} ...", file=sys.stderr)
        decisions[rate(conducted(folder, f"nothing-{number}", turns, MEMORY, os.environ))["decision"]] += 1
    claimed = sum(count for decision, count in decisions.items() if decision not in ("did not help", "undecided"))
    said = ", ".join(f"{count} {decision}" for decision, count in decisions.most_common())
    return f"In {times} experiments in which nothing changed (fio in memory), {claimed} claimed a change: {said}."


def main() -> None:
    """Conduct all, and write the section."""
    arguments = parser(__doc__)
    arguments.set_defaults(page=PAGE)
    arguments.add_argument("--nothing", type=int, default=20, help="experiments in which nothing changes")
    chosen = arguments.parse_args()
    if reason := lacking():
        publish("experiments", f"Not measured: {reason}.", chosen)
        return
    with tempfile.TemporaryDirectory() as name:
        rows = of_the_cluster(Path(name))
        nothing = of_nothing(Path(name), chosen.nothing)
    head = ["knob", "load", "pairs", "change of the rate (interval)", "decision", "restored", "took"]
    publish("experiments", f"{machine()}.\n\n{table(head, rows)}\n{nothing}", chosen)


if __name__ == "__main__":
    main()
