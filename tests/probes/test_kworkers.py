from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from machine import KWORKER, Machine, stat_line
from patience import Deadline
from pinchpoint.bpf import libbpf
from pinchpoint.bpf.choice import UnusableSourceError
from pinchpoint.bpf.tasks import FIRST_NAMESPACE
from pinchpoint.choices import KWORKER_SOURCES
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host, NotPresent
from pinchpoint.probes.kworkers import Kworkers
from pinchpoint.threads.task_source import KeptFile
from pinchpoint.threads.work_source import WorkUse
from writeback import device_number, dirtying

BOOTED = 1000.0


@pytest.fixture(params=["kept descriptors", "no kept descriptors"])
def probe(machine: Machine, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Kworkers]:
    monkeypatch.setattr(KeptFile, "limit", 512 if request.param == "kept descriptors" else 0)
    # Some process must have run, or the probe assumes that schedstat is off.
    machine.process(1, "systemd")
    machine.ran(1, 1, 1.0)
    machine.uptime(BOOTED)
    machine.sysfs.joinpath("dev/block").mkdir(parents=True)
    machine.sysfs.joinpath("dev/block/254:0").symlink_to("../../devices/pci0/virtio1/block/vda")
    probe = Kworkers(machine.host())
    yield probe
    probe.close()


def worker(machine: Machine, pid: int, comm: str, run: float = 0.0, wait: float = 0.0, start: int = 100) -> None:
    machine.process(pid, comm, flags=KWORKER, start=start)
    machine.ran(pid, pid, run, wait)


def worked(machine: Machine, pid: int, comm: str, run: float, wait: float = 0.0) -> None:
    """Set the total use of a worker, and its current name."""
    machine.write(f"proc/{pid}/comm", f"{comm}\n")
    machine.ran(pid, pid, run, wait)


def cpu(probe: Kworkers) -> dict[tuple[str, str], float]:
    """Return the charged seconds, rounded to a nanosecond."""
    series = Snapshot.of(0, probe.points()).series("pinchpoint_thread_cpu_seconds_total")
    return {(labels["role"], labels["owner"]): round(value, 9) for labels, value in series if value}


def integral(probe: Kworkers, what: str, resource: str, owner: str) -> float:
    series = Snapshot.of(0, probe.points()).series(f"pinchpoint_resource_{what}_seconds_total")
    return sum(value for labels, value in series if (labels["resource"], labels["owner"]) == (resource, owner))


def test_time_is_charged_to_what_the_worker_did_at_the_end_of_the_interval(machine: Machine, probe: Kworkers) -> None:
    worker(machine, 10, "kworker/u8:1-events", 100.0)
    probe.sample(1.0)
    worked(machine, 10, "kworker/u8:1+flush-254:0", 100.03)
    probe.sample(1.05)
    worked(machine, 10, "kworker/u8:1-ext4-rsv-conversion", 100.05)
    probe.sample(1.1)

    assert cpu(probe) == {("writeback_worker", "vda"): 0.03, ("filesystem_kernel", "host"): 0.02}


def test_writeback_without_a_device_belongs_to_the_one_that_the_worker_flushed_last(
    machine: Machine, probe: Kworkers
) -> None:
    worker(machine, 10, "kworker/u8:1")
    worker(machine, 11, "kworker/u8:2")
    probe.sample(1.0)
    worked(machine, 10, "kworker/u8:1-flush-ceph-1", 0.01)
    worked(machine, 11, "kworker/u8:2-writeback", 0.05)
    probe.sample(1.05)
    worked(machine, 10, "kworker/u8:1-writeback", 0.03)
    probe.sample(1.1)

    assert cpu(probe) == {("writeback_worker", "ceph-1"): 0.03, ("writeback_worker", "unknown"): 0.05}


def test_a_device_without_a_name_keeps_its_number(machine: Machine, probe: Kworkers) -> None:
    worker(machine, 10, "kworker/u8:1")
    probe.sample(1.0)
    worked(machine, 10, "kworker/u8:1+flush-0:45", 0.01)
    probe.sample(1.05)

    assert cpu(probe) == {("writeback_worker", "0:45"): 0.01}


def test_workers_that_flush_one_device_are_one_serial_unit_and_those_of_another_queue_are_not(
    machine: Machine, probe: Kworkers
) -> None:
    for pid in (10, 11, 12, 13):
        worker(machine, pid, "kworker/u8:1")
    probe.sample(1.0)
    worked(machine, 10, "kworker/u8:1+flush-254:0", 0.02)
    worked(machine, 11, "kworker/u8:2+flush-254:0", 0.01, 0.01)
    worked(machine, 12, "kworker/0:1H+kblockd", 0.02)
    worked(machine, 13, "kworker/1:1H+kblockd", 0.03)
    probe.sample(1.05)

    assert integral(probe, "busy", "writeback_worker", "vda") == pytest.approx(0.04)
    assert integral(probe, "runqueue", "writeback_worker", "vda") == pytest.approx(0.01)
    assert integral(probe, "saturated", "writeback_worker", "vda") == pytest.approx(0.05)
    assert integral(probe, "busy", "kblockd", "host") == pytest.approx(0.03)
    assert integral(probe, "saturated", "kblockd", "host") == 0


def test_a_newborn_worker_counts_from_zero_and_one_that_was_there_without_its_past(
    machine: Machine, probe: Kworkers
) -> None:
    worker(machine, 10, "kworker/u8:1-kblockd", 500.0)
    probe.sample(1.0)
    machine.uptime(BOOTED + 0.3)
    worker(machine, 11, "kworker/u8:2-kblockd", 0.2, start=int(BOOTED * 100) + 5)
    worker(machine, 12, "kworker/u8:3-kblockd", 700.0, start=200)
    probe.sample(1.3)

    assert cpu(probe) == {("kblockd", "host"): 0.2}


def test_a_worker_under_a_reused_pid_never_takes_anything_back(machine: Machine, probe: Kworkers) -> None:
    worker(machine, 10, "kworker/u8:1-kblockd", 500.0)
    probe.sample(1.0)
    worked(machine, 10, "kworker/u8:1-kblockd", 0.01)
    probe.sample(1.05)

    assert cpu(probe) == {("kblockd", "host"): 0.01}


def test_a_worker_that_vanishes_costs_nobody_else(machine: Machine, probe: Kworkers) -> None:
    worker(machine, 10, "kworker/u8:1-kblockd")
    worker(machine, 11, "kworker/u8:2-kblockd")
    probe.sample(1.0)
    machine.write("proc/10/schedstat", "")
    machine.end(11)
    worker(machine, 12, "kworker/u8:2-kblockd")
    probe.sample(7.0)
    worked(machine, 12, "kworker/u8:2-kblockd", 0.01)
    probe.sample(7.05)

    assert cpu(probe) == {("kblockd", "host"): 0.01}


def test_an_imitation_is_not_charged(machine: Machine, probe: Kworkers) -> None:
    machine.process(10, "kworker/0:1+flush-x")
    worker(machine, 11, "kworker/u8:1")
    probe.sample(1.0)
    machine.ran(10, 10, 1.0)
    probe.sample(1.05)

    assert cpu(probe) == {}


def test_a_name_with_anything_in_it_is_charged_to_the_rest(machine: Machine, probe: Kworkers) -> None:
    worker(machine, 10, "kworker/u8:1")
    probe.sample(1.0)
    machine.write("proc/10/comm", b"kworker/u8:1+\xff\n (x)\n")
    machine.ran(10, 10, 0.01)
    probe.sample(1.05)

    assert cpu(probe) == {("kworker_other", "host"): 0.01}


def test_without_schedstat_workers_are_read_by_stat(machine: Machine) -> None:
    machine.process(10, "kworker/u8:1-kblockd", flags=KWORKER)
    (machine.procfs / "10" / "schedstat").unlink()
    probe = Kworkers(machine.host())
    probe.sample(1.0)
    ticks = os.sysconf("SC_CLK_TCK")
    machine.write("proc/10/stat", stat_line(10, "kworker/u8:1-kblockd", flags=KWORKER, stime=ticks // 2))
    probe.sample(2.0)
    probe.close()

    assert cpu(probe) == {("kblockd", "host"): 0.5}


class Told:
    """A source that reports what a test sets."""

    name = "told"
    reason = "a test wants it"
    interval: float | None = None

    def __init__(self) -> None:
        self.uses: list[WorkUse] = []
        self.closed = False

    def sample(self, now: float) -> Iterable[WorkUse]:
        return self.uses

    def close(self) -> None:
        self.closed = True


def tell(probe: Kworkers, source: Told, *uses: tuple[int, str, float, float]) -> None:
    """Take a sample of 0.1 s with these uses: worker, work, seconds on a CPU, seconds of wait."""
    probe.sample(1.0)
    source.uses = [WorkUse(worker, work, round(run * 1e9), round(wait * 1e9)) for worker, work, run, wait in uses]
    probe.sample(1.1)


def test_a_worker_is_as_full_as_all_that_it_does_in_a_role(machine: Machine) -> None:
    source = Told()
    probe = Kworkers(machine.host(), source)
    tell(
        probe, source, (10, "xfs-cil/vda", 0.03, 0.0), (10, "xfs-conv/vda", 0.05, 0.01), (11, "xfs-cil/vda", 0.06, 0.0)
    )

    assert cpu(probe) == {("filesystem_kernel", "host"): 0.14}
    assert integral(probe, "busy", "filesystem_kernel", "host") == pytest.approx(0.09)
    assert integral(probe, "saturated", "filesystem_kernel", "host") == pytest.approx(0.1)


def test_a_worker_that_serves_two_devices_is_charged_to_both(machine: Machine) -> None:
    source = Told()
    probe = Kworkers(machine.host(), source)
    tell(probe, source, (10, "flush-8:0", 0.03, 0.0), (10, "flush-8:16", 0.01, 0.0), (11, "flush-8:0", 0.02, 0.0))

    assert cpu(probe) == {("writeback_worker", "8:0"): 0.05, ("writeback_worker", "8:16"): 0.01}
    assert integral(probe, "busy", "writeback_worker", "8:0") == pytest.approx(0.05)


@pytest.mark.parametrize("name", ["\ufffd>D\ufffd", "8:0\ufffd", "8:0 8:16", "a" * 62 + "/"])
def test_the_name_of_a_device_that_was_freed_is_not_shown(machine: Machine, name: str) -> None:
    source = Told()
    probe = Kworkers(machine.host(), source)
    tell(probe, source, (10, f"flush-{name}", 0.03, 0.0), (11, "writeback", 0.02, 0.0))

    ((role, owner),) = cpu(probe)
    assert (role, cpu(probe)[role, owner]) == ("writeback_worker", 0.05)
    assert owner.isascii()


def test_work_of_a_name_that_nobody_knows_is_charged_to_the_rest(machine: Machine) -> None:
    source = Told()
    probe = Kworkers(machine.host(), source)
    tell(probe, source, (10, "", 0.03, 0.0))

    assert cpu(probe) == {("kworker_other", "host"): 0.03}


def test_it_is_sampled_at_the_pace_of_its_source_and_closes_it(machine: Machine) -> None:
    source = Told()
    probe = Kworkers(machine.host(), source)
    probe.close()

    assert (probe.interval, source.closed) == (None, True)
    assert Kworkers(replace(machine.host(), kworker_source="comm")).interval == 0.05


def shown(probe: Kworkers) -> list[tuple[str, str]]:
    series = Snapshot.of(0, probe.points()).series("pinchpoint_kworker_source_info")
    return [(labels["source"], labels["reason"]) for labels, value in series if value == 1]


def test_another_kernels_workers_are_told_apart_by_name_and_the_reason_is_shown(machine: Machine) -> None:
    machine.process(1, "systemd")
    ((source, reason),) = shown(Kworkers(machine.host()))

    assert source == "comm"
    assert reason.startswith("no bpf: no process in procfs tells its PID namespace")
    assert shown(Kworkers(replace(machine.host(), kworker_source="comm"))) == [("comm", "")]
    with pytest.raises(UnusableSourceError, match="no process in procfs tells"):
        Kworkers(replace(machine.host(), kworker_source="bpf"))


def test_a_missing_object_is_said_and_names_are_used(
    this_host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(libbpf, "OBJECTS", tmp_path)
    caplog.set_level("INFO")
    if os.stat("/proc/self/ns/pid").st_ino != FIRST_NAMESPACE:
        pytest.skip("in a PID namespace of its own")
    probe = Kworkers(this_host)
    ((source, reason),) = shown(probe)
    probe.close()

    assert source == "comm"
    assert reason.startswith("no bpf: no workqueues.bpf.o in")
    assert [record.getMessage() for record in caplog.records] == [f"workers are told apart by their names, {reason}"]


class Witness:
    """Reads the use and name of every worker on its own: without the package's kept files, parsers or roles."""

    def __init__(self) -> None:
        self.total = 0.0
        self.by_work: defaultdict[str, float] = defaultdict(float)
        self._last: dict[str, int] = {}

    def look(self) -> None:
        for pid in os.listdir("/proc"):
            try:
                if not pid.isdigit() or os.readlink(f"/proc/{pid}/exe"):
                    continue
            except FileNotFoundError:  # kernel threads have no program
                pass
            except OSError:
                continue
            try:
                run = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
                comm = Path(f"/proc/{pid}/comm").read_text().strip()
            except OSError:
                continue
            if not comm.startswith("kworker/"):
                continue
            used = (run - self._last.get(pid, run)) / 1e9
            self._last[pid] = run
            self.total += used
            self.by_work[comm.partition(":")[2].lstrip("0123456789HI")[1:]] += used

    @property
    def flushed(self) -> float:
        """Seconds of CPU time spent on writeback."""
        return sum(used for work, used in self.by_work.items() if work.startswith("flush-") or work == "writeback")


@pytest.mark.parametrize("name", KWORKER_SOURCES[1:])
def test_real_writeback_is_charged_to_its_device(this_host: Host, disk_path: Path, name: str) -> None:
    number = device_number(disk_path)
    if os.geteuid() != 0:
        pytest.skip("only root sees the kernel's workers where procfs is mounted with hidepid")
    device = os.path.basename(os.readlink(f"/sys/dev/block/{number}"))
    try:
        probe = Kworkers(replace(this_host, kworker_source=name))
    except UnusableSourceError as error:
        pytest.skip(str(error))
    witness = Witness()
    probe.sample(time.monotonic())
    witness.look()
    with dirtying(disk_path / "file"):
        end, deadline = time.monotonic() + 3, Deadline(60)
        # A slow disk takes little of a worker's time, so the compared span must contain many looks.
        while (due := time.monotonic() + 0.05) < end or (witness.flushed < 0.1 and not deadline.over):
            # Alternately, so that neither always sees a name first.
            probe.sample(time.monotonic())
            witness.look()
            time.sleep(max(0.0, due - time.monotonic()))
    probe.sample(time.monotonic())
    witness.look()
    probe.close()
    charged = cpu(probe)

    assert witness.total > 0.05, "the load was too small to be measured"
    # The accuracy depends on how often both look: bench/workqueue_cost.py measures it.
    assert sum(charged.values()) == pytest.approx(witness.total, rel=0.5)
    assert witness.flushed > 0
    assert charged["writeback_worker", device] > 0.5 * witness.flushed


def test_a_procfs_without_kernel_threads_has_no_workers_to_read(machine: Machine) -> None:
    machine.process(1, "pause")
    probe = Kworkers(replace(machine.host(), kworker_source="comm"))

    with pytest.raises(NotPresent, match=r"shows no kernel threads: it is that of another PID namespace$"):
        probe.sample(1.0)
    worker(machine, 10, "kworker/u8:1+flush-8:0")
    probe.sample(10.0)
