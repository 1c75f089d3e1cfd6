"""What a submission to the IO500 list asks for, as far as a run and the settings of its hosts show it.

The list asks for a description of the system and for answers to a questionnaire. Names and choices of fields are those
of ``webroot/model/schema-io500.json`` (2025-12-10, 9ea7ff4), questions those of
``templates/element/reproducibility-questionnaire.php`` of IO500/submission-system (2026-05-21). What nobody can
measure stays open and is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pinchpoint.compat import re
from pinchpoint.diagnosis.facts import Facts, uses_ceph
from pinchpoint.diagnosis.io500_rules import ResultFolder, RuleState
from pinchpoint.text import counted

__all__ = ["OPEN", "QUESTIONS", "SCHEMA", "Answer", "Part", "answers", "missing", "system"]

SCHEMA = "schema-io500.json of 2025-12-10 (IO500/submission-system 9ea7ff4)"
QUESTIONS = {
    "System Purpose": "What the system is for, which applications it runs, and what their data is used for.",
    "Availability": "Since when and for how long it is deployed, and who uses it.",
    "Storage System Software": "How the storage software can be had, and how it is deployed here.",
    "Runtime Environment": "Every script, option and setting that somebody needs to repeat the result.",
    "Fault Tolerance Mechanisms": "What happens when power, a link, a server or a disk fails.",
    "Execution": "How the benchmark was started, and whether anything else used the system.",
    "Caching": "Every cache in clients and servers.",
    "Data Source": "Whether this is the primary storage, or a layer in front of it.",
    "Trust": "Repeats, the limits of the hardware, and how persistence was made sure of.",
    "Reproducibility": "Which reproducibility score you expect, and why.",
}
OPEN = "TO DO"
"""Begins what a person has to write."""
SERVER_DAEMONS = ("mds", "mgr", "mon", "osd")
CACHE_OPTIONS = (
    "mds:mds_cache_memory_limit",
    "osd:osd_memory_target",
    "client:client_oc_size",
    "client:client_cache_size",
)
DISTRIBUTIONS = {
    "almalinux": "AlmaLinux",
    "centos": "CentOS",
    "opensuse-leap": "SUSE Community",
    "rhel": "RedHat",
    "rocky": "RockyLinux",
    "sles": "SUSE Enterprise",
    "ubuntu": "Ubuntu",
}
"""The schema's choices, by ID of os-release(5)."""
VENDORS = ("AMD", "Intel", "ARM", "Fujitsu")
HARDWARE = ("architecture", "cpu_model", "cpus", "sockets", "memory_gib", "disks:", "numa_nodes")
PRIVATE = ("network:",)
"""Facts that show addresses of a site, and change nothing."""
REQUIRED: Mapping[str, Sequence[str]] = {
    "Site": ("abbreviation", "institution", "nationality"),
    "IO500": (
        *("exclusive_cluster_usage", "number_clientNodes", "procsPerNode", "number_serverNodes", "storage type"),
        *("storage net capacity", "clients network bandwidth", "servers network bandwidth", "type of filesystem"),
    ),
    "StorageSystem": ("name", "software", "version", "vendor"),
    "Supercomputer": ("name",),
    "Nodes": ("vendor", "count", "distribution", "distribution version", "kernel version"),
    "Servers": ("count", "distribution", "distribution version", "kernel version"),
    "Processor": ("sockets", "model", "architecture", "cores per socket", "threads per core", "frequency"),
    "Memory": ("net capacity",),
    "Interconnect": ("model", "type", "speed", "features", "vendor", "links"),
    "StorageMedia": ("type", "count", "interface", "file system", "vendor", "net capacity"),
    "Ceph": ("version", "replication_strategy", "overlapping_metadata_dataservers"),
}
"""Fields that the schema requires of each part, and of Ceph those that it has."""
SERVER_PARTS = {"OSD": "Servers", "MDS": "Servers"}


class Part(msgspec.Struct, omit_defaults=True):
    """A part of the system, as the list's page reads and writes it."""

    type: str
    att: dict[str, Any] = {}
    """A number with a unit is a list of both."""
    childs: list[Part] = []


class Answer(msgspec.Struct, frozen=True):
    """A draft of an answer: what is known, then what a person has to add."""

    question: str
    known: list[str]
    open: str


def system(folder: ResultFolder, facts: Facts) -> Part:
    """Return the description of the system as far as it is known: every other required field is there, and empty."""
    servers, clients = _sides(facts)
    run = _filled("IO500", {"version": folder.version, "number_clientNodes": folder.nodes})
    if folder.nodes and folder.tasks and not folder.tasks % folder.nodes:
        run.att["procsPerNode"] = folder.tasks // folder.nodes
    if servers:
        run.att["number_serverNodes"] = len(servers)
        kinds = {kind for kind in ("ssd", "hdd") for host in servers.values() if f"disks:{kind}" in host}
        run.att["storage type"] = {"ssd": "SSD", "hdd": "HDD", "hddssd": "HDD/SSD"}.get("".join(sorted(kinds)), "")
    storage = _filled("StorageSystem", {})
    if uses_ceph(facts):
        run.att["type of filesystem"] = storage.att["software"] = "Ceph"
        storage.att["version"] = _same(servers or facts, "osd:version", "mds:version", "client:version")
        storage.childs = [_ceph(servers, storage.att["version"])]
    nodes = _machines("Nodes", "Nodes", clients)
    nodes.childs.append(_filled("Interconnect", {}))
    if folder.nodes:
        nodes.att["count"] = folder.nodes
    computer = Part("Supercomputer", _filled("Supercomputer", {}).att, [nodes])
    return Part("Site", _filled("Site", {}).att, [run, storage, computer])


def _sides(facts: Facts) -> tuple[Facts, Facts]:
    """Return the hosts with daemons of Ceph, and the clients: the other hosts, or those too that are both."""
    servers = {
        name: host for name, host in facts.items() if any(f"{daemon}:daemons" in host for daemon in SERVER_DAEMONS)
    }
    return servers, {name: host for name, host in facts.items() if name not in servers} or facts


def _ceph(servers: Facts, version: str) -> Part:
    found = _filled("Ceph", {"version": version})
    having = {
        daemon: {name for name, host in servers.items() if f"{daemon}:daemons" in host} for daemon in ("osd", "mds")
    }
    if having["osd"] and having["mds"]:
        found.att["overlapping_metadata_dataservers"] = "yes" if having["osd"] & having["mds"] else "no"
    for daemon, names in having.items():
        if names:
            hosts = {name: servers[name] for name in names}
            part = _machines(daemon.upper(), "Servers", hosts)
            part.childs += [*_media(hosts)] if daemon == "osd" else []
            part.childs.append(_filled("Interconnect", {}))
            found.childs.append(part)
    return found


def _machines(type_: str, scheme: str, hosts: Facts) -> Part:
    """Return hosts of one kind: what they have in common; a field in which they differ stays empty."""
    id_, _, release = _same(hosts, "distribution").partition(" ")
    known = {
        "count": len(hosts) or None,
        "distribution": DISTRIBUTIONS.get(id_, "other") if id_ else "",
        "distribution version": release,
        "kernel version": _same(hosts, "kernel"),
    }
    return Part(type_, _filled(scheme, known).att, [_processor(hosts), _memory(hosts)])


def _processor(hosts: Facts) -> Part:
    model, sockets, cpus = _same(hosts, "cpu_model"), _number(_same(hosts, "sockets")), _number(_same(hosts, "cpus"))
    threads = {"on": 2, "off": 1}.get(_same(hosts, "smt"))
    known: dict[str, Any] = {
        "model": model,
        "vendor": next((vendor for vendor in VENDORS if vendor.lower() in model.lower()), ""),
        "sockets": sockets,
        "architecture": {"x86_64": "x86_64", "aarch64": "ARM64", "ppc64le": "Power"}.get(
            _same(hosts, "architecture"), ""
        ),
        "threads per core": threads,
    }
    if cpus and sockets and threads and not cpus % (sockets * threads):
        known["cores per socket"] = cpus // (sockets * threads)
    if clock := re.search(r"@ (\d{1,2}(?:\.\d{1,3})?)GHz", model):
        known["frequency"] = [float(clock[1]), "GHz"]
    return _filled("Processor", known)


def _memory(hosts: Facts) -> Part:
    memory = _number(_same(hosts, "memory_gib"))
    return _filled("Memory", {"net capacity": [memory, "GiB"] if memory else ""})


def _media(hosts: Facts) -> Iterator[Part]:
    """Yield the disks of each kind and size, if all hosts have the same."""
    for kind in ("ssd", "hdd"):
        for count, size, unit in re.findall(
            r"(\d{1,9}) x (\d{1,9}(?:\.\d{1,9})?) (TB|GB)", _same(hosts, f"disks:{kind}")
        ):
            known = {
                "type": kind.upper(),
                "count": int(count),
                "net capacity": [float(size), unit],
                "file system": "BlueStore",
            }
            yield _filled("StorageMedia", known)


def _same(hosts: Facts, *names: str) -> str:
    """Return the value of the first of these facts that is known, if it is the same on all hosts that have it."""
    for name in names:
        values = {value for host in hosts.values() for value in host.get(name, ())}
        if values:
            return values.pop() if len(values) == 1 else ""
    return ""


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,8}", text) else None


def _filled(scheme: str, known: Mapping[str, Any]) -> Part:
    """Return a part with its required fields, empty where they are not known."""
    att = dict.fromkeys(REQUIRED[scheme], "") | {name: value for name, value in known.items() if value}
    return Part(scheme, att)


def missing(part: Part, above: str = "") -> Iterator[str]:
    """Yield the required fields that are empty, with the parts that they are in."""
    where = f"{above}{part.type}"
    for name in REQUIRED.get(SERVER_PARTS.get(part.type, part.type), ()):
        if part.att.get(name, "") == "":
            yield f"{where}: {name}"
    for child in part.childs:
        yield from missing(child, f"{where} / ")


def answers(
    folder: ResultFolder,
    facts: Facts,
    *,
    execution: Sequence[str] = (),
    repeats: Sequence[float] = (),
) -> list[Answer]:
    """Return drafts of the answers.

    `execution` is known of how it ran, in sentences; `repeats` are the scores of runs of the same name, this one
    included.
    """
    servers, clients = _sides(facts)
    ceph = uses_ceph(facts)
    software = []
    if ceph:
        version = _same(facts, "osd:version", "mds:version", "client:version")
        software.append(f"Ceph {version or 'of several releases'}, which is open source: https://ceph.io")
    daemons = [
        f"{counted(sum(map(int, counts)), f'{daemon.upper()} daemon')} on {counted(len(counts), 'host')}"
        for daemon in ("osd", "mds", "mon")
        if (counts := _counts(servers, daemon))
    ]
    if daemons:
        software.append(f"It runs {', '.join(daemons)}.")
    rules = [f"{rule.name}: {rule.words}" for rule in folder.rules if rule.state is RuleState.BROKEN]
    known: dict[str, list[str]] = {
        "Storage System Software": software,
        "Runtime Environment": [*_options(folder), *_settings("clients", clients), *_settings("servers", servers)],
        "Execution": [*execution],
        "Caching": [*_caches(facts)],
        "Trust": [
            *([f"{len(repeats)} runs of this name have the scores {', '.join(f'{one:.2f}' for one in repeats)}."]
              if len(repeats) > 1 else []),
            *(f"Broken rule: {words}" for words in rules),
        ],
    }  # fmt: skip
    return [Answer(question, known.get(question, []), f"{OPEN}: {words}") for question, words in QUESTIONS.items()]


def _counts(hosts: Facts, daemon: str) -> list[str]:
    found = (value for host in hosts.values() for value in host.get(f"{daemon}:daemons", ()))
    return [value for value in found if _number(value)]


def _options(folder: ResultFolder) -> Iterator[str]:
    for option in folder.options:
        was = "" if option.default is None else f" (default: {option.default or 'empty'})"
        yield f"config.ini, [{option.section}]: {option.option} = {option.value}{was}"


def _settings(side: str, hosts: Facts) -> Iterator[str]:
    """Yield the settings of a side of the cluster, hardware left out: the value, or the values by host."""
    for name in sorted({fact for host in hosts.values() for fact in host}):
        if not name.startswith((*HARDWARE, *PRIVATE)):
            values = {value for host in hosts.values() for value in host.get(name, ())}
            yield f"{side}: {name} = {' | '.join(sorted(values))}"


def _caches(facts: Facts) -> Iterable[str]:
    for name in CACHE_OPTIONS:
        if value := _same(facts, name):
            yield f"{name.partition(':')[2]} = {value}"
    if memory := _same(facts, "memory_gib"):
        yield f"The page cache of each host may use what is free of its {memory} GiB."
