from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pinchpoint.experiment.knob import Knob, KnobCommands, KnobError, kept
from pinchpoint.experiment.shell import ShellError, run


def knob(directory: Path, set_: str = "echo on > knob", undo: str = 'echo "$PINCHPOINT_OLD" > knob') -> Knob:
    (directory / "knob").write_text("off\n")
    return Knob(KnobCommands(set_, undo, "cat knob", 5.0), directory, pause=lambda seconds: None)


def test_a_knob_is_read_set_and_restored(tmp_path: Path) -> None:
    found = knob(tmp_path)

    assert found.read() == "off"
    assert found.set("off") == "on"
    found.undo("off")
    assert found.read() == "off"


def test_an_undo_that_fails_once_is_tried_again(tmp_path: Path) -> None:
    knob(tmp_path, undo="[ -e tried ] && echo off > knob || { touch tried; exit 1; }").undo("off")


def test_an_undo_that_fails_but_leaves_the_old_value_is_a_restored_knob(tmp_path: Path) -> None:
    knob(tmp_path, undo="exit 1").undo("off")


def test_the_commands_see_the_same_environment_now_and_after_a_crash() -> None:
    assert kept({"PATH": "/bin", "CEPH_CONF": "c", "SECRET": "s"}) == {"PATH": "/bin", "CEPH_CONF": "c"}


def test_a_value_may_have_several_lines_and_no_end(tmp_path: Path) -> None:
    (tmp_path / "knob").write_text("a\nb")
    assert Knob(KnobCommands("", "", "cat knob"), tmp_path).read() == "a\nb"
    with pytest.raises(KnobError, match="more than 4096 characters"):
        Knob(KnobCommands("", "", "seq 10000"), tmp_path).read()


@pytest.mark.parametrize("raw", [b"\xff", b"a\0c"])
def test_a_value_that_the_environment_cannot_hold_is_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "knob").write_bytes(raw)
    with pytest.raises(KnobError, match=r"not UTF-8 text: \$PINCHPOINT_OLD cannot hold them"):
        Knob(KnobCommands("", "", "cat knob"), tmp_path).read()


def test_standard_output_is_the_value_and_standard_error_the_complaint() -> None:
    assert run("echo value; echo noise >&2", seconds=5) == "value"
    with pytest.raises(ShellError, match=r"`false` ended with status 1$"):
        run("false", seconds=5)
    with pytest.raises(ShellError, match="ended with SIGTERM"):
        run("kill -TERM $$", seconds=5)
    with pytest.raises(ShellError, match=r"was not started: .*no-such-directory"):
        run("true", seconds=5, directory=Path("/no-such-directory"))


def test_a_command_in_the_background_does_not_keep_us_waiting() -> None:
    pid = int(run("sleep 600 & echo $!", seconds=60))

    os.kill(pid, signal.SIGKILL)  # it still runs
