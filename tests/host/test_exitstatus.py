from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from pinchpoint.host.exitstatus import ExitWatch, own_pids, signal_name


def tells() -> bool:
    child = subprocess.Popen(["true"])
    watch = ExitWatch(child.pid)
    child.wait()
    return watch.close() is not None


needs_kernel = pytest.mark.skipif(not tells(), reason="this kernel does not report it (needs Linux 6.15)")


@needs_kernel
def test_the_exit_status_of_a_process_that_is_not_our_child_is_known() -> None:
    script = "(read line; exit 7) <&3 & echo $!; wait"
    read, write = os.pipe()
    os.set_inheritable(read, True)
    parent = subprocess.Popen(["bash", "-c", script.replace("<&3", f"<&{read}")], stdout=-1, pass_fds=[read])
    assert parent.stdout is not None
    watch = ExitWatch(int(parent.stdout.readline()))
    os.write(write, b"\n")
    parent.communicate()
    os.close(read)
    os.close(write)

    assert os.waitstatus_to_exitcode(watch.close() or 0) == 7


@needs_kernel
def test_a_signal_that_ended_a_process_is_known() -> None:
    child = subprocess.Popen(["sleep", "60"])
    watch = ExitWatch(child.pid)
    child.kill()
    child.wait()

    assert os.waitstatus_to_exitcode(watch.close() or 0) == -signal.SIGKILL


def test_a_process_that_runs_or_has_gone_has_no_status_and_is_no_error() -> None:
    child = subprocess.Popen(["true"])
    child.wait()

    assert ExitWatch(os.getpid()).close() is None
    assert ExitWatch(child.pid).close() is None


def test_nothing_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        ExitWatch(os.getpid()).close()

    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(("link", "own"), [("own", True), ("1", False), (None, False)])
def test_pids_are_ours_where_proc_knows_us_by_our_own(tmp_path: Path, link: str | None, *, own: bool) -> None:
    if link is not None:
        (tmp_path / "self").symlink_to(str(os.getpid()) if own else link)

    assert own_pids(tmp_path) is own


@pytest.mark.parametrize(
    ("number", "name"), [(9, "SIGKILL"), (34, "SIGRTMIN"), (40, "SIGRTMIN+6"), (64, "SIGRTMAX"), (33, "signal 33")]
)
def test_every_signal_has_a_name(number: int, name: str) -> None:
    assert signal_name(number) == name
