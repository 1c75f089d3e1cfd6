"""Queries sources, each in a thread of its own, so that one that hangs does not delay the others.

`Poller` queries one source, periodically or on demand; `Together` makes one source of several.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Condition, Thread

import msgspec

from pinchpoint.clock import STEADY
from pinchpoint.model import Snapshot, Snapshots
from pinchpoint.wire.sources import OWN, Source, SourceError, known_hosts

__all__ = ["Poller", "Problem", "Together"]

POLL_TIMEOUT_SECONDS = 1.0
"""Seconds that several sources together have for their answers."""


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with a host or a source."""

    reason: str
    since: float
    """Unix seconds by `pinchpoint.clock`."""
    unseen: bool = True
    """Whether a host or a source is not seen because of it."""


class Poller:
    """A source and the thread that queries it: every `interval` seconds, or else when `ask` is called.

    A source that fails is queried less and less often, down to once in `slowest` seconds. Hosts without a series of
    Pinchpoint are a problem, unless there may be `others`, such as Ceph's managers. `ring` is called after each query.
    `changed` guards the state and signals its changes; several pollers may share one.
    """

    def __init__(
        self,
        source: Source,
        interval: float = math.inf,
        *,
        slowest: float = 0.0,
        others: bool = False,
        changed: Condition | None = None,
        ring: Callable[[], None] = lambda: None,
    ) -> None:
        self.source = source
        self.under_way = False
        """Whether a query is in progress."""
        self.since = 0.0
        """When it was last queried, in monotonic seconds."""
        self.took = 0.0
        """Duration of the last query in seconds."""
        self.rounds = 0
        """Number of queries that have ended."""
        self.failure: Problem | None = None
        """Why the whole source did not answer the last query."""
        self.interval = interval
        """Seconds between two queries; may be changed."""
        self._slowest = max(interval, slowest)
        self._others = others
        self._due = math.inf if interval == math.inf else time.monotonic()
        self._fresh: dict[str, Snapshot] = {}
        self._missing: dict[str, Problem] = {}
        self._known: dict[str, float] = {}
        """When each host was last found, in monotonic seconds."""
        self._closed = False
        self._changed = changed or Condition()
        self._ring = ring
        Thread(target=self._run, name="source", daemon=True).start()

    def ask(self) -> None:
        """Query the source now, unless a query is in progress."""
        with self._changed:
            if not self.under_way:
                self.under_way, self.since = True, time.monotonic()
                self._changed.notify_all()

    def collect(self) -> Snapshots:
        """Return the hosts that have answered since the last time, with their newest series."""
        with self._changed:
            fresh, self._fresh = self._fresh, {}
        return fresh

    @property
    def missing(self) -> Mapping[str, Problem]:
        """Why hosts are missing from the last answer."""
        with self._changed:
            return self._missing

    def problems(self, patience: float) -> Mapping[str, Problem]:
        """Return why hosts are not seen; all hosts of a source that fails, or has not answered for so many seconds.

        Name lookups have no time limit, so a source's own timeout is not a bound.
        """
        with self._changed:
            failure, waited = self.failure, self.waited
        if failure is None and waited > patience:
            failure = Problem("no answer", STEADY.now() - waited)
        if failure is None:
            return self.missing
        return dict.fromkeys(self._known or [self.source.name], failure)

    @property
    def waited(self) -> float:
        """Seconds since the current query began; 0 without one."""
        return time.monotonic() - self.since if self.under_way else 0.0

    def close(self) -> None:
        """End the thread and release the source once its query returns."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        pause = self.interval
        while self._wait():
            found, reason = self._answer()
            now = time.monotonic()
            with self._changed:
                self._take(found, reason)
                self.took, self.under_way = now - self.since, False
                self.rounds += 1
                if not reason:
                    pause = self.interval
                    self._due = max(self._due + pause, now)
                else:
                    self._due = now + pause
                    pause = min(2 * pause, self._slowest)
                self._changed.notify_all()
            self._ring()
        self.source.close()

    def _wait(self) -> bool:
        """Wait until the next query is due; return False at the end."""
        with self._changed:
            while not self._closed and not self.under_way:
                left = self._due - time.monotonic()
                if left <= 0:
                    self.under_way, self.since = True, time.monotonic()
                else:
                    self._changed.wait(None if left == math.inf else left)
            return not self._closed

    def _answer(self) -> tuple[Snapshots, str]:
        """Return what the source says, or why it says nothing."""
        try:
            return self.source.snapshots(), ""
        except SourceError as error:
            return {}, error.reason
        except Exception as error:  # whatever an untrusted server does to a parser, the others continue
            return {}, f"not an exposition of metrics: {type(error).__name__}: {error}"

    def _take(self, found: Snapshots, reason: str) -> None:
        now = STEADY.now()
        if reason:
            self.failure = Problem(reason, self.failure.since if self.failure else now)
            return
        reasons = dict(self.source.problems)
        for host, snapshot in found.items():
            if not self._others and not any(name.startswith(OWN) for name in snapshot.values):
                reasons[host] = "answers, but has no metrics of Pinchpoint: is this its exporter?"
        self._known = known_hosts(self._known, found, time.monotonic())
        for host in self._known.keys() - found.keys() - reasons.keys():
            reasons[host] = "no samples"
        old, self.failure = self._missing, None
        self._missing = {host: Problem(why, old[host].since if host in old else now) for host, why in reasons.items()}
        self._fresh.update((host, snapshot) for host, snapshot in found.items() if host not in reasons)


class Together:
    """Several sources as one; all are queried at the same time.

    A source that hangs delays one answer, by `patience` seconds; then it is not waited for until it recovers.
    """

    def __init__(self, sources: Iterable[Source], patience: float = POLL_TIMEOUT_SECONDS) -> None:
        self.problems: Mapping[str, str] = {}
        self._patience = patience
        self._changed = Condition()
        self._pollers: Sequence[Poller] = [Poller(source, others=True, changed=self._changed) for source in sources]
        self.name = ", ".join(poller.source.name for poller in self._pollers)

    def snapshots(self) -> Snapshots:
        """Return all hosts that answer in time. Raises SourceError if none does."""
        found: dict[str, Snapshot] = {}
        problems: dict[str, str] = {}
        deadline = time.monotonic() + self._patience
        with self._changed:
            for poller in self._pollers:
                poller.ask()
            while any(map(self._is_awaited, self._pollers)) and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            for poller in self._pollers:
                if fresh := poller.collect():
                    found |= fresh
                elif poller.under_way:
                    problems[poller.source.name] = f"no answer for {poller.waited:.1f} s"
                elif poller.failure is not None:
                    problems[poller.source.name] = poller.failure.reason
                problems |= {host: problem.reason for host, problem in poller.missing.items() if host not in found}
        self.problems = problems
        if not found:
            raise SourceError(*next(iter(problems.items()), (self.name, "has no hosts")))
        return found

    def _is_awaited(self, poller: Poller) -> bool:
        """Return whether a query is in progress that has not delayed an answer yet."""
        prompt = poller.failure is None and poller.took <= self._patience
        return poller.under_way and prompt and poller.waited < self._patience

    def close(self) -> None:
        """Release all sources."""
        for poller in self._pollers:
            poller.close()
