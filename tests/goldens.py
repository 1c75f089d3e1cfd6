"""The whole exposition of each fixture machine, as a reviewed file that shows the effect of a change."""

from __future__ import annotations

from pathlib import Path

from machine import Machine
from machines import MACHINES, At
from pinchpoint.build import HostSampler
from pinchpoint.clock import Clock as SteadyClock
from pinchpoint.probes import PROBES, Host
from pinchpoint.probes.self_cost import SelfCost
from pinchpoint.wire.exposition import text

FOLDER = Path(__file__).parent / "golden"
TICK = 1 / 16
"""Seconds; a power of two, so that sums of it are exact."""
UNIX = SteadyClock(lambda: 1_600_000_000.0, lambda: 0.0)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def exposition(host: Host, at: At = lambda time: None, *, seconds: float = 1.0, interval: float = 2 * TICK) -> str:
    """Return the exposition of the machine after `seconds`.

    The exporter's own cost is left out: it depends on the machine that runs the test.
    """
    clock = Clock()
    probes = [probe(host) for probe in PROBES if probe is not SelfCost]
    sampler = HostSampler(probes, interval, clock=clock, unix=UNIX, cpu=clock)
    sampler.host = host
    for tick in range(int(seconds / TICK) + 1):
        clock.now = tick * TICK
        at(clock.now)
        sampler.step()
    lines = text(sampler.points())
    for probe in probes:
        probe.close()
    return lines


def expositions(folder: Path) -> dict[str, str]:
    """Return the exposition of each fixture machine by its name; the machines are built in `folder`."""
    found = {}
    for name, build in MACHINES.items():
        machine = Machine(folder / name)
        at = build(machine)
        if name == "vm":  # it has two states, a second apart, so it cannot be sampled more often
            found[name] = exposition(machine.host(), at, interval=1.0)
        elif name == "xeon":  # clocks are read every 5 s
            found[name] = exposition(machine.host(), at, seconds=5.0)
        else:
            found[name] = exposition(machine.host(), at)
    return found
