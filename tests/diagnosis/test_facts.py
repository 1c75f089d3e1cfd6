from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pinchpoint.diagnosis.facts as facts_module
from pinchpoint.diagnosis.facts import (
    MAX_FACTS_PER_HOST,
    MAX_VALUE_CHARACTERS,
    MAX_VALUES_PER_FACT,
    absence_tells,
    facts,
    merged,
)
from pinchpoint.model import Labels, Snapshot
from pinchpoint.wire.sources import parse_exposition
from register import read_by

GOLDEN = Path(__file__).parents[1] / "golden"
FACT = "pinchpoint_host_fact_info"
OPTION = "pinchpoint_ceph_option_daemons"
DISABLED = "pinchpoint_cpu_idle_state_disabled_cpus"
READ = sorted(read_by(facts_module))
WORDS = st.text(max_size=200)

Series = tuple[str, dict[str, str], float]


def snapshot(*series: Series) -> Snapshot:
    values: dict[str, dict[Labels, float]] = {}
    for name, labels, value in series:
        values.setdefault(name, {})[tuple(sorted(labels.items()))] = value
    return Snapshot(1.0, values)


def of(*series: Series) -> dict[str, list[str]]:
    return facts({"h": snapshot(*series)}).get("h", {})


def fact(name: str, value: str) -> Series:
    return FACT, {"fact": name, "value": value}, 1.0


def option(name: str, value: str, daemons: float = 1.0) -> Series:
    return OPTION, {"type": "mds", "option": name, "value": value}, daemons


def test_what_a_recorded_server_exports_becomes_its_facts() -> None:
    found = facts({"xeon": parse_exposition((GOLDEN / "xeon.prom").read_text(), 1.0)})["xeon"]

    assert found["governor"] == ["powersave"]
    assert found["cpu_driver"] == ["intel_pstate"]
    assert found["energy_preference"] == ["balance_performance"]
    assert found["turbo"] == ["on"]
    assert found["cpu_performance_limit"] == ["100%"]
    assert found["mount:ceph"] == ["acl,noshare,relatime,rw"]
    assert found["cmdline"] == ["intel_idle.max_cstate=9 numa=fake=8"]
    assert found["idle_state:C6"] == ["on"]
    assert "idle_states" not in found


def test_an_idle_state_is_on_off_or_off_on_some_cpus() -> None:
    found = of(
        fact("cpus", "8"),
        fact("idle_states", "POLL,C1,C6(off)"),
        (DISABLED, {"state": "C1"}, 0.0),
        (DISABLED, {"state": "C1E"}, 3.0),
        (DISABLED, {"state": "C6"}, 8.0),
    )

    assert found == {
        "cpus": ["8"],
        "idle_state:C1": ["on"],
        "idle_state:C1E": ["off on 3 CPUs"],
        "idle_state:C6": ["off"],
    }


def test_options_of_ceph_have_a_value_for_each_way_in_which_its_daemons_are_set() -> None:
    found = of(
        option("mds_cache_memory_limit", "12884901888", 3.0),
        option("mds_cache_memory_limit", "1073741824"),
        option("mds_bal_interval", "10", 0.0),
        option("osd_mclock_profile", ""),
    )

    assert found == {
        "mds:mds_cache_memory_limit": ["1073741824", "12884901888"],
        "mds:osd_mclock_profile": ["(empty)"],
    }


def test_daemons_are_counted_with_their_ranks_and_releases_and_clients_are_not() -> None:
    up, info, held = "pinchpoint_ceph_socket_up", "pinchpoint_ceph_daemon_info", "pinchpoint_mds_rank_held"
    found = of(
        (up, {"daemon": "mds.a"}, 1.0),
        (up, {"daemon": "mds.b"}, 0.0),
        (up, {"daemon": "osd.0"}, 1.0),
        (up, {"daemon": "client.admin"}, 1.0),
        (info, {"daemon": "mds.a", "version": "16.2.15", "cluster": "c"}, 1.0),
        (held, {"daemon": "mds.a"}, 1.0),
        (held, {"daemon": "mds.b"}, 0.0),
    )

    assert found == {
        "mds:daemons": ["2"],
        "mds:ranks": ["1"],
        "mds:version": ["16.2.15"],
        "osd:daemons": ["1"],
    }


def test_limits_of_cgroups_are_settings() -> None:
    found = of(
        ("pinchpoint_cgroup_cpu_quota_cpus", {"owner": "mds.a"}, 0.2),
        (
            "pinchpoint_cgroup_io_limit",
            {"owner": "osd.0", "device": "vda", "limit": "write_operations_per_second"},
            150.0,
        ),
        ("pinchpoint_cpu_frequency_limit_hertz", {"cpu": "0"}, 2.1e9),
        ("pinchpoint_cpu_frequency_limit_hertz", {"cpu": "1"}, 2.1e9),
    )

    assert found == {
        "cpu_frequency_limit": ["2.10 GHz"],
        "cpu_quota:mds.a": ["0.2 CPUs"],
        "io_limit:osd.0:write_operations_per_second": ["150"],
    }


def test_hosts_without_facts_are_left_out() -> None:
    assert facts({"a": snapshot(fact("mtu", "1500")), "b": Snapshot(1.0)}) == {"a": {"mtu": ["1500"]}}


def test_a_setting_that_was_changed_during_a_run_has_both_values() -> None:
    early = {"a": {"mtu": ["1500"], "turbo": ["on"]}, "b": {"mtu": ["1500"]}}
    late = {"a": {"mtu": ["9000"], "smt": ["off"]}, "c": {"mtu": ["9000"]}}

    assert merged(early, late) == {
        "a": {"mtu": ["1500", "9000"], "smt": ["off"], "turbo": ["on"]},
        "b": {"mtu": ["1500"]},
        "c": {"mtu": ["9000"]},
    }


def test_of_daemons_that_were_found_one_by_one_the_largest_number_counts() -> None:
    found = merged(
        {"a": {"mds:daemons": ["9"], "mds:ranks": ["2"]}}, {"a": {"mds:daemons": ["16"], "mds:ranks": ["1"]}}
    )

    assert found == {"a": {"mds:daemons": ["16"], "mds:ranks": ["2"]}}


@pytest.mark.parametrize(
    ("name", "tells"),
    [
        ("mount:ceph", True),
        ("cpu_quota:mds.a", True),
        ("io_limit:osd.0:write_operations_per_second", True),
        ("osd:daemons", True),
        ("cmdline", True),
        ("mds:mds_cache_memory_limit", False),
        ("governor", False),
        ("idle_state:C6", False),
    ],
)
def test_only_of_some_facts_the_absence_is_one_too(name: str, tells: bool) -> None:
    assert absence_tells(name) is tells


@given(
    st.lists(
        st.tuples(st.sampled_from(READ), st.dictionaries(st.sampled_from(["fact", "value", "type"]), WORDS)),
        max_size=60,
    ),
    st.floats(),
)
def test_what_a_foreign_server_says_stays_bounded(found: list[tuple[str, dict[str, str]]], value: float) -> None:
    known = facts({"h": snapshot(*((name, labels, value) for name, labels in found))})

    for values in known.get("h", {}).values():
        assert 0 < len(values) <= MAX_VALUES_PER_FACT
        assert all(0 < len(text) <= MAX_VALUE_CHARACTERS for text in values)
    assert merged(known, known) == known


def test_a_host_with_very_many_facts_keeps_some() -> None:
    assert len(of(*(fact(f"f{number}", "1") for number in range(2 * MAX_FACTS_PER_HOST)))) == MAX_FACTS_PER_HOST
