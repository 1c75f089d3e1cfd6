"""What a check can find: its texts, which are data (``check.toml`` beside this module), and the findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

import msgspec

from pinchpoint.compat import StrEnum
from pinchpoint.diagnosis.series import MAX_VALUE, label, series
from pinchpoint.metrics import ALERT_THRESHOLD, HOST_FACT_INFO
from pinchpoint.model import Snapshot
from pinchpoint.shipped import shipped
from pinchpoint.threads.roles import builtin_roles

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
"""Maximum number of names in a sentence; the others are counted."""


class Level(StrEnum):
    """What a finding means for the coming run."""

    PROBLEM = "problem"
    """The run would be void, slowed down, or impossible to explain."""
    HINT = "hint"
    """Worth knowing; whether it matters depends on the phases that count."""
    OK = "ok"
    UNSEEN = "not seen"
    """It could not be checked, which does not mean it is fine."""


class Check(msgspec.Struct, forbid_unknown_fields=True):
    """One check and its texts, in which names in braces are replaced by what was found."""

    what: str
    """Its subject, in a few words."""
    level: Level
    """The level of its findings."""
    when: str
    """When it finds something, with the threshold."""
    source: list[str]
    """The metrics it needs."""
    found: str
    matters: str = ""
    """Why it matters, in a sentence with a figure where there is one."""
    harmless: str = ""
    """When it does not matter."""
    ok: str = ""
    """The text if all is well; none if empty."""
    unseen: str = ""
    """The text if it could not be checked."""
    runbook: str = ""
    """The page in ``runbooks/`` that says more, without its suffix; else docs/check.md does."""
    threshold: float | None = None
    alert: str = ""
    """The alert whose threshold it uses: the exporter's, else that of roles.toml."""
    words: list[str] = []
    """Values that it looks for."""
    ranges: list[str] = []
    """Releases of Ceph that have the fault: from the first one of ``17.2.0-17.2.8`` on, and before the second one."""
    daemons: list[str] = []
    """Types of daemons that have the fault; all if empty."""
    since: str = ""
    before: str = ""
    """Releases of Linux that have the fault: from `since` on, and before `before`."""

    def fields(self) -> dict[str, str]:
        """Return the values for its texts that come from the check itself."""
        threshold = "" if self.threshold is None else f"{self.threshold:g}"
        return {
            "threshold": threshold,
            "words": ", ".join(self.words),
            "ranges": ", ".join("from {} (fixed in {})".format(*one.split("-", 1)) for one in self.ranges),
            "since": self.since,
            "before": self.before,
        }

    def page(self, name: str) -> str:
        """Return the path of the page that says more; `name` is the check's name."""
        return f"runbooks/{self.runbook}.md" if self.runbook else f"docs/check.md#{name}"


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one check of one thing: something found, nothing found, or nothing visible."""

    level: Level | None
    """None: the level of the check."""
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    """Its subject, if that is not the checked host."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as shown to people."""

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
    """Return that it could not be checked."""
    return Outcome(Level.UNSEEN, {name: str(value) for name, value in fields.items()})


class _File(msgspec.Struct, forbid_unknown_fields=True):
    check: dict[str, Check]


@cache
def all_checks() -> dict[str, Check]:
    """Return every check by its name, in the order in which findings are shown."""
    raw = shipped("diagnosis/check.toml").read_bytes()
    alerts = builtin_roles().alerts
    return {
        name: msgspec.structs.replace(check, threshold=alerts[check.alert]) if check.alert else check
        for name, check in msgspec.toml.decode(raw, type=_File).check.items()
    }


def checked(name: str, outcome: Outcome, hosts: tuple[str, ...]) -> Finding | None:
    """Return the text for an outcome, None if the check has none for it."""
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
    """Return one setting of a host, "" if it is not known."""
    return facts(snapshot).get(name, "")


def alert_threshold(snapshot: Snapshot, check: Check) -> float:
    """Return the threshold of a check; for a check with an alert, the one in force on that host."""
    for labels, value in series(snapshot, ALERT_THRESHOLD):
        if check.alert and label(labels, "alert") == check.alert:
            return value
    return MAX_VALUE if check.threshold is None else check.threshold


def listed(names: Iterable[str]) -> str:
    """Return names for a sentence: all of a few, the first of many."""
    every = list(dict.fromkeys(names))
    return ", ".join(_shortened(every))


def _shortened(names: list[str]) -> Iterator[str]:
    yield from names if len(names) <= MAX_LISTED_NAMES else names[: MAX_LISTED_NAMES - 1]
    if len(names) > MAX_LISTED_NAMES:
        yield f"and {len(names) - MAX_LISTED_NAMES + 1} more"
