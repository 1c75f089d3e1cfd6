"""Where hardware and processes are: NUMA nodes, and the CPUs that serve interrupts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from pinchpoint.host.procfs import FormatError, parse_cpu_list, read_bytes
from pinchpoint.host.sysfs import read_int, read_text

__all__ = ["allowed_nodes", "interrupt_cpus", "node_cpus", "nodes_of", "nvme_drives", "physical_interfaces"]

MAX_INTERRUPTS = 256
"""Interrupts of a device that are looked at."""


def physical_interfaces(sysfs: Path) -> Iterator[Path]:
    """Yield the network interfaces that are hardware and up."""
    for path in sorted((sysfs / "class" / "net").glob("*")):
        if (path / "device").exists() and read_text(path / "operstate") == "up":
            yield path


def nvme_drives(sysfs: Path) -> Iterator[Path]:
    """Yield the controllers of NVMe drives."""
    for path in sorted((sysfs / "class" / "nvme").glob("nvme[0-9]*")):
        if (path / "device").exists():
            yield path


def nodes_of(devices: Iterable[Path]) -> str:
    """Return the NUMA nodes of devices, ``0,1``; "" where the firmware names none."""
    nodes = {read_int(_bus_device(device) / "numa_node") for device in devices}
    # NUMA_NO_NODE is -1 (include/linux/numa.h).
    return ",".join(str(node) for node in sorted(node for node in nodes if node is not None and node >= 0))


def interrupt_cpus(procfs: Path, device: Path) -> tuple[int, frozenset[int]]:
    """Return how many message-signalled interrupts a device has, and which CPUs serve them.

    Interrupts without an effective affinity are left out (show_irq_affinity, kernel/irq/proc.c; Linux 4.13).
    """
    number, cpus = 0, frozenset[int]()
    for path in islice((_bus_device(device) / "msi_irqs").glob("[0-9]*"), MAX_INTERRUPTS):
        try:
            served = parse_cpu_list(read_bytes(procfs / "irq" / path.name / "effective_affinity_list"))
        except (OSError, FormatError):
            continue
        number += bool(served)
        cpus |= served
    return number, cpus


def _bus_device(device: Path) -> Path:
    """Return the directory of the device on its bus: a virtio device lies in one of PCI's, which has the interrupts."""
    found = (device / "device").resolve()
    return found.parent if not (found / "msi_irqs").exists() and (found.parent / "msi_irqs").exists() else found


def node_cpus(sysfs: Path) -> dict[int, frozenset[int]]:
    """Return the CPUs of each NUMA node that has any."""
    found: dict[int, frozenset[int]] = {}
    for path in (sysfs / "devices" / "system" / "node").glob("node[0-9]*"):
        if path.name[4:].isdecimal():
            try:
                found[int(path.name[4:])] = parse_cpu_list(read_bytes(path / "cpulist"))
            except (OSError, FormatError):
                continue
    return {node: cpus for node, cpus in sorted(found.items()) if cpus}


def allowed_nodes(allowed: frozenset[int], nodes: Mapping[int, frozenset[int]]) -> str:
    """Return the nodes on whose CPUs a process may run, ``0+1``; "" if these are all."""
    found = [node for node, cpus in nodes.items() if cpus & allowed]
    return "" if len(found) == len(nodes) else "+".join(map(str, found))
