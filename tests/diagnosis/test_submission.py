from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks.io500_detail import PhaseDetail
from pinchpoint.diagnosis.facts import Facts
from pinchpoint.diagnosis.io500_rules import ChangedOption, ResultFolder, Rule, RuleState
from pinchpoint.diagnosis.submission import QUESTIONS, REQUIRED, Part, answers, missing, system

CLIENT = {
    "kernel": ["5.14.0-427.el9.x86_64"],
    "distribution": ["rocky 9.4"],
    "cpu_model": ["Intel(R) Xeon(R) Gold 6252 CPU @ 2.10GHz"],
    "cpus": ["96"],
    "sockets": ["2"],
    "smt": ["on"],
    "architecture": ["x86_64"],
    "memory_gib": ["252"],
    "mount:ceph": ["nowsync,rw"],
    "network:10.1.0.0/16": ["9000"],
    "vm.dirty_ratio": ["20"],
}
SERVER = CLIENT | {
    "osd:daemons": ["12"],
    "osd:version": ["18.2.4"],
    "osd:osd_memory_target": ["8589934592"],
    "disks:ssd": ["12 x 3.84 TB"],
}
METADATA = CLIENT | {"mds:daemons": ["2"], "mds:version": ["18.2.4"], "mon:daemons": ["1"]}
FACTS: Facts = {"c0": CLIENT, "c1": CLIENT, "s0": SERVER, "s1": SERVER, "m0": METADATA}
FOLDER = ResultFolder(
    version="io500-isc26_v2",
    details=[PhaseDetail("find", tasks=160, nodes=10)],
    options=[ChangedOption("ior-easy", "transferSize", "4m", "2m")],
    rules=[Rule("writes take 300 s", RuleState.BROKEN, "ior_hard_write took 200 s", "ior_hard_write")],
)


def part(whole: Part, *path: str) -> dict[str, Any]:
    """Return the attributes of a part, by the types that lead to it."""
    for type_ in path:
        whole = next(child for child in whole.childs if child.type == type_)
    return whole.att


def test_the_run_is_described_by_its_folder_and_the_hosts_with_daemons() -> None:
    run = part(system(FOLDER, FACTS), "IO500")

    assert (run["version"], run["number_clientNodes"], run["procsPerNode"]) == ("io500-isc26_v2", 10, 16)
    assert (run["number_serverNodes"], run["storage type"], run["type of filesystem"]) == (3, "SSD", "Ceph")
    assert run["exclusive_cluster_usage"] == ""


def test_clients_are_the_hosts_without_daemons() -> None:
    whole = system(FOLDER, FACTS)

    nodes = part(whole, "Supercomputer", "Nodes")
    assert (nodes["count"], nodes["distribution"], nodes["distribution version"]) == (10, "RockyLinux", "9.4")
    processor = part(whole, "Supercomputer", "Nodes", "Processor")
    assert (processor["vendor"], processor["architecture"], processor["frequency"]) == ("Intel", "x86_64", [2.1, "GHz"])
    assert (processor["sockets"], processor["cores per socket"], processor["threads per core"]) == (2, 24, 2)
    assert part(whole, "Supercomputer", "Nodes", "Memory")["net capacity"] == [252, "GiB"]


def test_servers_of_ceph_are_described_by_their_daemons() -> None:
    whole = system(FOLDER, FACTS)

    ceph = part(whole, "StorageSystem", "Ceph")
    assert (ceph["version"], ceph["overlapping_metadata_dataservers"]) == ("18.2.4", "no")
    assert part(whole, "StorageSystem", "Ceph", "OSD")["count"] == 2
    assert part(whole, "StorageSystem", "Ceph", "MDS")["count"] == 1
    media = part(whole, "StorageSystem", "Ceph", "OSD", "StorageMedia")
    assert (media["type"], media["count"], media["net capacity"]) == ("SSD", 12, [3.84, "TB"])
    both = system(FOLDER, {"s0": SERVER | METADATA})
    assert part(both, "StorageSystem", "Ceph")["overlapping_metadata_dataservers"] == "yes"


def test_what_differs_between_hosts_or_is_not_known_stays_empty_and_is_named() -> None:
    other = CLIENT | {"memory_gib": ["126"], "distribution": ["plan9"]}
    whole = system(FOLDER, {"c0": CLIENT, "c1": other})

    assert part(whole, "Supercomputer", "Nodes", "Memory")["net capacity"] == ""
    gaps = list(missing(whole))
    assert "Site / Supercomputer / Nodes / Memory: net capacity" in gaps
    assert "Site / Supercomputer / Nodes: distribution" in gaps
    assert "Site / Supercomputer / Nodes: kernel version" not in gaps
    assert "Site: institution" in gaps
    assert part(system(FOLDER, {"c1": other}), "Supercomputer", "Nodes")["distribution"] == "other"


def test_without_any_settings_every_field_is_there_and_empty() -> None:
    gaps = list(missing(system(ResultFolder(), {})))

    assert len(gaps) == sum(
        len(REQUIRED[name])
        for name in ("Site", "IO500", "StorageSystem", "Supercomputer", "Nodes", "Processor", "Memory", "Interconnect")
    )


def test_answers_say_what_is_known_and_what_is_open() -> None:
    found = {
        answer.question: answer for answer in answers(FOLDER, FACTS, execution=["It took 3000 s."], repeats=[8.1, 8.3])
    }

    assert list(found) == list(QUESTIONS)
    assert "It runs 24 OSD daemons on 2 hosts, 2 MDS daemons on 1 host, 1 MON daemon on 1 host." in (
        found["Storage System Software"].known
    )
    environment = found["Runtime Environment"].known
    assert "config.ini, [ior-easy]: transferSize = 4m (default: 2m)" in environment
    assert "clients: mount:ceph = nowsync,rw" in environment
    assert "servers: osd:osd_memory_target = 8589934592" in environment
    assert not [line for line in environment if "10.1.0.0" in line or "cpu_model" in line]
    assert found["Execution"].known == ["It took 3000 s."]
    assert "osd_memory_target = 8589934592" in found["Caching"].known
    assert found["Trust"].known == [
        "2 runs of this name have the scores 8.10, 8.30.",
        "Broken rule: writes take 300 s: ior_hard_write took 200 s",
    ]
    assert found["System Purpose"].known == []
    assert {answer.open.partition(":")[0] for answer in found.values()} == {"TO DO"}


NAMES = st.sampled_from([*SERVER, *METADATA, "\x1b[31m"])


@given(
    st.dictionaries(st.text(max_size=5), st.dictionaries(NAMES, st.lists(st.text(max_size=20), max_size=3)), max_size=4)
)
def test_any_settings_make_a_description(facts: Facts) -> None:
    assert list(missing(system(FOLDER, facts)))
    assert len(answers(FOLDER, facts)) == len(QUESTIONS)
