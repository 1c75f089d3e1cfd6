"""`pinchpoint experiment` as a user calls it: real processes, a knob that is a file, a benchmark that obeys it.

One experiment may run on a host at a time, so all tests that conduct one are in this file.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from patience import patience
from polling import until

BENCHMARK = """#!{python}
import os, pathlib, random, sys, time
here = {here!r}
runs = len(open(here + "/log").readlines()) if os.path.exists(here + "/log") else 0
knob = open(here + "/knob").read().strip()
with open(here + "/log", "a") as log:
    print(knob, file=log)
if sys.argv[1:]:
    pathlib.Path(here, "config").write_text(pathlib.Path(sys.argv[1]).read_text())
draw = random.Random(runs)
number = runs + 1
def at(what):
    return what in os.environ and int(os.environ[what]) == number
if at("STAY"):
    time.sleep(600)
if at("FAIL"):
    sys.exit("out of luck")
factor = (1.2 if knob == "on" else 1.0) * draw.gauss(1, 0.004)
end = " [INVALID]" if at("INVALID") else ""
print("IO500 version io500-isc26_v2 (standard)", flush=True)
def text(marker):
    try:
        return marker.read_text()
    except FileNotFoundError:  # it was the new one of a moment ago, and has replaced the old
        return ""
def recognized():
    texts = map(text, pathlib.Path(here, "markers").glob("*"))
    return any('"benchmark":"io500"' in text and str(os.getppid()) in text for text in texts)
deadline = time.monotonic() + 60
while not recognized() and time.monotonic() < deadline:
    time.sleep(0.02)
print(f"[RESULT]       ior-easy-write        {{2.0 * factor:.6f}} GiB/s : time 300.0 seconds{{end}}")
print(f"[RESULT]    mdtest-easy-write        {{3.0 * draw.gauss(1, 0.004):.6f}} kIOPS : time 300.0 seconds")
if sys.argv[1:]:
    print("[RESULT]     mdtest-easy-stat        4.000000 kIOPS : time 300.0 seconds")
print(f"[SCORE ] Bandwidth {{factor:.6f}} GiB/s : IOPS {{factor:.6f}} kiops : TOTAL {{factor:.6f}}{{end}}")
"""
SET = "echo on > knob"
UNDO = 'printf "%s\\n" "$PINCHPOINT_OLD" > knob'
CHECK = "cat knob"
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Return a directory with a knob that is off, and a benchmark that is faster if it is on."""
    (tmp_path / "knob").write_text("off\n")
    benchmark = tmp_path / "io500"
    benchmark.write_text(BENCHMARK.format(python=sys.executable, here=str(tmp_path)))
    benchmark.chmod(0o755)
    return tmp_path


@pytest.fixture
def start(here: Path) -> Start:
    """Start a command of Pinchpoint in that directory, with its own state."""

    def start(*argv: str, **environment: str) -> subprocess.Popen[bytes]:
        known = {**os.environ, "XDG_STATE_HOME": str(here / "state"), "COLUMNS": "160", **environment}
        command = [sys.executable, "-m", "pinchpoint", *argv]
        obeyed = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)  # under `nohup make test` the tests ignore it
        return subprocess.Popen(
            command,
            cwd=here,
            env=known,
            preexec_fn=obeyed,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    return start


@pytest.fixture
def run(start: Start) -> Callable[..., Ended]:
    """Run `pinchpoint experiment run` to its end."""

    def run(*options: str, **environment: str) -> Ended:
        return ended(start("experiment", "run", *arguments(*options), **environment))

    return run


class Ended:
    """A process that ended."""

    def __init__(self, status: int, stdout: str, stderr: str) -> None:
        self.status, self.stdout, self.stderr = status, stdout, stderr

    def __repr__(self) -> str:
        return f"status {self.status}\n{self.stdout}\n{self.stderr}"


def ended(process: subprocess.Popen[bytes]) -> Ended:
    stdout, stderr = process.communicate(timeout=patience(120))
    assert b"Traceback" not in stderr, stderr.decode()
    return Ended(process.returncode, stdout.decode(), stderr.decode())


def arguments(*options: str) -> list[str]:
    """Return the arguments of `experiment run`; an option given twice counts as its last value."""
    standard = {"--name": "demo", "--set": SET, "--undo": UNDO, "--check": CHECK, "--settle": "wait=0.1"}
    given = dict(option.partition("=")[::2] for option in options if "=" in option)
    words = [f"{name}={value}" for name, value in (standard | given).items()]
    return [*words, *(option for option in options if "=" not in option), "--path.runs=markers", "--", "./io500"]


def ledger(here: Path) -> dict[str, Any]:
    """Return the only experiment in the ledger."""
    (file,) = (here / "state" / "pinchpoint" / "experiments").glob("*/experiment.json")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def journals(here: Path) -> list[Path]:
    return list((here / "state" / "pinchpoint" / "open").glob("*.json"))


def knob(here: Path) -> str:
    return (here / "knob").read_text().strip()


def sides(here: Path) -> list[str]:
    """Return the knob's value in each run of the benchmark."""
    return (here / "log").read_text().split()


def test_a_knob_that_helps_is_found_and_restored(run: Callable[..., Ended], start: Start, here: Path) -> None:
    done = run("--hypothesis=it helps")

    assert done.status == 0, done
    assert "demo: helped; score total +" in done.stderr
    assert sides(here) == ["off", "on", "on", "off", "on", "off", "off", "on"]
    assert knob(here) == "off"
    assert not journals(here)
    experiment = ledger(here)
    assert (experiment["state"], experiment["old"], experiment["value"]) == ("finished", "off", "on")
    assert experiment["restored"] is True
    assert {trial["state"] for trial in experiment["trials"]} == {"done"}
    assert len({trial["run"] for trial in experiment["trials"]}) == 8

    listed = json.loads(ended(start("experiment", "list", "--json")).stdout)["experiments"]
    assert [found["decision"] for found in listed] == ["helped"]
    shown = json.loads(ended(start("experiment", "show", "--json", "demo")).stdout)
    phases = {figure["phase"]: figure["decision"] for figure in shown["figures"]}
    assert phases == {None: "helped", "ior_easy_write": "helped", "mdtest_easy_write": "did not help"}
    assert shown["hypothesis"] == "it helps"
    for text in (
        ended(start("experiment", "show", "last")).stdout,
        ended(start("experiment", "export", "last")).stdout,
    ):
        assert "restored to 'off' and read back" in text
        assert "it helps" in text
    ended(start("experiment", "show", "--html=page.html", "last"))
    page = (here / "page.html").read_text()
    assert page.count('class="pair"') == 3 * 4
    assert "helped" in page

    # The noise is known now, so the next one has a forecast.
    again = run("--dry-run", "--effect=3")
    assert again.status == 0
    assert "4 earlier pairs" in again.stderr or "3 earlier pairs" in again.stderr
    assert "an effect of 3 % needs 4 pairs" in again.stderr
    assert "order    ABBABAAB" in again.stdout


def test_a_set_command_that_fails_is_undone_and_told(run: Callable[..., Ended], here: Path) -> None:
    done = run("--set=echo on > knob; echo no such daemon >&2; exit 7")

    assert done.status == 1
    assert "ended with status 7: no such daemon" in done.stderr
    assert knob(here) == "off"
    assert not journals(here)
    assert sides(here) == ["off"]
    assert ledger(here)["state"] == "stopped"


def test_a_knob_that_does_not_change_ends_the_experiment(run: Callable[..., Ended], here: Path) -> None:
    done = run("--set=true")

    assert done.status == 1
    assert "`true` changed nothing: `cat knob` still prints 'off'" in done.stderr
    assert not journals(here)


def test_a_check_that_cannot_read_the_knob_ends_it_before_anything_is_set(
    run: Callable[..., Ended], here: Path
) -> None:
    done = run("--check=cat nothing")

    assert done.status == 1
    assert "the knob cannot be read" in done.stderr
    assert not (here / "log").exists()
    assert ledger(here)["restored"] is None


def test_a_check_that_prints_nothing_is_no_check(run: Callable[..., Ended]) -> None:
    assert "prints nothing: it has to print the value" in run("--check=true").stderr


def test_a_command_that_hangs_is_killed_and_the_knob_restored(run: Callable[..., Ended], here: Path) -> None:
    done = run("--set=echo on > knob; sleep 600", "--command-timeout=1")

    assert done.status == 1
    assert "took longer than 1 s and was killed" in done.stderr
    assert knob(here) == "off"


def test_an_undo_that_fails_leaves_the_journal_and_says_what_to_do(
    run: Callable[..., Ended], start: Start, here: Path
) -> None:
    done = run("--undo=echo the monitor is gone >&2; exit 1")

    assert done.status == 3
    assert "the monitor is gone" in done.stderr
    assert "Its old value is 'off'" in done.stderr
    assert knob(here) == "on"
    assert len(journals(here)) == 1
    assert ledger(here)["restored"] is False
    assert sides(here) == ["off", "on", "on"]

    # Another command reminds; the next experiment is refused until somebody restores the knob.
    reminded = ended(start("runs"))
    assert reminded.status == 0
    assert "`pinchpoint experiment restore` restores it" in reminded.stderr
    assert ended(start("experiment", "restore")).status == 3
    refused = run()
    assert refused.status == 3
    assert "nothing was started" in refused.stderr
    (here / "knob").write_text("off\n")
    restored = ended(start("experiment", "restore"))
    assert restored.status == 0
    assert "already has its old value 'off'" in restored.stdout
    assert not journals(here)
    assert ledger(here)["restored"] is True
    assert ledger(here)["reason"].startswith("the knob is not restored: ")
    assert ledger(here)["reason"].endswith("; the knob was restored later")
    assert "no knob has to be restored" in ended(start("experiment", "restore")).stdout


def test_a_journal_that_cannot_be_used_stops_everything_until_somebody_has_looked(
    run: Callable[..., Ended], start: Start, here: Path
) -> None:
    journal = here / "state/pinchpoint/open/20261126T170418Z-x.json"
    journal.parent.mkdir(parents=True, mode=0o700)
    journal.write_text('{"trunc')

    for done in (ended(start("experiment", "restore")), run()):
        assert done.status == 3
        assert f"{journal}: not a journal: " in done.stderr
        assert "restore it yourself, then remove the file" in done.stderr
        assert "no knob has to be restored" not in done.stdout
    assert not (here / "log").exists()


def test_another_hosts_experiment_is_left_to_that_host(start: Start, run: Callable[..., Ended], here: Path) -> None:
    run("--undo=exit 1")
    (journal,) = journals(here)
    written = json.loads(journal.read_text())
    written["owner"]["host"] = "another-host"
    journal.write_text(json.dumps(written))

    done = ended(start("experiment", "restore"))

    assert done.status == 0
    assert "is one of host another-host: restore its knob there" in done.stderr
    assert journals(here) == [journal]
    assert knob(here) == "on"


def test_a_phase_that_the_benchmark_lacks_ends_it_in_the_first_run(run: Callable[..., Ended], here: Path) -> None:
    done = run("--expect=MDTest-hard wrtie")

    assert done.status == 1
    assert "the run has no figure of mdtest_hard_wrtie, only of " in done.stderr
    assert [trial["state"] for trial in ledger(here)["trials"]] == ["failed"]


def test_an_undo_that_restores_another_value_is_noticed(run: Callable[..., Ended], here: Path) -> None:
    done = run("--undo=echo of > knob")

    assert done.status == 3
    assert "it is 'of' and not 'off'" in done.stderr
    assert len(journals(here)) == 1


def test_a_benchmark_that_fails_in_the_third_of_four_pairs_ends_it_and_two_pairs_stand(
    run: Callable[..., Ended], start: Start, here: Path
) -> None:
    done = run("--pairs=4", FAIL="5")

    assert done.status == 1
    assert "ended with status 1" in done.stderr
    assert "the complete pairs stand" in done.stderr
    assert knob(here) == "off"
    assert not journals(here)
    assert [trial["state"] for trial in ledger(here)["trials"]] == ["done"] * 4 + ["failed"]
    shown = json.loads(ended(start("experiment", "show", "--json", "last")).stdout)
    assert (shown["decision"], shown["complete_pairs"]) == ("undecided", 2)


def test_an_invalid_run_ends_it(run: Callable[..., Ended], here: Path) -> None:
    done = run("--pairs=4", INVALID="1")

    assert done.status == 1
    assert "calls the run invalid" in done.stderr
    assert [trial["state"] for trial in ledger(here)["trials"]] == ["invalid"]


def test_invalid_runs_count_if_allowed(run: Callable[..., Ended], here: Path) -> None:
    run("--pairs=4", "--allow-invalid", INVALID="1", FAIL="2")

    assert [trial["state"] for trial in ledger(here)["trials"]] == ["done", "failed"]


def test_io500_is_shortened_to_some_phases_and_its_config_left_as_it_is(start: Start, here: Path) -> None:
    config = here / "config.ini"
    config.write_text("[global]\ndatadir = /scratch\n")
    command = [*arguments("--pairs=4", "--phases=mdtest_easy_stat"), "config.ini"]
    done = ended(start("experiment", "run", *command, INVALID="1", FAIL="2"))

    seen = (here / "config").read_text()
    assert seen.startswith(config.read_text())
    assert "[ior-easy-write]\nrun = FALSE\n" in seen
    assert "[mdtest-easy-write]" not in seen
    assert "[mdtest-easy-stat]" not in seen
    assert [trial["state"] for trial in ledger(here)["trials"]] == ["done", "failed"], done
    assert (ledger(here)["phases"], ledger(here)["expected"]) == (["mdtest-easy-stat"], ["mdtest_easy_stat"])
    assert [path.name for path in here.glob("*.ini")] == ["config.ini"]


def test_the_shortened_config_of_an_experiment_that_was_killed_is_removed(start: Start, here: Path) -> None:
    (here / "config.ini").write_text("[global]\ndatadir = /scratch\n")
    command = [*arguments("--pairs=4", "--phases=mdtest_easy_stat"), "config.ini"]
    process = start("experiment", "run", *command, STAY="1")
    assert until(90, lambda: (here / "log").exists() and len(sides(here)) == 1)
    process.kill()
    process.communicate()
    assert len([*here.glob("*.ini")]) == 2

    assert ended(start("experiment", "restore")).status == 0
    assert [path.name for path in here.glob("*.ini")] == ["config.ini"]


def test_phases_without_a_config_of_io500_are_refused_before_anything_is_done(start: Start, here: Path) -> None:
    done = ended(start("experiment", "run", *arguments("--phases=find")))

    assert done.status == 2
    assert "--phases: the command has to name one config of IO500" in done.stderr
    assert not (here / "state").exists()


def test_a_benchmark_that_any_signal_ends_is_said_to_be(start: Start, here: Path) -> None:
    done = ended(start("experiment", "run", *arguments()[:-1], "sh", "-c", "kill -40 $$"))

    assert done.status == 1
    assert "ended with status 168" in done.stderr or "ended with the signal SIGRTMIN+6" in done.stderr


def test_a_benchmark_without_figures_is_said_to_have_none(start: Start, here: Path) -> None:
    done = ended(start("experiment", "run", *arguments()[:-1], "true"))

    assert done.status == 1
    assert "the run has no figure" in done.stderr


def test_the_benchmark_imports_nothing_from_the_current_directory(run: Callable[..., Ended], here: Path) -> None:
    """It may be anybody's: /tmp, for example."""
    assert run("""--prepare=echo "open('ran', 'w')" > click.py""").status == 0
    assert (here / "click.py").exists()
    assert not (here / "ran").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_in_a_run_with_the_knob_restores_it(start: Start, here: Path, number: signal.Signals) -> None:
    process = start("experiment", "run", *arguments(), STAY="2")
    assert until(60, lambda: (here / "log").exists() and sides(here) == ["off", "on"])

    process.send_signal(number)
    done = ended(process)

    assert done.status == 128 + number, done
    assert f"{number.name} ended it" in done.stderr
    assert knob(here) == "off"
    assert not journals(here)
    assert ledger(here)["restored"] is True
    assert not running(here)


def running(here: Path) -> list[str]:
    """Return the processes whose current directory is the test's."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd") == str(here) and (process / "stat").read_text().split()[2] != "Z":
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


STAGES = {
    "before the knob is set": ({"STAY": "1"}, (), "off"),
    "while it is set": ({}, ("--set=touch stage; sleep 3; echo on > knob",), "off"),
    "between set and check": ({}, ("--set=echo on > knob; touch stage; sleep 3",), "on"),
    "while the benchmark runs with it": ({"STAY": "2"}, (), "on"),
    "while it is restored": ({}, (f"--undo=touch stage; sleep 3; {UNDO}",), "on"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_kill_in_any_stage_leaves_a_knob_that_the_next_command_restores(start: Start, here: Path, stage: str) -> None:
    environment, options, left = STAGES[stage]
    process = start("experiment", "run", *arguments(*options), **environment)
    runs = int(environment.get("STAY", 0))
    assert until(
        90, lambda: (here / "stage").exists() or (runs and (here / "log").exists() and len(sides(here)) == runs)
    )
    assert knob(here) == left

    process.kill()
    process.communicate()
    opened = bool(journals(here))
    assert opened == (stage != "before the knob is set")
    reminded = ended(start("runs"))
    restored = ended(start("experiment", "restore"))

    assert ("ended without restoring its knob, which may still be set" in reminded.stderr) == opened
    assert restored.status == 0, restored
    # A command that still ran was awaited: nothing sets the knob after it was restored.
    assert until(10, lambda: not running(here))
    assert knob(here) == "off"
    assert not list((here / "state" / "pinchpoint" / "open").iterdir())
    assert ended(start("experiment", "list")).stdout.count("stopped") == 1


def test_two_experiments_at_a_time_are_refused(start: Start, run: Callable[..., Ended], here: Path) -> None:
    first = start("experiment", "run", *arguments(), STAY="1")
    assert until(60, lambda: (here / "log").exists())

    second = run("--name=second")
    first.send_signal(signal.SIGTERM)
    ended(first)

    assert second.status == 2
    assert f"another experiment runs on this host, process {first.pid} of user {os.getuid()}" in second.stderr
    assert ledger(here)["id"].endswith("-demo")


def test_a_full_disk_stops_it_before_the_knob_is_set(start: Start, here: Path) -> None:
    """The directory of journals cannot be written, as on a disk that is full."""
    state = here / "state" / "pinchpoint"
    state.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=16", "none", str(state)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        (state / "open").mkdir()
        subprocess.run(["dd", "if=/dev/zero", f"of={state / 'filler'}", "bs=4096"], check=False, capture_output=True)
        done = ended(start("experiment", "run", *arguments()))
    finally:
        subprocess.run(["umount", str(state)], check=True)

    assert done.status in (1, 2), done
    assert "No space left on device" in done.stderr
    assert knob(here) == "off"


def test_a_disk_that_fills_while_the_knob_is_set_does_not_keep_it_set(start: Start, here: Path) -> None:
    state = here / "state"
    state.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(state)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        fill = f"dd if=/dev/zero of={state}/filler bs=4096 2>/dev/null; {SET}"
        done = ended(start("experiment", "run", *arguments(f"--set={fill}")))
        open_ = journals(here)
    finally:
        subprocess.run(["umount", str(state)], check=True)

    assert done.status == 1, done
    assert knob(here) == "off"
    assert not open_


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--pairs=3", "use auto, or an even number from 4 to 64"),
        ("--pairs=soon", "use auto, or an even number from 4 to 64"),
        ("--settle=sleep", "'sleep' is not a settling step: use health-ok, trim, sync, drop-caches, wait"),
        ("--settle=wait=no", "not a number of seconds"),
    ],
)
def test_wrong_options_are_named(run: Callable[..., Ended], here: Path, option: str, words: str) -> None:
    done = run(option)

    assert done.status == 2
    assert words in done.stderr
    assert not (here / "log").exists()


def test_a_step_that_does_not_settle_stops_it(run: Callable[..., Ended], here: Path) -> None:
    fake = here / "bin" / "ceph"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho \'{"health": {"status": "HEALTH_WARN", "checks": {"OSD_DOWN": {}}}}\'\n')
    fake.chmod(0o755)

    bound = f"{patience(2.0):g}"

    done = run(f"--settle=health-ok={bound}", PATH=f"{fake.parent}:{os.environ['PATH']}")

    assert done.status == 1
    assert f"health-ok: not settled within {bound} s: HEALTH_WARN: OSD_DOWN" in done.stderr
    assert not (here / "log").exists()


@pytest.fixture
def cluster_keys(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a `ceph` into PATH whose cluster has only keys; return where those of experiments are, as files."""
    keys = here / "keys"
    experiments = keys / "pinchpoint" / "experiment"
    experiments.mkdir(parents=True)
    fake = here / "bin" / "ceph"
    fake.parent.mkdir()
    fake.write_text(f"""#!/bin/sh
cd {keys}
case "$1 $2" in
"fsid ") echo 00000000-0000-0000-0000-000000000000 ;;
"config-key set") printf %s "$4" > "$3" ;;
"config-key rm") rm -f "$3" ;;
"config-key get") cat "$3" ;;
"config-key ls") find * -type f | sed 's/.*/"&"/' | paste -sd, | sed 's/.*/[&]/' ;;
esac
""")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    return experiments


def names(directory: Path) -> list[str]:
    return [file.name for file in directory.iterdir()]


def test_an_experiment_of_another_host_on_the_cluster_is_refused(
    run: Callable[..., Ended], start: Start, here: Path, cluster_keys: Path
) -> None:
    other = cluster_keys / "other"
    other.write_text('{"host": "far", "user": 0}')

    refused = run("--check=cat knob # ceph")

    assert refused.status == 2, refused
    assert "another experiment runs on this cluster: other (host far, user 0)" in refused.stderr
    assert "`ceph config-key rm pinchpoint/experiment/other`" in refused.stderr
    assert names(cluster_keys) == ["other"]
    assert not names(here / "state" / "pinchpoint" / "experiments"), "it never began"
    other.unlink()
    assert "ended with status 1" in run("--check=cat knob # ceph", "--pairs=4", FAIL="1").stderr
    assert not names(cluster_keys)
    ceph = here / "bin" / "ceph"
    ceph.write_text(ceph.read_text().replace('"config-key rm")', '"config-key rm") exit 1 ;; "")'))
    unreached = run("--check=cat knob # ceph", "--pairs=4", FAIL="2")
    (left,) = names(cluster_keys)
    assert f"still keeps others out: `ceph config-key rm pinchpoint/experiment/{left}`" in unreached.stderr
    ceph.write_text(ceph.read_text().replace('exit 1 ;; "")', ""))
    (cluster_keys / left).unlink()
    assert run("--check=cat knob # ceph", "--undo=exit 1").status == 3
    assert len(names(cluster_keys)) == 1, "its setting would be taken for the usual one"
    (here / "knob").write_text("off\n")
    assert ended(start("experiment", "restore")).status == 0
    assert not names(cluster_keys)


@pytest.mark.parametrize("by", ["restore", "the next run"])
def test_one_that_was_killed_while_its_knob_was_not_set_does_not_keep_others_off_the_cluster(
    run: Callable[..., Ended], start: Start, here: Path, cluster_keys: Path, by: str
) -> None:
    process = start("experiment", "run", *arguments("--check=cat knob # ceph"), STAY="1")
    assert until(90, lambda: (here / "log").exists() and sides(here) == ["off"])
    process.kill()
    process.communicate()
    assert len(names(cluster_keys)) == 1
    elsewhere = ended(start("experiment", "restore", PATH=os.environ["PATH"].partition(":")[2]))
    assert "may keep others off the Ceph cluster 00000000-" in elsewhere.stderr
    assert len(names(cluster_keys)) == 1

    if by == "restore":
        done = ended(start("experiment", "restore"))
    else:
        done = run("--check=cat knob # ceph", "--name=next", "--pairs=4", FAIL="2")

    assert "-demo was killed while its knob was not set" in done.stdout + done.stderr
    assert done.status == (0 if by == "restore" else 1), done
    assert not names(cluster_keys)
