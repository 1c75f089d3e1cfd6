from __future__ import annotations

import threading

from patience import patience
from pinchpoint.activity import ASKED_SECONDS, HOLD_SECONDS, MIN_LOAD_SHARE, Activity, Load
from pinchpoint.resources import Resource


def test_a_host_rests_until_something_happens_and_again_a_while_after() -> None:
    activity = Activity()
    assert activity.rests(100.0)

    activity.note(100.0)
    activity.note(101.0)

    assert not activity.rests(101.0 + HOLD_SECONDS - 0.1)
    assert activity.rests(101.0 + HOLD_SECONDS)


def test_a_short_sign_does_not_end_what_somebody_asked_for() -> None:
    activity = Activity()
    activity.note(100.0, ASKED_SECONDS)
    activity.note(101.0)

    assert not activity.rests(100.0 + ASKED_SECONDS - 0.1)


def test_that_somebody_asks_is_a_sign_and_known_as_long_as_it_was_asked_for() -> None:
    activity = Activity()
    activity.note(100.0)
    assert not activity.asked(100.0)

    activity.ask(100.0, ASKED_SECONDS)
    activity.ask(101.0, 1.0)

    assert not activity.rests(100.0 + ASKED_SECONDS - 0.1)
    assert activity.asked(100.0 + ASKED_SECONDS - 0.1)
    assert not activity.asked(100.0 + ASKED_SECONDS)


def test_a_sign_wakes_who_waits() -> None:
    activity = Activity()
    waits, woken = threading.Event(), threading.Event()

    def unless() -> bool:
        waits.set()  # the condition is held: the sign comes after the wait has begun
        return False

    def wait() -> None:
        activity.wait(patience(60), unless)
        woken.set()

    threading.Thread(target=wait, daemon=True).start()
    assert waits.wait(patience(10))
    activity.note(100.0)

    assert woken.wait(patience(10))


def test_who_has_something_to_do_does_not_wait() -> None:
    Activity().wait(float("1e9"), lambda: True)


def busy(share: float, seconds: float) -> Activity:
    """Return the activity of a host with a resource that was busy for a `share` of some seconds, sampled at 10 Hz."""
    activity, resource = Activity(), Resource("disk", "sda", ("disk",), 0.9)
    load = Load(activity)
    for tick in range(round(seconds * 10) + 1):
        load.look(100.0 + tick / 10, [resource])
        resource.add(0.1, 0.1 * share)
    return activity


def test_a_busy_resource_is_a_sign() -> None:
    assert not busy(MIN_LOAD_SHARE * 1.5, 3.0).rests(103.0)
    assert busy(MIN_LOAD_SHARE / 2, 3.0).rests(103.0)


def test_one_write_in_a_second_is_none() -> None:
    activity, disk = Activity(), Resource("disk", "sda", ("disk",), 0.9)
    load = Load(activity)
    for tick in range(40):
        load.look(100.0 + tick / 10, [disk])
        disk.add(0.1, 0.05 if tick % 10 == 0 else 0.0)

    assert activity.rests(104.0)


def test_what_a_resource_did_before_it_was_first_seen_is_none() -> None:
    activity, disk = Activity(), Resource("disk", "sda", ("disk",), 0.9)
    disk.add(1e6, 1e6)
    load = Load(activity)
    load.look(100.0, [])
    load.look(101.0, [disk])
    load.look(102.0, [disk])

    assert activity.rests(102.0)
