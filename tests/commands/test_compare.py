from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from pinchpoint.benchmarks.markers import Marker
from pinchpoint.cli import main
from pinchpoint.runs import LimitMark, PhaseMark, VerdictMark
from pinchpoint.runs import Result as Figure
from pinchpoint.session import store
from pinchpoint.session.store import RunRecord

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


def keep(
    run: str, values: Sequence[float], *, verdict: VerdictMark | None = None, mtu: str = "", bs: str = "4k", **tags: str
) -> None:
    phases = [
        PhaseMark(f"p{index}", NOW, NOW + 100, [Figure("write", "bytes_per_second", value)], verdict=verdict)
        for index, value in enumerate(values)
    ]
    marker = Marker(run, "fio", NOW, NOW + 1, state="finished", phases=phases, pid=1, pid_start=2, command_pid=3)
    marker.tags = tags
    record = RunRecord(marker, ["fio", f"--bs={bs}", "job"], 0, facts={"this host": {"mtu": [mtu]}} if mtu else {})
    store.save(store.new_run_directory(run)[1], record)


def total(run: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return the row for the score of a run from the JSON."""
    (rows,) = [found["rows"] for found in document["comparisons"] if found["other"]["label"].endswith(run)]
    row: dict[str, Any] = next(row for row in rows if row["operation"] == "total")
    return row


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
    assert 0 < hard["interval"][0] < hard["change"] < hard["interval"][1]
    assert hard["score_factor"] == pytest.approx(
        ((0.376 * 0.373) ** 4 / (0.068 * 0.101 * 0.074 * 0.1) ** 2) ** (1 / 64), rel=0.01
    )


REPEATED = "diary-09,diary-13"
"""The two results of the diary with no change between them."""


@pytest.mark.usefixtures("diary")
def test_the_diary_tells_which_steps_helped_and_which_were_noise() -> None:
    document = json.loads(compare("--json", "--chain", "--repeats", REPEATED, "*diary-0*").stdout)

    verdicts = {run: total(run, document)["verdict"] for run in (f"{number:02}" for number in range(2, 10))}
    assert verdicts == {
        "02": "inside the noise",  # C6 off, two processes
        "03": "not proved",  # four processes, C6 on
        "04": "inside the noise",  # C6 off, four processes
        "05": "worse",  # 300 s: the MDS cache is too small
        "06": "better",  # MDS cache of 12 GB
        "07": "better",  # four containers per client
        "08": "inside the noise",  # four processes per container
        "09": "better",  # 16 active MDSs
    }


@pytest.mark.usefixtures("diary")
@pytest.mark.parametrize(
    ("run", "phases"),
    [
        ("02", ["ior_hard_write", "mdtest_hard_read"]),
        ("05", ["mdtest_easy_stat", "mdtest_hard_stat", "mdtest_hard_read", "mdtest_easy_delete"]),
        ("07", ["ior_hard_read", "ior_hard_write", "ior_easy_write", "ior_easy_read"]),
        ("09", ["mdtest_easy_stat", "find", "mdtest_easy_delete", "mdtest_easy_write"]),
    ],
)
def test_the_diary_tells_which_phases_moved_the_score(run: str, phases: list[str]) -> None:
    document = json.loads(compare("--json", "--chain", "--repeats", REPEATED, "*diary-0*").stdout)

    rows = next(found["rows"] for found in document["comparisons"] if found["other"]["label"].endswith(run))
    claimed = [row for row in rows if row["verdict"] in ("faster", "slower") and row["phase"]]
    claimed.sort(key=lambda row: -abs(math.log(row["score_factor"])))
    assert [row["phase"] for row in claimed][: len(phases)] == phases
    factors = math.prod(row["score_factor"] for row in rows if row["phase"])
    assert factors == pytest.approx(1 + total(run, document)["change"], rel=0.01)


@pytest.mark.usefixtures("diary")
def test_no_score_of_the_diarys_further_tuning_is_proved_to_differ_and_some_phases_are() -> None:
    runs = [f"diary-{number}" for number in (10, 11, 12, 14, 15, 16, 17, 18)]
    document = json.loads(compare("--json", REPEATED, *runs).stdout)

    found = {run: total(run, document)["verdict"] for run in runs}
    assert set(found.values()) == {"inside the noise", "not proved"}
    assert [run for run in runs if found[run] == "inside the noise"] == ["diary-14", "diary-16", "diary-17"]
    slower = [[row["phase"] for row in step["rows"] if row["verdict"] == "slower"] for step in document["comparisons"]]
    assert "mdtest_hard_read" in slower[0]  # other TCP buffers
    assert slower[3] == slower[4] == []  # eight OSDs per node instead of six, and four


@pytest.mark.usefixtures("diary")
def test_a_chain_is_a_few_lines_a_step_with_what_the_diary_says_of_it() -> None:
    text = compare("--chain", "--repeats", REPEATED, "diary-05", "diary-06", columns=120).stdout

    (step,) = [line for line in text.splitlines() if line.startswith("diary-06")]
    assert step.split() == ["diary-06", "3.941", "+86.2%", "better,", "noise", "20.1%"]
    assert "beyond noise mdtest_easy_stat 50.9x (score +27.8%), mdtest_hard_stat 14.4x (score +18.2%)" in " ".join(
        text.split()
    )
    assert "1 step: 1 better" in text
    assert "(12 GB)" in compare("--chain", "diary-05", "diary-06", columns=400).stdout


@pytest.mark.usefixtures("diary")
def test_without_repeats_a_chain_claims_nothing() -> None:
    text = compare("--chain", "diary-05", "diary-06").stdout

    assert "+86.2%  spread unknown" in text
    assert "beyond noise" not in text
    assert "--repeats RUNS" in " ".join(text.split())


@pytest.mark.usefixtures("diary")
def test_in_brief_every_run_stands_beside_the_first() -> None:
    text = compare("--brief", REPEATED, "diary-10", "diary-14").stdout

    heads = [line.split()[:3] for line in text.splitlines() if line.startswith("diary-")]
    assert heads == [["diary-09,diary-13", "10.99"], ["diary-10", "9.872", "-10.1%"], ["diary-14", "10.84", "-1.3%"]]


def test_how_the_bottleneck_moved_and_what_was_changed_are_shown() -> None:
    lock = VerdictMark("resource", (LimitMark("mds_lock", "mds.a", 0.82),))
    keep("a", [1.0], verdict=lock, mtu="1500", c6="on")
    keep("b", [2.0], verdict=VerdictMark("latency-bound"), mtu="9000", bs="64k", c6="off")

    for text in (compare("a", "b").stdout, compare("--brief", "a", "b").stdout):
        assert "c6: on -> off" in text
        assert "command: --bs=4k -> --bs=64k" in text
        assert "mds_lock of mds.a 82%" in text
        assert "latency-bound" in text
    assert "mtu: 1500 -> 9000" in compare("a", "b").stdout
    assert "p0: mds_lock of mds.a 82% -> latency-bound" in compare("--chain", "a", "b").stdout
    (found,) = json.loads(compare("--json", "a", "b").stdout)["comparisons"]
    assert found["bottlenecks"] == [
        {
            "benchmark": "fio",
            "phase": "p0",
            "occurrence": 1,
            "base": {
                "kind": "resource",
                "limits": [{"resource": "mds_lock", "owner": "mds.a", "blame": 0.82}],
                "agreeing": 1,
                "runs": 1,
                "dissent": [],
            },
            "other": {"kind": "latency-bound", "limits": [], "agreeing": 1, "runs": 1, "dissent": []},
            "moved": True,
            "steps": [],
        }
    ]
    assert [(entry["origin"], entry["name"], entry["base"], entry["other"]) for entry in found["differences"]] == [
        ("tag", "c6", ["on"], ["off"]),
        ("command", "command", ["fio --bs=4k job"], ["fio --bs=64k job"]),
        ("fact", "mtu", ["1500"], ["9000"]),
    ]


def test_a_run_without_facts_beside_one_that_has_them_is_named() -> None:
    keep("a", [1.0], mtu="1500")
    keep("b", [2.0])

    assert "No settings of hosts are known of b." in compare("a", "b").stdout
    assert "No settings" not in compare("a", "a").stdout


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
    brief = compare("--chain", "--repeats", REPEATED, "*diary*", columns=columns).stdout

    assert max(map(cell_len, [*text.splitlines(), *brief.splitlines()])) <= columns
    assert "mdtest_easy_delete" in text


def test_runs_that_have_nothing_in_common_are_an_error() -> None:
    keep("a", [])
    keep("b", [1.0])

    result = compare("a", "b")

    assert result.exit_code == 1
    assert "no figure in common" in result.stderr


def test_a_run_that_is_in_both_groups_is_named() -> None:
    for run in ("a", "b1", "b2"):
        keep(run, [1.0])

    assert "b1 is in both groups: its figures count on both sides" in compare("b*", "b1").stderr
    assert "both groups" not in compare("a", "b*").stderr + compare("a", "a").stderr


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["a"], 2, "name at least two runs or groups"),
        (["--chain", "a"], 2, "name at least two runs or groups"),
        (["--repeats", "a", "a", "b1"], 2, "--repeats a is one run"),
        (["--repeats", "zzz", "a", "b1"], 1, "no run is 'zzz'"),
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
