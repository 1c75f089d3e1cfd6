"""Clients of a real cluster in user space: their threads, their requests, and what is reported where they are blind."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from lab import loads
from lab.cluster import PYTHON, Cluster, Daemon
from lab.loads import Load
from lab.observer import Observer
from polling import until

PATIENCE = 120.0
DEPTH = 32
LIBRARY = {"flusher", "fn_anonymous", "io_context_pool", "ms_dispatch", "safe_timer", "taskfin_librbd"}
"""Working threads of librados, librbd and libcephfs."""
LOCKED = frozenset({"flusher", "fn_anonymous", "ms_dispatch", "safe_timer"})
"""Those of them that take the client_lock of a CephFS client."""
HELPERS = {"admin_socket", "ceph_timer", "log", "ms_local", "service", "signal_handler", "write_stat"}
"""Threads that need no role of their own: they do housekeeping, or print."""

COMMANDED = """
import os, sys, cephfs
fs = cephfs.LibCephFS(conffile=os.environ["CEPH_CONF"])
fs.mount()
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        fs.mkdir("/commanded", 0o755)
        fs.rmdir("/commanded")
    print("done", flush=True)
fs.shutdown()
"""
"""A libcephfs client that does as many rounds as its standard input says."""

Work = Callable[[int], None]


@dataclass(frozen=True)
class Program:
    """A client: its name, its own threads, and how to start it under a load."""

    owner: str
    own: frozenset[str]
    role: str
    helper: str
    start: Callable[[Cluster, Observer], AbstractContextManager[list[int]]]
    locked: frozenset[str] = frozenset()
    """Threads that count for its client_lock."""
    known: bool = True
    """Whether the exporter knows it by its name: then the exporter also sees those of other clusters on this host."""

    def all(self, pids: list[int]) -> list[int]:
        """Return the processes that the exporter sees as this client, when `pids` are ours."""
        others = [process.pid for process in psutil.process_iter(["name"]) if process.info["name"] == self.owner]
        return others if self.known else pids

    def roles(self, pids: list[int]) -> dict[str, int]:
        """Return how many threads of each role the processes have now, by the names in /proc."""
        found: Counter[str] = Counter()
        for name in thread_names(pids):
            if name in self.own:
                found[self.role] += 1
            elif name in self.locked:
                found["client_lock"] += 1
            elif name.startswith("msgr-worker-"):
                found["messenger"] += 1
            else:
                assert name in LIBRARY | HELPERS, f"an unexpected thread {name} of {self.owner}"
                found["rados_client" if name in LIBRARY else self.helper] += 1
        return dict(found)


def thread_names(pids: list[int]) -> Iterator[str]:
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                yield (task / "comm").read_text().strip()


def in_a_run(observer: Observer, command: list[str]) -> list[str]:
    """Return the command of `pinchpoint run` that reports its phase to the observer's exporter."""
    state = observer.stack.state
    program = str(Path(sys.executable).with_name("pinchpoint"))
    target = observer.stack.urls["pinchpoint"].removeprefix("http://")
    options = [f"--path.runs={state / 'runs'}", f"--target={target}"]
    return ["env", f"XDG_STATE_HOME={state / 'recordings'}", program, "run", *options, "--", *command]


@contextlib.contextmanager
def start_ganesha(cluster: Cluster, observer: Observer) -> Iterator[list[int]]:
    with loads.ganesha(cluster) as server, server.load():
        yield [server.pid]


@contextlib.contextmanager
def start_fuse(cluster: Cluster, observer: Observer) -> Iterator[list[int]]:
    script = 'while :; do mkdir "$0" && : >"$0/file" && rm -r "$0"; done'
    with cluster.mount() as mount, Load(cluster, "shell", ["/bin/sh", "-c", script, str(mount.path / "shell")]):
        yield [mount.pid]


@contextlib.contextmanager
def start_fio(cluster: Cluster, observer: Observer) -> Iterator[list[int]]:
    with loads.fio_rbd(cluster, iodepth=DEPTH, size="64M") as load:
        yield [load.pid]


@contextlib.contextmanager
def start_rados(cluster: Cluster, observer: Observer) -> Iterator[list[int]]:
    with loads.rados_bench(cluster) as load:
        yield [load.pid]


@contextlib.contextmanager
def start_libcephfs(cluster: Cluster, observer: Observer) -> Iterator[list[int]]:
    command = loads.metadata_command("storm", processes=2)
    with Load(cluster, "run", in_a_run(observer, command)) as load:
        load.wait_ready()
        yield [child.pid for child in psutil.Process(load.pid).children(recursive=True)]


GANESHA = Program(
    owner="ganesha.nfsd",
    own=frozenset({"ganesha.nfsd"}),
    role="ganesha",
    helper="cephfs_client_other",
    start=start_ganesha,
    locked=LOCKED,
)
FUSE = Program(
    owner="ceph-fuse",
    own=frozenset({"ceph-fuse"}),
    role="client_lock",
    helper="cephfs_client_other",
    start=start_fuse,
    locked=LOCKED,
)
FIO = Program("fio", frozenset({"fio"}), "benchmark", "benchmark_helper", start_fio)
RADOS = Program("rados", frozenset({"rados"}), "client_program", "ceph_client_other", start_rados)
LIBCEPHFS = Program("python3", frozenset({"python3"}), "benchmark", "benchmark_helper", start_libcephfs, known=False)


@pytest.fixture
def ganesha_installed() -> None:
    if not loads.has_ganesha():
        pytest.skip("not installed: nfs-ganesha-ceph, libnfs-utils; `make setup` as root installs it")


def wait_for_instances(observer: Observer, program: Program, pids: list[int]) -> None:
    """Wait until the exporter sees all instances of a client, and none of them is blind."""

    def complete() -> bool:
        number = sum("msgr-worker-0" in thread_names([pid]) for pid in program.all(pids))
        labels = f'{{client="{program.owner}"}}'
        seen = observer.value(f"pinchpoint_ceph_client_instances{labels}")
        return bool(number == seen and observer.value(f"pinchpoint_ceph_client_blind_instances{labels}") == 0)

    assert until(PATIENCE, complete, pause=0.5), program.all(pids)


def wait_until_alone(observer: Observer, program: Program) -> None:
    """Wait until the exporter sees only one instance of a client."""
    observer.wait_for(f'pinchpoint_ceph_client_instances{{client="{program.owner}"}} == 1', PATIENCE)
    observer.wait_for(f'pinchpoint_ceph_client_blind_instances{{client="{program.owner}"}} == 0', PATIENCE)


def by_role(observer: Observer, expr: str) -> dict[str, float]:
    return {series["metric"]["role"]: float(series["value"][1]) for series in observer.query(f"sum by (role) ({expr})")}


def cpu_seconds(pids: list[int]) -> float:
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


def counted(cluster: Cluster, pids: list[int], counter: str) -> tuple[float, float]:
    """Return number and seconds as counted by the clients, read from their admin sockets as an operator would."""
    number = seconds = 0.0
    for pid in pids:
        for path in cluster.directory.glob(f"run/ceph-client.admin.{pid}.*.asok"):
            client = Daemon(cluster, f"client.{pid}")
            client.socket = path
            found = client.ask("perf dump")["client"][counter]
            number, seconds = number + found["avgcount"], seconds + found["sum"]
    return number, seconds


@pytest.mark.parametrize(
    "program",
    [GANESHA, FUSE, FIO, RADOS, LIBCEPHFS],
    ids=["ganesha", "ceph-fuse", "fio-rbd", "rados-bench", "libcephfs-in-a-run"],
)
def test_every_thread_of_a_client_has_the_role_of_its_work_and_its_cpu_time_is_charged_there(
    looked_at: Cluster, observer: Observer, request: pytest.FixtureRequest, program: Program
) -> None:
    if program is GANESHA:
        request.getfixturevalue("ganesha_installed")
    threads = f'pinchpoint_threads{{owner="{program.owner}"}} > 0'
    cpu = f'pinchpoint_thread_cpu_seconds_total{{owner="{program.owner}"}}'

    with program.start(looked_at, observer) as pids:
        wait_for_instances(observer, program, pids)
        # Workers of ceph-fuse come and go, and Prometheus scrapes every 2 s.
        same = until(PATIENCE, lambda: by_role(observer, threads) == program.roles(program.all(pids)), pause=0.2)
        assert same, (by_role(observer, threads), Counter(thread_names(program.all(pids))))

        exported, used = by_role(observer, cpu), cpu_seconds(pids)
        gained = until(PATIENCE, lambda: (now := cpu_seconds(pids)) - used > 0.8 and now - used, pause=0.5)
        # A later scrape has the same time, a little late or early.
        charged = until(PATIENCE, lambda: (now := total(observer, cpu, exported)) > 0.7 * gained and now)

    assert charged, f"{program.owner} used {gained:.2f} s of CPU"
    roles = by_role(observer, f"{cpu} > 0")
    assert roles[program.role] > 0
    assert roles["messenger"] > 0


def total(observer: Observer, expr: str, before: dict[str, float]) -> float:
    return sum(by_role(observer, expr).values()) - sum(before.values())


@contextlib.contextmanager
def commanded_ganesha(cluster: Cluster, observer: Observer) -> Iterator[tuple[int, Work]]:
    with loads.ganesha(cluster) as server:
        source = cluster.directory / "source"
        source.write_text("6bytes")

        def work(rounds: int) -> None:
            # Ganesha answers repeated lookups from its own cache.
            for number in range(rounds // 5):
                copy = server.url(f"{rounds}.{number}")
                subprocess.run(["nfs-cp", source, copy], check=True, capture_output=True)

        yield server.pid, work


@contextlib.contextmanager
def commanded_fuse(cluster: Cluster, observer: Observer) -> Iterator[tuple[int, Work]]:
    with cluster.mount() as mount:

        def work(rounds: int) -> None:
            for _ in range(rounds):
                (mount.path / "directory").mkdir()
                (mount.path / "directory").rmdir()

        yield mount.pid, work


@contextlib.contextmanager
def commanded_libcephfs(cluster: Cluster, observer: Observer) -> Iterator[tuple[int, Work]]:
    with cluster.spawn(in_a_run(observer, [PYTHON, "-c", COMMANDED]), "commanded", pipes=True) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"

        def work(rounds: int) -> None:
            assert process.stdin
            assert process.stdout
            process.stdin.write(b"%d\n" % rounds)
            process.stdin.flush()
            assert process.stdout.readline() == b"done\n"

        (child,) = psutil.Process(process.pid).children(recursive=True)
        yield child.pid, work
        process.stdin.close()


@pytest.mark.parametrize(
    ("program", "start"),
    [(GANESHA, commanded_ganesha), (FUSE, commanded_fuse), (LIBCEPHFS, commanded_libcephfs)],
    ids=["ganesha", "ceph-fuse", "libcephfs-in-a-run"],
)
def test_requests_to_the_mds_are_counted_as_the_client_itself_counts_them(
    looked_at: Cluster,
    observer: Observer,
    request: pytest.FixtureRequest,
    program: Program,
    start: Callable[[Cluster, Observer], AbstractContextManager[tuple[int, Work]]],
) -> None:
    if program is GANESHA:
        request.getfixturevalue("ganesha_installed")
    labels = f'{{client="{program.owner}",target="mds"}}'
    requests = f"pinchpoint_ceph_client_requests_total{labels}"

    with start(looked_at, observer) as (pid, work):
        work(10)
        wait_for_instances(observer, program, [pid])
        observer.wait_for(requests, PATIENCE)

        def unseen() -> float:
            """Return how many requests were done before the exporter saw their client, or are not seen yet."""
            return counted(looked_at, program.all([pid]), "lat")[0] - (observer.value(requests) or 0.0)

        def looks() -> float:
            """Return how often the exporter had queried the clients when Prometheus last scraped it."""
            return observer.number('pinchpoint_sampler_samples_total{probe="ceph_client"}')

        def idle() -> tuple[float] | None:
            first, enough = unseen(), looks() + 3
            return (first,) if until(30, lambda: looks() >= enough, pause=0.2) and unseen() == first else None

        missed = until(PATIENCE, idle)
        assert missed, "the clients are never idle"
        before = counted(looked_at, [pid], "lat")
        work(300)
        after = counted(looked_at, [pid], "lat")

        assert after[0] - before[0] >= 100
        assert until(PATIENCE, lambda: unseen() == missed[0], pause=0.5), (unseen(), missed)
        seconds = observer.value(f"increase(pinchpoint_ceph_client_inflight_seconds_total{labels}[30s])")
        count = observer.value(f"increase({requests}[30s])")

    assert seconds is not None
    assert count
    mean = (after[1] - before[1]) / (after[0] - before[0])
    # The window may also hold requests from before `before`: this checks the units.
    assert 0.1 * mean < seconds / count < 10 * mean


def test_nfs_writes_of_ganesha_show_as_operations_of_its_client(
    looked_at: Cluster, observer: Observer, ganesha_installed: None, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_text("6bytes")
    writes = 'pinchpoint_ceph_client_ios_total{client="ganesha.nfsd",operation="write"}'

    with loads.ganesha(looked_at) as server:
        wait_for_instances(observer, GANESHA, [server.pid])
        # The client is listed before its first answer, and what it did until then is not reported.
        observer.wait_for('pinchpoint_ceph_client_cluster_info{client="ganesha.nfsd"}')
        before = float(observer.wait_for(writes)[0]["value"][1])
        for number in range(10):
            url = server.url(f"written.{number}")
            subprocess.run(["nfs-cp", source, url], check=True, capture_output=True)

        gained = until(PATIENCE, lambda: (observer.value(writes) or 0) - before >= 10 and observer.value(writes))
        assert gained == before + counted(looked_at, [server.pid], "wrlat")[0]


def test_fio_without_a_cache_has_as_many_requests_in_flight_as_its_depth(
    looked_at: Cluster, observer: Observer
) -> None:
    inflight = 'pinchpoint_ceph_client_inflight_requests{client="fio",target="osd"}'
    seconds = 'rate(pinchpoint_ceph_client_inflight_seconds_total{client="fio",target="osd"}[10s])'
    requests = 'rate(pinchpoint_ceph_client_requests_total{client="fio",target="osd"}[10s])'
    writes = 'rate(pinchpoint_ceph_client_ios_total{client="fio",operation="write"}[10s])'
    write_seconds = 'rate(pinchpoint_ceph_client_io_seconds_total{client="fio",operation="write"}[10s])'

    with FIO.start(looked_at, observer):
        # Its engine makes the job a thread, beside those of librados.
        observer.wait_for('pinchpoint_phase_active{benchmark="fio",phase="randwrite"} == 1', PATIENCE)
        wait_until_alone(observer, FIO)
        for what in (f"max_over_time({inflight}[10s])", seconds):
            observer.wait_for(f"{what} >= {0.5 * DEPTH} < {1.1 * DEPTH}", PATIENCE)
        # An application's write of one block is one request, and waits for little besides its answer.
        observer.wait_for(f"abs({writes} - on (client) {requests}) < on (client) 0.2 * {requests}", PATIENCE)
        observer.wait_for(f"{write_seconds} >= on (client) 0.8 * {seconds}", PATIENCE)


def test_rados_bench_is_seen_to_do_what_it_says_it_did(looked_at: Cluster, observer: Observer) -> None:
    # In a run every program is a client with its own name: this one is not added to rados of other clusters.
    program = looked_at.directory / "proof.rados"
    program.symlink_to(shutil.which("rados") or "rados")
    command = [str(program), "bench", "-p", "rbd", "10", "write", "-t", "16", "-b", "4096", "--no-cleanup"]
    requests = 'pinchpoint_ceph_client_requests_total{client="proof.rados",target="osd"}'
    inflight = 'pinchpoint_ceph_client_inflight_requests{client="proof.rados",target="osd"}'

    with Load(looked_at, "run", in_a_run(observer, command)) as load:
        observer.wait_for(f"{inflight} > 8 <= 16")
        assert load.wait(PATIENCE) == 0
        (line,) = (line for line in load.output.read_text().splitlines() if line.startswith("Total writes made:"))
    observer.wait_for('pinchpoint_ceph_client_instances{client="proof.rados"} == 0')

    done, seen = float(line.split()[-1]), observer.value(requests)
    assert seen is not None
    assert 0 < seen <= done


def test_a_client_without_an_admin_socket_is_blind_and_an_alert_says_so_during_a_run(
    looked_at: Cluster, observer: Observer
) -> None:
    observer.wait_until_gone("DaemonBlind", reason="client", client="python3")
    command = loads.metadata_command("storm", processes=2, rate=20, options={"admin_socket": ""})

    with Load(looked_at, "run", in_a_run(observer, command)) as load:
        load.wait_ready()
        alert = observer.wait_for_alert("DaemonBlind", PATIENCE, reason="client", client="python3")
        blind = observer.value('pinchpoint_ceph_client_blind_instances{client="python3"}')

        assert load.running
    assert blind == 2
    assert " of run " in alert["annotations"]["phases"]
    observer.wait_until_gone("DaemonBlind", PATIENCE, reason="client", client="python3")
