"""Settings that differ between two groups of runs: tags, command lines, and the facts of their hosts."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from pinchpoint.compat import StrEnum
from pinchpoint.diagnosis.facts import absence_tells
from pinchpoint.runs import OWN_TAGS

__all__ = ["Difference", "Knobs", "Origin", "Settings", "knobs"]

ONLY = ""
"""Stands for the host of runs that were measured on one host each, whatever their source called it."""


class Origin(StrEnum):
    """The source of a setting."""

    TAG = "tag"
    COMMAND = "command"
    HOSTS = "hosts"
    """Which hosts were measured."""
    FACT = "fact"


class Settings(msgspec.Struct, frozen=True):
    """What is known about the settings of one run."""

    run: str
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)
    command: Sequence[str] = ()
    """Empty where it isn't known."""
    facts: Mapping[str, Mapping[str, Sequence[str]]] = msgspec.field(default_factory=dict)
    """See `pinchpoint.diagnosis.facts`."""
    note: str = ""
    """The text before it in the file it was imported from."""


class Difference(msgspec.Struct, frozen=True):
    """A setting that differs between the groups, or within one."""

    origin: Origin
    name: str
    base: tuple[str, ...]
    """Each value that it has in a run of the base, in the order of the runs; empty text: not set."""
    other: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    """Hosts with this fact; empty for one host that needs no name, and for anything but a fact."""
    among: int = 1
    """Hosts that both groups have."""

    @property
    def varies(self) -> bool:
        """Whether it has several values within a group, so that the group's runs are not repeats in this."""
        return len(self.base) > 1 or len(self.other) > 1


class Knobs(msgspec.Struct, frozen=True):
    """Settings that differ between two groups, and runs without known settings."""

    differences: tuple[Difference, ...] = ()
    """Tags, then the command line, then hosts and their facts."""
    unknown: tuple[str, ...] = ()
    """Runs for which no fact of a host is known."""


def knobs(base: Sequence[Settings], other: Sequence[Settings]) -> Knobs:
    """Return which settings differ between two groups of runs, or within one."""
    unknown = tuple(dict.fromkeys(settings.run for settings in (*base, *other) if not settings.facts))
    return Knobs((*_tags(base, other), *_commands(base, other), *_hosts(base, other)), unknown)


def _tags(base: Sequence[Settings], other: Sequence[Settings]) -> Iterator[Difference]:
    names = dict.fromkeys(name for settings in (*base, *other) for name in settings.tags)
    for name in names:
        if name not in OWN_TAGS:
            sides = (_distinct(settings.tags.get(name, "") for settings in side) for side in (base, other))
            yield from _difference(Origin.TAG, name, *sides)


def _commands(base: Sequence[Settings], other: Sequence[Settings]) -> Iterator[Difference]:
    sides = [_distinct(shlex.join(settings.command) for settings in side if settings.command) for side in (base, other)]
    if all(sides):
        yield from _difference(Origin.COMMAND, "command", *sides)


def _hosts(base: Sequence[Settings], other: Sequence[Settings]) -> Iterator[Difference]:
    """Yield differing facts, each once for all hosts on which it differs in the same way."""
    runs = [[settings.facts for settings in side if settings.facts] for side in (base, other)]
    if not all(runs):
        return
    if all(len(facts) == 1 for side in runs for facts in side):
        runs = [[{ONLY: next(iter(facts.values()))} for facts in side] for side in runs]
    names = [_distinct(", ".join(sorted(facts)) for facts in side) for side in runs]
    yield from _difference(Origin.HOSTS, "hosts", *names)
    common = sorted(set.intersection(*(set().union(*side) for side in runs)))
    found: dict[Difference, list[str]] = {}
    for host in common:
        first, second = ([facts[host] for facts in side if host in facts] for side in runs)
        for difference in _facts(first, second):
            found.setdefault(difference, []).append(host)
    for difference, hosts in sorted(found.items(), key=lambda entry: entry[0].name):
        named = () if hosts == [ONLY] else tuple(hosts)
        yield Difference(
            origin=Origin.FACT,
            name=difference.name,
            base=difference.base,
            other=difference.other,
            hosts=named,
            among=len(common),
        )


def _facts(
    base: Sequence[Mapping[str, Sequence[str]]], other: Sequence[Mapping[str, Sequence[str]]]
) -> Iterator[Difference]:
    """Yield differing facts of one host, given one mapping per run."""
    for name in sorted(set().union(*base, *other)):
        sides = []
        for side in (base, other):
            known = [facts for facts in side if name in facts or absence_tells(name)]
            sides.append(_distinct(", ".join(facts.get(name, ())) for facts in known))
        if all(sides):
            yield from _difference(Origin.FACT, name, *sides)


def _difference(origin: Origin, name: str, base: tuple[str, ...], other: tuple[str, ...]) -> Iterator[Difference]:
    if len(base) > 1 or set(base) != set(other):
        yield Difference(origin, name, base, other)


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
