from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pinchpoint.experiment import journal
from pinchpoint.experiment.knob import Knob, KnobCommands
from pinchpoint.experiment.owner import Owner, this_process
from pinchpoint.host.procfs import parse_stat


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "pinchpoint" / "open"


def record(directory: Path) -> None:
    (directory / "knob").write_text("on")
    commands = KnobCommands("echo on > knob", 'printf %s "$PINCHPOINT_OLD" > knob', "cat knob")
    journal.record("one", Knob(commands, directory), "off", cluster="", now=1.0)


def found() -> tuple[list[journal.Journal], list[str]]:
    warnings: list[str] = []
    return list(journal.journals(warnings.append)), warnings


def test_a_journal_restores_the_knob_and_is_gone(tmp_path: Path, state: Path) -> None:
    record(tmp_path)
    ((only,), warnings) = found()

    assert warnings == []
    assert only.owner.alive
    assert (state / "one.json").stat().st_mode & 0o777 == 0o600
    assert "again, and was read back" in journal.restore(only)
    assert (tmp_path / "knob").read_text() == "off"
    assert found() == ([], [])


def test_a_knob_that_already_has_its_old_value_is_left_alone(tmp_path: Path) -> None:
    record(tmp_path)
    (tmp_path / "knob").write_text("off")

    assert "already has its old value" in journal.restore(found()[0][0])


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_journal_that_others_may_write_is_not_executed(tmp_path: Path, state: Path, mode: int) -> None:
    record(tmp_path)
    (state / "one.json").chmod(mode)

    journals, (warning,) = found()

    assert journals == []
    assert "its commands are not run" in warning


def test_neither_is_one_in_a_directory_that_others_may_write_nor_a_link(tmp_path: Path, state: Path) -> None:
    record(tmp_path)
    state.chmod(0o777)
    assert found()[0] == []
    state.chmod(0o700)
    (state / "two.json").symlink_to(state / "one.json")
    assert len(found()[0]) == 1


def test_damaged_and_renamed_journals_are_named(tmp_path: Path, state: Path) -> None:
    record(tmp_path)
    (state / "one.json").rename(state / "other.json")
    (state / "bad.json").write_text("{")
    for file in state.iterdir():
        file.chmod(0o600)

    journals, warnings = found()

    assert journals == []
    assert [warning.partition(": ")[0] for warning in warnings] == [str(state / "bad.json"), str(state / "other.json")]


def test_journals_that_cannot_be_listed_are_not_taken_for_none(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found() == ([], [])
    record(tmp_path)

    def denied(path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", denied)
    assert found() == ([], [f"{state}: Permission denied"])


def test_a_process_is_alive_only_in_its_boot_and_with_its_start() -> None:
    own = this_process()

    assert own.alive
    assert not Owner(own.pid, own.start + 1, own.boot).alive
    assert not Owner(own.pid, own.start, "another boot").alive
    assert not Owner().alive
    assert not own.lost
    assert Owner(own.pid, own.start + 1, own.boot, own.host).lost
    assert Owner().lost, "of an older release"


def test_a_process_that_nobody_reaps_has_ended() -> None:
    child = subprocess.Popen(["true"])
    assert os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    start = parse_stat(Path(f"/proc/{child.pid}/stat").read_bytes()).start
    own = this_process()

    assert Owner(child.pid, start, own.boot, own.host).lost
    child.wait()


def test_of_a_process_on_another_host_nobody_here_says_that_it_has_ended() -> None:
    there = Owner(4711, 1, "another boot", "another-host")

    assert there.elsewhere
    assert not there.alive
    assert not there.lost
