"""Thrash Pinchpoint: ``python -m thrash --seed 7``, behind `make thrash`.

Each seed makes its own faults on one cluster, beside two loads that are bound by the latency of its OSDs: nothing but a
fault can limit them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import httpx
import pytest

from lab import loads
from lab.cluster import Cluster, LabError, lacking
from native import Stack, StackError
from patience import patience
from pinchpoint.metrics import JUDGE_HOSTS
from polling import get_json, until
from ports import stack_ports
from thrash.faults import SEAM, Ground, inflict, set_clock, small_disk
from thrash.invariants import parse
from thrash.plan import DELAY_SECONDS, OSDS, PARTS, Fault, plan
from thrash.witness import Witness

TREE = Path(__file__).resolve().parents[2]
EVIDENCE = TREE / ".prove" / "thrash"
"""Logs and expositions of seeds with violations."""
LOGS = ("pinchpoint", "judge", "supervisord")
OPTIONS = {
    # With its cache, writes would be complete before they are sent.
    "client": {"rbd_cache": "false"},
    "osd": {
        "osd_debug_inject_dispatch_delay_duration": f"{DELAY_SECONDS:g}",
        "osd_debug_inject_dispatch_delay_probability": "1",
    },
    # Otherwise an MDS answers before a change is in its journal, and OSDs may be as slow as they like.
    "mds": {"mds_early_reply": "false"},
}
TICK_SECONDS = 0.1
RECOVERY_SECONDS = 30.0
"""Time after the last fault in which everything works again."""
END_SECONDS = 20.0
"""Time after which a load that ends by itself has ended."""
SHOWN = 20
"""Violations of a seed that are printed."""


class Load:
    """A load under `pinchpoint run`."""

    def __init__(self, ground: Ground, folder: Path, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._status = folder / f"{name}.status"
        run = [sys.executable, "-m", "pinchpoint", "run", "--name", name, f"--path.runs={folder / 'markers'}"]
        run += [f"--target={ground.stack.urls['pinchpoint'].removeprefix('http://')}", "--"]
        status = ["/bin/sh", "-c", '"$@"; status=$?; echo $status >"$0"; exit $status', str(self._status)]
        environment = {**ground.cluster.environment(), **seamed(ground.seam), "XDG_STATE_HOME": str(ground.store)}
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [*run, *status, *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                start_new_session=True,
            )

    def end(self) -> str:
        """Wait for its end, or make one; return what is wrong with it in words, or ""."""
        try:
            status = self._process.wait(patience(END_SECONDS))
        except subprocess.TimeoutExpired:
            self.stop()
            return f"{self.name} does not end"
        said = int(self._status.read_text()) if self._status.exists() else None
        return "" if status == said else f"{self.name} ended with {status}, its command with {said}"

    def stop(self) -> None:
        """Kill it, with all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def seamed(seam: Path) -> dict[str, str]:
    """Return the environment in which Pinchpoint's programs get another clock, and fewer rights."""
    path = [str(SEAM), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path), "PINCHPOINT_SEAM": str(seam)}


@contextlib.contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    """Start a cluster and a stack; all that is left of them at the end is the folder."""
    for name in ("seam", "store", "markers"):
        (folder / name).mkdir()
    set_clock(folder / "seam", 0.0)
    stack = Stack(folder / "stack", stack_ports(), runs=folder / "markers")
    with contextlib.ExitStack() as undo:
        undo.enter_context(small_disk(folder / "store"))
        cluster = undo.enter_context(Cluster(osds=OSDS, store="bluestore", options=OPTIONS))
        before = dict(os.environ)
        os.environ.update(seamed(folder / "seam"))
        try:
            undo.enter_context(stack)
        finally:
            os.environ.clear()
            os.environ.update(before)
        create = ["rbd", "-p", "rbd", "create", "image", "--size=64M"]
        subprocess.run(create, env=cluster.environment(), capture_output=True, check=True)
        yield Ground(cluster, stack, folder / "seam", folder / "store")


def started(where: Ground, folder: Path, seed: int, seconds: float) -> list[Load]:
    """Start a load on the MDS and one on the OSDs: each client has one request at a time."""
    limit = ["timeout", "--foreground", "--kill-after=10", f"{seconds:.0f}"]
    files = [*limit, *loads.metadata_command("storm", processes=2)]
    fio = ["fio", "--name=job", "--ioengine=rbd", "--clientname=admin", "--pool=rbd", "--rbdname=image"]
    fio += ["--rw=randwrite", "--bs=4k", "--iodepth=1", "--time_based", f"--runtime={seconds:.0f}"]
    return [Load(where, folder, f"thrash-{seed}-files", files), Load(where, folder, f"thrash-{seed}-blocks", fio)]


def carry_out(where: Ground, faults: Sequence[Fault], witness: Witness, seconds: float) -> None:
    """Make and undo each fault at its time."""
    with contextlib.ExitStack() as undo:
        # Undone even if an interrupt comes: an exit stack passes it on when it is through.
        lasting: dict[Fault, contextlib.ExitStack] = {}
        waiting = list(faults)
        while (now := time.monotonic() - witness.began) < seconds:
            for fault in [fault for fault in lasting if now >= fault.end]:
                lasting.pop(fault).close()
            while waiting and now >= waiting[0].begin:
                fault = waiting.pop(0)
                lasting[fault] = undo.enter_context(contextlib.ExitStack())
                try:
                    lasting[fault].enter_context(inflict(where, fault))
                except (pytest.skip.Exception, LabError) as reason:
                    print(f"  left out: {fault}: {reason}", flush=True)
            time.sleep(TICK_SECONDS)


def unwell(where: Ground, witness: Witness) -> str:
    """Return in words what does not work, or ""."""
    for part in PARTS:
        if not where.stack.healthy(part):
            return f"{part} is not healthy"
    if ended := [daemon.name for daemon in where.cluster.daemons.values() if not daemon.running]:
        return f"the cluster has lost {', '.join(ended)}"
    try:
        query = "api/v1/query?query=" + 'up{job="pinchpoint"}'
        found = get_json(f"{where.stack.urls['prometheus']}/{query}")["data"]["result"]
        hosts = parse(httpx.get(f"{where.stack.urls['judge']}/metrics", trust_env=False).text)
    except httpx.HTTPError as error:
        return str(error)
    if [series["value"][1] for series in found] != ["1"]:
        return "Prometheus does not scrape the exporter"
    if hosts.get((JUDGE_HOSTS.name, (("state", "up"),))) != 1.0:
        return "the judge does not see the exporter"
    if missing := witness.expected - witness.well():
        return f"no success of the probes {', '.join(sorted(missing))}"
    return ""


def thrash(where: Ground, folder: Path, seed: int, seconds: float) -> Witness:
    """Carry out the plan of a seed; return what was seen."""
    faults = plan(seed, seconds)
    running = started(where, folder, seed, seconds)
    logs = [*(where.stack.state / "log" / f"{name}.log" for name in LOGS), *(load.log for load in running)]
    try:
        with Witness(where, faults, [load.name for load in running], seconds, logs) as witness:
            carry_out(where, faults, witness, seconds)
            if not until(RECOVERY_SECONDS, lambda: not unwell(where, witness), pause=0.5):
                witness.blame(f"all faults are undone, and {unwell(where, witness)}")
            for load in running:
                if problem := load.end():
                    witness.blame(problem)
    finally:
        for load in running:
            load.stop()
        # Otherwise the runs of ten seeds fill the small disk, and none after that is recorded.
        shutil.rmtree(where.store / "pinchpoint", ignore_errors=True)
    return witness


def report(seed: int, minutes: float, witness: Witness, folder: Path) -> None:
    """Print the result of a seed, and keep the evidence of violations."""
    print(f"seed {seed}: {len(witness.violations)} violations; {witness.scrapes} scrapes, {witness.failed} failed")
    for (name, confidence), number in sorted(witness.said.items()):
        print(f"  said {number} times with {confidence} confidence: {name}")
    if not witness.violations:
        return
    for violation in witness.violations[:SHOWN]:
        print(f"  {violation}")
    print("the plan:", *plan(seed, 60 * minutes), sep="\n  ")
    kept = EVIDENCE / str(seed)
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for file in [*(folder / "stack" / "log").glob("*.log"), *folder.glob(f"thrash-{seed}-*")]:
        shutil.copy(file, kept)
    for name, text in witness.evidence.items():
        (kept / name).write_text(text)
    print(f"Logs are in {kept}. Again: make thrash SEED={seed} MINUTES={minutes:g}", flush=True)


def interrupt_once() -> None:
    """Let the first signal to end be a KeyboardInterrupt, and ignore those after it: undoing takes a while."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(number: int, frame: FrameType | None) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in numbers:
        signal.signal(number, interrupt)


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m thrash", description="Random faults with a known truth.")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--minutes", type=float, default=1.0, help="of each seed")
    options = parser.parse_args()
    if reason := lacking():
        print(f"No thrashing: {reason}.", file=sys.stderr)
        return 2
    interrupt_once()
    bad = []
    try:
        with contextlib.ExitStack() as undo:
            undo.callback(print, "Everything is undone.", flush=True)
            folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="thrash-")))
            where = undo.enter_context(ground(folder))
            for seed in range(options.seed, options.seed + options.seeds):
                print(f"seed {seed}:", *plan(seed, 60 * options.minutes), sep="\n  ", flush=True)
                witness = thrash(where, folder, seed, 60 * options.minutes)
                report(seed, options.minutes, witness, folder)
                bad += [seed] if witness.violations else []
    except (LabError, StackError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if bad:
        print(f"Violations in {len(bad)} of {options.seeds} seeds: {', '.join(map(str, bad))}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
