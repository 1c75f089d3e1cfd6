"""Searches for inputs that break a reader of foreign bytes, guided by coverage: `make fuzz`.

Each reader of readers.py runs in a process of its own, under atheris (libFuzzer), with its seeds and what was found
before. An input fails if its reader raises something that it does not declare, takes more than 100 ms of CPU time or
more than 50 MB of memory; what it cost is measured again without instrumentation. Such inputs are put into
tests/fixtures/found/READER/, where test_foreign_bytes.py replays them. Also fails if a process grew by 50 MB.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from readers import Reader

FOUND = Path(__file__).parent / "fixtures" / "found"
MAX_CPU_SECONDS = 0.1
MAX_GROWTH_BYTES = 50 << 20
MAX_INPUT_BYTES = 1 << 15
"""Longest input, which holds all answers of a daemon; longer seeds are cut into pieces."""
MAX_LINES_BYTES = 1 << 10
"""Longest input to a reader that reads line after line."""
MAX_SUSPECTS = 100
"""Costly inputs of one reader that are measured again."""
HANG_SECONDS = 60
"""Seconds after which one input counts as hanging."""
KIB = 1 << 10
REPEATS = 3
STATUS = re.compile(r"^#(\d+)\t(INITED|DONE)\s+cov: (\d+) .*rss: (\d+)Mb", re.MULTILINE)


class Outcome(NamedTuple):
    """What became of the inputs to one reader."""

    inputs: int
    seconds: float
    coverage: int
    """Branches and comparisons that were reached."""
    growth: int
    """MB by which the process grew after its seeds were read."""
    findings: tuple[str, ...]
    """What is wrong."""


def main() -> int:
    """Fuzz the readers that the command line names, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reader", default="", help="only this one")
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs to each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="readers at a time")
    parser.add_argument("--corpus", type=Path, help="directory that keeps the inputs that reached something new")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside is not None:
        fuzz(asked.reader, asked.runs, asked.inside)
    from readers import READERS

    chosen = [reader for reader in READERS if asked.reader in ("", reader.name)]
    if not chosen:
        parser.error(f"no reader is called {asked.reader!r}: {', '.join(reader.name for reader in READERS)}")
    print(f"{'reader':24} {'inputs':>9} {'seconds':>8} {'coverage':>8} {'MB more':>8}")
    failed = False
    with ThreadPoolExecutor(asked.jobs) as pool:
        outcomes = pool.map(lambda reader: searched(reader, asked.runs, asked.corpus), chosen)
        for reader, outcome in zip(chosen, outcomes, strict=True):
            figures = f"{outcome.inputs:9} {outcome.seconds:8.1f} {outcome.coverage:8} {outcome.growth:8}"
            print("\n    ".join([f"{reader.name:24} {figures}", *outcome.findings]), flush=True)
            failed |= bool(outcome.findings)
    return int(failed)


def searched(reader: Reader, runs: int, kept: Path | None) -> Outcome:
    """Fuzz one reader in a process of its own, and keep what breaks it."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        return _searched(reader, runs, Path(scratch), kept)


def _searched(reader: Reader, runs: int, scratch: Path, kept: Path | None) -> Outcome:
    corpus = scratch / "corpus" if kept is None else kept / reader.name
    for folder in (corpus, scratch / "crashes", scratch / "suspects"):
        folder.mkdir(parents=True, exist_ok=True)
    known = [*reader.seeds(), *(path.read_bytes() for path in FOUND.glob(f"{reader.name}/*"))]
    for piece in pieces(known, longest(reader)):
        (corpus / _name(piece)).write_bytes(piece)
    began = time.monotonic()
    command = [sys.executable, __file__, "--inside", str(scratch), "--reader", reader.name, "--runs", str(runs)]
    done = subprocess.run([*command, "--corpus", str(corpus)], capture_output=True, check=False)
    seconds = time.monotonic() - began
    said = done.stderr.decode("utf-8", "replace")
    findings = [_keep(reader, path, "raises, hangs or ends its process") for path in (scratch / "crashes").iterdir()]
    for path in (scratch / "suspects").iterdir():
        if (cost := costs(reader, path.read_bytes())) is not None:
            findings.append(_keep(reader, path, cost))
    if done.returncode:
        findings.append("\n    ".join(["it ended with:", *said.splitlines()[-30:]]))
    status = {found[2]: found for found in STATUS.finditer(said)}
    begin, end = status.get("INITED"), status.get("DONE")
    if begin is None or end is None:
        return Outcome(0, seconds, 0, 0, (*findings, *(() if findings else ["libFuzzer gave no status"])))
    growth = int(end[4]) - int(begin[4])
    if growth << 20 > MAX_GROWTH_BYTES:
        findings.append(f"its process grew by {growth} MB")
    return Outcome(int(end[1]), seconds, int(end[3]), growth, tuple(findings))


def longest(reader: Reader) -> int:
    """Return the bytes of the longest input to a reader."""
    return MAX_LINES_BYTES if reader.lines else MAX_INPUT_BYTES


def pieces(seeds: Sequence[bytes], size: int) -> set[bytes]:
    """Return the seeds, long ones in pieces of so many bytes."""
    return {seed[at : at + size] for seed in seeds for at in range(0, len(seed), size)}


def costs(reader: Reader, raw: bytes) -> str | None:
    """Return what is too much about the cost of an input, by the lowest of several measurements; None if nothing is."""
    seconds = []
    for _ in range(REPEATS):
        began = time.thread_time()
        _attempt(reader, raw)
        seconds.append(time.thread_time() - began)
    if min(seconds) > MAX_CPU_SECONDS:
        return f"takes {min(seconds):.3f} s of CPU time"
    tracemalloc.start()
    try:
        _attempt(reader, raw)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return f"takes {peak >> 20} MB" if peak > MAX_GROWTH_BYTES else None


def fuzz(name: str, runs: int, scratch: Path) -> None:
    """Fuzz one reader in this process; does not return."""
    import atheris

    with atheris.instrument_imports(include=["pinchpoint"]):
        from readers import reader_named
    reader = reader_named(name)
    suspects = 0

    def one(raw: bytes) -> None:
        nonlocal suspects
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.thread_time()
        _attempt(reader, raw)
        seconds = time.thread_time() - began
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * KIB
        if (seconds > MAX_CPU_SECONDS or grown > MAX_GROWTH_BYTES) and suspects < MAX_SUSPECTS:
            suspects += 1
            (scratch / "suspects" / _name(raw)).write_bytes(raw)

    corpus = sys.argv[sys.argv.index("--corpus") + 1]
    options = [f"-runs={runs}", f"-max_len={longest(reader)}", f"-timeout={HANG_SECONDS}", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={scratch}/crashes/", corpus], one)
    atheris.Fuzz()


def _attempt(reader: Reader, raw: bytes) -> None:
    try:
        reader.read(raw)
    except reader.rejects:
        pass


def _name(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:16]


def _keep(reader: Reader, path: Path, what: str) -> str:
    """Put an input among the fixtures, and say where it is."""
    raw = path.read_bytes()
    kept = FOUND / reader.name / _name(raw)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(raw)
    return f"{what}: {os.path.relpath(kept)}"


if __name__ == "__main__":
    sys.exit(main())
