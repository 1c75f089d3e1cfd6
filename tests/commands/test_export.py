"""`pinchpoint export` as a user calls it, and how Prometheus reads the result."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from dashboards.kit.board import panels_of
from kept_runs import RUN, START, keep, second
from patience import patience
from pinchpoint.benchmarks.markers import Marker
from pinchpoint.cli import main
from pinchpoint.metrics import JUDGE
from pinchpoint.model import Labels, Snapshot
from pinchpoint.runs import LimitMark, PhaseMark, Result, VerdictMark
from pinchpoint.session import store
from polling import get_json, until
from ports import free_port

EXPORT = [sys.executable, "-m", "pinchpoint", "export"]
DASHBOARDS = Path(__file__).parents[2] / "dashboards" / "json"
DIARY = Path(__file__).parents[1] / "fixtures" / "seeds" / "io500-diary.txt"
BUSY = "pinchpoint_resource_busy_seconds_total"


def trend_queries() -> list[str]:
    """Return the queries of the dashboard's table of levels, for all runs of a day."""
    board = json.loads((DASHBOARDS / "runs.json").read_text())
    (panel,) = (panel for panel in panels_of(board) if panel["title"] == "Trend")
    values = {"$__range": "1d", "$run": ".+", "$benchmark": ".+"}
    return [re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], one["expr"])
            for one in panel["targets"]]  # fmt: skip


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def export(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run([*EXPORT, *arguments], text=True, timeout=patience(60), check=False, **streams)  # type: ignore[call-overload,no-any-return]


def test_a_file_has_what_standard_output_would_have(tmp_path: Path) -> None:
    keep(second(number, full=True) for number in range(20))
    printed = export("last")
    written = export("base", "-o", str(tmp_path / "run.om"))

    assert (printed.returncode, printed.stderr) == (0, "")
    assert (written.returncode, written.stdout, written.stderr) == (0, "", "")
    assert (tmp_path / "run.om").read_text() == printed.stdout
    assert f'{BUSY}{{owner="vda",resource="filesystem_kernel",serves="disk",instance="there"}} 3.0 ' in printed.stdout
    assert sorted(tmp_path.iterdir()) == [tmp_path / "run.om", tmp_path / "state"]


@contextmanager
def served(tmp_path: Path, text: Path) -> Iterator[Callable[[str, float], list[dict[str, Any]] | None]]:
    """Give a function that queries a Prometheus with blocks made from the text; None: it does not answer yet."""
    promtool, prometheus = program("promtool"), program("prometheus")
    blocks = tmp_path / "blocks"
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(blocks)], check=True, capture_output=True
    )
    (tmp_path / "prometheus.yml").write_text("{}")
    port = free_port()
    server = subprocess.Popen(
        [
            prometheus,
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={blocks}",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def ask(query: str, at: float) -> list[dict[str, Any]] | None:
        try:
            found = get_json(f"http://127.0.0.1:{port}/api/v1/query?{urlencode({'query': query, 'time': at})}")
            return cast("list[dict[str, Any]]", found["data"]["result"])
        except Exception:
            return None

    try:
        yield ask
    finally:
        server.terminate()
        server.wait()


def values(found: list[dict[str, Any]] | None, *labels: str) -> dict[tuple[str, ...], float]:
    """Return values by labels."""
    return {
        tuple(series["metric"].get(label, "") for label in labels): float(series["value"][1]) for series in found or []
    }


def test_prometheus_makes_blocks_of_it_and_answers_from_them(tmp_path: Path) -> None:
    keep(second(number, full=True) for number in range(20))
    export("last", "-o", str(tmp_path / "run.om"))
    with served(tmp_path, tmp_path / "run.om") as ask:
        found = until(60, lambda: ask(f"rate({BUSY}[10s])", START + 15))

        assert values(found, "instance", "resource", "owner") == {
            ("here", "filesystem_kernel", "vda"): 1.0,
            ("there", "filesystem_kernel", "vda"): 1.0,
        }
        assert values(ask("pinchpoint_phase_active == 1", START + 15), "phase", "instance") == {("read", ""): 1.0}


def test_prometheus_answers_from_the_results_of_imported_runs(tmp_path: Path) -> None:
    """The 18 runs have one time, that of the file; laid end to end, the last one ends at the requested time."""
    end = 1_750_000_000.0
    imported = subprocess.run(
        [sys.executable, "-m", "pinchpoint", "import", str(DIARY)], capture_output=True, text=True, check=False
    )
    runs = [line.split()[0] for line in imported.stdout.splitlines()]
    export("*", "--trend", "--end", str(end), "-o", str(tmp_path / "runs.om"))
    with served(tmp_path, tmp_path / "runs.om") as ask:
        score = until(60, lambda: ask('last_over_time(pinchpoint_run_score{unit="score"}[1d])', end))
        started = values(ask("last_over_time(pinchpoint_run_start_timestamp_seconds[1d])", end), "run")
        stat = values(ask('last_over_time(pinchpoint_phase_result{phase="mdtest_easy_stat"}[1d])', end), "run", "unit")
        state = values(ask('last_over_time(pinchpoint_run_state{state="finished"}[1d])', end), "run")
        noted = ask('last_over_time(pinchpoint_run_fact_hosts{fact="note"}[1d])', end)

        level = values(ask('last_over_time(pinchpoint_result_level{phase=""}[1d])', end), "run")
        since = values(ask('last_over_time(pinchpoint_result_level_start_timestamp_seconds{phase=""}[1d])', end), "run")
        change = values(ask('last_over_time(pinchpoint_result_level_change_ratio{phase=""}[1d])', end), "run")

        assert len(runs) == 18
        # The score changes once, after 6 runs.
        assert set(level.values()) == {level[runs[0],], level[runs[6],]}
        assert since == {(run,): started[runs[0 if place < 6 else 6],] for place, run in enumerate(runs)}
        for expr in trend_queries():
            shown = [series["metric"]["figure"] for series in ask(expr, end) or []]
            assert len(shown) == 13
            assert {"ior_easy_write", "find", "score total"} <= set(shown)
        assert change == {(run,): pytest.approx(level[runs[6],] / level[runs[0],]) for run in runs[6:]}
        assert list(values(score, "run").values()).count(3.94071) == 1
        assert [run for (run,) in sorted(started, key=lambda key: started[key])] == runs
        assert set(state) == {(run,) for run in runs}
        assert set(state.values()) == {1.0}
        assert stat[runs[4], "operations_per_second"] == 866.0
        assert len(noted or []) == 18
        # Never two of them at once, and the last one to the end.
        going = values(ask("max_over_time(count(pinchpoint_phase_active == 1)[1d:15s])", end))
        assert going == {(): 1.0}
        assert ask(f'pinchpoint_run_state{{run="{runs[-1]}", state="finished"}} == 1', end)


def test_runs_beyond_those_that_are_compared_have_no_levels_and_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinchpoint.commands.export.MAX_TREND_RUNS", 10)
    CliRunner().invoke(main, ["import", str(DIARY)])
    found = CliRunner().invoke(main, ["export", "--trend", "-o", "/dev/null", "*"])

    assert (found.exit_code, found.output) == (
        0, "pinchpoint: the first 8 of 18 runs have no levels: no more than 10 are compared\n"
    )  # fmt: skip


def test_what_is_not_known_yet_is_not_told_at_that_time() -> None:
    keep_judged()
    lines = export("last").stdout.splitlines()

    def times(head: str) -> list[float]:
        return [float(line.split()[-1]) - START for line in lines if line.startswith(head)]

    def of(metric: str, phase: str) -> str:
        return f'{metric}{{benchmark="fio",phase="{phase}",run="{RUN}"'

    active = [(line.split()[1], float(line.split()[2]) - START) for line in lines
              if line.startswith(of("pinchpoint_phase_active", "write"))]  # fmt: skip
    assert [time for value, time in active if value == "1.0"] == [0.0]
    assert [time for value, time in active if value == "0.0"] == [10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 75.0]
    assert times("pinchpoint_phase_verdict_info") == [10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 75.0]
    result = 'pinchpoint_phase_result{benchmark="fio",operation="write",phase="write"'
    assert times(result) == [10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 75.0]
    assert times("pinchpoint_run_score") == [20.0, 30.0, 45.0, 60.0, 75.0]
    assert times(of("pinchpoint_phase_start_timestamp_seconds", "read")) == [10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 75.0]


def test_verdicts_and_settings_that_are_kept_with_a_run_are_told_as_the_judge_does() -> None:
    keep_judged()
    text = export("last").stdout
    told = tuple(f"{metric.name}{{" for metric in JUDGE)

    assert {line.rpartition("} ")[0] + "}" for line in text.splitlines() if line.startswith(told)} == {
        f'pinchpoint_phase_verdict_info{{benchmark="fio",confidence="high",host="",kind="resource",owner="osd.3",'
        f'phase="write",resource="kv_sync",run="{RUN}"}}',
        f'pinchpoint_run_fact_hosts{{fact="governor",run="{RUN}",value="performance"}}',
        f'pinchpoint_run_fact_hosts{{fact="tag:c6",run="{RUN}",value="off"}}',
    }
    assert f'fact="governor",run="{RUN}",value="performance"}} 2.0 ' in text


def keep_judged() -> None:
    """Keep a run without samples that has two phases; only the first was judged."""
    run, directory = store.new_run_directory(RUN)
    write = PhaseMark(
        "write",
        START,
        START + 10,
        results=[Result("write", "bytes_per_second", 1e6)],
        verdict=VerdictMark("resource", (LimitMark("kv_sync", "osd.3", 0.9),), "high"),
    )
    marker = Marker(
        run, "fio", START, START + 20, "finished", [write, PhaseMark("read", START + 10, START + 20)],
        scores=[Result("total", "score", 3.5)], pid=0, pid_start=0, command_pid=0, tags={"c6": "off", "sha256": "0"},
    )  # fmt: skip
    facts = {host: {"governor": ["performance"]} for host in ("a", "b")}
    store.save(directory, store.RunRecord(marker, ["fio"], facts=facts))


def test_times_that_are_values_are_shifted_too() -> None:
    keep(second(number, full=True) for number in range(20))
    text = export("last", "--end", "2027-01-15T08:00:00+00:00").stdout
    end = 1_800_000_000.0

    assert f'pinchpoint_run_start_timestamp_seconds{{benchmark="fio",run="{RUN}"}} {end - 80} {end - 80:.3f}\n' in text
    assert f'instance="there"}} 19.0 {end - 80 + 19.125:.3f}\n' in text


def test_runs_are_laid_one_after_the_other_in_their_order() -> None:
    for name in ("a", "b"):
        run, directory = store.new_run_directory(f"20231114T221320Z-{name}")
        marker = Marker(run, "fio", START, START + 20, "finished", pid=0, pid_start=0, command_pid=0)
        store.save(directory, store.RunRecord(marker, ["fio"], origin="/tmp/x"))
    started = [
        float(line.split()[1])
        for line in export("b", "a", "a", "--end", "10000").stdout.splitlines()
        if line.startswith("pinchpoint_run_start_timestamp_seconds") and line.split()[1] + "00" == line.split()[2]
    ]

    assert started == [10000 - 80 - 300 - 80, 10000 - 80]


@pytest.mark.parametrize("time", ["tomorrow", "nan", "2026-13-01", "1e300", "-5"])
def test_an_end_that_is_no_time_is_told_in_one_line(time: str) -> None:
    keep([])
    done = export("last", f"--end={time}")

    assert done.returncode == 2
    assert f"--end {time!r} is not a time" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_run_that_died_is_exported_as_far_as_it_came(tmp_path: Path) -> None:
    path = keep((second(number, full=True) for number in range(20)), ended=False)
    path.write_bytes(path.read_bytes()[:-10])
    done = export("last")

    assert done.returncode == 0
    assert done.stderr == f"pinchpoint: {RUN} died: its samples end at 0:18\n"
    assert f" {START + 18.125:.3f}\n" in done.stdout
    assert f" {START + 19.125:.3f}\n" not in done.stdout
    assert done.stdout.endswith("# EOF\n")


def test_a_recording_that_ends_long_before_its_run_is_told_of() -> None:
    keep(second(number, full=True) for number in range(10))

    assert export("last").stderr == f"pinchpoint: {RUN} lasted 0:20, and its samples end at 0:09\n"


def test_a_recording_with_rubbish_at_its_end_is_exported_as_far_as_it_is_one() -> None:
    path = keep(second(number, full=True) for number in range(20))
    path.write_bytes(path.read_bytes() + b"rubbish")
    done = export("last")

    assert done.returncode == 0
    assert f"{path}: damaged behind its first 20 moments, which are used: " in done.stderr
    assert done.stdout.count(f" {START + 19.125:.3f}\n") == 6


def test_samples_of_a_clock_that_was_set_back_are_left_out_and_counted() -> None:
    values: dict[str, dict[Labels, float]] = {"pinchpoint_threads": {(): 1.0}}
    keep({"here": Snapshot(START + time, values)} for time in (5.0, 3.0, 6.0))
    done = export("last")

    assert done.returncode == 0
    assert "1 samples are left out" in done.stderr


def test_a_reader_that_goes_away_is_no_failure_to_tell_of() -> None:
    keep(second(number, full=True) for number in range(2000))
    with subprocess.Popen([*EXPORT, "last"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()

        assert process.wait(60) == 1
        assert process.stderr.read() == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("to", ["standard output", "a file"])
def test_a_full_disk_is_told_in_one_line(to: str) -> None:
    keep(second(number, full=True) for number in range(20))
    with open("/dev/full", "wb") as full:
        done = export("last", "-o", "/dev/full") if to == "a file" else export("last", stdout=full)

    assert done.returncode == 1
    assert done.stderr in (
        "pinchpoint: standard output: No space left on device\n",
        "pinchpoint: /dev/full: No space left on device\n",
    )
    assert os.path.exists("/dev/full")


def test_a_directory_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    keep(second(number, full=True) for number in range(20))
    done = export("last", "-o", str(tmp_path / "no" / "run.om"))

    assert done.returncode == 1
    assert done.stderr == f"pinchpoint: {tmp_path / 'no' / 'run.om'}: No such file or directory\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"garbage", "not a recording"), (b"", "has no samples")],
)
def test_a_recording_that_holds_nothing_is_told_in_one_line(content: bytes, reason: str) -> None:
    path = keep([])
    path.write_bytes(content)
    done = export("last")

    assert done.returncode == 1
    assert done.stderr.startswith(f"pinchpoint: {path}: {reason}")
    assert len(done.stderr.splitlines()) == 1


def test_a_run_whose_recording_is_gone_gives_what_is_known_of_it() -> None:
    keep(None)
    done = export("last")

    assert done.returncode == 0
    assert done.stderr == f"pinchpoint: {RUN} has no samples: its recording is gone\n"
    assert f'pinchpoint_phase_active{{benchmark="fio",phase="read",run="{RUN}"}} 1.0 {START + 15:.3f}\n' in done.stdout


def test_a_run_that_is_not_there_is_told_in_one_line() -> None:
    keep([])
    done = export("nosuch")

    assert done.returncode == 1
    assert done.stderr == "pinchpoint: no run is 'nosuch': `pinchpoint runs` lists the saved runs\n"
