"""Samples of the threads of one resource, with the names of their functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from pinchpoint.profile.classes import CostRules, Frame, without_switch

__all__ = ["MAX_FUNCTIONS", "Collector", "Profile", "folded", "merged"]

MAX_FUNCTIONS = 10
"""Functions that are listed, by their own time."""
MAX_STACKS = 2000
"""Different stacks that are kept: the rarest are added up under `REST`."""
MAX_STACK_CHARACTERS = 2000
"""Characters of one stack that are kept: its innermost functions."""
MAX_FOLDED_CHARACTERS = 4 << 20
"""Characters of all stacks as text."""
REST = "[rare stacks]"
SEPARATOR = ";"


class Profile(msgspec.Struct, frozen=True):
    """What the threads of one resource did in one or several windows."""

    resource: str
    owner: str
    start: float
    end: float
    """Unix seconds."""
    samples: int
    classes: dict[str, int]
    """Samples by class."""
    functions: dict[str, int]
    """Samples by innermost function."""
    stacks: dict[str, int]
    """Samples by stack: functions from the outermost to the innermost, with a semicolon between them, as Brendan
    Gregg's flamegraph.pl reads them."""
    seconds: float = 0.0
    """CPU seconds that one sample stands for."""

    @property
    def top(self) -> list[tuple[str, int]]:
        """The functions with most samples."""
        return Counter(self.functions).most_common(MAX_FUNCTIONS)


class Collector:
    """Adds up the stacks of one resource."""

    def __init__(self, rules: CostRules) -> None:
        self._rules = rules
        self.classes: Counter[str] = Counter()
        self.functions: Counter[str] = Counter()
        self.stacks: Counter[str] = Counter()
        self.samples = 0

    def add(self, frames: Sequence[Frame], count: int) -> None:
        """Add `count` samples of a stack, innermost function first."""
        frames = without_switch(frames)
        self.samples += count
        self.classes[self._rules.decide(frames)] += count
        names = [frame.name.replace(SEPARATOR, ":") for frame in frames]
        if names:
            self.functions[names[0]] += count
            self.stacks[_joined(names)] += count

    def profile(self, resource: str, owner: str, start: float, end: float, seconds: float) -> Profile:
        """Return what was added, of samples taken from `start` to `end`, each for `seconds` of CPU time."""
        return Profile(
            resource,
            owner,
            start,
            end,
            self.samples,
            dict(self.classes),
            dict(self.functions.most_common(MAX_STACKS)),
            _frequent(self.stacks),
            seconds,
        )


def _joined(names: Sequence[str]) -> str:
    """Return a stack as text, outermost function first; what is too long loses its outermost functions."""
    length = 0
    kept = []
    for name in names:
        length += len(name) + len(SEPARATOR)
        if length > MAX_STACK_CHARACTERS:
            break
        kept.append(name)
    return SEPARATOR.join(reversed(kept))


def _frequent(stacks: Mapping[str, int]) -> dict[str, int]:
    found = dict(Counter(stacks).most_common(MAX_STACKS))
    if rest := sum(stacks.values()) - sum(found.values()):
        found[REST] = found.get(REST, 0) + rest
    return found


def merged(profiles: Iterable[Profile]) -> list[Profile]:
    """Return one profile for each resource, the one with most samples first."""
    groups: dict[tuple[str, str], list[Profile]] = {}
    for profile in profiles:
        groups.setdefault((profile.resource, profile.owner), []).append(profile)
    found = [_one(group) for group in groups.values()]
    return sorted(found, key=lambda profile: -profile.samples)


def _one(group: Sequence[Profile]) -> Profile:
    classes: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    stacks: Counter[str] = Counter()
    cpu = 0.0
    for profile in group:
        classes.update(profile.classes)
        functions.update(profile.functions)
        stacks.update(profile.stacks)
        cpu += profile.seconds * profile.samples
    samples = sum(profile.samples for profile in group)
    return Profile(
        group[0].resource,
        group[0].owner,
        min(profile.start for profile in group),
        max(profile.end for profile in group),
        samples,
        dict(classes),
        dict(functions),
        _frequent(stacks),
        cpu / samples if samples else 0.0,
    )


def folded(profiles: Iterable[Profile], since: float = 0.0) -> str:
    """Return the stacks as lines that flamegraph.pl, speedscope and inferno read; the root is the resource.

    Only windows that ended after `since`, in Unix seconds, count. At most `MAX_FOLDED_CHARACTERS` are returned.
    """
    lines: list[str] = []
    length = 0
    for profile in merged(profile for profile in profiles if profile.end > since):
        root = f"{profile.resource} of {profile.owner}".replace(SEPARATOR, ":")
        for stack, count in sorted(profile.stacks.items()):
            line = f"{root}{SEPARATOR}{stack} {count}\n"
            length += len(line)
            if length > MAX_FOLDED_CHARACTERS:
                return "".join(lines)
            lines.append(line)
    return "".join(lines)
