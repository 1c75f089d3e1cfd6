"""The unit of systemd, as far as it can be tested without systemd as the first process."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from native import TREE
from pinchpoint.host.capabilities import Capability, names
from pinchpoint.probes import PROBES

UNIT, USERS = TREE / "compose" / "pinchpoint.service", TREE / "compose" / "pinchpoint.sysusers"
MOUNT = TREE / "compose" / "run-pinchpoint.mount"
MAX_EXPOSURE_TENTHS = 40
"""Exposure level of `systemd-analyze security` in tenths; root without a sandbox has 96."""
NEEDED = {
    capability
    for probe in PROBES
    for capability in (*probe.capabilities, *probe.start_capabilities, *probe.helper_capabilities)
}


def setting(name: str) -> str:
    (found,) = (line for line in UNIT.read_text().splitlines() if line.startswith(f"{name}="))
    return found.removeprefix(f"{name}=")


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `systemd-analyze`; skip the test where it is missing or too old."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: Debian's package systemd has it")
    done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot judge a file: it needs systemd 250 or newer")
    return done


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """Return a copy of the unit whose program exists on every machine."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace(setting("ExecStart").split()[0], "/bin/true"))
    return copy


def test_the_service_has_the_capabilities_that_the_probes_need_and_no_others() -> None:
    needed = names(NEEDED).replace(",", "")

    assert setting("AmbientCapabilities") == setting("CapabilityBoundingSet") == needed


def test_a_probe_that_asks_for_a_real_time_priority_says_that_it_needs_the_right() -> None:
    asking = {probe.name for probe in PROBES if probe.fast or probe.urgent}

    assert {probe.name for probe in PROBES if Capability.SYS_NICE in probe.capabilities} == asking


def test_its_markers_are_in_a_bounded_file_system_for_every_user() -> None:
    lines = MOUNT.read_text().splitlines()

    assert f"Where={setting('RequiresMountsFor')}" in lines
    assert setting("RequiresMountsFor").removeprefix("/").replace("/", "-") == MOUNT.stem
    (options,) = (line.partition("=")[2].split(",") for line in lines if line.startswith("Options="))
    assert {"mode=1777", "nosuid", "nodev", "noexec"} <= set(options)
    assert {option.partition("=")[0] for option in options} >= {"size", "nr_inodes"}


def test_its_user_is_the_one_that_sysusers_makes() -> None:
    (line,) = (line for line in USERS.read_text().splitlines() if not line.startswith("#"))

    assert line.split()[:2] == ["u", setting("User")]
    assert setting("Group") == setting("User")


def test_systemd_understands_every_line(unit: Path) -> None:
    done = analyze("verify", str(unit))

    assert (done.stderr, done.returncode) == ("", 0)


def test_its_exposure_is_low(unit: Path) -> None:
    done = analyze("security", "--offline=true", f"--threshold={MAX_EXPOSURE_TENTHS}", "--no-pager", str(unit))

    assert done.returncode == 0, done.stdout[-200:]
