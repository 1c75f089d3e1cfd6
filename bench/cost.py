"""What the whole exporter costs on a host with 10,000 threads: the section "exporter" of the page.

All probes run at their own pace, threads are sampled at 10 Hz, and it is scraped every 5 s. CPU time and memory are
those of its process. The host is workload.py's, whose daemons and bystanders wake up 50 times a second.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from compiled import MissingError
from meter import series, serving, total
from page import Goal, machine, parser, publish, table
from ports import free_port
from workload import ceph_host, running

SCRAPE_INTERVAL = 5.0
IDLE = 1.5
"""Seconds without a scrape in which the exporter's own use is measured."""
WARM_UP = 10.0


@dataclass(frozen=True)
class Cost:
    """The result of one measurement."""

    followed: int
    """Threads that have a role."""
    series: int
    cpu: float
    """Per cent of one core, scrapes included."""
    rss: float
    """MB."""
    scrape: float
    """Milliseconds of CPU for a scrape."""
    latency: float
    """Milliseconds that the scraper waits."""
    lost: float
    """Share of due samples that were lost."""


@dataclass(frozen=True)
class Case:
    """A way to run the exporter, beside a workload."""

    threads: int
    source: str
    flags: Sequence[str]
    limits: tuple[tuple[str, str, float, str], ...] = ()
    """Field of `Cost`, its meaning, its upper limit, its unit."""


BPF = ("--task-source=bpf", "--kworker-source=bpf")
KEPT = ("--task-source=kept", "--kworker-source=comm")
CASES = (
    Case(10_000, "bpf", BPF, (
        ("cpu", "of a core", 2.5, "%"), ("rss", "of memory", 40.0, "MB"), ("scrape", "of CPU for a scrape", 20.0, "ms"),
    )),
    Case(10_000, "kept", KEPT),
    Case(4_000, "bpf", BPF),
    Case(4_000, "kept", KEPT, (("cpu", "of a core", 3.0, "%"), ("scrape", "of CPU for a scrape", 20.0, "ms"))),
)  # fmt: skip


def measure(seconds: float, flags: Sequence[str]) -> Cost:
    """Run an exporter for `seconds` beside the present workload and return its cost. Raises MissingError."""
    port = free_port()
    command = [sys.executable, "-m", "pinchpoint", "exporter", f"--web.listen-address=127.0.0.1:{port}", *flags]
    with serving(command, port) as served:
        time.sleep(WARM_UP)
        text = served.scrape().text
        samples, lost = (total(text, f"pinchpoint_sampler_{name}_total") for name in ("samples", "lost_samples"))
        before, begin, scrapes = served.cpu_ms(), time.monotonic(), []
        while (now := time.monotonic()) - begin < seconds:
            rate = served.rate(IDLE)
            time.sleep(max(0.0, now + SCRAPE_INTERVAL - 0.5 - time.monotonic()))
            scrapes.append(served.scrape(rate))
            time.sleep(max(0.0, now + SCRAPE_INTERVAL - time.monotonic()))
        used, took = served.cpu_ms() - before, time.monotonic() - begin
        text = scrapes[-1].text
        samples = total(text, "pinchpoint_sampler_samples_total") - samples
        lost = total(text, "pinchpoint_sampler_lost_samples_total") - lost
        return Cost(
            followed=int(total(text, "pinchpoint_tasks_followed")),
            series=series(text),
            cpu=used / took / 10,
            rss=served.rss(),
            scrape=statistics.median(found.cpu for found in scrapes),
            latency=statistics.median(found.latency for found in scrapes),
            lost=lost / max(1.0, samples + lost),
        )


def median(costs: Sequence[Cost]) -> Cost:
    """Return the medians of several measurements."""
    return Cost(*(statistics.median(getattr(cost, name) for cost in costs) for name in Cost.__dataclass_fields__))


def main() -> None:
    """Measure and write the section."""
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=10.0, help="length of one measurement")
    arguments.add_argument("--rounds", type=int, default=2, help="measurements of each case; medians are shown")
    chosen, flags = arguments.parse_known_args()
    found: dict[Case, list[Cost]] = {}
    missing: dict[Case, str] = {}
    hosts: dict[int, int] = {}
    for number in range(chosen.rounds):
        print(f"the whole exporter, round {number + 1} ...", file=sys.stderr)
        for threads in dict.fromkeys(case.threads for case in CASES):
            with running(ceph_host(threads)) as hosts[threads]:
                for case in CASES:
                    if case.threads == threads and case not in missing:
                        try:
                            found.setdefault(case, []).append(measure(chosen.seconds, [*case.flags, *flags]))
                        except MissingError as error:
                            missing[case] = str(error)
    rows, goals = [], []
    for case in CASES:
        name = [f"{hosts[case.threads]:,}", f"`{case.source}`"]
        cost = median(found[case]) if found.get(case) else None
        if cost is None:
            rows.append([*name, f"not measured: {missing[case]}", *[""] * 6])
        else:
            spread = [one.cpu for one in found[case]]
            rows.append([*name, f"{cost.followed:.0f}", f"{cost.series:.0f}",
                         f"{cost.cpu:.2f} ({min(spread):.2f} to {max(spread):.2f})", f"{cost.rss:.1f}",
                         f"{cost.scrape:.1f}", f"{cost.latency:.1f}", f"{cost.lost:.2%}"])  # fmt: skip
        for field, what, limit, unit in case.limits:
            value = missing[case] if cost is None else getattr(cost, field)
            goals.append(Goal(f"whole exporter, {case.threads:,} threads, `{case.source}`: {what}", limit, unit, value))
    head = ["threads of the host", "source", "threads with a role", "series", "CPU, % of one core", "RSS, MB",
            "CPU of a scrape, ms", "latency, ms", "samples lost"]  # fmt: skip
    body = (
        f"{machine()}. Sampled at 10 Hz, scraped every {SCRAPE_INTERVAL:g} s; median of {chosen.rounds} x "
        f"{chosen.seconds:g} s (lowest to highest).\n\n{table(head, rows)}"
    )
    publish("exporter", body, chosen, goals)


if __name__ == "__main__":
    main()
