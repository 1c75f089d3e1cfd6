from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.diagnosis.chains import Passed, WaitGraph
from pinchpoint.judge.places import STAGGER_ROWS, places
from pinchpoint.waits.chain import SELF, Kind, Node, Step

A, B, C, D = (Node(name, "worker") for name in "abcd")


def graph(steps: list[Node], passed: list[tuple[Node, Node]], heaviest: int) -> WaitGraph:
    share = 1 / len(steps)
    ways = tuple(Passed(*pair, share / (place + 1)) for place, pair in enumerate(passed))
    return WaitGraph(tuple(Step(node, share, {Kind.CPU: share}) for node in steps), ways, heaviest)


def test_the_heaviest_chain_leads_to_the_benchmark_at_the_right() -> None:
    assert places(graph([SELF, A, B], [(A, SELF), (B, A)], 2)) == {
        SELF: (0.0, 0.0), A: (-1.0, STAGGER_ROWS), B: (-2.0, 0.0)
    }  # fmt: skip


def test_others_are_below_it_beside_the_one_that_they_wake_most() -> None:
    found = places(graph([SELF, A, D, C, B], [(A, SELF), (C, A), (B, C), (B, SELF), (D, A)], 1))

    assert found[C] == (-2.0, 1.0)
    assert found[D] == (-2.0, 2.0)
    assert found[B] == (-3.0, 1.0 + STAGGER_ROWS)


def test_those_that_wake_each_other_or_nobody_have_a_place_too() -> None:
    found = places(graph([SELF, A, B, C], [(A, B), (B, A)], 0))

    assert found.keys() == {SELF, A, B, C}
    assert {found[node][0] for node in (A, B, C)} == {-1.0, -2.0}


@given(st.lists(st.tuples(st.sampled_from([SELF, A, B, C, D]), st.sampled_from([SELF, A, B, C, D]))), st.integers(0, 4))
def test_no_two_are_in_one_place(passed: list[tuple[Node, Node]], heaviest: int) -> None:
    found = places(graph([SELF, A, B, C, D], passed, heaviest))

    assert len({*found.values()}) == len(found) == 5
