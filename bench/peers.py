"""What one sample of all threads costs, ours and our peers', and how the cost grows: the section "samples" of the page.

samplers.py has the ways that sample on request. Beside them stand programs from Debian: top and pidstat, whose cost is
that of several passes less that of one, and two exporters, which sample at a scrape.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from compiled import MissingError
from meter import Scrape, Served, run_cpu, series, serving
from page import FRACTION, Goal, machine, parser, publish, table
from ports import free_port
from samplers import COMMANDS, LIMIT_OF, OURS, Found, in_turns
from spread import Spread, spread
from workload import ceph_host, running

SIZES = (1_000, 4_000, 10_000)
AWAKE = 10
"""Threads that run between two samples, unless stated otherwise."""
GROWTH = (0, 10, 100, 1_000, SIZES[-1])
GROWING = ("bpf", "kept")
PSUTIL, PROCESS_EXPORTER, LIMIT = 1 / 50, 1 / 500, 1.3
"""Upper limits relative to a sample by psutil, a scrape of process-exporter, a loop in C that reads the same way."""

NAMES = {
    "bpf": "Pinchpoint, `bpf`",
    "bpf-iter": "Pinchpoint, `bpf-iter`",
    "kept": "Pinchpoint, `kept`",
    "plain": "Pinchpoint, `plain`",
    "psutil": "psutil, `process_iter` and `threads()`",
    "psutil-names": "psutil, and each thread's name",
    "C, bpf": "C, as `bpf`",
    "C, bpf-iter": "C, as `bpf-iter`",
    "C, kept": "C, as `kept`",
    "C, plain": "C, as `plain`",
    "top": "`top -H -b`",
    "pidstat": "`pidstat -t`",
    "process-exporter": "process-exporter, one scrape",
    "node-exporter": "node_exporter, one scrape (no threads)",
}
PASSES = {"top": lambda passes: ["top", "-H", "-b", "-d", "0.1", "-n", str(passes)],
          "pidstat": lambda passes: ["pidstat", "-t", "1", str(passes)]}  # fmt: skip
"""Programs that make a given number of passes and end."""
MORE_PASSES = {"top": 5, "pidstat": 1}
"""Passes of the second run; the first makes one. A pass of top differs from its start only over several of them."""
SLOW_ROUNDS = 2
"""Rounds in which they take part: pidstat needs seconds for a pass over 10,000 threads."""
PROCESS_EXPORTER_CONFIG = 'process_names:\n  - name: "{{.Comm}}"\n    cmdline: [".+"]\n'
EXPORTERS = {
    "process-exporter": ("prometheus-process-exporter", "-config.path={config}", "-web.listen-address={address}"),
    "node-exporter": ("prometheus-node-exporter", "--web.listen-address={address}"),
}


class Size:
    """All results beside one workload."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.cost: dict[str, Spread] = {}
        self.rss: dict[str, float] = {}
        self.scrapes: dict[str, list[Scrape]] = {}
        self.missing: dict[str, str] = {}

    def add(self, kind: str, cpu: Sequence[float], rss: float) -> None:
        """Record what a way cost in each round."""
        self.cost[kind] = spread(cpu)
        self.rss[kind] = rss


def pass_cost(kind: str) -> tuple[float, float]:
    """Return milliseconds of CPU for a pass of a program over all threads, and its RSS in MB. Raises MissingError."""
    if shutil.which(kind) is None:
        raise MissingError(f"no {kind}")
    one, _ = run_cpu(PASSES[kind](1))
    several, rss = run_cpu(PASSES[kind](1 + MORE_PASSES[kind]))
    return (several - one) / MORE_PASSES[kind], rss


def exporter_command(kind: str, port: int, folder: Path) -> list[str]:
    """Return the command that starts a peer's exporter. Raises MissingError."""
    program, *flags = EXPORTERS[kind]
    if shutil.which(program) is None:
        raise MissingError(f"no {program}")
    config = folder / "process-exporter.yml"
    config.write_text(PROCESS_EXPORTER_CONFIG)
    return [program, *(flag.format(config=config, address=f"127.0.0.1:{port}") for flag in flags)]


def measured(threads: int, rounds: int, samples: int) -> Size:
    """Measure what each way costs beside a workload of that many threads."""
    with running(ceph_host(threads, AWAKE)) as count, ExitStack() as stack:
        size = Size(count)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        served: dict[str, Served] = {}
        for kind in EXPORTERS:
            try:
                port = free_port()
                served[kind] = stack.enter_context(serving(exporter_command(kind, port, folder), port))
                served[kind].scrape()
            except MissingError as error:
                size.missing[kind] = str(error)
        passes: dict[str, list[tuple[float, float]]] = {}
        found: dict[str, list[Found]] = {}
        for number in range(rounds):
            part, missing = in_turns(list(COMMANDS), 1, samples)
            size.missing |= missing
            for sampled, turns in part.items():
                found.setdefault(sampled, []).extend(turns)
            for kind, exporter in served.items():
                size.scrapes.setdefault(kind, []).append(exporter.scrape())
            for kind in PASSES if number < SLOW_ROUNDS else ():
                try:
                    passes.setdefault(kind, []).append(pass_cost(kind))
                except MissingError as error:
                    size.missing[kind] = str(error)
        for kind, turns in found.items():
            size.add(kind, [turn.cpu for turn in turns], statistics.median(turn.rss for turn in turns))
        for kind, ends in passes.items():
            if ends:
                size.add(kind, [cpu for cpu, _ in ends], max(rss for _, rss in ends))
        for kind, scrapes in size.scrapes.items():
            size.add(kind, [scrape.cpu for scrape in scrapes], served[kind].rss())
    return size


def samples_table(sizes: Sequence[Size]) -> str:
    """Return the table of ways and sizes."""
    last = sizes[-1]
    best = next((last.cost[kind].median for kind in OURS if kind in last.cost), None)
    rows = []
    for kind, name in NAMES.items():
        if kind in last.cost:
            cost = last.cost[kind].median
            cells = [size.cost[kind].text() if kind in size.cost else "-" for size in sizes]
            rows.append([name, *cells, f"{1e3 * cost / last.threads:.2f}", f"{cost / best:.1f}" if best else "-",
                         f"{last.rss[kind]:.1f}"])  # fmt: skip
        else:
            rows.append([name, f"not measured: {last.missing.get(kind, '?')}", *[""] * (len(sizes) + 2)])
    heads = [f"{size.threads:,} threads, ms" for size in sizes]
    return table(["one sample", *heads, "us per thread", "times the best of ours", "RSS, MB"], rows)


def scrapes_table(sizes: Sequence[Size]) -> str:
    """Return the table of the peers' exporters."""
    rows = []
    for kind in EXPORTERS:
        for size in sizes:
            if scrapes := size.scrapes.get(kind):
                latency = spread([scrape.latency for scrape in scrapes])
                text = scrapes[-1].text
                rows.append([NAMES[kind].partition(",")[0], f"{size.threads:,}", size.cost[kind].text(".0f"),
                             latency.text(".0f"), str(series(text)), f"{len(text) / 1e3:.0f}",
                             f"{size.rss[kind]:.0f}"])  # fmt: skip
    head = ["exporter", "threads", "CPU of a scrape, ms", "latency, ms", "series", "KB", "RSS, MB"]
    return table(head, rows)


def growth_table(threads: int, rounds: int, samples: int) -> str:
    """Return the table of how a sample's cost grows with the threads that run between two of them."""
    kinds = [kind for ours in GROWING for kind in (ours, LIMIT_OF[ours])]
    rows = []
    for awake in GROWTH:
        with running(ceph_host(threads, awake)):
            found, _ = in_turns(kinds, rounds, samples)
        ran = [turn.changed for turns in found.values() for turn in turns]
        costs = [spread([turn.cpu for turn in found[kind]]).text() if kind in found else "-" for kind in kinds]
        rows.append([f"{min(awake, threads):,}", f"{statistics.median(ran):,.0f}" if ran else "-", *costs])
        print(rows[-1], file=sys.stderr)
    return table(["threads that wake up", "changed in a sample", *(NAMES[kind] for kind in kinds)], rows)


def goals(size: Size) -> list[Goal]:
    """Return the goals for one sample with the most threads."""
    return [
        _ratio("one by psutil", PSUTIL, size, "bpf", "psutil", FRACTION),
        _ratio("a scrape of process-exporter", PROCESS_EXPORTER, size, "bpf", "process-exporter", FRACTION),
        *(_ratio("that of the loop in C", LIMIT, size, kind, LIMIT_OF[kind], "times") for kind in OURS[:3]),
    ]


def _ratio(what: str, limit: float, size: Size, kind: str, of: str, unit: str) -> Goal:
    missing = next((size.missing[name] for name in (kind, of) if name in size.missing), None)
    ratio = missing if missing is not None else size.cost[kind].median / size.cost[of].median
    return Goal(f"a sample by `{kind}`, of {what}, {size.threads:,} threads", limit, unit, ratio)


def versions() -> str:
    """Return the versions of the installed peers."""
    import psutil

    asked: Mapping[str, Sequence[str]] = {
        "process-exporter": ("prometheus-process-exporter", "-version"),
        "node_exporter": ("prometheus-node-exporter", "--version"),
        "top": ("top", "-V"),
        "pidstat": ("pidstat", "-V"),
        "gcc": ("gcc", "-dumpfullversion"),
    }
    found = [f"psutil {psutil.__version__}"]
    for name, command in asked.items():
        if shutil.which(command[0]) is not None:
            done = subprocess.run(command, capture_output=True, text=True)
            if version := re.search(r"\d+(\.\d+)+", done.stdout + done.stderr):
                found.append(f"{name} {version[0]}")
    return ", ".join(found)


def main() -> None:
    """Measure and write the section."""
    arguments = parser(__doc__)
    arguments.add_argument("--threads", type=int, nargs="+", default=SIZES, help="sizes of the workload")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--samples", type=int, default=5, help="samples of one turn")
    chosen = arguments.parse_args()
    sizes = []
    for threads in chosen.threads:
        print(f"one sample of {threads:,} threads ...", file=sys.stderr)
        sizes.append(measured(threads, chosen.rounds, chosen.samples))
    growth = growth_table(max(chosen.threads), 2, chosen.samples - 1)
    body = (
        f"{machine()}; {versions()}. {AWAKE} threads wake up between two samples. Median of {chosen.rounds} rounds "
        f"(lowest to highest) of {chosen.samples} samples each.\n\n{samples_table(sizes)}\n"
        f"What the peers' exporters serve:\n\n{scrapes_table(sizes)}\n"
        f"With {max(chosen.threads):,} threads, of which more and more run between two samples, in ms:\n\n{growth}"
    )
    publish("samples", body, chosen, goals(sizes[-1]))


if __name__ == "__main__":
    main()
