"""Sends a dashboard's queries to Prometheus, with Grafana's values for variables, steps and windows.

The arithmetic is that of Grafana 12.3: calculatePrometheusInterval, calculateRateInterval and AlignTimeRange
(pkg/promlib/models/query.go), RoundInterval (grafana-plugin-sdk-go, backend/gtime/interval.go), interpolateQueryExpr
(packages/grafana-prometheus/src/escaping.ts), prepareAnnotation (annotations.ts there).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

from dashboards.kit.board import panels_of
from dashboards.kit.queries import SCRAPE_SECONDS
from patience import patience

__all__ = [
    "AskError",
    "Asked",
    "Choice",
    "Client",
    "asked_of",
    "derived",
    "rate_interval",
    "select_all",
    "several",
    "step",
    "title_of",
    "values_of",
]

COLUMNS, PIXELS = 24, 1880
"""A dashboard's width on a screen of 1920 pixels."""
ANNOTATION_POINTS = 100
STEPS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
DERIVED = "query_result("
Choice = Mapping[str, str]
"""The replacement for each variable in a query."""


class AskError(Exception):
    """Prometheus refuses a query; the message is Prometheus' own."""


@dataclass(frozen=True)
class Asked:
    """A query of a panel, an annotation or a variable."""

    board: str
    panel: str
    ref: str
    expr: str
    scrape: float = SCRAPE_SECONDS
    points: int = ANNOTATION_POINTS
    instant: bool = False

    def __str__(self) -> str:
        return f"{self.board}/{self.panel}/{self.ref}"


def title_of(panel: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return the title of a panel, with its type if another panel has the same title."""
    alike = [one for one in panels_of(found) if one["title"] == panel["title"]]
    return str(panel["title"] if len(alike) == 1 else f"{panel['title']} ({panel['type']})")


def asked_of(board: str, found: Mapping[str, Any]) -> Iterator[Asked]:
    """Yield all queries of a dashboard except those of the variables that offer what there is."""
    for panel in panels_of(found):
        for target in panel.get("targets") or []:
            scrape = float(target.get("interval", f"{SCRAPE_SECONDS}s").removesuffix("s"))
            points, instant = PIXELS * panel["gridPos"]["w"] // COLUMNS, bool(target.get("instant"))
            yield Asked(
                board=board,
                panel=title_of(panel, found),
                ref=target["refId"],
                expr=target["expr"],
                scrape=scrape,
                points=points,
                instant=instant,
            )
    for annotation in found["annotations"]["list"]:
        scrape = float(annotation["step"].removesuffix("s"))
        yield Asked(board, "annotation", annotation["name"], annotation["expr"], scrape)
    for variable in found["templating"]["list"]:
        if variable["type"] == "query" and derived(variable):
            yield Asked(board, "variable", variable["name"], values_of(variable)[0], instant=True)


def select_all(found: Mapping[str, Any], client: Client) -> dict[str, str]:
    """Return what selects everything: the value for all, or what Grafana computes. Raises AskError.

    Where one may choose another computed value than the first, it is the last.
    """
    made: dict[str, str] = {}
    for variable in found["templating"]["list"]:
        if variable["type"] != "query":
            continue
        if not derived(variable):
            made[variable["name"]] = variable["allValue"]
        elif options := client.derived(*values_of(variable), made):
            made[variable["name"]] = options[0 if variable.get("hide") else -1]
    return made


def values_of(variable: Mapping[str, Any]) -> tuple[str, str]:
    """Return the query and the label that give a variable's values. Raises ValueError.

    They are in ``label_values(SELECTOR, LABEL)``, or in ``query_result(QUERY)`` with a pattern for the label.
    """
    text = variable["query"]["query"]
    if derived(variable):
        label = re.fullmatch(r'/(\w+)="\(\[\^"\]\*\)"/', variable.get("regex", ""))
        if label is None:
            raise ValueError(f"{variable.get('regex')!r} does not take a label's value from {text!r}")
        return text.removeprefix(DERIVED).removesuffix(")"), label[1]
    matched = re.fullmatch(r"label_values\((.+),\s*(\w+)\)", text)
    if matched is None:
        raise ValueError(f"{text!r} is not label_values(SELECTOR, LABEL)")
    return matched[1], matched[2]


def derived(variable: Mapping[str, Any]) -> bool:
    """Return whether a variable's values are computed."""
    return bool(variable["query"]["query"].startswith(DERIVED))


def step(seconds: float, points: int, least: float) -> float:
    """Return the seconds between the points of a panel that has room for `points` and shows `seconds`."""
    exact = seconds / points
    if exact < least:
        return least
    return next((low for low, high in pairwise(STEPS) if exact <= (low + high) / 2), STEPS[-1])


def rate_interval(step: float, scrape: float) -> float:
    """Return the seconds of ``$__rate_interval``."""
    return max(step + scrape, 4 * scrape)


def several(values: Sequence[str]) -> str:
    """Return a regular expression for the chosen values, quoted for a PromQL string."""
    escaped = [re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", value.replace("\\", r"\\\\")) for value in values]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def filled(expr: str, values: Mapping[str, str]) -> str:
    """Return an expression with its variables replaced; an unknown one stays, and Prometheus refuses it."""
    return re.sub(r"\$(\w+)|\$\{(\w+)(?::\w+)?\}", lambda found: values.get(found[1] or found[2], found[0]), expr)


@dataclass(frozen=True)
class Client:
    """A Prometheus at one time: the data of a dashboard that ends at `end` and spans `seconds`."""

    url: str
    end: float
    seconds: float
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=patience(60), trust_env=False), repr=False)

    def ask(self, asked: Asked, choice: Choice, *, points: int = 0, stats: str = "", thin: int = 1) -> dict[str, Any]:
        """Return the data of the answer: of the last `points` if that is not 0, one in `thin`. Raises AskError."""
        every = self.step(asked)
        values = {
            "__interval": f"{every:g}s",
            "__rate_interval": f"{rate_interval(every, asked.scrape):g}s",
            "__range": f"{self.seconds:g}s",
            "__range_s": f"{self.seconds:g}",
        }
        parameters = {"query": filled(asked.expr, {**choice, **values}), "stats": stats}
        if asked.instant:
            return self._post("query", {**parameters, "time": f"{self.end:.3f}"})
        start, end = (time // every * every for time in (self.end - self.seconds, self.end))
        if points:
            start = max(start, end - every * (points - 1))
        return self._post(
            "query_range", {**parameters, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{every * thin:g}"}
        )

    def step(self, asked: Asked) -> float:
        """Return the seconds between the points of the answer."""
        return step(self.seconds, asked.points, asked.scrape)

    def derived(self, expr: str, label: str, choice: Choice) -> list[str]:
        """Return the values of a computed variable: those of a label of the results. Raises AskError."""
        values = {**choice, "__range": f"{self.seconds:g}s"}
        found = self._post("query", {"query": filled(expr, values), "time": f"{self.end:.3f}"})["result"]
        return [str(one["metric"].get(label, "")) for one in found]

    def values(self, selector: str, label: str, choice: Choice) -> list[str]:
        """Return the values of a label, as a variable queries them. Raises AskError."""
        times = {"start": f"{self.end - self.seconds:.3f}", "end": f"{self.end:.3f}"}
        parameters = {"match[]": filled(selector, choice), **times}
        return list(_data(self.http.get(f"{self.url}/api/v1/label/{label}/values", params=parameters)))

    def _post(self, path: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        answer = self.http.post(f"{self.url}/api/v1/{path}", data=dict(parameters))
        return dict(_data(answer, parameters["query"]))


def _data(answer: httpx.Response, query: str = "") -> Any:
    found = answer.json()
    if found["status"] != "success":
        raise AskError(f"{found['errorType']}: {found['error']}\n{query}")
    return found["data"]
