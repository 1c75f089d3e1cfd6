"""The memory available to tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory import available


@pytest.mark.parametrize(
    ("cgroup", "file", "limit", "found"),
    [
        ("0::/", "memory.max", "max", 8 << 30),
        ("0::/a/b", "a/b/memory.max", str(2 << 30), 2 << 30),
        ("0::/a", "a/memory.max", str(16 << 30), 8 << 30),
        ("4:cpu,cpuacct:/\n3:memory:/small\n0::/", "memory/small/memory.limit_in_bytes", str(1 << 30), 1 << 30),
        ("0::/", "other", "", 8 << 30),
    ],
    ids=["none", "its limit", "more than there is", "version 1", "no controller"],
)
def test_memory_is_what_the_machine_has_left_and_its_cgroup_may_use(
    tmp_path: Path, cgroup: str, file: str, limit: str, found: int
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n")
    (tmp_path / "proc/self/cgroup").write_text(f"{cgroup}\n")
    path = tmp_path / "sys/fs/cgroup" / file
    path.parent.mkdir(parents=True)
    path.write_text(f"{limit}\n")

    assert available(tmp_path) == found
