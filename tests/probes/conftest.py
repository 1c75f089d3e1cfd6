"""Fixtures for the tests that read the machine they run on."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from machine import Machine
from pinchpoint.probes import Host
from pinchpoint.threads.processes import Processes


@pytest.fixture
def this_host(machine: Machine) -> Host:
    """Return the machine that the tests run on, with the tests' own runs."""
    procfs = Path("/proc")
    if not (procfs / "self" / "stat").exists():
        pytest.skip("this machine has no procfs")
    host = machine.host()
    return replace(
        host, procfs=procfs, sysfs=Path("/sys"), rootfs=Path("/"), processes=Processes(procfs, host.roles)
    )  # fmt: skip
