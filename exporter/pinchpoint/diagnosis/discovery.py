"""Many figures at once: which may be claimed so that at most one claim in twenty is false.

A run of IO500 has twelve phases. If each is tested for itself, half of all comparisons of equal runs claim a
difference. Y. Benjamini and Y. Hochberg, Controlling the false discovery rate, J. R. Stat. Soc. B 57 (1995), control
the share of false claims among all claims, also for figures that rise and fall together (Benjamini and Yekutieli, Ann.
Stat. 29, 2001). If nothing changed, the probability of any claim is at most that share. Figures that the experiment is
about may have a larger weight: C. R. Genovese, K. Roeder and L. Wasserman, Biometrika 93 (2006).
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["FALSE_SHARE", "levels"]

FALSE_SHARE = 0.05
"""Maximum share of false claims among all claims."""


def levels(chances: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """Return for each figure the level that its probability by chance may not exceed for a claim.

    `chances` are two-sided p-values; `weights` have a mean of 1. An interval with this level excludes "no change"
    exactly if the figure is claimed; intervals of the claimed figures have the coverage of Y. Benjamini and D.
    Yekutieli, False discovery rate-adjusted multiple confidence intervals, JASA 100 (2005).
    """
    count = len(chances)
    shares = weights or [1.0] * count
    weighed = sorted(chance / share for chance, share in zip(chances, shares, strict=True))
    claims = max((rank for rank, value in enumerate(weighed, 1) if value <= rank * FALSE_SHARE / count), default=0)
    return [share * max(1, claims) * FALSE_SHARE / count for share in shares]
