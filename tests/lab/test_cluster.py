from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from lab import loads
from lab.cluster import HERE, Cluster, LabError, processes, sweep
from lab.locks import freeze_lock_holder
from patience import patience
from polling import until

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

    with loads.metadata(looked_at, mode, processes=2) as load:
        load.wait_ready()
        during = looked_at.tell("mds.a", "perf dump")["mds_sessions"]["session_count"]

        assert until(30, load.operations) > 0
    assert during == before + 2
    assert looked_at.tell("mds.a", "perf dump")["mds_sessions"]["session_count"] == before


def test_a_client_holds_as_many_capabilities_as_it_was_told(looked_at: Cluster) -> None:
    def most() -> int:
        return max(int(session["num_caps"]) for session in looked_at.tell("mds.a", "session ls"))

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
