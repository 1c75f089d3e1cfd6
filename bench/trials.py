"""Trials of claims, the rates at which they are right, and which of these rates are too low to be bad luck.

A *proof* is a claim that can be tried on a real machine: that the verdict on a fault is right, that an alert comes
before Ceph's own. A *trial* is one attempt. Nothing here reads a file or a clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple, Self

import msgspec

__all__ = [
    "ALPHA",
    "GOAL",
    "Ending",
    "Rate",
    "Trial",
    "by_chain",
    "by_proof",
    "confidently_wrong",
    "confusion",
    "overall",
    "rates",
    "significantly_below",
    "verdicts",
]

GOAL = 0.95
"""Share of judged trials that has to be right: of all verdicts together, and of each proof."""
ALPHA = 0.05
"""Probability with which a run of all proofs may call a rate too low that meets its goal."""


class Ending(StrEnum):
    """How a trial ends."""

    RIGHT = "right"
    WRONG = "wrong"
    NOT_JUDGED = "not judged"
    """Other load disturbed it, so that it says nothing about the claim."""


class Trial(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One attempt at a proof."""

    proof: str
    """Name of the proof, the same for all of its trials."""
    group: str
    """Heading under which the proof is shown."""
    ending: Ending
    seconds: float
    """Duration in wall time, in seconds."""
    reason: str = ""
    """Why it is wrong or was not judged."""
    truth: str = ""
    """The truth, in words."""
    expected: str = ""
    """The right kind of verdict, or several separated by ``, ``; "" if the proof is not a scenario."""
    found: str = ""
    """The kind of verdict that was given."""
    said: str = ""
    """The verdict in words."""
    confidence: str = ""
    """Confidence of the verdict: ``high``, ``medium`` or ``low``."""
    chain: str = ""
    """Whether what is full by who wakes whom alone is the true limit: ``right`` or ``wrong``; "" if nothing is."""
    led: bool = False
    """Whether the verdict is that of who wakes whom, since the rules named nothing."""
    first_right: float | None = None
    """Seconds from the start of the load to the first right verdict."""
    measured: Mapping[str, str] = {}
    """Other measurements by name, with their unit: ``{"lead over Ceph": "12.3 s"}``."""
    disturbance: Mapping[str, float] = {}
    """What other processes did meanwhile: `disturbance.Disturbance.numbers`."""

    @property
    def judged(self) -> bool:
        """Whether it says something about the claim."""
        return self.ending is not Ending.NOT_JUDGED

    def to_json(self) -> str:
        """Return it as one line of JSON, without a newline."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, line: str | bytes) -> Self:
        """Return the trial of a line that `to_json` gave. Raises ValueError (msgspec.DecodeError)."""
        return msgspec.json.decode(line, type=cls)


class Rate(NamedTuple):
    """The number of judged trials and of right ones among them."""

    right: int
    judged: int

    @property
    def share(self) -> float:
        """Share of right trials; NaN if none was judged."""
        return self.right / self.judged if self.judged else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % score interval of the true share.

        E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927), 209-212.
        L. D. Brown, T. T. Cai and A. DasGupta, Interval estimation for a binomial proportion, Statistical Science 16
        (2001), 101-133, recommend it for few trials: the usual one, share +- 1.96 standard errors, has no width when
        all trials are right.
        """
        if not self.judged:
            return 0.0, 1.0
        # Its import takes a second, and most users of this module need no interval.
        from scipy.stats import binomtest

        found = binomtest(self.right, self.judged).proportion_ci(method="wilson")
        return float(found.low), float(found.high)

    def p_below(self, goal: float) -> float:
        """Return the probability that so few are right, or fewer, if each trial is right with a probability of `goal`.

        It is the exact sum of the binomial distribution in integers, so that rounding never decides a tie with a level.
        """
        exact = Fraction(str(goal))
        if not 0 <= exact <= 1:
            raise ValueError(f"a probability of {goal}")
        hit, miss = exact.numerator, exact.denominator - exact.numerator
        ways = sum(math.comb(self.judged, k) * hit**k * miss ** (self.judged - k) for k in range(self.right + 1))
        return float(Fraction(ways, exact.denominator**self.judged))


def significantly_below(rates: Mapping[str, Rate], goal: float, alpha: float = ALPHA) -> list[str]:
    """Return the names whose rate is significantly below the goal, the clearest first.

    With many rates some look bad by chance, so the level is divided among those that are left (S. Holm, A simple
    sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6 (1979), 65-70): if every rate
    met the goal, this would name one in at most `alpha` of the cases. The rate of all trials is a separate test and
    must not be among them.

    For a goal of 0.95, one wrong trial is never enough: that happens in 5 % of the cases anyway. Among 31
    proofs the first one is named when 3 of 3 trials are wrong, 3 of 4 or 3 of 5; 2 of 2 is not enough, nor is 3 of 6.
    """
    chances = sorted(
        ((rate.p_below(goal), name) for name, rate in rates.items() if rate.judged), key=lambda one: one[0]
    )
    found = []
    for number, (chance, name) in enumerate(chances):
        if not chance < alpha / (len(chances) - number):
            break
        found.append(name)
    return found


def by_proof(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """Return the trials of each proof, in the order of their first ones."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.proof, []).append(trial)
    return found


def overall(trials: Iterable[Trial]) -> Rate:
    """Return the rate of all trials together."""
    endings = Counter(trial.ending for trial in trials)
    return Rate(endings[Ending.RIGHT], endings[Ending.RIGHT] + endings[Ending.WRONG])


def rates(trials: Iterable[Trial]) -> dict[str, Rate]:
    """Return the rate of each proof, in the order of their first trials; one that was never judged has 0 of 0."""
    return {name: overall(made) for name, made in by_proof(trials).items()}


def verdicts(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials of scenarios: those that ask for a verdict."""
    return [trial for trial in trials if trial.expected]


def confusion(trials: Iterable[Trial]) -> dict[tuple[str, str], int]:
    """Count the judged verdicts by true kind and given kind, sorted by both."""
    pairs = Counter((trial.expected, trial.found) for trial in verdicts(trials) if trial.judged)
    return dict(sorted(pairs.items()))


def by_chain(trials: Iterable[Trial]) -> dict[tuple[Ending, str], int]:
    """Count the judged verdicts that follow the rules, by their ending and by that of who wakes whom alone."""
    return dict(Counter((one.ending, one.chain) for one in verdicts(trials) if one.judged and not one.led))


def confidently_wrong(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials with a wrong verdict at high confidence: those that mislead."""
    return [trial for trial in trials if trial.ending is Ending.WRONG and trial.confidence == "high"]
