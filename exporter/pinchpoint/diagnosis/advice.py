"""What to do about a limit, and the runbook that says more: data, in ``advice.toml`` beside this module."""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec

__all__ = ["Advice", "advice_on", "all_advice"]


class Advice(msgspec.Struct, forbid_unknown_fields=True):
    """What is said of one resource, or of one kind of verdict."""

    what: str
    """What it is, in a few words."""
    do: str
    """What to do first, in a sentence."""
    runbook: str = ""
    """The page in ``runbooks/`` that says more, without its ending."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    resource: dict[str, Advice]
    kind: dict[str, Advice]


@cache
def all_advice() -> _File:
    """Return the file's entries."""
    return msgspec.toml.decode(resources.files("pinchpoint.diagnosis").joinpath("advice.toml").read_bytes(), type=_File)


def advice_on(resource: str, kind: str) -> Advice:
    """Return what is said of a resource, or of the kind of a verdict that names none."""
    found = all_advice()
    return found.resource.get(resource) or found.kind.get(kind) or Advice("", "")
