"""The answers to every query of every dashboard, from a Prometheus that has recorded real runs on a real cluster."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

from dashboards.kit.board import panels_of
from grafana import Asked, title_of
from metrics import TARGET, known_metrics
from patience import patience
from recording import Recorded, replayed
from seen import ASKED, BOARDS, EMPTY, Seen

TABLES = [
    (name, title_of(panel, board))
    for name, board in BOARDS.items()
    for panel in panels_of(board)
    if panel["type"] == "table" and "groupingToMatrix" not in {step["id"] for step in panel["transformations"]}
]
OTHERS = [name for name, known in known_metrics().items() if known.source in ("prometheus", "node", "ceph")]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    if shutil.which("prometheus") is None:
        pytest.skip("not installed: prometheus; `make setup` as root installs it")
    with replayed(tmp_path_factory.mktemp("recorded")) as found:
        yield found


@pytest.fixture(scope="module")
def seen(recorded: Recorded) -> Seen:
    return Seen.by(recorded.url, recorded.end)


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_query_gives_something_unless_there_is_a_reason(seen: Seen, asked: Asked) -> None:
    assert not seen.problem(asked)


@pytest.mark.parametrize(("board", "panel"), TABLES)
def test_a_row_of_a_table_is_one_series_of_each_query(seen: Seen, board: str, panel: str) -> None:
    """Otherwise Grafana cannot merge them: labels shared by two queries would match several rows of one."""
    _, everything = next(seen.choices(board))
    queries = [asked for asked in ASKED if (asked.board, asked.panel) == (board, panel)]
    given = {asked.ref: found for asked in queries if (found := seen.series(asked, everything))}
    if not given and all(str(asked) in EMPTY["always"] | EMPTY["sometimes"] for asked in queries):
        return
    assert given, "the table has no row"
    shared = frozenset.intersection(*(frozenset().union(*found) for found in given.values()))
    for ref, found in given.items():
        rows = Counter(tuple((label, series.get(label)) for label in sorted(shared)) for series in found)
        assert [row for row, count in rows.items() if count > 1] == [], f"query {ref}"


def test_variables_offer_what_there_is(seen: Seen) -> None:
    offered = {name: found for values in seen.values.values() for name, found in values.items()}

    assert {run.partition("-")[2] for run in offered["run"]} == {"first", "second", "fio"}
    assert len(offered["host"]) == 3
    assert len(offered["cluster"]) == 1


@pytest.mark.parametrize("name", OTHERS)
def test_metrics_of_others_are_what_the_list_says(recorded: Recorded, name: str) -> None:
    known = known_metrics()[name]
    found = httpx.get(f"{recorded.url}/api/v1/series", params={"match[]": name}, timeout=patience(10), trust_env=False)
    labels = {label for series in found.json()["data"] for label in series}
    kind = recorded.kinds.get(name, "unknown")

    assert labels - TARGET - {"__name__"} == known.labels - TARGET
    assert known.kind == ("gauge" if kind == "unknown" else kind)


def test_the_verdict_is_a_sentence_with_advice(seen: Seen) -> None:
    for board in ("bottleneck", "wall"):
        text, advice = (seen.all[board][name] for name in ("verdict", "advice"))

        assert re.fullmatch(
            r"\*\*.+\*\* (is full \d+ % of the time|for \d+ s now: no resource is the limit).*\. Confidence: \w+\.",
            text,
        )
        assert re.fullmatch(r"\w.+\. \[Read on\]\(.+\.md\)", advice)


def test_the_link_to_the_time_of_the_run_has_its_start_and_its_end(seen: Seen) -> None:
    began, ended = (seen.all["bottleneck"][name] for name in ("began", "ended"))

    assert seen.client.end - seen.client.seconds < int(began) / 1000 < seen.client.end
    assert ended == "now" or int(began) < int(ended) <= 1000 * seen.client.end


def test_every_reason_is_about_a_query() -> None:
    assert {name for names in EMPTY.values() for name in names} - {str(asked) for asked in ASKED} == set()
