from __future__ import annotations

from pathlib import Path

from pinchpoint.benchmarks.markers import MAX_MARKED_RANKS, RunDirectory
from pinchpoint.runs import PhaseMark, RankMark, RunState
from pinchpoint.session import store
from pinchpoint.session.keep import MAX_MARKED_PHASES, RunKeeper

RUN = "r"


class Stage:
    """A keeper with the test's clock."""

    def __init__(self, folder: Path, markers: Path) -> None:
        self.now = 1000.0
        self.warnings: list[str] = []
        self.folder = folder / RUN
        self.markers = RunDirectory(markers)
        self.keeper = RunKeeper(
            RUN, self.folder, self.markers, tags={"clients": "16"}, wall=lambda: self.now, warn=self.warnings.append
        )

    def update(self, *names: str) -> None:
        marks = [PhaseMark(name, 1000.0 + number) for number, name in enumerate(names)]
        self.keeper.update(RunState(RUN, "fio", 1000.0, state="running", phases=marks))


def test_what_is_known_of_a_run_is_in_its_record_and_its_marker(tmp_path: Path) -> None:
    stage = Stage(tmp_path, tmp_path / "markers")
    stage.folder.mkdir()
    stage.keeper.start(["fio", "a\udcff"], 7)
    stage.update("write")

    kept = store.load(stage.folder)
    (marker,) = (tmp_path / "markers").iterdir()

    assert kept.command == ["fio", "a?"]
    assert (kept.marker.benchmark, kept.marker.command_pid, kept.marker.tags) == ("fio", 7, {"clients": "16"})
    assert [mark.name for mark in kept.marker.phases] == ["write"]
    assert '"write"' in marker.read_text()
    assert stage.warnings == []


def test_a_marker_has_the_last_phases_alone_and_the_record_all(tmp_path: Path) -> None:
    stage = Stage(tmp_path, tmp_path / "markers")
    stage.folder.mkdir()
    stage.update(*(f"p{number}" for number in range(MAX_MARKED_PHASES + 1)))

    (marker,) = (tmp_path / "markers").iterdir()

    assert len(store.load(stage.folder).marker.phases) == MAX_MARKED_PHASES + 1
    assert '"p0"' not in marker.read_text()
    assert f'"p{MAX_MARKED_PHASES}"' in marker.read_text()


def test_the_ranks_among_its_processes_are_in_the_marker_and_are_not_kept(tmp_path: Path) -> None:
    stage = Stage(tmp_path, tmp_path / "markers")
    stage.folder.mkdir()
    ranks = [RankMark(number, 100, number) for number in range(MAX_MARKED_RANKS + 1)]
    stage.keeper.update(RunState(RUN, "fio", 1000.0, state="running"), ranks)

    (marker,) = stage.markers.markers(stage.now)
    assert list(marker.ranks) == ranks[:MAX_MARKED_RANKS]
    assert store.load(stage.folder).marker.ranks == ()


def test_a_run_that_goes_on_as_before_is_shown_again_and_not_kept_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path, tmp_path / "markers")
    stage.folder.mkdir()
    stage.update("write")
    (stage.folder / store.FILE).unlink()
    (marker,) = (tmp_path / "markers").iterdir()
    marker.unlink()
    stage.now += 0.5
    stage.update("write")

    assert not marker.exists()

    stage.now += 0.5
    stage.update("write")

    assert marker.exists()
    assert not (stage.folder / store.FILE).exists()


def test_what_can_not_be_written_is_said_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    stage = Stage(tmp_path / "missing", tmp_path / "file" / "markers")
    stage.update("write")

    assert [warning.rpartition(": ")[2] for warning in stage.warnings] == [
        "an exporter will not show the phases",
        "the run is not saved",
    ]
