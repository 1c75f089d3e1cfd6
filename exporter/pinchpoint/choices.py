"""What a command line and a configuration file may name: probes, sources, levels of the log.

They are apart from what they name: `--help` and a completion import no probe, which is half of what a service imports.
"""

from __future__ import annotations

__all__ = ["AUTO", "KWORKER_SOURCES", "LOG_LEVELS", "PROBE_HELP", "TASK_SOURCES", "WAIT_SOURCES"]

AUTO = "auto"
"""The best source that works."""
TASK_SOURCES = (AUTO, "bpf", "bpf-iter", "kept", "plain")
"""How threads are read, the best first: `pinchpoint.bpf.choice` chooses."""
KWORKER_SOURCES = (AUTO, "bpf", "comm")
"""How the time of workqueue workers is attributed: `pinchpoint.probes.kworkers` chooses."""
WAIT_SOURCES = (AUTO, "bpf", "files")
"""How it is found out what threads wait for: `pinchpoint.waits.choice` chooses."""
LOG_LEVELS = ("debug", "info", "warning", "error")
PROBE_HELP = {
    "tasks": "CPU and run-queue wait of threads by role (BPF, or procfs schedstat)",
    "kworkers": "kernel workers by what they do, writeback by backing device (BPF, or procfs at 20 Hz)",
    "locks": "whether mds_lock or client_lock is held, from its state (8 or 20 bytes of memory, 10 times a second)",
    "benchmark": "phases, progress and results of benchmark runs (processes, markers of `pinchpoint run`)",
    "waits": "what benchmarks spend their time on, by their threads' kernel stacks (BPF, or procfs at 10 Hz)",
    "path": "who makes benchmarks wait, by who wakes whom (BPF), in windows of half a second, at most one every 4 s",
    "profile": "what full threads spend CPU time on (perf events of these threads, stacks)",
    "cpu": "the host's CPUs, and the CPU with the most softirq and irq time (procfs stat)",
    "affinity": "load on the CPUs that processes of interest may use, if not all (procfs status and stat)",
    "cpuidle": "idle states: residency, entries, exit cost, disabled states (sysfs cpuidle)",
    "cpufreq": "clock frequency, governor, turbo and limits of CPUs (sysfs cpufreq, intel_pstate)",
    "devices": "disks and network links: busy and saturated time (procfs diskstats and net/dev, qdiscs)",
    "namespaces": "queues in front of links in other network namespaces (netlink sockets opened there)",
    "storage": "disks under the open files of benchmarks and OSDs (procfs fd, fdinfo and mountinfo)",
    "memory": "dirty memory, writeback, reclaim stalls (procfs vmstat) and memory pressure (PSI)",
    "cgroups": "limits of CPU, memory and I/O and their use, for processes of interest (cgroup v1 and v2)",
    "mds": "cache, journal and requests of Ceph MDS daemons (admin socket)",
    "osd": "operations, commits, throttles and placement groups of Ceph OSD daemons (admin socket)",
    "ceph_daemons": "whether Ceph monitors and managers on this host answer or are stuck (admin sockets)",
    "ceph_client": "Ceph clients in user space: requests in flight, latency, operations (their admin sockets)",
    "ceph_kernel": "the kernel's CephFS and RBD clients: requests in flight, latency, blocklisting (debugfs)",
    "tcp": "TCP round-trip times, retransmissions and send queues of Ceph and of benchmarks (sock_diag)",
    "host_facts": "settings that change results: kernel, power, disks, interrupts, MTU, mounts, knobs (procfs, sysfs)",
    "self": "Pinchpoint's own cost",
}
"""One line for each probe, by its name, in the order of `pinchpoint.probes.PROBES`: what it reads, and how."""
