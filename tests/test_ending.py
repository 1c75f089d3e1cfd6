"""A process ends at once with its status, whatever its threads do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from patience import patience

ENDLESS_THREAD = "import threading; threading.Thread(target=threading.Event().wait).start(); "
"""A thread for which the interpreter would wait."""


def ended(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)


def test_what_is_buffered_is_written_and_exit_handlers_are_called() -> None:
    program = "import atexit; from pinchpoint.ending import leave; atexit.register(print, 'handled'); "
    done = ended(f"{ENDLESS_THREAD}{program} print('said', end=' '); leave(7)")

    assert (done.returncode, done.stdout, done.stderr) == (7, "said handled\n", "")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("state", ["sys.{}.close()", "sys.{} = None"])
def test_output_that_is_closed_changes_nothing(stream: str, state: str) -> None:
    done = ended(f"import sys; from pinchpoint.ending import leave; {state.format(stream)}; leave(7)")

    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


@pytest.mark.parametrize(("arguments", "status"), [(["--version"], 0), (["no-such-command"], 2)])
def test_a_command_waits_for_no_thread(arguments: list[str], status: int) -> None:
    done = ended(f"{ENDLESS_THREAD}from pinchpoint.cli import start; start()", *arguments)

    assert done.returncode == status
