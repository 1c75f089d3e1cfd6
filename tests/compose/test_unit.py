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


CALLS = {"bpf", "perf_event_open", "setns", "sched_setscheduler", "setresuid", "setgroups", "prctl", "capset", "kill"}
"""System calls without which a probe or a helper is blind; most services make none of the first three."""


def calls_of(word: str) -> set[str]:
    """Return the system calls that a word of SystemCallFilter= stands for."""
    if not word.startswith("@"):
        return {word}
    lines = analyze("syscall-filter", word).stdout.splitlines()[1:]
    return {call for line in lines if not line.strip().startswith("#") for call in calls_of(line.strip())}


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


def test_the_sandbox_leaves_what_names_the_kernels_functions() -> None:
    """ProtectKernelLogs takes CAP_SYSLOG, ProtectKernelTunables hides kallsyms (systemd 252, core/namespace.c)."""
    lines = UNIT.read_text().splitlines()

    assert not [line for line in lines if line.startswith(("ProtectKernelLogs=", "ProtectKernelTunables="))]
    assert not [path for path in setting("InaccessiblePaths").split() if "kallsyms" in path]


def test_the_system_calls_of_the_probes_are_allowed() -> None:
    found: set[str] = set()
    for line in UNIT.read_text().splitlines():
        if line.startswith("SystemCallFilter="):
            words = line.removeprefix("SystemCallFilter=")
            calls = {call for word in words.removeprefix("~").split() for call in calls_of(word)}
            found = found - calls if words.startswith("~") else found | calls

    assert found >= CALLS


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
