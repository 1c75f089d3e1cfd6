from __future__ import annotations

import shutil
import socket
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.host.procfs import parse_mounts
from pinchpoint.probes import Host, NotPresent
from pinchpoint.probes.host_facts import (
    MAX_NETWORKS,
    MAX_VALUE_CHARACTERS,
    HostFacts,
    allocator,
    cmdline_facts,
    distribution,
    fake_nodes,
    huge_pages,
    mount_facts,
    parse_inet6,
    parse_routes,
    swap_kinds,
    swapped_bytes,
)


def facts(host: Host) -> dict[str, str]:
    probe = HostFacts(host)
    probe.sample(1.0)
    points = list(probe.points())
    assert all(point.value == 1 for point in points)
    return {point.labels[0]: point.labels[1] for point in points}


def test_of_the_command_line_only_parameters_that_change_results_are_told() -> None:
    line = (
        "BOOT_IMAGE=/vmlinuz root=UUID=1234 numa=fake=8 intel_idle.max_cstate=1 quiet ip=10.0.0.7 "
        "mitigations=off isolcpus=2-5 idle=poll processor.max-cstate=1 psi=1 -- idle=init"
    )
    assert cmdline_facts(line) == (
        "idle=poll intel_idle.max_cstate=1 isolcpus=2-5 mitigations=off numa=fake=8 processor.max-cstate=1 psi=1"
    )


def test_mount_options_are_told_and_names_keys_and_addresses_are_not() -> None:
    table = (
        b"10.0.0.1:6789:/ /mnt/cephfs ceph rw,noatime,name=admin,secret=<hidden>,secretfile=/k,fsid=0-1,acl,noshare,"
        b"wsize=16777216,rasize=8388608,ms_mode=prefer-crc,mon_addr=10.0.0.1:6789 0 0\n"
        b"ceph-fuse /mnt/fuse fuse.ceph-fuse rw,nosuid,user_id=0,allow_other 0 0\n"
        b"/dev/vda / ext4 rw,noatime 0 0\n"
        b"filer:/x /nfs nfs4 rw,vers=4.2,nconnect=8,clientaddr=10.0.0.9,addr=10.0.0.8,hard 0 0\n"
    )
    assert dict(mount_facts(parse_mounts(table))) == {
        "mount:ceph": "acl,ms_mode=prefer-crc,noatime,noshare,rasize=8388608,rw,wsize=16777216",
        "mounts:ceph": "1",
        "mount:fuse.ceph-fuse": "allow_other,rw",
        "mounts:fuse.ceph-fuse": "1",
        "mount:nfs4": "hard,nconnect=8,rw,vers=4.2",
        "mounts:nfs4": "1",
    }


def test_mounts_that_differ_are_told_apart_and_equal_ones_are_not() -> None:
    table = b"a:/ /1 ceph rw,noshare 0 0\na:/ /2 ceph rw,noshare 0 0\na:/ /3 ceph rw 0 0\n"
    assert dict(mount_facts(parse_mounts(table))) == {"mount:ceph": "noshare,rw | rw", "mounts:ceph": "3"}


def test_a_bind_mount_of_a_part_is_no_mount_of_its_own() -> None:
    table = b"36 35 0:44 / /mnt rw - ceph mon:/ rw\n37 35 0:44 /sub /srv/sub rw - ceph mon:/ rw\n"
    assert dict(mount_facts(parse_mounts(table))) == {"mount:ceph": "rw", "mounts:ceph": "1"}


def test_mountinfo_tells_the_same_as_mounts(machine: Machine) -> None:
    machine.write(
        "proc/1/mountinfo",
        "36 35 0:44 /sub\\040dir /mnt/a\\040b rw,noatime shared:9 - ceph mon:/ rw,name=x,noshare\n"
        "half a line\n37 35 0:45 / /b rw - nfs\n",
    )
    assert facts(machine.host())["mount:ceph"] == "noatime,noshare,rw"
    mount = parse_mounts(machine.write("x", (machine.procfs / "1/mountinfo").read_bytes()).read_bytes())[0]
    assert (mount.root, mount.point) == ("/sub dir", "/mnt/a b")


def test_idle_states_say_which_of_them_are_off(machine: Machine) -> None:
    off = {"POLL": (0, 0), "C1": (0, 0), "C1E": (0, 1), "C6": (1, 1)}
    for state, (name, disabled) in enumerate(off.items()):
        for cpu in (0, 1):
            path = f"sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}"
            machine.write(f"{path}/name", f"{name}\n")
            machine.write(f"{path}/disable", f"{disabled[cpu]}\n")
    assert facts(machine.host())["idle_states"] == "POLL,C1,C1E(partly off),C6(off)"


def test_mtu_is_that_of_hardware_that_is_up(machine: Machine) -> None:
    for name, mtu, state, real in (
        ("eth0", 9000, "up", True),
        ("eth1", 1500, "up", True),
        ("eth2", 9000, "up", True),
        ("eth3", 4000, "down", True),
        ("veth1", 1450, "up", False),
    ):
        machine.write(f"sys/class/net/{name}/mtu", f"{mtu}\n")
        machine.write(f"sys/class/net/{name}/operstate", f"{state}\n")
        if real:
            machine.write(f"sys/class/net/{name}/device/vendor", "0x15b3\n")
    assert facts(machine.host())["mtu"] == "1500,9000"


def interface(machine: Machine, name: str, mtu: int, *, real: bool = False, on: tuple[str, ...] = ()) -> None:
    machine.write(f"sys/class/net/{name}/mtu", f"{mtu}\n")
    if real:
        machine.write(f"sys/class/net/{name}/device/vendor", "0x15b3\n")
    for lower in on:
        (machine.sysfs / "class/net" / name / f"lower_{lower}").symlink_to(f"../{lower}")


ROUTES = """Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
bond0 00000000 0100010A 0003 0 0 0 00000000 0 0 0
bond0 0000010A 00000000 0001 0 0 0 00FFFFFF 0 0 0
eth2 0000020A 00000000 0001 0 0 0 00FFFFFF 0 0 0
eth3 0000020A 00000000 0001 0 0 0 00FFFFFF 0 0 0
docker0 000011AC 00000000 0001 0 0 0 0000FFFF 0 0 0
eth2 0700020A 00000000 0005 0 0 0 FFFFFFFF 0 0 0
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the table has the byte order of the machine that it is from")
def test_a_network_is_told_with_the_mtus_of_hardware_and_of_what_lies_on_it(machine: Machine) -> None:
    interface(machine, "eth0", 9000, real=True)
    interface(machine, "bond0", 9000, on=("eth0",))
    interface(machine, "eth2", 1500, real=True)
    interface(machine, "eth3", 9000, real=True)
    interface(machine, "veth1", 1500)
    interface(machine, "docker0", 1500, on=("veth1",))
    machine.write("proc/1/net/route", ROUTES)
    machine.write(
        "proc/1/net/if_inet6",
        "fe800000000000000000000000000001 02 40 20 80 eth2\n"
        "20010db8000000000000000000000007 02 40 00 82 eth2\n"
        "00000000000000000000000000000001 01 80 10 80 lo\n",
    )

    found = {fact: value for fact, value in facts(machine.host()).items() if fact.startswith("network:")}

    assert found == {
        "network:10.1.0.0/24": "9000",
        "network:10.2.0.0/24": "1500,9000",
        "network:2001:db8::/64": "1500",
    }


def test_a_host_in_many_networks_tells_some_of_them(machine: Machine) -> None:
    interface(machine, "eth0", 1500, real=True)
    lines = [f"eth0 00{number:02X}000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n" for number in range(100)]
    machine.write("proc/net/route", "".join(lines))
    assert sum(fact.startswith("network:") for fact in facts(machine.host())) == MAX_NETWORKS


def test_hardware_with_a_smaller_mtu_than_its_bond_or_bridge_is_told(machine: Machine) -> None:
    for name, mtu in (("eth0", 9000), ("eth1", 1500), ("eth2", 9000)):
        interface(machine, name, mtu, real=True)
    interface(machine, "veth1", 1450)
    interface(machine, "bond0", 9000, on=("eth0", "eth1"))
    interface(machine, "br0", 1500, on=("eth2", "veth1"))
    interface(machine, "vlan7", 9000, on=("eth1",))
    machine.write("sys/class/net/bond0/bonding/mode", "802.3ad 4\n")
    machine.write("sys/class/net/br0/bridge/stp_state", "0\n")
    assert facts(machine.host())["mtu_members"] == "bond0 9000: eth1 1500"


def test_interfaces_that_lie_on_each_other_in_a_ring_end_nowhere(machine: Machine) -> None:
    interface(machine, "a", 1500, on=("b",))
    interface(machine, "b", 1500, on=("a",))
    machine.write("proc/net/route", "a 0000020A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n")
    machine.write("proc/sys/vm/swappiness", "60\n")
    assert facts(machine.host()) == {"vm.swappiness": "60"}


@pytest.mark.parametrize(
    ("line", "nodes"),
    [
        ("quiet numa=fake=8", "8"),
        ("numa=fake=8U", "8U"),
        ("numa=off", ""),
        ("numa=fake=4 numa=off", ""),
        ("quiet -- numa=fake=8", ""),
        ("", ""),
    ],
)
def test_faked_numa_nodes_are_told(line: str, nodes: str) -> None:
    assert fake_nodes(line) == nodes


def test_faked_numa_nodes_are_told_however_long_the_command_line_is(machine: Machine) -> None:
    machine.write("proc/cmdline", f"isolcpus={','.join(map(str, range(1, 96)))} numa=fake=8\n")
    found = facts(machine.host())
    assert "numa=" not in found["cmdline"]
    assert found["numa_fake"] == "8"


@pytest.mark.parametrize(
    ("areas", "kinds"),
    [
        ("", "off"),
        ("/dev/sda2 partition 8388604 0 -2\n", "disk"),
        ("/dev/zram0 partition 8388604 0 100\n", "zram"),
        ("/dev/zram0 partition 1 0 100\n/swap\\040file file 1 0 -2\n", "disk,zram"),
    ],
)
def test_swap_is_told_by_what_it_swaps_to(areas: str, kinds: str) -> None:
    assert swap_kinds(f"Filename Type Size Used Priority\n{areas}".encode()) == kinds


def test_profiles_of_tuned_and_of_the_firmware_are_told(machine: Machine) -> None:
    machine.write("etc/tuned/active_profile", "balanced\n")
    machine.write("sys/firmware/acpi/platform_profile", "low-power\n")
    machine.write("proc/swaps", "Filename Type Size Used Priority\n")
    swap = {"swap": "off", "swapped": "no"}
    assert facts(machine.host()) == {"tuned": "balanced", "platform_profile": "low-power", **swap}


@given(
    st.binary(max_size=300)
    | st.lists(
        st.sampled_from(
            [b"eth0", b" ", b"\t", b"\n", b"0000020A", b"0001", b"00FFFFFF", b"0", b"FF00FF00", b"FFFFFFFFF"]
        )
    ).map(b"".join)
)
def test_any_bytes_give_networks_or_nothing(raw: bytes) -> None:
    for parse in (parse_routes, parse_inet6):
        for name, network in parse(raw):
            assert name.isprintable()
            assert network.prefixlen <= network.max_prefixlen
    assert swap_kinds(raw) in ("off", "disk", "zram", "disk,zram")


def test_settings_of_cpus_memory_and_kernel_are_told(machine: Machine) -> None:
    cpu = "sys/devices/system/cpu"
    for path, content in {
        "proc/sys/kernel/osrelease": "6.1.0-18-amd64",
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Intel(R)  Xeon(R) Gold 6252\nflags: a",
        "proc/meminfo": "MemTotal:       131803560 kB\nMemFree: 1 kB",
        f"{cpu}/online": "0-47,96-143",
        f"{cpu}/smt/active": "1",
        f"{cpu}/intel_pstate/no_turbo": "1",
        f"{cpu}/cpufreq/policy0/scaling_governor": "powersave",
        f"{cpu}/cpufreq/policy1/scaling_governor": "performance",
        "sys/devices/system/node/online": "0-1",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "proc/sys/vm/dirty_ratio": "20",
        "proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456",
    }.items():
        machine.write(path, content + "\n")

    assert facts(machine.host()) == {
        "kernel": "6.1.0-18-amd64",
        "cpu_model": "Intel(R) Xeon(R) Gold 6252",
        "cpus": "96",
        "smt": "on",
        "numa_nodes": "2",
        "memory_gib": "126",
        "governor": "performance,powersave",
        "turbo": "off",
        "clocksource": "tsc",
        "transparent_hugepage": "madvise",
        "vm.dirty_ratio": "20",
        "net.ipv4.tcp_rmem": "4096 131072 6291456",
    }


def test_a_machine_without_any_fact_is_not_a_failure(machine: Machine) -> None:
    with pytest.raises(NotPresent):
        HostFacts(machine.host()).sample(1.0)


@given(
    st.binary(max_size=400)
    | st.lists(st.sampled_from([b"ceph", b"\\040", b"\\999", b"\\", b" - ", b" ", b",", b"rw", b"\n"])).map(b"".join)
)
def test_any_bytes_give_mounts_with_printable_options(raw: bytes) -> None:
    for fact, value in mount_facts(parse_mounts(raw)):
        assert fact.isprintable()
        assert value.isprintable()


@given(content=st.binary(max_size=400))
def test_values_are_printable_and_bounded_whatever_the_files_hold(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    for path in ("sys/kernel/osrelease", "sys/net/ipv4/tcp_wmem", "cmdline", "1/mountinfo", "1/net/route", "swaps"):
        machine.write(f"proc/{path}", content)
    machine.write("etc/tuned/active_profile", content)
    machine.write("proc/cpuinfo", b"model name : " + content)
    machine.write("proc/meminfo", b"MemTotal: " + content)
    machine.write("sys/devices/system/cpu/online", content)
    try:
        found = facts(machine.host())
    except NotPresent:
        return
    assert all(value.isprintable() and 0 < len(value) <= MAX_VALUE_CHARACTERS for value in found.values())


def test_facts_of_this_machine_are_stable_and_do_not_name_it(this_host: Host) -> None:
    found = facts(this_host)

    assert found == facts(this_host)
    assert {"kernel", "cpus", "memory_gib"} <= found.keys()
    name = socket.gethostname()
    assert not any(name in value.split() for value in found.values())


MAPS = "7f00-7f01 r-xp 0 08:01 7 /usr/lib/x86_64-linux-gnu/libc.so.6\n"
TCMALLOC = "7f02-7f03 r-xp 0 08:01 8 /usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4.5.9 (deleted)\n"


def test_the_allocators_of_daemons_are_those_in_their_memory_maps(machine: Machine) -> None:
    for pid, comm, name, maps in (
        (70, "ceph-osd", "0", MAPS),
        (71, "ceph-osd", "1", MAPS + TCMALLOC),
        (72, "ceph-mds", "a", "7f00-7f01 r-xp 0 08:01 7 /usr/lib/libjemalloc.so.2\n"),
        (73, "ceph-mds", "b", ""),
        (74, "fio", "", MAPS),
    ):
        machine.process(pid, comm, argv=(comm, "-i", name))
        machine.write(f"proc/{pid}/maps", maps)
    found = facts(machine.host())

    assert {name: value for name, value in found.items() if name.startswith("allocator:")} == {
        "allocator:ceph-osd": "libc,tcmalloc", "allocator:ceph-mds": "jemalloc",
    }  # fmt: skip


def test_a_map_is_read_once_for_each_process(machine: Machine) -> None:
    machine.process(70, "ceph-osd", argv=("ceph-osd", "-i", "0"))
    machine.write("proc/70/maps", MAPS + TCMALLOC)
    probe = HostFacts(machine.host())
    probe.sample(1.0)
    (machine.procfs / "70/maps").unlink()
    probe.sample(61.0)

    assert ("allocator:ceph-osd", "tcmalloc") in [point.labels for point in probe.points()]


def osd(machine: Machine, pid: int, status: str) -> None:
    machine.process(pid, "ceph-osd", argv=("ceph-osd", "-i", str(pid)))
    before = (machine.procfs / str(pid) / "status").read_text()
    machine.write(f"proc/{pid}/status", before + status)


def node(machine: Machine, number: int, cpus: str) -> None:
    machine.write(f"sys/devices/system/node/node{number}/cpulist", f"{cpus}\n")


def test_daemons_that_are_pinned_are_told_by_the_nodes_where_they_may_run(machine: Machine) -> None:
    for number, cpus in enumerate(("0-3", "4-7", "8-11", "")):
        node(machine, number, cpus)
    for pid, cpus in ((70, "0-11"), (71, "5"), (72, "4-11")):
        osd(machine, pid, f"THP_enabled:\t{pid % 2}\nCpus_allowed_list:\t{cpus}\n")
    found = facts(machine.host())

    assert found["numa:ceph-osd"] == "1,1+2"
    assert found["huge_pages:ceph-osd"] == "off,on"


def test_daemons_that_may_run_anywhere_and_old_kernels_tell_nothing(machine: Machine) -> None:
    node(machine, 0, "0-3")
    machine.write("proc/sys/kernel/osrelease", "4.18.0\n")
    osd(machine, 70, "Cpus_allowed_list:\t0-3\n")

    assert not {"numa:ceph-osd", "huge_pages:ceph-osd"} & facts(machine.host()).keys()


def nic(machine: Machine, name: str, numbers: range, cpus: list[int], queues: int = 4, node: int = 0) -> None:
    machine.write(f"sys/class/net/{name}/operstate", "up\n")
    machine.write(f"sys/class/net/{name}/device/numa_node", f"{node}\n")
    for queue in range(queues):
        machine.write(f"sys/class/net/{name}/queues/rx-{queue}/rps_cpus", "0\n")
    served_by(machine, f"sys/class/net/{name}/device", numbers, cpus)


def served_by(machine: Machine, device: str, numbers: range, cpus: list[int]) -> None:
    for number, cpu in zip(numbers, cpus, strict=True):
        machine.write(f"{device}/msi_irqs/{number}", "msix\n")
        machine.write(f"proc/irq/{number}/effective_affinity_list", f"{cpu}\n")


def test_devices_are_told_by_their_nodes_and_whether_one_cpu_serves_all_their_interrupts(machine: Machine) -> None:
    nic(machine, "eth0", range(30, 34), [2, 2, 2, 2])
    nic(machine, "eth1", range(40, 44), [0, 1, 2, 3], node=1)
    nic(machine, "eth2", range(50, 52), [5, 5], queues=1, node=-1)
    machine.write("sys/class/nvme/nvme0/device/numa_node", "1\n")
    served_by(machine, "sys/class/nvme/nvme0/device", range(60, 64), [0, 0, 1, 1])
    found = facts(machine.host())

    assert (found["numa:nic"], found["numa:nvme"]) == ("0,1", "1")
    assert (found["interrupts:nic"], found["interrupts:nvme"]) == ("several CPUs,one CPU", "several CPUs")


def test_a_virtio_device_has_the_interrupts_of_its_pci_device(machine: Machine) -> None:
    nic(machine, "eth0", range(0), [])
    pci = machine.sysfs / "devices/pci0000:00/0000:00:03.0"
    (pci / "virtio1").mkdir(parents=True)
    served_by(machine, "sys/devices/pci0000:00/0000:00:03.0", range(30, 33), [1, 1, 1])
    device = machine.sysfs / "class/net/eth0/device"
    shutil.rmtree(device)
    device.symlink_to(pci / "virtio1")

    assert facts(machine.host())["interrupts:nic"] == "one CPU"


def test_irqbalance_runs_if_the_process_of_its_socket_does(machine: Machine) -> None:
    machine.write("run/irqbalance/irqbalance70.sock", "")
    machine.write("proc/70/comm", "bash\n")
    machine.write("proc/version", "")
    machine.write("proc/sys/kernel/osrelease", "6.1\n")
    assert "irqbalance" not in facts(machine.host())
    machine.write("run/irqbalance/irqbalance71.sock", "")
    machine.write("proc/71/comm", "irqbalance\n")

    assert facts(machine.host())["irqbalance"] == "on"


SWAPS = (
    b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/dm-1 partition\t8388604\t\t65536\t\t-2\n"
    b"/dev/zram0 partition\t4194300\t\t99999999\t100\n/swap\\040file file\t1024\t\t24\t\t-3\n"
)


def test_memory_counts_as_swapped_out_if_it_is_on_a_disk(machine: Machine) -> None:
    assert swapped_bytes(SWAPS) == (65536 + 24) << 10
    machine.write("proc/swaps", SWAPS)
    assert facts(machine.host())["swapped"] == "yes"
    machine.write("proc/swaps", SWAPS.replace(b"65536", b"1"))
    assert facts(machine.host())["swapped"] == "no"


@given(st.binary(max_size=400) | st.lists(st.sampled_from(SWAPS.split(b"\t"))).map(b"\t".join))
def test_any_bytes_are_swaps_and_a_status(raw: bytes) -> None:
    assert swapped_bytes(raw) >= 0
    assert huge_pages(raw) in ("", "on", "off")


def test_the_iommu_translates_or_lets_addresses_pass(machine: Machine) -> None:
    machine.write("sys/kernel/iommu_groups/0/type", "identity\n")
    assert facts(machine.host())["iommu"] == "passthrough"
    machine.write("sys/kernel/iommu_groups/12/type", "DMA-FQ\n")
    assert facts(machine.host())["iommu"] == "passthrough,translated"


def test_disks_are_those_of_hardware_by_kind(machine: Machine) -> None:
    for disk, rotational, scheduler, cache, sectors in (
        ("nvme0n1", 0, "[none] mq-deadline", "write through", 7501476528),
        ("nvme1n1", 0, "none [bfq]", "write back", 7501476528),
        ("sda", 1, "[mq-deadline] none", "write back", 35156656128),
        ("sr0", 1, "[mq-deadline] none", "write through", 0),
        ("dm-0", 0, "[kyber]", "write back", 1000),
    ):
        machine.write(f"sys/block/{disk}/size", f"{sectors}\n")
        queue = f"sys/block/{disk}/queue"
        machine.write(f"{queue}/rotational", f"{rotational}\n")
        machine.write(f"{queue}/scheduler", f"{scheduler}\n")
        machine.write(f"{queue}/write_cache", f"{cache}\n")
        if disk != "dm-0":
            machine.write(f"sys/block/{disk}/device/model", "x\n")
    found = facts(machine.host())

    assert (found["scheduler:ssd"], found["scheduler:hdd"]) == ("bfq,none", "mq-deadline")
    assert (found["write_cache:ssd"], found["write_cache:hdd"]) == (
        "write back,write through",
        "write back,write through",
    )
    assert (found["disks:ssd"], found["disks:hdd"]) == ("2 x 3.84 TB", "1 x 18 TB")


@pytest.mark.parametrize(("packages", "sockets"), [([0, 0, 1, 1], "2"), ([-1, -1], None), ([], None)])
def test_sockets_are_the_packages_that_the_kernel_knows(
    machine: Machine, packages: list[int], sockets: str | None
) -> None:
    machine.write("proc/sys/kernel/arch", "x86_64\n")
    for cpu, package in enumerate(packages):
        machine.write(f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", f"{package}\n")

    assert facts(machine.host()).get("sockets") == sockets
    assert facts(machine.host())["architecture"] == "x86_64"


def test_the_distribution_is_its_id_and_version() -> None:
    assert distribution(b'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="22.04"\nID_LIKE=debian\n') == "ubuntu 22.04"
    assert distribution(b"ID=arch\n") == "arch"
    assert distribution(b"VERSION_ID=1\nID=\x1b[31m\n") == ""


@given(st.binary(max_size=200))
def test_any_maps_and_release_files_are_short_names(raw: bytes) -> None:
    assert allocator(raw) in ("libc", "tcmalloc", "jemalloc")
    assert len(distribution(raw)) <= 65
