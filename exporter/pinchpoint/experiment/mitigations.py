"""The runbooks' mitigations that are one reversible setting: data, in ``mitigations.toml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache

import msgspec

from pinchpoint.experiment.knob import KnobCommands
from pinchpoint.expressions import expression
from pinchpoint.shipped import shipped
from pinchpoint.tomlfile import decode_toml

__all__ = ["Mitigation", "MitigationClass", "all_mitigations", "classes", "mitigations_for"]

FILE = "mitigations.toml"
VALUE = expression(r"[A-Za-z0-9_.:-]{1,64}")
"""What --value may be: nothing that a shell would read as more than one word."""


class MitigationClass(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A kind of change."""

    what: str
    unattended: bool
    """Whether an experiment may apply it; it still needs the operator's --yes."""


class Mitigation(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"class_": "class"}):
    """One mitigation; the top of the file explains the fields."""

    class_: str
    runbook: str
    resources: list[str]
    set: str
    undo: str
    check: str
    phases: list[str]
    risk: str
    restore: str = ""
    value: str = ""
    needs: str = ""
    known: str = ""

    def commands(self, value: str | None, seconds: float) -> KnobCommands:
        """Return the commands of an experiment, with another `value`. Raises ValueError if it cannot have one."""
        set_ = self.set
        if value is not None:
            if not self.value:
                raise ValueError("this mitigation has no value to choose")
            if not VALUE.fullmatch(value):
                raise ValueError(f"{value!r} is not a plain word or number")
            head, _, tail = set_.rpartition(self.value)
            set_ = head + value + tail
        return KnobCommands(set_, self.restore, self.check, seconds)

    def expected(self, phases: Sequence[str]) -> list[str]:
        """Return which of these phases it is expected to change."""
        return [phase for phase in phases if any(fnmatchcase(phase, pattern) for pattern in self.phases)]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    mitigation: dict[str, Mitigation]
    classes: dict[str, MitigationClass] = msgspec.field(name="class")


@cache
def _file() -> _File:
    raw = shipped(f"experiment/{FILE}").read_bytes()
    return decode_toml(raw, _File, FILE)


def all_mitigations() -> Mapping[str, Mitigation]:
    """Return every mitigation by its name."""
    return _file().mitigation


def classes() -> Mapping[str, MitigationClass]:
    """Return every class by its name."""
    return _file().classes


def mitigations_for(words: Sequence[str]) -> dict[str, Mitigation]:
    """Return the mitigations for resources or kinds of a verdict, those of the first words first."""
    found: dict[str, Mitigation] = {}
    for word in words:
        found |= {
            name: each for name, each in all_mitigations().items() if word in each.resources and name not in found
        }
    return found
