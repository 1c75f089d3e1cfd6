from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinchpoint.diagnosis.knobs import Difference, Origin, Settings, knobs

Host = Mapping[str, Sequence[str]]


def settings(
    facts: Mapping[str, Host] | None = None, command: Sequence[str] = (), run: str = "r", **tags: str
) -> Settings:
    return Settings(run, tags, command, facts or {})


def host(**facts: str) -> Mapping[str, Host]:
    return {"this host": {name: [value] for name, value in facts.items()}}


def differences(base: Sequence[Settings], other: Sequence[Settings]) -> list[Difference]:
    return list(knobs(base, other).differences)


def test_tags_that_differ_are_named_and_equal_ones_are_not() -> None:
    found = differences([settings(c6="on", mtu="1500", sha256="x")], [settings(c6="off", mtu="1500", note="n")])

    assert found == [
        Difference(Origin.TAG, "c6", ("on",), ("off",)),
        Difference(Origin.TAG, "note", ("",), ("n",)),
    ]


def test_command_lines_are_compared_where_both_are_known() -> None:
    base, other = settings(command=["fio", "--bs=4k", "a b"]), settings(command=["fio", "--bs=64k", "a b"])

    assert differences([base], [other]) == [
        Difference(Origin.COMMAND, "command", ("fio --bs=4k 'a b'",), ("fio --bs=64k 'a b'",))
    ]
    assert differences([base], [settings()]) == []


def test_facts_of_the_one_host_are_compared_whatever_its_source_is_called() -> None:
    other = {"127.0.0.1:9748": {"mtu": ["9000"], "smt": ["on"]}}

    assert differences([settings(host(mtu="1500", smt="on"))], [settings(other)]) == [
        Difference(Origin.FACT, "mtu", ("1500",), ("9000",))
    ]


def test_a_fact_that_differs_in_the_same_way_on_several_hosts_is_one_difference() -> None:
    base = {name: {"mtu": ["1500"], "cpus": ["4"]} for name in "abc"}
    other = {"a": {"mtu": ["9000"], "cpus": ["4"]}, "b": {"mtu": ["9000"], "cpus": ["4"]}, "c": {"cpus": ["8"]}}

    assert differences([settings(base)], [settings(other)]) == [
        Difference(origin=Origin.FACT, name="cpus", base=("4",), other=("8",), hosts=("c",), among=3),
        Difference(origin=Origin.FACT, name="mtu", base=("1500",), other=("9000",), hosts=("a", "b"), among=3),
    ]


def test_hosts_that_only_one_side_measured_are_a_difference_and_their_facts_are_none() -> None:
    base = {"a": {"mtu": ["1500"]}, "b": {"mtu": ["1500"]}}

    assert differences([settings(base)], [settings({"b": {"mtu": ["1500"]}})]) == [
        Difference(Origin.HOSTS, "hosts", ("a, b",), ("b",))
    ]


def test_what_varies_inside_a_group_is_said_to_vary() -> None:
    base = [settings(host(mtu="1500"), c6="on"), settings(host(mtu="9000"), c6="on")]

    found = differences(base, [settings(host(mtu="1500"), c6="on")])

    assert found == [Difference(Origin.FACT, "mtu", ("1500", "9000"), ("1500",))]
    assert found[0].varies
    assert differences(base, base)[0].varies


def test_a_fact_with_several_values_on_a_host_is_one_text() -> None:
    base = settings({"h": {"mds:version": ["16.2.15", "17.2.7"]}})

    assert differences([base], [settings({"h": {"mds:version": ["17.2.7"]}})]) == [
        Difference(Origin.FACT, "mds:version", ("16.2.15, 17.2.7",), ("17.2.7",))
    ]


def test_a_fact_that_one_side_could_not_see_is_no_difference_and_a_mount_that_it_lacks_is_one() -> None:
    base = {"h": {"kernel": ["6.1"], "governor": ["powersave"], "mount:ceph": ["noshare"]}}

    assert differences([settings(base)], [settings(host(kernel="6.1"))]) == [
        Difference(Origin.FACT, "mount:ceph", ("noshare",), ("",))
    ]


def test_runs_without_facts_are_named_and_the_others_are_compared() -> None:
    base = [settings(host(mtu="1500"), run="a"), settings(run="b")]

    found = knobs(base, [settings(host(mtu="9000"), run="c")])

    assert found.unknown == ("b",)
    assert [difference.name for difference in found.differences] == ["mtu"]
    assert knobs(base[1:], base[:1]).differences == ()
