"""Memory available to programs here; as a script, in MiB, for scripts/test."""

from __future__ import annotations

from pathlib import Path

__all__ = ["available"]


def available(root: Path = Path("/")) -> int:
    """Return how many bytes are available, at most the limit of our cgroup.

    Sources: MemAvailable, proc(5); memory.max, Documentation/admin-guide/cgroup-v2.rst; memory.limit_in_bytes,
    cgroup-v1/memory.rst.
    """
    lines = (root / "proc/meminfo").read_text().splitlines()
    found = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            file = root / "sys/fs/cgroup" / path.lstrip("/") / "memory.max"
        elif "memory" in controllers.split(","):
            file = root / "sys/fs/cgroup/memory" / path.lstrip("/") / "memory.limit_in_bytes"
        else:
            continue
        if file.is_file() and (limit := file.read_text().strip()) != "max":
            found.append(int(limit))
    return min(found)


if __name__ == "__main__":
    print(available() >> 20)
