"""Properties of only the sources that read threads by BPF; the common ones are in test_choice.py."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from machine import Machine
from pinchpoint.bpf import libbpf, tasks
from pinchpoint.bpf.choice import BPF, choose_source
from pinchpoint.bpf.libbpf import LIBRARY, OBJECTS, BpfError
from pinchpoint.bpf.tasks import BpfSource, IteratorSource, SyscallSource, pid_namespace
from pinchpoint.host.procfs import decode
from pinchpoint.threads.task_source import TaskUse
from polling import until
from puppet import Puppet

PROC = Path("/proc")
SECOND = 1_000_000_000
LITTLE = SECOND // 20
"""Nanoseconds: less than two thousandths of the longest interval."""
CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN = 39, 38, 21


def made(form: type[BpfSource], procfs: Path = PROC) -> BpfSource:
    try:
        return form(procfs)
    except BpfError as error:
        pytest.skip(str(error))


@pytest.fixture(params=BPF.values(), ids=list(BPF))
def source(request: pytest.FixtureRequest) -> Iterator[BpfSource]:
    source = made(request.param)
    yield source
    source.close()


def of(puppet: Puppet, uses: list[TaskUse]) -> list[TaskUse]:
    return [use for use in uses if use.task.tgid == puppet.pid]


def differences(puppet: Puppet, before: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    return {tid: (run - before[tid][0], wait - before[tid][1]) for tid, (run, wait) in puppet.used().items()}


def test_bpf_works_where_it_should() -> None:
    """All other tests here are skipped if it does not."""
    words = [line.partition(":") for line in (PROC / "self" / "status").read_text().splitlines()]
    status = {name: value.strip() for name, _, value in words}
    rights = int(status["CapEff"], 16)
    if not (rights >> CAP_SYS_ADMIN & 1 or (rights >> CAP_BPF & 1 and rights >> CAP_PERFMON & 1)):
        pytest.skip("needs CAP_BPF and CAP_PERFMON, or root")
    if status.get("Seccomp") == "2" or not Path("/sys/kernel/btf/vmlinux").exists():
        pytest.skip("needs a kernel with BTF, and no seccomp filter")
    if shutil.which("clang") is None:
        pytest.skip("needs clang")
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        pytest.skip(f"needs libbpf: {error}")
    assert (OBJECTS / "tasks.bpf.o").exists(), "make bpf"
    source = choose_source(PROC, lambda tgid, comm: 1)
    source.close()

    release = os.uname().release.split(".")
    newest = (int(release[0]), int(release[1])) >= (6, 7)
    assert (source.name, source.reason == "") == ("bpf" if newest else "bpf-iter", newest)
    assert source.file == ""


def test_the_kernel_verifies_its_programs_in_a_few_steps(source: BpfSource) -> None:
    """Every start waits for it: 200,000 instructions take half a second."""
    followed = []
    for number in os.listdir("/proc/self/fdinfo"):
        with suppress(FileNotFoundError):  # the directory's own
            lines = Path(f"/proc/self/fdinfo/{number}").read_text().splitlines()
            followed += [int(line.split()[1]) for line in lines if line.startswith("verified_insns:")]  # Linux 5.16
    if not followed:
        pytest.skip("this kernel does not say how many instructions it followed")

    assert max(followed) < 50_000


def test_a_thread_is_told_of_once_it_has_used_five_thousandths_of_the_time_and_of_all_that_it_used(
    source: BpfSource, puppet: Puppet
) -> None:
    (tid,) = puppet.do("start()")
    source.follow([puppet.pid], 0.0)
    source.sample(100.0, all_tasks=True)
    before = puppet.used()
    told = 0
    for turn in range(1, 4):
        puppet.on(tid, "spin(0.06)")
        used = sum(differences(puppet, before)[tid])
        enough = used >= 0.005 * 20 * SECOND
        uses = of(puppet, source.sample(100.0 + 20.0 * turn))
        assert [run + wait for task, run, wait in uses if task.tid == tid] == ([used] if enough else [])
        if enough:
            told, before = told + 1, puppet.used()

    assert told


def test_what_is_too_little_to_tell_is_told_of_when_everything_is_asked_for(source: BpfSource, puppet: Puppet) -> None:
    source.follow([puppet.pid], 0.0)
    used = (0, 2 * LITTLE)
    while sum(used) > LITTLE:  # on a busy machine it may wait for a CPU for longer
        source.sample(100.0, all_tasks=True)
        before = puppet.used()
        puppet.do("spin(0.01)")
        used = differences(puppet, before)[puppet.pid]
    now = 100.0 + sum(used) / SECOND / 0.001
    assert not of(puppet, source.sample(now))

    assert [(run, wait) for _, run, wait in of(puppet, source.sample(now + 1.0, all_tasks=True))] == [used]


@pytest.mark.parametrize(("share", "told"), [(0.06, True), (0.04, False)])
def test_a_thread_that_nobody_follows_is_told_of_from_a_twentieth_of_the_time_on(
    source: BpfSource, puppet: Puppet, share: float, told: bool
) -> None:
    (tid,) = puppet.do("start()")
    source.sample(100.0, all_tasks=True)
    before = puppet.used()
    puppet.on(tid, "spin(0.1)")
    used = differences(puppet, before)[tid]
    now = 100.0 + sum(used) / SECOND / share
    found = {task.tid: (task.comm, run, wait) for task, run, wait in of(puppet, source.sample(now, all_tasks=True))}

    assert found.get(tid) == (("puppet", *used) if told else None)
    assert not of(puppet, source.sample(now + 1.0, all_tasks=True))


def test_a_stranger_is_the_same_task_each_time_and_has_its_name_of_now(source: BpfSource, puppet: Puppet) -> None:
    source.sample(100.0, all_tasks=True)
    puppet.do("spin(0.1)")
    (first,) = of(puppet, source.sample(101.0, all_tasks=True))
    puppet.do("rename(b'other')")
    puppet.do("spin(0.1)")
    (second,) = of(puppet, source.sample(102.0, all_tasks=True))

    assert first.task is second.task
    assert second.task.comm == "other"


def test_a_stranger_that_is_not_hot_any_more_is_forgotten(source: BpfSource, puppet: Puppet) -> None:
    source.sample(100.0, all_tasks=True)
    puppet.do("spin(0.1)")
    (use,) = of(puppet, source.sample(101.0, all_tasks=True))
    source.follow((), 105.0)
    assert use.task in source._strangers.values()
    source.follow((), 112.0)

    assert use.task not in source._strangers.values()


def test_a_stranger_becomes_one_that_is_followed(source: BpfSource, puppet: Puppet) -> None:
    source.sample(100.0, all_tasks=True)
    puppet.do("spin(0.1)")
    (stranger,) = of(puppet, source.sample(101.0, all_tasks=True))
    source.follow([puppet.pid], 101.0)
    before = puppet.used()
    puppet.do("None")
    (use,) = of(puppet, source.sample(110.0, all_tasks=True))

    assert use.task is stranger.task
    assert use.task in source.tasks()
    assert use.run >= differences(puppet, before)[puppet.pid][0]


def test_a_worker_is_told_of_by_what_it_does(source: BpfSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """BPF reads its comm, which is that of its pool: kworker/0:1."""
    if os.stat(PROC / "self" / "ns" / "pid").st_ino != tasks.FIRST_NAMESPACE:
        pytest.skip("kernel threads are visible only outside PID namespaces")
    monkeypatch.setattr(tasks, "MIN_UNFOLLOWED_SHARE", 0.0)
    seen: dict[str, set[str]] = {}

    def works() -> bool:
        named = {}
        for process in PROC.iterdir():
            if process.name.isdigit():
                named[int(process.name)] = comm(process)
        for task, _, _ in source.sample(0.0, all_tasks=True):
            if task.comm.startswith("kworker/"):
                seen.setdefault(task.comm, set()).update({named.get(task.tid, ""), comm(PROC / str(task.tid))})
        return any("-" in name or "+" in name for name in seen)

    def comm(process: Path) -> str:
        try:
            return decode((process / "comm").read_bytes().removesuffix(b"\n"))
        except OSError:
            return ""

    assert until(20, works)
    # A worker that got other work between the three readings has a third name.
    assert any(name in now for name, now in seen.items())


@pytest.fixture
def threads(puppet: Puppet) -> list[int]:
    found: list[int] = puppet.do("start(100)")
    return sorted([*found, puppet.pid])


@pytest.mark.parametrize("room", [1, 8, 101])
def test_all_threads_are_listed_once_however_little_room_there_is(
    source: BpfSource, puppet: Puppet, threads: list[int], monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(tasks, "MAX_PASS_RECORDS", room)
    for _ in range(3):
        source.follow([puppet.pid], 0.0)

        assert sorted(task.tid for task in source.tasks()) == threads


def test_threads_that_come_and_go_between_the_passes_of_a_listing_hide_no_other(
    puppet: Puppet, threads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = made(SyscallSource)
    monkeypatch.setattr(tasks, "MAX_PASS_RECORDS", 10)
    records, passes = source._records, []

    def disturbed() -> Iterator[bytes]:
        yield from records()
        passes.append(1)
        if len(passes) == 2:
            for tid in threads[1:6]:
                puppet.do(f"end({tid})")
        if len(passes) == 4:
            puppet.do("start(5)")

    monkeypatch.setattr(source, "_records", disturbed)
    source.follow([puppet.pid], 0.0)
    monkeypatch.undo()
    listed = [task.tid for task in source.tasks()]
    source.close()

    assert len(passes) >= 10
    assert set(listed) >= puppet.used().keys()
    assert len(listed) == len(set(listed)) <= len(threads) + 5


@pytest.mark.parametrize("passes", [2, 16])
def test_more_threads_that_changed_than_there_is_room_for_are_told_of_all_and_once(
    source: BpfSource, puppet: Puppet, threads: list[int], monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    source.follow([puppet.pid], 0.0)
    source.sample(0.0, all_tasks=True)
    before = puppet.used()
    puppet.do("touch()")
    monkeypatch.setattr(tasks, "MAX_PASS_RECORDS", 16)
    monkeypatch.setattr(tasks, "MAX_PASSES", passes)
    told: dict[int, tuple[int, int]] = {}
    for turn in range(1, 101):
        if len(told) == len(threads):
            break
        # At such a pace no unfollowed thread is reported, which would take some of the room.
        for task, run, wait in of(puppet, source.sample(turn * 1e6, all_tasks=True)):
            assert task.tid not in told
            told[task.tid] = run, wait

    assert sorted(told) == threads
    assert told == differences(puppet, before)


def test_a_thread_that_was_told_of_in_two_passes_is_one_entry(source: BpfSource, puppet: Puppet) -> None:
    source.follow([puppet.pid], 0.0)
    source.sample(0.0, all_tasks=True)
    (task,) = source.tasks()
    source._pending = [TaskUse(task, 100, 10), TaskUse(task, 200, 20)]

    assert of(puppet, source.sample(0.0, all_tasks=True)) == [TaskUse(task, 300, 30)]


def test_an_iterator_remembers_more_tasks_than_there_are(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def remember(name: str, *, attach: object, entries: dict[str, int]) -> None:
        asked.append(entries["last"])
        raise BpfError("enough")

    monkeypatch.setattr(tasks, "load", remember)
    monkeypatch.setattr(tasks, "pid_namespace", lambda procfs: (PROC / "self" / "ns" / "pid").stat().st_ino)
    for loadavg in ("0.10 0.20 0.30 1/100 7\n", "0.10 0.20 0.30 3/100000 7\n", "", "x\n"):
        machine.write("proc/loadavg", loadavg)
        with pytest.raises(BpfError, match="enough"):
            IteratorSource(machine.procfs)

    assert asked == [1 << 16, 200_000, 1 << 16, 1 << 16]


def test_a_procfs_is_that_of_the_namespace_of_its_processes() -> None:
    assert pid_namespace(PROC) == (PROC / "self" / "ns" / "pid").stat().st_ino


def test_a_procfs_that_no_kernel_made_has_none(machine: Machine) -> None:
    machine.process(1, "systemd")
    machine.write("proc/1/status", "Name:\tsystemd\nNSpid:\t1\n")

    with pytest.raises(BpfError, match="no process in procfs tells its PID namespace"):
        pid_namespace(machine.procfs)


def namespace() -> tuple[str, ...]:
    if os.geteuid():
        pytest.skip("needs root, to make a PID namespace")
    return "unshare", "--pid", "--fork", "--mount-proc", "--kill-child"


def test_the_procfs_of_a_namespace_below_shows_its_threads_by_their_numbers_there() -> None:
    with Puppet(before=namespace()) as outer:
        (inner,) = map(int, Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split())
        source = made(SyscallSource, Path(f"/proc/{inner}/root/proc"))
        source.follow([1], 0.0)
        source.sample(0.0, all_tasks=True)
        (tid,) = outer.do("start()")
        outer.on(tid, "spin(0.01)")
        found = source.sample(1.0, all_tasks=True)
        source.close()

        assert {task.tgid for task, _, _ in found} == {1}
        assert {task.tid for task, _, _ in found} == {1, 2}
        assert {task.comm for task in source.tasks()} == {"puppet"}
        with pytest.raises(BpfError, match="an iterator sees its reader's own PID namespace only"):
            IteratorSource(Path(f"/proc/{inner}/root/proc"))


FROM_INSIDE = """
import json, sys, time
from pathlib import Path
from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.bpf.libbpf import LIBRARY
from pinchpoint.bpf.tasks import IteratorSource, SyscallSource

pid = int(sys.argv[1])
source = SyscallSource(Path("/proc"))
source.follow([pid], 0.0)
print(json.dumps(sorted(task.tid for task in source.tasks())))
try:
    IteratorSource(Path("/proc"))
except BpfError as error:
    print(error)
"""


def test_the_procfs_of_the_host_seen_from_a_namespace_shows_the_host(puppet: Puppet) -> None:
    made(SyscallSource).close()
    command = [arg for arg in namespace() if arg != "--mount-proc"]
    threads = puppet.do("start(3)")
    done = subprocess.run(
        [*command, sys.executable, "-c", FROM_INSIDE, str(puppet.pid)], capture_output=True, text=True, check=True
    )
    listed, refused = done.stdout.splitlines()

    assert listed == str(sorted([puppet.pid, *threads]))
    # It would see its own namespace, and nothing of the host.
    assert refused.startswith("an iterator sees its reader's own PID namespace only")


class Refusing:
    """A library with one failing function."""

    def __init__(self, name: str, answer: int) -> None:
        self._real = libbpf._library()
        self._name = name
        self._answer = answer

    def __getattr__(self, name: str) -> object:
        return (lambda *arguments: self._answer) if name == self._name else getattr(self._real, name)


@pytest.mark.parametrize(
    ("form", "function"),
    [(SyscallSource, "bpf_prog_test_run_opts"), (IteratorSource, "bpf_iter_create")],
    ids=list(BPF),
)
def test_a_program_that_can_not_be_run_is_no_source(
    form: type[BpfSource], function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(form).close()
    refusing = Refusing(function, -1)
    monkeypatch.setattr(libbpf, "_library", lambda: refusing)

    with pytest.raises(BpfError, match=r"^(walk|bpf_iter_create): "):
        form(PROC)


def test_memory_that_can_not_be_mapped_is_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    made(SyscallSource).close()

    def refuse(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("pinchpoint.bpf.libbpf.mmap.mmap", refuse)
    with pytest.raises(BpfError, match=r"^map .bss can't be mapped: "):
        SyscallSource(PROC)


def test_a_source_can_be_closed_twice(source: BpfSource) -> None:
    source.close()
    source.close()
