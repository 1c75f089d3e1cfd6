from __future__ import annotations

import inspect
import re
import string
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from machines import MACHINES
from pinchpoint.build import HostSampler
from pinchpoint.clock import Clock
from pinchpoint.diagnosis import check as check_module
from pinchpoint.diagnosis import check_daemons, check_fleet, check_host, findings
from pinchpoint.diagnosis.check import NO_METRICS, check, sources
from pinchpoint.diagnosis.findings import Finding, Level, all_checks, listed
from pinchpoint.metrics import EXPORTER
from pinchpoint.model import Labels, Snapshot
from pinchpoint.probes import PROBES
from pinchpoint.probes.self_cost import SelfCost
from pinchpoint.wire.sources import parse_exposition
from register import read_by

ROOT = Path(__file__).parents[2]
MANAGERS = ROOT / "tests" / "fixtures" / "ceph" / "mgr_prometheus"
NOW = 1_600_000_000.0
GIB = 2.0**30

MODULES = (check_module, check_host, check_daemons, check_fleet, findings)
Series = tuple[str, Mapping[str, str], float]


def snapshot(*series: Series) -> Snapshot:
    """Return a snapshot; names of metrics may leave out pinchpoint_."""
    values: dict[str, dict[Labels, float]] = {}
    for name, labels, value in series:
        full = name if name.startswith("ceph_pg") or name in MANAGER else f"pinchpoint_{name}"
        values.setdefault(full, {})[tuple(sorted(labels.items()))] = value
    return Snapshot(NOW, values)


MANAGER = {"ceph_health_status", "ceph_health_detail", "ceph_osd_numpg", "ceph_osd_stat_bytes", "ceph_osd_metadata"}


def fact(name: str, value: str) -> Series:
    return "host_fact_info", {"fact": name, "value": value}, 1.0


def one(*series: Series) -> list[Finding]:
    """Return the findings on one host with these series."""
    return list(check({"a": snapshot(*series)}, {}))


def text(name: str, findings: list[Finding]) -> str:
    """Return the one finding of the check of that name."""
    (finding,) = (finding for finding in findings if finding.check == name)
    return finding.text


def governor(name: str, driver: str = "intel_pstate", epp: str = "") -> Series:
    return "cpu_governor_info", {"driver": driver, "governor": name, "epp": epp}, 1.0


def idle(state: str, latency: float, off: float = 0) -> list[Series]:
    return [
        ("cpu_idle_state_exit_latency_seconds", {"state": state}, latency * 1e-6),
        ("cpu_idle_state_disabled_cpus", {"state": state}, off),
        ("cpu_idle_exit_seconds_total", {"cpu": "0"}, 1.0),
        ("cpu_idle_exit_seconds_total", {"cpu": "1"}, 1.0),
    ]


def daemon(metric: str, name: str, value: float) -> Series:
    return metric, {"daemon": name}, value


def probe(metric: str, name: str, value: float) -> Series:
    return metric, {"probe": name}, value


def clients(client: str, number: float) -> Series:
    return "ceph_client_instances", {"client": client}, number


def mds(limit: float, memory: int, peak: float = 0.0) -> list[Series]:
    return [
        daemon("mds_cache_limit_bytes", "mds.a", limit * GIB),
        daemon("mds_cache_peak_bytes", "mds.a", peak * GIB),
        fact("memory_gib", str(memory)),
    ]


def numpg(osd: int, number: float, size: float = 1.0, kind: str = "ssd") -> list[Series]:
    name = {"ceph_daemon": f"osd.{osd}"}
    return [
        ("ceph_osd_numpg", name, number),
        ("ceph_osd_stat_bytes", name, size),
        ("ceph_osd_metadata", {**name, "device_class": kind}, 1.0),
    ]


def detail(name: str) -> Series:
    return "ceph_health_detail", {"name": name, "severity": "HEALTH_WARN"}, 1.0


def release(name: str, version: str) -> Series:
    return "ceph_daemon_info", {"daemon": name, "cluster": "c", "version": version}, 1.0


OSD_UP: Series = daemon("ceph_socket_up", "osd.0", 1)
QUOTA: Series = ("cgroup_cpu_quota_cpus", {"owner": "mds.a"}, 0.2)
HEALTH: Series = ("ceph_health_status", {}, 1.0)

FOUND: dict[str, tuple[list[Series], str]] = {
    "governor": (
        [governor("powersave", epp="balance_performance"), governor("performance")],
        "CPUs run under powersave of intel_pstate (preference balance_performance).",
    ),
    "turbo": ([("cpu_turbo_disabled", {}, 1)], "Turbo is off"),
    "performance_limit": ([("cpu_performance_limit_ratio", {}, 0.6)], "60%"),
    "frequency_limit": (
        [
            ("cpu_frequency_max_hertz", {"cpu": "0"}, 3.7e9),
            ("cpu_frequency_max_hertz", {"cpu": "1"}, 3.7e9),
            ("cpu_frequency_limit_hertz", {"cpu": "1"}, 2.1e9),
        ],
        "1 CPUs are limited to 2.1 of 3.7 GHz",
    ),
    "idle_states": (idle("C1", 2) + idle("C6", 133, off=1), "Enabled: C6 (133 us)."),
    "idle_states_off": (idle("C1", 2) + idle("C6", 133, off=2), "Off: C6 (133 us)."),
    "idle_poll": ([fact("cmdline", "idle=poll psi=1")], "idle=poll"),
    "numa_fake": ([fact("numa_fake", "8")], "numa=fake=8"),
    "zone_reclaim": ([fact("vm.zone_reclaim_mode", "1")], "is 1"),
    "swap": ([fact("swap", "disk,zram"), daemon("ceph_socket_up", "osd.0", 1)], "1 Ceph daemons"),
    "iommu": ([fact("iommu", "passthrough,translated")], "(passthrough,translated)"),
    "scheduler": ([fact("scheduler:ssd", "bfq,none"), fact("scheduler:hdd", "mq-deadline")], "bfq,none"),
    "write_cache": (
        [fact("write_cache:ssd", "write back,write through"), fact("write_cache:hdd", "write through"), OSD_UP],
        "cache: SSD.",
    ),
    "allocator": (
        [fact("allocator:ceph-osd", "libc"), fact("allocator:ceph-mds", "tcmalloc")],
        "ceph-osd uses that of libc.",
    ),
    "slow_rocksdb": (
        [fact("distribution", "ubuntu 22.04"), release("osd.0", "17.2.7"), release("osd.1", "18.2.4")],
        "Ceph 17.2.7 on Ubuntu",
    ),
    "messenger_spins": ([release("osd.0", "19.2.3"), release("mds.a", "20.2.0")], "Ceph 19.2.3: a full"),
    "bluestore_log": ([release("osd.0", "17.2.8"), release("mon.a", "17.2.9")], "Ceph 17.2.8 have"),
    "manager_deadlock": ([release("mgr.a", "16.2.8")], "manager of Ceph 16.2.8"),
    "swapped": ([fact("swapped", "yes"), OSD_UP], "1 Ceph daemons"),
    "huge_pages": (
        [
            fact("transparent_hugepage", "always"),
            fact("huge_pages:ceph-osd", "off,on"),
            fact("huge_pages:ceph-mds", "off"),
        ],
        "pages: ceph-osd.",
    ),
    "numa_devices": ([fact("numa:nic", "0"), fact("numa:nvme", "1")], "node 0, the NVMe drives are on node 1."),
    "numa_daemons": (
        [fact("numa:nic", "0"), fact("numa:ceph-osd", "0,1,2+3"), fact("numa:nvme", "1")],
        "elsewhere: ceph-osd on 1, ceph-osd on 2 and 3.",
    ),
    "interrupts": ([fact("interrupts:nic", "one CPU,several CPUs")], "interrupts of a NIC."),
    "irqbalance": ([fact("irqbalance", "on"), fact("numa_nodes", "2")], "irqbalance runs"),
    "clocksource": ([fact("clocksource", "hpet")], "hpet"),
    "tuned": ([fact("tuned", "balanced mine")], "balanced mine"),
    "platform_profile": ([fact("platform_profile", "low-power")], "low-power"),
    "sync_aio": ([fact("kernel", "3.10.0-1127.8.2.el7"), clients("ceph-1", 1)], "Linux 3.10.0-1127.8.2.el7"),
    "cfs_fault": ([fact("kernel", "4.19.67"), QUOTA], "Linux 4.19.67 throttles"),
    "client_instances": ([clients("ceph-1", 1), clients("krbd", 4)], "One kernel CephFS client instance"),
    "mounts_shared": ([fact("mounts:ceph", "4"), clients("ceph-1", 1), clients("ceph-2", 1)], "4 CephFS mounts"),
    "mount_wsync": ([fact("mount:ceph", "acl,noshare | acl,wsync")], "wsync"),
    "mount_sync": ([fact("mount:nfs4", "noac,rw"), fact("mount:ceph", "sync,rw")], "sync (ceph), noac (nfs4)"),
    "mount_rasize": ([fact("mount:ceph", "acl,rasize=1048576")], "rasize=1048576"),
    "mount_secure": ([fact("mount:ceph", "acl,ms_mode=prefer-secure")], "ms_mode=prefer-secure"),
    "ceph_fuse": ([clients("ceph-fuse", 2)], "(2)"),
    "mtu_members": ([fact("mtu_members", "bond0 9000: eth1 1500")], "bond0 9000: eth1 1500"),
    "probe_failing": ([probe("probe_success", "osd", 0), probe("probe_success", "cpu", 1)], "osd."),
    "unreadable": ([("tasks_unreadable", {}, 3)], "3 processes"),
    "unverified": ([("unverified_processes", {"class": "ceph-osd"}, 300)], "300 of ceph-osd."),
    "capabilities": (
        [
            probe("probe_present", "tasks", 1),
            ("probe_missing_capability_info", {"probe": "tasks", "capability": "CAP_PERFMON"}, 1),
            ("probe_missing_capability_info", {"probe": "tasks", "capability": "CAP_BPF"}, 1),
            probe("probe_present", "mds", 0),
            ("probe_missing_capability_info", {"probe": "mds", "capability": "CAP_DAC_OVERRIDE"}, 1),
        ],
        "capabilities: tasks (CAP_PERFMON, CAP_BPF).",
    ),
    "schedstat": ([("task_source_info", {"file": "stat", "reason": "no schedstat"}, 1)], "(no schedstat)"),
    "stacks": ([("waits_source_info", {"source": "wchan", "reason": "not root"}, 1)], "from wchan: not root."),
    "sampler_priority": (
        [("sampler_priority_info", {"policy": "nice", "reason": "SCHED_FIFO: Operation not permitted"}, 1)],
        "(nice; SCHED_FIFO: Operation not permitted)",
    ),
    "lost_samples": (
        [
            probe("sampler_samples_total", "tasks", 85),
            probe("sampler_lost_samples_total", "tasks", 15),
            probe("sampler_samples_total", "cpu", 2),
            probe("sampler_lost_samples_total", "cpu", 2),
        ],
        "started: tasks 15%.",
    ),
    "clock_skew": ([probe("probe_last_success_timestamp_seconds", "cpu", NOW + 45)], "45 s"),
    "daemon_stuck": ([daemon("ceph_daemon_stuck", "osd.3", 1)], "osd.3"),
    "socket_silent": (
        [
            daemon("ceph_socket_up", "mds.a", 0),
            ("ceph_socket_problem_info", {"daemon": "mds.a", "reason": "denied"}, 1),
            daemon("ceph_socket_up", "mds.b", 1),
            daemon("ceph_socket_up", "osd.0", 0),
            daemon("ceph_daemon_stuck", "osd.0", 1),
        ],
        "No counters from mds.a (denied).",
    ),
    "client_blind": (
        [clients("qemu", 8), ("ceph_client_blind_instances", {"client": "qemu"}, 3)],
        "3 of 8 qemu",
    ),
    "blocklisted": ([("ceph_client_blocklisted", {"client": "ceph-1"}, 1)], "ceph-1"),
    "slow_ops": ([daemon("osd_slow_ops", "osd.0", 18), daemon("osd_slow_ops", "osd.1", 0)], "osd.0 has 18."),
    "mds_cache_ram": (mds(24, 32), "The cache limits of mds.a add up to 24 GiB, or 36 GiB with"),
    "mds_cache_peak": (mds(12, 256, 11.8), "mds.a 11.8 GiB of 12 GiB."),
    "mds_cache_small": (
        [*mds(4, 256), daemon("mds_cache_bytes", "mds.a", GIB), daemon("mds_inodes", "mds.a", 2.0**18)],
        "mds.a with a cache of 4 GiB (room for about 1 million inodes of 4 KiB, as they are now); the host has 256 GiB",
    ),
    "quota": ([QUOTA], "mds.a 0.2 CPUs."),
    "io_limit": ([("cgroup_io_limit", {"owner": "fio", "device": "vda", "limit": "wbps"}, 1e6)], "of fio."),
    "health": ([HEALTH, detail("OSD_DOWN")], "HEALTH_WARN: OSD_DOWN."),
    "slow_store_ops": (
        [
            HEALTH,
            detail("BLUESTORE_SLOW_OP_ALERT"),
            daemon("osd_slow_store_op_age_seconds", "osd.0", 7200),
            daemon("osd_slow_store_op_age_seconds", "osd.3", 600),
        ],
        "the last slow operation was 10 min ago, in osd.3.",
    ),
    "pgs_unclean": ([("ceph_pg_total", {"pool_id": "1"}, 64), ("ceph_pg_clean", {"pool_id": "1"}, 60)], "4 of 64"),
    "nearfull": ([HEALTH, detail("OSD_NEARFULL")], "OSD_NEARFULL."),
    "scrubbing": ([("ceph_pg_scrubbing", {"pool_id": pool}, 2) for pool in "12"], "4 placement groups"),
    "pgs_few": (
        [
            ("osd_pgs", {"daemon": "osd.0", "role": "primary"}, 4),
            ("osd_pgs", {"daemon": "osd.0", "role": "replica"}, 8),
            ("osd_pgs", {"daemon": "osd.0", "role": "stray"}, 80),
        ],
        "12 placement groups",
    ),
    "pgs_many": (numpg(0, 300), "osd.0 has 300"),
    "pgs_uneven": ([*numpg(0, 80), *numpg(1, 80), *numpg(2, 140)], "osd.2 has 140 placement groups, 40% more"),
}  # fmt: skip
"""For each check of one host or of a manager: series that it reports, and a part of its text."""


@pytest.mark.parametrize("name", FOUND)
def test_a_check_finds_what_it_looks_for_and_says_the_value(name: str) -> None:
    series, words = FOUND[name]
    findings = one(("build_info", {"version": "1"}, 1), *series)

    assert words in text(name, findings)
    (finding,) = (finding for finding in findings if finding.check == name)
    assert finding.level is all_checks()[name].level
    assert finding.page == all_checks()[name].page(name)


HARMLESS: dict[str, list[Series]] = {
    "governor": [governor("performance", epp="performance")],
    "turbo": [("cpu_turbo_disabled", {}, 0)],
    "performance_limit": [("cpu_performance_limit_ratio", {}, 1.0)],
    "frequency_limit": [("cpu_frequency_max_hertz", {"cpu": "0"}, 3.7e9)],
    "idle_states": idle("C1", 2) + idle("C1E", 10),
    "idle_states_off": idle("C6", 133, off=1),
    "idle_poll": [fact("cmdline", "intel_idle.max_cstate=1")],
    "numa_fake": [fact("cmdline", "numa=off")],
    "zone_reclaim": [fact("vm.zone_reclaim_mode", "0")],
    "swap": [fact("swap", "zram"), daemon("ceph_socket_up", "osd.0", 1)],
    "iommu": [fact("iommu", "passthrough")],
    "scheduler": [fact("scheduler:ssd", "mq-deadline,none"), fact("scheduler:hdd", "bfq")],
    "write_cache": [fact("write_cache:ssd", "write through"), fact("write_cache:hdd", "write through"), OSD_UP],
    "allocator": [fact("allocator:ceph-osd", "jemalloc,tcmalloc")],
    "slow_rocksdb": [fact("distribution", "ubuntu 22.04"), release("osd.0", "17.2.8"), release("osd.1", "16.2.15")],
    "messenger_spins": [release("osd.0", "20.2.0")],
    "bluestore_log": [release("osd.0", "17.2.9"), release("mon.a", "17.2.8")],
    "manager_deadlock": [release("osd.0", "16.2.8"), release("mgr.a", "16.2.9")],
    "swapped": [fact("swapped", "no"), OSD_UP],
    "huge_pages": [fact("transparent_hugepage", "madvise"), fact("huge_pages:ceph-osd", "on")],
    "numa_devices": [fact("numa:nic", "0"), fact("numa:nvme", "0,1")],
    "numa_daemons": [fact("numa:nic", "0"), fact("numa:ceph-osd", "0,0+1"), fact("numa:ceph-mds", "")],
    "interrupts": [fact("interrupts:nic", "several CPUs"), fact("interrupts:nvme", "several CPUs")],
    "irqbalance": [fact("irqbalance", "on"), fact("numa_nodes", "1")],
    "clocksource": [fact("clocksource", "kvm-clock")],
    "tuned": [fact("tuned", "throughput-performance")],
    "platform_profile": [fact("platform_profile", "performance")],
    "sync_aio": [fact("kernel", "4.18.0-553.el8"), clients("ceph-1", 1)],
    "cfs_fault": [fact("kernel", "4.19.84"), QUOTA],
    "client_instances": [clients("ceph-1", 1), clients("ceph-2", 1)],
    "mounts_shared": [fact("mounts:ceph", "1"), clients("ceph-1", 1), clients("ceph-2", 1)],
    "mount_wsync": [fact("mount:ceph", "nowsync,rw")],
    "mount_sync": [fact("mount:ceph", "async,nowsync,rw")],
    "mount_rasize": [fact("mount:ceph", "rasize=67108864,rw")],
    "mount_secure": [fact("mount:ceph", "ms_mode=crc,rw")],
    "ceph_fuse": [clients("ceph-fuse", 0)],
    "mtu_members": [fact("mtu", "1500,9000")],
    "probe_failing": [probe("probe_success", "osd", 1)],
    "unreadable": [("tasks_unreadable", {}, 0)],
    "unverified": [],
    "capabilities": [
        probe("probe_present", "mds", 0),
        ("probe_missing_capability_info", {"probe": "mds", "capability": "CAP_DAC_OVERRIDE"}, 1),
    ],
    "schedstat": [("task_source_info", {"file": "schedstat", "reason": ""}, 1)],
    "stacks": [("waits_source_info", {"source": "stack", "reason": ""}, 1)],
    "sampler_priority": [("sampler_priority_info", {"policy": "fifo", "reason": ""}, 1)],
    "lost_samples": [
        probe("sampler_samples_total", "tasks", 1000),
        probe("sampler_lost_samples_total", "tasks", 99),
    ],
    "clock_skew": [probe("probe_last_success_timestamp_seconds", "cpu", NOW - 20)],
    "daemon_stuck": [daemon("ceph_daemon_stuck", "osd.3", 0)],
    "socket_silent": [daemon("ceph_socket_up", "mds.a", 1)],
    "client_blind": [clients("qemu", 8), ("ceph_client_blind_instances", {"client": "qemu"}, 0)],
    "blocklisted": [("ceph_client_blocklisted", {"client": "ceph-1"}, 0)],
    "slow_ops": [daemon("osd_slow_ops", "osd.0", 0)],
    "mds_cache_ram": mds(16, 32),
    "mds_cache_peak": mds(12, 256, 11.0),
    "mds_cache_small": mds(4, 8),
    "quota": [],
    "io_limit": [],
    "health": [HEALTH, detail("OSDMAP_FLAGS"), ("ceph_health_detail", {"name": "OSD_DOWN"}, 0)],
    "slow_store_ops": [HEALTH, detail("OSDMAP_FLAGS"), daemon("osd_slow_store_op_age_seconds", "osd.0", 60)],
    "pgs_unclean": [("ceph_pg_total", {"pool_id": "1"}, 64), ("ceph_pg_clean", {"pool_id": "1"}, 64)],
    "nearfull": [HEALTH, ("ceph_health_detail", {"name": "OSD_NEARFULL"}, 0)],
    "scrubbing": [("ceph_pg_scrubbing", {"pool_id": "1"}, 0)],
    "pgs_few": numpg(0, 100),
    "pgs_many": numpg(0, 250),
    "pgs_uneven": [*numpg(0, 80), *numpg(1, 160, size=2), *numpg(2, 10, kind="hdd")],
}
"""For each of them, series without a finding."""


@pytest.mark.parametrize("name", HARMLESS)
def test_a_check_finds_nothing_where_nothing_is(name: str) -> None:
    series = HARMLESS[name]
    assert [
        finding.text
        for finding in one(("build_info", {"version": "1"}, 1), *series)
        if finding.check == name and finding.level is not Level.OK
    ] == []


def test_a_slow_operation_of_yesterday_does_not_make_the_cluster_unhealthy() -> None:
    findings = one(HEALTH, detail("BLUESTORE_SLOW_OP_ALERT"), daemon("osd_slow_store_ops_total", "osd.2", 1))

    assert next(finding.level for finding in findings if finding.check == "health") is Level.OK
    assert "osd.2 had slow operations, the last before" in text("slow_store_ops", findings)
    unknown = one(HEALTH, detail("BLUESTORE_SLOW_OP_ALERT"))
    assert "is not known (`ceph health detail` names the OSDs)" in text("slow_store_ops", unknown)


@pytest.mark.parametrize(
    ("version", "slow"),
    [("16.2.14", True), ("16.2.15", False), ("17.0", True), ("18.2.2", True), ("18.2.4-1ubuntu", False), ("?", False)],
)
def test_a_release_is_slow_only_within_its_range(version: str, slow: bool) -> None:
    findings = one(("build_info", {"version": "1"}, 1), fact("distribution", "ubuntu"), release("osd.0", version))

    assert ("if its packages come from" in text("slow_rocksdb", findings)) is slow
    assert not any(one.check == "slow_rocksdb" for one in check({"a": snapshot(release("osd.0", version))}, {}))


def test_every_check_has_a_case_in_which_it_finds_something_and_one_in_which_it_does_not() -> None:
    several = {
        "unreachable",
        "prometheus",
        "mtu",
        "hosts_differ",
        "options_differ",
        "releases_differ",
        "versions_differ",
    }
    assert FOUND.keys() == HARMLESS.keys() == all_checks().keys() - several


def test_a_golden_client_has_a_slow_governor_deep_idle_states_and_faked_nodes(machine: Machine) -> None:
    findings = looked_at(machine, "xeon")

    found = {finding.check for finding in findings if finding.level in (Level.PROBLEM, Level.HINT)}
    assert found >= {"governor", "idle_states", "numa_fake", "sampler_priority"}
    assert not found & {"turbo", "frequency_limit", "performance_limit", "mount_wsync", "sync_aio", "idle_states_off"}
    assert text("governor", findings).startswith("CPUs run under powersave of intel_pstate")


def test_a_golden_ceph_host_has_sockets_that_are_not_there_and_a_health_that_nobody_tells(machine: Machine) -> None:
    findings = looked_at(machine, "ceph_host")

    assert "(missing)" in text("socket_silent", findings)
    assert {finding.check: finding.level for finding in findings}["health"] is Level.UNSEEN


def test_a_golden_virtual_machine_has_clocks_and_stacks_that_nobody_sees_and_no_other_problem(machine: Machine) -> None:
    findings = looked_at(machine, "vm")

    assert {finding.check for finding in findings if finding.level is Level.UNSEEN} == {"governor", "idle_states"}
    # Recorded without stacks, as on a kernel without CONFIG_STACKTRACE and CONFIG_KALLSYMS.
    assert [finding.check for finding in findings if finding.level is Level.PROBLEM] == ["stacks"]


def looked_at(machine: Machine, name: str) -> list[Finding]:
    at = MACHINES[name](machine)
    host = machine.host()
    probes = [probe(host) for probe in PROBES if probe is not SelfCost]
    clock = iter(range(10**6))
    sampler = HostSampler(probes, clock=lambda: next(clock) / 64, unix=Clock(lambda: NOW, lambda: NOW))
    sampler.host = host
    at(0.0)
    for _ in range(20):  # a missing socket is looked for again
        sampler.step()
    findings = check({"a": Snapshot.of(NOW, sampler.points())}, {})
    sampler.stop()
    return list(findings)


def fleet(**hosts: list[Series]) -> list[Finding]:
    return list(check({name: snapshot(("probe_success", {"probe": "x"}, 1), *own) for name, own in hosts.items()}, {}))


def test_hosts_of_one_network_with_different_mtus_are_a_problem() -> None:
    findings = fleet(
        a=[fact("network:10.1.0.0/24", "9000"), fact("network:10.2.0.0/24", "1500")],
        b=[fact("network:10.1.0.0/24", "1500")],
        c=[fact("network:10.1.0.0/24", "9000"), fact("network:10.2.0.0/24", "1500")],
    )
    said = {finding.level: finding for finding in findings if finding.check == "mtu"}

    assert said[Level.PROBLEM].text == "Network 10.1.0.0/24 has several MTUs: 9000 on a, c; 1500 on b."
    assert said[Level.PROBLEM].hosts == ("b",)
    assert said[Level.OK].text == "MTU 1500 throughout 10.2.0.0/24"


def test_a_host_with_two_mtus_in_one_network_is_a_problem_by_itself() -> None:
    findings = fleet(a=[fact("network:10.1.0.0/24", "1500,9000")])
    assert text("mtu", findings) == "Network 10.1.0.0/24 has several MTUs: 1500,9000 on a."


def test_one_host_alone_says_nothing_of_the_mtu_of_its_network() -> None:
    assert [finding for finding in fleet(a=[fact("network:10.1.0.0/24", "1500")]) if finding.check == "mtu"] == []


def test_hosts_that_differ_are_named_by_the_fact_and_the_minority() -> None:
    findings = fleet(
        a=[fact("kernel", "6.1"), fact("cpus", "8"), fact("swap", "off")],
        b=[fact("kernel", "6.1"), fact("cpus", "96"), fact("swap", "off")],
        c=[fact("kernel", "5.7"), fact("cpus", "96"), fact("swap", "off")],
    )
    (finding,) = (finding for finding in findings if finding.check == "hosts_differ")

    assert finding.text == "Hosts without Ceph daemons differ in kernel: 6.1 on a, b; 5.7 on c."
    assert finding.hosts == ("c",)


def test_two_hosts_that_differ_are_both_named() -> None:
    findings = fleet(a=[fact("kernel", "6.1")], b=[fact("kernel", "5.7")])
    (finding,) = (finding for finding in findings if finding.check == "hosts_differ")
    assert finding.hosts == ("a", "b")


def test_hosts_with_ceph_daemons_are_not_compared_with_clients() -> None:
    findings = fleet(a=[fact("kernel", "6.1")], b=[fact("kernel", "5.7"), daemon("ceph_socket_up", "osd.0", 1)])
    assert [finding.text for finding in findings if finding.check == "hosts_differ"] == []


def test_a_host_that_tells_no_settings_is_not_seen_rather_than_fine() -> None:
    findings = fleet(a=[fact("kernel", "6.1")], b=[])
    (finding,) = (finding for finding in findings if finding.check == "hosts_differ")
    assert (finding.level, finding.hosts) == (Level.UNSEEN, ("b",))


def option(name: str, value: str, number: float = 1) -> Series:
    return "ceph_option_daemons", {"type": "osd", "option": name, "value": value}, number


def test_daemons_with_different_options_are_told_over_all_hosts() -> None:
    findings = fleet(a=[option("osd_op_queue", "wpq", 3)], b=[option("osd_op_queue", "mclock_scheduler")])
    assert text("options_differ", findings) == (
        "OSD daemons differ in osd_op_queue: wpq (3 daemons), mclock_scheduler (1 daemons)."
    )


def test_options_that_ceph_sets_for_each_daemon_may_differ() -> None:
    findings = fleet(a=[option("osd_memory_target", "4294967296")], b=[option("osd_memory_target", "8589934592")])
    assert text("options_differ", findings) == "OSD daemons have equal options"


def test_releases_are_compared_within_a_cluster() -> None:
    def info(name: str, version: str, cluster: str) -> Series:
        return "ceph_daemon_info", {"daemon": name, "version": version, "cluster": cluster}, 1

    mixed = fleet(a=[info("osd.0", "16.2.15", "x")], b=[info("osd.1", "18.2.7", "x")])
    two = fleet(a=[info("osd.0", "16.2.15", "x")], b=[info("osd.0", "18.2.7", "y")])

    assert text("releases_differ", mixed) == (
        "Daemons of one cluster have different releases: 16.2.15 (osd.0); 18.2.7 (osd.1)."
    )
    assert {finding.level for finding in two if finding.check == "releases_differ"} == {Level.OK}


def test_exporters_of_different_releases_are_told() -> None:
    findings = fleet(a=[("build_info", {"version": "1.0"}, 1)], b=[("build_info", {"version": "1.1"}, 1)])
    assert text("versions_differ", findings) == "Exporters of different releases: 1.0 on a; 1.1 on b."


def test_what_is_the_same_on_several_hosts_is_said_once() -> None:
    slow = [governor("powersave")]
    (finding,) = (finding for finding in fleet(a=slow, b=slow, c=[]) if finding.check == "governor" and finding.matters)
    assert finding.hosts == ("a", "b")


def test_a_host_that_does_not_answer_is_a_problem_and_the_others_are_checked() -> None:
    findings = check({"a": snapshot(governor("powersave"))}, {"b": "Connection refused"})

    assert (findings[0].check, findings[0].hosts) == ("unreachable", ("b",))
    assert "Connection refused" in findings[0].text
    assert "governor" in {finding.check for finding in findings}


def test_a_prometheus_that_does_not_answer_is_a_problem_and_no_host() -> None:
    (finding,) = check({}, {}, {"http://p:9090": "timed out"})
    assert (finding.check, finding.level) == ("prometheus", Level.PROBLEM)
    assert finding.text == "http://p:9090 has no usable data: timed out."


def test_an_answer_without_metrics_of_pinchpoint_is_no_host() -> None:
    (finding,) = check({"a": Snapshot(NOW, {"up": {(): 1.0}})}, {})
    assert (finding.check, finding.hosts) == ("unreachable", ("a",))
    assert NO_METRICS in finding.text


def test_a_recorded_manager_is_understood_and_is_no_host_that_fails() -> None:
    def told(state: str) -> dict[str, Finding]:
        manager = parse_exposition((MANAGERS / f"{state}.prom").read_text(), NOW)
        return {finding.check: finding for finding in check({"mgr": manager}, {})}

    oversized, idle = told("cache_oversized"), told("idle")

    assert oversized["health"].text.startswith("The cluster is in HEALTH_WARN: MDS_CACHE_OVERSIZED")
    assert idle["health"].level is Level.OK
    assert idle["pgs_unclean"].level is Level.OK
    assert "unreachable" not in idle


def test_a_warning_without_its_reason_is_told_all_the_same() -> None:
    assert "ceph health detail" in text("health", one(HEALTH))


def test_an_error_is_told_even_if_only_harmless_checks_are_raised() -> None:
    findings = one(("ceph_health_status", {}, 2.0), detail("OSDMAP_FLAGS"))
    assert text("health", findings) == "The cluster is in HEALTH_ERR: OSDMAP_FLAGS."


def test_two_managers_that_tell_the_same_are_not_added_up() -> None:
    total = [("ceph_pg_total", {"pool_id": "1", "instance": name}, 64.0) for name in "ab"]
    clean = [("ceph_pg_clean", {"pool_id": "1", "instance": name}, 64.0) for name in "ab"]
    assert text("pgs_unclean", one(*total, *clean)) == "all 64 placement groups are clean"


def test_a_host_without_ceph_is_not_asked_for_a_clusters_health() -> None:
    assert [finding for finding in one(governor("performance")) if finding.check == "health"] == []


def test_the_threshold_of_an_alert_in_force_comes_before_the_built_in_one() -> None:
    own: Series = ("alert_threshold", {"alert": "TooFewPgs"}, 10.0)
    series = FOUND["pgs_few"][0]
    assert text("pgs_few", one(*series)) != text("pgs_few", one(own, *series))


def test_problems_come_before_hints_and_hints_before_the_rest() -> None:
    findings = one(("build_info", {"version": "1"}, 1), *(series for every, _ in FOUND.values() for series in every))
    levels = [finding.level for finding in findings]
    assert levels == sorted(levels, key=[Level.PROBLEM, Level.HINT, Level.UNSEEN, Level.OK].index)


def test_a_mount_option_that_was_cut_off_is_not_taken_for_another() -> None:
    assert [finding.check for finding in one(fact("mount:ceph", "acl,rasize=8..."), clients("ceph-1", 2))].count(
        "mount_rasize"
    ) == 0


def test_of_many_names_some_are_listed() -> None:
    assert listed("abc") == "a, b, c"
    assert listed("abcdefgh") == "a, b, c, d, e, and 3 more"


def test_every_check_has_a_function_and_every_function_a_check() -> None:
    functions = {**check_host.HOST, **check_daemons.DAEMONS, **check_fleet.FLEET}
    assert functions.keys() | check_module.SILENT == all_checks().keys()


def test_the_sources_are_the_metrics_that_the_code_reads() -> None:
    foreign = {name for module in MODULES for name in re.findall(r'"(ceph_[a-z_]+)"', inspect.getsource(module))}
    read = foreign | read_by(*MODULES)
    built = {f"ceph_pg_{name}" for name in ("total", "clean", "stale")}
    own_names = {"ceph_fuse", "ceph_daemon", "ceph_daemons"}
    assert set(sources()) == (read | built | {"up"}) - own_names


def test_the_sources_are_exported() -> None:
    known = {metric.name for metric in EXPORTER}
    assert {name for name in sources() if name.startswith("pinchpoint_")} <= known


@pytest.mark.parametrize("name", all_checks())
def test_a_check_says_why_it_matters_and_what_to_read(name: str) -> None:
    entry = all_checks()[name]

    assert entry.level in (Level.PROBLEM, Level.HINT)
    assert entry.found.endswith((".", ")"))
    assert entry.matters.endswith((".", ")"))
    assert not entry.harmless.endswith(".")
    assert not entry.ok.endswith(".")
    if entry.runbook:
        assert (ROOT / entry.page(name)).exists()
    else:
        assert f"\n### {name}\n" in (ROOT / "docs" / "check.md").read_text()


def test_nothing_is_advised_that_helped_nobody() -> None:
    for name, entry in all_checks().items():
        said = f"{entry.found} {entry.matters} {entry.harmless}"
        assert not re.search(r"9000|osd_memory_target|tcp_[rw]mem|osd_op_num_shards", said), name


def test_the_texts_have_no_field_that_their_check_does_not_fill() -> None:
    """The cases above cover what a check finds; its other texts may use only the fields that the check itself gives."""
    for name, entry in all_checks().items():
        for template in (entry.when, entry.matters, entry.harmless, entry.unseen):
            fields = {field for _, field, _, _ in string.Formatter().parse(template) if field}
            assert fields <= entry.fields().keys(), name


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sources()),
            st.dictionaries(
                st.sampled_from(["fact", "value", "daemon", "probe", "client", "cluster", "state", "source", "role"]),
                st.sampled_from(["", "kernel", "network:x", "mount:ceph", "{x}", "3.", "9" * 30, "osd.0", "memory_gib"])
                | st.text(max_size=8),
                max_size=4,
            ),
            st.floats() | st.integers(-3, 3).map(float),
        ),
        max_size=30,
    )
)
def test_whatever_a_server_tells_is_checked_without_an_error(series: list[Series]) -> None:
    values: dict[str, dict[Labels, float]] = {"pinchpoint_x": {}}
    for name, labels, value in series:
        values.setdefault(name, {})[tuple(sorted(labels.items()))] = value
    for finding in check({"a": Snapshot(NOW, values), "b": Snapshot(NOW, {"pinchpoint_x": {}})}, {}):
        assert finding.text
