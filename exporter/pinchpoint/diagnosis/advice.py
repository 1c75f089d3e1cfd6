"""What to do about a verdict, and the page that says more: data, in ``resources.toml`` and in ``advice.toml``."""

from __future__ import annotations

from functools import cache

import msgspec

from pinchpoint.resources import all_resources
from pinchpoint.shipped import shipped

__all__ = ["Advice", "advice_on", "kind_advice", "step_advice"]


class Advice(msgspec.Struct, forbid_unknown_fields=True):
    """The advice on one resource, one kind of verdict, or one step of an operation."""

    do: str
    """What to do first, in a sentence."""
    runbook: str = ""
    """The page in ``runbooks/`` that says more, without its suffix."""

    @property
    def page(self) -> str:
        """The path of the page that says more, from the root of the documentation."""
        return f"runbooks/{self.runbook}.md" if self.runbook else "docs/verdict.md"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    kind: dict[str, Advice]
    step: dict[str, Advice]


@cache
def _file() -> _File:
    raw = shipped("diagnosis/advice.toml").read_bytes()
    return msgspec.toml.decode(raw, type=_File)


def kind_advice() -> dict[str, Advice]:
    """Return the advice on the kinds of verdict that name no resource."""
    return _file().kind


def step_advice() -> dict[str, Advice]:
    """Return the advice on steps of operations (waterfall.py) that a latency-bound benchmark may wait for."""
    return _file().step


def advice_on(resource: str, kind: str) -> Advice:
    """Return the advice on a resource, or on the kind of a verdict that names none."""
    entry = all_resources().get(resource)
    if entry is not None and entry.do:
        return Advice(entry.do, entry.runbook)
    return kind_advice().get(kind) or Advice("")
