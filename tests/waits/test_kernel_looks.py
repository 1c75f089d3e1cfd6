"""What becomes of the sums of the timer in the kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pinchpoint.benchmarks.workloads import Member, Workload
from pinchpoint.bpf.choice import UnusableSourceError
from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.bpf.waits import MAX_WATCHED_PROCESSES, MAX_WATCHED_THREADS, Spent, StackTime, Watch
from pinchpoint.threads.processes import Process
from pinchpoint.threads.task_source import Task
from pinchpoint.waits import choice, kernel_looks
from pinchpoint.waits.kernel_looks import KernelLooks
from pinchpoint.waits.stack_rules import Stacks, load_waits
from pinchpoint.waits.watched import WatchedProcess, WatchedThread

DISK, AIO, FUTEX, STRANGE, YIELD = (
    b"[<0>] submit_bio_wait+0x1/0x9\n",
    b"[<0>] read_events+0x1/0x9\n",
    b"[<0>] futex_do_wait+0x1/0x9\n",
    b"[<0>] zyx_wait+0x1/0x9\n",
    b"[<0>] __do_sys_sched_yield+0x1/0x9\n",
)


class Timer:
    """A timer whose sums a test writes."""

    made: list[Timer] = []  # noqa: RUF012 - the fixture empties it
    seconds = 0.25
    full = False

    def __init__(self, procfs: Path, parked: Callable[[bytes], bool]) -> None:
        self.parked = parked
        self.spent: list[Spent] = []
        self.followed: Mapping[object, Mapping[object, Watch]] = {}
        self.made.append(self)

    def follow(self, processes: Mapping[object, Mapping[object, Watch]]) -> None:
        assert not self.spent, "what ended processes did would be lost"
        self.followed = processes

    def collect(self) -> list[Spent]:
        spent, self.spent = self.spent, []
        return spent

    def close(self) -> None:
        pass


def process(owner: str = "fio", *, is_rank: bool = False) -> WatchedProcess:
    member = Member(Process(10, 100, "fio", "benchmark", owner), Workload("fio", "r"))
    watched = WatchedProcess(member)
    watched.rank = is_rank
    return watched


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> KernelLooks:
    monkeypatch.setattr(kernel_looks, "StackTimer", Timer)
    Timer.made.clear()
    return KernelLooks(Path("/proc"), Stacks(load_waits()), lambda process, wait, now: "osd")


def take(looks: KernelLooks, one: WatchedProcess, *stacks: StackTime, parked: float = 0.0) -> dict[str, float]:
    Timer.made[0].spent = [Spent(one, 2.0, 0.25, 0.125, parked, 0.0, list(stacks))]
    looks.look({}, (), {}, 100.0)
    return {wait: seconds for wait, seconds in one.time.times.items() if seconds}


def test_time_in_a_stack_is_that_of_its_rule_or_of_where_the_data_is(looks: KernelLooks) -> None:
    one = process()

    times = take(looks, one, StackTime(DISK, 0.5, 5, 0), StackTime(AIO, 1.0, 9, 0))
    assert times == {"cpu": 0.25, "runqueue": 0.125, "disk": 0.5, "osd": 1.0}
    assert one.time.span == 2.0


def test_parked_threads_have_no_class_and_parked_processes_are_parked(looks: KernelLooks) -> None:
    one = process()

    assert take(looks, one, StackTime(FUTEX, 1.5, 5, 0), parked=1.5) == {"cpu": 0.25, "runqueue": 0.125}
    assert one.time.parked == 1.5
    assert Timer.made[0].parked(FUTEX)
    assert not Timer.made[0].parked(DISK)


def test_stacks_that_no_rule_knows_are_other_and_are_listed(looks: KernelLooks) -> None:
    times = take(looks, process(), StackTime(STRANGE, 0.5, 5, 0), StackTime(b"", 0.25, 1, 0))

    assert times["other"] == 0.75
    assert looks._stacks.unknown == 1
    assert next((stack.frames, stack.times) for stack in looks._stacks) == (("zyx_wait",), 5)


def test_a_process_that_was_not_looked_at_has_done_nothing(looks: KernelLooks) -> None:
    one = process()
    Timer.made[0].spent = [Spent(one, 0.0, 0.0, 0.0, 0.0, 0.0, [])]
    looks.look({}, (), {}, 100.0)

    assert one.time.times == {}


def test_a_rank_that_yields_is_seen_to(looks: KernelLooks, tmp_path: Path) -> None:
    one = process(is_rank=True)
    (tmp_path / "io").write_text("rchar: 1\nwchar: 1\nsyscr: 1\nsyscw: 1\n")
    stat = f"10 (fio) R {' '.join(['0'] * 10)} 9 91 {' '.join(['0'] * 30)}\n"
    (tmp_path / "stat").write_text(stat)
    verdicts = []
    for _ in range(3):
        Timer.made[0].spent = [Spent(one, 0.5, 0.5, 0.0, 0.0, 0.5, [StackTime(YIELD, 0.0, 0, 9)])]
        looks.look({}, (), {}, 100.0)
        verdicts.append(one.spin.judge(str(tmp_path), 0.5))

    assert verdicts[-1]


def test_what_ended_processes_did_is_taken_before_they_are_forgotten(looks: KernelLooks) -> None:
    one = process()
    Timer.made[0].spent = [Spent(one, 1.0, 1.0, 0.0, 0.0, 0.0, [])]
    looks.follow([], 100.0)

    assert one.time.times == {"cpu": 1.0, "runqueue": 0.0}


def test_where_there_is_no_more_room_everything_is_followed_anew(looks: KernelLooks) -> None:
    one = process()
    Timer.made[0].full = True
    looks.look({10: one}, (), {}, 100.0)

    assert list(Timer.made[0].followed) == [one]


def test_main_threads_of_ranks_and_threads_of_untrusted_users_are_marked(looks: KernelLooks) -> None:
    rank, foreign = process(is_rank=True), process("fio@uid1000")
    for one in (rank, foreign):
        for tid in (10, 11):
            one.threads[Task(10, tid, "fio", 0.0)] = WatchedThread("/proc/10/task/10", main=tid == 10)
    looks.follow([rank, foreign], 100.0)
    followed = {key: sorted(threads.values()) for key, threads in Timer.made[0].followed.items()}

    assert followed[rank] == [Watch(10, 10, rank=True), Watch(10, 11)]
    assert followed[foreign] == [Watch(10, 10, trusted=False), Watch(10, 11, trusted=False)]


def crowd(owner: str, pid: int, threads: int) -> WatchedProcess:
    one = WatchedProcess(Member(Process(pid, 100, "fio", "benchmark", owner), Workload("fio", owner)))
    for tid in range(pid, pid + threads):
        one.threads[Task(pid, tid, "fio", 0.0)] = WatchedThread(f"/proc/{pid}/task/{tid}", main=tid == pid)
    return one


def test_however_many_threads_a_user_starts_those_of_others_are_looked_at(looks: KernelLooks) -> None:
    ours, small = crowd("fio", 100, 40), crowd("fio@uid1001", 200, 30)
    large = [crowd("fio@uid1000", pid, 3000) for pid in (10_000, 20_000)]
    looks.follow([*large, small, ours], 100.0)
    followed = {key: len(threads) for key, threads in Timer.made[0].followed.items()}

    assert followed == {ours: 40, small: 30, large[0]: 989, large[1]: 989}
    assert sum(followed.values()) == MAX_WATCHED_THREADS
    assert Watch(10_000, 10_000, trusted=False) in Timer.made[0].followed[large[0]].values()


def test_however_many_processes_a_user_starts_those_of_others_are_looked_at(looks: KernelLooks) -> None:
    ours, small = crowd("fio", 1, 1), crowd("fio@uid1001", 2, 1)
    looks.follow([*(crowd("fio@uid1000", pid, 1) for pid in range(10, 4000)), small, ours], 100.0)
    followed = Timer.made[0].followed

    assert len(followed) == MAX_WATCHED_PROCESSES
    assert {ours, small} <= followed.keys()
    assert all(followed.values())


def test_more_threads_of_trusted_users_than_there_is_room_for_are_left_to_the_other_source(looks: KernelLooks) -> None:
    looks.follow([crowd("fio", 10, MAX_WATCHED_THREADS + 1)], 100.0)

    (threads,) = Timer.made[0].followed.values()
    assert len(threads) == MAX_WATCHED_THREADS + 1  # the timer refuses them


def test_the_best_source_that_works_is_chosen(looks: KernelLooks, monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(wanted: str = "auto") -> tuple[str, str | None]:
        found = choice.choose_source(Path("/proc"), Stacks(load_waits()), lambda process, wait, now: "osd", wanted)
        return found.how[0] or "files", str(found.interval)

    assert choose() == choose("bpf") == ("bpf", "0.5")
    assert choose("files") == ("files", "None")

    def denied(*arguments: object) -> Timer:
        raise BpfError("not permitted")

    monkeypatch.setattr(kernel_looks, "StackTimer", denied)
    assert choose() == ("files", "None")
    with pytest.raises(UnusableSourceError, match="no bpf: not permitted"):
        choose("bpf")
