"""The machines of the golden expositions, and what each does in one second.

Only `vm` was recorded. The other two are built, since no such host was available for a recording: their formats follow
the kernel's documentation and sources, their names and figures the sources that each one cites.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from machine import KERNEL_THREAD, KWORKER, Machine
from workload import MDS, OSD

FIXTURES = Path(__file__).parent / "fixtures" / "machines"
At = Callable[[float], None]
"""Sets a machine to its state at a time, in seconds."""

IDLE_STATES = (("POLL", 0), ("C1", 2), ("C1E", 10), ("C6", 133))
"""Names and exit latencies in microseconds of the idle states of a Xeon Gold 6252 (cpupower idle-info in the IO500
tuning diary of a 5-node Ceph 14.2.9 cluster, croit.io, 2020; intel_idle's table for Skylake-X agrees)."""


def threads(first: int, counted: str) -> dict[int, str]:
    """Return thread names by TID for a text of NAME=NUMBER."""
    names = [name for word in counted.split() for name, _, count in [word.rpartition("=")] for _ in range(int(count))]
    return dict(enumerate(names, first))


def add_xeon_cpus(machine: Machine, count: int) -> None:
    """Add CPUs with C1, C1E and C6 under intel_pstate: 2.1 GHz, 3.7 GHz turbo."""
    cpus = "sys/devices/system/cpu"
    machine.write(f"{cpus}/online", f"0-{count - 1}\n")
    machine.write(f"{cpus}/intel_pstate/no_turbo", "0\n")
    machine.write(f"{cpus}/intel_pstate/max_perf_pct", "100\n")
    for cpu in range(count):
        settings = {
            "affected_cpus": cpu,
            "cpuinfo_max_freq": 3_700_000,
            "scaling_max_freq": 3_700_000,
            "scaling_cur_freq": 1_000_000 + cpu * 100_000,
            "scaling_driver": "intel_pstate",
            "scaling_governor": "powersave",
            "energy_performance_preference": "balance_performance",
        }
        for setting, value in settings.items():
            machine.write(f"{cpus}/cpufreq/policy{cpu}/{setting}", f"{value}\n")
        for index, (name, latency) in enumerate(IDLE_STATES):
            state = f"{cpus}/cpu{cpu}/cpuidle/state{index}"
            machine.write(f"{state}/name", f"{name}\n")
            machine.write(f"{state}/latency", f"{latency}\n")
            machine.write(f"{state}/disable", "0\n")
            slept(machine, cpu, index, 0, 0)


def slept(machine: Machine, cpu: int, state: int, entries: int, microseconds: int) -> None:
    """Set the totals of an idle state."""
    path = f"sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}"
    machine.write(f"{path}/usage", f"{entries}\n")
    machine.write(f"{path}/time", f"{microseconds}\n")


def xeon(machine: Machine) -> At:
    """Add a bare-metal client of the diary in ior_easy_write, with four of its CPUs.

    kswapd and the flush worker run as the diary reports (100 % and 70 to 80 %), and one ior process is full. MPI has
    pinned each of its two processes to a core.
    """
    add_xeon_cpus(machine, 4)
    files = {
        "proc/stat": "cpu  0 0 0 0 0 0 0 0 0 0\n" + "".join(f"cpu{n} 0 0 0 0 0 0 0 0 0 0\n" for n in range(4)),
        "proc/diskstats": " 259 0 nvme0n1 10 0 80 5 0 0 0 0 0 5 5 0 0 0 0\n",
        "proc/vmstat": "nr_dirty 1000\nnr_writeback 10\nallocstall_normal 0\nnr_dirty_threshold 12800000\n",
        "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=1234 ro quiet numa=fake=8 intel_idle.max_cstate=9\n",
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Gold 6252 CPU @ 2.10GHz\n",
        "proc/meminfo": "MemTotal:       264042616 kB\n",
        "proc/sys/kernel/osrelease": "5.7.0-0.bpo.2-amd64\n",
        "proc/sys/vm/dirty_ratio": "20\n",
        "proc/sys/vm/watermark_scale_factor": "10\n",
        "sys/block/nvme0n1/dev": "259:0\n",
        "sys/devices/system/node/online": "0-1\n",
        "sys/class/net/enp94s0f0/ifindex": "2\n",
        "sys/class/net/enp94s0f0/flags": "0x1003\n",
        "sys/class/net/enp94s0f0/operstate": "up\n",
        "sys/class/net/enp94s0f0/speed": "100000\n",
        "sys/class/net/enp94s0f0/mtu": "1500\n",
        "sys/class/net/enp94s0f0/device/vendor": "0x15b3\n",
    }
    for path, text in files.items():
        machine.write(path, text)
    mounts = "21 1 0:45 / /mnt/cephfs rw,relatime - ceph :/ rw,name=admin,secret=<hidden>,acl,noshare\n"
    machine.process(1, "systemd", argv=("/sbin/init",))
    machine.ran(1, 1, 12.0)
    machine.write("proc/1/mountinfo", mounts)
    machine.write("proc/self/mountinfo", mounts)
    network(machine, 0)
    machine.process(2, "kthreadd", flags=KERNEL_THREAD)
    for node in range(2):
        machine.process(300 + node, f"kswapd{node}", flags=KERNEL_THREAD)
    machine.process(12, "ksoftirqd/0", flags=KERNEL_THREAD)
    machine.process(400, "kworker/u194:0+flush-ceph-1", flags=KWORKER)
    machine.process(401, "kworker/4:1H-kblockd", flags=KWORKER)
    machine.process(402, "kworker/1:2-events", flags=KWORKER)
    (machine.sysfs / "class" / "bdi" / "ceph-1").mkdir(parents=True)
    for rank, pid in enumerate((5000, 5001)):
        machine.process(pid, "ior", argv=("ior", "-w"), ppid=4999)
        machine.write(f"proc/{pid}/task/{pid}/status", f"Name:\tior\nCpus_allowed_list:\t{rank}\n")
        machine.write(f"proc/{pid}/mountinfo", mounts)
        machine.opens(pid, 7, f"/mnt/cephfs/ior_file_easy.{rank:08}", mount=21)

    def at(time: float) -> None:
        for pid, run, wait in (
            (300, 1.0, 0.0), (301, 0.4, 0.0), (400, 0.75, 0.0), (401, 0.12, 0.0), (402, 0.01, 0.0),
            (5000, 0.97, 0.03), (5001, 0.6, 0.05),
        ):  # fmt: skip
            machine.ran(pid, pid, run * time, wait * time)
        ticks = [(share * time, (100 - share) * time, n * time) for n, share in enumerate((95, 60, 75, 10))]
        lines = [
            f"cpu{n} {busy:.0f} 0 0 {idle:.0f} 0 0 {soft:.0f} 0 0 0\n" for n, (busy, idle, soft) in enumerate(ticks)
        ]
        machine.write("proc/stat", "cpu  0 0 0 0 0 0 0 0 0 0\n" + "".join(lines))
        writes, sectors, busy, weighted = (int(figure * time) for figure in (9000, 800_000, 1000, 18_000))
        machine.write(
            "proc/diskstats",
            f" 259 0 nvme0n1 10 0 80 5 {writes} 0 {sectors} {weighted} 0 {5 + busy} {5 + weighted} 0 0 0 0\n",
        )
        slept(machine, 3, 1, int(2000 * time), int(40_000 * time))
        slept(machine, 3, 3, int(1500 * time), int(800_000 * time))
        network(machine, int(5_000_000_000 * time))

    return at


def network(machine: Machine, sent: int) -> None:
    """Set the bytes that the xeon's interface has sent."""
    head = "Inter-|   Receive                |  Transmit\n face |bytes    packets |bytes    packets\n"
    machine.write("proc/net/dev", f"{head}enp94s0f0: 1000 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n")


def ceph_host(machine: Machine) -> At:
    """Add a host with 16 OSDs, 4 MDSs and 2,000 threads, named as counted on a real cluster of Ceph 16.2.15.

    One MDS is full because of its lock, not because of any thread; one OSD is full because of kv_sync.
    """
    machine.write("proc/vmstat", "nr_dirty 0\nnr_writeback 0\n")
    machine.process(1, "systemd")
    machine.ran(1, 1, 12.0)
    for osd in range(16):
        pid = 10_000 + 100 * osd
        argv = ("/usr/bin/ceph-osd", "-f", "--cluster", "ceph", "--id", str(osd), "--setuser", "ceph")
        machine.process(pid, "ceph-osd", argv=argv, threads=threads(pid + 1, OSD))
    for mds in range(4):
        pid = 20_000 + 100 * mds
        name = f"mds.{'abcd'[mds]}"
        machine.process(pid, "ceph-mds", argv=("/usr/bin/ceph-mds", "-f", "-n", name), threads=threads(pid + 1, MDS))
    for vm in range(8):
        pid = 30_000 + 200 * vm
        machine.process(pid, "qemu-system-x86", threads=threads(pid + 1, "worker=90 msgr-worker-0=1 io_context_pool=2"))
    machine.process(31_900, "python3", threads=threads(31_901, "python3=200"))

    def at(time: float) -> None:
        lock = [tid for tid, name in threads(20_001, MDS).items() if name in ("ms_dispatch", "MR_Finisher")]
        for tid in lock:
            machine.ran(20_000, tid, 0.04 * time, 0.15 * time)
        sync = next(tid for tid, name in threads(10_301, OSD).items() if name == "bstore_kv_sync")
        machine.ran(10_300, sync, 0.55 * time, 0.35 * time)
        for tid, name in threads(10_301, OSD).items():
            if name == "tp_osd_tp":
                machine.ran(10_300, tid, 0.3 * time, 0.1 * time)

    return at


def vm(machine: Machine) -> At:
    """Load the recorded VM: no cpufreq, no idle states. Its second state was recorded a second later, under load."""
    machine.process(1, "systemd")  # it was not recorded, and every machine has one
    machine.load((FIXTURES / "vm-0.txt").read_text())

    def at(time: float) -> None:
        if time >= 1:
            machine.load((FIXTURES / "vm-1.txt").read_text())

    return at


MACHINES: dict[str, Callable[[Machine], At]] = {"xeon": xeon, "vm": vm, "ceph_host": ceph_host}
