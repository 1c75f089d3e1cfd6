"""Reading sysfs: short files with one value each, any of which may be missing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pinchpoint.host.procfs import decode, read_bytes

__all__ = ["block_device_name", "cpufreq_policies", "read_int", "read_text", "turbo_disabled"]


def read_text(path: Path | str) -> str | None:
    """Return a short file's text with every run of white space as one blank; None where it can't be read."""
    try:
        return decode(b" ".join(read_bytes(path).split()))
    except OSError:
        return None


def read_int(path: Path | str) -> int | None:
    """Return the number that a file consists of; None where it can't be read or holds no 64-bit number."""
    try:
        value = int(read_bytes(path))
    except (OSError, ValueError):
        return None
    return value if abs(value) < 1 << 64 else None


def block_device_name(sysfs: Path, number: str) -> str:
    """Return the name of the block device MAJOR:MINOR, or the number where there is no such device."""
    try:
        # A slash in a device's name is an exclamation mark in sysfs (kobject_set_name_vargs, lib/kobject.c).
        return os.path.basename(os.readlink(sysfs / "dev" / "block" / number)).replace("!", "/")
    except OSError:
        return number


def cpufreq_policies(sysfs: Path) -> Sequence[Path]:
    """Return the directories of the cpufreq policies: policyN, before Linux 4.3 cpuN/cpufreq."""
    root = sysfs / "devices" / "system" / "cpu"
    return sorted(root.glob("cpufreq/policy[0-9]*")) or sorted(root.glob("cpu[0-9]*/cpufreq"))


def turbo_disabled(sysfs: Path) -> bool | None:
    """Return whether clocks above the base clock are switched off; None where the driver does not say."""
    root = sysfs / "devices" / "system" / "cpu"
    if (no_turbo := read_int(root / "intel_pstate" / "no_turbo")) is not None:
        return no_turbo != 0
    if (boost := read_int(root / "cpufreq" / "boost")) is not None:
        return boost == 0
    return None
