"""The probe on real threads: compiled programs whose stacks are known."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from machine import Machine
from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.bpf.names import KernelNames
from pinchpoint.metrics import COST_RATIO, COST_SAMPLES, COST_SOURCE_INFO
from pinchpoint.model import Snapshot
from pinchpoint.probes import profile as probe_module
from pinchpoint.probes.base import Host
from pinchpoint.probes.profile import MAX_THREADS, ProfileProbe
from pinchpoint.profile.collected import Profile
from pinchpoint.profile.kernel import Kernel
from pinchpoint.profile.perf_events import PerfError, ThreadEvent
from pinchpoint.resources import Resource
from pinchpoint.threads.full import FullThreads
from pinchpoint.threads.role_table import RoleTotals
from pinchpoint.threads.roles import load_roles
from pinchpoint.threads.task_source import Task
from polling import until

SOURCE = Path(__file__).parents[1] / "loads" / "profiled.cc"
ROLE = next(role for role in load_roles().roles if role.name == "kv_sync")
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    path = tmp_path_factory.mktemp("program") / "profiled"
    subprocess.run([compiler, "-O2", "-fomit-frame-pointer", "-o", path, SOURCE], check=True)
    return path


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def run(*command: object) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def can_sample() -> str:
    """Return why this process can't sample threads; empty if it can."""
    try:
        ThreadEvent(os.getpid(), 49).close()
    except PerfError as error:
        return str(error)
    return ""


needs_perf = pytest.mark.skipif(can_sample() != "", reason=can_sample())


def full(tasks: list[Task], resource: str = "kv_sync", owner: str = "osd.0") -> FullThreads:
    """Return that a resource with these threads has been full for long."""
    use = RoleTotals(ROLE, Resource(resource, owner, (), 0.8), daemon=True)
    found = FullThreads()
    for now in range(1, 5):
        use.ran = dict.fromkeys(tasks, 10**9)
        found.note(float(now), 1.0, [use])
    return found


def host(machine: Machine, threads: FullThreads) -> Host:
    return replace(machine.host(), procfs=Path("/proc"), full=threads)


class Watched:
    """A probe on one thread whose clock the test sets: windows last as long as samples are missing."""

    def __init__(self, tmp_path: Path, process: subprocess.Popen[bytes], tid: int | None = None) -> None:
        self.task = Task(process.pid, tid or process.pid, "bstore_kv_sync", 0.0)
        self.threads = full([self.task])
        self.probe = ProfileProbe(host(Machine(tmp_path / "host"), self.threads), cpu=lambda: 0.0)
        self.now = 4.0

    def step(self) -> None:
        """Sample once, at the same monotonic time, so that the window does not end."""
        self.probe.sample(self.now)

    @property
    def taken(self) -> int:
        window = self.probe._window
        return 0 if window is None else window.samples

    def profile(self) -> Profile:
        """End the window, and return what was found."""
        self.now += 6.0
        for _ in range(3):
            self.step()
        return self.probe.profiles[-1]


def profile_of(watched: Watched, samples: int = 20) -> Profile:
    def enough() -> bool:
        watched.step()
        return watched.taken >= samples

    until(20, enough)
    return watched.profile()


def functions(profile: Profile) -> set[str]:
    return {name for stack in profile.stacks for name in stack.split(";")}


def loaded(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """Wait until a program says that it has begun: before that, its libraries may not be mapped."""
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    return process


def unanswered() -> KernelNames:
    raise BpfError("not permitted")


@needs_perf
def test_a_kernel_that_hides_its_functions_is_the_reason_that_they_have_no_names(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hidden := tmp_path / "kallsyms").write_text("0000000000000000 T _stext\n")
    monkeypatch.setattr(probe_module, "Kernel", lambda path: Kernel(hidden, unanswered))
    watched = Watched(tmp_path, start("dd", "if=/dev/zero", "of=/dev/null", "bs=1M"))

    assert "[kernel]" in functions(profile_of(watched))
    (info,) = (point for point in watched.probe.points() if point.metric is COST_SOURCE_INFO)
    assert info.labels == ("perf_events", "/proc/kallsyms shows no addresses: functions of the kernel have no names")


@needs_perf
def test_functions_of_a_cpp_program_are_named_down_to_main(tmp_path: Path, program: Path, start: Start) -> None:
    found = profile_of(Watched(tmp_path, loaded(start(program, "templates"))), samples=100)

    assert {"main", "templates::Tree::grow"} <= functions(found)
    assert found.classes["allocator"] >= 1
    assert sum(found.classes.values()) == found.samples


@needs_perf
def test_a_stripped_program_is_unwound_too(tmp_path: Path, program: Path, start: Start) -> None:
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, program], check=True)

    found = profile_of(Watched(tmp_path, loaded(start(stripped, "templates"))), samples=100)

    assert {"[stripped]", "__libc_start_main", "malloc"} <= functions(found)


@needs_perf
def test_a_program_that_was_replaced_under_a_running_process_has_its_old_names(
    tmp_path: Path, program: Path, start: Start
) -> None:
    old = Path(shutil.copy(program, tmp_path / "daemon"))
    process = loaded(start(old, "checksum"))
    old.unlink()
    shutil.copy("/bin/true", old)

    found = profile_of(Watched(tmp_path, process))

    # On a busy machine, many samples meet an interrupt on top of the function.
    in_function = sum(count for stack, count in found.stacks.items() if stack.endswith(";crc32c_table"))
    assert found.classes["checksum"] == in_function >= 1


@needs_perf
def test_a_program_in_another_mount_namespace_is_read(tmp_path: Path, program: Path, start: Start) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    script = f"mount -t tmpfs none {inside} && cp {program} {inside}/daemon && exec {inside}/daemon checksum"
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to make a mount namespace")
    process = loaded(start("unshare", "-m", "sh", "-c", script))

    found = profile_of(Watched(tmp_path, process))

    assert not (inside / "daemon").exists()
    assert "crc32c_table" in functions(found)


@needs_perf
def test_the_vdso_and_signal_handlers_are_unwound(tmp_path: Path, program: Path, start: Start) -> None:
    found = profile_of(Watched(tmp_path, loaded(start(program, "signals"))), samples=60)

    handled = [stack for stack in found.stacks if "own_code" in stack]
    clocks = [stack for stack in found.stacks if "read_clocks;" in stack]
    assert handled
    assert all("main;" in stack for stack in handled)
    assert any("clock_gettime;" in stack or stack.endswith("[vdso]") for stack in clocks)


@needs_perf
def test_python_is_a_class_of_its_own(tmp_path: Path, start: Start) -> None:
    script = "print('begun', flush=True)\nwhile True: sum(range(1000))"

    found = profile_of(Watched(tmp_path, loaded(start(sys.executable, "-c", script))))

    assert max(found.classes, key=lambda name: found.classes[name]) == "python"


@needs_perf
def test_a_process_that_runs_another_program_meanwhile_is_not_counted(
    tmp_path: Path, program: Path, start: Start
) -> None:
    process = loaded(start(program, "replaced", sys.executable))
    watched = Watched(tmp_path, process)

    def sampled() -> bool:
        watched.step()
        return watched.taken > 0

    until(20, sampled)
    process.send_signal(signal.SIGUSR1)
    until(20, lambda: os.path.samefile(f"/proc/{process.pid}/exe", sys.executable))
    watched.now += 6.0
    for _ in range(3):
        watched.step()

    assert watched.probe.profiles == ()


@needs_perf
def test_threads_that_have_ended_give_nothing(tmp_path: Path, start: Start) -> None:
    process = start("true")
    process.wait()
    watched = Watched(tmp_path, process)

    watched.step()

    assert watched.taken == 0
    assert not any(metric is COST_SAMPLES for metric, _, _ in watched.probe.points())


@needs_perf
def test_series_begin_at_100_samples(tmp_path: Path, program: Path, start: Start) -> None:
    watched = Watched(tmp_path, loaded(start(program, "checksum")))

    few = profile_of(watched, samples=20)
    shown = Snapshot.of(0.0, watched.probe.points())

    assert shown.value(COST_SAMPLES.name, resource="kv_sync", owner="osd.0", **{"class": "checksum"})
    assert few.samples < 100
    assert COST_RATIO.name not in shown.values
    watched.now += 10.0
    watched.threads.note(watched.now, 4.0, [])
    watched.probe.host.full._known.update(full([watched.task])._known)
    watched.probe.host.full._known["kv_sync", "osd.0"].seen = watched.now
    profile_of(watched, samples=100)
    shown = Snapshot.of(0.0, watched.probe.points())
    shares = {labels["class"]: share for labels, share in shown.series(COST_RATIO.name)}
    assert max(shares, key=lambda name: shares[name]) == "checksum"
    assert sum(shares.values()) == pytest.approx(1)


def test_without_the_right_the_reason_is_shown(tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(tid: int, frequency: float) -> ThreadEvent:
        raise PerfError("perf_event_open is refused")

    monkeypatch.setattr(probe_module, "ThreadEvent", refused)
    watched = Watched(tmp_path, start("sleep", "60"))

    watched.step()

    shown = Snapshot.of(0.0, watched.probe.points())
    assert shown.value(COST_SOURCE_INFO.name, source="none", reason="perf_event_open is refused") == 1


class Still:
    """An event of a thread that never runs."""

    opened = 0

    def __init__(self, tid: int, frequency: float) -> None:
        Still.opened += 1
        self.frequency = frequency

    def read(self) -> bytes:
        return b""

    def close(self) -> None:
        Still.opened -= 1


def test_the_budget_bounds_threads_and_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "ThreadEvent", Still)
    own = os.getpid()
    threads = full([Task(own, tid, "tp_osd_tp", 0.0) for tid in range(1, 30)])
    probe = ProfileProbe(host(Machine(tmp_path / "host"), threads), cpu=lambda: 0.0)
    probe.sample(4.0)

    assert probe._window is not None
    assert Still.opened == MAX_THREADS
    assert probe._window.frequency * MAX_THREADS * probe_module.SAMPLING_SECONDS * probe._cost <= 0.3
    probe.close()
    assert Still.opened == 0


def test_what_costs_too_much_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "ThreadEvent", Still)
    spent = iter(range(100))
    threads = full([Task(os.getpid(), 1, "tp_osd_tp", 0.0)])
    probe = ProfileProbe(host(Machine(tmp_path / "host"), threads), cpu=lambda: float(next(spent)))
    probe.sample(4.0)
    probe.sample(11.0)
    probe.sample(11.1)
    windows = probe._window

    assert windows is None
    assert probe._saved < 0
    assert Still.opened == 0


def test_nothing_is_sampled_while_nothing_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "ThreadEvent", Still)
    threads = FullThreads()
    probe = ProfileProbe(host(Machine(tmp_path / "host"), threads))
    for now in range(20):
        probe.sample(float(now))

    assert Still.opened == 0
    assert probe.profiles == ()


def test_a_resource_counts_after_two_seconds_and_until_two_without() -> None:
    use = RoleTotals(ROLE, Resource("kv_sync", "osd.0", (), 0.8), daemon=True)
    task = Task(1, 2, "bstore_kv_sync", 0.0)
    threads = FullThreads()
    for tick in range(1, 15):
        use.ran = {task: 10**8}
        threads.note(tick / 10, 0.1, [use])
    assert threads.resources(1.5) == []
    for tick in range(15, 30):
        use.ran = {task: 10**8}
        threads.note(tick / 10, 0.1, [use])

    assert [(one.resource, one.owner, one.threads) for one in threads.resources(2.9)] == [
        ("kv_sync", "osd.0", ((1, 2),))
    ]
    assert threads.resources(4.0)
    assert threads.resources(7.0) == []
