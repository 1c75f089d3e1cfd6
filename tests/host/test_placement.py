from __future__ import annotations

from machine import Machine
from pinchpoint.host.placement import MAX_INTERRUPTS, allowed_nodes, interrupt_cpus, node_cpus, nodes_of


def test_interrupts_without_an_effective_affinity_are_left_out(machine: Machine) -> None:
    device = machine.sysfs / "class/net/eth0"
    for number, cpus in ((30, "1"), (31, ""), (32, "3-x")):
        machine.write(f"sys/class/net/eth0/device/msi_irqs/{number}", "msix\n")
        machine.write(f"proc/irq/{number}/effective_affinity_list", f"{cpus}\n")
    machine.write("sys/class/net/eth0/device/msi_irqs/33", "msix\n")

    assert interrupt_cpus(machine.procfs, device) == (1, frozenset({1}))


def test_no_more_interrupts_are_read_than_the_limit(machine: Machine) -> None:
    for number in range(MAX_INTERRUPTS + 10):
        machine.write(f"sys/class/nvme/nvme0/device/msi_irqs/{number}", "msix\n")
        machine.write(f"proc/irq/{number}/effective_affinity_list", "0\n")

    assert interrupt_cpus(machine.procfs, machine.sysfs / "class/nvme/nvme0") == (MAX_INTERRUPTS, frozenset({0}))


def test_a_node_that_no_firmware_names_counts_as_unknown(machine: Machine) -> None:
    machine.write("sys/class/nvme/nvme0/device/numa_node", "-1\n")

    assert nodes_of([machine.sysfs / "class/nvme/nvme0", machine.sysfs / "class/nvme/nvme1"]) == ""


def test_nodes_are_those_with_cpus(machine: Machine) -> None:
    for node, cpus in ((0, "0-1"), (1, ""), (10, "2"), (2, "3")):
        machine.write(f"sys/devices/system/node/node{node}/cpulist", f"{cpus}\n")
    nodes = node_cpus(machine.sysfs)

    assert nodes == {0: {0, 1}, 2: {3}, 10: {2}}
    assert allowed_nodes(frozenset({0, 2}), nodes) == "0+10"
    assert allowed_nodes(frozenset({0, 2, 3}), nodes) == ""
    assert allowed_nodes(frozenset(), {}) == ""
