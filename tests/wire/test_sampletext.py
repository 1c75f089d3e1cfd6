from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from linear import costs_more_than_its_length
from pinchpoint.model import Labels
from pinchpoint.wire.sampletext import parse_head, render_head, render_value, split_sample

NAMES = st.from_regex(r"\A[a-zA-Z][a-zA-Z0-9_]{0,5}\Z")
LABELS = st.dictionaries(NAMES, st.text(max_size=8), max_size=3).map(lambda labels: tuple(sorted(labels.items())))
HOSTILE = (("a", '"\\\n,}={ # {x="1"} 1 2\r\x85\u2028'),)


@given(NAMES, LABELS)
@example("a", HOSTILE)
@example("a", (("b", "\\n"), ("c", "\\")))
def test_a_head_is_read_as_it_was_written(name: str, labels: Labels) -> None:
    assert parse_head(render_head(name, labels)) == (name, labels)


def test_many_labels_take_no_longer_than_their_head_is_long() -> None:
    def read(text: str) -> None:
        labels = ",".join(f'a{number}=""' for number in range(len(text)))
        parse_head(f"a{{{labels}}}")

    assert not costs_more_than_its_length(read, "", "x", "")


@given(LABELS, st.floats())
@example(HOSTILE, 1e-300)
def test_a_sample_is_read_as_prometheus_client_reads_it(labels: Labels, value: float) -> None:
    line = f"{render_head('a', labels)} {render_value(value)}"
    head, fields = split_sample(line)
    (family,) = text_string_to_metric_families(line + "\n")
    (sample,) = family.samples

    assert dict(parse_head(head)[1]) == sample.labels == dict(labels)
    assert float(fields[0]) == sample.value == value or (math.isnan(value) and math.isnan(float(fields[0])))


@given(st.dictionaries(LABELS, st.floats(allow_nan=False), min_size=1, max_size=4))
@example({HOSTILE: math.inf})
def test_what_prometheus_client_writes_is_read(values: dict[Labels, float]) -> None:
    class One(Collector):
        def collect(self) -> list[Family]:
            family = Family("a", 'Help with "quotes", \\ and\nlines.', "gauge")
            for labels, value in values.items():
                family.add_sample("a", dict(labels), value)
            return [family]

    registry = CollectorRegistry()
    registry.register(One())
    found = {}
    for line in generate_latest(registry).decode().split("\n"):
        if line and not line.startswith("#"):
            head, fields = split_sample(line)
            found[parse_head(head)] = float(fields[0])

    assert found == {("a", labels): value for labels, value in values.items()}


@pytest.mark.parametrize(
    "line", ["", "a", "a 1 2 3", "a{} ", '{a="b"} 1', 'a{b="c" 1', "a{b='c'} 1", 'a{b="c",b="d"} 1',
             'a{="c"} 1', 'a{b="c"d="e"} 1', "1a 1", 'a{b} 1', "ä 1", "a{,} 1"],
)  # fmt: skip
def test_a_line_that_is_no_sample_is_a_value_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"no (sample|name of a metric|labels): "):
        parse_head(split_sample(line)[0])


@given(st.text(max_size=20) | st.text(alphabet='a{}="\\, 1', max_size=12))
def test_any_line_is_a_sample_or_a_value_error(line: str) -> None:
    try:
        name, labels = parse_head(split_sample(line)[0])
    except ValueError:
        return

    assert name
    assert list(labels) == sorted(labels)
