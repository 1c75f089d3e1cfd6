from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disturbance import MARK, TICKS, Disturbance, Limits, Look, Process, look
from machine import KERNEL_THREAD, Machine, stat_line
from polling import until

BEFORE, AFTER = 1000.0, 1010.0
OURS = 100
"""The process that a caller names."""
OLD = 5 * TICKS
NEW = int(BEFORE + 1) * TICKS
FOREIGN = st.dictionaries(
    st.tuples(st.integers(1, 12), st.sampled_from([OLD, NEW])),
    st.builds(Process, st.sampled_from("abc"), st.integers(0, 12), st.floats(0, 100), st.none() | st.floats(0, 100)),
)


def has(
    machine: Machine,
    pid: int,
    name: str,
    *,
    ppid: int = 1,
    mark: str = "",
    state: str = "S",
    flags: int = 0,
    utime: float = 0.0,
    stime: float = 0.0,
    children: float = 0.0,
    start: int = OLD,
) -> None:
    """Write a process of procfs; its use is in seconds."""
    used, system, waited = (round(seconds * TICKS) for seconds in (utime, stime, children))
    line = stat_line(
        pid, name, state=state, ppid=ppid, flags=flags, utime=used, stime=system, children=waited, start=start
    )
    machine.write(f"proc/{pid}/stat", line)
    machine.write(f"proc/{pid}/environ", f"HOME=/root\0{f'{MARK}={mark}' if mark else 'X=y'}\0TERM=dumb\0")


@pytest.fixture
def host(machine: Machine) -> Machine:
    """A machine with init, a kernel thread, the shell that started the tests, and the tests."""
    has(machine, 1, "init", ppid=0)
    has(machine, 2, "kthreadd", ppid=0, flags=KERNEL_THREAD)
    has(machine, 50, "bash")
    has(machine, OURS, "pytest", ppid=50)
    return machine


def at(machine: Machine, now: float, mark: str = "m") -> Look:
    return look(mark, OURS, machine.procfs, now)


def names(found: Look) -> list[str]:
    return sorted(process.name for process in found.others.values())


def looks(before: Mapping[tuple[int, int], Process], after: Mapping[tuple[int, int], Process]) -> Disturbance:
    return Disturbance.between(Look(BEFORE, before), Look(AFTER, after))


def test_ours_are_descendants_and_those_with_the_mark_and_theirs(host: Machine) -> None:
    has(host, 101, "fio", ppid=OURS)
    has(host, 102, "job", ppid=101)
    has(host, 200, "ceph-osd", mark="m")
    has(host, 201, "cleared", ppid=200)
    has(host, 300, "other_mark", mark="mm")
    has(host, 301, "neighbour", ppid=50)

    found = at(host, BEFORE)

    assert names(found) == ["bash", "init", "neighbour", "other_mark"]
    assert {pid for pid, _ in found.ours} == {100, 101, 102, 200, 201}


def test_threads_of_the_kernel_are_nobodys(host: Machine) -> None:
    has(host, 7, "kworker/0:1", ppid=2, flags=KERNEL_THREAD)
    has(host, 8, "[kworker/0:2]", ppid=1)

    assert names(at(host, BEFORE)) == ["[kworker/0:2]", "bash", "init"]


def test_a_mark_on_an_ancestor_does_not_make_everybody_ours(host: Machine) -> None:
    has(host, 1, "init", ppid=0, mark="m")
    has(host, 301, "neighbour", ppid=1)

    assert names(at(host, BEFORE)) == ["bash", "neighbour"]


def test_others_count_with_what_they_used_meanwhile_and_newborn_ones_with_all(host: Machine) -> None:
    has(host, 300, "chromium", utime=50.0, stime=1.0)
    before = at(host, BEFORE)
    has(host, 300, "chromium", utime=53.0, stime=2.0)
    has(host, 301, "cc1", utime=1.5, start=NEW)
    has(host, 101, "fio", ppid=OURS, utime=9.0, start=NEW)

    found = Disturbance.between(before, at(host, AFTER))

    assert found.others == pytest.approx(0.55)
    assert dict(found.most) == pytest.approx({"chromium": 0.4, "cc1": 0.15})


def test_a_pid_that_is_used_again_is_another_process(host: Machine) -> None:
    has(host, 300, "old", utime=50.0)
    before = at(host, BEFORE)
    has(host, 300, "new", utime=1.0, start=NEW)

    assert dict(Disturbance.between(before, at(host, AFTER)).most) == pytest.approx({"new": 0.1})


def test_the_past_of_a_process_that_was_ours_or_unseen_does_not_count(host: Machine) -> None:
    has(host, 200, "lost_its_mark", mark="m", utime=50.0)
    before = at(host, BEFORE)
    has(host, 200, "lost_its_mark", utime=55.0)
    has(host, 201, "unseen", utime=70.0, children=9.0)

    assert Disturbance.between(before, at(host, AFTER)).others == 0.0


def test_one_that_started_in_the_tick_of_the_look_is_newborn(host: Machine) -> None:
    before = at(host, BEFORE + 0.5 / TICKS)
    has(host, 300, "cc1", utime=1.0, start=int(BEFORE) * TICKS)

    assert Disturbance.between(before, at(host, AFTER)).others == pytest.approx(0.1, rel=1e-3)


def test_what_a_short_process_used_is_found_in_its_parent(host: Machine) -> None:
    has(host, 300, "make", children=100.0)
    before = at(host, BEFORE)
    has(host, 300, "make", children=104.0)

    assert dict(Disturbance.between(before, at(host, AFTER)).most) == pytest.approx({"make": 0.4})


def test_what_was_used_before_the_first_look_is_taken_from_who_waited() -> None:
    make, sh, cc1 = (10, OLD), (11, OLD), (12, OLD)
    before = {make: Process("make", 1, 0, 5), sh: Process("sh", 10, 1, 7), cc1: Process("cc1", 11, 20)}

    only_cc1 = looks(before, {make: before[make], sh: Process("sh", 10, 1, 7 + 22)})
    both = looks(before, {make: Process("make", 1, 0, 5 + 22 + 7 + 1)})
    nobody_waited = looks(before, {make: before[make], sh: before[sh]})

    assert only_cc1.others == pytest.approx(0.2), "it used 2 s more"
    assert both.others == pytest.approx(0.2)
    assert nobody_waited.others == 0.0


def test_a_process_that_became_ours_has_not_ended() -> None:
    shell, command = (10, OLD), (11, OLD)
    before = {shell: Process("sh", 1, 0, 0), command: Process("env", 10, 3)}
    after = Look(AFTER, {shell: Process("sh", 1, 0, 3)}, frozenset({command}))

    assert Disturbance.between(Look(BEFORE, before), after).others == pytest.approx(0.3)


def test_init_that_waits_for_orphans_of_ours_disturbs_nobody(host: Machine) -> None:
    before = at(host, BEFORE)
    has(host, 1, "init", ppid=0, utime=1.0, children=60.0)
    has(host, 50, "bash", children=60.0)

    assert Disturbance.between(before, at(host, AFTER)).others == pytest.approx(0.1), "its own time counts"


def test_who_started_a_marked_process_may_be_who_waits_for_it(host: Machine) -> None:
    has(host, 400, "shim")
    has(host, 401, "ceph-osd", ppid=400, mark="m", utime=60.0)
    before = at(host, BEFORE)
    host.end(401)
    has(host, 400, "shim", children=65.0)

    assert Disturbance.between(before, at(host, AFTER)).others == 0.0


def test_a_zombie_that_init_adopted_may_be_ours(host: Machine) -> None:
    has(host, 300, "sh")
    before = at(host, BEFORE)
    has(host, 401, "fio", state="Z", utime=6.0, start=NEW)
    has(host, 301, "cc1", ppid=300, state="Z", utime=1.0, start=NEW)

    assert dict(Disturbance.between(before, at(host, AFTER)).most) == pytest.approx({"cc1": 0.1})


def test_parents_that_go_in_circles_end_no_look(host: Machine) -> None:
    has(host, 50, "bash", ppid=51)
    has(host, 51, "screen", ppid=50)
    has(host, 300, "self", ppid=300)

    assert names(at(host, BEFORE)) == ["bash", "init", "screen", "self"]


@pytest.mark.parametrize("raw", [b"", b"junk", b"9 (a) S 1", b"\xff" * 100, b"9 (a) S" + b" x" * 40])
def test_what_is_no_stat_is_passed_over(host: Machine, raw: bytes) -> None:
    host.write("proc/9/stat", raw)
    (host.procfs / "10").mkdir()

    assert names(at(host, BEFORE)) == ["bash", "init"]


def test_a_folder_that_is_no_procfs_has_nothing_and_costs_nothing(machine: Machine) -> None:
    found = Disturbance.between(at(machine, BEFORE), at(machine, AFTER))

    assert (found.others, found.steal, found.memory, found.cpu, found.io) == (0.0, 0.0, None, None, None)
    assert found.numbers() == {"others": 0.0, "steal": 0.0}
    assert found.reason() == ""


def test_steal_and_pressure_are_those_of_the_time_between(host: Machine) -> None:
    def write(steal: float, memory: float, full: float) -> None:
        cpu = f"9 9 9 9 9 9 9 {int(steal * TICKS)} 0 0"
        host.write("proc/stat", f"cpu  {cpu}\ncpu0 {cpu}\ncpu1 {cpu}\n")
        line = "avg10=0.00 avg60=0.00 avg300=0.00 total="
        host.write("proc/pressure/memory", f"some {line}{memory * 1e6:.0f}\nfull {line}{full * 1e6:.0f}\n")
        host.write("proc/pressure/io", f"some {line}{3 * memory * 1e6:.0f}\n")

    write(1.0, 5.0, 1.0)
    before = at(host, BEFORE)
    write(1.4, 7.0, 6.0)
    found = Disturbance.between(before, at(host, AFTER))

    assert (found.cpus, found.cpu) == (2, None)
    assert (found.steal, found.memory, found.io) == pytest.approx((0.08, 0.2, 0.6))
    assert found.numbers() == {"others": 0.0, "steal": 0.08, "memory": 0.2, "io": 0.6}


@pytest.mark.parametrize("raw", [b"", b"some total=x\n", b"full avg10=0.00 total=7\n", b"\xff\xff"])
def test_pressure_in_other_words_is_not_known(host: Machine, raw: bytes) -> None:
    host.write("proc/pressure/memory", raw)

    assert at(host, BEFORE).pressure == {}


def test_pressure_that_was_switched_off_at_boot_is_not_known(host: Machine) -> None:
    (host.procfs / "pressure" / "memory").mkdir(parents=True)  # reading it fails, as with EOPNOTSUPP

    assert at(host, BEFORE).pressure == {}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (Disturbance(9, 0.15, (("a", 0.15),), steal=0.1, cpus=2, memory=0.1, cpu=1.0, io=1.0), ""),
        (
            Disturbance(9, 0.62, (("chromium", 0.5), ("sh", 0.1))),
            "other processes used 0.62 CPUs (most: chromium 0.50, sh 0.10)",
        ),
        (Disturbance(9, 0.16), "other processes used 0.16 CPUs"),
        (
            Disturbance(9, steal=0.11, cpus=2, memory=0.2),
            "the hypervisor took 0.11 of 2 CPUs; processes waited for memory in 20% of the time",
        ),
    ],
)
def test_a_reason_says_which_limits_were_passed(found: Disturbance, reason: str) -> None:
    assert found.reason() == reason


def test_limits_can_be_others() -> None:
    assert Disturbance(9, 0.3).reason(Limits(others=0.4)) == ""


def test_the_second_look_is_the_later_one() -> None:
    with pytest.raises(ValueError, match="before the first"):
        Disturbance.between(Look(AFTER), Look(BEFORE))


@given(FOREIGN, FOREIGN)
def test_whatever_changes_nobody_uses_less_than_nothing(
    before: dict[tuple[int, int], Process], after: dict[tuple[int, int], Process]
) -> None:
    found = looks(before, after)
    most = sum(process.used + (process.waited or 0) for process in after.values())

    assert 0 <= found.others <= most / (AFTER - BEFORE) + 1e-9
    assert all(amount >= 0 for _, amount in found.most)


SPIN = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
ORPHAN = f"""
import os
if pid := os.fork():
    print(pid, flush=True)
    os._exit(0)
os.setsid()
os.close(1)
{SPIN}
"""


@contextlib.contextmanager
def orphan(environment: Mapping[str, str]) -> Iterator[int]:
    """Run a process that computes, whose parent is not one of ours, and that ends by itself after a minute."""
    done = subprocess.run([sys.executable, "-c", ORPHAN], env=environment, stdout=subprocess.PIPE, check=True)
    pid = int(done.stdout)
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_on_this_machine_only_a_process_of_nobody_of_ours_is_another() -> None:
    mark = uuid.uuid4().hex
    with (
        orphan({}) as foreign,
        orphan({MARK: mark}) as marked,
        subprocess.Popen([sys.executable, "-c", SPIN], env={}) as child,
    ):
        try:
            before = look(mark, os.getpid())
            begin = time.monotonic()

            def spun() -> Look | None:
                found = look(mark, os.getpid())
                used = [process.used for (pid, _), process in found.others.items() if pid == foreign]
                return found if time.monotonic() - begin > 0.5 and used and used[0] > 0.1 else None

            after = until(60, spun)
        finally:
            child.kill()

    assert after is not None
    for found in (before, after):
        assert foreign in {pid for pid, _ in found.others}
        assert {marked, child.pid, os.getpid()} <= {pid for pid, _ in found.ours}
    mine = {key for key in before.others.keys() & after.others.keys() if key[0] == foreign}
    used = sum(after.others[key].used - before.others[key].used for key in mine)
    assert used > 0
    assert Disturbance.between(before, after).others >= used / (after.time - before.time)
