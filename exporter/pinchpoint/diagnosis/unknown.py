"""Hot threads without a role: what they serve is unknown, so they are reported, and blamed only by who wakes whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pinchpoint.diagnosis.blame import FULL_SAMPLES_SHARE
from pinchpoint.diagnosis.usage import UnknownThread, Usage

__all__ = ["HotThread", "full", "hot", "hot_threads", "sentences", "short"]

MIN_HOT_SHARE = 0.5
"""Busy share of the named thread from which it is reported."""
MIN_FULL_SHARE = 0.05
"""Share of full time below which it is not worth mentioning."""
MAX_NAMED_THREADS = 3


class HotThread(NamedTuple):
    """A hot thread without a role, and its host."""

    host: str
    thread: UnknownThread


def full(found: UnknownThread) -> bool:
    """Return whether a thread without a role was full for long enough to make a resource full."""
    return found.saturated >= FULL_SAMPLES_SHARE


def hot(found: UnknownThread) -> bool:
    """Return whether it is worth reporting."""
    return found.busy >= MIN_HOT_SHARE or full(found)


def hot_threads(hosts: Mapping[str, Usage]) -> list[HotThread]:
    """Return the threads that are worth reporting, hottest first."""
    found = [HotThread(name, thread) for name, use in hosts.items() for thread in use.unknown if hot(thread)]
    return sorted(found, key=lambda one: (-one.thread.saturated, -one.thread.busy, one.host))


def short(found: UnknownThread) -> str:
    """Return the thread and how busy it was: ``no role: `my_thread` of `foo` at 100%``."""
    return f"no role: {_name(found)} at {found.busy:.0%}"


def sentences(found: Sequence[HotThread], *, limited: bool) -> Iterator[str]:
    """Yield a sentence on each thread; `limited` says that a limit is known."""
    for host, thread in found[:MAX_NAMED_THREADS]:
        words = f"{_name(thread)} on {host} at {thread.busy:.0%}"
        if thread.saturated >= MIN_FULL_SHARE:
            words += f"; a thread without a role was full for {thread.saturated:.0%} of the time"
        if full(thread) and not limited:
            words += ": nothing that has a role is the limit, so this may be; find out whom it serves, and add a role"
        yield words


def _name(found: UnknownThread) -> str:
    return f"`{found.thread}` of `{found.process}`"
