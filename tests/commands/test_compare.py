from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pinchpoint import store
from pinchpoint.cli import main
from pinchpoint.runs import Marker, PhaseMark
from pinchpoint.runs import Result as Figure
from pinchpoint.store import RunRecord

SEEDS = Path(__file__).parents[1] / "fixtures" / "seeds"
NOW = 1_700_000_000.0


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def invoke(*args: str, columns: int | None = None) -> Result:
    result = CliRunner().invoke(main, list(args), env={"COLUMNS": str(columns) if columns else None})
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def compare(*args: str, columns: int | None = None) -> Result:
    return invoke("compare", *args, columns=columns)


@pytest.fixture
def diary() -> None:
    assert invoke("import", str(SEEDS / "io500-diary.txt")).exit_code == 0


def keep(run: str, values: Sequence[float], start: float = NOW) -> None:
    phases = [
        PhaseMark(f"p{index}", NOW, NOW + 100, [Figure("write", "bytes_per_second", value)])
        for index, value in enumerate(values)
    ]
    marker = Marker(run, "fio", start, start + 1, state="finished", phases=phases, pid=1, pid_start=2, command_pid=3)
    store.save(store.new_run_directory(run)[1], RunRecord(marker, ["fio"], 0))


@pytest.mark.usefixtures("diary")
def test_two_single_runs_are_shown_and_nothing_is_claimed() -> None:
    text = compare("diary-13", "diary-09").stdout

    (score,) = [line for line in text.splitlines() if "score total" in line]
    assert score.split() == ["score", "total", "10.69", "11.28", "+5.5%", "-", "spread", "unknown"]
    assert "one run each: spread unknown" in text
    assert "faster;" not in text
    assert not [line for line in text.splitlines() if line.endswith((" faster", " slower", " better", " worse"))]


@pytest.mark.usefixtures("diary")
def test_a_known_noise_tells_a_rerun_from_a_change() -> None:
    def verdict(run: str, noise: str) -> str:
        rows = json.loads(compare("--json", "--noise", noise, "diary-09", run).stdout)["comparisons"][0]["rows"]
        return str(next(row["verdict"] for row in rows if row["operation"] == "total"))

    assert verdict("diary-13", "6") == "inside the noise"
    assert verdict("diary-13", "5") == "worse"
    assert verdict("diary-01", "6") == "worse"


@pytest.mark.usefixtures("diary")
def test_groups_of_repeats_are_compared_by_their_spread() -> None:
    document = json.loads(compare("--json", "*diary-0[1-4]", "diary-09,diary-13", "*diary-1[4-7]").stdout)

    assert [run["run"][-2:] for run in document["base"]["runs"]] == ["01", "02", "03", "04"]
    assert [len(found["other"]["runs"]) for found in document["comparisons"]] == [2, 4]
    rows = {row["phase"] or row["operation"]: row for row in document["comparisons"][0]["rows"]}
    hard = rows["ior_hard_write"]
    assert hard["base"]["mean"] == pytest.approx((0.068 + 0.101 + 0.074 + 0.1) / 4 * 2**30)
    assert hard["base"]["spread"] == pytest.approx((0.101 - 0.068) / ((0.068 + 0.101 + 0.074 + 0.1) / 4))
    assert (hard["verdict"], rows["total"]["verdict"]) == ("faster", "better")
    assert hard["interval"] is None
    assert document["comparisons"][1]["rows"][0]["interval"] is not None


def test_a_runs_state_and_what_only_one_side_has_are_shown() -> None:
    keep("a", [1.0, 2.0])
    keep("b", [1.0])

    text = compare("a", "b").stdout

    assert "base  a  fio finished" in text
    assert [line.split()[0] for line in text.splitlines() if line.endswith("only in base")] == ["p1"]


def test_every_figure_is_compared_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    invoke("import", str(SEEDS / "rados-bench-overrun.txt"), str(SEEDS / "rados-bench-burst.txt"))

    assert "max_latency" not in compare("overrun", "burst").stdout
    assert "max_latency" in compare("--all", "overrun", "burst").stdout


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.usefixtures("diary")
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    invoke("import", "--name", "n" * 80, str(SEEDS / "rados-bench-burst.txt"))

    text = compare("diary-01,last", "*diary-0*", columns=columns).stdout

    assert max(map(len, text.splitlines())) <= columns
    assert "mdtest_easy_delete" in text


def test_runs_that_have_nothing_in_common_are_an_error() -> None:
    keep("a", [])
    keep("b", [1.0])

    result = compare("a", "b")

    assert result.exit_code == 1
    assert "no figure in common" in result.stderr


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["a"], 2, "two runs or groups"),
        (["a", "zzz"], 1, "no run is 'zzz'"),
        (["a", "*zzz*"], 1, "no run fits the pattern"),
        (["a", "b"], 1, "means 2 runs: b1, b2; give one id"),
        (["--noise", "lots", "a", "b1"], 2, "is not a valid float"),
        (["--noise", "-1", "a", "b1"], 2, "is not in the range"),
        (["--noise", "nan", "a", "b1"], 2, "noise"),
        ([], 2, "Missing argument"),
    ],
)
def test_what_cannot_be_compared_is_a_clear_error(args: list[str], status: int, words: str) -> None:
    for run in ("a", "b1", "b2"):
        keep(run, [1.0])

    result = compare(*args)

    assert result.exit_code == status
    assert words in result.stderr


def test_without_any_run_it_says_what_keeps_them() -> None:
    assert "`pinchpoint import`" in compare("a", "b").stderr
