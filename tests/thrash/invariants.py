"""What must hold at all times, whatever fault there is: pure functions that return violations in words."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from pinchpoint.metrics import (
    PROBE_INTERVAL_SECONDS,
    SAMPLER_LOST_SAMPLES,
    SAMPLER_SAMPLES,
    VERDICT_INFO,
)

__all__ = [
    "SCRAPE_SECONDS",
    "Exposition",
    "Limit",
    "Series",
    "Size",
    "complaints",
    "fallen",
    "limits",
    "oversized",
    "own",
    "parse",
    "slow",
    "standing",
    "uncounted",
    "wrong",
]

Series = tuple[str, tuple[tuple[str, str], ...]]
"""Name and sorted labels."""
SCRAPE_SECONDS = 10.0
"""Timeout of a scrape."""
LATE_SECONDS = 5.0
"""Time after its timeout in which a scrape must have failed: the one who asks needs a CPU too."""
PATIENCE_SECONDS = 10.0
"""Time after which samples must have come, or must have been counted as lost. While other programs fill the CPUs, a
thread without a priority waits for seconds."""
GAP_SECONDS = 2.0
"""Most that the time between two expositions counts for: an exporter that is frozen takes no samples."""
TICKS = 3
"""Samples by which the count may be off: one is in progress, and both moments are known to the length of a scrape."""
LARGEST = {"memory": 150.0, "descriptors": 2048.0, "threads": 128.0}
"""Limits of a process: MB, numbers. An exporter beside a small cluster has 45 MB, 150 descriptors and 20 threads."""
CRASH = re.compile(r"Traceback \(most recent call last\)|Fatal Python error|terminated by SIG(SEGV|ABRT|BUS|ILL|FPE)")
NAMING = {"resource", "several", "stuck"}
"""Kinds of verdict that name a limit."""


@dataclass(frozen=True)
class Exposition:
    """One answer of the exporter."""

    began: float
    ended: float
    """When it was asked, and when the answer was there, in monotonic seconds."""
    process: tuple[int, float]
    """PID and start of the exporter."""
    values: Mapping[Series, float]

    def by_probe(self, name: str) -> dict[str, float]:
        """Return the values of a metric by their label ``probe``."""
        return {dict(labels)["probe"]: value for (found, labels), value in self.values.items() if found == name}


class Limit(NamedTuple):
    """One limit in the judge's verdict on a run, or a verdict that names none."""

    run: str
    kind: str
    name: str
    """RESOURCE OWNER; the kind if it names none."""
    confidence: str


class Size(NamedTuple):
    """How large a process is."""

    memory: float
    """Resident, in MB."""
    descriptors: float
    threads: float


def parse(text: str) -> dict[Series, float]:
    """Return the series of an exposition, as Prometheus' own parser reads it. Raises ValueError."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def own(name: str, cluster: str) -> str:
    """Return the name of a daemon of our cluster (fsid) without the suffix that it gets beside other clusters.

    Names of others stay as they are: "osd.0@0123abcd".
    """
    daemon, at, suffix = name.partition("@")
    return daemon if at and cluster.startswith(suffix) else name


def limits(values: Mapping[Series, float], cluster: str) -> Iterator[Limit]:
    """Yield what the judge's exposition says about runs; `cluster` is the fsid of ours."""
    for (name, pairs), _ in values.items():
        if name == VERDICT_INFO.name:
            labels = dict(pairs)
            found = f"{labels['resource']} {own(labels['owner'], cluster)}".strip() or labels["kind"]
            yield Limit(labels["run"], labels["kind"], found, labels["confidence"])


def wrong(found: Iterable[Limit], allowed: Collection[str]) -> Iterator[str]:
    """Yield the limits that are named with high confidence and that no pattern allows."""
    for limit in found:
        explained = any(re.fullmatch(pattern, limit.name) for pattern in allowed)
        if limit.confidence == "high" and limit.kind in NAMING and not explained:
            yield f"the verdict on {limit.run} is {limit.kind}: {limit.name}, with high confidence; nothing made it"


def fallen(before: Exposition, after: Exposition, restarted: Collection[str], cluster: str) -> Iterator[str]:
    """Yield the counters that fell between two expositions of one process.

    Those of `restarted` daemons of our cluster may fall, and those of other clusters on this host: nobody knows who
    restarts their daemons. `cluster` is the fsid of ours.
    """
    if before.process != after.process:
        return
    for series, value in after.values.items():
        name, labels = series
        last = before.values.get(series, value)
        subjects = {own(one, cluster) for _, one in labels}
        excused = not subjects.isdisjoint(restarted) or any("@" in one for one in subjects)
        if name.endswith("_total") and value < last and not excused:
            pairs = ",".join(f'{key}="{one}"' for key, one in labels)
            yield f"{name}{{{pairs}}} fell from {last:g} to {value:g}"


def standing(history: Sequence[Exposition]) -> Iterator[str]:
    """Yield the probes that took no sample for a while, in expositions of one process."""
    recent = _recent(history, PATIENCE_SECONDS)
    if not recent:
        return
    first, last = recent[0], recent[-1]
    before, after = first.by_probe(SAMPLER_SAMPLES.name), last.by_probe(SAMPLER_SAMPLES.name)
    for probe, interval in last.by_probe(PROBE_INTERVAL_SECONDS.name).items():
        if interval <= PATIENCE_SECONDS / 2 and after.get(probe, 0.0) <= before.get(probe, -1.0):
            yield f"the probe {probe} took no sample for {last.began - first.ended:.0f} s"


def uncounted(history: Sequence[Exposition]) -> Iterator[str]:
    """Yield the probes whose taken and lost samples are not as many as there were ticks, in expositions of one process.

    A tick counts when the sample after it is taken, so fewer are wrong only if they stay away for a while. Only the
    time since a probe last changed its interval counts: on a host at rest it is longer. A probe that was seen at a
    shorter interval may have had that unseen, too.
    """
    intervals = [one.by_probe(PROBE_INTERVAL_SECONDS.name) for one in history]
    counts = [_counted(one) for one in history]
    for probe, interval in intervals[-1].items() if history else ():
        begin = next((at + 1 for at in reversed(range(len(history))) if intervals[at].get(probe) != interval), 0)
        shortest = min(interval, *(seen[probe] for seen in intervals if probe in seen))
        first, start = history[begin], counts[begin][probe]
        recent = _recent(history[begin:], PATIENCE_SECONDS)
        missing, extra = [], []
        for one, count in zip(recent, counts[len(counts) - len(recent) :], strict=True):
            taken = count.get(probe, 0.0) - start
            missing.append((one.began - first.ended) / interval - taken)
            extra.append(taken - (one.ended - first.began) / shortest)
        if missing and min(missing) > TICKS:
            yield f"{min(missing):.0f} samples of the probe {probe} were neither taken nor counted as lost"
        if extra and min(extra) > TICKS:
            yield f"the probe {probe} counted {min(extra):.0f} samples more than there was time for"


def slow(seconds: float) -> Iterator[str]:
    """Yield a violation if a scrape that took so long had to fail before."""
    if seconds > SCRAPE_SECONDS + LATE_SECONDS:
        yield f"a scrape took {seconds:.1f} s, its timeout is {SCRAPE_SECONDS:g} s"


def oversized(name: str, size: Size) -> Iterator[str]:
    """Yield in which way a process is too large."""
    for field, limit in LARGEST.items():
        if (value := getattr(size, field)) > limit:
            yield f"the {field} of {name}: {value:.0f}, the limit is {limit:g}"


def complaints(name: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a log that a crash leaves."""
    for line in lines:
        if CRASH.search(line):
            yield f"{name} says: {line.strip()}"


def _counted(one: Exposition) -> dict[str, float]:
    lost = one.by_probe(SAMPLER_LOST_SAMPLES.name)
    return {probe: taken + lost.get(probe, 0.0) for probe, taken in one.by_probe(SAMPLER_SAMPLES.name).items()}


def _recent(history: Sequence[Exposition], seconds: float) -> Sequence[Exposition]:
    """Return the last expositions that cover so many seconds in which the exporter ran; none if there are too few."""
    covered = 0.0
    for place, (before, after) in enumerate(pairwise(reversed(history)), start=2):
        covered += min(GAP_SECONDS, before.began - after.ended)
        if covered >= seconds:
            return history[-place:]
    return ()
