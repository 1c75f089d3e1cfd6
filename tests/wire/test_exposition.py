from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.registry import Collector

from pinchpoint.model import Metric, MetricKind, Point, Snapshot
from pinchpoint.wire import exposition
from pinchpoint.wire.exposition import openmetrics, text
from pinchpoint.wire.sampletext import most_heads, render_value
from pinchpoint.wire.sources import parse_exposition

COUNTER = Metric("a_seconds_total", "Seconds of something.", MetricKind.COUNTER, ("owner",))
GAUGE = Metric("b_bytes", "Bytes of something.", MetricKind.GAUGE, ("owner", "kind"))


def test_the_text_is_what_prometheus_expects() -> None:
    points = [GAUGE.point(1.5, "x", "y"), COUNTER.point(2, "x"), COUNTER.point(3, "z")]

    assert text(points) == (
        "# HELP a_seconds_total Seconds of something.\n"
        "# TYPE a_seconds_total counter\n"
        'a_seconds_total{owner="x"} 2.0\n'
        'a_seconds_total{owner="z"} 3.0\n'
        "# HELP b_bytes Bytes of something.\n"
        "# TYPE b_bytes gauge\n"
        'b_bytes{kind="y",owner="x"} 1.5\n'
    )


def test_an_exporter_whose_processes_come_and_go_remembers_their_series_as_they_are_now() -> None:
    for turn in range(100):
        shown = text(COUNTER.point(1, f"{turn}-{number}") for number in range(100))

        assert f'a_seconds_total{{owner="{turn}-99"}} 1.0\n' in shown
        assert sum(map(len, exposition._heads.values())) <= most_heads(101)


def test_series_of_one_metric_stand_together_wherever_they_came_from() -> None:
    points = [COUNTER.point(1, "x"), GAUGE.point(2, "x", "y"), COUNTER.point(3, "z")]

    for written in (text, openmetrics):
        lines = [line for line in written(points).splitlines() if line.startswith(("a_", "b_"))]
        assert lines == [
            'a_seconds_total{owner="x"} 1.0',
            'a_seconds_total{owner="z"} 3.0',
            'b_bytes{kind="y",owner="x"} 2.0',
        ]


def test_an_openmetrics_document_names_a_counters_family_without_total() -> None:
    assert openmetrics([COUNTER.point(1, "x")]) == (
        '# HELP a_seconds Seconds of something.\n# TYPE a_seconds counter\na_seconds_total{owner="x"} 1.0\n# EOF\n'
    )


def test_no_points_are_an_empty_exposition() -> None:
    assert text([]) == ""
    assert openmetrics([]) == "# EOF\n"


class Yardstick(Collector):
    """The same points as prometheus_client has them: a family for each metric, sorted by the name of the metric."""

    def __init__(self, points: list[Point]) -> None:
        self.points = points

    def collect(self) -> Iterator[Family]:
        families: dict[str, Family] = {}
        for metric, labels, value in self.points:
            name = metric.name.removesuffix("_total")
            family = families.setdefault(metric.name, Family(name, metric.help, metric.kind.value))
            family.add_sample(metric.name, dict(zip(metric.labels, labels, strict=True)), value)
        return (families[name] for name in sorted(families))


def with_all_digits(line: str) -> str:
    """Return a line of prometheus_client with its value as we write it: it has exponents from a million on."""
    head, _, value = line.rpartition(" ")
    return line if line.startswith("#") else f"{head} {render_value(float(value))}"


LABELS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10) | st.sampled_from(
    ["\\", '"', "\n", "\r", "\\n", '"} 5', "# EOF", "a,b", "\0", "\x85", "\u2028", " "]
)


@given(
    st.dictionaries(st.tuples(LABELS, LABELS), st.floats() | st.integers(-(10**18), 10**18), max_size=8),
    st.dictionaries(LABELS, st.floats(), max_size=8),
    st.text(st.characters(exclude_categories=["Cs"])),
)
def test_both_texts_are_those_of_prometheus_own_library(
    gauges: dict[tuple[str, str], float], counters: dict[str, float], text_of_help: str
) -> None:
    gauge = Metric("a_bytes", text_of_help, labels=("owner", "kind"))
    points = [
        *(gauge.point(value, *labels) for labels, value in gauges.items()),
        *(COUNTER.point(value, label) for label, value in counters.items()),
    ]

    registry = CollectorRegistry()
    registry.register(Yardstick(points))

    for written, library in ((text, generate_latest), (openmetrics, generate_openmetrics)):
        expected = library(registry).decode()
        assert written(points) == "".join(f"{with_all_digits(line)}\n" for line in expected.split("\n")[:-1])


@given(st.dictionaries(st.tuples(LABELS, LABELS), st.floats(allow_nan=False), max_size=4))
def test_every_label_and_value_comes_back_from_prometheus_text(series: dict[tuple[str, str], float]) -> None:
    points = [GAUGE.point(value, *labels) for labels, value in series.items()]

    assert parse_exposition(text(points), 1.0).values == Snapshot.of(1.0, points).values


@given(st.dictionaries(st.tuples(LABELS, LABELS), st.floats(allow_nan=False), max_size=4))
def test_every_label_and_value_comes_back_from_openmetrics_text(series: dict[tuple[str, str], float]) -> None:
    points = [GAUGE.point(value, *labels) for labels, value in series.items()]
    found = {
        (sample.labels["owner"], sample.labels["kind"]): sample.value
        for family in parse_openmetrics(openmetrics(points))  # type: ignore[no-untyped-call]
        for sample in family.samples
    }

    assert found == series


@pytest.mark.parametrize(
    "bad",
    [
        GAUGE.point(10**400, "x", "y"),
        GAUGE.point(-(10**400), "x", "y"),
        GAUGE.point("1", "x", "y"),  # type: ignore[arg-type]
        GAUGE.point(None, "x", "y"),  # type: ignore[arg-type]
        GAUGE.point(1j, "x", "y"),  # type: ignore[arg-type]
        GAUGE.point(1, "x", "\udcff"),
        GAUGE.point(1, "x", b"y"),  # type: ignore[arg-type]
        GAUGE.point(1, "x", None),  # type: ignore[arg-type]
        GAUGE.point(1, "x"),
        GAUGE.point(1, "x", "y", "z"),
    ],
    ids=lambda bad: repr(bad[1:])[:40],
)
def test_a_series_that_cannot_be_written_is_left_out_and_takes_no_other_with_it(bad: Point) -> None:
    good = [COUNTER.point(1, "x"), GAUGE.point(10**300, "a", "b")]
    points = [good[0], bad, good[1]]

    assert text(points) == text(good)
    assert openmetrics(points) == openmetrics(good)


@given(
    st.lists(
        st.tuples(
            st.integers(-(10**400), 10**400) | st.floats() | st.none() | st.text() | st.booleans(),
            st.text() | st.integers(),
        ),
        max_size=5,
    )
)
def test_whatever_a_value_or_a_label_is_the_others_are_served(foreign: list[tuple[float, str]]) -> None:
    points = [GAUGE.point(value, label, "foreign") for value, label in foreign]

    for served in (text, openmetrics):
        assert 'a_seconds_total{owner="x"} 5.0\n' in served([*points, COUNTER.point(5, "x")])
