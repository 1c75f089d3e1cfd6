"""Settings of the host that change benchmark results: so that two hosts, or two runs, can be compared.

Each fact is an info metric with a short value. Nothing here identifies a host or differs between equal hosts: no names,
addresses of hosts, serial numbers or times. Networks are named, since only hosts of one network have to agree.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import islice
from pathlib import Path

from pinchpoint.expressions import expression
from pinchpoint.host.capabilities import Capability
from pinchpoint.host.placement import (
    allowed_nodes,
    interrupt_cpus,
    node_cpus,
    nodes_of,
    nvme_drives,
    physical_interfaces,
)
from pinchpoint.host.procfs import (
    FormatError,
    Mount,
    decode,
    parse_cpu_list,
    parse_cpus_allowed,
    parse_mounts,
    read_bytes,
    read_mounts,
)
from pinchpoint.host.sysfs import cpufreq_policies, read_int, read_text, turbo_disabled
from pinchpoint.metrics import HOST_FACT_INFO
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.profile.maps import MAX_MAPS_BYTES
from pinchpoint.units import BYTES_PER_KIBIBYTE

__all__ = [
    "HostFacts",
    "allocator",
    "cmdline_facts",
    "distribution",
    "fake_nodes",
    "huge_pages",
    "mount_facts",
    "parse_inet6",
    "parse_routes",
    "swap_kinds",
    "swapped_bytes",
]

Network = IPv4Network | IPv6Network

MAX_VALUE_CHARACTERS = 128
"""Longest value, in characters; a longer one is cut and ends in three dots."""
HEAD_BYTES = 4096
"""Bytes of cpuinfo and meminfo that are read: what is wanted is at the beginning."""
KIB_PER_GIB = 1 << 20
ZRAM = expression(rb"/zram\d+$")
MIN_SWAPPED_BYTES = 64 << 20
"""Swapped out from which swap counts as used: the kernel swaps some pages that nobody needs on any host."""
MIN_VECTORS = 2
"""Interrupts of a device with one queue: one for the queue, and one for its settings."""
MAX_BALANCER_SOCKETS = 16
"""Sockets of irqbalance that are looked at: each that was killed leaves one."""
DAEMONS = frozenset({"ceph-osd", "ceph-mds"})
"""Classes of daemons whose allocator, huge pages and NUMA nodes matter."""
ALLOCATORS = (("tcmalloc", rb"/libtcmalloc[^/\n]*\.so"), ("jemalloc", rb"/libjemalloc[^/\n]*\.so"))
IOMMU_MODES = {"DMA": "translated", "DMA-FQ": "translated", "identity": "passthrough"}
"""Types of the default domains of IOMMU groups (iommu_group_show_type, drivers/iommu/iommu.c)."""
MAX_IOMMU_GROUPS = 1024
"""IOMMU groups that are looked at; a server has up to some hundred."""
MAX_NETWORKS = 16
"""Networks that are shown."""
MAX_STACKED_INTERFACES = 4
"""Interfaces stacked on each other: a bridge on a VLAN on a bond on hardware."""
RTF_UP, RTF_GATEWAY, RTF_REJECT = 0x1, 0x2, 0x200
"""Flags of a route (include/uapi/linux/route.h)."""

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

SECTOR_BYTES = 512
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
"""Options that are shown: an allowlist, since others hold names, keys, addresses and ids."""


def cmdline_facts(text: str) -> str:
    """Return the parameters of a kernel command line that change results, sorted; the rest is left out.

    What follows ``--`` belongs to init.
    """
    words = text.partition(" -- ")[0].split()
    return " ".join(sorted({word for word in words if word.partition("=")[0].replace("-", "_") in PARAMETERS}))


def fake_nodes(text: str) -> str:
    """Return what ``numa=fake=`` of a kernel command line asks for (numa_setup, arch/x86/mm/numa.c), "" without it."""
    found = ""
    for word in text.partition(" -- ")[0].split():
        if word.startswith("numa="):
            found = word.removeprefix("numa=fake=") if word.startswith("numa=fake=") else ""
    return found


def parse_routes(raw: bytes) -> Iterator[tuple[str, Network]]:
    """Yield interface and network of each network of ``/proc/net/route`` that needs no gateway.

    Columns are Iface, Destination, Gateway, Flags, RefCnt, Use, Metric, Mask, ...; addresses are words of memory in
    hexadecimal digits (fib_route_seq_show, net/ipv4/fib_trie.c). Lines of another format are left out.
    """
    for line in raw.splitlines():
        fields = line.split()
        if len(fields) < 8 or not all(re.fullmatch(rb"[0-9A-Fa-f]{1,8}", fields[n]) for n in (1, 3, 7)):
            continue
        destination, flags, mask = (int(fields[n], 16) for n in (1, 3, 7))
        if not flags & RTF_UP or flags & (RTF_GATEWAY | RTF_REJECT):
            continue
        prefix = int.from_bytes(mask.to_bytes(4, sys.byteorder), "big")
        length = prefix.bit_count()
        if prefix == (((1 << length) - 1) << (32 - length)):
            yield decode(fields[0]), ip_network((destination.to_bytes(4, sys.byteorder), length), strict=False)


def parse_inet6(raw: bytes) -> Iterator[tuple[str, Network]]:
    """Yield interface and network of each global address in ``/proc/net/if_inet6``.

    Columns are address, interface index, length of the prefix, scope, flags, interface, all but the last in
    hexadecimal digits (if6_seq_show, net/ipv6/addrconf.c). Lines of another format are left out.
    """
    for line in raw.splitlines():
        fields = line.split()
        if len(fields) != 6 or not re.fullmatch(rb"[0-9a-f]{32} [0-9a-f]+ [0-9a-f]{2} 00 .*", b" ".join(fields)):
            continue
        if (length := int(fields[2], 16)) <= 128:
            yield decode(fields[5]), ip_network((bytes.fromhex(fields[0].decode()), length), strict=False)


def swap_kinds(raw: bytes) -> str:
    """Return what ``/proc/swaps`` swaps to: ``off``, ``disk``, ``zram`` (compressed memory), or both."""
    kinds = {"zram" if ZRAM.search(area) else "disk" for area, _ in _swap_areas(raw)}
    return ",".join(sorted(kinds)) or "off"


def swapped_bytes(raw: bytes) -> int:
    """Return how much is swapped out to disks, from ``/proc/swaps``."""
    return sum(used for area, used in _swap_areas(raw) if not ZRAM.search(area))


def _swap_areas(raw: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield file and used bytes of each area.

    The columns after the heading are Filename, Type, Size, Used, Priority, in KiB; blanks in a name are escaped
    (swap_show, mm/swapfile.c).
    """
    for line in raw.splitlines()[1:]:
        if fields := line.split():
            used = fields[3] if len(fields) > 3 else b""
            yield fields[0], int(used) * BYTES_PER_KIBIBYTE if used.isdigit() and len(used) < 16 else 0


def huge_pages(raw: bytes) -> str:
    """Return whether a process may have transparent huge pages, from its ``status``: on, off, "" before Linux 5.0.

    It may not after prctl(PR_SET_THP_DISABLE) (task_thp_status, fs/proc/array.c).
    """
    match = re.search(rb"^THP_enabled:\t([01])$", raw, re.MULTILINE)
    return "" if match is None else "on" if match[1] == b"1" else "off"


def allocator(raw: bytes) -> str:
    """Return the memory allocator of a process by its ``/proc/PID/maps``: ``libc`` unless another one is mapped."""
    return next((name for name, library in ALLOCATORS if re.search(library, raw)), "libc")


def distribution(raw: bytes) -> str:
    """Return the distribution in ``/etc/os-release``, as ``ubuntu 22.04``; "" where it has no ID (os-release(5))."""
    found = dict(re.findall(rb"^(ID|VERSION_ID)=[\"']?([a-z0-9._-]{1,32})[\"']?$", raw, re.MULTILINE))
    return " ".join(decode(found[key]) for key in (b"ID", b"VERSION_ID") if key in found) if b"ID" in found else ""


def mount_facts(mounts: Iterable[Mount]) -> Iterator[tuple[str, str]]:
    """Yield, for each type of mounted network file system, the options of interest, sorted, and how many mounts.

    Mounts of one type that differ in their options are separated by " | ". Bind mounts of a part are not counted.
    """
    kinds: dict[str, set[str]] = {}
    numbers: Counter[str] = Counter()
    for mount in mounts:
        if mount.fstype in NETWORK_FILE_SYSTEMS:
            shown = sorted(option for option in mount.options if option.partition("=")[0] in MOUNT_OPTIONS)
            kinds.setdefault(mount.fstype, set()).add(",".join(shown))
            numbers[mount.fstype] += mount.root == "/"
    for fstype, options in sorted(kinds.items()):
        yield f"mount:{fstype}", " | ".join(sorted(options))
        if numbers[fstype]:
            yield f"mounts:{fstype}", str(numbers[fstype])


class HostFacts(Probe):
    """Kernel, CPUs, power settings, MTU, command line, swap, mounts of network file systems, knobs."""

    name = "host_facts"
    metrics = (HOST_FACT_INFO,)
    capabilities = (Capability.SYS_PTRACE,)
    interval = 60.0

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._cpu = host.sysfs / "devices" / "system" / "cpu"
        self._facts: dict[str, str] = {}
        self._allocators: dict[tuple[int, int], str] = {}

    def sample(self, now: float) -> None:
        """Read every fact anew; those that this host lacks are left out."""
        facts: dict[str, str] = {}
        for fact, value in (*self._read(), *self._daemon_facts(now)):
            if value:
                facts[fact] = value if len(value) <= MAX_VALUE_CHARACTERS else f"{value[: MAX_VALUE_CHARACTERS - 3]}..."
        if not facts:
            raise NotPresent(f"no facts in {self.host.procfs} and {self.host.sysfs}")
        self._facts = facts

    def points(self) -> Iterator[Point]:
        """Yield one series for each fact."""
        for fact, value in self._facts.items():
            yield HOST_FACT_INFO.point(1, fact, value)

    def _read(self) -> Iterator[tuple[str, str | None]]:
        procfs, sysfs = self.host.procfs, self.host.sysfs
        yield "kernel", read_text(procfs / "sys" / "kernel" / "osrelease")
        cmdline = read_text(procfs / "cmdline") or ""
        yield "cmdline", cmdline_facts(cmdline)
        # On its own too: a long command line is cut.
        yield "numa_fake", fake_nodes(cmdline)
        yield "cpu_model", self._cpu_model()
        yield "cpus", _count(self._cpu / "online")
        yield "sockets", self._sockets()
        # Since Linux 6.1 (arch, kernel/utsname_sysctl.c).
        yield "architecture", read_text(procfs / "sys" / "kernel" / "arch")
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
        # The mode in use is in brackets (enabled_show, mm/huge_memory.c).
        huge_pages = read_text(sysfs / "kernel" / "mm" / "transparent_hugepage" / "enabled") or ""
        yield "transparent_hugepage", huge_pages.partition("[")[2].partition("]")[0]
        yield "platform_profile", read_text(sysfs / "firmware" / "acpi" / "platform_profile")
        yield "tuned", read_text(self.host.rootfs / "etc" / "tuned" / "active_profile")
        yield from self._swap()
        yield "distribution", self._distribution()
        yield "iommu", self._iommu()
        yield from self._disks()
        yield from self._devices()
        yield "irqbalance", self._irqbalance()
        yield "mtu", self._mtu()
        yield from self._networks()
        yield "mtu_members", self._smaller_members()
        yield from mount_facts(parse_mounts(read_mounts(procfs)))
        for knob in KNOBS:
            yield knob, read_text(procfs.joinpath("sys", *knob.split(".")))

    def _cpu_model(self) -> str | None:
        # The first CPU is enough: on some kernels each CPU's entry waits for a measurement of its clock.
        found = _find(rb"^(?:model name|cpu)[ \t]*:[ \t]*(.+)$", self.host.procfs / "cpuinfo")
        return found and " ".join(found.split())

    def _sockets(self) -> str:
        packages = (read_int(path) for path in self._cpu.glob("cpu[0-9]*/topology/physical_package_id"))
        # Unknown is -1 (topology_physical_package_id, include/linux/topology.h).
        known = {package for package in packages if package is not None and package >= 0}
        return str(len(known)) if known else ""

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
        mtus = {read_int(path / "mtu") for path in physical_interfaces(self.host.sysfs)}
        return ",".join(map(str, sorted(mtu for mtu in mtus if mtu is not None)))

    def _swap(self) -> Iterator[tuple[str, str]]:
        with suppress(OSError):
            raw = read_bytes(self.host.procfs / "swaps")
            yield "swap", swap_kinds(raw)
            yield "swapped", "yes" if swapped_bytes(raw) >= MIN_SWAPPED_BYTES else "no"

    def _distribution(self) -> str:
        try:
            return distribution(read_bytes(self.host.rootfs / "etc" / "os-release", HEAD_BYTES))
        except OSError:
            return ""

    def _iommu(self) -> str:
        """Return how devices reach memory, over all groups of devices; "" without an IOMMU."""
        groups = (self.host.sysfs / "kernel" / "iommu_groups").glob("[0-9]*/type")
        modes = {IOMMU_MODES.get(read_text(path) or "", "") for path in islice(groups, MAX_IOMMU_GROUPS)}
        return ",".join(sorted(modes - {""}))

    def _disks(self) -> Iterator[tuple[str, str]]:
        """Yield number, sizes, schedulers and write caches of hardware disks, by kind: ``ssd``, ``hdd``."""
        found: dict[str, set[str]] = {}
        sizes: dict[str, Counter[str]] = {}
        for queue in (self.host.sysfs / "block").glob("*/queue"):
            if (queue.parent / "device").exists():
                kind = "hdd" if read_int(queue / "rotational") else "ssd"
                # In sectors of 512 bytes, whatever the disk's are (part_size_show, block/genhd.c). A drive without a
                # medium has none.
                if sectors := read_int(queue.parent / "size"):
                    sizes.setdefault(f"disks:{kind}", Counter())[_size(sectors * SECTOR_BYTES)] += 1
                # The one in use is in brackets (elv_iosched_show, block/elevator.c).
                scheduler = (read_text(queue / "scheduler") or "").partition("[")[2].partition("]")[0]
                found.setdefault(f"scheduler:{kind}", set()).add(scheduler)
                found.setdefault(f"write_cache:{kind}", set()).add(read_text(queue / "write_cache") or "")
        for fact, values in sorted(found.items()):
            yield fact, ",".join(sorted(values - {""}))
        for fact, counts in sorted(sizes.items()):
            yield fact, ", ".join(f"{count} x {size}" for size, count in sorted(counts.items()))

    def _daemon_facts(self, now: float) -> Iterator[tuple[str, str]]:
        """Yield memory allocators, huge pages and NUMA nodes of the Ceph daemons, by their program."""
        nodes = node_cpus(self.host.sysfs)
        known: dict[tuple[int, int], str] = {}
        found: dict[str, set[str]] = {}
        for process in self.host.processes.current(now).values():
            if process.class_ not in DAEMONS:
                continue
            key = process.pid, process.start
            # Maps are long, and each process keeps its allocator: they are read once.
            if name := self._allocators.get(key) or self._allocator(process.pid):
                known[key] = name
                found.setdefault(f"allocator:{process.class_}", set()).add(name)
            try:
                status = read_bytes(self.host.procfs / str(process.pid) / "status")
                found.setdefault(f"numa:{process.class_}", set()).add(allowed_nodes(parse_cpus_allowed(status), nodes))
            except (OSError, FormatError):
                continue
            found.setdefault(f"huge_pages:{process.class_}", set()).add(huge_pages(status))
        self._allocators = known
        for fact, values in sorted(found.items()):
            yield fact, ",".join(sorted(values - {""}))

    def _allocator(self, pid: int) -> str:
        """Return the allocator of a process; "" where its memory map can't be read or is empty: it ends, or begins."""
        try:
            raw = read_bytes(self.host.procfs / str(pid) / "maps", MAX_MAPS_BYTES)
        except OSError:
            return ""
        return allocator(raw) if raw else ""

    def _devices(self) -> Iterator[tuple[str, str]]:
        """Yield NUMA nodes of interfaces and NVMe drives, and whether a single CPU serves all interrupts of a device.

        A device with one queue needs no more. How many CPUs serve it would differ between equal hosts.
        """
        procfs, sysfs = self.host.procfs, self.host.sysfs
        interfaces, drives = list(physical_interfaces(sysfs)), list(nvme_drives(sysfs))
        yield "numa:nic", nodes_of(interfaces)
        yield "numa:nvme", nodes_of(drives)
        several = [path for path in interfaces if len(list(path.glob("queues/rx-*"))) > 1]
        for kind, devices in (("nic", several), ("nvme", drives)):
            served = (interrupt_cpus(procfs, device) for device in devices)
            single = {len(cpus) == 1 for number, cpus in served if number > MIN_VECTORS}
            yield f"interrupts:{kind}", ",".join("one CPU" if one else "several CPUs" for one in sorted(single))

    def _irqbalance(self) -> str:
        """Return "on" if irqbalance runs; its socket has its PID in its name (since irqbalance 1.3)."""
        for path in islice((self.host.rootfs / "run" / "irqbalance").glob("irqbalance*.sock"), MAX_BALANCER_SOCKETS):
            pid = path.name.removeprefix("irqbalance").removesuffix(".sock")
            if pid.isdecimal() and read_text(self.host.procfs / pid / "comm") == "irqbalance":
                return "on"
        return ""

    def _networks(self) -> Iterator[tuple[str, str]]:
        """Yield, for each network of this host, the MTUs of its interfaces there.

        Only hardware and what is stacked on it counts: every host has the same private container network.
        """
        net = self.host.sysfs / "class" / "net"
        mtus: dict[Network, set[int]] = {}
        for name, network in (*self._table("route", parse_routes), *self._table("if_inet6", parse_inet6)):
            # No default route, no single address, no name that leads elsewhere.
            if 0 < network.prefixlen < network.max_prefixlen and not network.is_link_local and "/" not in name:
                mtu = read_int(net / name / "mtu")
                if mtu is not None and _is_hardware(net, name):
                    mtus.setdefault(network, set()).add(mtu)
        for network in islice(sorted(mtus, key=str), MAX_NETWORKS):
            yield f"network:{network}", ",".join(map(str, sorted(mtus[network])))

    def _table(
        self, file: str, parse: Callable[[bytes], Iterator[tuple[str, Network]]]
    ) -> Iterable[tuple[str, Network]]:
        for net in ("1/net", "net"):
            try:
                return list(parse(read_bytes(self.host.procfs / net / file)))
            except OSError:
                continue
        return ()

    def _smaller_members(self) -> str:
        """Return the bonds and bridges that have hardware with a smaller MTU than their own: ``bond0 9000: eth1 1500``.

        Such hardware drops large frames.
        """
        net = self.host.sysfs / "class" / "net"
        found = []
        for master in sorted(net.glob("*")):
            mtu = read_int(master / "mtu")
            if mtu is None or not ((master / "bonding").exists() or (master / "bridge").exists()):
                continue
            for member in _lower(master):
                own = read_int(net / member / "mtu")
                if own is not None and own < mtu and _is_hardware(net, member):
                    found.append(f"{master.name} {mtu}: {member} {own}")
        return "; ".join(found)


def _lower(interface: Path) -> list[str]:
    """Return the interfaces below one (netdev_adjacent_sysfs_add, net/core/dev.c, since Linux 3.14)."""
    return sorted(path.name.removeprefix("lower_") for path in interface.glob("lower_*"))


def _is_hardware(net: Path, name: str, depth: int = MAX_STACKED_INTERFACES) -> bool:
    """Return whether an interface is a device, or lies on one."""
    if (net / name / "device").exists():
        return True
    return depth > 1 and any(_is_hardware(net, lower, depth - 1) for lower in _lower(net / name))


def _find(pattern: bytes, path: Path) -> str | None:
    """Return what the group of `pattern` matches in the beginning of a file; None where nothing does."""
    try:
        found = re.search(pattern, read_bytes(path, HEAD_BYTES), re.MULTILINE)
    except OSError:
        return None
    return decode(found[1]) if found else None


def _size(size: int) -> str:
    """Return the bytes of a disk as its label has them."""
    return f"{size / 1e12:.3g} TB" if size >= 1e12 else f"{size / 1e9:.3g} GB"


def _count(path: Path) -> str | None:
    try:
        return str(len(parse_cpu_list(read_bytes(path))) or "")
    except (OSError, FormatError):
        return None


def _on_off(value: int | None) -> str | None:
    return None if value is None else "on" if value else "off"
