"""The profile of a thread against what it did: a program that spends known shares of its CPU time in five ways.

The program measures its shares by the clock of its own thread; samples are taken meanwhile, all of it at 49 Hz.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from pinchpoint.profile.binaries import Binaries, Image
from pinchpoint.profile.classes import Frame, load_costs
from pinchpoint.profile.collected import Collector
from pinchpoint.profile.perf_events import PerfError, ThreadEvent, parse_records
from pinchpoint.profile.unwind import unwind

GROUP = "Profile of full threads"
SOURCE = Path(__file__).parents[1] / "loads" / "profiled.cc"
CPU_SECONDS = 30
"""So many give 1,470 samples: a share of 30 % is then right to within 2.4 points, 19 times of 20."""
FREQUENCY = 49.0
MAX_ERROR = 0.05


def test_five_classes_have_their_shares_within_5_points(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    subprocess.run([compiler, "-O2", "-fomit-frame-pointer", "-o", tmp_path / "profiled", SOURCE], check=True)
    collector = Collector(load_costs())
    with subprocess.Popen(
        [tmp_path / "profiled", "shares", str(CPU_SECONDS)], stdout=subprocess.PIPE, text=True
    ) as run:
        time.sleep(0.2)  # until its libraries are mapped
        try:
            event = ThreadEvent(run.pid, FREQUENCY)
        except PerfError as error:
            run.kill()
            pytest.skip(str(error))
        image = Image(Path("/proc"), run.pid, Binaries(Path("/proc"), Path("/")))
        while run.poll() is None:
            for sample in parse_records(event.read()).samples:
                found = unwind(sample.registers, sample.stack, image.row, image.is_code)
                collector.add([frame(image, address) for address in found.frames], 1)
            time.sleep(0.1)
        event.close()
        assert run.stdout is not None
        truth = {name: float(share) for name, share in (line.split() for line in run.stdout)}

    shares = {name: collector.classes[name] / collector.samples for name in truth}
    assert {name: share for name, share in shares.items() if abs(share - truth[name]) > MAX_ERROR} == {}, truth


def frame(image: Image, address: int) -> Frame:
    place = image.place(address)
    if place is None or place.binary is None:
        return Frame("[unknown]", "[unknown]")
    return Frame(place.binary.symbols.name(place.address) or f"[{place.file}]", place.file)
