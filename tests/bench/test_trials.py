from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trials import (
    GOAL,
    Ending,
    Rate,
    Trial,
    confidently_wrong,
    confusion,
    overall,
    rates,
    significantly_below,
    verdicts,
)

RATES = st.integers(1, 200).flatmap(lambda n: st.builds(Rate, st.integers(0, n), st.just(n)))
TEXT = st.text(max_size=20)
NUMBER = st.floats(0, 1e9)


def made(proof: str, ending: Ending, expected: str = "", found: str = "", confidence: str = "") -> Trial:
    return Trial(
        proof=proof, group="g", ending=ending, seconds=1.0, expected=expected, found=found, confidence=confidence
    )


@given(
    st.builds(
        Trial,
        proof=TEXT,
        group=TEXT,
        ending=st.sampled_from(Ending),
        seconds=NUMBER,
        reason=TEXT,
        first_right=st.none() | NUMBER,
        measured=st.dictionaries(TEXT, TEXT, max_size=3),
        disturbance=st.dictionaries(TEXT, NUMBER, max_size=3),
    )
)
def test_a_trial_is_one_line_and_comes_back_from_it(trial: Trial) -> None:
    line = trial.to_json()

    assert "\n" not in line
    assert Trial.from_json(line) == trial


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", '{"proof":"a"}', '{"proof":"a","group":"g","ending":"perhaps","seconds":1}',
     '{"proof":"a","group":"g","ending":"right","seconds":1,"more":1}'],
)  # fmt: skip
def test_what_is_no_trial_is_refused(line: str) -> None:
    with pytest.raises(msgspec.DecodeError) as error:
        Trial.from_json(line)
    assert isinstance(error.value, ValueError)


def test_no_trial_shares_what_it_measured_with_another() -> None:
    first, second = made("a", Ending.RIGHT), made("b", Ending.RIGHT)

    assert first.measured == {}
    assert first.measured is not second.measured


# R. G. Newcombe, Two-sided confidence intervals for the single proportion, Statistics in Medicine 17 (1998), 857-872,
# table I, method 3.
@pytest.mark.parametrize(
    ("right", "judged", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_is_wilsons(right: int, judged: int, low: float, high: float) -> None:
    assert Rate(right, judged).interval == pytest.approx((low, high), abs=5e-5)


@given(RATES)
def test_the_interval_holds_the_share_and_mirrors(rate: Rate) -> None:
    low, high = rate.interval
    other = Rate(rate.judged - rate.right, rate.judged).interval

    assert 0 <= low <= rate.share <= high <= 1
    assert low < high
    assert (1 - other[1], 1 - other[0]) == pytest.approx((low, high))


def test_without_a_trial_nothing_is_known() -> None:
    nothing = Rate(0, 0)

    assert math.isnan(nothing.share)
    assert nothing.interval == (0.0, 1.0)
    assert nothing.p_below(GOAL) == 1.0


@pytest.mark.parametrize(
    ("rate", "goal", "chance"),
    [
        (Rate(0, 1), 0.95, 0.05),
        (Rate(0, 2), 0.95, 0.0025),
        (Rate(1, 3), 0.95, 0.00725),
        (Rate(3, 3), 0.95, 1.0),
        (Rate(1, 2), 0.5, 0.75),
        (Rate(4, 5), 1.0, 0.0),
        (Rate(5, 5), 1.0, 1.0),
        (Rate(0, 5), 0.0, 1.0),
    ],
)
def test_the_chance_of_so_few_is_the_binomial_sum(rate: Rate, goal: float, chance: float) -> None:
    assert rate.p_below(goal) == pytest.approx(chance, rel=1e-12)


@given(RATES, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_chance_agrees_with_a_sum_of_floats_and_never_falls(rate: Rate, goal: float) -> None:
    terms = (math.comb(rate.judged, k) * goal**k * (1 - goal) ** (rate.judged - k) for k in range(rate.right + 1))

    assert rate.p_below(goal) == pytest.approx(math.fsum(terms), rel=1e-9, abs=1e-300)
    if rate.right < rate.judged:
        assert rate.p_below(goal) <= Rate(rate.right + 1, rate.judged).p_below(goal) <= 1


def test_thousands_of_trials_are_no_trouble() -> None:
    assert Rate(1900, 2000).p_below(0.95) == pytest.approx(0.51, abs=0.01)


def test_a_goal_that_is_no_probability_is_refused() -> None:
    with pytest.raises(ValueError, match="a probability of"):
        Rate(1, 1).p_below(1.5)


@pytest.mark.parametrize(
    ("right", "judged", "named"),
    [(0, 1, False), (0, 2, False), (0, 3, True), (1, 3, False), (1, 4, True), (2, 5, True), (3, 6, False)],
)
def test_among_31_scenarios_so_many_have_to_be_wrong(right: int, judged: int, named: bool) -> None:
    found = {f"good {number}": Rate(judged, judged) for number in range(30)} | {"bad": Rate(right, judged)}

    assert significantly_below(found, GOAL) == (["bad"] if named else [])


@given(st.integers(1, 40), st.integers(0, 40))
def test_one_wrong_trial_each_is_never_enough(wrong: int, right: int) -> None:
    one_each = {f"wrong {number}": Rate(0, 1) for number in range(wrong)}
    one_each |= {f"right {number}": Rate(1, 1) for number in range(right)}

    assert significantly_below(one_each, GOAL) == []


def test_the_level_is_divided_among_those_that_are_left() -> None:
    # Of 20 rates: a chance of 0.05 ** 2 is not below 0.05 / 20, but is below 0.05 / 19.
    good = {f"good {number}": Rate(2, 2) for number in range(19)}

    assert significantly_below({**good, "twice": Rate(0, 2)}, GOAL) == []
    assert significantly_below({**dict(list(good.items())[:18]), "thrice": Rate(0, 3), "twice": Rate(0, 2)}, GOAL) == [
        "thrice",
        "twice",
    ]


def test_a_rate_that_was_never_judged_does_not_make_the_others_harder_to_name() -> None:
    never = {f"never {number}": Rate(0, 0) for number in range(100)}

    assert significantly_below({**never, "bad": Rate(0, 2)}, GOAL) == ["bad"]


@given(st.lists(RATES, max_size=20), st.sampled_from([0.01, 0.05, 0.2]))
def test_a_stricter_level_names_no_other(found: list[Rate], alpha: float) -> None:
    named = {str(number): rate for number, rate in enumerate(found)}
    strict, loose = significantly_below(named, GOAL, alpha / 2), significantly_below(named, GOAL, alpha)

    assert loose[: len(strict)] == strict
    assert all(named[name].share < GOAL for name in loose)


def test_rates_count_what_was_judged_in_the_order_of_the_trials() -> None:
    found = [made("b", Ending.RIGHT), made("a", Ending.NOT_JUDGED), made("b", Ending.WRONG), made("b", Ending.RIGHT)]

    assert list(rates(found).items()) == [("b", Rate(2, 3)), ("a", Rate(0, 0))]
    assert overall(found) == Rate(2, 3)
    assert overall([]) == Rate(0, 0)


def test_only_verdicts_that_were_judged_are_confused_and_in_the_same_order_whatever_came_first() -> None:
    found = [
        made("c", Ending.WRONG, "stuck", "idle", "high"),
        made("a", Ending.RIGHT, "resource", "resource", "high"),
        made("b", Ending.NOT_JUDGED, "resource", "several", "high"),
        made("a", Ending.WRONG, "resource", "several", "low"),
        made("a", Ending.RIGHT, "resource", "resource"),
        made("alert", Ending.WRONG),
    ]
    expected = {("resource", "resource"): 2, ("resource", "several"): 1, ("stuck", "idle"): 1}

    assert list(confusion(found).items()) == list(expected.items())
    assert confusion(reversed(found)) == expected
    assert confidently_wrong(found) == [found[0]]
    assert verdicts(found) == found[:5]


def test_a_trial_can_not_be_changed() -> None:
    with pytest.raises(AttributeError):
        made("a", Ending.RIGHT).ending = Ending.WRONG  # type: ignore[misc]


def test_lines_of_two_trials_are_read_with_what_they_leave_out() -> None:
    line = msgspec.json.encode({"proof": "a", "group": "g", "ending": "not judged", "seconds": 2})

    assert not Trial.from_json(line).judged
