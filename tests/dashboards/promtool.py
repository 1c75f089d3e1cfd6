"""Evaluates expressions over made series with promtool, as its unit tests of rules do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["check"]


def check(
    folder: Path, series: Mapping[str, str], expected: Sequence[tuple[str, float, Sequence[Mapping[str, Any]]]]
) -> str:
    """Return what promtool finds wrong, or nothing.

    `series` maps names to values in promtool's notation, a second apart; each of `expected` is an expression, a time in
    seconds, and its samples: ``labels`` and ``value``.
    """
    tests = {
        "interval": "1s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": expr, "eval_time": f"{time:g}s", "exp_samples": [*samples]} for expr, time, samples in expected
        ],
    }
    file = folder / "tests.yml"
    # JSON is YAML, and needs no care for quotes in expressions.
    file.write_text(json.dumps({"rule_files": [], "tests": [tests]}))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr
