from __future__ import annotations

from itertools import combinations

from thrash.plan import BEFORE_SECONDS, CALM_SECONDS, CHOICES, Fault, Kind, active, plan

SECONDS = 60.0
SEEDS = range(1, 101)


def test_a_seed_always_makes_the_same_faults_and_another_one_others() -> None:
    assert plan(7, SECONDS) == plan(7, SECONDS)
    assert len({tuple(plan(seed, SECONDS)) for seed in SEEDS}) == len(SEEDS)


def test_the_faults_of_a_seed_are_these() -> None:
    assert [str(fault).strip() for fault in plan(1, 45.0)] == [
        "8.0 to   12.6 s: slow admin socket osd.1 0.2",
        "11.2 to   21.1 s: no more memory judge 8",
        "12.2 to   20.3 s: freeze daemon osd.0",
        "18.0 to   20.3 s: fork storm host 1",
        "21.5 to   30.0 s: no more threads pinchpoint",
        "24.9 to   30.0 s: no more memory judge 1",
    ]


def test_faults_leave_time_before_and_after() -> None:
    faults = [fault for seed in SEEDS for fault in plan(seed, SECONDS)]

    assert min(fault.begin for fault in faults) == BEFORE_SECONDS
    assert max(fault.end for fault in faults) <= SECONDS - CALM_SECONDS
    assert all(fault.begin < fault.end for fault in faults)


def test_two_faults_never_hit_one_target_at_once() -> None:
    for seed in SEEDS:
        for first, second in combinations(plan(seed, SECONDS), 2):
            assert first.target != second.target or first.end < second.begin


def test_the_seeds_before_a_release_make_every_kind_of_fault_on_every_target() -> None:
    faults = [fault for seed in range(500) for fault in plan(seed, SECONDS)]
    seen = {(fault.kind, fault.target, fault.level) for fault in faults}

    wanted = {(kind, target, level) for kind, one in CHOICES.items() for target in one.targets for level in one.levels}
    assert seen == wanted
    assert CHOICES.keys() == set(Kind)


def test_a_fault_is_active_until_its_consequences_are_over() -> None:
    fault = Fault(Kind.HOGS, "host", 10.0, 20.0)

    assert [now for now in (9.0, 10.0, 34.0, 36.0) if active([fault], now)] == [10.0, 34.0]
    assert not active([fault], 21.0, after=0.5)
