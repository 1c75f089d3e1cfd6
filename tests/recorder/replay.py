"""Replays a capture: ``python -m recorder.replay CAPTURE`` prints what Pinchpoint sees of a recorded run.

A /proc and a root directory are replayed in a temporary directory, and the detector of `pinchpoint run` reads them like
those of a host. Nothing in a capture is run, and none of its paths is used outside of that directory.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import click

from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.detector import Detector, merged
from pinchpoint.benchmarks.document import run_document
from pinchpoint.benchmarks.events import State
from pinchpoint.benchmarks.registry import BENCHMARKS
from pinchpoint.benchmarks.wrappers import LAUNCHERS, programs
from pinchpoint.figures import format_result
from pinchpoint.runs import PhaseMark, RunState
from pinchpoint.text import printable
from recorder.capture import Capture, CaptureError, Change, Written, read_capture
from recorder.stage import Stage

__all__ = ["Replay", "Span", "replay"]

INTERVAL = 0.2
"""Seconds between two looks, as in `pinchpoint run`."""
FIRST_PID = 1000
"""Of the processes that are assumed if none were recorded."""
WORDS = 64
"""Words of the command line that are searched for a benchmark."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a run was seen doing from one look to another, in seconds since the start of the capture."""

    start: float
    end: float
    state: str
    phase: str | None


@dataclass
class Replay:
    """What was seen of a capture."""

    capture: Capture
    state: RunState
    """The state after the end; times in Unix seconds."""
    spans: list[Span] = field(default_factory=list)
    """Spans of the run, without gaps."""

    @property
    def document(self) -> dict[str, Any]:
        """The run as plain JSON data: times are in seconds since the start of the capture."""
        spans = [
            {"state": span.state, "phase": span.phase, "start": round(span.start, 3), "end": round(span.end, 3)}
            for span in self.spans
        ]
        return {"capture": self.capture.name, **run_document(self.state, self.capture.start), "spans": spans}


def replay(
    capture: Capture,
    *,
    interval: float = INTERVAL,
    output: bool = True,
    kinds: Sequence[type[Benchmark]] = BENCHMARKS,
) -> Replay:
    """Return what is seen of a capture with a look every `interval` seconds.

    Without `output` only its processes and files are seen, as the exporter sees a run that it did not start.
    """
    detector = Detector(kinds, watch=None)
    processes = capture.processes if capture.processes is not None else list(_assumed(capture, kinds))
    named = _named(capture, kinds)
    if capture.processes is None and not named:
        # The benchmark is unknown: any of them may have written the output.
        named = list(kinds)
    changes = iter([*processes, None])
    files = iter([*sorted(_files(capture), key=lambda written: written.time), None])
    arrivals = iter([*capture.output, None])
    change, written, arrival = next(changes), next(files), next(arrivals)
    spans: list[Span] = []
    with tempfile.TemporaryDirectory(prefix="pinchpoint-replay-") as directory:
        stage = Stage(Path(directory), capture.start)
        for time in _times(capture.duration, interval):
            while written is not None and written.time <= time:
                stage.write(written)
                written = next(files)
            while change is not None and change.time <= time:
                stage.change(change)
                change = next(changes)
            wall = capture.start + time
            detector.look(stage.tree(time), time, wall)
            heard = bytearray()
            while arrival is not None and arrival.time <= time:
                heard += arrival.data
                arrival = next(arrivals)
            if output and heard:
                detector.hear(bytes(heard), wall, named=named)
            _note(spans, merged(detector.followed, capture.name, capture.start), time)
        detector.end(capture.start + capture.duration, capture.ended)
        state = merged(detector.followed, capture.name, capture.start)
    if capture.ended is not State.FINISHED:
        state.state = capture.ended
    elif not detector.followed:
        state.state = State.FINISHED
    return Replay(capture, state, spans)


def _times(duration: float, interval: float) -> Iterator[float]:
    count = 0
    while (time := count * interval) < duration:
        yield time
        count += 1
    yield duration


def _note(spans: list[Span], state: RunState, time: float) -> None:
    current = next((mark for mark in reversed(state.phases) if mark.end is None), None)
    seen = Span(time, time, str(current.state if current else state.state), current.name if current else None)
    if spans:
        last = spans[-1]
        spans[-1] = last = Span(last.start, time, last.state, last.phase)
        if (last.state, last.phase) == (seen.state, seen.phase):
            return
    spans.append(seen)


def _named(capture: Capture, kinds: Sequence[type[Benchmark]]) -> list[type[Benchmark]]:
    words = {os.path.basename(word)[:15] for word in capture.command[:WORDS]}
    words |= {os.path.basename(line[0])[:15] for line in programs(capture.command)}
    return [kind for kind in kinds if words & set(kind.comms)]


def _assumed(capture: Capture, kinds: Sequence[type[Benchmark]]) -> Iterator[Change]:
    """Yield the processes that the command line implies: their activity is unknown."""
    comms = {comm for kind in kinds for comm in kind.comms}
    lines = programs(capture.command)
    if not lines:
        return
    line = next((line for line in lines if os.path.basename(line[0]) in comms | LAUNCHERS), lines[-1])
    yield _process(capture, FIRST_PID, 1, line)
    if os.path.basename(line[0]) in LAUNCHERS:
        index = next((i for i, word in enumerate(line) if i and os.path.basename(word) in comms), None)
        if index is not None:
            yield _process(capture, FIRST_PID + 1, FIRST_PID, line[index:])


def _process(capture: Capture, pid: int, ppid: int, line: Sequence[str]) -> Change:
    name = os.path.basename(line[0])
    # load_script (fs/binfmt_script.c) puts the interpreter before the script, whose name the process keeps.
    argv = ("/bin/bash", *line) if name.endswith(".sh") else tuple(line)
    return Change(0.0, pid, ppid, name[:15], cwd=capture.cwd, argv=argv, files=None)


def _files(capture: Capture) -> Iterator[Written]:
    """Yield all known files: the recorded ones, and those that follow from them."""
    yield from capture.files
    paths = {written.path for written in capture.files}
    yield from _grown(capture, paths)
    if (plan := _plan(capture)) is not None:
        words = {(capture.cwd, word) for word in capture.command}
        words |= {(change.cwd, word) for change in capture.processes or () for word in change.argv}
        for path in {os.path.normpath(os.path.join(cwd, word)) for cwd, word in words if word.endswith(".ini")}:
            if path not in paths:
                yield Written(0.0, path, plan, appended=False)


def _plan(capture: Capture) -> bytes | None:
    """Return the ini of an IO500 run, from its own copy (``config-orig.ini``)."""
    copies = [written for written in capture.files if os.path.basename(written.path) == "config-orig.ini"]
    # A copy that existed at the start belongs to another run, unless there is no other.
    kept = [data for path, data in capture.results.items() if path.endswith("/config-orig.ini")]
    return kept[-1] if kept else max(copies, key=lambda written: written.time).data if copies else None


def _grown(capture: Capture, known: set[str]) -> Iterator[Written]:
    """Yield files of results with only their end kept, as they grew: up to their writer's position each time."""
    final = {path.rpartition("/")[2]: data for path, data in capture.results.items()}
    reached: dict[str, int] = {}
    held: dict[int, dict[str, int]] = {}
    for change in capture.processes or ():
        before = held.pop(change.pid, {})
        if not change.gone:
            # A child that was just forked has the same files.
            held[change.pid] = {
                file.path: file.position
                for file in change.files or ()
                if file.flags & os.O_ACCMODE != os.O_RDONLY and os.path.basename(file.path) in final
            }
        still = {path for paths in held.values() for path in paths}
        for path in before.keys() | held.get(change.pid, {}).keys():
            data = final[os.path.basename(path)]
            start, end = reached.get(path, 0), held.get(change.pid, {}).get(path, 0) if path in still else len(data)
            if path not in known and (piece := data[start:end]):
                reached[path] = start + len(piece)
                yield Written(change.time, path, piece, appended=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("path", type=click.Path(path_type=Path), metavar="CAPTURE")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/results.md describes it).")
@click.option(
    "--interval",
    default=INTERVAL,
    show_default=True,
    type=click.FloatRange(0.01, 60.0),
    metavar="SECONDS",
    help="Time between two looks.",
)
@click.option("--without-output", is_flag=True, help="See processes and files only, as the exporter does.")
def main(path: Path, as_json: bool, interval: float, without_output: bool) -> None:
    """Print the phases that Pinchpoint sees in a recorded run.

    CAPTURE is a folder (docs/captures.md), or a file that holds a benchmark's standard output.
    """
    try:
        found = replay(read_capture(path), interval=interval, output=not without_output)
    except CaptureError as error:
        _fail(str(error))
    except OSError as error:  # no permission to read the folder, or no room for the replay
        _fail(f"{error.filename or path}: {error.strerror}")
    if as_json:
        click.echo(json.dumps(found.document, indent=1))
    else:
        click.echo("\n".join(table(found)))


def _fail(message: str) -> NoReturn:
    click.echo(f"pinchpoint: {message}", err=True)
    raise SystemExit(2)


def table(found: Replay) -> list[str]:
    """Return the lines of a table of the phases, and of what was seen between them."""
    start = found.capture.start
    rows: list[tuple[float, list[str]]] = [(mark.start - start, _row(mark, start)) for mark in found.state.phases]
    for span in found.spans:
        if span.phase is None and span.end > span.start:
            rows.append((span.start, ["", span.state, "", f"{span.start:.1f}", f"{span.end:.1f}", ""]))
    rows.sort(key=lambda row: row[0])
    lines = [["phase", "state", "source", "start", "end", "results"], *(cells for _, cells in rows)]
    widths = [max(len(cells[index]) for cells in lines) for index in range(5)]
    run = found.state
    text = [
        "  ".join([*(_pad(cells[i], widths[i], right=i > 2) for i in range(5)), cells[5]]).rstrip() for cells in lines
    ]
    scores = ", ".join(f"{score.operation} {score.printed or score.value}" for score in run.scores)
    invalid = "" if run.valid else ", invalid"
    end = f"{run.benchmark or 'no benchmark'}: {run.state}{invalid} after {found.capture.duration:.1f} s"
    text.append(end + (f"; score {scores}" if scores else "") + (f"; {printable(run.reason)}" if run.reason else ""))
    return text


def _row(mark: PhaseMark, start: float) -> list[str]:
    results = "; ".join(f"{r.operation} {r.printed}" if r.printed else format_result(r) for r in mark.results)
    end = "" if mark.end is None else f"{mark.end - start:.1f}"
    invalid = "" if mark.valid else " [invalid]"
    cells = [mark.name, str(mark.state), str(mark.source), f"{mark.start - start:.1f}", end, results + invalid]
    return [printable(cell) for cell in cells]


def _pad(text: str, width: int, *, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


if __name__ == "__main__":
    main()
