"""`pinchpoint run` as a user calls it: a separate process, with a real command below it."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from patience import Deadline, patience
from pinchpoint.wire.recording import read_recording
from polling import until
from serving import serving

Run = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Start `pinchpoint run` with its own state and marker directories."""

    def start(*argv: str, **options: Any) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "COLUMNS": "120"}
        command = [sys.executable, "-m", "pinchpoint", "run", f"--path.runs={tmp_path / 'runs'}", *argv]
        return subprocess.Popen(command, env=environment, cwd=tmp_path, **{"stdout": -1, "stderr": -1, **options})

    return start


@pytest.fixture
def no_exporter() -> None:
    """Skip a test if `pinchpoint run` would find an exporter of this host."""
    with socket.socket() as connection:
        if connection.connect_ex(("127.0.0.1", 9748)) == 0:
            pytest.skip("something listens on port 9748, and `pinchpoint run` would ask it")


def kept(tmp_path: Path) -> Path:
    (directory,) = (tmp_path / "state" / "pinchpoint" / "runs").iterdir()
    return directory


def benchmark_busy(tmp_path: Path, host: str) -> float:
    """Return the busy seconds of the benchmark's threads on a host, up to its last recorded sample."""
    *_, last = (moment[host] for moment in read_recording(kept(tmp_path) / "samples.om.gz") if host in moment)
    series = last.series("pinchpoint_resource_busy_seconds_total")
    return sum(value for labels, value in series if labels["resource"] == "benchmark")


def await_text(path: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    deadline = Deadline(30)
    while not path.exists() or text not in path.read_text():
        assert process.poll() is None, "it ended before the text came"
        assert not deadline.over, f"{text!r} never came"
        time.sleep(0.02)


def test_output_passes_through_unchanged_and_is_kept(run: Run, tmp_path: Path) -> None:
    script = r"import os, sys; os.write(1, bytes(range(256)) * 300 + b'\r\n'); os.write(2, b'to stderr\n')"

    process = run("--quiet", "--", sys.executable, "-c", script)
    stdout, stderr = process.communicate(timeout=patience(60))

    assert process.returncode == 0
    assert stdout == bytes(range(256)) * 300 + b"\r\n"
    assert (kept(tmp_path) / "stdout").read_bytes() == stdout
    assert b"to stderr\n" in stderr


def test_the_command_has_every_right_of_its_caller(run: Run) -> None:
    show = ["grep", "-E", "^(Cap|NoNewPrivs)", "/proc/self/status"]
    stdout, _ = run("--quiet", "--", *show).communicate(timeout=patience(60))

    assert stdout == subprocess.run(show, capture_output=True, check=True).stdout


@pytest.mark.parametrize("status", [1, 7, 255])
def test_the_exit_status_passes_through(run: Run, status: int) -> None:
    process = run("--", "sh", "-c", f"exit {status}")
    process.communicate(timeout=patience(60))

    assert process.returncode == status


def test_a_command_that_a_signal_ended_ends_us_by_the_same_signal(run: Run, tmp_path: Path) -> None:
    process = run("--", "sh", "-c", "kill -USR1 $$")
    process.communicate(timeout=patience(60))

    assert process.returncode == -signal.SIGUSR1
    assert json.loads((kept(tmp_path) / "run.json").read_text())["exit_status"] == -signal.SIGUSR1


@pytest.mark.parametrize(("command", "status"), [("no-such-command", 127), ("/", 126), ("", 127)])
def test_a_command_that_cannot_be_started_is_one_clear_line_and_leaves_nothing(
    run: Run, tmp_path: Path, command: str, status: int
) -> None:
    process = run("--quiet", "--", command)
    stderr = process.communicate(timeout=patience(60))[1].decode()

    assert process.returncode == status
    assert stderr.startswith(f"pinchpoint: {command or repr('')}: ")
    assert len(stderr.splitlines()) == 1
    assert not [*(tmp_path / "state" / "pinchpoint" / "runs").iterdir()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_us_reaches_the_command_and_its_end_is_reported(
    run: Run, tmp_path: Path, number: signal.Signals
) -> None:
    handle = f"import signal, sys; signal.signal({int(number)}, lambda *_: sys.exit(9))"
    script = f"{handle}; print('ready', flush=True); signal.pause()"
    obeyed = partial(signal.signal, number, signal.SIG_DFL)  # under `nohup make test` the tests ignore SIGHUP
    process = run("--", sys.executable, "-c", script, preexec_fn=obeyed)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"

    process.send_signal(number)
    stderr = process.communicate(timeout=patience(60))[1].decode()

    assert process.returncode == 9
    assert "saved in" in stderr
    assert json.loads((kept(tmp_path) / "run.json").read_text())["marker"]["state"] == "stopped"


def test_a_signal_that_nobody_obeys_stops_no_run(run: Run, tmp_path: Path) -> None:
    """`nohup pinchpoint run` continues when its terminal is closed, and may fail hours later."""
    script = "import sys; print('ready', flush=True); sys.stdin.read(); sys.exit(1)"
    ignored = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    process = run("--", sys.executable, "-c", script, stdin=subprocess.PIPE, preexec_fn=ignored)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"

    process.send_signal(signal.SIGHUP)
    process.communicate(b"", timeout=patience(60))

    assert json.loads((kept(tmp_path) / "run.json").read_text())["marker"]["state"] == "failed"


def test_ctrl_c_of_a_terminal_reaches_the_command_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    # A second SIGINT would end it with another status.
    script = (
        "import signal, sys, time\n"
        "def stop(*_):\n"
        "    signal.signal(signal.SIGINT, lambda *_: sys.exit(8))\n"
        "    time.sleep(0.5); print('stopped'); sys.exit(5)\n"
        "signal.signal(signal.SIGINT, stop)\n"
        f"print('terminal' if sys.stdout.isatty() else 'no terminal'); open({str(log)!r}, 'w').write('ready')\n"
        "signal.pause()\n"
    )
    command = [sys.executable, "-m", "pinchpoint", "run", f"--path.runs={tmp_path}", "--", sys.executable, "-c", script]
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["XDG_STATE_HOME"] = str(tmp_path / "state")
        os.execv(command[0], command)
    shown = b""
    # What is not read before Ctrl-C is thrown away by it (__isig, drivers/tty/n_tty.c).
    while b"terminal\r\n" not in shown:
        shown += os.read(terminal, 4096)
    assert until(30, lambda: log.exists() and log.read_text())

    os.write(terminal, b"\x03")
    try:
        while data := os.read(terminal, 4096):
            shown += data
    except OSError:
        pass  # EIO: the other side has closed the terminal

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert b"terminal\r\n" in shown
    assert b"stopped\r\n" in shown
    assert b"no terminal" not in shown


def test_a_reader_that_goes_away_ends_the_command_as_it_would_without_us(run: Run) -> None:
    process = run("--quiet", "--", "yes")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()

    process.wait(timeout=patience(60))

    assert process.returncode == -signal.SIGPIPE


def test_a_child_that_keeps_the_output_open_does_not_hold_us_up(run: Run) -> None:
    process = run("--quiet", "--", "sh", "-c", "sleep 300 & echo $!")
    assert process.stdout is not None
    left = int(process.stdout.readline())
    try:
        assert process.wait(timeout=patience(60)) == 0
    finally:
        os.kill(left, signal.SIGKILL)


@pytest.mark.usefixtures("no_exporter")
def test_any_command_is_one_phase_with_what_was_full_in_it(run: Run, tmp_path: Path) -> None:
    spin = "import time\nend = time.monotonic() + 4\nwhile time.monotonic() < end: pass"

    process = run("--name", "spin it", "--tag", "knob=1", "--", sys.executable, "-c", spin)
    stderr = process.communicate(timeout=patience(60))[1].decode()

    record = json.loads((kept(tmp_path) / "run.json").read_text())
    assert [phase["name"] for phase in record["marker"]["phases"]] == ["run"]
    assert record["marker"]["tags"] == {"knob": "1"}
    assert record["marker"]["run"].endswith("-spin-it")
    assert record["command"][0] == sys.executable
    # Whatever the command's name, its processes are the benchmark; its limit depends on other load too.
    assert "waits: " in stderr
    assert len(list(read_recording(kept(tmp_path) / "samples.om.gz"))) >= 3
    assert benchmark_busy(tmp_path, "this host") > 1


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_fio_job_groups_are_phases_with_results_from_its_json(run: Run, tmp_path: Path) -> None:
    (tmp_path / "two.fio").write_text(
        "[global]\ntime_based\nruntime=4\n[burn]\nioengine=cpuio\ncpuload=100\n"
        f"[write_it]\nstonewall\ndirectory={tmp_path}\nrw=write\nbs=64k\nsize=16m\nfsync=64\n"
    )

    process = run("--", "sh", "-c", "echo before; fio --output-format=json two.fio; echo after")
    stdout, stderr = process.communicate(timeout=patience(120))

    phases = json.loads((kept(tmp_path) / "run.json").read_text())["marker"]["phases"]
    assert stdout.startswith(b"before\n")
    assert stdout.endswith(b"after\n")
    assert [phase["name"] for phase in phases] == ["burn", "write_it"]
    assert all(phase["end"] > phase["start"] for phase in phases)
    assert phases[1]["end"] - phases[0]["start"] > 4, "each takes 4 s, and is seen a little late"
    assert phases[0]["end"] <= phases[1]["start"]
    units = {(result["operation"], result["unit"]) for result in phases[1]["results"]}
    assert units == {("write", "bytes_per_second"), ("write", "operations_per_second")}
    row = stderr.decode().partition("\n burn ")[2].partition("\n write_it ")[0]
    assert "waits: " in row
    assert benchmark_busy(tmp_path, "this host") > 1


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_output_without_results_says_what_would_have_them(run: Run) -> None:
    burn = ("--name=burn", "--ioengine=cpuio", "--cpuload=50", "--runtime=1", "--time_based", "--output=/dev/zero")
    process = run("--quiet", "--", "fio", *burn)
    stderr = process.communicate(timeout=patience(60))[1].decode()

    assert "warning: no results in the output of fio: let it print to standard output" in stderr


def test_the_marker_says_which_phase_goes_on_and_when_it_has_ended(run: Run, tmp_path: Path) -> None:
    process = run("--name", "m", "--", "sh", "-c", "echo ready; read line", stdin=-1)
    assert process.stdout is not None
    process.stdout.readline()
    (marker,) = _markers(tmp_path / "runs", process)
    await_text(marker, '"phases":[{', process)
    during = json.loads(marker.read_text())
    process.communicate(b"\n", timeout=patience(60))
    after = json.loads(marker.read_text())

    assert (during["phases"][0]["name"], during["phases"][0]["end"]) == ("run", None)
    assert after["phases"][0]["end"] <= after["end"]


def _markers(directory: Path, process: subprocess.Popen[bytes]) -> list[Path]:
    deadline = Deadline(30)
    while not (found := list(directory.glob("*.json")) if directory.exists() else []):
        assert process.poll() is None
        assert not deadline.over
        time.sleep(0.02)
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tag", "no-value", "--", "true"),
        ("--tag", "a=x", "--tag", "a=z", "--", "true"),
        ("--target", "127.0.0.1:1", "--", "true"),
        ("--target", "no-port", "--", "true"),
        ("--prometheus", "127.0.0.1:9090", "--", "true"),
        (),
    ],
)
def test_a_bad_call_says_so_and_starts_nothing(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    process = run(*arguments)
    stderr = process.communicate(timeout=patience(60))[1].decode()

    assert process.returncode == 2
    assert "Traceback" not in stderr
    assert not (tmp_path / "state").exists()


@contextmanager
def exporting(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run an exporter that sees the test's runs; give its address and its process."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    flags = [f"--web.listen-address={address}", f"--path.runs={tmp_path / 'runs'}"]
    with subprocess.Popen([sys.executable, "-m", "pinchpoint", "exporter", *flags], stderr=-3) as exporter:
        deadline = Deadline(30)
        while socket.socket().connect_ex(("127.0.0.1", int(address.partition(":")[2]))):
            assert not deadline.over
            time.sleep(0.05)
        try:
            yield address, exporter
        finally:
            exporter.kill()


def test_a_phase_whose_exporter_went_away_shows_what_was_seen_until_then(run: Run, tmp_path: Path) -> None:
    with exporting(tmp_path) as (address, exporter):
        script = "import time, sys\nend = time.monotonic() + 5\nwhile time.monotonic() < end: pass\n"
        script += "print('spun', flush=True); sys.stdin.read()"
        process = run("--target", address, "--", sys.executable, "-c", script, stdin=-1)
        assert process.stdout is not None
        assert process.stdout.readline() == b"spun\n"
        exporter.kill()
    stderr = process.communicate(b"", timeout=patience(60))[1].decode()

    assert "waits: " in stderr
    assert benchmark_busy(tmp_path, address) > 1
    assert f"warning: no samples: {address}: " in stderr


def test_several_targets_are_recorded_and_one_that_goes_loses_no_other(run: Run, tmp_path: Path) -> None:
    with exporting(tmp_path) as (here, _), exporting(tmp_path) as (other, leaving):
        process = run("--target", f"{here},{other}", "--", "sh", "-c", "echo begun; read line; sleep 2.5", stdin=-1)
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        recording = kept(tmp_path) / "samples.om.gz"
        until(30, lambda: any(other in moment for moment in read_recording(recording)))
        leaving.kill()
        leaving.wait()
        stderr = process.communicate(b"\n", timeout=patience(60))[1].decode()
    moments = list(read_recording(recording))

    assert f"samples from {here}, {other}" in stderr
    assert all(here in moment for moment in moments)
    assert other in moments[0]
    assert other not in moments[-1]
    assert f"warning: no samples: {other}: " in stderr
    assert f"warning: no samples: {here}: " not in stderr


@pytest.mark.usefixtures("no_exporter")
def test_other_hosts_come_from_prometheus_where_no_target_is_named(run: Run, tmp_path: Path) -> None:
    series = [
        {"metric": {"__name__": "pinchpoint_threads", "instance": instance, "role": "r"}, "values": [[5.5, "3"]]}
        for instance in ("192.0.2.1:9748", "127.0.0.1:9748")
    ]
    answer = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}})
    with serving(lambda path: answer) as address:
        url = f"http://{address}"
        process = run("--prometheus", url, "--", "sleep", "2")
        stderr = process.communicate(timeout=patience(60))[1].decode()
    moments = list(read_recording(kept(tmp_path) / "samples.om.gz"))

    assert f"samples from this host, {url}" in stderr
    # The exporter on this machine is this host, which is already known.
    assert list(moments[-1]) == ["this host", "192.0.2.1:9748"]
    assert moments[-1]["192.0.2.1:9748"].time == 5.5
    assert "no alerts" not in stderr


def test_a_prometheus_that_is_down_is_a_warning_and_the_run_goes_on(run: Run, tmp_path: Path) -> None:
    process = run("--prometheus", "http://127.0.0.1:1", "--", "sleep", "1")
    stderr = process.communicate(timeout=patience(60))[1].decode()

    assert process.returncode == 0
    assert "warning: no samples: http://127.0.0.1:1: Connection refused; a server's address is needed" in stderr
    assert "warning: no alerts: http://127.0.0.1:1: Connection refused" in stderr
    assert list(read_recording(kept(tmp_path) / "samples.om.gz"))


def test_words_that_are_not_utf8_are_no_failure(run: Run, tmp_path: Path) -> None:
    process = run("--tag", os.fsdecode(b"note=\xff"), "--", "sh", "-c", "exit 3", os.fsdecode(b"\xff"))
    process.communicate(timeout=patience(60))

    assert process.returncode == 3
    assert json.loads((kept(tmp_path) / "run.json").read_text())["command"][-1] == "?"


def test_output_that_comes_faster_than_it_can_be_read_does_not_hold_up_the_command(run: Run, tmp_path: Path) -> None:
    script = "yes | head -c 100M; echo; echo write gave 5 MiB/s"
    process = run(
        "--quiet",
        "--phase-pattern",
        r"(?P<phase>\w+) gave (?P<value>\d+) (?P<unit>\S+)",
        "--",
        "sh",
        "-c",
        script,
        stdout=subprocess.DEVNULL,
    )
    _, stderr = process.communicate(timeout=patience(60))
    record = json.loads((kept(tmp_path) / "run.json").read_text())
    results = [result["value"] for phase in record["marker"]["phases"] for result in phase.get("results", ())]

    assert process.returncode == 0
    assert results == [5 * 2**20]
    assert b"more than could be read" in stderr


NO_THREAD = """
import threading
def refuse(thread, left=[{left}], start=threading.Thread.start):
    if not left[0]:
        raise RuntimeError("can't start new thread")
    left[0] -= 1
    start(thread)
threading.Thread.start = refuse
"""
NO_PROCESS = """
import os
def refuse(*arguments, left=[{left}], spawn=os.posix_spawnp, **options):
    if left[0]:
        left[0] -= 1
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return spawn(*arguments, **options)
os.posix_spawnp = refuse
"""
REFUSED = """
import errno, importlib
def refuse(*arguments, **options):
    raise {error}
place = importlib.import_module("pinchpoint.{module}")
*owner, name = "{name}".split(".")
setattr(getattr(place, *owner) if owner else place, name, refuse)
"""
NO_ROOM = "OSError(errno.ENOSPC, 'No space left on device')"
MAIN = "from pinchpoint.cli import main; main()"
SEVEN = "import sys; print('printed', flush=True); sys.exit(7)"


def limited(tmp_path: Path, limit: str, *argv: str, command: str = SEVEN) -> subprocess.CompletedProcess[bytes]:
    """Run a command that prints a line and exits with 7, after Python code that sets a limit."""
    markers = f"--path.runs={tmp_path / 'runs'}"
    return subprocess.run(
        [sys.executable, "-c", f"{limit}\n{MAIN}", "run", markers, *argv, "--", sys.executable, "-c", command],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        cwd=tmp_path,
        capture_output=True,
        timeout=patience(60),
        check=False,
    )


@pytest.mark.parametrize("left", [0, 1, 2, 3, 5])
def test_without_threads_the_command_runs_and_what_is_not_kept_is_said(
    no_exporter: None, tmp_path: Path, left: int
) -> None:
    done = limited(tmp_path, NO_THREAD.format(left=left))

    assert (done.returncode, done.stdout) == (7, b"printed\n")
    assert b"can't start new thread" in done.stderr
    assert b"Traceback" not in done.stderr
    assert json.loads((kept(tmp_path) / "run.json").read_text())["exit_status"] == 7


def test_if_the_host_refuses_another_process_ours_give_way(no_exporter: None, tmp_path: Path) -> None:
    done = limited(tmp_path, NO_PROCESS.format(left=1))

    assert (done.returncode, done.stdout) == (7, b"printed\n")
    assert b"warning: no samples: the host refused another process" in done.stderr
    assert (kept(tmp_path) / "stdout").read_bytes() == b"printed\n"


def test_a_host_without_any_room_for_a_process_is_one_line(no_exporter: None, tmp_path: Path) -> None:
    done = limited(tmp_path, NO_PROCESS.format(left=2), "--quiet")

    assert (done.returncode, done.stdout) == (126, b"")
    assert done.stderr.decode() == f"pinchpoint: {sys.executable}: Resource temporarily unavailable\n"


@pytest.mark.parametrize(
    ("module", "name", "error", "words"),
    [
        ("session.phases", "PhaseJudge._judge", "MemoryError", "phases may lack, or their verdicts: out of memory"),
        ("session.keep", "read_bytes", "OSError(errno.EMFILE, 'Too many open files')", "Too many open files"),
        ("session.follow", "CommandFollower.look", "MemoryError", "a look at the command failed: out of memory"),
        ("session.phases", "Recorder", NO_ROOM, "samples are not recorded: No space left on device"),
        ("wire.recording", "Recorder.add", NO_ROOM, "samples are not recorded: No space left on device"),
        ("session.store", "save", NO_ROOM, "run.json: No space left on device: the run is not saved"),
        ("session.store", "save", "MemoryError", "run.json: out of memory: the run is not saved"),
        ("session.session", "Session.finish", "MemoryError", "the report ends here: out of memory"),
        ("commands.run", "run_table", "MemoryError", "the report ends here: out of memory"),
    ],
)
def test_whatever_is_refused_the_command_is_not_disturbed(
    no_exporter: None, tmp_path: Path, module: str, name: str, error: str, words: str
) -> None:
    done = limited(tmp_path, REFUSED.format(module=module, name=name, error=error))

    assert (done.returncode, done.stdout) == (7, b"printed\n")
    assert words in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_a_run_whose_record_is_lost_is_not_said_to_be_kept(no_exporter: None, tmp_path: Path) -> None:
    done = limited(tmp_path, REFUSED.format(module="session.store", name="save", error=NO_ROOM))

    assert b"saved in" not in done.stderr
    assert f"pinchpoint: not saved; what could be written is in {kept(tmp_path)}\n".encode() in done.stderr


@pytest.mark.parametrize("descriptors", [10, 16, 24, 40])
def test_under_any_limit_of_descriptors_the_command_runs(no_exporter: None, tmp_path: Path, descriptors: int) -> None:
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}))"

    done = limited(tmp_path, limit)

    assert (done.returncode, done.stdout) == (7, b"printed\n")
    assert b"Traceback" not in done.stderr


def test_a_limit_of_file_sizes_cuts_what_is_kept_and_no_output(no_exporter: None, tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"

    done = limited(tmp_path, limit)

    assert (done.returncode, done.stdout) == (7, b"printed\n")
    assert b"warning: samples are not recorded: File too large" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_clock_that_is_set_back_meanwhile_is_one_line_and_a_note(no_exporter: None, tmp_path: Path) -> None:
    flag = tmp_path / "set back"
    limit = f"import os, time\ntime.time = lambda real=time.time: real() - 3600 * os.path.exists({str(flag)!r})\n"
    command = f"open({str(flag)!r}, 'w'); print('printed', flush=True); import time; time.sleep(1.5)"
    done = limited(tmp_path, limit, command=command)
    record = json.loads((kept(tmp_path) / "run.json").read_text())
    (phase,) = record["marker"]["phases"]
    moments = [moment["this host"].time for moment in read_recording(kept(tmp_path) / "samples.om.gz")]
    report = subprocess.run(
        [sys.executable, "-m", "pinchpoint", "report", "last"],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        cwd=tmp_path,
        capture_output=True,
        timeout=patience(60),
        check=False,
    )

    assert done.returncode == 0
    assert done.stderr.count(b"the clock of this host was set back by 3600 s") == 1
    assert 1.0 < phase["end"] - phase["start"] < 3000
    assert moments == sorted(moments)
    assert len(record["steps"]) == 1
    assert "the clock of this host was set back by 3600 s" in report.stdout.decode().replace("\n", " ")
