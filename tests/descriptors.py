"""What processes have open, BPF objects above all."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from pinchpoint.bpf import libbpf


def open_files() -> dict[str, str]:
    """Return what this process has open, by descriptor: files of others may be deleted meanwhile."""
    found = {}
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found[descriptor] = os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)")
        except OSError:
            continue  # it was the descriptor that listed the others
    return found


def bpf_ids(pid: int | str = "self") -> dict[str, set[int]]:
    """Return the ids of the programs, maps and links that a process has open."""
    found: dict[str, set[int]] = {"prog": set(), "map": set(), "link": set()}
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        values = {name: value for name, _, value in (line.partition(":") for line in lines)}
        # The description of a link also has the id of its program.
        for kind in ("link", "map", "prog"):
            if f"{kind}_id" in values:
                found[kind].add(int(values[f"{kind}_id"]))
                break
    return found


def exist(ids: dict[str, set[int]]) -> bool:
    """Return whether any of these still exist in the kernel."""
    library = ctypes.CDLL(libbpf.LIBRARY)
    for kind, numbers in ids.items():
        for number in numbers:
            if (descriptor := library[f"bpf_{kind}_get_fd_by_id"](number)) >= 0:
                os.close(descriptor)
                return True
    return False
