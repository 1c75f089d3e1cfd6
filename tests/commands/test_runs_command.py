from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from pinchpoint.benchmarks.markers import Marker
from pinchpoint.cli import main
from pinchpoint.host.procfs import parse_stat, read_bytes
from pinchpoint.runs import LimitMark, PhaseMark, VerdictMark
from pinchpoint.runs import Result as Figure
from pinchpoint.session import store
from pinchpoint.session.store import RunRecord

NOW = 1_700_000_000.0


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path / "pinchpoint" / "runs"


def call(*args: str, columns: int | None = None) -> Result:
    result = CliRunner().invoke(main, ["runs", *args], env={"COLUMNS": str(columns) if columns else None})
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def keep(run: str, exit_status: int | None = 0, **changes: object) -> None:
    fields = {
        "benchmark": "fio",
        "start": NOW,
        "end": NOW + 1,
        "state": "finished",
        "pid": 1,
        "pid_start": 2,
        "command_pid": 3,
    }
    marker = Marker(run, **{**fields, **changes})  # type: ignore[arg-type]
    store.save(store.new_run_directory(run)[1], RunRecord(marker, ["fio"], exit_status))


def test_without_any_run_it_says_what_keeps_them() -> None:
    result = call()

    assert result.exit_code == 0
    assert "`pinchpoint import`" in result.stdout
    assert json.loads(call("--json").stdout) == {"runs": []}


def test_a_run_is_a_line_with_what_a_person_asks_for() -> None:
    keep(
        "20231114T221320Z-base",
        phases=[PhaseMark("setup", NOW), PhaseMark("write", NOW, results=[Figure("write", "bytes_per_second", 2**31)])],
        tags={"mtu": "9000", "sha256": "0123"},
    )
    keep("20231114T221321Z-io", start=NOW + 1, benchmark="io500", scores=[Figure("total", "score", 11.2798)])

    lines = call().stdout.splitlines()

    assert lines[-2].split() == [
        *("20231114T221320Z-base", "2023-11-14", lines[-2].split()[2], "fio", "2", "write", "2", "GiB/s"),
        *("finished", "mtu=9000"),
    ]
    assert lines[-1].split()[3:] == ["io500", "0", "score", "11.28", "finished"]


def test_an_invalid_score_says_so() -> None:
    keep("a", scores=[Figure("total", "score", 1.0)], valid=False)

    assert "score 1 INVALID" in call().stdout


@pytest.mark.parametrize("columns", [40, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_lost(columns: int) -> None:
    name = "20231114T221320Z-" + "".join(f"{number:02}" for number in range(20))
    keep(name, tags={"host": "a" * 30}, phases=[PhaseMark("w" * 60, NOW, results=[Figure("w", "bytes", 1.0)])])

    text = call(columns=columns).stdout

    assert max(map(len, text.splitlines())) <= columns
    column = [line[1:].split(" ")[0] for line in text.splitlines()]
    assert name in "".join(column)


def test_a_run_says_how_it_stands() -> None:
    own = parse_stat(read_bytes("/proc/self/stat")).start
    keep("failed", state="failed")
    keep("old", state="setup")
    keep("old-failed", exit_status=1, state="setup")
    keep("died", state="running", end=None)
    keep("goes-on", state="running", end=None, pid=os.getpid(), pid_start=own)

    states = {run["run"]: run["state"] for run in json.loads(call("--json").stdout)["runs"]}

    assert states == {
        "failed": "failed",
        "old": "finished",
        "old-failed": "failed",
        "died": "died",
        "goes-on": "running",
    }


def test_json_has_everything_oldest_first() -> None:
    keep("b", start=NOW, tags={"k": "v"}, phases=[PhaseMark("write", NOW, seconds=3.0)])
    keep("a", start=NOW + 5)

    first, second = json.loads(call("--json").stdout)["runs"]

    assert (first["run"], second["run"]) == ("b", "a")
    assert (first["start"], first["end"], first["tags"], first["command"]) == (NOW, NOW + 1, {"k": "v"}, ["fio"])
    assert first["phases"][0]["seconds"] == 3.0
    assert (first["note"], first["facts"]) == ("", {})
    assert "verdict" not in first["phases"][0]


def test_json_says_what_limited_a_phase() -> None:
    verdict = VerdictMark("resource", (LimitMark("disk", "vda", 0.9),))
    keep("a", phases=[PhaseMark("write", NOW, verdict=verdict)])

    (run,) = json.loads(call("--json").stdout)["runs"]

    assert run["phases"][0]["verdict"] == {
        "kind": "resource",
        "limits": [{"resource": "disk", "owner": "vda", "blame": 0.9}],
    }


def test_a_run_that_another_host_began_is_not_said_to_have_died() -> None:
    for run in ("here", "there"):
        keep(run, exit_status=None, end=None, state="running")
    there = store.find("there", store.runs())
    store.save(store.state_directory() / "there", msgspec.structs.replace(there, host="another"))

    states = {run["run"]: run["state"] for run in json.loads(call("--json").stdout)["runs"]}

    assert states == {"here": "died", "there": "elsewhere"}


def test_a_run_that_cannot_be_read_is_a_warning_and_hides_no_other(state: Path) -> None:
    keep("good")
    (state / "broken").mkdir()

    result = call()

    assert result.exit_code == 0
    assert "good" in result.stdout
    assert result.stderr.splitlines() == [f"pinchpoint: {state}/broken/run.json: No such file or directory"]


def test_what_others_named_cannot_steer_the_terminal() -> None:
    keep("a", tags={"k\x1b[2J": "\u202ev"}, benchmark="f\x07")

    assert not set(call().stdout) & {"\x1b", "\x07", "\u202e"}


def keep_trend(name: str, figures: list[float]) -> None:
    for number, figure in enumerate(figures):
        keep(
            f"2023111{number % 10}T22132{number // 10}Z-{name}",
            start=NOW + 86400 * number,
            tags={"c6": "off" if number >= 8 else "on"},
            phases=[PhaseMark("write", NOW, NOW + 60, [Figure("write", "bytes_per_second", figure)])],
        )


def test_a_trend_shows_when_a_result_changed_and_what_was_set_differently() -> None:
    before, after = [1e9, 1.01e9, 0.99e9, 1.02e9, 1e9, 0.98e9, 1e9, 1e9], [2e9, 2.02e9, 1.99e9, 2e9, 1.98e9, 2.01e9]
    keep_trend("base", before + after)
    keep_trend("other", [7e9])

    shown = call("--trend", "base").stdout
    document = json.loads(call("--trend", "base", "--json").stdout)

    assert "20231118T221320Z-base: write +100.0%" in shown
    assert "c6: on -> off" in shown
    (figure,) = document["figures"]
    assert len(document["runs"]) == 14
    assert [(level["first"], len(level["values"])) for level in figure["levels"]] == [
        ("20231110T221320Z-base", 8),
        ("20231118T221320Z-base", 6),
    ]


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ([1e9, 1.1e9, 5e9], "No change can be told from chance with fewer than 8 runs."),
        (
            [1e9, 1.1e9, 0.9e9, 1e9, 1.05e9, 0.95e9, 1e9, 1.1e9, 0.9e9],
            "No figure changed by more than chance explains.",
        ),
    ],
)
def test_without_a_change_the_trend_says_so(figures: list[float], words: str) -> None:
    keep_trend("base", figures)

    assert words in call("--trend", "base*").stdout


def test_runs_of_a_trend_that_did_not_end_well_are_named() -> None:
    keep_trend("base", [1e9, 1.1e9])
    phases = [PhaseMark("write", NOW, NOW + 60, [Figure("write", "bytes_per_second", 1e9)])]
    keep("20231120T221320Z-base", phases=phases, state="failed")
    keep("20231121T221320Z-base", phases=phases, valid=False)
    keep("20231122T221320Z-base", state="failed")

    shown = call("--trend", "base").stdout

    assert (
        "2 runs did not end well, and count too: 20231120T221320Z-base (failed), 20231121T221320Z-base (invalid)"
        in shown
    )


def test_a_trend_of_runs_without_results_and_of_none_is_refused() -> None:
    keep("20231114T221320Z-base")

    assert "base: the runs have no results" in call("--trend", "base").stderr
    assert "gone" in call("--trend", "gone").stderr
