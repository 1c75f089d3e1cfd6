"""What a check can find: the words of each, which are data (``check.toml`` beside this module), and what was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import resources

import msgspec

from pinchpoint.diagnosis.series import MAX_VALUE, label, series
from pinchpoint.metrics import ALERT_THRESHOLD, HOST_FACT_INFO
from pinchpoint.model import Snapshot
from pinchpoint.threads.roles import load_roles

__all__ = [
    "Check",
    "Finding",
    "Level",
    "Outcome",
    "alert_threshold",
    "all_checks",
    "checked",
    "fact",
    "facts",
    "fine",
    "found",
    "listed",
    "unseen",
]

MAX_LISTED_NAMES = 6
"""Names that a sentence lists; of more it says how many there are."""


class Level(StrEnum):
    """What a finding means for the run that is to come."""

    PROBLEM = "problem"
    """The run would be void, slowed down, or not to be explained."""
    HINT = "hint"
    """Worth knowing; whether it matters depends on the phases that count."""
    OK = "ok"
    UNSEEN = "not seen"
    """Nobody could look, which is not the same as being fine."""


class Check(msgspec.Struct, forbid_unknown_fields=True):
    """One thing that is looked at, and what is said of it. In texts, names in braces stand for what was found."""

    what: str
    """What it is about, in a few words."""
    level: Level
    """Of what it finds."""
    when: str
    """When it finds something, with the threshold."""
    source: list[str]
    """The metrics that tell it."""
    found: str
    matters: str = ""
    """Why it matters, in a sentence with a figure where there is one."""
    harmless: str = ""
    """When it does not matter."""
    ok: str = ""
    """What is said where there is nothing to find; nothing where it is empty."""
    unseen: str = ""
    """What is said where nobody could look."""
    runbook: str = ""
    """The page in ``runbooks/`` that says more, without its ending; else docs/check.md does."""
    threshold: float | None = None
    alert: str = ""
    """The alert whose threshold it has: the one that an exporter tells, else that of roles.toml."""
    words: list[str] = []
    """Values that it looks for."""
    since: str = ""
    before: str = ""
    """Releases of Linux that have the fault: from `since` on, and before `before`."""

    def fields(self) -> dict[str, str]:
        """Return what its texts can say of the check itself."""
        threshold = "" if self.threshold is None else f"{self.threshold:g}"
        return {"threshold": threshold, "words": ", ".join(self.words), "since": self.since, "before": self.before}

    def page(self, name: str) -> str:
        """Return the path of the page that says more; `name` is the check's."""
        return f"runbooks/{self.runbook}.md" if self.runbook else f"docs/check.md#{name}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one look at one thing gave: something found, nothing to find, or nothing to be seen."""

    level: Level | None
    """None: the level of the check."""
    fields: dict[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    """Whom it is about, where that is not the host that was looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is said to a person."""

    check: str
    what: str
    level: Level
    hosts: tuple[str, ...]
    text: str
    """A sentence with the value that was found."""
    matters: str
    harmless: str
    page: str


def found(**fields: object) -> Outcome:
    """Return that something was found."""
    return Outcome(None, {name: str(value) for name, value in fields.items()})


def fine(**fields: object) -> Outcome:
    """Return that all is well."""
    return Outcome(Level.OK, {name: str(value) for name, value in fields.items()})


def unseen(**fields: object) -> Outcome:
    """Return that nobody could look."""
    return Outcome(Level.UNSEEN, {name: str(value) for name, value in fields.items()})


class _File(msgspec.Struct, forbid_unknown_fields=True):
    check: dict[str, Check]


@cache
def all_checks() -> dict[str, Check]:
    """Return every check by its name, in the order in which findings are shown."""
    raw = resources.files("pinchpoint.diagnosis").joinpath("check.toml").read_bytes()
    alerts = load_roles().alerts
    return {
        name: msgspec.structs.replace(check, threshold=alerts[check.alert]) if check.alert else check
        for name, check in msgspec.toml.decode(raw, type=_File).check.items()
    }


def checked(name: str, outcome: Outcome, hosts: tuple[str, ...]) -> Finding | None:
    """Return the words for an outcome, None where the check has none for it."""
    check = all_checks()[name]
    level = outcome.level or check.level
    text = {Level.OK: check.ok, Level.UNSEEN: check.unseen}.get(level, check.found)
    if not text:
        return None
    matters, harmless = ("", "") if level in (Level.OK, Level.UNSEEN) else (check.matters, check.harmless)
    fields = check.fields() | outcome.fields
    return Finding(
        check=name,
        what=check.what,
        level=level,
        hosts=outcome.hosts or hosts,
        text=text.format_map(fields),
        matters=matters.format_map(fields),
        harmless=harmless.format_map(fields),
        page=check.page(name),
    )


def facts(snapshot: Snapshot) -> dict[str, str]:
    """Return the settings of a host by their names."""
    return {label(labels, "fact"): label(labels, "value") for labels, _ in series(snapshot, HOST_FACT_INFO)}


def fact(snapshot: Snapshot, name: str) -> str:
    """Return one setting of a host, "" where it is not known."""
    return facts(snapshot).get(name, "")


def alert_threshold(snapshot: Snapshot, check: Check) -> float:
    """Return the threshold of a check, for one with an alert that which is in force on that host."""
    for labels, value in series(snapshot, ALERT_THRESHOLD):
        if check.alert and label(labels, "alert") == check.alert:
            return value
    return MAX_VALUE if check.threshold is None else check.threshold


def listed(names: Iterable[str]) -> str:
    """Return names as a sentence has them: all of a few, the first of many."""
    every = list(dict.fromkeys(names))
    return ", ".join(_shortened(every))


def _shortened(names: list[str]) -> Iterator[str]:
    yield from names if len(names) <= MAX_LISTED_NAMES else names[: MAX_LISTED_NAMES - 1]
    if len(names) > MAX_LISTED_NAMES:
        yield f"and {len(names) - MAX_LISTED_NAMES + 1} more"
