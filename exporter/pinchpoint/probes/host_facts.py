"""Settings of the host that change benchmark results: so that two hosts, or two runs, can be compared.

Each fact is an info metric with a short value. Nothing here names a host or tells one good host from another: no
names, addresses, serial numbers or times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pinchpoint.model import Metric, Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.procfs import Mount, decode, read_bytes, read_mounts
from pinchpoint.sysfs import cpufreq_policies, read_int, read_text, turbo_disabled

__all__ = ["HostFacts", "cmdline_facts", "mount_facts", "parse_cpu_list"]

FACT = Metric(
    "pinchpoint_host_fact_info", "A setting of this host that changes benchmark results.", labels=("fact", "value")
)
VALUE_LIMIT = 128
"""Longest value, in characters; a longer one is cut and ends in three dots."""
HEAD_SIZE = 4096
"""Bytes of cpuinfo and meminfo that are read: what is wanted stands at the beginning."""
KIB_PER_GIB = 1 << 20

KNOBS = (
    "vm.dirty_ratio",
    "vm.dirty_background_ratio",
    "vm.dirty_bytes",
    "vm.dirty_background_bytes",
    "vm.dirty_expire_centisecs",
    "vm.dirty_writeback_centisecs",
    "vm.watermark_scale_factor",
    "vm.min_free_kbytes",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.netdev_max_backlog",
    "net.core.default_qdisc",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_congestion_control",
    "kernel.numa_balancing",
    "kernel.sched_autogroup_enabled",
    "kernel.sched_cfs_bandwidth_slice_us",
    "kernel.sched_latency_ns",
    "kernel.sched_migration_cost_ns",
    "kernel.sched_min_granularity_ns",
    "kernel.sched_rt_runtime_us",
    "kernel.sched_wakeup_granularity_ns",
)
"""Knobs of /proc/sys that are facts where they exist (the scheduler's moved to debugfs in Linux 5.13)."""

PARAMETERS = frozenset(
    {
        "amd_pstate",
        "cpufreq.default_governor",
        "cpuidle.governor",
        "cpuidle.off",
        "hugepages",
        "idle",
        "intel_idle.max_cstate",
        "intel_iommu",
        "intel_pstate",
        "iommu",
        "irqaffinity",
        "isolcpus",
        "maxcpus",
        "mem",
        "mitigations",
        "nohz",
        "nohz_full",
        "nosmt",
        "nr_cpus",
        "numa",
        "numa_balancing",
        "preempt",
        "processor.max_cstate",
        "psi",
        "rcu_nocbs",
        "skew_tick",
        "spectre_v2",
        "threadirqs",
        "transparent_hugepage",
        "tsc",
    }
)
"""Parameters of the kernel's command line that change results (Documentation/admin-guide/kernel-parameters.txt)."""

NETWORK_FILE_SYSTEMS = frozenset({"ceph", "fuse.ceph-fuse", "fuse.ceph", "nfs", "nfs4"})
MOUNT_OPTIONS = frozenset(
    {
        # Every file system.
        "async", "dirsync", "lazytime", "noatime", "nodiratime", "relatime", "ro", "rw", "strictatime", "sync",
        # The kernel's CephFS client (fs/ceph/super.c, net/ceph/ceph_common.c).
        "acl", "asyncreaddir", "caps_max", "caps_wanted_delay_max", "caps_wanted_delay_min", "copyfrom", "crc",
        "dcache", "dirstat", "ino32", "ms_mode", "noacl", "noasyncreaddir", "nocopyfrom", "nocrc", "nodcache",
        "nodelalloc", "nodirstat", "nopagecache", "noquotadf", "norbytes", "norequire_active_mds", "noshare",
        "notcp_nodelay", "nowsync", "osd_request_timeout", "rasize", "rbytes", "read_from_replica", "readdir_max_bytes",
        "readdir_max_entries", "recover_session", "rsize", "share", "tcp_nodelay", "wsize", "wsync",
        # ceph-fuse, as any FUSE file system (fs/fuse/inode.c).
        "allow_other", "blksize", "default_permissions", "max_read",
        # NFS (fs/nfs/super.c).
        "acdirmax", "acdirmin", "acregmax", "acregmin", "actimeo", "fsc", "hard", "local_lock", "lookupcache",
        "max_connect", "nconnect", "noac", "nocto", "nolock", "noresvport", "proto", "retrans", "sec", "soft",
        "softerr", "softreval", "timeo", "trunkdiscovery", "vers", "write",
    }
)  # fmt: skip
"""Options that are shown: a list of those that may be, since others hold names, keys, addresses and ids."""


def parse_cpu_list(text: str) -> int:
    """Return how many numbers a list such as ``0-3,8`` has (``%*pbl``, lib/vsprintf.c). Raises ValueError."""
    count = 0
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high < 1 << 20:
            raise ValueError(f"not a list of CPUs: {text[:80]!r}")
        count += high - low + 1
    return count


def cmdline_facts(text: str) -> str:
    """Return the parameters of a kernel command line that change results, sorted; all else stays unsaid.

    What follows ``--`` belongs to init.
    """
    words = text.partition(" -- ")[0].split()
    return " ".join(sorted({word for word in words if word.partition("=")[0].replace("-", "_") in PARAMETERS}))


def mount_facts(mounts: Iterable[Mount]) -> Iterator[tuple[str, str]]:
    """Yield for each network file system that is mounted its type and the options of interest, sorted.

    Mounts of one type that differ in them are separated by " | ".
    """
    kinds: dict[str, set[str]] = {}
    for mount in mounts:
        if mount.fstype in NETWORK_FILE_SYSTEMS:
            shown = sorted(option for option in mount.options if option.partition("=")[0] in MOUNT_OPTIONS)
            kinds.setdefault(mount.fstype, set()).add(",".join(shown))
    for fstype, options in sorted(kinds.items()):
        yield fstype, " | ".join(sorted(options))


class HostFacts(Probe):
    """Kernel, CPUs, power settings, MTU, command line, mounts of network file systems, knobs."""

    name = "host_facts"
    help = "settings that change results: kernel, C-states, governor, MTU, mount options, knobs (procfs, sysfs)"
    metrics = (FACT,)
    interval = 60.0

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._cpu = host.sysfs / "devices" / "system" / "cpu"
        self._facts: dict[str, str] = {}

    def sample(self, now: float) -> None:
        """Read every fact anew; one that this host does not have is left out."""
        facts: dict[str, str] = {}
        for fact, value in self._read():
            if value:
                facts[fact] = value if len(value) <= VALUE_LIMIT else f"{value[: VALUE_LIMIT - 3]}..."
        if not facts:
            raise NotPresent(f"no facts in {self.host.procfs} and {self.host.sysfs}")
        self._facts = facts

    def points(self) -> Iterator[Point]:
        """Yield one series for each fact."""
        for fact, value in self._facts.items():
            yield FACT.point(1, fact, value)

    def _read(self) -> Iterator[tuple[str, str | None]]:
        procfs, sysfs = self.host.procfs, self.host.sysfs
        yield "kernel", read_text(procfs / "sys" / "kernel" / "osrelease")
        yield "cmdline", cmdline_facts(read_text(procfs / "cmdline") or "")
        yield "cpu_model", self._cpu_model()
        yield "cpus", _count(self._cpu / "online")
        yield "smt", _on_off(read_int(self._cpu / "smt" / "active"))
        yield "numa_nodes", _count(sysfs / "devices" / "system" / "node" / "online")
        yield "memory_gib", self._memory()
        governors = {read_text(policy / "scaling_governor") or "" for policy in cpufreq_policies(sysfs)}
        yield "governor", ",".join(sorted(governors - {""}))
        disabled = turbo_disabled(sysfs)
        yield "turbo", None if disabled is None else _on_off(not disabled)
        yield "idle_states", self._idle_states()
        clocksource = sysfs / "devices" / "system" / "clocksource" / "clocksource0" / "current_clocksource"
        yield "clocksource", read_text(clocksource)
        # The mode in use stands in brackets (enabled_show, mm/huge_memory.c).
        huge_pages = read_text(sysfs / "kernel" / "mm" / "transparent_hugepage" / "enabled") or ""
        yield "transparent_hugepage", huge_pages.partition("[")[2].partition("]")[0]
        yield "mtu", self._mtu()
        for fstype, options in mount_facts(read_mounts(procfs)):
            yield f"mount:{fstype}", options
        for knob in KNOBS:
            yield knob, read_text(procfs.joinpath("sys", *knob.split(".")))

    def _cpu_model(self) -> str | None:
        # The first CPU is enough: on some kernels each CPU's entry waits for a measurement of its clock.
        found = _find(rb"^(?:model name|cpu)[ \t]*:[ \t]*(.+)$", self.host.procfs / "cpuinfo")
        return found and " ".join(found.split())

    def _memory(self) -> str | None:
        # Whole GiB: what the firmware and the kernel keep for themselves differs between equal hosts.
        found = _find(rb"^MemTotal:\s*(\d{1,18}) kB", self.host.procfs / "meminfo")
        return found and str(round(int(found) / KIB_PER_GIB))

    def _idle_states(self) -> str:
        """Return the names of the idle states, shallow ones first, and on how many CPUs each is switched off."""
        states: dict[tuple[str, str], set[bool]] = {}
        for path in self._cpu.glob("cpu[0-9]*/cpuidle/state[0-9]*"):
            if (name := read_text(path / "name")) is not None:
                states.setdefault((path.name, name), set()).add(bool(read_int(path / "disable")))
        marks = {frozenset({True}): "(off)", frozenset({True, False}): "(partly off)"}
        return ",".join(name + marks.get(frozenset(off), "") for (_, name), off in sorted(states.items()))

    def _mtu(self) -> str:
        """Return the MTUs of the physical interfaces that are up."""
        found: set[int] = set()
        for path in (self.host.sysfs / "class" / "net").glob("*"):
            if (path / "device").exists() and read_text(path / "operstate") == "up":
                mtu = read_int(path / "mtu")
                found.update(() if mtu is None else (mtu,))
        return ",".join(map(str, sorted(found)))


def _find(pattern: bytes, path: Path) -> str | None:
    """Return what the group of `pattern` matches in the beginning of a file; None where nothing does."""
    try:
        found = re.search(pattern, read_bytes(path, HEAD_SIZE), re.MULTILINE)
    except OSError:
        return None
    return decode(found[1]) if found else None


def _count(path: Path) -> str | None:
    try:
        return str(parse_cpu_list(read_text(path) or "") or "")
    except ValueError:
        return None


def _on_off(value: int | None) -> str | None:
    return None if value is None else "on" if value else "off"
