"""`pinchpoint export` as a user calls it, and what Prometheus makes of it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kept_runs import RUN, START, keep, second
from pinchpoint.model import Labels, Snapshot
from polling import get_json, until

EXPORT = [sys.executable, "-m", "pinchpoint", "export"]
BUSY = "pinchpoint_resource_busy_seconds_total"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def export(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run([*EXPORT, *arguments], text=True, timeout=60, check=False, **streams)  # type: ignore[call-overload,no-any-return]


def test_a_file_has_what_standard_output_would_have(tmp_path: Path) -> None:
    keep(second(number, full=True) for number in range(20))
    printed = export("last")
    written = export("base", "-o", str(tmp_path / "run.om"))

    assert (printed.returncode, printed.stderr) == (0, "")
    assert (written.returncode, written.stdout, written.stderr) == (0, "", "")
    assert (tmp_path / "run.om").read_text() == printed.stdout
    assert f'{BUSY}{{owner="vda",resource="filesystem_kernel",serves="disk",instance="there"}} 3.0 ' in printed.stdout
    assert sorted(tmp_path.iterdir()) == [tmp_path / "run.om", tmp_path / "state"]


def test_prometheus_makes_blocks_of_it_and_answers_from_them(tmp_path: Path) -> None:
    promtool, prometheus = program("promtool"), program("prometheus")
    keep(second(number, full=True) for number in range(20))
    text, blocks = tmp_path / "run.om", tmp_path / "blocks"
    export("last", "-o", str(text))
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

    def answer() -> object:
        try:
            query = f"rate({BUSY}[10s])&time={START + 15}"
            return get_json(f"http://127.0.0.1:{port}/api/v1/query?query={query}")["data"]["result"]
        except Exception:
            return None

    try:
        found = until(60, answer)
    finally:
        server.terminate()
        server.wait()

    assert {series["metric"]["instance"]: float(series["value"][1]) for series in found} == {"here": 1.0, "there": 1.0}
    assert {(series["metric"]["resource"], series["metric"]["owner"]) for series in found} == {
        ("filesystem_kernel", "vda")
    }


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


def test_a_run_without_samples_says_why() -> None:
    keep(None, origin="/tmp/diary.txt")
    done = export("last")

    assert done.returncode == 1
    assert done.stderr.endswith("-base has no samples: it was imported from /tmp/diary.txt\n")


def test_a_run_that_is_not_there_is_told_in_one_line() -> None:
    keep([])
    done = export("nosuch")

    assert done.returncode == 1
    assert done.stderr == "pinchpoint: no run is 'nosuch': `pinchpoint runs` lists those that are kept\n"
