"""Every query of every dashboard, sent as Grafana sends it, and what is wrong with the answers.

No query may be refused, whatever is selected, and each has to return something: for all hosts and runs, or else for one
of them. (Queries that stand in for a missing exporter return something for hosts outside of the cluster.) The
exceptions and their reasons are in empty.toml.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dashboards.boards import generated
from grafana import Asked, Choice, Client, asked_of, derived, select_all, several, values_of

__all__ = ["ASKED", "BOARDS", "EMPTY", "Seen"]

SHOWN = 300.0
"""Seconds that the dashboards show."""
THIN = 5
"""One point in so many is queried, and all if these return nothing: only that counts."""

BOARDS: dict[str, dict[str, Any]] = {name.removesuffix(".json"): json.loads(text) for name, text in generated().items()}
ASKED = [asked for name, board in BOARDS.items() for asked in asked_of(name, board)]
EMPTY: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("empty.toml").read_text())


@dataclass(frozen=True)
class Seen:
    """What a Prometheus has seen up to a time, as dashboards that end then show it."""

    client: Client
    values: Mapping[str, Mapping[str, list[str]]]
    """The values of each dashboard's variables."""
    all: Mapping[str, Choice]
    """What selects everything on each dashboard."""

    @classmethod
    def by(cls, url: str, end: float) -> Self:
        """Return what a Prometheus has seen up to a Unix time."""
        client = Client(url, end, SHOWN)
        values = {
            board: {one["name"]: client.values(*values_of(one), {}) for one in _variables(board)} for board in BOARDS
        }
        return cls(client, values, {name: select_all(board, client) for name, board in BOARDS.items()})

    def choices(self, board: str) -> Iterator[tuple[str, Choice]]:
        """Yield possible selections, and the variable with only one value: all, each value, all values by name."""
        yield "", self.all[board]
        for name, values in self.values[board].items():
            for value in values:
                yield name, {**self.all[board], name: several([value])}
        yield "", {**self.all[board]} | {name: several(values) for name, values in self.values[board].items()}

    def series(self, asked: Asked, choice: Choice) -> list[dict[str, str]]:
        """Return the labels of a query's result. Raises AskError."""
        thin = self.client.ask(asked, choice, thin=THIN)["result"]
        return [series["metric"] for series in thin or self.client.ask(asked, choice)["result"]]

    def problem(self, asked: Asked) -> str:
        """Return what is wrong with the answers to a query, nothing if they are as they should be. Raises AskError."""
        full: list[str] = []
        everything = False
        for number, (variable, choice) in enumerate(self.choices(asked.board)):
            if variable and variable in full:
                continue  # one value with a result is enough
            if self.series(asked, choice):
                full.append(variable)
                everything |= number == 0
        if str(asked) in EMPTY["always"]:
            return f"{asked} has a result: remove it from empty.toml" if full else ""
        if str(asked) in EMPTY["sometimes"]:
            return ""
        if not full:
            return f"{asked} has no result:\n{asked.expr}"
        for name in self.values[asked.board] if everything else ():
            given = name in full or f"${name}" not in asked.expr
            if given == EMPTY["alone"].get(str(asked), "").startswith(f"{name}: "):
                return f"{asked} for any {name} alone gives {'something' if given else 'nothing'}"
        return ""


def _variables(board: str) -> list[dict[str, Any]]:
    """Return the variables that one chooses from what there is."""
    return [one for one in BOARDS[board]["templating"]["list"] if one["type"] == "query" and not derived(one)]
