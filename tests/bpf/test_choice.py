"""All sources of thread times report the same about the same threads: those of real processes."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from operator import sub
from pathlib import Path
from typing import NoReturn

import pytest
from msgspec.structs import replace

from machine import Machine
from pinchpoint.benchmarks.markers import RunDirectory
from pinchpoint.bpf.choice import BPF, UnusableSourceError, choose_source
from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.bpf.tasks import SyscallSource
from pinchpoint.choices import TASK_SOURCES
from pinchpoint.host.procfs import decode
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host
from pinchpoint.probes.tasks import Tasks
from pinchpoint.threads.processes import Processes
from pinchpoint.threads.roles import load_roles
from pinchpoint.threads.task_source import Task, TaskSource
from pinchpoint.units import TICKS_PER_SECOND
from puppet import Puppet, schedstat

PROC = Path("/proc")
MILLISECOND = 1_000_000


def every_one(tgid: int, comm: str) -> int:
    return 1


def made(name: str) -> TaskSource:
    try:
        return choose_source(PROC, every_one, name)
    except UnusableSourceError as error:
        pytest.skip(str(error))


@pytest.fixture(params=TASK_SOURCES[1:])
def source(request: pytest.FixtureRequest) -> Iterator[TaskSource]:
    """Run a test with each source that works here."""
    source = made(request.param)
    yield source
    source.close()


class Account:
    """What a source has reported about threads so far: by TID, nanoseconds of run and wait."""

    def __init__(self, source: TaskSource) -> None:
        self.source = source
        self.used: dict[int, tuple[int, int]] = {}
        self.tasks: dict[int, set[Task]] = {}

    def begin(self, *tgids: int) -> None:
        """Follow processes and ignore their use up to now."""
        self.follow(*tgids)
        self.sample()
        self.used.clear()

    def follow(self, *tgids: int) -> None:
        self.source.follow(tgids, time.monotonic())

    def sample(self) -> None:
        for task, run, wait in self.source.sample(time.monotonic(), all_tasks=True):
            before = self.used.get(task.tid, (0, 0))
            self.used[task.tid] = before[0] + run, before[1] + wait
            self.tasks.setdefault(task.tid, set()).add(task)

    def names(self) -> dict[int, str]:
        return {task.tid: task.comm for task in self.source.tasks()}

    def of(self, puppet: Puppet) -> dict[int, tuple[int, int]]:
        """Return what it reported about a puppet's threads, including those without a report."""
        return {tid: self.used.get(tid, (0, 0)) for tid in puppet.used()}


def differences(after: dict[int, tuple[int, int]], before: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    return {tid: (run - before[tid][0], wait - before[tid][1]) for tid, (run, wait) in after.items()}


@pytest.mark.parametrize("work", ["None", "time.sleep(0.03)", "bursts(10, 0.002)", "spin(0.05)"])
def test_what_threads_used_is_what_the_kernel_says_to_the_nanosecond(
    source: TaskSource, puppet: Puppet, work: str
) -> None:
    account = Account(source)
    threads = puppet.do("start(3)")
    account.begin(puppet.pid)
    before = puppet.used()
    for tid in threads[:2]:
        puppet.begin(f"on({tid}, {work!r})")
        account.sample()
        puppet.done()
        account.sample()

    assert account.of(puppet) == differences(puppet.used(), before)
    assert account.of(puppet)[threads[2]][0] < MILLISECOND  # on a busy machine it may still have been about to sleep
    account.sample()
    assert account.of(puppet) == differences(puppet.used(), before)


def test_a_thread_that_runs_right_now_is_told_of_up_to_the_last_tick(source: TaskSource, puppet: Puppet) -> None:
    account = Account(source)
    account.begin(puppet.pid)
    task = PROC / str(puppet.pid) / "task" / str(puppet.pid)
    before = puppet.used()[puppet.pid][0]
    puppet.begin("spin(0.1)")
    for _ in range(20):
        least = schedstat(task)[0] - before
        account.sample()
        told = account.used.get(puppet.pid, (0, 0))[0]
        assert least <= told <= schedstat(task)[0] - before
        time.sleep(0.005)
    puppet.done()
    account.sample()

    assert account.used[puppet.pid][0] == puppet.used()[puppet.pid][0] - before >= 100 * MILLISECOND


def test_time_in_which_a_thread_waits_for_a_cpu_is_told_too(source: TaskSource) -> None:
    cpu = min(os.sched_getaffinity(0))
    with Puppet() as one, Puppet() as other:
        account = Account(source)
        account.begin(one.pid, other.pid)
        before = {**one.used(), **other.used()}
        for puppet in (one, other):
            os.sched_setaffinity(puppet.pid, {cpu})
            puppet.begin("spin(0.1)")
        for puppet in (one, other):
            puppet.done()
            account.sample()
        account.sample()
        used = {**account.of(one), **account.of(other)}

        assert used == differences({**one.used(), **other.used()}, before)
        # While one ran, the other waited, except at the end of the last one.
        assert sum(wait for run, wait in used.values()) >= 80 * MILLISECOND


def test_a_newborn_process_counts_from_zero_though_it_is_followed_only_later(source: TaskSource) -> None:
    account = Account(source)
    account.follow()
    with Puppet() as puppet:
        puppet.do("spin(0.03)")
        account.sample()
        puppet.do("spin(0.02)")
        account.follow(puppet.pid)
        account.sample()
        puppet.do("spin(0.01)")
        account.follow(puppet.pid)
        account.sample()

        assert account.of(puppet) == puppet.used()


def test_a_newborn_thread_counts_from_zero(source: TaskSource, puppet: Puppet) -> None:
    account = Account(source)
    account.begin(puppet.pid)
    before = puppet.used()[puppet.pid]
    told = []
    for _ in range(3):
        (tid,) = puppet.do("start()")
        told.append(tid)
        puppet.on(tid, "spin(0.01)")
        account.sample()
        account.follow(puppet.pid)
        account.sample()
    used = puppet.used()

    assert {tid: account.used[tid] for tid in told} == {tid: used[tid] for tid in told}
    assert account.used[puppet.pid] == (used[puppet.pid][0] - before[0], used[puppet.pid][1] - before[1])


def test_an_old_process_that_becomes_interesting_brings_no_past_with_it(source: TaskSource, puppet: Puppet) -> None:
    (tid,) = puppet.do("start()")
    puppet.on(tid, "spin(0.05)")
    time.sleep(0.05)
    account = Account(source)
    account.follow()
    puppet.do("spin(0.05)")
    account.sample()
    before = puppet.used()
    puppet.do("spin(0.01)")
    account.follow(puppet.pid)
    account.sample()
    account.follow()
    account.follow(puppet.pid)
    account.sample()

    used, most = account.of(puppet), differences(puppet.used(), before)
    assert used[tid] == (0, 0)
    assert used[puppet.pid][0] <= most[puppet.pid][0]


def test_a_thread_that_takes_the_place_of_its_leader_brings_no_past_with_it(source: TaskSource) -> None:
    if source.file:
        pytest.skip("procfs shows the exec's thread under the leader's id, without a sign of the change")
    with Puppet() as puppet:
        (tid,) = puppet.do("start()")
        puppet.do("spin(0.05)")
        puppet.on(tid, "spin(0.2)")
        account = Account(source)
        account.begin(puppet.pid)
        before = sum(run for run, wait in puppet.used().values())
        # de_thread (fs/exec.c) gives the thread the id of its leader, which has ended.
        puppet.begin(f'on({tid}, \'os.execv("/bin/sleep", ["sleep", "60"])\')')
        comm = PROC / str(puppet.pid) / "comm"
        while comm.read_text() != "sleep\n" or len(puppet.used()) > 1:
            account.sample()
        account.sample()

        assert 0 <= account.used[puppet.pid][0] < 50 * MILLISECOND
        assert before > 250 * MILLISECOND


REUSED = """
import json, os, sys, time
from pathlib import Path
from pinchpoint.bpf.choice import choose_source
from puppet import Puppet

source = choose_source(Path("/proc"), lambda tgid, comm: 1, sys.argv[1])
found = []
for life in range(3):
    if found:
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(found[0][0] - 1))
    with Puppet(b"life%d" % life) as puppet:
        puppet.do("spin(0.02)")
        source.follow([puppet.pid], time.monotonic())
        told = source.sample(time.monotonic(), all_tasks=True)
        puppet.do("spin(0.02)")
        told += source.sample(time.monotonic(), all_tasks=True)
        used = [(task, run) for task, run, wait in told if task.tid == puppet.pid]
        found.append((puppet.pid, used, sum(run for task, run in used), puppet.used()[puppet.pid][0]))
    source.sample(time.monotonic(), all_tasks=True)
tasks = {task for pid, used, told, run in found for task, _ in used}
print(json.dumps([[pid, told, run, sorted({task.comm for task, _ in used})] for pid, used, told, run in found]))
print(len(tasks))
"""


@pytest.mark.parametrize("name", TASK_SOURCES[1:])
def test_a_reused_id_is_another_thread(name: str) -> None:
    made(name).close()
    python = [sys.executable, "-c", REUSED, name]
    if os.geteuid():
        pytest.skip("needs root, to make a PID namespace in which ids can be chosen")
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", *python],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    lives, tasks = map(json.loads, done.stdout.splitlines())

    assert len({pid for pid, *_ in lives}) == 1
    assert [told for _, told, _, _ in lives[1:]] == [run for _, _, run, _ in lives[1:]]
    assert [names for *_, names in lives] == [["life0"], ["life1"], ["life2"]]
    assert tasks == 3


def test_a_thread_that_renames_itself_is_seen_with_its_new_name(source: TaskSource, puppet: Puppet) -> None:
    account = Account(source)
    (tid,) = puppet.do("start()")
    account.follow(puppet.pid)
    for name in ("tp_osd_tp", "a much longer name than fits"):
        puppet.on(tid, f"rename({name.encode()!r})")
        account.sample()

        assert account.names()[tid] == name[:15]
    assert account.names()[puppet.pid] == "puppet"
    assert len(account.tasks[tid]) == 1


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"a b) (c", "a b) (c"),
        (b"new\nline", "new\ufffdline"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"", ""),
        (b"x\n", "x\ufffd"),
        ("fünfzehn Bytes!".encode()[:15], "fünfzehn Bytes"),
        ("fünfzehn Byteß".encode()[:15], "fünfzehn Byte\ufffd"),
    ],
)
def test_any_name_of_a_thread_can_be_printed(source: TaskSource, raw: bytes, name: str) -> None:
    with Puppet(raw) as puppet:
        account = Account(source)
        account.follow(puppet.pid)

        assert account.names() == {puppet.pid: name}


def test_the_name_of_a_kernel_thread_is_whole(source: TaskSource) -> None:
    """The kernel's own comm has 15 characters."""
    long = {}
    for process in PROC.iterdir():
        try:
            comm = decode((process / "comm").read_bytes().removesuffix(b"\n"))
        except OSError:
            continue
        # A worker's name changes with its work; so does a rescuer's, but a rescuer seldom has any.
        works = comm.startswith("kworker/") and not comm.startswith("kworker/R-")
        if process.name.isdigit() and len(comm) > 15 and not works:
            long[int(process.name)] = comm
    if not long:
        pytest.skip("this kernel has no thread with a long name")
    account = Account(source)
    account.follow(*long)

    assert account.names().items() >= long.items()


def test_hundreds_of_threads_are_told_of_all_and_once(source: TaskSource, puppet: Puppet) -> None:
    threads = puppet.do("start(700)")
    account = Account(source)
    account.begin(puppet.pid)
    before = puppet.used()
    puppet.do("touch()")
    told = [use for use in source.sample(time.monotonic(), all_tasks=True) if use.task.tgid == puppet.pid]

    assert account.names().keys() == {puppet.pid, *threads}
    uses = {task.tid: (run, wait) for task, run, wait in told}
    # A source may omit a thread that ran for no time: stolen time is subtracted from the clock of tasks
    # (update_rq_clock_task, kernel/sched/core.c).
    assert {tid: uses.get(tid, (0, 0)) for tid in [puppet.pid, *threads]} == differences(puppet.used(), before)
    assert len(told) == len(uses)


STORM = 300
"""Threads and processes that each storm begins and ends."""


@pytest.fixture
def this_host(tmp_path: Path) -> Host:
    roles = load_roles()
    return Host(
        procfs=PROC,
        sysfs=Path("/sys"),
        rootfs=Path("/"),
        roles=roles,
        processes=Processes(PROC, roles),
        runs=RunDirectory(tmp_path, PROC),
    )


def charged(probe: Tasks, owner: str) -> float:
    """Return the clock ticks that a probe has charged to an owner."""
    series = Snapshot.of(0, probe.points()).series("pinchpoint_thread_cpu_seconds_total")
    return TICKS_PER_SECOND * sum(value for labels, value in series if labels["owner"] == owner)


@pytest.mark.parametrize("name", TASK_SOURCES[1:])
def test_totals_stay_right_while_threads_and_processes_come_and_go(name: str, this_host: Host) -> None:
    made(name).close()
    probe = Tasks(replace(this_host, task_source=name))
    # No other test has such a process: its CPU time would be charged here too.
    with Puppet(b"qemu-totals") as puppet:
        probe.sample(time.monotonic())
        before = (*puppet.whole(), charged(probe, "qemu-totals"))
        puppet.begin(f"[(brief(0.0005), fork()) for _ in range({STORM})][:0]")
        while puppet.busy():
            probe.sample(time.monotonic())
            time.sleep(0.02)
        puppet.done()
        # Unseen use is looked for every five seconds.
        for later in (6.0, 12.0):
            probe.sample(time.monotonic() + later)
        own, children, told = map(sub, (*puppet.whole(), charged(probe, "qemu-totals")), before)
    probe.close()

    assert own >= STORM * 0.0005 * TICKS_PER_SECOND
    # Totals of a process are in ticks, and two are tolerated; children have its name, if they are seen.
    assert own - 4 <= told <= own + children + 4


CHOOSE = """
import json, logging, os, sys
from pathlib import Path
from pinchpoint.bpf.choice import UnusableSourceError, choose_source

logging.basicConfig(level="INFO", format="%(message)s")
exec(sys.argv[2])
before = len(os.listdir("/proc/self/fd"))
try:
    source = choose_source(Path("/proc"), lambda tgid, comm: 1, sys.argv[1])
    source.follow([os.getpid()], 0.0)
    answer = source.name, source.reason, [task.tid for task in source.tasks()] == [os.getpid()]
    source.close()
except UnusableSourceError as error:
    answer = "error", str(error), True
print(json.dumps([*answer, len(os.listdir("/proc/self/fd")) - before]))
"""
NOT_PERMITTED = "no bpf and bpf-iter: can't be loaded: not permitted: needs CAP_BPF and CAP_PERFMON, or root, and no"
NO_BPF = r"no bpf and bpf-iter: can't be loaded: the kernel is built without it \(CONFIG_BPF_SYSCALL\)$"
NO_BTF = "no bpf and bpf-iter: can't be loaded: .*kernel BTF"
NO_CLASS = "no bpf and bpf-iter: no process in procfs tells its PID namespace"
HIDE_BTF = """
for place in /sys/kernel/btf /boot /lib/modules /usr/lib/debug; do
    [ ! -d $place ] || mount -t tmpfs none $place || exit 77
done
exec "$@"
"""
HIDE_PROCESSES = 'mount -t proc -o hidepid=2 proc /proc || exit 77; exec "$@"'
AS_NOBODY = """
import ctypes
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, which a change of user takes away
import pinchpoint.bpf.libbpf
if not os.access(pinchpoint.bpf.libbpf.OBJECTS, os.X_OK):
    print("another user may not read the package", file=sys.stderr)
    sys.exit(77)
"""
# A filter that answers bpf() with an error and permits everything else; seccomp_data begins with the call's number.
FILTERED = """
import ctypes, platform, struct
call = {{"x86_64": 321, "aarch64": 280}}[platform.machine()]
rules = struct.pack("=HBBIHBBIHBBIHBBI", 0x20, 0, 0, 0, 0x15, 0, 1, call, 6, 0, 0, 0x50000 | {}, 6, 0, 0, 0x7fff0000)
program = ctypes.create_string_buffer(rules)
prctl = ctypes.CDLL(None).prctl
assert prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert prctl(22, 2, struct.pack("@HP", 4, ctypes.addressof(program)), 0, 0) == 0  # PR_SET_SECCOMP
"""
KEEP = "--bounding-set=-all{0}", "--inh-caps=-all{0}"


def choose(*before: str, wanted: str = "auto", first: str = "") -> tuple[str, str, list[str]]:
    """Choose a source in a separate process; return its name, its reason and the log."""
    if before and os.geteuid():
        pytest.skip("needs root")
    made("bpf-iter").close()
    command = [*before, sys.executable, "-c", CHOOSE, wanted, first]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(f"cannot be tried here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    name, reason, itself, left = json.loads(done.stdout)

    assert itself
    assert left == 0
    return name, reason, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("before", "first", "reason"),
    [
        (("setpriv", *(word.format("") for word in KEEP)), "", NOT_PERMITTED),
        (("setpriv", *(word.format(",+bpf") for word in KEEP)), "", NOT_PERMITTED),
        (("setpriv", *(word.format(",+perfmon") for word in KEEP)), "", NOT_PERMITTED),
        (("unshare", "--user", "--map-root-user"), "", NOT_PERMITTED),
        (("env",), AS_NOBODY, NOT_PERMITTED),
        (("env",), FILTERED.format(errno.EPERM), NOT_PERMITTED),
        (("env",), FILTERED.format(errno.ENOSYS), NO_BPF),
        (("unshare", "--mount", "sh", "-c", HIDE_BTF, "sh"), "", NO_BTF),
    ],
    ids=["no rights", "only CAP_BPF", "only CAP_PERFMON", "user namespace", "user", "seccomp", "no BPF", "no BTF"],
)
def test_where_bpf_is_refused_procfs_is_read_and_one_line_says_why(
    before: tuple[str, ...], first: str, reason: str
) -> None:
    name, said, logged = choose(*before, first=first)

    assert name == "kept"
    assert re.match(reason, said)
    assert logged == [f"threads are read by kept: {said}"]


@pytest.mark.parametrize(
    ("before", "wanted", "name"),
    [
        (("setpriv", *(word.format(",+bpf,+perfmon") for word in KEEP)), "auto", "bpf"),
        (("setpriv", *(word.format(",+sys_admin") for word in KEEP)), "auto", "bpf"),
        (("unshare", "--pid", "--fork", "--mount-proc"), "bpf", "bpf"),
        (("unshare", "--pid", "--fork", "--mount-proc"), "bpf-iter", "bpf-iter"),
        (("unshare", "--mount", "sh", "-c", HIDE_PROCESSES, "sh"), "auto", "bpf"),
    ],
)
def test_in_a_container_with_rights_bpf_is_the_best(before: tuple[str, ...], wanted: str, name: str) -> None:
    if name == "bpf":
        made("bpf").close()

    assert choose(*before, wanted=wanted) == (name, "", [])


@pytest.mark.parametrize("wanted", BPF)
def test_one_that_is_insisted_on_and_refused_is_an_error(wanted: str) -> None:
    name, said, logged = choose("setpriv", *(word.format("") for word in KEEP), wanted=wanted)

    assert (name, logged) == ("error", [])
    assert said.startswith(f"no {wanted}: can't be loaded: not permitted: ")


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make sources fail, each with a reason."""

    def refuse(**reasons: str) -> None:
        for name, reason in reasons.items():

            def fail(procfs: Path, why: str = "", reason: str = reason) -> NoReturn:
                raise BpfError(reason)

            monkeypatch.setitem(BPF, name.replace("_", "-"), fail)

    return refuse


def test_where_the_best_is_refused_the_next_is_taken_and_the_line_says_so(
    refused: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    made("bpf-iter").close()
    refused(bpf="no such thing")
    with caplog.at_level("INFO"):
        source = choose_source(PROC, every_one)
    source.close()

    assert (source.name, source.file, source.reason) == ("bpf-iter", "", "no bpf: no such thing")
    assert caplog.messages == ["threads are read by bpf-iter: no bpf: no such thing"]


@pytest.mark.parametrize(
    ("reasons", "reason"),
    [
        ({"bpf": "no libbpf", "bpf_iter": "no libbpf"}, "no bpf and bpf-iter: no libbpf"),
        ({"bpf": "no kfunc", "bpf_iter": "another namespace"}, "no bpf: no kfunc; no bpf-iter: another namespace"),
    ],
)
def test_reasons_are_told_each_once(
    machine: Machine, refused: Callable[..., None], reasons: dict[str, str], reason: str
) -> None:
    machine.process(10, "fio")
    refused(**reasons)
    source = choose_source(machine.procfs, every_one)

    assert (source.name, source.file, source.reason) == ("kept", "stat", f"{reason}; schedstat is all zero")


def test_a_folder_that_no_kernel_made_is_read_as_files(machine: Machine) -> None:
    machine.process(10, "fio")
    machine.ran(10, 10, 0.1)
    source = choose_source(machine.procfs, every_one)

    assert (source.name, source.file) == ("kept", "schedstat")
    assert source.reason.startswith(NO_CLASS)


@pytest.mark.parametrize("wanted", ["kept", "plain"])
def test_one_of_procfs_that_is_asked_for_has_no_reason(wanted: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        source = choose_source(PROC, every_one, wanted)

    assert (source.name, source.file, source.reason) == (wanted, "schedstat", "")
    assert not caplog.messages


def test_a_source_that_fails_later_is_replaced_at_the_next_sample(
    this_host: Host, refused: Callable[..., None]
) -> None:
    source = made("bpf")
    assert isinstance(source, SyscallSource)
    probe = Tasks(this_host, source)
    probe.sample(0.0)
    with open("/dev/null") as null:
        os.dup2(null.fileno(), source._loaded._programs["walk"])
    with pytest.raises(BpfError, match=r"^walk: Invalid argument$"):
        probe.sample(0.1)
    refused(bpf="it failed")
    probe.sample(0.2)
    (info,) = [labels for labels, _ in Snapshot.of(0, probe.points()).series("pinchpoint_task_source_info")]
    probe.close()

    assert (info["source"], info["reason"]) == ("bpf-iter", "no bpf: it failed")
