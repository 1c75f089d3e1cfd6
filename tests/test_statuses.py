"""Every exit status that is documented is one that the command ends with."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from patience import patience
from pinchpoint.cli import COMMANDS, main
from pinchpoint.statuses import STATUSES
from polling import until
from ports import free_port

ROOT = Path(__file__).parent.parent
FULL = Path("/dev/full")
DOWN = "--target=127.0.0.1:1"


@dataclass(frozen=True)
class Trial:
    """A way to get a status."""

    command: str
    status: str
    arguments: tuple[str, ...] = ()
    want: int | None = None
    """The number, where the documented status is not one."""
    full: bool = False
    """Whether standard output is a full disk."""
    before: tuple[str, ...] = ()
    """The arguments of a command to run first, with the same state."""
    files: dict[str, str] = field(default_factory=dict)
    signal: int | None = None
    """The signal to send once it runs."""
    terminal: bool = False
    """Whether standard output is a terminal."""

    def __str__(self) -> str:
        return f"{self.command} {self.status}"


MARKERS = "--path.runs=markers"
JOB = ("--job=4711",)
RUN = ("run", "--quiet", "--name=base", MARKERS, "--", "true")
DIARY = str(ROOT / "tests" / "fixtures" / "seeds" / "io500-diary.txt")
PUBLIC = "list/SITE/SYSTEM/CephFS/2025/submission-1/result_summary.txt"
SUMMARY = (ROOT / "tests" / "fixtures" / "io500" / "cephfs-2025" / "result_summary.txt").read_text()
EXPORTER = ("--web.listen-address=127.0.0.1:PORT", "--no-probe.tasks", "--no-probe.kworkers")
JUDGE = ("--web.listen-address=127.0.0.1:PORT", DOWN)
TRIALS = [
    Trial("exporter", "0", EXPORTER, signal=signal.SIGTERM),
    Trial("exporter", "1", ("--help",), full=True),
    Trial("exporter", "2", ("--cost-limit=0",)),
    Trial("judge", "0", JUDGE, signal=signal.SIGTERM),
    Trial("judge", "1", ("--help",), full=True),
    Trial("judge", "2"),
    Trial("check", "1", ("--help",), full=True),
    Trial("check", "2", (DOWN,)),
    Trial("run", "N", (MARKERS, "--", "sh", "-c", "exit 7"), want=7),
    Trial("run", "N", (MARKERS, "--", "sh", "-c", "kill -TERM $$"), want=-signal.SIGTERM),
    Trial("run", "1", (MARKERS, "--", "echo", "text"), full=True),
    Trial("run", "2", (MARKERS, DOWN, "--", "true")),
    Trial("run", "126", (MARKERS, "--", "/etc/passwd")),
    Trial("run", "127", (MARKERS, "--", "there-is-no-such-command")),
    Trial("job begin", "0", (*JOB, "--user=root", "--path.runs=runs")),
    Trial("job begin", "1", (*JOB, "--user=root", "--path.runs=file/runs"), files={"file": ""}),
    Trial("job begin", "2", JOB),
    Trial("job end", "0", (*JOB, "--path.runs=runs")),
    Trial("job end", "1", (*JOB, "--path.runs=file/runs"), files={"file": ""}),
    Trial("job end", "2"),
    Trial("watch", "0", ("--once",)),
    Trial("watch", "1", ("--once", DOWN)),
    Trial("watch", "2", ("--interval=0",)),
    Trial("watch", "128+N", (DOWN,), want=128 + signal.SIGTERM, signal=signal.SIGTERM, terminal=True),
    Trial("import", "0", (DIARY,)),
    Trial("import", "1", ("gone",)),
    Trial("import", "2"),
    Trial("runs", "0"),
    Trial("runs", "1", full=True),
    Trial("runs", "2", ("--none",)),
    Trial("report", "0", ("last",), before=RUN),
    Trial("report", "1", ("none",)),
    Trial("report", "2", ("--none",)),
    Trial("standing", "0", ("--list=list",), before=("import", DIARY), files={PUBLIC: SUMMARY}),
    Trial("standing", "1", ("--list=.", "io500-diary-02"), before=RUN),
    Trial("standing", "2", ("--list=.",), before=("import", DIARY)),
    Trial("compare", "0", ("io500-diary-01", "io500-diary-02"), before=("import", DIARY)),
    Trial("compare", "1", ("one", "two")),
    Trial("compare", "2", ("base",), before=RUN),
    Trial("replay", "0", ("--once", "last"), before=RUN),
    Trial("replay", "1", ("none",)),
    Trial("replay", "2", ("--none",)),
    Trial("experiment run", "2", ("--pairs=3", "--", "true")),
    Trial("experiment restore", "0"),
    Trial("experiment restore", "1", full=True),
    Trial("experiment restore", "2", ("--none",)),
    Trial("experiment list", "0"),
    Trial("experiment list", "1", full=True),
    Trial("experiment list", "2", ("--none",)),
    *[Trial(f"experiment {command}", "1", ("none",)) for command in ("suggest", "show", "export")],
    *[Trial(f"experiment {command}", "2", ("--none",)) for command in ("suggest", "show", "export")],
    Trial("experiment suggest", "0", ("last",), before=RUN),
    Trial("export", "0", ("-o", "out", "last"), before=RUN),
    Trial("export", "1", ("none",)),
    Trial("export", "2", ("--end=never", "none")),
    *[Trial(command, "0") for command in ("rules", "metrics", "runbook", "docs", "version")],
    *[Trial(command, "1", full=True) for command in ("rules", "metrics", "version")],
    *[Trial(command, "1", ("none",)) for command in ("runbook", "docs")],
    *[Trial(command, "2", ("--none",)) for command in ("rules", "metrics", "runbook", "docs", "version")],
    Trial("dashboards write", "0", ("bundle",)),
    Trial("dashboards write", "1", (".",), files={"dashboards": "a file in the way"}),
    Trial("dashboards write", "2"),
    Trial("dashboards install", "1", ("--url=http://127.0.0.1:1",)),
    Trial("dashboards install", "2"),
    Trial("config check", "0", ("good",), files={"good": "rest = false"}),
    Trial("config check", "1", ("bad",), files={"bad": "rest = 5"}),
    Trial("config check", "2"),
]
ELSEWHERE = {
    ("dashboards install", "0"): "tests/commands/test_dashboards.py",
    ("check", "0"): "tests/commands/test_check_command.py",
    ("replay", "128+N"): "tests/commands/test_replay_command.py",
    **dict.fromkeys(
        [
            *[("experiment run", status) for status in ("0", "1", "3", "128+N")],
            *[("experiment restore", "3"), ("experiment show", "0"), ("experiment export", "0")],
        ],
        "tests/commands/test_experiment.py",
    ),
}
"""What takes a host without problems, a Grafana, a terminal and a recording, or an experiment."""


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    """Return an environment with saved runs and markers of its own."""
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_RUNTIME_DIR": str(tmp_path), "TERM": "xterm"}


def command_line(trial: Trial, port: int) -> list[str]:
    arguments = [argument.replace("PORT", str(port)) for argument in trial.arguments]
    return [sys.executable, "-m", "pinchpoint", *trial.command.split(), *arguments]


@contextmanager
def output(trial: Trial) -> Iterator[int]:
    if trial.terminal:
        master, slave = pty.openpty()
        yield slave
        os.close(slave)
        os.close(master)
        return
    with FULL.open("wb") if trial.full else open(os.devnull, "wb") as stream:
        yield stream.fileno()


def listens(pid: int) -> bool:
    """Return whether the process catches SIGTERM: until then it would only kill it."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def apart(trial: Trial) -> bool:
    """Return whether it takes a process of its own."""
    return trial.full or trial.signal is not None or trial.command == "run"


@pytest.mark.parametrize("trial", [trial for trial in TRIALS if not apart(trial)], ids=str)
def test_the_command_returns_the_status(
    trial: Trial, tmp_path: Path, state: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in trial.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    if trial.before:
        command = [sys.executable, "-m", "pinchpoint", *trial.before]
        subprocess.run(command, cwd=tmp_path, env=state, check=True, stdout=subprocess.DEVNULL)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, [*trial.command.split(), *trial.arguments], env=state)

    assert done.exit_code == int(trial.status), done.output


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("trial", [trial for trial in TRIALS if apart(trial)], ids=str)
def test_the_command_ends_with_the_status(trial: Trial, tmp_path: Path, state: dict[str, str]) -> None:
    with output(trial) as stdout:
        process = subprocess.Popen(
            command_line(trial, free_port()), stdin=stdout if trial.terminal else subprocess.DEVNULL, stdout=stdout,
            stderr=subprocess.PIPE, cwd=tmp_path, env=state,
        )  # fmt: skip
        try:
            if trial.signal is not None:
                until(30, lambda: listens(process.pid))
                process.send_signal(trial.signal)
            _, said = process.communicate(timeout=patience(60))
        finally:
            process.kill()

    assert process.returncode == (int(trial.status) if trial.want is None else trial.want), said.decode()
    assert b"Traceback" not in said


def test_every_documented_status_is_tried() -> None:
    tried = {(trial.command, trial.status) for trial in TRIALS} | ELSEWHERE.keys()

    assert tried == {(command, status) for command, known in STATUSES.items() for status in known}
    assert all((ROOT / place).is_file() for place in ELSEWHERE.values())


def test_every_command_has_statuses_and_its_help_names_them() -> None:
    assert {command.partition(" ")[0] for command in STATUSES} == set(COMMANDS)
    for command, known in STATUSES.items():
        _, found, text = CliRunner().invoke(main, [*command.split(), "--help"]).stdout.partition("Exit status:")
        words = " ".join(text.split())

        assert found
        assert [status for status, meaning in known.items() if f"{status} {meaning}." not in words] == []
