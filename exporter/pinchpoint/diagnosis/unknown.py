"""Hot threads without a role: what they serve is unknown, so they are reported, never blamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pinchpoint.diagnosis.blame import FULL_SAMPLES_SHARE
from pinchpoint.diagnosis.usage import UnknownThread, Usage

__all__ = ["full", "hot", "hot_threads", "sentences", "short"]

MIN_HOT_SHARE = 0.5
"""Busy share of the named thread from which it is reported."""
MIN_FULL_SHARE = 0.05
"""Share of full time below which it is not worth mentioning."""
MAX_NAMED_THREADS = 3


def full(found: UnknownThread) -> bool:
    """Return whether a thread without a role was full for long enough to make a resource full."""
    return found.saturated >= FULL_SAMPLES_SHARE


def hot(found: UnknownThread) -> bool:
    """Return whether it is worth reporting."""
    return found.busy >= MIN_HOT_SHARE or full(found)


def hot_threads(hosts: Mapping[str, Usage]) -> dict[str, UnknownThread]:
    """Return the thread of each host that is worth reporting, hottest first."""
    found = {name: use.unknown for name, use in hosts.items() if use.unknown is not None and hot(use.unknown)}
    return dict(sorted(found.items(), key=lambda item: (-item[1].saturated, -item[1].busy, item[0])))


def short(found: UnknownThread) -> str:
    """Return the thread and how busy it was: ``no role: `my_thread` of `foo` at 100%``."""
    return f"no role: {_name(found)} at {found.busy:.0%}"


def sentences(found: Mapping[str, UnknownThread], *, limited: bool) -> Iterator[str]:
    """Yield a sentence on each thread, by host; `limited` says that a limit is known."""
    for host, thread in list(found.items())[:MAX_NAMED_THREADS]:
        words = f"{_name(thread)} on {host} at {thread.busy:.0%}"
        if thread.saturated >= MIN_FULL_SHARE:
            words += f"; a thread without a role was full for {thread.saturated:.0%} of the time"
        if full(thread) and not limited:
            words += ": nothing that has a role is the limit, so this may be; find out whom it serves, and add a role"
        yield words


def _name(found: UnknownThread) -> str:
    return f"`{found.thread}` of `{found.process}`"
