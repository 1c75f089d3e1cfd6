from __future__ import annotations

from pathlib import Path

import pytest

from experiment.made import experiment
from pinchpoint.experiment import durable, ledger
from pinchpoint.experiment.ledger import LedgerError


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "pinchpoint" / "experiments"


def kept(name: str, start: float = 1.0) -> str:
    made = experiment((1.0, 1.1), name, start=start)
    made.id, _ = ledger.new_directory(made.id)
    ledger.save(made)
    return made.id


def test_what_is_saved_is_loaded(directory: Path) -> None:
    one = kept("one")

    (found,) = ledger.experiments()

    assert found.id == one
    assert len(found.trials) == 4
    assert [file.name for file in (directory / one).iterdir()] == ["experiment.json"]


def test_a_second_one_in_the_same_second_has_a_number() -> None:
    assert kept("one") + "-2" == kept("one")


def test_an_experiment_is_found_by_its_id_its_name_or_as_the_last() -> None:
    first, second, other = kept("one", 1.0), kept("one", 2.0), kept("other", 3.0)
    known = ledger.experiments()

    assert ledger.find("last", known).id == other
    assert ledger.find(first, known).id == first
    assert ledger.find("one-2", known).id == second
    assert ledger.find("other", known).id == other
    with pytest.raises(LedgerError, match="no experiment is 'none'"):
        ledger.find("none", known)
    with pytest.raises(LedgerError, match="no experiment is saved yet"):
        ledger.find("last", [])


def test_a_damaged_one_is_named_and_does_not_hide_the_others(directory: Path) -> None:
    one, two = kept("one"), kept("two")
    (directory / one / "experiment.json").write_text("[]")
    (directory / two).rename(directory / "renamed")
    three = kept("three")
    warnings: list[str] = []

    assert [found.id for found in ledger.experiments(warnings.append)] == [three]
    assert len(warnings) == 2
    assert "was the directory renamed?" in warnings[1]


def test_one_whose_process_is_gone_was_killed() -> None:
    assert experiment((), state="running").standing == "killed"
    assert experiment((), state="finished").standing == "finished"


def test_a_file_that_cannot_be_written_keeps_its_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    durable.write(path, b"old")
    with pytest.raises(OSError, match="File name too long"):
        durable.write(tmp_path / ("x" * 300), b"new")

    durable.write(path, b"new")
    assert path.read_bytes() == b"new"
    durable.remove(path)
    durable.remove(path)
    assert list(tmp_path.iterdir()) == []
