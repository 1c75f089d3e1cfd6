"""The hosts that are asked for their series, each source in a thread of its own, so that none holds up another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Event, Lock, Thread

from pinchpoint.model import Snapshot, Snapshots
from pinchpoint.wire.sources import Source, SourceError

__all__ = ["Hosts", "Problem"]

SLOWEST = 30.0
"""Seconds between two questions to a source that gives no answers, at most."""
OWN = "pinchpoint_"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a host, or a source, is not seen."""

    reason: str
    since: float
    """Unix seconds."""


class Hosts:
    """The hosts of all sources."""

    def __init__(self, interval: float) -> None:
        """Begin; each source is asked every `interval` seconds."""
        self._interval = interval
        self._asked: dict[str, _Asked] = {}

    def set(self, sources: Mapping[str, Callable[[], Source]]) -> None:
        """Ask these sources from now on, by a name for each, and no others."""
        for name in self._asked.keys() - sources.keys():
            self._asked.pop(name).stop()
        for name in sources.keys() - self._asked.keys():
            self._asked[name] = _Asked(sources[name](), self._interval)

    def collect(self) -> dict[str, Snapshot]:
        """Return the hosts that have answered since the last time, with their newest series."""
        return {host: snapshot for asked in self._asked.values() for host, snapshot in asked.collect().items()}

    def problems(self) -> dict[str, Problem]:
        """Return why hosts or sources are not seen, by name."""
        return {name: problem for asked in self._asked.values() for name, problem in asked.problems().items()}

    def stop(self) -> None:
        """End all threads that are not in a question, and release the sources."""
        for asked in self._asked.values():
            asked.stop()


@dataclass(slots=True)
class _State:
    fresh: dict[str, Snapshot] = field(default_factory=dict)
    problems: dict[str, Problem] = field(default_factory=dict)


class _Asked:
    """A source and the thread that asks it."""

    def __init__(self, source: Source, interval: float) -> None:
        self._source = source
        self._interval = interval
        self._lock = Lock()
        self._state = _State()
        self._known: set[str] = set()
        self._stop = Event()
        self._began: float | None = None
        Thread(target=self._run, name="source", daemon=True).start()

    def collect(self) -> Snapshots:
        with self._lock:
            fresh, self._state.fresh = self._state.fresh, {}
        return fresh

    def problems(self) -> dict[str, Problem]:
        with self._lock:
            problems, began = dict(self._state.problems), self._began
        if not problems and began is not None and time.time() - began > self._interval + SLOWEST / 3:
            # Look-ups of names have no time limit.
            problems = dict.fromkeys(self._known or {self._source.name}, Problem("no answer", began))
        return problems

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        pause, due = self._interval, time.monotonic()
        while not self._stop.is_set():
            with self._lock:
                self._began = time.time()
            if self._ask():
                pause = self._interval
                due = max(due + pause, time.monotonic())
            else:
                due = time.monotonic() + pause
                pause = min(2 * pause, SLOWEST)
            with self._lock:
                self._began = None
            self._stop.wait(due - time.monotonic())
        self._source.close()

    def _ask(self) -> bool:
        """Ask once, and return whether there was an answer."""
        try:
            found = self._source.snapshots()
        except SourceError as error:
            self._fail(self._known or {self._source.name}, error.reason)
            return False
        except Exception as error:  # whatever a foreign server makes a parser do, the others are judged
            reason = f"not an exposition of metrics: {type(error).__name__}: {error}"
            self._fail(self._known or {self._source.name}, reason)
            return False
        problems = dict(self._source.problems)
        for host, snapshot in found.items():
            if not any(name.startswith(OWN) for name in snapshot.values):
                problems[host] = "answers, but has no metrics of Pinchpoint: is this its exporter?"
        for host in self._known - found.keys() - problems.keys():
            problems[host] = "no samples"
        self._known |= found.keys()
        with self._lock:
            self._state.fresh.update((host, found[host]) for host in found.keys() - problems.keys())
        self._set(problems)
        return True

    def _fail(self, hosts: Iterable[str], reason: str) -> None:
        self._set(dict.fromkeys(hosts, reason))

    def _set(self, reasons: Mapping[str, str]) -> None:
        with self._lock:
            old = self._state.problems
            self._state.problems = {
                host: Problem(reason, old[host].since if host in old else time.time())
                for host, reason in reasons.items()
            }
