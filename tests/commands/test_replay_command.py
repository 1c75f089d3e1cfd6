from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kept_runs import RUN, keep, second
from patience import Deadline
from pinchpoint.commands import replay
from pinchpoint.commands.replay import command
from pinchpoint.model import Snapshots
from pinchpoint.wire.sources import RecordingSource


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def run() -> None:
    """A run whose disk is idle in its first phase, and full in its second."""
    keep(moments())


def moments() -> list[Snapshots]:
    idle = [second(number, full=False) for number in range(10)]
    return idle + [second(number, full=True) for number in range(10, 21)]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


@pytest.mark.usefixtures("run")
def test_once_prints_the_end_with_all_hosts() -> None:
    result = invoke("--once", "last")

    assert result.exit_code == 0
    assert result.output.startswith(f"{RUN} at 0:20 of 0:20\nhere (replay)")
    assert len(re.findall(r"filesystem_kernel +vda .* 100% +100% FULL\n", result.output)) == 2
    assert "there (replay)" in result.output


@pytest.mark.usefixtures("run")
def test_at_shows_the_state_at_that_time_of_the_run() -> None:
    idle, full = invoke("--once", "--at", "8.5", "base"), invoke("--once", "--at", "15", "base")

    assert idle.output.startswith(f"{RUN} at 0:08 of 0:20\n")
    assert "nothing is busy" in idle.output
    assert full.output.startswith(f"{RUN} at 0:14 of 0:20\n")
    assert "FULL" in full.output


@pytest.mark.usefixtures("run")
def test_before_a_second_moment_there_is_no_picture_and_no_failure() -> None:
    result = invoke("--once", "--at", "0.5", "last")

    assert result.exit_code == 0
    assert "Traceback" not in result.output


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("begin", ["read", "10"])
def test_a_replay_begins_at_a_phase_or_at_a_time_and_ends_with_the_run(begin: str) -> None:
    result = invoke("--speed", "100", "--from", begin, "last")
    titles = re.findall(rf"^{RUN} at (\S+) of 0:20$", result.output, re.MULTILINE)

    assert result.exit_code == 0
    assert titles
    assert titles[0] >= "0:09"
    assert titles[-1] == "0:20"


def test_the_clock_of_a_replay_goes_as_fast_as_was_asked() -> None:
    path = keep(moments())
    record, _ = replay.open_recording("last")
    shown = replay._Replay(RecordingSource(path), record.marker, 4.0)
    shown.step(100.0)
    titles = []
    for now in (101.0, 102.0, 103.0):
        shown.step(now)
        titles.append(shown.title())
    shown.press(b" ")
    shown.step(104.0)
    paused = shown.title(), shown.footer()
    shown.press(b" ")
    shown.step(105.0)

    assert [title.split()[2] for title in titles] == ["0:04", "0:08", "0:12"]
    assert paused == (titles[-1], f"q quits, space pauses; paused; {titles[-1]}")
    assert shown.title().split()[2] == "0:16"


def test_reading_that_is_slower_than_the_speed_lets_keys_be_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_READING_SECONDS", 0.0)
    path = keep(moments())
    record, _ = replay.open_recording("last")
    shown = replay._Replay(RecordingSource(path), record.marker, 1000.0)
    shown.step(100.0)
    seen = []
    for now in range(101, 140):
        shown.step(float(now))
        seen.append(shown.title().split()[2])

    assert seen[:3] == ["0:01", "0:02", "0:03"]
    assert seen[-1] == "0:20"
    assert shown.ended


def test_a_host_that_gave_nothing_for_a_while_is_shown_as_lost() -> None:
    lonely = [second(number, full=True, hosts=["here"]) for number in range(5, 10)]
    keep([*(second(number, full=True) for number in range(5)), *lonely])

    assert re.search(r"there  DOWN for 0:05: no samples in the recording", invoke("--once", "last").output)


def test_a_damaged_recording_is_shown_as_far_as_it_is_whole(tmp_path: Path) -> None:
    path = keep((second(number, full=True) for number in range(20)), ended=False)
    path.write_bytes(path.read_bytes() + b"rubbish")
    result = invoke("--once", "last")

    assert result.exit_code == 0
    assert f"{RUN} at 0:19\n" in result.output
    assert "damaged behind its first 20 moments" in result.output


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--from", "nix", "last"], 2, "'nix' is neither a phase of .* nor a number .*: its phases are write, read"),
        (["--from", "-1", "last"], 2, "'-1' is neither a phase"),
        (["--at", "3", "last"], 2, "give --once with it"),
        (["--once", "--from", "read", "last"], 2, "give --at for the time of one picture"),
        (["--speed", "0", "last"], 2, "0.0 is not in the range"),
        (["nosuch"], 1, "no run is 'nosuch'"),
    ],
)
def test_a_wrong_argument_is_told_with_the_way_out(arguments: list[str], status: int, message: str) -> None:
    result = invoke(*arguments)

    assert result.exit_code == status
    assert re.search(message, result.output)


@pytest.mark.parametrize(("content", "reason"), [(b"garbage", "not a recording"), (b"", "has no samples")])
def test_a_recording_that_holds_nothing_is_told_in_one_line(content: bytes, reason: str) -> None:
    path = keep([])
    path.write_bytes(content)
    result = invoke("--once", "last")

    assert result.exit_code == 1
    assert result.output.startswith(f"pinchpoint: {path}: {reason}")
    assert len(result.output.splitlines()) == 1


@pytest.mark.usefixtures("run")
def test_on_a_terminal_it_stays_at_the_end_until_q() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
        os.execv(sys.executable, [sys.executable, "-m", "pinchpoint", "replay", "--speed", "50", "last"])
    seen = b""
    deadline = Deadline(30)
    try:
        while b"the end; " not in seen:
            assert not deadline.over, seen
            seen += os.read(terminal, 65536)
        os.write(terminal, b"q")
        while data := os.read(terminal, 65536):
            seen += data
    except OSError:
        pass  # EIO: the other side has closed the terminal

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert f"{RUN} at 0:20 of 0:20".encode() in seen
    assert b"Traceback" not in seen


def test_a_pipe_that_breaks_ends_it_without_a_word(run: None) -> None:
    arguments = [sys.executable, "-m", "pinchpoint", "replay", "--speed", "2", "last"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        process.wait(60)

        assert process.stderr.read() == b""
