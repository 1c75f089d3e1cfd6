from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.benchmarks.events import Began, Ended, Event, State
from pinchpoint.benchmarks.pattern import MAX_SEARCHED_CHARACTERS, pattern
from pinchpoint.runs import Result

STEPS = r"step (\w+)"
RESULTS = r"(?P<phase>[\w ]+): (?P<value>[\d.,e+-]+) ?(?P<unit>\S+)?"
OUTPUT = """\
starting
step load
loading, 3 files
step query
scan rows: 1,234.5 kIOPS
load: 2 GiB/s
"""


def events(regex: str, *pieces: str | bytes) -> list[Event]:
    reader = pattern("mine", ["mine"], re.compile(regex)).reader()
    raw = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    return [*(event for piece in raw for event in reader.feed(piece)), *reader.close()]


def test_the_first_group_names_a_phase() -> None:
    assert events(STEPS, OUTPUT) == [Began("load"), Began("query")]


def test_the_group_phase_comes_first() -> None:
    assert events(r"(step) (?P<phase>\w+)", OUTPUT) == [Began("load"), Began("query")]


def test_without_groups_all_that_was_found_is_the_name() -> None:
    assert events(r"step \w+", OUTPUT) == [Began("step_load"), Began("step_query")]


def test_a_group_that_found_nothing_leaves_the_name_to_all_that_was_found() -> None:
    assert events(r"step (x)?\w+", OUTPUT) == [Began("step_load"), Began("step_query")]


def test_names_are_canonical_and_an_empty_one_is_none() -> None:
    assert events(r"^(.*)$", "Ior-Easy Write!\n---\n") == [Began("ior_easy_write")]


def test_a_value_is_the_result_of_its_phase() -> None:
    assert events(RESULTS, OUTPUT) == [
        Ended("scan_rows", (Result("scan_rows", "operations_per_second", 1_234_500.0, "1,234.5 kIOPS"),)),
        Ended("load", (Result("load", "bytes_per_second", 2.0**31, "2 GiB/s"),)),
    ]


def test_beginnings_and_results_may_have_one_pattern() -> None:
    both = r"step (?P<phase>\w+)(?: gave (?P<value>\S+) (?P<unit>\S+))?"

    assert events(both, "step a\nstep a gave 5 ms\nstep b\n") == [
        Began("a"),
        Ended("a", (Result("a", "seconds", 0.005, "5 ms"),)),
        Began("b"),
    ]


def test_groups_of_figures_are_no_names() -> None:
    assert events(r"rate (?P<value>\d+) (?P<unit>\S+) of (\w+)", "rate 5 B of disk\n") == [
        Ended("disk", (Result("disk", "bytes", 5.0, "5 B"),))
    ]


@pytest.mark.parametrize("figure", ["5 parsecs", "1e400 s", "- s", "... s"])
def test_a_figure_that_is_none_is_left_out(figure: str) -> None:
    assert events(RESULTS, f"warp: {figure}\n") == [Ended("warp")]


def test_a_figure_without_unit_is_a_ratio() -> None:
    assert events(RESULTS, "hits: 0.5\n") == [Ended("hits", (Result("hits", "ratio", 0.5, "0.5"),))]


@given(st.sampled_from([STEPS, RESULTS]), st.lists(st.integers(0, len(OUTPUT)), max_size=10))
def test_events_are_the_same_however_the_bytes_are_cut(regex: str, cuts: list[int]) -> None:
    raw = OUTPUT.encode()
    places = sorted({0, len(raw), *cuts})

    assert events(regex, *(raw[start:end] for start, end in pairwise(places))) == events(regex, OUTPUT)


@given(st.sampled_from([STEPS, RESULTS, "(?P<value>.*)(?P<unit>.*)", "()"]), st.binary())
def test_nothing_raises(regex: str, output: bytes) -> None:
    events(regex, output)


def test_its_processes_are_one_phase_until_its_output_tells_more(machine: Machine) -> None:
    mine = pattern("mine", ["mine-with-a-long-name", "other"], re.compile("x"))
    machine.process(100, "mine-with-a-lon")
    machine.process(101, "other", ppid=100)
    tree = machine.tree()

    assert mine.name == "mine"
    assert machine.tree().comm(100) in mine.comms
    assert mine.leads(tree, 100)
    assert not mine.leads(tree, 101)
    sight = mine(tree, 100).look(tree, 100, 0.0)
    assert (sight.state, sight.phase, sight.vague) == (State.RUNNING, "mine", True)


def test_each_configuration_has_a_class_of_its_own() -> None:
    one, other = (pattern(name, [name], re.compile(f"{name} (\\w+)")) for name in ("one", "other"))

    assert (one.name, other.name) == ("one", "other")
    assert one.reader().feed(b"one a\nother b\n") == [Began("a")]
    assert other.reader().feed(b"one a\nother b\n") == [Began("b")]


def test_of_a_long_line_only_the_begin_is_searched() -> None:
    line = "a" * MAX_SEARCHED_CHARACTERS + " took"

    assert events(r"\w+ took", f"{line}\nwrite took\n".encode()) == [Began("write_took")]
