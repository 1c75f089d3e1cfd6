from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.probes import Host, NotPresent
from pinchpoint.probes.host_facts import VALUE_LIMIT, HostFacts, cmdline_facts, mount_facts, parse_cpu_list
from pinchpoint.procfs import parse_mounts


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
        "ceph": "acl,ms_mode=prefer-crc,noatime,noshare,rasize=8388608,rw,wsize=16777216",
        "fuse.ceph-fuse": "allow_other,rw",
        "nfs4": "hard,nconnect=8,rw,vers=4.2",
    }


def test_mounts_that_differ_are_told_apart_and_equal_ones_are_not() -> None:
    table = b"a:/ /1 ceph rw,noshare 0 0\na:/ /2 ceph rw,noshare 0 0\na:/ /3 ceph rw 0 0\n"
    assert dict(mount_facts(parse_mounts(table))) == {"ceph": "noshare,rw | rw"}


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


def test_lists_of_cpus_are_counted() -> None:
    assert [parse_cpu_list(text) for text in ("", "0", "0-3", "0-3,8,10-11")] == [0, 1, 4, 7]


@pytest.mark.parametrize("text", ["x", "3-1", "-1", "0-99999999", "1,,2"])
def test_what_is_no_list_of_cpus_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"CPUs|invalid literal"):
        parse_cpu_list(text)


@given(
    st.binary(max_size=400)
    | st.lists(st.sampled_from([b"ceph", b"\\040", b"\\999", b"\\", b" - ", b" ", b",", b"rw", b"\n"])).map(b"".join)
)
def test_any_bytes_give_mounts_with_printable_options(raw: bytes) -> None:
    for fstype, options in mount_facts(parse_mounts(raw)):
        assert fstype.isprintable()
        assert options.isprintable()


@given(content=st.binary(max_size=400))
def test_values_are_printable_and_bounded_whatever_the_files_hold(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    for path in ("proc/sys/kernel/osrelease", "proc/sys/net/ipv4/tcp_wmem", "proc/cmdline", "proc/1/mountinfo"):
        machine.write(path, content)
    machine.write("proc/cpuinfo", b"model name : " + content)
    machine.write("proc/meminfo", b"MemTotal: " + content)
    machine.write("sys/devices/system/cpu/online", content)
    try:
        found = facts(machine.host())
    except NotPresent:
        return
    assert all(value.isprintable() and 0 < len(value) <= VALUE_LIMIT for value in found.values())


def test_facts_of_this_machine_are_stable_and_do_not_name_it(this_host: Host) -> None:
    found = facts(this_host)

    assert found == facts(this_host)
    assert {"kernel", "cpus", "memory_gib"} <= found.keys()
    name = socket.gethostname()
    assert not any(name in value.split() for value in found.values())
