from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from machine import KERNEL_THREAD, Machine, stat_line
from pinchpoint.host.procfs import first_names, parse_stat
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host
from pinchpoint.probes.tasks import Tasks
from pinchpoint.quotas import MAX_USER_THREADS
from polling import until

BOOTED = 1000.0


class Clock:
    """Takes samples of a probe at a pace, and sets the time of the fake machine."""

    def __init__(self, machine: Machine, probe: Tasks, interval: float = 0.1) -> None:
        self.machine = machine
        self.probe = probe
        self.interval = interval
        self.now = 50.0

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.machine.uptime(BOOTED + self.now)
            self.probe.sample(self.now)
            self.now += self.interval


@pytest.fixture
def clock(machine: Machine) -> Iterator[Clock]:
    # Some process must have run, or the probe assumes that schedstat is off.
    machine.process(1, "systemd")
    machine.ran(1, 1, 1.0)
    probe = Tasks(machine.host())
    yield Clock(machine, probe)
    probe.close()


def read(probe: Tasks) -> Snapshot:
    return Snapshot.of(0, probe.points())


def seconds(probe: Tasks, resource: str, owner: str, what: str = "busy") -> float:
    """Return an integral of a resource, whichever waits it serves."""
    found = [
        value
        for labels, value in read(probe).series(f"pinchpoint_resource_{what}_seconds_total")
        if (labels["resource"], labels["owner"]) == (resource, owner)
    ]
    return sum(found)


def cpu(probe: Tasks, role: str, owner: str) -> float:
    return read(probe).value("pinchpoint_thread_cpu_seconds_total", role=role, owner=owner) or 0.0


def test_the_lock_of_an_mds_is_full_though_no_thread_and_not_the_process_is(machine: Machine, clock: Clock) -> None:
    takers = {11: "ms_dispatch", 12: "MR_Finisher", 13: "PQ_Finisher", 14: "safe_timer", 15: "mds_rank_progr"}
    machine.process(10, "ceph-mds", threads={10: "ceph-mds", **takers, 16: "log"}, argv=("ceph-mds", "-i", "a"))
    clock.tick()
    for turn in range(1, 11):
        for tid in takers:
            machine.ran(10, tid, turn * 0.015, turn * 0.003)
        clock.tick()

    assert seconds(clock.probe, "mds_lock", "mds.a") == pytest.approx(10 * 5 * 0.018)
    assert seconds(clock.probe, "mds_lock", "mds.a", "saturated") == pytest.approx(1.0)
    assert read(clock.probe).value("pinchpoint_threads", role="mds_lock", owner="mds.a") == 5
    assert read(clock.probe).value("pinchpoint_threads", role="ceph_mds_other", owner="mds.a") == 2


@pytest.mark.parametrize(("share", "rests"), [(0.02, True), (0.3, False)])
def test_a_busy_daemon_keeps_the_host_from_resting(machine: Machine, clock: Clock, share: float, rests: bool) -> None:
    machine.process(10, "ceph-mds", threads={10: "ceph-mds", 11: "ms_dispatch"}, argv=("ceph-mds", "-i", "a"))
    for turn in range(31):
        machine.ran(10, 11, turn * 0.1 * share)
        clock.tick()

    assert clock.probe.host.activity.rests(clock.now) is rests


def test_a_process_of_a_benchmark_keeps_the_host_from_resting_though_it_sleeps(machine: Machine, clock: Clock) -> None:
    """Its run may be another host's."""
    clock.tick()
    assert clock.probe.host.activity.rests(clock.now)

    machine.process(10, "fio")
    clock.tick(10)
    assert not clock.probe.host.activity.rests(clock.now)


def test_an_osds_pool_is_measured_by_all_of_its_threads(machine: Machine, clock: Clock) -> None:
    machine.process(10, "ceph-osd", threads=dict.fromkeys(range(11, 27), "tp_osd_tp"), argv=("ceph-osd", "-i", "3"))
    clock.tick()
    for tid in range(11, 15):
        machine.ran(10, tid, 0.1)
    clock.tick()

    assert seconds(clock.probe, "osd_op", "osd.3") == pytest.approx(0.1 * 4 / 16)
    assert seconds(clock.probe, "osd_op", "osd.3", "saturated") == 0


def test_a_kernel_thread_is_charged_and_its_imitation_is_not(machine: Machine, clock: Clock) -> None:
    machine.process(10, "kswapd0", flags=KERNEL_THREAD)
    machine.process(11, "kswapd1")
    clock.tick()
    machine.ran(10, 10, 0.1)
    machine.ran(11, 11, 0.1)
    clock.tick()

    assert seconds(clock.probe, "kswapd", "node0") == pytest.approx(0.1)
    assert {labels["owner"] for labels, _ in read(clock.probe).series("pinchpoint_threads")} == {"node0"}


def test_a_newborn_counts_from_zero_and_an_old_shell_that_calls_exec_without_its_past(
    machine: Machine, clock: Clock
) -> None:
    machine.process(20, "bash", start=int(100 * BOOTED))
    machine.ran(20, 20, 40.0)
    clock.tick(30)
    machine.process(20, "ior", start=int(100 * BOOTED))
    machine.ran(20, 20, 40.0)
    machine.process(21, "fio", start=int(100 * (BOOTED + clock.now)))
    machine.ran(21, 21, 0.07)
    clock.tick(60)

    assert cpu(clock.probe, "benchmark", "ior") == 0
    assert cpu(clock.probe, "benchmark", "fio") == pytest.approx(0.07)


def test_a_thread_that_takes_its_name_after_its_birth_is_charged_under_it(machine: Machine, clock: Clock) -> None:
    machine.process(10, "ceph-osd", threads={11: "ceph-osd"}, argv=("ceph-osd", "-i", "3"))
    clock.tick()
    machine.write("proc/10/task/11/comm", "bstore_kv_sync\n")
    machine.ran(10, 11, 0.1)
    clock.tick(11)  # until then it was a thread without a unit, which is read once a second

    assert seconds(clock.probe, "kv_sync", "osd.3") == pytest.approx(0.1)


def test_another_process_under_a_reused_pid_is_charged_under_its_own_owner(machine: Machine, clock: Clock) -> None:
    machine.process(10, "ceph-osd", threads={11: "tp_osd_tp"}, argv=("ceph-osd", "-i", "1"))
    machine.ran(10, 11, 9.0)
    clock.tick()
    machine.process(10, "ceph-osd", threads={11: "tp_osd_tp"}, argv=("ceph-osd", "-i", "2"), start=500)
    clock.tick(70)
    machine.ran(10, 11, 0.1)
    clock.tick()

    assert cpu(clock.probe, "osd_op", "osd.1") == 0
    assert cpu(clock.probe, "osd_op", "osd.2") == pytest.approx(0.1)


def test_counters_stay_when_a_process_ends_and_its_threads_are_gone(machine: Machine, clock: Clock) -> None:
    machine.process(10, "fio", threads={11: "fio"})
    clock.tick()
    machine.ran(10, 11, 0.1)
    clock.tick()
    machine.end(10)
    clock.tick(60)

    assert cpu(clock.probe, "benchmark", "fio") == pytest.approx(0.1)
    assert read(clock.probe).value("pinchpoint_threads", role="benchmark", owner="fio") == 0
    assert read(clock.probe).value("pinchpoint_tasks_followed") == 0


def test_a_kernel_without_schedstat_is_read_by_stat_and_says_so(machine: Machine) -> None:
    machine.process(10, "fio")
    (machine.procfs / "10" / "schedstat").unlink()
    probe = Tasks(replace(machine.host(), task_source="kept"))
    probe.sample(1.0)

    labels = {"source": "kept", "file": "stat", "reason": "no schedstat"}
    assert read(probe).value("pinchpoint_task_source_info", **labels) == 1
    probe.close()


def test_processes_and_threads_that_may_not_be_read_are_counted(
    machine: Machine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.process(10, "fio")

    def refuse(path: str, limit: int) -> list[str]:
        if path.endswith("/10/task"):
            raise PermissionError(1, "Operation not permitted", path)
        return first_names(path, limit)

    monkeypatch.setattr("pinchpoint.threads.task_source.first_names", refuse)
    clock.tick()

    assert read(clock.probe).value("pinchpoint_tasks_unreadable") == 1


def test_a_procfs_that_is_not_there_is_a_failure(machine: Machine) -> None:
    host = machine.host()
    machine.procfs.rename(machine.procfs.with_name("gone"))

    with pytest.raises(OSError, match="No such file"):
        Tasks(host).sample(1.0)


SPIN = """
import ctypes, sys, threading
# 15 is PR_SET_NAME: the name of this thread, which is that of the process.
ctypes.CDLL(None).prctl(15, b"iozone", 0, 0, 0)
print("named", flush=True)
sys.stdin.readline()
def spin():
    while True:
        pass
threading.Thread(target=spin, daemon=True).start()
sys.stdin.readline()
"""


@pytest.fixture
def iozone() -> Iterator[subprocess.Popen[str]]:
    """Start a real process that spins on one thread from the first line that it receives to the next.

    It is called iozone, as no process of another test is.
    """
    with subprocess.Popen(
        [sys.executable, "-c", SPIN], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "named\n"
        yield child
        child.kill()


def test_a_real_spinning_thread_is_busy_by_its_own_cpu_time_and_stops_counting_at_its_end(
    this_host: Host, iozone: subprocess.Popen[str]
) -> None:
    assert iozone.stdin is not None
    probe = Tasks(this_host)
    now = 0.0

    def sample() -> float:
        nonlocal now
        now = time.monotonic()
        probe.sample(now)
        return seconds(probe, "benchmark", "iozone")

    def own_cpu() -> float:
        stat = parse_stat(Path(f"/proc/{iozone.pid}/stat").read_bytes())
        return (stat.utime + stat.stime) / os.sysconf("SC_CLK_TCK")

    def spinning_thread() -> float:
        """Return the seconds that the busiest thread ran or waited for a CPU."""
        files = Path(f"/proc/{iozone.pid}/task").glob("*/schedstat")
        return max(sum(map(int, file.read_text().split()[:2])) for file in files) / 1e9

    assert until(10, lambda: (sample(), read(probe).value("pinchpoint_threads", role="benchmark", owner="iozone"))[1])
    counted, used = cpu(probe, "benchmark", "iozone"), own_cpu()
    iozone.stdin.write("spin\n")
    iozone.stdin.flush()
    # It spins all the time, on a CPU or waiting for one, so most of its time is full. The rest: its first sample, and
    # waits that were not over at the end of one.
    assert until(
        30,
        lambda: (
            sample(),
            own_cpu() - used > 1.0
            and seconds(probe, "benchmark", "iozone", "saturated") > 0.6 * seconds(probe, "benchmark", "iozone"),
        )[1],
    )
    least, spun = own_cpu(), spinning_thread()
    sample()
    most = own_cpu()

    assert 0.9 * (least - used) <= cpu(probe, "benchmark", "iozone") - counted <= 1.1 * (most - used)
    busy = seconds(probe, "benchmark", "iozone")
    waited = read(probe).value("pinchpoint_thread_runqueue_seconds_total", role="benchmark", owner="iozone") or 0
    # The busiest thread of each sample: at least the spinning one, at most all together.
    assert 0.9 * spun <= busy <= 1.01 * (cpu(probe, "benchmark", "iozone") + waited)

    iozone.kill()
    iozone.wait()
    sample()
    sample()  # the first one may have begun before the kernel counted all of it
    ended = seconds(probe, "benchmark", "iozone"), seconds(probe, "benchmark", "iozone", "saturated")
    for _ in range(5):
        sample()
    assert (seconds(probe, "benchmark", "iozone"), seconds(probe, "benchmark", "iozone", "saturated")) == ended
    probe.close()


def test_cpu_of_threads_that_lived_between_two_looks_is_charged_to_the_leaders_role(
    machine: Machine, clock: Clock
) -> None:
    machine.process(700, "ganesha.nfsd")
    clock.tick(51)
    machine.ran(700, 700, 1.0)
    ticks = os.sysconf("SC_CLK_TCK")
    machine.write("proc/700/stat", stat_line(700, "ganesha.nfsd", utime=2 * ticks, stime=ticks))
    clock.tick(51)

    assert cpu(clock.probe, "ganesha", "ganesha.nfsd") == pytest.approx(3.0)
    # It is not known when the other 2 s were used.
    assert seconds(clock.probe, "ganesha", "ganesha.nfsd") == pytest.approx(1.0)


def test_a_lock_is_full_of_threads_that_are_born_and_end_between_two_looks(machine: Machine, clock: Clock) -> None:
    machine.process(700, "ceph-fuse", threads={701: "ms_dispatch"})
    clock.tick(3)
    ticks = os.sysconf("SC_CLK_TCK")
    # 100 workers in 10 s, each of which lives for one sample and works for 85 ms: three in four are never seen.
    for turn in range(100):
        worker, start = 1000 + turn, int((BOOTED + clock.now) * ticks)
        machine.write(f"proc/700/task/{worker}/comm", "ceph-fuse\n")
        machine.write(f"proc/700/task/{worker}/stat", stat_line(worker, "ceph-fuse", start=start))
        machine.write(f"proc/{worker}/status", f"Name:\tceph-fuse\nTgid:\t700\nPid:\t{worker}\n")
        machine.ran(700, worker, 0.085)
        used = round((turn + 1) * 0.085 * ticks)
        machine.write("proc/700/stat", stat_line(700, "ceph-fuse", utime=used))
        machine.write("proc/loadavg", f"0.10 0.20 0.30 1/100 {worker}\n")
        clock.tick()
        machine.end(700, worker)

    assert cpu(clock.probe, "client_lock", "ceph-fuse") == pytest.approx(8.5, rel=0.05)
    assert seconds(clock.probe, "client_lock", "ceph-fuse") == pytest.approx(8.5, rel=0.05)
    assert seconds(clock.probe, "client_lock", "ceph-fuse", "saturated") > 7.0


def test_what_slow_threads_used_is_not_charged_to_the_lock_again_and_again(machine: Machine, clock: Clock) -> None:
    machine.process(700, "ceph-fuse", threads={701: "log"})
    clock.tick(3)
    ticks = os.sysconf("SC_CLK_TCK")
    for turn in range(1, 201):
        machine.ran(700, 701, turn * 0.05)
        machine.write("proc/700/stat", stat_line(700, "ceph-fuse", utime=round(turn * 0.05 * ticks)))
        clock.tick()

    assert cpu(clock.probe, "cephfs_client_other", "ceph-fuse") == pytest.approx(10.0, rel=0.1)
    # Once, up to a second of it had not been read yet.
    assert seconds(clock.probe, "client_lock", "ceph-fuse") <= 0.5


def test_rounding_of_a_process_total_is_no_lost_thread(machine: Machine, clock: Clock) -> None:
    machine.process(700, "ceph-fuse")
    clock.tick(51)
    machine.ran(700, 700, 1.0)
    ticks = os.sysconf("SC_CLK_TCK")
    machine.write("proc/700/stat", stat_line(700, "ceph-fuse", utime=ticks + 1))
    clock.tick(51)

    assert cpu(clock.probe, "client_lock", "ceph-fuse") == pytest.approx(1.0)


OSD_THREADS = {1: "tp_osd_tp", 2: "bstore_kv_sync", 3: "msgr-worker-0"}


def osd(machine: Machine, pid: int, *, uid: int = 0) -> None:
    threads = {pid + tid: name for tid, name in OSD_THREADS.items()}
    machine.process(pid, "ceph-osd", argv=("ceph-osd", "-i", "0"), threads=threads, uid=uid)


def test_of_an_untrusted_users_many_threads_so_many_are_read(machine: Machine, clock: Clock) -> None:
    many = MAX_USER_THREADS + 10
    for pid, uid in ((10_000, 0), (20_000, 65534)):
        machine.process(pid, "fio", threads=dict.fromkeys(range(pid, pid + many), "fio"), uid=uid)
    clock.tick()
    threads = {
        labels["owner"]: value
        for labels, value in read(clock.probe).series("pinchpoint_threads")
        if labels["role"] == "benchmark"
    }

    assert threads == {"fio": many, "fio@uid65534": MAX_USER_THREADS}


def test_a_users_busy_process_by_a_daemons_name_changes_nothing_of_the_daemon(machine: Machine, clock: Clock) -> None:
    osd(machine, 10)
    osd(machine, 20, uid=65534)
    clock.tick()
    before = {labels: value for labels, value in series(clock.probe).items() if "osd.0" in labels}
    for turn in range(1, 51):
        for tid in OSD_THREADS:
            machine.ran(20, 20 + tid, turn * 0.1)
        clock.tick()
    after = series(clock.probe)

    assert {labels: value for labels, value in after.items() if "osd.0" in labels} == before
    assert {labels[:2] for labels in after if labels[-1] == "osd.?@uid65534" and "unverified_other" in labels} == {
        ("pinchpoint_thread_cpu_seconds_total", "unverified_other"),
        ("pinchpoint_thread_runqueue_seconds_total", "unverified_other"),
        ("pinchpoint_threads", "unverified_other"),
    }
    assert not any("osd.?@uid65534" in labels for labels in after if labels[0].startswith("pinchpoint_resource"))
    assert cpu(clock.probe, "unverified_other", "osd.?@uid65534") == pytest.approx(3 * 5.0)
    assert read(clock.probe).value("pinchpoint_unverified_processes", **{"class": "ceph-osd"}) == 1


def series(probe: Tasks) -> dict[tuple[str, ...], float]:
    return {(point.metric.name, *point.labels): point.value for point in probe.points()}


def test_300_of_them_add_few_series_and_hide_no_daemon_that_comes_later(machine: Machine, clock: Clock) -> None:
    clock.tick()
    before = len(series(clock.probe))
    for number in range(300):
        machine.process(1000 + number, "ceph-osd", argv=("ceph-osd", "-i", str(number)), uid=65534)
    clock.tick(10)
    assert len(series(clock.probe)) - before == 1 * 3 + 1
    osd(machine, 10)
    clock.tick(10)
    machine.ran(10, 12, 0.1)
    clock.tick()

    assert seconds(clock.probe, "kv_sync", "osd.0") == pytest.approx(0.1)


def test_a_hot_thread_of_such_a_process_is_not_reported_as_a_daemons(machine: Machine, clock: Clock) -> None:
    osd(machine, 20, uid=65534)
    clock.tick()
    for turn in range(1, 31):
        machine.ran(20, 21, turn * 0.1)
        clock.tick()

    (labels, _), *others = read(clock.probe).series("pinchpoint_unknown_thread_busy_ratio")
    assert (labels, others) == ({"thread": "tp_osd_tp", "process": "osd.?@uid65534"}, [])


@pytest.mark.skipif(os.geteuid() != 0, reason="starts processes of other users")
def test_a_real_process_of_another_user_leaves_the_seconds_of_a_real_daemon_alone(
    this_host: Host, tmp_path: Path
) -> None:
    name = f"t{os.getpid()}"
    program = tmp_path / "ceph-osd"
    shutil.copyfile("/bin/sh", program)
    program.chmod(0o755)
    spin = "printf ceph-osd >/proc/$$/comm; while :; do :; done"
    probe = Tasks(this_host)

    def used(role: str, owner: str) -> float | None:
        probe.sample(time.monotonic())
        return read(probe).value("pinchpoint_thread_cpu_seconds_total", role=role, owner=owner)

    daemon = subprocess.Popen(["ceph-osd", "-c", "read line", "-i", name], executable=program, stdin=subprocess.PIPE)
    other = None
    try:
        assert until(20, lambda: used("ceph_osd_other", f"osd.{name}") is not None)
        other = subprocess.Popen(["sh", "-c", spin, "-i", name], user=65534, group=65534, extra_groups=[], cwd="/")
        assert until(20, lambda: used("unverified_other", "osd.?@uid65534"))
        before = used("ceph_osd_other", f"osd.{name}")
        spent = used("unverified_other", "osd.?@uid65534") or 0.0
        assert until(20, lambda: (used("unverified_other", "osd.?@uid65534") or 0.0) > spent + 0.3)

        assert used("ceph_osd_other", f"osd.{name}") == before
    finally:
        probe.close()
        for process in filter(None, (daemon, other)):
            process.kill()
            process.communicate()
