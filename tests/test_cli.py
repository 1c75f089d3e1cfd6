from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from patience import patience
from pinchpoint.cli import main
from pinchpoint.commands import metrics


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["runs"],
        ["runs", "--json"],
        ["metrics"],
        ["rules"],
        ["watch", "--once", "--target=127.0.0.1:1"],
        ["watch", "--once", "--stacks"],
    ],
    ids=" ".join,
)
def test_output_that_cannot_be_written_is_one_line(argv: list[str], tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pinchpoint", *argv],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
            timeout=patience(60),
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr.decode() == "pinchpoint: standard output: No space left on device\n"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError("can't start new thread"), "pinchpoint: can't start new thread\n"),
        (MemoryError(), "pinchpoint: out of memory\n"),
        (OSError(errno.EMFILE, "Too many open files", "/proc/stat"), "pinchpoint: /proc/stat: Too many open files\n"),
    ],
    ids=["threads", "memory", "descriptors"],
)
def test_a_limit_of_the_host_is_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception, line: str) -> None:
    def refuse(*_: object) -> str:
        raise error

    monkeypatch.setattr(metrics, "table", refuse)

    result = CliRunner().invoke(main, ["metrics"])

    assert (result.exit_code, result.stderr) == (1, line)


def test_a_mistake_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(metrics, "table", fail)

    result = CliRunner().invoke(main, ["metrics"])

    assert isinstance(result.exception, RuntimeError)


@pytest.mark.parametrize(
    "command",
    [
        ["watch", "--interval", "nan"],
        ["judge", "--interval", "nan"],
        ["replay", "--speed", "nan", "last"],
        ["replay", "--once", "--at", "nan", "last"],
        ["experiment", "run", "--effect", "nan", "true"],
    ],
    ids=" ".join,
)
def test_what_is_not_a_number_is_refused(command: Sequence[str]) -> None:
    result = CliRunner().invoke(main, command)

    assert result.exit_code == 2
    assert "is not a number" in result.output


@pytest.mark.parametrize("redirect", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("argv", ["runs", "docs users", "metrics", "watch --once --target=127.0.0.1:1"])
def test_a_command_whose_standard_streams_are_closed_ends_as_it_would_otherwise(
    argv: str, redirect: str, tmp_path: Path
) -> None:
    def status(redirect: str) -> subprocess.CompletedProcess[str]:
        command = f"{sys.executable} -m pinchpoint {argv} {redirect}"
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
        return subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)

    found = status(redirect)

    assert found.returncode == status("").returncode
    assert "Traceback" not in found.stderr
