from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import httpx
import psutil
import pytest

from lab import loads
from lab.__main__ import remove_left, status, up
from lab.account import of_daemons, of_the_monitor
from lab.cluster import HERE, Cluster, LabError, LabTimeoutError, processes, remove, sweep
from lab.locks import freeze_lock_holder
from patience import patience
from polling import until
from scratch import NEEDED

PYTHONPATH = f"{HERE.parent}:{HERE.parents[1] / 'compose'}"
OWNER = """
import sys, time
from lab.cluster import Cluster
cluster = Cluster()
cluster.start()
(cluster.mount().path / "file").write_text("text")
cluster.daemon("osd.0").freeze()
print(cluster.directory, flush=True)
time.sleep(600)
"""


@pytest.fixture
def owner(clusters: Callable[..., Cluster]) -> Any:
    """A process that owns a cluster with a mount and a stopped OSD."""
    environment = os.environ | {"PYTHONPATH": PYTHONPATH}
    process = subprocess.Popen([sys.executable, "-c", OWNER], env=environment, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def mounts(directory: Path) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {directory}/" in line]


def is_gone(directory: Path) -> bool:
    return not (processes(directory) or mounts(directory) or directory.exists())


def test_a_started_cluster_is_healthy_and_its_manager_tells_so(looked_at: Cluster) -> None:
    metrics = httpx.get(f"{looked_at.prometheus_url}/metrics", trust_env=False).text

    assert looked_at.health() == set()
    assert looked_at.command("fsid")["fsid"] == looked_at.fsid
    assert "ceph_health_status 0.0" in metrics
    assert 'ceph_mds_metadata{ceph_daemon="mds.a"' in metrics


def test_a_bluestore_cluster_has_the_daemons_and_options_that_were_asked_for(
    clusters: Callable[..., Cluster],
) -> None:
    options = {"mds": {"mds_cache_memory_limit": "8Mi"}, "osd": {"osd_op_complaint_time": "3"}}

    cluster = clusters(osds=2, mdss=2, max_mds=2, store="bluestore", options=options)

    status = cluster.command("status")
    assert status["osdmap"]["num_up_osds"] == 2
    assert [rank["status"] for rank in status["fsmap"]["by_rank"]] == ["up:active"] * 2
    assert "bluefs" in cluster.tell("osd.1", "perf dump")
    assert cluster.tell("mds.b", "config get", var="mds_cache_memory_limit") == {"mds_cache_memory_limit": "8388608"}
    assert cluster.tell("osd.0", "config get", var="osd_op_complaint_time") == {"osd_op_complaint_time": "3.000000"}


def test_a_mount_is_a_file_system_until_it_is_unmounted(looked_at: Cluster) -> None:
    with looked_at.mount() as mount:
        (mount.path / "file").write_text("text")
        kind = subprocess.run(["stat", "-f", "-c", "%T", mount.path], capture_output=True, text=True, check=True).stdout

        assert (mount.path / "file").read_text() == "text"
        assert kind.strip() == "fuseblk"
    assert mounts(looked_at.directory) == []
    assert not psutil.pid_exists(mount.pid)


def test_a_mount_ends_under_a_stopped_daemon_too(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters()
    mount = cluster.mount()
    cluster.daemon("mds.a").freeze()

    mount.unmount(timeout=0.5)

    assert mounts(cluster.directory) == []


def test_an_option_of_a_running_daemon_changes(looked_at: Cluster) -> None:
    looked_at.set_option("mds.a", "mds_log_max_segments", 77)

    assert looked_at.tell("mds.a", "config get", var="mds_log_max_segments") == {"mds_log_max_segments": "77"}


def test_a_frozen_daemon_is_silent_until_it_is_thawed(looked_at: Cluster) -> None:
    mds = looked_at.daemon("mds.a")

    mds.freeze()
    with pytest.raises(TimeoutError):
        mds.ask("version", timeout=0.3)
    mds.thaw()

    assert mds.ask("version")["version"].startswith("1")


def test_an_error_of_a_daemon_or_of_the_monitor_is_an_exception(looked_at: Cluster) -> None:
    with pytest.raises(LabError, match=r"mds\.a: no such command"):
        looked_at.tell("mds.a", "no such command")
    with pytest.raises(LabError, match="no such command"):
        looked_at.command("no such command")


@pytest.mark.parametrize("mode", ["create", "storm", "scan", "read", "write"])
def test_a_load_works_and_leaves_no_session(looked_at: Cluster, mode: loads.Mode) -> None:
    before = looked_at.tell("mds.a", "perf dump")["mds_sessions"]["session_count"]

    with loads.metadata(looked_at, mode, processes=2, rate=200) as load:
        load.wait_ready()
        during = looked_at.tell("mds.a", "perf dump")["mds_sessions"]["session_count"]

        assert until(30, load.operations) > 0
    assert during == before + 2
    assert looked_at.tell("mds.a", "perf dump")["mds_sessions"]["session_count"] == before


def test_a_client_holds_as_many_capabilities_as_it_was_told(looked_at: Cluster) -> None:
    def most() -> int:
        return max((int(session["num_caps"]) for session in looked_at.tell("mds.a", "session ls")), default=0)

    with loads.metadata(looked_at, "hold", files=500, ramp=50, rate=500) as load:
        load.wait_ready()

        assert most() >= 500
    assert most() < 500


def test_rados_bench_and_fio_write_to_the_osd(looked_at: Cluster) -> None:
    def written() -> int:
        return int(looked_at.tell("osd.0", "perf dump")["osd"]["op_w"])

    def has_written(operations: int) -> bool:
        return written() > operations

    for start in (loads.rados_bench, loads.fio_rbd):
        before = written()
        with start(looked_at) as load:
            assert until(30, partial(has_written, before + 100))
            assert load.running
        assert not load.running


def test_ganesha_serves_the_file_system_and_leaves_no_session(looked_at: Cluster) -> None:
    if not loads.has_ganesha():
        pytest.skip("no nfs-ganesha, nfs-ganesha-ceph or libnfs-utils; `make setup` as root installs them")
    before = looked_at.tell("mds.a", "perf dump")["mds_sessions"]["session_count"]

    with looked_at.mount() as mount, loads.ganesha(looked_at) as server, server.load():
        assert until(30, lambda: (mount.path / "copied").exists())

    assert looked_at.tell("mds.a", "perf dump")["mds_sessions"]["session_count"] == before


def test_a_frozen_holder_of_the_lock_leaves_only_commands_without_it(looked_at: Cluster) -> None:
    mds = looked_at.daemon("mds.a")
    with loads.metadata(looked_at, "storm", processes=6, nice=5) as load:
        load.wait_ready()
        with freeze_lock_holder(mds):
            assert "mds_log" in mds.ask("perf dump", timeout=5.0)
            with pytest.raises(TimeoutError):
                mds.ask("status", timeout=1.0)
        assert mds.ask("status")["state"] == "up:active"


def test_a_killed_mds_comes_back(looked_at: Cluster) -> None:
    mds = looked_at.daemon("mds.a")
    mds.kill()
    assert mds.ended() == ""

    mds.restart()

    assert until(30, lambda: looked_at.health() == set())


def test_nothing_is_left_of_a_cluster_whose_block_failed(clusters: Callable[..., Cluster]) -> None:
    directories = []

    def use() -> None:
        with Cluster() as cluster:
            directories.append(cluster.directory)
            path = cluster.mount().path
            (path / "file").write_text("text")
            with (path / "file").open():
                loads.metadata(cluster, "storm").wait_ready()
                cluster.daemon("mds.a").freeze()
                cluster.daemon("osd.0").freeze()
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()

    assert [is_gone(directory) for directory in directories] == [True]


def test_nothing_is_left_of_a_cluster_whose_owner_was_killed(owner: subprocess.Popen[str]) -> None:
    assert owner.stdout is not None
    directory = Path(owner.stdout.readline().strip())
    assert len(mounts(directory)) == 1

    owner.send_signal(signal.SIGKILL)

    assert until(30, lambda: is_gone(directory))


def test_the_next_cluster_removes_what_the_janitor_of_the_last_could_not(
    owner: subprocess.Popen[str], clusters: Callable[..., Cluster]
) -> None:
    assert owner.stdout is not None
    directory = Path(owner.stdout.readline().strip())
    for child in psutil.Process(owner.pid).children():
        if "janitor" in child.cmdline():
            child.kill()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert until(30, lambda: not processes(directory))
    assert directory.exists()

    clusters()

    assert is_gone(directory)


def test_a_daemon_that_cannot_start_is_named_with_the_end_of_its_log(clusters: Callable[..., Cluster]) -> None:
    with pytest.raises(LabError, match=r"mds\.a ended with status 1[^$]*The end of .*ceph-mds\.a\.") as caught:
        clusters(options={"mds": {"public_addr": "203.0.113.1", "ms_bind_retry_delay": "0"}})

    assert "203.0.113.1" in str(caught.value)


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(LabError, match=r"^Not installed: .*ceph-mds, .*`make setup`"):
        Cluster().start()


def test_a_cluster_for_people_runs_until_it_is_stopped(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    state = tmp_path / "state"
    environment = os.environ | {"PYTHONPATH": PYTHONPATH, "OSDS": "1", "MDSS": "1"}

    def lab(command: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-m", "lab", command, "--state", str(state)]
        return subprocess.run(
            arguments, env=environment, capture_output=True, text=True, check=False, timeout=patience(90)
        )

    try:
        assert lab("down").stdout == "No lab cluster runs.\n"
        up = lab("up")
        directory = state.resolve()
        sweep(directory.parent)  # as the next cluster does: it must leave this one alone
        again = lab("up")
        asked = subprocess.run(
            ["ceph", "health"], env=os.environ | {"CEPH_CONF": str(state / "ceph.conf")}, capture_output=True, text=True
        )
        status = lab("status")
    finally:
        down = lab("down")

    assert (up.returncode, up.stderr) == (0, "")
    assert f"CEPH_CONF={state}/ceph.conf ceph -s" in up.stdout
    assert (again.returncode, again.stdout.partition(":")[0]) == (0, "A lab cluster already runs")
    assert asked.stdout == "HEALTH_OK\n"
    assert status.returncode == 0
    assert (down.returncode, down.stdout) == (0, "The lab cluster is stopped and removed.\n")
    assert is_gone(directory)
    assert not state.is_symlink()


@dataclass
class Attempt:
    """The result of `lab up`."""

    code: int
    said: str
    directories: set[str]
    """Directories of clusters that it left behind."""


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory with room for a cluster, and with a path short enough for its sockets."""
    parent = next((name for name in ("/tmp", "/var/tmp") if shutil.disk_usage(name).free >= NEEDED), None)
    if parent is None:
        pytest.skip(f"neither /tmp nor /var/tmp has {NEEDED >> 20} MiB")
    with tempfile.TemporaryDirectory(dir=parent, prefix="t") as directory:
        yield Path(directory)


@pytest.fixture
def lab_up(clusters: Callable[..., Cluster], tmp_path: Path, short_path: Path) -> Callable[..., Attempt]:
    """Run `lab up` for a small cluster in its own process, after some Python that breaks it."""

    def run(breaking: str, number: signal.Signals | None = None) -> Attempt:
        command = [sys.executable, "-c", UP.format(breaking=breaking), "up", "--state", str(tmp_path / "state")]
        environment = os.environ | {"PYTHONPATH": PYTHONPATH, "OSDS": "1", "MDSS": "1", "TMPDIR": str(short_path)}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            if number is not None:
                assert until(30, lambda: list(short_path.glob("*/run/ceph-mon.a.asok")))
                process.send_signal(number)
            _, said = process.communicate(timeout=patience(90))
        finally:
            process.kill()
            process.wait()
            left = {path.name for path in short_path.glob("pinchpoint-lab-*")}
            # A cluster that came up in spite of everything would stay.
            remove_left(tmp_path / "state")
            for name in left:
                remove(short_path / name)
        return Attempt(process.returncode, said, left)

    return run


UP = """
import sys
import lab.__main__, lab.cluster
from lab.cluster import Cluster, Daemon, LabError
lab.cluster.START_SECONDS = 2.0
def unhealthy():
    Cluster._has_placement_groups = lambda self: True
    Cluster._is_healthy = lambda self: False
{breaking}
sys.exit(lab.__main__.main())
"""


def test_a_cluster_that_does_not_become_healthy_says_what_its_monitor_and_its_daemons_say(
    lab_up: Callable[..., Attempt],
) -> None:
    attempt = lab_up("unhealthy()")

    assert attempt.code == 1
    assert re.match(r"Waited \d+ s for the cluster to be healthy.\nHealth: HEALTH_", attempt.said)
    assert "What to do: " in attempt.said
    assert "Traceback" not in attempt.said
    assert attempt.directories == set()


def test_a_failed_clean_up_is_added_to_the_reason_and_does_not_replace_it(lab_up: Callable[..., Attempt]) -> None:
    attempt = lab_up(
        "unhealthy()\n"
        "remove = lab.cluster.remove\n"
        "def replacement(directory):\n"
        "    remove(directory)\n"
        "    raise LabError('Could not kill 4711.')\n"
        "lab.cluster.remove = replacement\n"
    )

    assert attempt.code == 1
    assert re.match(r"Waited \d+ s for the cluster to be healthy.\nHealth: ", attempt.said)
    assert attempt.said.count("Its clean-up failed too: Could not kill 4711.\nWhat is left is in ") == 1
    assert "Traceback" not in attempt.said


def test_an_interrupted_start_leaves_nothing(lab_up: Callable[..., Attempt]) -> None:
    attempt = lab_up("Cluster._is_healthy = lambda self: False", signal.SIGINT)

    assert (attempt.code, attempt.said) == (130, "Interrupted.\nNothing is left running.\n")
    assert attempt.directories == set()


def test_the_error_of_a_block_stays_when_the_clean_up_fails(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    def use() -> None:
        with Cluster() as cluster:
            really = cluster.stop

            def stop() -> None:
                really()
                raise LabError("Could not kill 4711.")

            monkeypatch.setattr(cluster, "stop", stop)
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError) as caught:
        use()

    assert str(caught.value) == "mine"
    assert "Could not kill 4711." in caught.value.__notes__[0]


def test_a_command_that_a_stopped_monitor_does_not_answer_is_given_up(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters()
    assert cluster.command("fsid")["fsid"] == cluster.fsid
    cluster.daemon("mon.a").freeze()

    with pytest.raises(LabTimeoutError, match=r"^Waited \d+ s for an answer to status\.$"):
        cluster.command("status", timeout=0.2)
    cluster.daemon("mon.a").thaw()

    # The late answer is not mistaken for that of this command.
    assert cluster.command("fsid")["fsid"] == cluster.fsid


def test_up_says_which_daemons_of_a_cluster_do_not_work(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    state = tmp_path / "state"
    cluster = clusters()
    (cluster.directory / "lab.json").write_text('{"metrics": "", "mount": "", "OSDS": 1, "MDSS": 1}')
    state.symlink_to(cluster.directory)
    cluster.mount()
    assert up(state) == status(state) == 0

    cluster.daemon("osd.0").freeze()
    cluster.daemon("mds.a").kill()

    with pytest.raises(LabError) as caught:
        up(state)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"A lab cluster runs in {cluster.directory}, but not all of it:"
    assert lines[1].startswith("  osd.0 is stopped (SIGSTOP; process ")
    assert lines[2] == "  mds.a does not run."
    assert lines[3] == f"The end of {cluster.directory}/log/ceph-osd.0.log:"
    assert lines[-1] == "`make lab-down` removes it; `make lab-up` starts another one then."
    assert status(state) == 1


def test_up_does_not_touch_what_is_no_link_of_its(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()

    with pytest.raises(LabError, match="is not a link to a lab cluster; move it away"):
        up(state)


class TestWhatTheMonitorSays:
    STATUS: ClassVar[dict[str, Any]] = {
        "health": {"status": "HEALTH_WARN", "checks": {"OSD_DOWN": {"summary": {"message": "1 osds down"}}}},
        "pgmap": {"pgs_by_state": [{"state_name": "active+clean", "count": 16}, {"state_name": "unknown", "count": 8}]},
        "mgrmap": {"available": False},
    }
    OSDS: ClassVar[dict[str, Any]] = {"osds": [{"osd": 0, "up": 1}, {"osd": 1, "up": 0}]}
    FS: ClassVar[dict[str, Any]] = {
        "filesystems": [{"mdsmap": {"info": {"gid_1": {"name": "a", "state": "up:creating"}}}}],
        "standbys": [{"name": "b", "state": "up:standby"}],
    }

    def test_is_told_in_words(self) -> None:
        assert of_the_monitor({"status": self.STATUS}, 24) == [
            "Health: HEALTH_WARN; 1 osds down (OSD_DOWN).",
            "Placement groups: 16 active+clean, 8 unknown; 24 should be active+clean.",
        ]

    def test_may_be_nothing(self) -> None:
        assert of_the_monitor({}, 24) == ["The monitor does not answer within 6 s."]

    def test_names_daemons_that_run_and_are_not_up(self) -> None:
        states = dict.fromkeys(["mon.a", "mgr.a", "osd.0", "osd.1", "mds.a", "mds.b", "mds.c"], "")
        answers = {"status": self.STATUS, "osd dump": self.OSDS, "fs dump": self.FS}

        assert of_daemons(answers, states | {"mon.a": "has ended"}) == {
            "mon.a": "has ended",
            "mgr.a": "runs, and the monitor does not call it available",
            "osd.1": "runs, and the monitor does not call it up",
            "mds.a": "runs, and is up:creating",
            "mds.c": "runs, and is unknown to the monitor",
        }
        assert of_daemons({}, states) == {}
