"""Checks of each single host: settings of its CPUs, kernel, memory and mounts.

Each function is one check of ``check.toml``, by its name: it takes a snapshot of the host and yields what it found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from pinchpoint.diagnosis.findings import Check, Outcome, all_checks, fact, facts, fine, found, listed, unseen
from pinchpoint.diagnosis.series import label, series
from pinchpoint.metrics import (
    CEPH_CLIENT_INSTANCES,
    CEPH_DAEMON_INFO,
    CEPH_SOCKET_UP,
    CGROUP_CPU_QUOTA_CPUS,
    CPU_FREQUENCY_LIMIT_HERTZ,
    CPU_FREQUENCY_MAX_HERTZ,
    CPU_GOVERNOR_INFO,
    CPU_IDLE_EXIT_SECONDS,
    CPU_IDLE_STATE_DISABLED_CPUS,
    CPU_IDLE_STATE_EXIT_LATENCY_SECONDS,
    CPU_PERFORMANCE_LIMIT_RATIO,
    CPU_TURBO_DISABLED,
)
from pinchpoint.model import Snapshot
from pinchpoint.units import BYTES_PER_MEBIBYTE

__all__ = ["HOST", "LookAtHost", "ceph_daemons", "kernel_instances", "kernel_release"]

LookAtHost = Callable[[Snapshot, Check], Iterator[Outcome]]

MICROSECOND = 1e-6
GIGAHERTZ = 1e9
CUT = "..."
"""End of a truncated fact."""


def governor(host: Snapshot, check: Check) -> Iterator[Outcome]:
    every = [labels for labels, _ in series(host, CPU_GOVERNOR_INFO)]
    if not every:
        yield unseen()
        return
    slow = [labels for labels in every if label(labels, "governor") != "performance"]
    words = []
    for labels in slow or every:
        preference = label(labels, "epp")
        words.append(
            f"{label(labels, 'governor')} of {label(labels, 'driver')}"
            + (f" (preference {preference})" if preference else "")
        )
    yield (found if slow else fine)(governors=listed(sorted(words)))


def turbo(host: Snapshot, check: Check) -> Iterator[Outcome]:
    for _, off in series(host, CPU_TURBO_DISABLED):
        yield found() if off else fine()


def performance_limit(host: Snapshot, check: Check) -> Iterator[Outcome]:
    for _, share in series(host, CPU_PERFORMANCE_LIMIT_RATIO):
        yield found(share=f"{share:.0%}") if share < 1 else fine()


def frequency_limit(host: Snapshot, check: Check) -> Iterator[Outcome]:
    most = max((hertz for _, hertz in series(host, CPU_FREQUENCY_MAX_HERTZ)), default=0.0)
    limits = [hertz for _, hertz in series(host, CPU_FREQUENCY_LIMIT_HERTZ) if hertz < most]
    words = {"most": f"{most / GIGAHERTZ:.2g}"}
    if limits:
        yield found(number=len(limits), limit=f"{min(limits) / GIGAHERTZ:.2g}", **words)
    elif most:
        yield fine(**words)


def idle_states(host: Snapshot, check: Check) -> Iterator[Outcome]:
    states = _deep_states(host, check)
    if states is None:
        yield unseen()
    elif enabled := [words for words, off in states if not off]:
        yield found(states=listed(enabled))
    else:
        yield fine()


def idle_states_off(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if off := [words for words, off in _deep_states(host, check) or () if off]:
        yield found(states=listed(off))


def _deep_states(host: Snapshot, check: Check) -> list[tuple[str, bool]] | None:
    """Return the states that take long to leave, and whether each is off everywhere; None without states."""
    latencies = [(label(labels, "state"), value) for labels, value in series(host, CPU_IDLE_STATE_EXIT_LATENCY_SECONDS)]
    cpus = sum(1 for _ in series(host, CPU_IDLE_EXIT_SECONDS))
    off = {label(labels, "state"): value for labels, value in series(host, CPU_IDLE_STATE_DISABLED_CPUS)}
    least = (check.threshold or 0.0) * MICROSECOND * (1 - 1e-9)
    return [
        (f"{name} ({latency / MICROSECOND:.0f} us)", 0 < cpus <= off.get(name, 0.0))
        for name, latency in latencies
        if latency >= least
    ] if latencies else None  # fmt: skip


def idle_poll(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if set(check.words) & set(fact(host, "cmdline").split()):
        yield found()


def numa_fake(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if nodes := fact(host, "numa_fake"):
        yield found(nodes=nodes)


def zone_reclaim(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if (value := fact(host, "vm.zone_reclaim_mode")) not in ("", "0"):
        yield found(value=value)


def swap(host: Snapshot, check: Check) -> Iterator[Outcome]:
    kinds, daemons = fact(host, "swap"), ceph_daemons(host)
    if daemons and set(check.words) & set(kinds.split(",")):
        yield found(kinds=kinds, number=len(daemons))


def swapped(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if (used := fact(host, "swapped")) and (daemons := ceph_daemons(host)):
        yield found(number=len(daemons)) if used == "yes" else fine()


def huge_pages(host: Snapshot, check: Check) -> Iterator[Outcome]:
    kinds = {name.partition(":")[2]: value for name, value in facts(host).items() if name.startswith("huge_pages:")}
    if fact(host, "transparent_hugepage") not in check.words:
        return
    if on := sorted(kind for kind, values in kinds.items() if "on" in values.split(",")):
        yield found(daemons=listed(on))
    elif kinds:
        yield fine()


def numa_devices(host: Snapshot, check: Check) -> Iterator[Outcome]:
    nic, nvme = fact(host, "numa:nic"), fact(host, "numa:nvme")
    if nic and nvme:
        apart = set(nic.split(",")).isdisjoint(nvme.split(","))
        yield (found if apart else fine)(nic=nic, nvme=nvme)


def numa_daemons(host: Snapshot, check: Check) -> Iterator[Outcome]:
    nic = fact(host, "numa:nic")
    near = set(nic.split(","))
    words = [
        f"{kind} on {place.replace('+', ' and ')}"
        for name, places in sorted(facts(host).items())
        if name.startswith("numa:") and (kind := name.partition(":")[2]) not in ("nic", "nvme")
        for place in places.split(",")
        if place and near.isdisjoint(place.split("+"))
    ]
    if nic and words:
        yield found(nic=nic, places=listed(words))


def interrupts(host: Snapshot, check: Check) -> Iterator[Outcome]:
    spread = {kind: fact(host, f"interrupts:{key}") for key, kind in (("nic", "a NIC"), ("nvme", "an NVMe drive"))}
    if alone := [kind for kind, places in spread.items() if set(check.words) & set(places.split(","))]:
        yield found(devices=listed(alone))
    elif any(spread.values()):
        yield fine()


def irqbalance(host: Snapshot, check: Check) -> Iterator[Outcome]:
    nodes = fact(host, "numa_nodes")
    if fact(host, "irqbalance") == "on" and nodes.isdecimal() and int(nodes) > 1:
        yield found()


def iommu(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if mode := fact(host, "iommu"):
        yield (found if set(check.words) & set(mode.split(",")) else fine)(mode=mode)


def scheduler(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if used := fact(host, "scheduler:ssd"):
        yield (found if set(check.words) & set(used.split(",")) else fine)(used=used)


def write_cache(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if not ceph_daemons(host):
        return
    kinds = {kind: fact(host, f"write_cache:{kind}") for kind in ("ssd", "hdd")}
    if on := [kind.upper() for kind, modes in kinds.items() if set(check.words) & set(modes.split(","))]:
        yield found(kinds=listed(on))
    elif any(kinds.values()):
        yield fine()


def allocator(host: Snapshot, check: Check) -> Iterator[Outcome]:
    kinds = {name.partition(":")[2]: value for name, value in facts(host).items() if name.startswith("allocator:")}
    if others := sorted(kind for kind, names in kinds.items() if set(names.split(",")) - set(check.words)):
        yield found(daemons=listed(f"{kind} uses that of {kinds[kind]}" for kind in others))
    elif kinds:
        yield fine(names=listed(sorted(set(kinds.values()))))


def fault_of_release(host: Snapshot, check: Check) -> Iterator[Outcome]:
    """Find daemons of releases with a fault, on a distribution in `words` if the check names any."""
    if check.words and fact(host, "distribution").partition(" ")[0] not in check.words:
        return
    daemons = [labels for labels, _ in series(host, CEPH_DAEMON_INFO)]
    kinds = frozenset(check.daemons)
    versions = {
        label(labels, "version")
        for labels in daemons
        if not kinds or label(labels, "daemon").partition(".")[0] in kinds
    }
    ranges = [(_numbers(first), _numbers(last)) for first, _, last in (one.partition("-") for one in check.ranges)]
    if slow := sorted(one for one in versions if any(low <= _numbers(one) < high for low, high in ranges)):
        yield found(versions=listed(slow))
    elif versions:
        yield fine(versions=listed(sorted(versions)))


def clocksource(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if value := fact(host, "clocksource"):
        yield (found if value in check.words else fine)(value=value)


def tuned(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if profile := fact(host, "tuned"):
        yield (found if set(check.words) & set(profile.split()) else fine)(profile=profile)


def platform_profile(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if profile := fact(host, "platform_profile"):
        yield (found if profile in check.words else fine)(profile=profile)


def kernel_release(host: Snapshot) -> tuple[int, ...]:
    """Return the numbers at the beginning of the kernel's release, none if it is not known."""
    return _numbers(fact(host, "kernel"))


def _numbers(release: str) -> tuple[int, ...]:
    """Return the numbers at the beginning of a release of Linux or Ceph, none if it has none."""
    numbers = re.match(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", release)
    return tuple(int(number) for number in numbers.groups() if number) if numbers else ()


def sync_aio(host: Snapshot, check: Check) -> Iterator[Outcome]:
    release = kernel_release(host)
    if release and (kernel_instances(host) or "mount:ceph" in facts(host)):
        yield (found if release < _numbers(check.before) else fine)(kernel=fact(host, "kernel"))


def cfs_fault(host: Snapshot, check: Check) -> Iterator[Outcome]:
    release = kernel_release(host)
    owners = [label(labels, "owner") for labels, _ in series(host, CGROUP_CPU_QUOTA_CPUS)]
    if not owners or not _numbers(check.since) <= release < _numbers(check.before):
        return
    repaired = [_numbers(fixed) for fixed in check.words]
    if not any(release[:2] == fixed[:2] and release >= fixed for fixed in repaired):
        yield found(kernel=fact(host, "kernel"), owners=listed(owners))


def kernel_instances(host: Snapshot) -> int:
    """Return the number of instances of the kernel's CephFS client; RBD devices don't count."""
    return int(
        sum(
            number
            for labels, number in series(host, CEPH_CLIENT_INSTANCES)
            if re.fullmatch(r"ceph-(?:\d+|more)", label(labels, "client"))
        )
    )


def client_instances(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if number := kernel_instances(host):
        yield found() if number == 1 else fine(number=number)


def mounts_shared(host: Snapshot, check: Check) -> Iterator[Outcome]:
    mounts, instances = fact(host, "mounts:ceph"), kernel_instances(host)
    if mounts.isdecimal() and 0 < instances < int(mounts):
        yield found(mounts=mounts, instances=instances)


def mount_wsync(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if any(option in check.words for option in _options(facts(host), "ceph")):
        yield found()


def mount_sync(host: Snapshot, check: Check) -> Iterator[Outcome]:
    settings = facts(host)
    words = [
        f"{option} ({name.removeprefix('mount:')})"
        for name in sorted(settings)
        if name.startswith("mount:")
        for option in _options(settings, name.removeprefix("mount:"))
        if option in check.words
    ]
    if words:
        yield found(options=listed(words))


def mount_rasize(host: Snapshot, check: Check) -> Iterator[Outcome]:
    for option in _options(facts(host), "ceph"):
        name, _, size = option.partition("=")
        if name == "rasize" and size.isdecimal() and int(size) < (check.threshold or 0.0) * BYTES_PER_MEBIBYTE:
            yield found(bytes=size)


def mount_secure(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if words := [option for option in _options(facts(host), "ceph") if option in check.words]:
        yield found(options=listed(words))


def _options(settings: Mapping[str, str], fstype: str) -> list[str]:
    """Return the options of all mounts of a type, each once; a possibly truncated one is left out."""
    value = settings.get(f"mount:{fstype}", "")
    options = [option for mount in value.split(" | ") for option in mount.split(",") if option]
    return list(dict.fromkeys(options[:-1] if value.endswith(CUT) else options))


def ceph_fuse(host: Snapshot, check: Check) -> Iterator[Outcome]:
    number = sum(
        number for labels, number in series(host, CEPH_CLIENT_INSTANCES) if label(labels, "client") == "ceph-fuse"
    )
    mounts = fact(host, "mounts:fuse.ceph-fuse")
    if number or mounts:
        yield found(number=int(number) or mounts)


def mtu_members(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if members := fact(host, "mtu_members"):
        yield found(members=members)


def ceph_daemons(host: Snapshot) -> list[str]:
    """Return the Ceph daemons of a host that an exporter has found."""
    return sorted(label(labels, "daemon") for labels, _ in series(host, CEPH_SOCKET_UP))


HOST: Mapping[str, LookAtHost] = {
    **{name: fault_of_release for name, entry in all_checks().items() if entry.ranges},
} | {
    look.__name__: look
    for look in (
        governor, turbo, performance_limit, frequency_limit, idle_states, idle_states_off, idle_poll, tuned,
        platform_profile, numa_fake, zone_reclaim, swap, iommu, scheduler, write_cache, allocator,
        swapped, huge_pages, numa_devices, numa_daemons, interrupts, irqbalance, clocksource, sync_aio, cfs_fault,
        client_instances, mounts_shared, mount_wsync, mount_sync, mount_rasize, mount_secure, ceph_fuse, mtu_members,
    )
}  # fmt: skip
