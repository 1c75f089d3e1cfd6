"""A real Ceph cluster from Debian's packages: plain child processes on loopback, in a directory of its own.

It is removed at its end and never started on old state. Whatever happens to the process that owns it, nothing is left:
the daemons die with their parent (PR_SET_PDEATHSIG, prctl(2)), a janitor that waits for the end of a pipe unmounts and
removes the directory, and the next cluster sweeps away anything that still remains.

Options and their traps are those of Ceph 16.2 (Debian 12).
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import json
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import httpx
import psutil

from lab.account import Circumstances, account, ask, tails
from lab.packages import packages
from memory import available
from native import interrupts_ignored
from patience import Deadline, patience
from ports import free_port

__all__ = ["MARK", "PROGRAMS", "PYTHON", "Cluster", "Daemon", "LabError", "Mount", "lacking", "missing"]

MARK = "PINCHPOINT_LAB"
"""Environment variable of every process of a cluster: the cluster's directory."""
NEEDED = 3 << 30
"""Bytes: an OSD on memstore uses 1.5 GiB under a write load."""
PYTHON = "/usr/bin/python3"
"""Debian's own Python: its modules rados and cephfs are built for it."""
PREFIX = "pinchpoint-lab-"
START_SECONDS = 60.0
STOP_SECONDS = 15.0
POLL_SECONDS = 0.05
COMMAND_SECONDS = 60.0
"""Seconds for an answer to a command: longer than admin.py needs to connect and librados to give up."""
STATUS_SECONDS = 5.0
HEALTHY = "ceph_health_status 0.0"
"""What the manager's metrics contain for a healthy cluster."""
SOCKET_PATH_LIMIT = 107
"""Maximum length in bytes of a Unix socket's path, unix(7)."""
SECURE = {
    **{f"auth_{whose}_required": "cephx" for whose in ("cluster", "service", "client")},
    **{f"ms_{whose}_mode": "secure" for whose in ("cluster", "service", "client")},
}
"""Options of a cluster whose connections are encrypted; without keys none is."""
LONGEST_SOCKET = "/run/ceph-client.admin.4194304.140737488355327.asok"
HERE = Path(__file__).resolve().parent

PROGRAMS: Mapping[str, str] = packages("ceph")
"""Program, or other file, and the Debian package that contains it."""

POOLS = ("cephfs.meta", "cephfs.data", "rbd")
MODULES = ("balancer", "crash", "devicehealth", "orchestrator", "pg_autoscaler", "progress", "rbd_support", "status",
           "telemetry", "volumes", "prometheus", "mgr_module.py", "mgr_util.py")  # fmt: skip
"""The modules of the manager that are always on, and prometheus. The other 20 cost 1.5 s and 120 MB at its start."""

JANITOR = """
trap '' INT TERM HUP
cat >/dev/null
for environ in $(grep -lzsxF "$2=$1" /proc/[0-9]*/environ); do
    pid=${environ#/proc/}
    kill -KILL "${pid%/environ}"
done
for mount in "$1"/mnt/*; do umount -l "$mount"; done
for _ in 1 2 3 4 5; do
    rm -rf --one-file-system "$1" && break
    sleep 0.2
done
"""


class LabError(Exception):
    """The cluster cannot do what was asked; the message says why and shows the end of the daemon's log."""


class LabTimeoutError(LabError):
    """A wait timed out."""


class Daemon:
    """A daemon of a cluster, for example ``mds.a``."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.socket = cluster.directory / "run" / f"ceph-{name}.asok"
        self.log = cluster.directory / "log" / f"ceph-{name}.log"
        self._cluster = cluster
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise LabError(f"{self.name} does not run")
        return self._process.pid

    @property
    def started(self) -> bool:
        return self._process is not None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        kind, _, identity = self.name.partition(".")
        command = [f"ceph-{kind}", "-f", "-i", identity, "-c", str(self._cluster.conf)]
        self._process = self._cluster.spawn(command, self.name)

    def ask(self, prefix: str, *, timeout: float | None = None, **arguments: Any) -> Any:
        """Return the answer of the admin socket: JSON decoded, other text unchanged.

        Raises LabError if the answer is an error, and OSError (including TimeoutError) if there is none.
        """
        request = {"prefix": prefix, "format": "json"} | arguments
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(patience(10.0) if timeout is None else timeout)
            connection.connect(os.fspath(self.socket))
            connection.sendall(json.dumps(request).encode() + b"\0")
            with connection.makefile("rb") as stream:
                size = int.from_bytes(stream.read(4), "big")
                answer = stream.read(size)
        if answer.startswith(b"ERROR: ("):
            raise LabError(f"{self.name}: {prefix}: {answer.decode(errors='replace').strip()}")
        try:
            return json.loads(answer)
        except ValueError:
            return answer.decode(errors="replace")

    def freeze(self) -> None:
        """Stop the process (SIGSTOP), and return when all its threads are stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        tasks = Path(f"/proc/{self.pid}/task")
        _wait_for(lambda: all(_state(task) in "tTZX" for task in tasks.iterdir()), f"{self.name} to stop")

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process, and return when it is gone. A socket of it stays, as on any host."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Kill it and start it again. An OSD on memstore loses its objects."""
        self.kill()
        self.start()

    def ended(self) -> str:
        """Return why it does not run, with the end of its log, or "" if it runs."""
        if self._process is None or self._process.poll() is None:
            return ""
        how = self._process.returncode
        ending = f"was killed by {signal.Signals(-how).name}" if how < 0 else f"ended with status {how}"
        return f"{self.name} {ending}.\n{tails(self.log, self.log.with_suffix('.out'))}"


class Mount:
    """A mounted file system of a cluster (ceph-fuse); as a context manager, one that ends with the block."""

    def __init__(self, cluster: Cluster, path: Path, process: subprocess.Popen[bytes]) -> None:
        self.path = path
        self.pid = process.pid
        self._cluster = cluster
        self._process = process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unmount()

    def unmount(self, timeout: float = 5.0) -> None:
        """Unmount, so that the client returns its capabilities; by force if that takes longer than `timeout`.

        Under a stopped daemon it does.
        """
        with subprocess.Popen(["umount", self.path], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                if process.wait(timeout) == 0:
                    self._process.wait(timeout)
                    return
            except subprocess.TimeoutExpired:
                pass
            # umount may wait for the client and then not even be killed (fuse_send_destroy), so the client goes first.
            self._process.kill()
            self._process.wait()
        _unmount_lazily(self.path)
        self._cluster.evict(self.pid)


class Cluster:
    """A cluster in its own directory under $TMPDIR; as a context manager, one that ends with the block.

    It has one monitor (mon.a), one manager (mgr.a), `osds` OSDs from osd.0, `mdss` MDSs from mds.a (`max_mds` of them
    become active), the file system ``cephfs`` (pools cephfs.meta and cephfs.data) and the pool ``rbd``, each pool with
    `pgs` placement groups and `replicas` copies. `options` are sections of ceph.conf with options that are added to the
    lab's own or replace them: ``{"mds": {"mds_cache_memory_limit": "8Mi"}}``. `mgr_port` is the port of the manager's
    Prometheus module, a free one by default. One that is `secure` encrypts all that goes over its connections. One that
    is `kept` outlives the process that started it; any other ends with the thread that started it (prctl(2)). Its
    daemons listen at the IPv4 `address`.
    """

    def __init__(
        self,
        *,
        osds: int = 1,
        mdss: int = 1,
        max_mds: int = 1,
        store: Literal["memstore", "bluestore"] = "memstore",
        options: Mapping[str, Mapping[str, str]] | None = None,
        mgr_port: int | None = None,
        pgs: int = 8,
        replicas: int = 1,
        secure: bool = False,
        kept: bool = False,
        address: str = "127.0.0.1",
    ) -> None:
        self.osds, self.mdss, self.max_mds, self.pgs, self.replicas = osds, mdss, max_mds, pgs, replicas
        self.store, self.secure, self.kept, self.address = store, secure, kept, address
        self.fsid = str(uuid.uuid4())
        self.daemons: dict[str, Daemon] = {}
        self.mounts: list[Mount] = []
        self._options = options or {}
        self._mgr_port = mgr_port
        self._directory: Path | None = None
        self._cleanup = contextlib.ExitStack()
        self._children: list[subprocess.Popen[bytes]] = []
        self._admin: subprocess.Popen[bytes] | None = None
        self._admin_lock = threading.Lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.give_up(error)

    @property
    def directory(self) -> Path:
        if self._directory is None:
            raise LabError("The cluster does not run.")
        return self._directory

    @property
    def conf(self) -> Path:
        return self.directory / "ceph.conf"

    @property
    def keyring(self) -> Path:
        """The keys of a cluster that is `secure`."""
        return self.directory / "keyring"

    @property
    def prometheus_url(self) -> str:
        """The base URL of the manager's Prometheus module: its metrics are at /metrics."""
        return f"http://127.0.0.1:{self._mgr_port}"

    def environment(self) -> dict[str, str]:
        """Return the environment in which Ceph's programs find the cluster. Such processes end with it."""
        variables = {"CEPH_CONF": str(self.conf), MARK: str(self.directory)}
        return {name: value for name, value in os.environ.items() if name != "CEPH_ARGS"} | variables

    def daemon(self, name: str) -> Daemon:
        return self.daemons[name]

    def start(self) -> None:
        """Start all daemons, and return when the cluster is healthy and the manager's metrics say so.

        Raises LabError, and leaves nothing, when a package is missing, a daemon ends or a wait takes more than 60 s.
        """
        if absent := missing():
            raise LabError(f"Not installed: {', '.join(absent)}. `make setup` as root installs it.")
        failure: BaseException | None = None
        try:
            self._make_directory()
            self._start_daemons()
            _wait_for(self._is_healthy, "the cluster to be healthy", START_SECONDS, self._problem)
        except BaseException as error:
            failure = error
            try:
                if isinstance(error, (LabError, OSError)):
                    failure = self._explained(error)
            finally:
                self.give_up(failure)
            if failure is error:
                raise
            raise failure from error

    def _explained(self, error: LabError | OSError) -> LabError:
        """Return the error with what is known about its cause. Neither raises nor waits for long."""
        if isinstance(error, LabError):
            reason = str(error)
        else:
            reason = f"{error.filename or self._directory or tempfile.gettempdir()}: {error.strerror or error}"
        if self._directory is None:
            return error if isinstance(error, LabError) else LabError(reason)
        # The last words of a daemon that ended explain the failed wait.
        if (problem := self._problem()) and problem not in reason:
            reason = f"{reason}\n{problem}"
        about = Circumstances(
            directory=self._directory,
            questions=self._answers,
            daemons={name: daemon.pid for name, daemon in self.daemons.items() if daemon.started},
            expected_pgs=self._expected_pgs,
            metrics_port=self._mgr_port,
            silent_metrics=lambda: HEALTHY not in self._metrics(),
        )
        return type(error)(account(reason, about)) if isinstance(error, LabError) else LabError(account(reason, about))

    def _answers(self) -> Mapping[str, Any]:
        """Ask the monitor for its state, if it was started."""
        return ask(self._admin_command(), self.environment()) if self.daemons and self.daemons["mon.a"].started else {}

    def give_up(self, reason: BaseException) -> None:
        """Stop because of an error, which remains the one raised: a failure here is added to it as a note."""
        directory = self._directory
        try:
            self.stop()
        except Exception as problem:
            note = f"Its clean-up failed too: {problem}\nWhat is left is in {directory}."
            if note not in getattr(reason, "__notes__", ()):
                reason.add_note(note)

    def stop(self) -> None:
        """Kill all processes, unmount and remove the directory. Does nothing if nothing is left."""
        if self._directory is not None:
            with interrupts_ignored():
                remove(self._directory)
                for child in self._children:
                    child.wait(patience(STOP_SECONDS))
                self._children.clear()
                self._cleanup.close()
            self._directory = None
            self._admin = None

    def command(
        self, prefix: str, *, to: Literal["mon", "mgr"] = "mon", timeout: float = COMMAND_SECONDS, **arguments: Any
    ) -> Any:
        """Return the answer to a command: JSON decoded, other text unchanged.

        Raises LabError for an error, and LabTimeoutError if no answer comes.
        """
        request = {"to": to, "command": {"prefix": prefix, "format": "json"} | arguments}
        line: bytes | None = None
        limit = patience(timeout)
        with self._admin_lock:
            if self._admin is None or self._admin.poll() is not None:
                self._admin = self.spawn(self._admin_command(), "admin", pipes=True)
            assert self._admin.stdin
            assert self._admin.stdout
            try:
                self._admin.stdin.write(json.dumps(request).encode() + b"\n")
                self._admin.stdin.flush()
                if select.select([self._admin.stdout], [], [], limit)[0]:
                    line = self._admin.stdout.readline()
            except BrokenPipeError:
                line = b""
            finally:
                if line is None:
                    self._admin.kill()  # otherwise a late answer is taken for that of the next command
                    self._admin.wait()
        if line is None:
            raise LabTimeoutError(f"Waited {limit:.0f} s for an answer to {prefix}.")
        if not line:
            raise LabError(f"admin.py ended at {prefix}.\n{tails(self.directory / 'log' / 'ceph-admin.out')}")
        answer = json.loads(line)
        if answer["code"] < 0:
            kind = LabTimeoutError if -answer["code"] == errno.ETIMEDOUT else LabError
            raise kind(f"{prefix}: {answer['status'] or os.strerror(-answer['code'])}")
        try:
            return json.loads(answer["output"])
        except ValueError:
            return answer["output"]

    def _admin_command(self) -> list[str]:
        return [PYTHON, str(HERE / "admin.py"), str(self.conf)]

    def tell(self, daemon: str, prefix: str, **arguments: Any) -> Any:
        """Return a daemon's answer to a command, as `ceph tell` would, through its admin socket."""
        return self.daemon(daemon).ask(prefix, **arguments)

    def set_option(self, daemon: str, option: str, value: str | float) -> None:
        """Change an option of a running daemon; it is in effect when this returns."""
        self.tell(daemon, "config set", var=option, val=[str(value)])

    def health(self) -> set[str]:
        """Return the names of the raised health checks, for example MDS_TRIM."""
        return set(self.command("health", detail="detail")["checks"])

    def start_mds(self, name: str) -> Daemon:
        """Start another MDS; return at once."""
        daemon = self.daemons[f"mds.{name}"] = Daemon(self, f"mds.{name}")
        daemon.start()
        return daemon

    def evict(self, pid: int) -> None:
        """End the sessions of a killed client: it would keep its capabilities for 300 s."""
        for name, daemon in self.daemons.items():
            if not name.startswith("mds.") or not daemon.running:
                continue
            try:
                for session in daemon.ask("session ls", timeout=2.0):
                    if session["client_metadata"].get("pid") == str(pid):
                        daemon.ask("session evict", filters=[f"id={session['id']}"])
            except (LabError, OSError, TypeError):
                pass  # a standby has no sessions, and a stopped MDS does not answer

    def mount(self) -> Mount:
        """Mount the file system; the cluster unmounts it when it ends."""
        path = self.directory / "mnt" / str(len(self.mounts))
        path.mkdir()
        process = self.spawn(["ceph-fuse", "-f", "-c", str(self.conf), str(path)], f"fuse.{path.name}")
        mount = Mount(self, path, process)
        self.mounts.append(mount)

        def problem() -> str:
            return "" if process.poll() is None else f"ceph-fuse ended.\n{tails(self._output(f'fuse.{path.name}'))}"

        _wait_for(lambda: os.path.ismount(path), f"{path} to be mounted", problem=problem)
        return mount

    def spawn(self, command: Sequence[str], name: str, *, pipes: bool = False) -> subprocess.Popen[bytes]:
        """Start a process that finds the cluster and ends with it; its output goes to a file, or to `pipes`."""
        held: tuple[int, ...] = ()
        if self.kept:
            held = (self._lock.fileno(),)  # a running daemon keeps the directory from being swept
        else:
            command = ["setpriv", "--pdeathsig", "KILL", "--", *command]
        with self._output(name).open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=self.environment(),
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else output,
                stderr=output,
                pass_fds=held,
                start_new_session=True,  # a Ctrl-C is for the owner
            )
        self._children.append(process)
        return process

    def _output(self, name: str) -> Path:
        return self.directory / "log" / f"ceph-{name}.out"

    def _make_directory(self) -> None:
        base = Path(tempfile.gettempdir())
        if len(os.fsencode(base)) + len(f"/{PREFIX}12345678{LONGEST_SOCKET}") > SOCKET_PATH_LIMIT:
            base = Path("/tmp")
        # The lock keeps others from sweeping the directory while it is being created.
        with _locked(base):
            sweep(base)
            directory = self._directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
            self._lock = self._cleanup.enter_context((directory / "lock").open("w"))
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        if not self.kept:
            janitor = subprocess.Popen(
                ["/bin/sh", "-c", JANITOR, "janitor", str(directory), MARK],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._cleanup.callback(janitor.communicate, timeout=patience(STOP_SECONDS))
        for name in ("run", "log", "crash", "data", "mnt", "modules"):
            (directory / name).mkdir()
        for name in MODULES:
            (directory / "modules" / name).symlink_to(f"/usr/share/ceph/mgr/{name}")
        self._mgr_port = self._mgr_port or free_port()
        if self.secure:
            self.keyring.write_text(_keys(self))
        self.conf.write_text(_configuration(directory, self.fsid, free_port(), self))

    def _start_daemons(self) -> None:
        names = ["mon.a", "mgr.a", *(f"osd.{number}" for number in range(self.osds))]
        self.daemons = {name: Daemon(self, name) for name in names}
        uuids = {f"osd.{number}": str(uuid.uuid4()) for number in range(self.osds)}
        making = {name: self._make_store(name, uuids.get(name)) for name in ("mon.a", *uuids)}
        self._wait_for_store("mon.a", making.pop("mon.a"))
        self.daemon("mon.a").start()
        _wait_for(self._has_quorum, "the monitor", START_SECONDS, self._problem)
        for option, value in (
            ("mgr/prometheus/server_addr", "127.0.0.1"),
            ("mgr/prometheus/server_port", str(self._mgr_port)),
            ("mgr/prometheus/scrape_interval", "1"),
            ("mgr/devicehealth/enable_monitoring", "false"),  # it would create its own pool
        ):
            # The manager does not run yet, so it cannot say which options its modules have.
            self.command("config set", who="mgr", name=option, value=value, force=True)
        self.daemon("mgr.a").start()
        for name, identity in uuids.items():
            self.command("osd new", uuid=identity, id=int(name.removeprefix("osd.")))
        for pool in POOLS:
            self.command("osd pool create", pool=pool, pg_num=self.pgs, pgp_num=self.pgs)
        for name, process in making.items():
            self._wait_for_store(name, process)
            self.daemon(name).start()
        # A placement group learns how long its leases last when the map of OSDs changes for the first time in its life
        # (PeeringState::advance_map, src/osd/PeeringState.cc, 16.2.15). Until then it renews one of 0 s again and
        # again, and an operation that comes too late for it stays blocked. The commands below change the map.
        _wait_for(self._has_placement_groups, "the placement groups", START_SECONDS, self._problem)
        self.command("osd pool application enable", pool="rbd", app="rbd")
        self.command("fs new", fs_name="cephfs", metadata="cephfs.meta", data="cephfs.data")
        self.command("fs set", fs_name="cephfs", var="max_mds", val=str(self.max_mds))
        standbys = min(1, self.mdss - self.max_mds)
        self.command("fs set", fs_name="cephfs", var="standby_count_wanted", val=str(standbys))
        for number in range(self.mdss):
            self.start_mds(chr(ord("a") + number))

    def _make_store(self, name: str, identity: str | None) -> subprocess.Popen[bytes]:
        (self.directory / "data" / name).mkdir()
        kind, _, number = name.partition(".")
        command = [f"ceph-{kind}", "--mkfs", "-i", number, "-c", str(self.conf), "--no-mon-config"]
        if self.secure:
            command.append(f"--keyring={self.keyring}")
        if identity is not None:
            command += ["--osd-uuid", identity]
        return self.spawn(command, name)

    def _wait_for_store(self, name: str, process: subprocess.Popen[bytes]) -> None:
        try:
            status = process.wait(patience(START_SECONDS))
        except subprocess.TimeoutExpired:
            raise LabTimeoutError(f"Waited {START_SECONDS:.0f} s for {name} to make its store.") from None
        if status:
            raise LabError(f"{name} could not make its store.\n{tails(self._output(name), self.daemon(name).log)}")
        self._children.remove(process)

    def _has_quorum(self) -> bool:
        try:
            return bool(self.tell("mon.a", "mon_status", timeout=patience(1.0))["quorum"])
        except (OSError, LabError, TypeError):
            return False

    def _status(self) -> dict[str, Any] | None:
        try:
            return self.command("status", timeout=STATUS_SECONDS)  # type: ignore[no-any-return]
        except LabTimeoutError:
            return None

    def _has_placement_groups(self) -> bool:
        status = self._status()
        return status is not None and _groups(status) == {"active+clean": self._expected_pgs}

    def _is_healthy(self) -> bool:
        status = self._status()
        if status is None:
            return False
        osds, mdss = status["osdmap"], status["fsmap"]
        ranks = [rank for rank in mdss["by_rank"] if rank["status"] == "up:active"]
        return bool(
            status["health"]["status"] == "HEALTH_OK"
            and status["mgrmap"]["available"]
            and osds["num_up_osds"] == osds["num_in_osds"] == self.osds
            # The monitor reports health before the manager has told it about placement groups.
            and _groups(status) == {"active+clean": self._expected_pgs}
            and len(ranks) == self.max_mds
            and mdss["up:standby"] == self.mdss - self.max_mds
            and self._metrics_know(rank["name"] for rank in ranks)
        )

    @property
    def _expected_pgs(self) -> int:
        return len(POOLS) * self.pgs

    def _metrics_know(self, ranks: Iterable[str]) -> bool:
        """Return whether the manager's metrics are those of a healthy cluster in which these daemons are ranks."""
        metrics = self._metrics()
        return HEALTHY in metrics and all(f'ceph_mds_metadata{{ceph_daemon="mds.{name}"' in metrics for name in ranks)

    def _metrics(self) -> str:
        try:
            return httpx.get(f"{self.prometheus_url}/metrics", timeout=patience(5.0), trust_env=False).text
        except httpx.HTTPError:
            return ""

    def _problem(self) -> str:
        return next(filter(None, (daemon.ended() for daemon in self.daemons.values())), "")


def _groups(status: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of placement groups in each state."""
    return {state["state_name"]: state["count"] for state in status["pgmap"]["pgs_by_state"]}


def missing() -> list[str]:
    """Return the Debian packages of a cluster that are not installed."""
    return sorted({package for thing, package in PROGRAMS.items() if not _is_there(thing)})


def lacking() -> str:
    """Return what this machine lacks for a cluster and a load; empty if it lacks nothing."""
    if os.geteuid():
        return "needs root, for ceph-fuse"
    if absent := missing():
        return f"not installed: {', '.join(absent)}; `make setup` as root installs it"
    if (memory := available()) < NEEDED:
        return f"a cluster needs {NEEDED >> 20} MiB of memory, {memory >> 20} MiB are available"
    return ""


def processes(directory: Path) -> list[psutil.Process]:
    """Return the processes of the cluster in `directory`."""
    return [
        process
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get(MARK) == str(directory) and process.pid != os.getpid()
    ]


def remove(directory: Path) -> None:
    """Kill the processes of the cluster in `directory`, unmount its file systems and remove it.

    A cluster that will not be used again may be killed, and SIGKILL also ends a stopped process.
    """
    deadline = Deadline(STOP_SECONDS)
    while found := processes(directory):
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=1.0)
        if deadline.over:
            raise LabError(f"Could not kill {', '.join(map(str, found))}.")
    for path in _mounts_below(directory):
        _unmount_lazily(path)
    shutil.rmtree(directory, ignore_errors=True)


def sweep(base: Path) -> None:
    """Remove clusters whose lock is free: neither their owner holds it nor, if they are kept, a daemon.

    Locks are visible from other PID namespaces too, processes are not.
    """
    for directory in base.glob(f"{PREFIX}*"):
        with contextlib.ExitStack() as stack:
            try:
                if directory.lstat().st_uid != os.geteuid():
                    continue
                lock = stack.enter_context((directory / "lock").open())
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            remove(directory)


def _configuration(directory: Path, fsid: str, port: int, cluster: Cluster) -> str:
    sections: dict[str, dict[str, str]] = {
        "global": {
            "fsid": fsid,
            "mon_host": f"v2:{cluster.address}:{port}",
            "mon_initial_members": "a",
            "ms_bind_msgr1": "false",
            "auth_cluster_required": "none",
            "auth_service_required": "none",
            "auth_client_required": "none",
            "run_dir": f"{directory}/run",
            "pid_file": f"{directory}/run/$name.pid",
            "crash_dir": f"{directory}/crash",
            "log_file": f"{directory}/log/ceph-$name.log",
            "mon_cluster_log_file": f"{directory}/log/ceph.log",
            "mon_data": f"{directory}/data/$name",
            "mgr_data": f"{directory}/data/$name",
            "osd_data": f"{directory}/data/$name",
            "mds_data": f"{directory}/data/$name",
            # Otherwise a cluster with one copy of everything, on a full disk, is never HEALTH_OK.
            "osd_pool_default_size": str(cluster.replicas),
            "osd_pool_default_min_size": "1",
            # If the OSD of a placement group with one copy stands still for 16 s, its lease (0.8 x osd_heartbeat_grace)
            # expires and its operations can stay "waiting for readable" for good: no other OSD acknowledges the next.
            "osd_pool_default_read_lease_ratio": "30",
            "osd_pool_default_pg_autoscale_mode": "off",
            "osd_crush_chooseleaf_type": "0",
            "mon_allow_pool_size_one": "true",
            "mon_warn_on_pool_no_redundancy": "false",
            "mon_warn_on_insecure_global_id_reclaim": "false",
            "mon_warn_on_insecure_global_id_reclaim_allowed": "false",
            "mon_data_avail_warn": "2",
            "mon_data_avail_crit": "1",
            "mon_allow_pool_delete": "true",
            # Changes become visible within a second.
            "paxos_propose_interval": "0.1",
            "mgr_stats_period": "1",
            "mgr_tick_period": "1",
            "mds_beacon_interval": "1",
            "mds_reconnect_timeout": "3",
        },
        # Not in [global]: there it would replace the port of mon_host, and the monitor would look for itself for ever.
        "mon": {"public_addr": f"v2:{cluster.address}:{port}/0", "mgr_initial_modules": "prometheus"},
        "mgr": {
            "public_addr": cluster.address,
            "mgr_module_path": f"{directory}/modules",
        },
        "osd": {
            "public_addr": cluster.address,
            "cluster_addr": cluster.address,
            "osd_objectstore": cluster.store,
            "osd_memory_target": "1Gi",
            "osd_crush_initial_weight": "1",
            "bluestore_block_size": "8Gi",
            # Each entry holds the buffers of its operation: a gigabyte after 40,000 writes of 16 KiB.
            "osd_min_pg_log_entries": "50",
            "osd_max_pg_log_entries": "100",
            "osd_target_pg_log_entries_per_osd": "400",
            "osd_pg_log_dups_tracked": "100",
        },
        "mds": {"public_addr": cluster.address},
        # Clients on one host with the same name would compete for the default path.
        "client": {"admin_socket": f"{directory}/run/$cluster-$name.$pid.$cctid.asok", "pid_file": ""},
    }
    if cluster.secure:
        sections["global"] |= SECURE | {"keyring": str(cluster.keyring)}
    for section, values in cluster._options.items():
        sections.setdefault(section, {}).update(values)
    lines = []
    for section, values in sections.items():
        lines += [f"[{section}]", *(f"{option} = {value}" for option, value in values.items())]
    return "\n".join(lines) + "\n"


def _keys(cluster: Cluster) -> str:
    """Return a keyring in which all have the same key, and may do anything.

    A key is its type (1: AES), the seconds and nanoseconds of its making, its length and itself (CryptoKey::encode,
    src/auth/Crypto.cc).
    """
    key = base64.b64encode(struct.pack("<HIIH", 1, 0, 0, 16) + secrets.token_bytes(16)).decode()
    daemons = ["mgr.a", *(f"osd.{number}" for number in range(cluster.osds))]
    daemons += [f"mds.{chr(ord('a') + number)}" for number in range(cluster.mdss)]
    caps = "".join(f'caps {kind} = "allow *"\n' for kind in ("mon", "mgr", "osd", "mds"))
    return "".join(f"[{name}]\nkey = {key}\n{caps}" for name in ("mon.", "client.admin", *daemons))


def _is_there(thing: str) -> bool:
    if thing.startswith("/"):
        return any(Path("/").glob(thing[1:]))
    return shutil.which(thing) is not None


def _wait_for(
    condition: Callable[[], bool], what: str, seconds: float = 10.0, problem: Callable[[], str] = str
) -> None:
    """Return when `condition` holds. Raises LabError when a `problem` occurs or the patience runs out."""
    deadline = Deadline(seconds)
    while not condition():
        if text := problem():
            raise LabError(text)
        if deadline.over:
            raise LabTimeoutError(f"Waited {deadline.waited:.0f} s for {what}.")
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return "X"


def _mounts_below(directory: Path) -> list[Path]:
    paths = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [Path(path) for path in paths if path.startswith(f"{directory}/")]


def _unmount_lazily(path: Path) -> None:
    subprocess.run(["umount", "-l", path], stdin=subprocess.DEVNULL, capture_output=True, check=False)
