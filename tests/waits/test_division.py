from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.waits.division import (
    History,
    MountUse,
    ProcessTime,
    ThreadTime,
    counting,
    divide,
    fuse_shares,
    parked_shares,
    resolve,
    share_out_locks,
)
from pinchpoint.waits.stack_rules import FUSE, PARKED

LOOK = 0.1


def thread(wait: str = PARKED) -> ThreadTime:
    found = ThreadTime()
    found.wait = found.last = wait
    return found


def test_what_all_threads_of_a_process_do_counts_together() -> None:
    process = ProcessTime()
    for _ in range(10):
        process.still(thread("disk"), LOOK)
        process.still(thread("disk"), LOOK)
        process.still(thread(), LOOK)
        process.end_look(LOOK)
    times, parked = process.take()

    assert times == {"disk": pytest.approx(2.0)}
    assert parked == 0


def test_only_the_time_in_which_no_thread_is_active_is_the_process_own_waiting() -> None:
    process = ProcessTime()
    worker = thread()
    for _ in range(10):
        rest = process.ran(worker, LOOK, 0.02, 0.01)
        process.rests(worker, rest)
        process.still(thread(), LOOK)
        process.end_look(LOOK)
    times, parked = process.take()

    assert times == {"cpu": pytest.approx(0.2), "runqueue": pytest.approx(0.1)}
    assert parked == pytest.approx(0.7)


def test_run_queue_wait_that_comes_late_replaces_what_was_taken_for_a_wait() -> None:
    """A woken thread shows its old stack until it gets a CPU, and only then does the kernel count its delay."""
    process = ProcessTime()
    worker = thread("disk")
    for _ in range(4):
        process.still(worker, LOOK)
        process.end_look(LOOK)
    process.rests(worker, process.ran(worker, LOOK, 0.05, 0.45))
    process.end_look(LOOK)
    times, parked = process.take()

    assert {wait: seconds for wait, seconds in times.items() if seconds > 1e-9} == {"cpu": 0.05, "runqueue": 0.45}
    assert parked == 0


def test_time_in_which_a_thread_was_never_seen_waiting_is_in_no_class() -> None:
    process, new = ProcessTime(), ThreadTime()
    for _ in range(4):
        process.still(thread(), LOOK)
        process.rests(new, process.ran(new, LOOK, 0.02, 0.01))
        process.end_look(LOOK)
    assert process.span == pytest.approx(0.12)

    new.wait = PARKED
    process.still(new, LOOK)
    process.end_look(LOOK)
    assert process.span == pytest.approx(0.12 + LOOK)
    times, parked = process.take()
    assert times == {"cpu": pytest.approx(0.08), "runqueue": pytest.approx(0.04)}
    assert parked == pytest.approx(LOOK)


def test_run_queue_wait_that_comes_late_counts_also_where_nothing_else_was_seen() -> None:
    process, new = ProcessTime(), ThreadTime()
    for _ in range(4):
        process.still(new, LOOK)
        process.end_look(LOOK)
    assert process.span == 0

    process.rests(new, process.ran(new, LOOK, 0.05, 0.45))
    process.end_look(LOOK)
    assert process.span == pytest.approx(0.5)
    assert process.take() == ({"cpu": 0.05, "runqueue": 0.45}, 0)


def test_what_was_settled_before_it_was_known_to_be_wrong_is_taken_from_the_next_block() -> None:
    process = ProcessTime()
    worker = thread("disk")
    for _ in range(4):
        process.still(worker, LOOK)
        process.end_look(LOOK)
    settled, _ = process.take()
    process.ran(worker, LOOK, 0.05, 0.45)
    process.end_look(LOOK)
    late, _ = process.take()
    for _ in range(6):
        process.still(worker, LOOK)
        process.end_look(LOOK)
    next_one, _ = process.take()

    assert settled == {"disk": pytest.approx(0.4)}
    assert late == {"cpu": 0.05, "runqueue": 0.45}
    assert next_one == {"disk": pytest.approx(0.2)}


def test_lateness_of_a_parked_thread_is_not_parked_time() -> None:
    process = ProcessTime()
    worker = thread()
    for _ in range(4):
        process.still(worker, LOOK)
        process.end_look(LOOK)
    process.rests(worker, process.ran(worker, LOOK, 0.1, 0.4))
    process.end_look(LOOK)
    times, parked = process.take()

    assert sum(times.values()) + parked == pytest.approx(0.5)
    assert times["runqueue"] == 0.4


def test_run_queue_wait_that_a_look_interrupts_is_not_counted_as_parked_too() -> None:
    process = ProcessTime()
    worker = thread()
    for _ in range(10):  # at every other look it waits for a CPU, for 30 ms so far
        process.rests(worker, process.ran(worker, LOOK, 0.05, 0.02))
        process.end_look(LOOK)
        process.rests(worker, process.ran(worker, LOOK, 0.05, 0.08))
        process.end_look(LOOK)
    times, parked = process.take()

    assert times == {"cpu": pytest.approx(1.0), "runqueue": pytest.approx(1.0)}
    assert parked == pytest.approx(0.0)


def test_parked_time_of_a_settled_block_is_taken_from_the_next_one() -> None:
    process = ProcessTime()
    worker = thread()
    process.rests(worker, process.ran(worker, LOOK, 0.05, 0.02))
    process.end_look(LOOK)
    _, before = process.take()
    process.rests(worker, process.ran(worker, LOOK, 0.05, 0.08))
    process.end_look(LOOK)
    process.take()
    process.still(worker, LOOK)
    process.end_look(LOOK)
    _, after = process.take()

    assert before == pytest.approx(0.03)
    assert after == pytest.approx(0.07)


class Timeline:
    """A thread that runs and waits for a CPU, and the times that the kernel shows of it."""

    def __init__(self, spells: list[tuple[str, float]]) -> None:
        self.spells = spells
        self.length = sum(seconds for _, seconds in spells)

    def between(self, begin: float, end: float) -> tuple[float, float]:
        """Return its CPU time from `begin` to `end`, and the length of the waits for a CPU that ended then."""
        run = late = at = 0.0
        for doing, seconds in self.spells:
            until = at + seconds
            if doing == "run":
                run += max(0.0, min(until, end) - max(at, begin))
            elif doing == "runqueue" and begin < until <= end:
                late += seconds
            at = until
        return run, late


@given(st.lists(st.tuples(st.floats(0.005, 0.15), st.floats(0.005, LOOK)), min_size=1, max_size=60))
def test_a_thread_that_always_runs_or_waits_for_a_cpu_is_hardly_ever_parked(spells: list[tuple[float, float]]) -> None:
    timeline = Timeline([part for run, late in spells for part in (("run", run), ("runqueue", late))])
    process, worker = ProcessTime(), thread()
    looks = int(timeline.length / LOOK)
    for look in range(looks):
        run, late = timeline.between(look * LOOK, (look + 1) * LOOK)
        process.rests(worker, process.ran(worker, LOOK, run, late))
        process.end_look(LOOK)
    times, parked = process.take()

    assert sum(times.values()) + parked == pytest.approx(looks * LOOK)
    assert parked <= LOOK + 1e-9  # the last wait, which is not over


@given(
    st.lists(
        st.tuples(st.booleans(), st.floats(0, 0.3), st.floats(0, 0.3), st.sampled_from(["disk", "mds", PARKED])),
        max_size=40,
    )
)
def test_a_process_has_at_least_the_time_that_went_by_and_no_class_is_negative(
    looks: list[tuple[bool, float, float, str]],
) -> None:
    process = ProcessTime()
    worker = thread()
    for ran, run, late, wait in looks:
        if ran:
            process.rests(worker, process.ran(worker, LOOK, run, late))
            worker.wait = worker.last = wait
        else:
            process.still(worker, LOOK)
        process.end_look(LOOK)
    span = process.span
    times, parked = process.take()

    assert all(seconds >= 0 for seconds in (*times.values(), parked))
    assert sum(times.values()) + parked >= span - 1e-9
    assert sum(times.values()) + parked <= span + sum(run + late for ran, run, late, _ in looks if ran) + 1e-9


def test_parked_time_of_a_client_is_for_mdss_by_their_latency_and_for_osds_by_looks_at_what_is_left() -> None:
    assert parked_shares(0.5, 0.2, 4, 2) == {"mds": pytest.approx(0.4), "osd": pytest.approx(0.3)}
    assert parked_shares(0.5, 3.0, 4, 4) == {"mds": 1.0, "osd": 0.0}
    assert parked_shares(0.5, 0.0, 0, 0) == {"mds": 0.0, "osd": 0.0}


def test_what_is_left_of_parked_time_is_idle() -> None:
    times = resolve({"cpu": 0.1}, 0.4, {"mds": 0.25, "osd": 0.5}, "idle")

    assert times == {"cpu": 0.1, "mds": pytest.approx(0.1), "osd": pytest.approx(0.2), "idle": pytest.approx(0.1)}


def test_waiting_for_a_fuse_mount_is_for_mdss_osds_or_the_client_itself() -> None:
    use = MountUse(waited=2.0, span=1.0, requests=0.6, data=1.0, workers=0.2, working=0.4, looks=2)

    assert fuse_shares(use) == {"mds": pytest.approx(0.3), "osd": pytest.approx(0.4), "client": pytest.approx(0.3)}


def test_writes_that_wait_for_the_dirty_limit_of_a_mount_wait_for_osds() -> None:
    use = MountUse(waited=2.0, span=1.0, data=0.1, blocked=1.5, workers=0.1, working=0.4)

    assert fuse_shares(use)["osd"] == pytest.approx(0.75)


def test_requests_of_others_on_the_same_mount_are_no_more_than_all_of_the_waiting() -> None:
    use = MountUse(waited=1.0, span=1.0, requests=5.0, data=5.0, working=0.4)

    assert fuse_shares(use) == {"mds": 1.0, "osd": 0.0, "client": 0.0}


@pytest.mark.parametrize(("active", "expected"), [(2, {"osd": 1.0}), (0, {"mds": 1.0})])
def test_a_mount_that_does_nothing_waits_for_a_daemon_that_is_stuck(active: int, expected: dict[str, float]) -> None:
    assert fuse_shares(MountUse(waited=2.0, span=2.0, looks=4, active=active, working=0.01)) == expected


def test_a_mount_that_is_frozen_itself_is_the_client_and_one_that_cannot_be_asked_is_blind() -> None:
    assert fuse_shares(MountUse(waited=2.0, span=2.0, stuck=True)) == {"client": 1.0}
    assert fuse_shares(MountUse(waited=2.0, span=2.0, blind=True)) == {"ceph": 1.0}


@given(*[st.floats(0, 10) for _ in range(6)], st.integers(0, 4))
def test_shares_of_a_mount_are_all_of_it(
    waited: float, requests: float, data: float, blocked: float, workers: float, working: float, active: int
) -> None:
    shares = fuse_shares(
        MountUse(
            waited=waited,
            span=2.0,
            requests=requests,
            data=data,
            blocked=blocked,
            looks=4,
            active=active,
            workers=workers,
            working=working,
        )
    )

    assert sum(shares.values()) == pytest.approx(1.0)
    assert all(share >= 0 for share in shares.values())


def test_dividing_a_class_leaves_the_others_alone() -> None:
    divided = divide({FUSE: 1.0, "mds": 0.5, "cpu": 0.2}, {"mds": 0.25, "client": 0.75})

    assert divided == {"mds": 0.75, "client": 0.75, "cpu": 0.2}


def test_a_process_that_idles_is_left_out_while_another_one_works() -> None:
    assert counting([0.1, 0.9, 0.79]) == [True, False, True]
    assert counting([0.95, 0.9]) == [True, True]
    assert counting([]) == []


def test_a_process_idles_by_its_last_blocks() -> None:
    history = History()
    for _ in range(4):
        history.add({"disk": 0.5})
    assert history.idle == 0
    for _ in range(4):
        history.add({"idle": 0.4, "cpu": 0.1})
    assert history.idle == pytest.approx(0.8)


def test_locks_between_processes_are_shared_out_over_what_the_others_do() -> None:
    shared = share_out_locks({"lock": 3.0, "mds": 0.6, "cpu": 0.4, "idle": 1.0}, 1.0)

    assert shared == {"lock": 0.0, "mds": pytest.approx(2.4), "cpu": pytest.approx(1.6), "idle": 1.0}


def test_a_lock_that_nobody_of_the_workload_can_hold_stays_a_lock() -> None:
    assert share_out_locks({"lock": 2.0, "idle": 1.0}, 1.0) == {"lock": 2.0, "idle": 1.0}
    # A process that works for a hundredth of the time does not hold the lock for all of it.
    assert share_out_locks({"lock": 2.0, "cpu": 0.01}, 1.0)["lock"] == pytest.approx(1.98)


@given(st.dictionaries(st.sampled_from(["lock", "cpu", "mds", "idle"]), st.floats(0, 100)), st.floats(0, 10))
def test_sharing_out_locks_neither_makes_nor_loses_time(times: dict[str, float], span: float) -> None:
    shared = share_out_locks(times, span)

    assert sum(shared.values()) == pytest.approx(sum(times.values()))
    assert all(seconds >= -1e-9 for seconds in shared.values())
