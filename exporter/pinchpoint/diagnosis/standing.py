"""Where a run of IO500 stands among public runs: phase by phase, per node, and beside runs of the same file system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from pinchpoint.benchmarks.io500_plan import SHELL_PHASES
from pinchpoint.benchmarks.io500_public import TOTAL, PublicRun
from pinchpoint.diagnosis.tail import weight

__all__ = ["MIN_KIN", "Place", "Stand", "standing"]

MIN_KIN = 4
"""Runs of the same file system from which the phase that is furthest behind is named."""


class Place(msgspec.Struct, frozen=True):
    """The place of a figure among others."""

    runs: int
    """How many others there are."""
    below: float
    """Share of them that are lower, 0 to 1; equal ones count half."""
    median: float
    """Their median, in base units."""


class Stand(msgspec.Struct, frozen=True, kw_only=True):
    """Where one figure of a run stands; a place is None if there is nothing to compare it with."""

    figure: str
    """A phase, or `TOTAL`."""
    value: float
    """In base units."""
    among_all: Place | None
    among_all_per_node: Place | None
    among_kin: Place | None
    """Among the runs of the same file system."""
    among_kin_per_node: Place | None
    share: float | None
    """The figure as a share of the median of its file system, per node if that is known; None without such runs."""
    gain: float | None
    """By how much, as a share, the score would be higher with that median; None for the score, and where the run is not
    below it."""


def standing(
    figures: Mapping[str, float], nodes: int | None, public: Sequence[PublicRun], kin: Sequence[PublicRun]
) -> list[Stand]:
    """Return where each figure of a run from so many nodes stands: the score first, then the phases in their order.

    `kin` are the public runs of the same file system. A public run with the same figures is the run itself, and does
    not count.
    """
    others = [run for run in public if not _same(run.figures, figures)]
    alike = [run for run in kin if not _same(run.figures, figures)]
    found = []
    for name in (TOTAL, *SHELL_PHASES):
        if (value := figures.get(name)) is None:
            continue
        among_kin = _place(name, value, alike)
        per_node = _place_per_node(name, value, nodes, alike)
        share = None
        if nodes and per_node:
            share = value / nodes / per_node.median
        elif among_kin:
            share = value / among_kin.median
        found.append(
            Stand(
                figure=name,
                value=value,
                among_all=_place(name, value, others),
                among_all_per_node=_place_per_node(name, value, nodes, others),
                among_kin=among_kin,
                among_kin_per_node=per_node,
                share=share,
                gain=share ** -weight(name) - 1 if share and share < 1 and weight(name) else None,
            )
        )
    return found


def _same(first: Mapping[str, float], second: Mapping[str, float]) -> bool:
    """Return whether two runs have the same figures: one may be rounded to fewer digits."""
    common = first.keys() & second.keys()
    return len(common) > len(SHELL_PHASES) // 2 and all(
        abs(first[name] - second[name]) <= 5e-4 * second[name] for name in common
    )


def _place(name: str, value: float, others: Sequence[PublicRun]) -> Place | None:
    return _among(value, [run.figures[name] for run in others if name in run.figures])


def _place_per_node(name: str, value: float, nodes: int | None, others: Sequence[PublicRun]) -> Place | None:
    if not nodes:
        return None
    return _among(value / nodes, [run.figures[name] / run.nodes for run in others if name in run.figures and run.nodes])


def _among(value: float, others: Sequence[float]) -> Place | None:
    """Return the place of a figure; None if there are no others."""
    if not others:
        return None
    below = sum(other < value for other in others) + sum(other == value for other in others) / 2
    return Place(len(others), below / len(others), median(others))
