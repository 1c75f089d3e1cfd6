"""A command below `pinchpoint run` has the same environment and the same output as without it."""

from __future__ import annotations

import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patience import Deadline, patience

Run = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Start `pinchpoint run` from a shell, after `before` and with the redirections `redirect`."""

    def start(*argv: str, before: str = ":", redirect: str = "", **options: Any) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "COLUMNS": "120"}
        paths = [f"--path.runs={tmp_path / 'runs'}"]
        command = shlex.join([sys.executable, "-m", "pinchpoint", "run", *paths, "--quiet", "--", *argv])
        shell = ["sh", "-c", f"{before}; exec {command} {redirect}"]
        return subprocess.Popen(shell, env=environment, cwd=tmp_path, **{"stdout": -1, "stderr": -1, **options})

    return start


def kept(tmp_path: Path) -> Path:
    (directory,) = (tmp_path / "state" / "pinchpoint" / "runs").iterdir()
    return directory / "stdout"


def script_of(path: Path, text: bytes) -> Path:
    path.write_bytes(text)
    path.chmod(0o755)
    return path


def test_the_command_has_the_limits_of_open_files_that_we_were_started_with(run: Run) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    process = run("sh", "-c", "ulimit -Sn; ulimit -Hn", before="ulimit -Sn 200")

    stdout = process.communicate(timeout=patience(60))[0].decode().split()

    assert stdout == ["200", "unlimited" if hard == resource.RLIM_INFINITY else str(hard)]


def test_the_command_starts_also_where_we_keep_more_files_open_than_it_may(tmp_path: Path) -> None:
    script = (
        "import os, resource, sys\n"
        "from pinchpoint.session.supervise import Command\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))\n"
        "command = Command()\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))\n"
        "files = [open(os.devnull) for _ in range(200)]\n"
        "command.start(['sh', '-c', 'ulimit -Sn'], open(sys.argv[1], 'wb'))\n"
        "status = command.wait()\n"
        "print(status, resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )

    done = subprocess.run([sys.executable, "-c", script, tmp_path / "kept"], capture_output=True, timeout=patience(60))

    assert (done.stdout, done.stderr) == (b"100\n0 300\n", b"")


def test_output_that_comes_while_nothing_of_us_has_a_cpu_is_not_lost(tmp_path: Path) -> None:
    script = (
        "import select, sys\n"
        "from pinchpoint.session import supervise\n"
        "poll = select.poll\n"
        "class Starved:\n"
        "    def __init__(self):\n"
        "        self.register = (polled := poll()).register\n"
        "        self.poll = lambda limit: polled.poll(limit) or command._closing.wait() and []\n"
        "supervise.select.poll = Starved\n"
        "command = supervise.Command()\n"
        "command.start(['sh', '-c', 'sleep 0.5; echo late'], open(sys.argv[1], 'wb'))\n"
        "command.wait()\n"
    )

    done = subprocess.run([sys.executable, "-c", script, tmp_path / "kept"], capture_output=True, timeout=patience(60))

    assert (done.stdout, done.stderr) == (b"late\n", b"")
    assert (tmp_path / "kept").read_bytes() == b"late\n"


def test_what_a_process_prints_that_the_command_left_behind_passes_through(run: Run, tmp_path: Path) -> None:
    script = "sh -c 'read line <fifo; echo late; echo more' 2>/dev/null & echo early; exit 3"
    os.mkfifo(tmp_path / "fifo")
    process = run("sh", "-c", script)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.wait(patience(60)) == 3
    assert "left behind go on" in process.stderr.read().decode()

    (tmp_path / "fifo").write_text("\n")

    assert process.stdout.read() == b"early\nlate\nmore\n"
    assert kept(tmp_path).read_bytes() == b"early\n"


def test_a_process_that_the_command_left_behind_and_that_never_stops_printing_does_not_hold_it(run: Run) -> None:
    process = run("sh", "-c", "yes & exit 3")
    assert process.stdout is not None
    while process.poll() is None:
        process.stdout.read(1 << 16)

    process.stdout.close()

    assert process.returncode == 3


def test_the_command_ignores_no_signal_that_only_python_ignores(run: Run) -> None:
    process = run("grep", "SigIgn", "/proc/self/status")

    ignored = int(process.communicate(timeout=patience(60))[0].split()[1], 16)

    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


def test_a_signal_that_the_caller_ignores_stays_ignored(run: Run) -> None:
    process = run("grep", "SigIgn", "/proc/self/status", before="trap '' HUP")

    ignored = int(process.communicate(timeout=patience(60))[0].split()[1], 16)

    assert ignored & (1 << signal.SIGHUP - 1)


@pytest.mark.parametrize("searched", [False, True])
def test_a_script_without_an_interpreter_line_is_run_by_sh(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searched: bool
) -> None:
    script = script_of(tmp_path / "plain", b'echo "$0:$1:$2"\nexit 4\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    process = run("plain" if searched else str(script), "a b", "c")

    stdout = process.communicate(timeout=patience(60))[0]

    assert (process.returncode, stdout) == (4, f"{script}:a b:c\n".encode())


def test_a_binary_of_another_machine_is_one_clear_line(run: Run, tmp_path: Path) -> None:
    script = script_of(tmp_path / "foreign", b"\x7fELF\x02\x01\x01" + bytes(57))
    process = run(str(script))

    stderr = process.communicate(timeout=patience(60))[1].decode()

    assert (process.returncode, stderr) == (126, f"pinchpoint: {script}: Exec format error\n")


def test_a_non_blocking_standard_output_that_is_full_for_a_while_loses_nothing(run: Run, tmp_path: Path) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    process = run("sh", "-c", "head -c 1000000 /dev/zero; exit 3", stdout=write)
    os.close(write)
    # More is kept than the pipe holds (64 KiB): the next write finds it full.
    deadline = Deadline(30)
    while sum(file.stat().st_size for file in tmp_path.glob("state/pinchpoint/runs/*/stdout")) <= 1 << 16:
        assert process.poll() is None
        assert not deadline.over
        time.sleep(0.02)

    with open(read, "rb") as file:
        data = file.read()
    process.communicate(timeout=patience(60))

    assert data == bytes(1000000)
    assert process.returncode == 3


@pytest.mark.parametrize(("status", "ours"), [(0, 1), (3, 3)])
def test_a_full_disk_below_standard_output_lets_the_command_go_on_but_is_no_success(
    run: Run, tmp_path: Path, status: int, ours: int
) -> None:
    process = run("sh", "-c", f"echo one; sleep 0.1; echo two; exit {status}", redirect=">/dev/full")

    stderr = process.communicate(timeout=patience(60))[1].decode()

    path = kept(tmp_path)
    reason = f"standard output: No space left on device: the rest of the output is only in {path}"
    assert process.returncode == ours
    assert f"pinchpoint: warning: {reason}\n" in stderr
    assert "Traceback" not in stderr
    assert path.read_text() == "one\ntwo\n"


def test_a_full_disk_below_the_kept_output_is_said_and_all_the_rest_goes_on() -> None:
    script = (
        "import sys\n"
        "from pinchpoint.session.supervise import Command\n"
        "command = Command()\n"
        "with open('/dev/full', 'wb') as keep:\n"
        "    command.start(['sh', '-c', 'echo one; sleep 0.1; echo two'], keep)\n"
        "    status = command.wait()\n"
        "print(status, command.failure, command.warnings)\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=patience(60))

    warning = "/dev/full: No space left on device: it lacks a part of the output"
    assert (done.stdout.decode(), done.stderr) == (f"one\ntwo\n0 0 {[warning]}\n", b"")


@pytest.mark.parametrize("redirect", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_standard_stream_that_the_caller_closed_is_no_trouble(run: Run, tmp_path: Path, redirect: str) -> None:
    process = run("sh", "-c", "echo out; readlink /proc/$$/fd/0 /proc/$$/fd/2; exit 5", redirect=redirect, stdin=-3)

    stdout, stderr = process.communicate(timeout=patience(60))

    lines = kept(tmp_path).read_text().splitlines()
    assert process.returncode == 5
    assert lines[0] == "out"
    # The command has the same descriptors open as the caller.
    assert len(lines) == 1 + ("<&-" not in redirect) + ("2>&-" not in redirect)
    assert stdout == (b"" if ">&-" in redirect.split() else kept(tmp_path).read_bytes())
    assert b"Traceback" not in stderr
    assert (b"saved in" in stderr) == ("2>&-" not in redirect)


def test_a_standard_error_that_is_full_does_not_change_the_exit_status(run: Run) -> None:
    process = run("sh", "-c", "exit 6", redirect="2>/dev/full")

    process.communicate(timeout=patience(60))

    assert process.returncode == 6


def test_a_standard_error_that_nobody_reads_does_not_change_the_exit_status(run: Run) -> None:
    process = run("sh", "-c", "read line; exit 6", stdin=-1)
    assert process.stderr is not None
    process.stderr.close()
    process.stderr = None

    process.communicate(b"\n", timeout=patience(60))

    assert process.returncode == 6


def test_whoever_is_asked_to_stop_before_there_is_a_command_knows_it() -> None:
    """A terminal's Ctrl-C reaches only the processes that are there."""
    code = (
        "import signal; from pinchpoint.session.supervise import Command; child = Command(); "
        "before = child.asked_to_stop(); signal.raise_signal(signal.SIGINT); "
        "signal.signal(signal.SIGHUP, signal.SIG_IGN); signal.raise_signal(signal.SIGHUP); "
        "print(before, child.asked_to_stop(), flush=True); import os; os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert done.stdout == f"0 {int(signal.SIGINT)}\n".encode()
