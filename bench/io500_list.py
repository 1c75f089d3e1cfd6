"""Reads a clone of the IO500 list's public data, and prints what was understood: `bench/io500_list.py DIR`.

DIR is a clone of https://github.com/IO500/submission-data. All of it takes some minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from statistics import median, quantiles

from pinchpoint.benchmarks.io500_folder import folder_runs
from pinchpoint.benchmarks.io500_public import TOTAL, io500_figures
from pinchpoint.benchmarks.result_files import ResultFilesError
from pinchpoint.diagnosis.io500_rules import result_folder
from pinchpoint.diagnosis.tail import Tail, score_without_tails, tails
from pinchpoint.runs import RunState


def main() -> None:
    """Print counts of submissions, runs, figures, rules and contradictions, and what tails cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    directories = sorted(path for path in parser.parse_args().directory.rglob("submission-*") if path.is_dir())
    counts: Counter[str] = Counter()
    gains: list[float] = []
    stonewalls: list[float] = []
    for directory in directories:
        try:
            runs = folder_runs(directory, 0.0, lambda line: None)
        except ResultFilesError as error:
            print(f"no run: {error}", file=sys.stderr)
            continue
        for run in runs:
            folder, state = result_folder(run), run.run.state
            counts["runs"] += 1
            counts["figures"] += sum(bool(mark.results) for mark in state.phases)
            counts["phases with times of ranks"] += sum(detail.ranks is not None for detail in folder.details)
            counts["runs with contradictions or gaps"] += bool(folder.notes)
            counts.update(f"{rule.name}: {rule.state}" for rule in folder.rules)
            if (gained := gain(state, tails(folder.details, state.phases))) is not None:
                gains.append(gained)
            for detail in folder.details:
                if detail.phase.startswith("mdtest") and len(detail.wall_rates) == 2:
                    exact, estimate = detail.wall_rates
                    stonewalls.append(abs(estimate.middle / exact.middle - 1))
    print(f"{len(directories)} submissions")
    for name, count in sorted(counts.items()):
        print(f"{count:6} {name}")
    if len(gains) > 1:
        print(f"without tails {len(gains)} scores gain {median(gains):.1%} (median), "
              f"{quantiles(gains, n=10)[-1]:.1%} (p90), {max(gains):.1%} (at most)")  # fmt: skip
    if stonewalls:
        wide = sum(one > 0.02 for one in stonewalls)
        print(f"{wide} of {len(stonewalls)} stonewall rates of mdtest differ from rank average / -W by more than 2 %")


def gain(state: RunState, found: dict[str, Tail]) -> float | None:
    """Return by how much a score would be higher without tails, as a share; None if that is not known."""
    total = io500_figures(state).get(TOTAL, 0.0)
    without = score_without_tails(total, found) if total else None
    return None if without is None else without[0] / total - 1


if __name__ == "__main__":
    main()
