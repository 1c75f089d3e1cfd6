"""The tree of a query is as Prometheus parses it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from promql import Aggregate, Binary, Call, Literal, PromqlError, Selector, Subquery, labels_of, parse, shown, walk

KNOWN: Mapping[str, frozenset[str]] = {
    "a": frozenset({"host", "cpu"}),
    "b": frozenset({"host", "disk"}),
    "a_total": frozenset({"host", "cpu"}),
}


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", Selector("a")),
        ('a:b:c{x=~"($x)|}", y!="1",}', Selector("a:b:c", (("x", "=~", "($x)|}"), ("y", "!=", "1")))),
        ('{__name__="a"}', Selector("", (("__name__", "=", "a"),))),
        ("a[$__rate_interval]", Selector("a", (), "$__rate_interval")),
        ("a[5m] offset 1h30m", Selector("a", (), "5m")),
        ("a @ end()", Selector("a", fixed=True)),
        ("(a > 1)[1h:10s]", Subquery(Binary(">", Selector("a"), Literal("1")), "1h:10s")),
        ("a - b - 1", Binary("-", Binary("-", Selector("a"), Selector("b")), Literal("1"))),
        ("a or b and a", Binary("or", Selector("a"), Binary("and", Selector("b"), Selector("a")))),
        ("2 ^ 3 ^ 2", Binary("^", Literal("2"), Binary("^", Literal("3"), Literal("2")))),
        ("-a * 2", Binary("*", Binary("-", Literal("0"), Selector("a")), Literal("2"))),
        ("topk by (x) ($n, a)", Aggregate("topk", Selector("a"), Literal("$n"), "by", ("x",))),
        ("sum(a) without (x, y)", Aggregate("sum", Selector("a"), None, "without", ("x", "y"))),
        ("time() # now", Call("time", ())),
        (
            "a / on (x) group_left (y, z) b",
            Binary("/", Selector("a"), Selector("b"), "on", ("x",), "group_left", ("y", "z")),
        ),
        ("a >= bool ignoring () b", Binary(">=", Selector("a"), Selector("b"), "ignoring", (), "", (), True)),
        ("1h + ${__range_s}", Binary("+", Literal("1h"), Literal("${__range_s}"))),
    ],
)
def test_a_query_has_the_tree_that_its_operators_and_parentheses_say(text: str, tree: object) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize("text", ["", "a b", "sum(", "a{x}", "a{x=1}", "a +", "max by (a", "a ! b", "sum()"])
def test_what_is_no_query_is_an_error(text: str) -> None:
    with pytest.raises(PromqlError):
        parse(text)


def test_a_walk_says_what_each_part_stands_in() -> None:
    tree = parse("sum by (host) (rate(a_total[1m])) + b")

    assert {
        node.name: [above.name for above in path if isinstance(above, Call | Aggregate)]
        for node, path in walk(tree)
        if isinstance(node, Selector)
    } == {"a_total": ["sum", "rate"], "b": []}


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("a", "__name__ host cpu"),
        ("a == 1", "__name__ host cpu"),
        ("a == bool 1", "host cpu"),
        ("1 - a", "host cpu"),
        ("time() - a", "host cpu"),
        ("rate(a_total[1m])", "host cpu"),
        ("last_over_time(a[1m])", "__name__ host cpu"),
        ("max_over_time((a > 1)[1h:])", "host cpu"),
        ("sum(a)", ""),
        ("sum by (host, nothing) (a)", "host"),
        ("sum without (cpu) (a)", "host"),
        ("topk by (host) (3, a)", "__name__ host cpu"),
        ('count_values by (host) ("value", a)', "host value"),
        ("a * on (host) b", "host"),
        ("a * ignoring (cpu, disk) b", "host"),
        ("a * on (host) group_left (disk) b", "host cpu disk"),
        ("a * on (host) group_right () b", "host disk"),
        ("a and on (host) b", "__name__ host cpu"),
        ("a or b", "__name__ host cpu disk"),
        ('label_replace(a, "x", "$1", "host", "(.*)")', "__name__ host cpu x"),
        ('label_join(sum by (cpu) (a), "x", " ", "cpu")', "cpu x"),
        ('absent(a{host="1", cpu=~"2"})', "host"),
        ("vector(0)", ""),
    ],
)
def test_the_labels_of_a_result_are_those_that_its_operations_leave(text: str, labels: str) -> None:
    assert labels_of(parse(text), KNOWN) == set(labels.split())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a * b", ["a", "b"]),
        ("a and b", ["a"]),
        ("a unless on (host) (b > 1)", ["a"]),
        ("a or b", ["a", "b"]),
        ("count by (host) (a) + max(b)", ["b"]),
        ("absent(a)", []),
        ("a * 0 + b", ["b"]),
        ("count_over_time((a > 1)[1h:])", []),
    ],
)
def test_what_is_counted_made_0_or_only_chooses_is_not_shown(text: str, names: list[str]) -> None:
    assert [selector.name for selector, _ in shown(parse(text))] == names


def test_a_selector_by_a_pattern_reads_what_fits_it() -> None:
    (selector,) = (
        node for node, _ in walk(parse('sum by (cpu) ({__name__=~"a.*", host="1"})')) if isinstance(node, Selector)
    )

    assert selector.names(KNOWN) == ["a", "a_total"]
    assert labels_of(selector, KNOWN) == {"__name__", "host", "cpu"}
