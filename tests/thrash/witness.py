"""Looks once a second at everything that must hold, while a plan is carried out."""

from __future__ import annotations

import os
import re
import threading
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from xmlrpc.client import Error as RpcError

import psutil

from pinchpoint.metrics import PROBE_SUCCESS
from thrash import invariants
from thrash.consequences import NO_ANSWER, Use, allowed, restarted, short, silencing
from thrash.faults import Ground
from thrash.invariants import Exposition, Series, Size
from thrash.plan import CALM_SECONDS, Fault, active

__all__ = ["Witness"]

UNANSWERED = (OSError, HTTPException)
"""What urllib raises where there is no whole answer."""
PERIOD_SECONDS = 1.0
KEPT = 90
"""Most expositions that are compared."""


def use(now: float) -> Use:
    """Return what everybody has used of this machine so far."""
    times = psutil.cpu_times()
    total = sum(times[:8])  # the others are parts of these
    disks = {name: one.busy_time / 1e3 for name, one in psutil.disk_io_counters(perdisk=True).items()}
    return Use(now, total - times.idle - times.iowait, total, disks)


class Witness:
    """Collects violations; as a context manager, it looks until the block ends."""

    def __init__(
        self, ground: Ground, faults: Sequence[Fault], runs: Sequence[str], seconds: float, logs: Sequence[Path]
    ) -> None:
        """Begin; the loads of these runs end by themselves after `seconds`."""
        self.began = time.monotonic()
        self.violations: list[str] = []
        self.history: deque[Exposition] = deque(maxlen=KEPT)
        """Expositions of the present process of the exporter."""
        self.expected: set[str] = set()
        """Probes that succeeded while nothing was wrong."""
        self.said: Counter[tuple[str, str]] = Counter()
        """How often the judge named what, by name and confidence."""
        self.evidence: dict[str, str] = {}
        """Texts by file name that show what was wrong."""
        self.scrapes = self.failed = 0
        self._ground, self._faults, self._runs, self._seconds, self._logs = ground, faults, runs, seconds, logs
        self._read = {log: log.stat().st_size if log.exists() else 0 for log in logs}
        self._uses: deque[Use] = deque()
        self._told: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="witness")

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.read_logs()

    def blame(self, violation: str) -> None:
        """Note a violation, each with the same words once."""
        words = re.sub(r"\d+(\.\d+)?", "#", violation)
        if words not in self._told:
            self._told.add(words)
            self.violations.append(f"{time.monotonic() - self.began:6.1f} s: {violation}")

    def read_logs(self) -> None:
        """Read what the logs have got since the last time."""
        for log in self._logs:
            if log.exists():
                with log.open("rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    file.seek(self._read.get(log, 0) if size >= self._read.get(log, 0) else 0)
                    lines = file.read().decode(errors="replace").splitlines()
                    self._read[log] = file.tell()
                for violation in invariants.complaints(log.name, lines):
                    self.blame(violation)
        for core in self._ground.stack.state.glob("core*"):
            self.blame(f"there is a core file: {core.name}")

    def well(self) -> set[str]:
        """Return the probes that succeed in the last exposition of the present process, none if there is none yet."""
        if not self.history:
            return set()
        return {probe for probe, success in self.history[-1].by_probe(PROBE_SUCCESS.name).items() if success}

    def _watch(self) -> None:
        while not self._ended.wait(PERIOD_SECONDS):
            try:
                self._look()
            except Exception as error:
                self.blame(f"the thrasher itself failed: {type(error).__name__}: {error}")
                raise

    def _look(self) -> None:
        self._uses.append(use(time.monotonic()))
        while self._uses[-1].time - self._uses[0].time > CALM_SECONDS:
            self._uses.popleft()
        sizes = self._sizes()
        for name, (_, size) in sizes.items():
            for violation in invariants.oversized(name, size):
                self.blame(violation)
        if "pinchpoint" in sizes:
            self._exporter(sizes["pinchpoint"][0])
        self._judge()
        self.read_logs()

    def _sizes(self) -> dict[str, tuple[tuple[int, float], Size]]:
        """Return the identities and the sizes of the exporter and of the judge, as far as they run."""
        found = {}
        try:
            pids = self._ground.stack.pids()
        except (OSError, RpcError):
            return {}
        for name in ("pinchpoint", "judge"):
            try:
                process = psutil.Process(pids[name])
                with process.oneshot():
                    size = Size(process.memory_info().rss / 1e6, process.num_fds(), process.num_threads())
                    found[name] = (process.pid, process.create_time()), size
            except (KeyError, psutil.Error):
                pass  # it is being started again
        return found

    def _exporter(self, process: tuple[int, float]) -> None:
        began = time.monotonic()
        values = self._scrape("pinchpoint")
        if values is None:
            return
        after = self._sizes().get("pinchpoint")
        if after is None or after[0] != process:
            return
        new = Exposition(began, time.monotonic(), process, values)
        if self.history and self.history[-1].process != process:
            self.history.clear()
        lately = self._now(began)
        cluster = self._ground.cluster.fsid
        found = [*invariants.fallen(self.history[-1], new, restarted(lately), cluster)] if self.history else []
        self.history.append(new)
        history = list(self.history)
        if not self._now(new.ended):
            self.expected |= self.well()
        for violation in [*found, *invariants.standing(history), *invariants.uncounted(history)]:
            self.blame(violation)

    def _judge(self) -> None:
        values = self._scrape("judge")
        if values is None:
            return
        now = time.monotonic()
        everything = invariants.limits(values, self._ground.cluster.fsid)
        found = [limit for limit in everything if limit.run.endswith(tuple(self._runs))]
        self.said.update((limit.name, limit.confidence) for limit in found)
        explained = allowed(self._now(now)) | short(list(self._uses))
        if now - self.began > self._seconds:
            # fio was seen to close its image for 15 s, with four requests in flight that nobody answered.
            explained.add(NO_ANSWER)
        for violation in invariants.wrong(found, explained):
            self.blame(violation)
            with suppress(*UNANSWERED):
                self.evidence[f"verdicts-{now - self.began:.0f}.json"] = self._get("judge", "/api/v1/verdicts")
                self.evidence[f"exporter-{now - self.began:.0f}.txt"] = self._get("pinchpoint", "/metrics")

    def _scrape(self, part: str) -> Mapping[Series, float] | None:
        """Return the series of a part, None if it does not answer."""
        began = time.monotonic()
        self.scrapes += 1
        error = ""
        text = ""
        try:
            text = self._get(part, "/metrics")
        except UNANSWERED as problem:
            error = str(problem)
            self.failed += 1
        for violation in invariants.slow(time.monotonic() - began):
            self.blame(f"{part}: {violation}")
        if error and not silencing([*self._now(began), *self._now(time.monotonic())], part):
            self.blame(f"{part} does not answer: {error}")
        try:
            return None if error else invariants.parse(text)
        except ValueError as problem:
            self.blame(f"{part} answers what Prometheus cannot read: {problem}")
            return None

    def _get(self, part: str, path: str) -> str:
        with urllib.request.urlopen(self._ground.stack.urls[part] + path, timeout=invariants.SCRAPE_SECONDS) as answer:
            return str(answer.read().decode())

    def _now(self, moment: float) -> list[Fault]:
        return active(self._faults, moment - self.began)
