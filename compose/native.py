"""The local stack without containers: exporter, judge, Prometheus, Alertmanager, node_exporter on this host's loopback.

Grafana is a part of it if it is installed. supervisord starts them and keeps them running. `Stack` prepares a state
directory for them from the configuration in this directory and in alerts/, and is what ``make up``, the demo and the
tests use.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self
from xmlrpc.client import Error as RpcError
from xmlrpc.client import ServerProxy

import httpx
import psutil
from supervisor.xmlrpc import SupervisorTransport

__all__ = [
    "OPTIONAL",
    "PARTS",
    "TREE",
    "WITHOUT_STACK",
    "Stack",
    "StackError",
    "exit_on_sigterm",
    "interrupts_ignored",
    "ports_from",
]

TREE = Path(__file__).resolve().parent.parent
STATE = TREE / ".stack"
WITHOUT_STACK = "`.venv/bin/pinchpoint run` and `.venv/bin/pinchpoint watch` work without the stack."

MARK = "PINCHPOINT_STACK"
"""Environment variable of every process of a stack: its state directory. Unlike a pid file it cannot get lost."""
START_SECONDS = 120.0
"""How long a part may take to become healthy. Grafana creates its database at its first start."""
STOP_SECONDS = 15.0
POLL_SECONDS = 0.1
SOCKET_PATH_LIMIT = 107 - len(".2147483647")
"""Bytes of a Unix socket's path (unix(7)), without the suffix under which supervisord first creates its own."""


@dataclass(frozen=True)
class Part:
    """One process of the stack."""

    title: str
    port: int
    variable: str
    """Environment variable that replaces the default port."""
    health: str
    """Path that returns 200 if the part works."""
    programs: tuple[str, ...]
    """Debian's name of the program, then upstream's; empty for Pinchpoint itself."""
    arguments: tuple[str, ...] = ()
    """Arguments besides the listen address; paths are relative to the state directory, in which it runs."""


PARTS: Mapping[str, Part] = {
    "pinchpoint": Part("Pinchpoint exporter", 9748, "PINCHPOINT_PORT", "/-/healthy", ()),
    "judge": Part(
        "Pinchpoint judge",
        9749,
        "JUDGE_PORT",
        "/-/healthy",
        (),
        ("--targets-file=targets/pinchpoint.yml", "--targets-file=local/pinchpoint.yml"),
    ),
    "prometheus": Part(
        "Prometheus",
        9090,
        "PROMETHEUS_PORT",
        "/-/ready",
        ("prometheus",),
        (
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=prometheus",
            "--storage.tsdb.retention.time=3d",
            "--storage.tsdb.retention.size=512MB",
            # Twice the slowest scrape interval. A server that was stopped marks nothing as stale, so with the default
            # of 5 min a stack that is started again shows the phases and alerts of the last run as present.
            "--query.lookback-delta=30s",
        ),
    ),
    "alertmanager": Part(
        "Alertmanager",
        9093,
        "ALERTMANAGER_PORT",
        "/-/ready",
        ("prometheus-alertmanager", "alertmanager"),
        # An empty cluster address: no gossip, and no second port that could be in use.
        ("--config.file=alertmanager.yml", "--storage.path=alertmanager", "--cluster.listen-address="),
    ),
    # node_exporter 1.5 has no health page; its landing page costs nothing, unlike /metrics.
    "node": Part("node_exporter", 9100, "NODE_EXPORTER_PORT", "/", ("prometheus-node-exporter", "node_exporter")),
}

OPTIONAL: Mapping[str, Part] = {
    "grafana": Part("Grafana", 3000, "GRAFANA_PORT", "/api/health", ("grafana", "grafana-server")),
}
"""Parts that are started as well if they are installed."""
WITHOUT_GRAFANA = "not installed (no grafana in PATH, no GRAFANA_HOME); any Grafana takes dashboards/json"

_KNOWN = {**PARTS, **OPTIONAL}


class StackError(Exception):
    """The stack cannot be started or stopped; the message is for the user."""


class Stack:
    """A stack in its own state directory; as a context manager, one that ends with the block.

    `ports` has a port for each of `PARTS`, and for those of `OPTIONAL` that are wanted; once it has started, for those
    that are there. `runs` is the exporter's run directory, by default the one that `pinchpoint run` uses.
    """

    def __init__(self, state: Path, ports: Mapping[str, int], *, runs: Path | None = None) -> None:
        self.state = state.resolve()
        self.ports = dict(ports)
        self.kept = False
        """Whether it keeps running after the process that started it."""
        self._runs = runs
        self._socket = self.state / "supervisor.sock"
        self._child: subprocess.Popen[bytes] | None = None

    @classmethod
    def running(cls, state: Path) -> Self | None:
        """Return the stack that runs in `state`, or None."""
        try:
            record = json.loads((state / "stack.json").read_bytes())
            stack = cls(state, record["ports"])
            stack.kept, stack._socket = record["kept"], Path(record["socket"])
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return stack if stack._supervisors() else None

    @property
    def urls(self) -> dict[str, str]:
        """The base URL of each part."""
        return {name: f"http://127.0.0.1:{port}" for name, port in self.ports.items()}

    @property
    def variables(self) -> dict[str, str]:
        """Ports and paths, which compose/grafana leaves open."""
        folder = self.state / "grafana"
        return {
            **{_KNOWN[name].variable: str(port) for name, port in self.ports.items()},
            "PINCHPOINT_DASHBOARDS": str(TREE / "dashboards" / "json"),
            "GF_PATHS_PROVISIONING": str(TREE / "compose" / "grafana" / "provisioning"),
            "GF_PATHS_DATA": str(folder),
            "GF_PATHS_PLUGINS": str(folder / "plugins"),
            "GF_PATHS_LOGS": str(folder / "log"),
        }

    def __enter__(self) -> Self:
        self.start(keep=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, *, keep: bool) -> None:
        """Start all parts and wait until each is healthy; `keep` lets them outlive this process.

        Raises StackError, and leaves nothing running, if a program is missing, a port is in use or a part fails.
        """
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._supervisors():
                raise StackError(f"A stack runs in {self.state} already.")
            commands = self.commands()
            self.ports = {name: self.ports[name] for name in commands}
            self._check_ports()
            self.kept = keep
            try:
                self._prepare(commands)
                self._start_supervisor()
                self._wait_until_healthy()
            except BaseException:
                self.stop()
                raise

    def stop(self) -> bool:
        """Stop all parts and wait for their end; return whether anything ran.

        Raises StackError if a process could not be stopped.
        """
        with interrupts_ignored():
            supervisors, processes = self._supervisors(), self._processes()
            # supervisord stops its processes; any that it left behind, or that lost it, are stopped here.
            _end(supervisors or processes, processes)
            _end(self._processes())
            if self._child is not None:
                self._child.wait()
                self._child = None
            (self.state / "stack.json").unlink(missing_ok=True)
            if self._socket.parent != self.state:
                shutil.rmtree(self._socket.parent, ignore_errors=True)
        if left := self._processes():
            raise StackError(f"Could not stop {', '.join(map(_describe, left))}.")
        return bool(supervisors or processes)

    def states(self) -> dict[str, str]:
        """Return supervisord's state of each part, for example RUNNING or FATAL. Raises OSError, xmlrpc's Error."""
        return {part["name"]: part["statename"] for part in self._described()}

    def pids(self) -> dict[str, int]:
        """Return the PID of each part that runs. Raises OSError, xmlrpc's Error."""
        return {part["name"]: part["pid"] for part in self._described() if part["pid"]}

    def _described(self) -> list[dict[str, Any]]:
        # The URL is only for the Host header: the transport connects to the socket.
        transport = SupervisorTransport(None, None, f"unix://{self._socket}")
        server = ServerProxy("http://127.0.0.1", transport=transport)
        found: Any = server.supervisor.getAllProcessInfo()
        return list(found)

    def healthy(self, name: str) -> bool:
        """Return whether a part answers its health check."""
        try:
            answer = httpx.get(self.urls[name] + _KNOWN[name].health, timeout=2.0, trust_env=False)
        except httpx.HTTPError:
            return False
        return answer.status_code == httpx.codes.OK

    def _supervisors(self) -> list[psutil.Process]:
        """Return the supervisord of this state directory, of any user: arguments are public, environments are not."""
        config = str(self.state / "supervisord.conf")
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if config in (arguments := process.info["cmdline"] or [])
            and "supervisord" in [os.path.basename(argument) for argument in arguments]
        ]

    def _processes(self) -> list[psutil.Process]:
        mark = str(self.state)
        return [
            process
            for process in psutil.process_iter(["environ"])
            if (process.info["environ"] or {}).get(MARK) == mark and process.pid != os.getpid()
        ]

    def commands(self) -> dict[str, list[str]]:
        """Return the command of each part, of the optional ones only if they are installed. Raises StackError."""
        commands: dict[str, list[str]] = {}
        missing = []
        for name, part in PARTS.items():
            if part.programs:
                program = next(filter(None, map(shutil.which, part.programs)), None)
            else:
                program = str(Path(sys.executable).with_name("pinchpoint"))
            if program is None:
                missing.append(part.programs[0])
                continue
            commands[name] = [program, f"--web.listen-address=127.0.0.1:{self.ports[name]}", *part.arguments]
        if missing:
            raise StackError(
                f"Not installed: {', '.join(missing)}.\n`make setup` as root installs it.\n{WITHOUT_STACK}"
            )
        commands["pinchpoint"].insert(1, "exporter")
        commands["judge"].insert(1, "judge")
        if self._runs is not None:
            commands["pinchpoint"].append(f"--path.runs={self._runs.resolve()}")
        if "grafana" in self.ports and (grafana := _grafana(os.environ)):
            commands["grafana"] = [*grafana, f"--config={TREE / 'compose' / 'grafana' / 'grafana.ini'}"]
        return commands

    def _check_ports(self) -> None:
        used = [name for name in self.ports if not _is_free(self.ports[name])]
        if not used:
            return
        lines = [f"Port {self.ports[name]} ({_KNOWN[name].title}) is in use{_user(self.ports[name])}." for name in used]
        others = " ".join(f"{_KNOWN[name].variable}={self._free_port_above(self.ports[name])}" for name in used)
        lines += [f"Stop that program, or add another port to the command: {others}", WITHOUT_STACK]
        raise StackError("\n".join(lines))

    def _free_port_above(self, port: int) -> int:
        candidates = (port for port in range(port + 1, 65536) if port not in self.ports.values() and _is_free(port))
        return next(candidates, port)

    def _prepare(self, commands: Mapping[str, list[str]]) -> None:
        """Write the state directory. Links let an edited rule or configuration take effect at a reload.

        A stack that ends with its block, as of a demo, knows no hosts but this one, whatever the lists of targets say.
        """
        shutil.rmtree(self.state / "log", ignore_errors=True)
        for name in ("log", "local", "targets", "grafana/plugins"):
            (self.state / name).mkdir(parents=True, exist_ok=True)
        compose = TREE / "compose"
        for name, source in (
            ("prometheus.yml", compose / "prometheus.yml"),
            ("alertmanager.yml", compose / "alertmanager.yml"),
            ("rules", TREE / "alerts"),
            *((f"targets/{path.name}", path) for path in (compose / "targets").glob("*.yml")),
        ):
            (self.state / name).unlink(missing_ok=True)
            if self.kept or source.parent.name != "targets":
                (self.state / name).symlink_to(source)
            else:
                (self.state / name).write_text("[]\n")
        for name in PARTS:
            (self.state / "local" / f"{name}.yml").write_text(f'- targets: ["127.0.0.1:{self.ports[name]}"]\n')
        if len(os.fsencode(self._socket)) > SOCKET_PATH_LIMIT:
            self._socket = Path(tempfile.mkdtemp(prefix="pinchpoint-"), "supervisor.sock")
        (self.state / "supervisord.conf").write_text(_supervisor_config(self._socket, commands))
        record = {"ports": self.ports, "kept": self.kept, "socket": str(self._socket)}
        (self.state / "stack.json").write_text(json.dumps(record))

    def _start_supervisor(self) -> None:
        command = [str(Path(sys.executable).with_name("supervisord")), "-c", str(self.state / "supervisord.conf")]
        environment = os.environ | self.variables | {MARK: str(self.state)}
        if self.kept:
            done = subprocess.run(
                command, cwd=self.state, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            if done.returncode:
                raise StackError(f"supervisord did not start:\n{done.stdout}{done.stderr}")
            return
        # In the foreground it can be made to end if this process is killed and cannot clean up.
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "TERM", "--", *command]
        with (self.state / "log" / "supervisord.log").open("ab") as output:
            self._child = subprocess.Popen(
                [*command, "-n", "-s"],  # in the foreground; its log goes only to the file
                cwd=self.state,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is for this process, which then stops the stack
            )

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        waiting = list(self.ports)
        while waiting:
            states: dict[str, str] = {}
            with contextlib.suppress(OSError, RpcError):
                states = self.states()
            if self._child is not None and self._child.poll() is not None:
                raise StackError(f"supervisord ended at once.\n{self._log_end('supervisord')}")
            for name, state in states.items():
                if state not in {"STARTING", "RUNNING"}:
                    raise StackError(f"{_KNOWN[name].title} does not start.\n{self._log_end(name)}")
            waiting = [name for name in waiting if name not in states or not self.healthy(name)]
            if waiting and time.monotonic() > deadline:
                name = waiting[0]
                raise StackError(
                    f"{_KNOWN[name].title} does not answer at {self.urls[name]}{_KNOWN[name].health} after "
                    f"{START_SECONDS:.0f} s.\n{self._log_end(name)}"
                )
            if waiting:
                time.sleep(POLL_SECONDS)

    def _log_end(self, name: str) -> str:
        path = self.state / "log" / f"{name}.log"
        try:
            lines = path.read_text(errors="replace").splitlines()[-8:]
        except OSError:
            lines = []
        return "\n".join([f"The end of {path}:", *(f"  {line}" for line in lines or ["(it is empty)"])])


def ports_from(environment: Mapping[str, str], *optional: str) -> dict[str, int]:
    """Return the ports of `PARTS` and of these `OPTIONAL` ones: the value of a part's variable, else its default.

    Raises StackError for an invalid port.
    """
    ports: dict[str, int] = {}
    for name in (*PARTS, *optional):
        part = _KNOWN[name]
        text = environment.get(part.variable, "").strip() or str(part.port)
        if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 65536:
            raise StackError(f"{part.variable}: must be a port, 1 to 65535, is {text!r}")
        ports[name] = int(text)
    for name, port in ports.items():
        if other := next((key for key in ports if key != name and ports[key] == port), None):
            raise StackError(f"{_KNOWN[name].variable} and {_KNOWN[other].variable} are both {port}")
    return ports


def exit_on_sigterm() -> None:
    """Turn SIGTERM and SIGHUP into an exception, so that this process stops its stacks."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def _grafana(environment: Mapping[str, str]) -> list[str] | None:
    """Return the command that starts Grafana's server, with its home directory; None if it is not installed.

    Its home has conf/defaults.ini: GRAFANA_HOME, else what the program was unpacked with, else that of its packages.
    These have scripts in PATH, which add a configuration of their own (packaging/wrappers, 12.3): the program itself is
    in the home directory.
    """
    found = next(filter(None, map(shutil.which, OPTIONAL["grafana"].programs)), None)
    if home := environment.get("GRAFANA_HOME"):
        homes = [Path(home)]
    else:
        homes = [*([Path(found).resolve().parent.parent] if found else []), Path("/usr/share/grafana")]
    for folder in homes:
        if (folder / "conf" / "defaults.ini").is_file():
            program = shutil.which(str(folder / "bin" / "grafana")) or found
            if program:
                server = [] if Path(program).name == "grafana-server" else ["server"]
                return [program, *server, f"--homepath={folder.resolve()}"]
    return None


def _supervisor_config(control: Path, commands: Mapping[str, list[str]]) -> str:
    """Return a configuration for a supervisord that works in the state directory, as its processes then do.

    Paths are relative, since supervisord expands a ``%`` in some of its options twice.
    """
    lines = [
        "[supervisord]",
        "logfile=log/supervisord.log",
        "pidfile=supervisord.pid",
        # Otherwise supervisord warns root that it keeps root's rights, which the exporter needs.
        *(["user=root"] if os.geteuid() == 0 else []),
        "[unix_http_server]",
        f"file={_literal(str(control))}",
        "[rpcinterface:supervisor]",
        "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface",
    ]
    for name, command in commands.items():
        lines += [
            f"[program:{name}]",
            f"command={_literal(shlex.join(command))}",
            f"stdout_logfile=log/{name}.log",
            "stdout_logfile_maxbytes=1MB",
            "stdout_logfile_backups=1",
            "redirect_stderr=true",
        ]
    return "\n".join(lines) + "\n"


def _literal(text: str) -> str:
    return text.replace("%", "%%")


def _is_free(port: int) -> bool:
    """Return whether a server could listen on 127.0.0.1:`port` now."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _user(port: int) -> str:
    """Return " by ..." for the process that listens on `port`, or nothing if the kernel does not show it to us."""
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.pid and connection.laddr[1:] == (port,):
                return f" by {_describe(psutil.Process(connection.pid))}"
    return ""


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.name()} (pid {process.pid}, user {process.username()})"
    except psutil.Error:
        return f"pid {process.pid}"


def _end(processes: list[psutil.Process], dependents: Sequence[psutil.Process] = ()) -> None:
    """Ask `processes` to end, wait for them and their `dependents`, and kill what is left then.

    Raises StackError if one belongs to another user.
    """
    for send in (psutil.Process.terminate, psutil.Process.kill):
        for process in processes:
            try:
                send(process)
            except psutil.NoSuchProcess:
                pass
            except psutil.AccessDenied as error:
                raise StackError(f"{_describe(process)} belongs to another user, who can stop it.") from error
        _, processes = psutil.wait_procs({*processes, *dependents}, timeout=STOP_SECONDS)
        if not processes:
            return


@contextlib.contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Keep a second, impatient Ctrl-C from leaving half a stack behind. Only the main thread may call it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_urls(stack: Stack) -> None:
    for name, url in stack.urls.items():
        print(f"  {_KNOWN[name].title:<20} {url}")
    _print_missing(stack)


def _print_missing(stack: Stack) -> None:
    if "grafana" not in stack.ports:
        print(f"  {OPTIONAL['grafana'].title:<20} {WITHOUT_GRAFANA}")


def _up(state: Path) -> int:
    if stack := Stack.running(state):
        print("The local stack already runs:" if stack.kept else "The stack of a demo runs here and ends with it:")
        if status := _status(state):
            print("`make down`, then `make up` starts it anew.")
        return status
    stack = Stack(state, ports_from(os.environ, *OPTIONAL))
    stack.start(keep=True)
    print("The local stack runs, and keeps running:")
    _print_urls(stack)
    print(f"Its logs are in {stack.state / 'log'}. `make down` stops it.")
    return 0


def _down(state: Path) -> int:
    stack = Stack.running(state) or Stack(state, {})
    print("The local stack is stopped." if stack.stop() else "The local stack does not run.")
    return 0


def _status(state: Path) -> int:
    if (stack := Stack.running(state)) is None:
        print("The local stack does not run; `make up` starts it.")
        return 3
    try:
        states = stack.states()
    except (OSError, RpcError) as error:
        raise StackError(f"supervisord does not answer: {error}") from error
    well = True
    for name, url in stack.urls.items():
        healthy = stack.healthy(name)
        well = well and healthy
        found = "healthy" if healthy else f"does not answer ({states.get(name, 'unknown').lower()})"
        print(f"  {_KNOWN[name].title:<20} {url:<24} {found}")
    _print_missing(stack)
    return 0 if well else 1


def main() -> int:
    """Run the command line; return the exit status."""
    commands: Mapping[str, Callable[[Path], int]] = {"up": _up, "down": _down, "status": _status}
    parser = argparse.ArgumentParser(description="Start, show or stop the local stack.")
    parser.add_argument("command", choices=commands)
    parser.add_argument("--state", type=Path, default=STATE, metavar="DIR", help="its directory, by default .stack")
    options = parser.parse_args()
    exit_on_sigterm()
    try:
        return commands[options.command](options.state)
    except StackError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"{error.filename or 'the local stack'}: {error.strerror or error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("Interrupted; nothing is left running.", file=sys.stderr)
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
