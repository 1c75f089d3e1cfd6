from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from machine import Machine
from patience import Deadline
from pinchpoint.benchmarks.markers import (
    MAX_EXPORTED_RUNS,
    MAX_MARKER_BYTES,
    MAX_MARKERS,
    MAX_USER_BYTES,
    MAX_USER_MARKER_BYTES,
    MAX_USER_MARKERS,
    Marker,
    RunDirectory,
)
from pinchpoint.benchmarks.markers import default_run_directory as default
from pinchpoint.host.users import NOBODY, Subordinates, Users
from pinchpoint.metrics import KEEP_ENDED_SECONDS
from pinchpoint.runs import LimitMark, PhaseMark, Result, VerdictMark

NOW = 1_700_000_000.0


@pytest.fixture
def runs(machine: Machine) -> RunDirectory:
    machine.process(10, "pinchpoint", start=77)
    machine.process(11, "my-bench", ppid=10)
    runs = machine.host().runs
    runs.create()
    return runs


def marker(run: str = "r", **changes: object) -> Marker:
    fields: dict[str, object] = {"benchmark": "fio", "pid": 10, "pid_start": 77, "command_pid": 11, "start": NOW}
    return Marker(run, **{**fields, **changes})  # type: ignore[arg-type]


def names(runs: RunDirectory, now: float = NOW) -> list[str]:
    return [found.run for found in runs.markers(now)]


def put(runs: RunDirectory, name: str, content: str | bytes) -> Path:
    """Write a file as another program would."""
    file = runs.path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def as_json(run: str, **changes: object) -> str:
    fields = {"run": run, "benchmark": "fio", "pid": 10, "pid_start": 77, "command_pid": 11, "start": NOW}
    return json.dumps({**fields, **changes})


def test_a_marker_that_was_written_is_read_as_it_was(runs: RunDirectory) -> None:
    written = marker(
        tags={"host": "a"}, phases=[PhaseMark("write", NOW, NOW + 1, [Result("write", "bytes_per_second", 1e9)])]
    )
    runs.write(written)

    assert list(runs.markers(NOW)) == [written]


def test_a_phases_verdict_is_kept_with_it_in_few_bytes(runs: RunDirectory) -> None:
    verdict = VerdictMark("resource", (LimitMark("mds_lock", "mds.a", 0.82),))
    written = marker(phases=[PhaseMark("write", NOW, verdict=verdict), PhaseMark("read", NOW)])
    runs.write(written)

    assert list(runs.markers(NOW)) == [written]
    assert b'"verdict":{"kind":"resource","limits":[["mds_lock","mds.a",0.82]]}' in (runs.path / "r.json").read_bytes()


def test_a_marker_of_a_version_without_verdicts_is_read(runs: RunDirectory) -> None:
    put(runs, "r.json", as_json("r", phases=[{"name": "write", "start": NOW}]))

    (found,) = runs.markers(NOW)

    assert found.phases[0].verdict is None


def test_a_marker_that_is_too_long_to_be_read_loses_its_first_phases(runs: RunDirectory) -> None:
    results = [Result(f"operation {number}", "bytes_per_second", 1e9, "x" * 40) for number in range(60)]
    runs.write(marker(phases=[PhaseMark(f"p{number}", NOW + number, results=results) for number in range(128)]))
    (found,) = runs.markers(NOW)

    assert 10 < len(found.phases) < 128
    assert found.phases[-1].name == "p127"


def test_no_directory_means_no_runs(tmp_path: Path) -> None:
    assert list(RunDirectory(tmp_path / "missing").markers(NOW)) == []
    assert RunDirectory(tmp_path / "missing").command_pids(NOW) == set()


def test_the_directory_is_open_to_every_user_and_nobody_removes_what_another_wrote(tmp_path: Path) -> None:
    runs = RunDirectory(tmp_path / "a" / "runs")
    runs.create()
    runs.create()

    assert stat.S_IMODE(runs.path.stat().st_mode) == 0o1777


def test_every_user_may_read_a_marker_and_nothing_else_is_left_beside_it(runs: RunDirectory) -> None:
    runs.write(marker())
    runs.write(marker(benchmark="ior"))

    assert [entry.name for entry in runs.path.iterdir()] == ["r.json"]
    assert stat.S_IMODE((runs.path / "r.json").stat().st_mode) == 0o644


def test_a_marker_is_replaced_whole_and_a_reader_never_sees_a_part(runs: RunDirectory) -> None:
    stop = threading.Event()

    def write() -> None:
        count = 0
        while not stop.is_set():
            count += 1
            runs.write(marker(benchmark=str(count), phases=[PhaseMark(str(count), NOW) for _ in range(200)]))

    runs.write(marker(benchmark="0", phases=[PhaseMark("0", NOW) for _ in range(200)]))
    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    reader = RunDirectory(runs.path, Path("/proc"))
    seen: set[str] = set()
    deadline = Deadline(20)
    while len(seen) < 20 and not deadline.over:
        (found,) = reader.markers(NOW)
        assert {phase.name for phase in found.phases} == {found.benchmark}
        seen.add(found.benchmark)
    stop.set()
    writer.join()

    assert len(seen) >= 20


def test_a_marker_that_can_not_be_written_leaves_nothing_behind(runs: RunDirectory) -> None:
    (runs.path / "r.json").mkdir()

    with pytest.raises(OSError, match="directory"):
        runs.write(marker())
    assert [entry.name for entry in runs.path.iterdir()] == ["r.json"]


@pytest.mark.parametrize("run", ["../outside", "/etc/outside", "a/b", "a\0b"])
def test_a_run_id_that_is_a_path_is_not_written(runs: RunDirectory, run: str) -> None:
    outside = runs.path.parent / "outside.json"
    outside.write_text("mine")

    with pytest.raises(OSError, match="can't be a path"):
        runs.write(marker(run))

    assert outside.read_text() == "mine"
    assert list(runs.path.iterdir()) == []


def test_markers_of_runs_that_are_shown_no_more_are_removed(runs: RunDirectory) -> None:
    runs.write(marker("old", end=NOW - KEEP_ENDED_SECONDS))
    runs.write(marker("new", end=NOW - 1))
    (runs.path / "notes.txt").write_text("somebody's own")
    runs.prune(NOW)
    runs.prune(NOW)

    assert sorted(path.name for path in runs.path.iterdir()) == ["new.json", "notes.txt"]


def test_a_run_that_died_is_shown_for_a_quarter_of_an_hour_after_it_last_wrote(runs: RunDirectory) -> None:
    runs.write(marker(pid=2**22 + 1))
    os.utime(runs.path / "r.json", (NOW, NOW))

    assert names(runs, NOW + KEEP_ENDED_SECONDS - 1) == ["r"]
    assert names(runs, NOW + KEEP_ENDED_SECONDS) == []


def test_the_newest_runs_come_first_and_old_ones_beyond_the_limit_not_at_all(runs: RunDirectory) -> None:
    for index in range(2 * MAX_EXPORTED_RUNS):
        runs.write(marker(f"run-{index:02}", start=NOW + index))

    assert names(runs) == [f"run-{index:02}" for index in reversed(range(MAX_EXPORTED_RUNS, 2 * MAX_EXPORTED_RUNS))]


def test_a_run_that_goes_on_is_not_forgotten_for_newer_ones_that_have_ended(runs: RunDirectory) -> None:
    runs.write(marker("long", start=NOW))
    for index in range(2 * MAX_EXPORTED_RUNS):
        runs.write(marker(f"short-{index:02}", start=NOW + index, end=NOW + index))

    assert names(runs)[:2] == ["long", f"short-{2 * MAX_EXPORTED_RUNS - 1:02}"]


def test_a_long_run_that_has_just_ended_comes_before_a_short_one_that_began_and_ended_meanwhile(
    runs: RunDirectory,
) -> None:
    runs.write(marker("long", start=NOW, end=NOW + 100))
    runs.write(marker("short", start=NOW + 50, end=NOW + 51))

    assert names(runs, NOW + 101) == ["long", "short"]


def test_an_ended_run_is_shown_for_a_quarter_of_an_hour(runs: RunDirectory) -> None:
    runs.write(marker(end=NOW))

    assert names(runs, NOW + KEEP_ENDED_SECONDS - 1) == ["r"]
    assert names(runs, NOW + KEEP_ENDED_SECONDS) == []


def test_a_changed_marker_is_read_again_and_an_unchanged_one_is_not(runs: RunDirectory) -> None:
    runs.write(marker())
    first = runs.markers(NOW)[0]
    assert runs.markers(NOW)[0] is first

    runs.write(marker(benchmark="ior"))
    assert runs.markers(NOW)[0].benchmark == "ior"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "null",
        "garbage",
        b"\xff\xfe\0\0",
        b"\0" * 1000,
        "[" * 100_000,
        '{"run":"hostile","x":' + "[" * 50_000 + "]" * 50_000 + "}",
        as_json("hostile", pid="10"),
        as_json("hostile", start=None),
        as_json("hostile").replace(f"{NOW}", "1e999"),
        as_json("hostile").replace(f"{NOW}", "NaN"),
        as_json("hostile", phases=[{"name": 1}]),
        as_json("../../etc/cron.d/hostile"),
        as_json("other"),
        as_json("hostile") + " " * MAX_MARKER_BYTES,
        as_json("hostile").replace("fio", "\\ud800"),
    ],
    ids=lambda content: repr(content)[:30],
)
def test_a_file_that_is_no_marker_is_left_out_and_hides_nobody_else(runs: RunDirectory, content: str | bytes) -> None:
    runs.write(marker())
    put(runs, "hostile.json", content)

    assert names(runs) == ["r"]
    assert runs.command_pids(NOW) == {11}


RESULT = {"operation": "write", "unit": "bytes_per_second", "value": 1}
PHASE = {"name": "write", "start": NOW}
VERDICT = {"kind": "resource", "limits": [["disk", "sda", -1]]}


@pytest.mark.parametrize(
    "changes",
    [
        {"total": 10**400},
        {"total": 2**31},
        {"total": -1},
        {"pid": 10**29},
        {"pid": -1},
        {"command_pid": 2**31},
        {"pid_start": 2**63},
        {"start": -1},
        {"start": 1e300},
        {"end": 2.0**38},
        {"scores": [{**RESULT, "value": 1e300}]},
        *(
            {"phases": [{**PHASE, **changes}]}
            for changes in (
                {"start": -1},
                {"end": 10**400},
                {"seconds": -1},
                {"progress": 1.5},
                {"progress": -0.5},
                {"moved": 1e300},
                {"pace": -1},
                {"expected": 1e300},
                {"number": 10**400},
                {"results": [{**RESULT, "value": -1}]},
                {"rates": [{**RESULT, "value": 2.0**64}]},
                {"verdict": VERDICT},
            )
        ),
    ],
    ids=lambda changes: json.dumps(changes)[:40],
)
def test_a_marker_with_a_number_that_cannot_be_is_left_out_and_hides_nobody_else(
    runs: RunDirectory, changes: dict[str, object]
) -> None:
    runs.write(marker())
    put(runs, "fine.json", as_json("fine", phases=[PHASE], scores=[RESULT], total=1))
    put(runs, "hostile.json", as_json("hostile", **changes))

    assert sorted(names(runs)) == ["fine", "r"]
    assert runs.command_pids(NOW) == {11}


def test_a_run_that_says_it_ended_in_the_future_is_not_shown_for_ever(runs: RunDirectory) -> None:
    file = put(runs, "hostile.json", as_json("hostile", end=NOW + 1e9))
    os.utime(file, (NOW + 1e9, NOW + 1e9))
    put(runs, "died.json", as_json("died", pid=99))
    os.utime(runs.path / "died.json", (NOW + 1e9, NOW + 1e9))
    written = file.stat().st_ctime

    assert sorted(names(runs, written)) == ["died", "hostile"]
    assert names(runs, written + KEEP_ENDED_SECONDS + 1) == []


def test_only_regular_files_are_opened(runs: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "link.json").write_text(as_json("link"))
    (runs.path / "link.json").symlink_to(tmp_path / "link.json")
    (runs.path / "loop.json").symlink_to("loop.json")
    (runs.path / "zero.json").symlink_to("/dev/zero")
    (runs.path / "directory.json").mkdir()
    os.mkfifo(runs.path / "fifo.json")
    runs.write(marker())

    assert names(runs) == ["r"]


def test_a_file_that_becomes_a_fifo_between_look_and_open_does_not_hang(
    runs: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(runs, "hostile.json", as_json("hostile"))
    found = os.lstat(file)
    file.unlink()
    os.mkfifo(file)
    monkeypatch.setattr("pinchpoint.benchmarks.markers.os.stat", lambda path, **options: found)
    read: list[list[str]] = []
    reader = threading.Thread(target=lambda: read.append(names(runs)), daemon=True)
    reader.start()
    reader.join(10)

    assert read == [[]]


def test_a_name_that_is_not_utf_8_is_left_out(runs: RunDirectory) -> None:
    with open(os.fsencode(runs.path) + b"/\xff.json", "w") as file:
        file.write(as_json("x"))
    runs.write(marker())

    assert names(runs) == ["r"]


def test_of_ten_thousand_files_the_newest_run_is_still_found(runs: RunDirectory) -> None:
    for index in range(10_000):
        put(runs, f"20200101T{index:06}Z-x.json", "garbage")
    runs.write(marker("20261121T000000Z-mine"))

    assert names(runs) == ["20261121T000000Z-mine"]


def test_a_run_is_alive_as_long_as_its_process_is_there_and_the_same(machine: Machine, runs: RunDirectory) -> None:
    runs.write(marker())
    (found,) = runs.markers(NOW)
    assert runs.alive(found)

    machine.process(10, "somebody else", start=78)
    assert not runs.alive(found)
    machine.end(10)
    assert not runs.alive(found)


@pytest.mark.parametrize(
    ("field", "value"), [("end", NOW), ("pid", 99), ("pid", 2**31 - 1), ("pid", 0), ("pid_start", 1)]
)
def test_a_run_that_ended_or_whose_process_is_another_is_not_alive(
    runs: RunDirectory, field: str, value: float
) -> None:
    put(runs, "r.json", as_json("r", **{field: value}))

    assert [runs.alive(found) for found in runs.markers(NOW)] == [False]
    assert runs.command_pids(NOW) == set()


def test_nobody_speaks_for_a_process_of_another_user(runs: RunDirectory, machine: Machine) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    put(runs, "hostile.json", as_json("hostile"))
    os.chown(runs.path / "hostile.json", 65534, 65534)
    (found,) = runs.markers(NOW)
    assert not runs.alive(found)

    os.chown(machine.procfs / "10", 65534, 65534)
    assert runs.alive(found)


def test_a_run_adopts_its_own_command_and_no_other_process(runs: RunDirectory, machine: Machine) -> None:
    machine.process(12, "sshd", ppid=1)
    put(runs, "hostile.json", as_json("hostile", command_pid=12))
    put(runs, "init.json", as_json("init", command_pid=1))
    put(runs, "gone.json", as_json("gone", command_pid=99))
    runs.write(marker())

    assert len(names(runs)) == 4
    assert runs.command_pids(NOW) == {11}


def test_a_tree_that_a_run_started_is_known_as_a_benchmark(machine: Machine, runs: RunDirectory) -> None:
    runs.write(marker())

    assert {
        pid: process.class_ for pid, process in machine.host_with_runs(NOW).processes.current(0).items()
    } == {11: "benchmark"}  # fmt: skip


CHANGES = st.dictionaries(
    st.sampled_from(["pid", "start", "phases", "tags", "end"]),
    st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
)


@given(st.binary(max_size=80) | CHANGES.map(lambda changes: as_json("r", **changes).encode()))
@example(b"[" * 100_000)
@example(b'{"run": "r", "x": "\xed\xa0\x80"}')
def test_whatever_stands_in_a_marker_reading_it_raises_nothing(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    runs = RunDirectory(tmp_path_factory.getbasetemp() / "runs")
    runs.create()
    put(runs, "r.json", raw)

    for found in runs.markers(NOW):
        assert isinstance(runs.alive(found), bool)
    assert runs.command_pids(NOW) == runs.commands


def test_where_run_may_not_be_written_the_users_own_directory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "pinchpoint"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert default(shared) == Path("/run/user/1000/pinchpoint")

    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", "/home/alice/state")
    assert default(shared) == Path("/home/alice/state/pinchpoint/markers")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/alice")
    assert default(shared) == Path("/home/alice/.local/state/pinchpoint/markers")

    monkeypatch.setattr(os, "access", lambda path, mode: True)
    assert default(shared) == shared


def test_a_directory_of_all_users_is_taken_where_the_services_sandbox_made_it_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    RunDirectory(tmp_path / "pinchpoint").create()
    assert default(tmp_path / "pinchpoint") == tmp_path / "pinchpoint"

    (tmp_path / "pinchpoint").chmod(0o755)
    assert default(tmp_path / "pinchpoint") == Path("/run/user/1000/pinchpoint")


@pytest.fixture
def root() -> None:
    """Skip where files can't be given to another user."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")


MINE = "20261121T000000Z-mine"


def puts(runs: RunDirectory, name: str, content: str, uid: int = NOBODY) -> None:
    """Write a file as another user would."""
    os.chown(put(runs, name, content), uid, uid)


def as_nobody(runs: RunDirectory, *lines: str) -> subprocess.CompletedProcess[str]:
    """Run Python as uid 65534, with a run directory `runs` and a marker `marker` at hand."""
    script = "\n".join(
        [
            "import os",
            f"os.setgid({NOBODY}); os.setuid({NOBODY})",
            "from pathlib import Path",
            "from pinchpoint.benchmarks.markers import Marker, RunDirectory",
            f"runs = RunDirectory(Path({str(runs.path)!r}))",
            "marker = Marker('r', 'fio', 0.0, pid=1, pid_start=1, command_pid=1)",
            *lines,
        ]
    )
    # Modules are imported before the rights are given up: the tree need not be readable for everybody.
    imports = "import pinchpoint.benchmarks.markers\n"
    return subprocess.run(
        [sys.executable, "-c", imports + script], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def anywhere() -> Iterator[Path]:
    """Return a directory that every user can reach and write to, as /tmp is."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("first", ["0-first", "99991231T000000Z-late"])
def test_no_number_of_another_users_markers_hides_ours(runs: RunDirectory, first: str) -> None:
    runs.write(marker(MINE))
    for number in range(2 * MAX_MARKERS):
        name = f"{first}-{number}"
        puts(runs, f"{name}.json", as_json(name, start=NOW + 1e6, end=None))

    found = names(runs)

    assert found[0] == MINE
    assert len(found) == 1 + MAX_EXPORTED_RUNS


@pytest.mark.usefixtures("root")
def test_the_newest_markers_of_each_user_are_read_within_that_users_quota(runs: RunDirectory) -> None:
    for number in range(100):
        puts(runs, f"a-{number:03}.json", as_json(f"a-{number:03}", end=NOW))
        puts(runs, f"b-{number:03}.json", as_json(f"b-{number:03}", end=NOW), 65533)

    assert len(runs.markers(NOW)) == 2 * MAX_EXPORTED_RUNS
    assert len(runs._cache) == 2 * MAX_USER_MARKERS
    assert {"a-099.json", "b-099.json"} <= runs._cache.keys()


@pytest.mark.usefixtures("root")
def test_markers_of_another_user_have_a_quota_of_bytes_each_and_together(runs: RunDirectory) -> None:
    puts(runs, "big.json", as_json("big") + " " * MAX_USER_MARKER_BYTES)
    for number in range(8):
        puts(runs, f"half-{number}.json", as_json(f"half-{number}") + " " * (MAX_USER_MARKER_BYTES - 1024))
    runs.write(marker(MINE, tags={"long": "x" * MAX_USER_MARKER_BYTES}))
    names(runs)

    read = {name: file.identity.size for name, file in runs._cache.items()}
    assert "big.json" not in read
    assert sum(size for name, size in read.items() if name.startswith("half")) <= MAX_USER_BYTES
    assert f"{MINE}.json" in read


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("room", [MAX_MARKER_BYTES, MAX_USER_MARKER_BYTES])
def test_however_many_markers_another_user_writes_reading_them_takes_little_memory(
    runs: RunDirectory, room: int
) -> None:
    phases = [{"name": "", "start": NOW} for _ in range(room // 45)]
    assert len(as_json("0", phases=phases)) < room
    for number in range(MAX_MARKERS):
        puts(runs, f"{number}.json", as_json(str(number), phases=phases))
    tracemalloc.start()
    names(runs)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert most < 8 << 20


@pytest.mark.usefixtures("root")
def test_a_run_of_another_user_has_that_users_mark_whatever_it_is_called(runs: RunDirectory) -> None:
    for name in ("plain", "own@uid65534", "forged@uid0", "forged@uid65533"):
        puts(runs, f"{name}.json", as_json(name, end=NOW))
    puts(runs, "same.0.json", as_json("same", end=NOW), 65533)
    runs.write(marker("same", end=NOW))

    assert set(names(runs)) == {
        "plain@uid65534",
        "own@uid65534",
        "forged@uid0@uid65534",
        "forged@uid65533@uid65534",
        "same@uid65533",
        "same",
    }


@pytest.mark.usefixtures("root")
def test_of_two_runs_with_one_id_the_trusted_users_keeps_it(runs: RunDirectory) -> None:
    puts(runs, "r@uid65534.json", as_json("r@uid65534", end=NOW), 65534)
    puts(runs, "r.json", as_json("r", end=NOW), 65534)
    assert sorted(names(runs)) == ["r-2@uid65534", "r@uid65534"]

    os.chown(runs.path / "r@uid65534.json", 0, 0)
    names(runs)
    assert names(runs) == ["r@uid65534", "r-2@uid65534"]


@pytest.mark.usefixtures("root")
def test_ids_of_any_length_become_distinct(runs: RunDirectory) -> None:
    long = "x" * 240
    for name in (long, f"{long}y", f"{long}z"):
        puts(runs, f"{name}.json", as_json(name, end=NOW))

    found = names(runs)

    assert len(set(found)) == 3
    assert all(run.endswith("@uid65534") for run in found)


@pytest.mark.usefixtures("root")
def test_a_trusted_users_markers_count_as_roots(machine: Machine) -> None:
    runs = RunDirectory(machine.runs, machine.procfs, Users([65534]))
    runs.create()
    for number in range(2 * MAX_USER_MARKERS):
        puts(runs, f"run-{number:02}.json", as_json(f"run-{number:02}", end=NOW))
    names(runs)

    assert len(runs._cache) == 2 * MAX_USER_MARKERS
    assert names(runs)[0] in {f"run-{number:02}" for number in range(2 * MAX_USER_MARKERS)}


@pytest.mark.usefixtures("root")
def test_a_user_whose_containers_have_other_uids_has_one_quota(machine: Machine) -> None:
    runs = RunDirectory(machine.runs, machine.procfs, Users((), lambda: [Subordinates(65534, 100_000, 1000)]))
    runs.create()
    for number in range(3 * MAX_USER_MARKERS):
        puts(runs, f"run-{number:02}.json", as_json(f"run-{number:02}", end=NOW), 100_000 + number)
    found = names(runs)

    assert len(runs._cache) == MAX_USER_MARKERS
    assert all(run.endswith("@uid65534") for run in found)


@pytest.mark.usefixtures("root")
def test_a_file_that_another_user_put_in_the_place_of_a_marker_is_evaded(anywhere: Path) -> None:
    runs = RunDirectory(anywhere / "runs")
    runs.create()
    put(runs, "r.json", "{}")  # root's: nobody may not replace it

    done = as_nobody(runs, "runs.write(marker)", "runs.write(marker)")

    assert (done.returncode, done.stderr) == (0, "")
    assert names(runs) == ["r@uid65534"]
    assert len(list(runs.path.iterdir())) == 2


@pytest.mark.usefixtures("root")
def test_a_directory_that_another_user_made_beforehand_is_refused(anywhere: Path) -> None:
    runs = RunDirectory(anywhere / "runs")
    runs.path.mkdir(mode=0o777)
    os.chown(runs.path, NOBODY, NOBODY)

    with pytest.raises(OSError, match="is another user's directory") as refused:
        runs.write(marker())
    assert (refused.value.errno, refused.value.filename) == (errno.EPERM, str(runs.path))
    assert list(runs.path.iterdir()) == []


@pytest.mark.usefixtures("root")
def test_a_directory_of_the_service_where_only_root_makes_directories_is_trusted(tmp_path: Path) -> None:
    runs = RunDirectory(tmp_path / "runs")
    runs.create()
    os.chown(runs.path, NOBODY, NOBODY)
    tmp_path.chmod(0o755)

    runs.write(marker())

    assert [entry.name for entry in runs.path.iterdir()] == ["r.json"]


def test_a_link_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").symlink_to("elsewhere")
    runs = RunDirectory(tmp_path / "runs")

    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        runs.write(marker())
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_no_file_changes_its_mode_however_names_are_swapped_while_a_marker_is_written(
    runs: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("")
    secret.chmod(0o600)
    change = os.fchmod

    def swap(handle: int, mode: int) -> None:
        for new in runs.path.glob(".marker-*"):
            new.unlink()
            new.symlink_to(secret)
        change(handle, mode)

    monkeypatch.setattr(os, "fchmod", swap)
    runs.write(marker())

    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


@pytest.mark.usefixtures("root")
def test_only_our_own_markers_are_removed(runs: RunDirectory) -> None:
    puts(runs, "old.json", as_json("old", end=1.0))
    put(runs, "ours.json", as_json("ours", end=1.0))
    runs.prune(NOW)

    assert [entry.name for entry in runs.path.iterdir()] == ["old.json"]
