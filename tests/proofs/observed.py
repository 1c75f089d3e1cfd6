"""Runs a load as a user would, beside an exporter, and returns the verdict on it."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from patience import patience
from pinchpoint.diagnosis.recent import Recent, RecentVerdicts
from pinchpoint.diagnosis.verdict import Verdict, verdict
from pinchpoint.metrics import EXPORTER
from pinchpoint.model import Snapshots
from pinchpoint.wire.recording import Recorder, read_recording
from pinchpoint.wire.sources import SourceError, TargetSource
from polling import until
from ports import free_port
from truth import Truth

__all__ = ["SETTLE", "Observed", "Watch", "watching"]

SETTLE = 2.0
"""Seconds at the start of a load that are left out: it is still starting, and its threads are being found."""
TAIL = 0.5
"""Seconds at its end that are left out."""
PATIENCE = 60.0
KINDS = {metric.name: (metric.kind.value, metric.help) for metric in EXPORTER}


@dataclass(frozen=True)
class Observed:
    """A load that was run, its recording, and the verdict on all but its ends."""

    run: str
    moments: Sequence[Snapshots]
    span: tuple[int, int]
    """First and last judged moment."""

    @functools.cached_property
    def verdict(self) -> Verdict:
        """The verdict."""
        first, last = self.span
        return verdict(self.moments[first], self.moments[last], run=self.run)

    def first_right(self, truth: Truth) -> float | None:
        """Return the seconds until `watch` would show the right verdict, from when it is the truth."""
        hosts: dict[str, Recent] = {}
        recent = RecentVerdicts()
        for moment in self.moments:
            for name, snapshot in moment.items():
                hosts.setdefault(name, Recent()).add(snapshot)
            said = recent.take(_time(moment), hosts)
            if any(judged.run == self.run and truth.fits(judged.verdict) for judged in said):
                return max(0.0, _time(moment) - _time(self.moments[0]) - truth.since)
        return None

    def story(self) -> str:
        """Return all that is known, for the reader of a failure."""
        found = self.verdict
        waits = ", ".join(f"{wait} {share:.0%}" for wait, share in found.waits.items())
        ranking = [
            f"  {limit.resource} {limit.owner} on {limit.host}: blame {limit.blame:.2f}, busy {limit.busy:.2f}"
            f" (run queue {limit.runqueue:.2f}, blocked {limit.blocked:.2f}), in {limit.saturated:.2f} of the samples"
            f"{', FULL' if limit.full else ''}"
            for limit in found.ranking[:8]
        ]
        return "\n".join(
            [
                f"{found.kind} ({found.words}) {found.margin}; waits: {waits}",
                *ranking,
                *found.evidence,
                *found.ranks,
                *(f"cleared: {line}" for line in found.innocent),
                *(f"blind: {line}" for line in found.blind),
                *(f"latency: {line}" for line in found.latency),
                *(f"doubt: {line}" for line in found.doubts),
            ]
        )

    def keep(self, directory: Path, name: str, truth: Truth) -> None:
        """Keep what was judged, with the truth about it, as a fixture: see tests/fixtures/faults."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{name}.om.gz").unlink(missing_ok=True)
        recorder = Recorder(directory / f"{name}.om.gz")
        first, last = self.span
        for moment in (self.moments[first], self.moments[last]):
            recorder.add(moment, KINDS)
        recorder.close()
        facts = {"run": self.run, **dataclasses.asdict(truth)}
        (directory / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")


@dataclass
class Watch:
    """An exporter of this host, and the runs beside it."""

    port: int
    directory: Path
    host: str = "127.0.0.1"
    others: Sequence[str] = ()
    """Addresses of the exporters of other hosts."""
    environment: Mapping[str, str] = field(default_factory=dict)
    _number: int = 0

    def shows(self, metric: str, **labels: str) -> bool:
        """Return whether the exporter has a series with these labels."""
        values = TargetSource(self.address).snapshot().values.get(metric, {})
        return any(labels.items() <= dict(found).items() for found in values)

    @property
    def address(self) -> str:
        """Where the exporter listens."""
        return f"{self.host}:{self.port}"

    def judge(
        self, command: Sequence[str], *, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
    ) -> Observed:
        """Run a command that ends by itself under ``pinchpoint run`` and return what was seen of it.

        `prefix` starts ``pinchpoint run`` (to enter a cgroup, a namespace).
        """
        self._number += 1
        name = f"scenario-{self._number}"
        env = {**os.environ, **self.environment, **(environment or {}), "XDG_STATE_HOME": str(self.directory)}
        run = [sys.executable, "-m", "pinchpoint", "run", "--quiet", "--name", name]
        run += [
            "--path.runs",
            str(self.directory / "markers"),
            "--target",
            ",".join((self.address, *self.others)),
            "--",
            *command,
        ]
        done = subprocess.run(
            [*prefix, *run], env=env, capture_output=True, text=True, timeout=patience(PATIENCE), check=False
        )
        kept = next(iter((self.directory / "pinchpoint" / "runs").glob(f"*-{name}")), None)
        assert kept is not None, done.stderr
        moments = list(read_recording(kept / "samples.om.gz"))
        assert done.returncode >= 0, done.stderr
        return Observed(kept.name, moments, _middle(moments))


def _time(moment: Snapshots) -> float:
    return max(snapshot.time for snapshot in moment.values())


def _middle(moments: Sequence[Snapshots]) -> tuple[int, int]:
    times = [_time(moment) for moment in moments]
    begin = next(index for index, time in enumerate(times) if time - times[0] >= SETTLE)
    end = next(index for index in reversed(range(len(times))) if times[-1] - times[index] >= TAIL)
    assert end > begin, f"the load lasted for {times[-1] - times[0]:.1f} s only"
    return begin, end


@contextmanager
def watching(
    directory: Path, *arguments: str, prefix: Sequence[str] = (), host: str = "127.0.0.1", others: Sequence[str] = ()
) -> Iterator[Watch]:
    """Run an exporter as a separate process, with the priority that it asks for; `prefix` starts it elsewhere."""
    watch = Watch(free_port(), directory, host, others)
    command = [*prefix, sys.executable, "-m", "pinchpoint", "exporter", "--web.listen-address", watch.address]
    log = directory / "exporter.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--path.runs", str(directory / "markers"), *arguments], stdout=output, stderr=output
        )
    try:
        assert until(30, lambda: _answers(watch.address)), log.read_text()
        yield watch
    finally:
        process.terminate()
        process.wait(10)


def _answers(address: str) -> bool:
    try:
        return bool(TargetSource(address).snapshots())
    except SourceError:
        return False
