"""The contribution of each phase to a score that is a mean of the phases, such as IO500's.

IO500's score is the geometric mean of a bandwidth and a rate of operations, each the geometric mean of its phases
(``main``, src/main.c of io500). So the score's change is the product of one factor for each phase.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean

from pinchpoint.diagnosis.comparison import ComparedFigure, Comparison, Key

__all__ = ["score_factors"]

UNITS = ("bytes_per_second", "operations_per_second")
TOLERANCE_SHARE = 0.01
"""By how much, as a share, the product of the factors may differ from the score's change: figures are rounded."""


def score_factors(comparison: Comparison) -> Mapping[Key, float]:
    """Return the factor of each phase in the score: 1.05 made it 5 % larger.

    Empty if the score is not such a mean of the phases, or if one is missing.
    """
    score = comparison.headline
    if score is None or not score.key.score or (total := _log_ratio(score)) is None:
        return {}
    found: dict[Key, float] = {}
    for unit in UNITS:
        rows = [row for row in comparison.rows if row.key.unit == unit and not row.key.score]
        for row in rows:
            if (ratio := _log_ratio(row)) is None:
                return {}
            found[row.key] = ratio / (len(UNITS) * len(rows))
    if not found or abs(sum(found.values()) - total) > TOLERANCE_SHARE:
        return {}
    return {key: math.exp(part) for key, part in found.items()}


def _log_ratio(row: ComparedFigure) -> float | None:
    """Return the logarithm of the ratio of two geometric means; None if a figure is not above 0."""
    if row.base is None or row.other is None or min(*row.base.values, *row.other.values) <= 0:
        return None
    return fmean(map(math.log, row.other.values)) - fmean(map(math.log, row.base.values))
