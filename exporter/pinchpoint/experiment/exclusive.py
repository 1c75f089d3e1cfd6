"""One experiment at a time: on a host, and on a Ceph cluster."""

from __future__ import annotations

import json
import shlex
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

from pinchpoint.experiment import shell
from pinchpoint.experiment.shell import ShellError
from pinchpoint.text import printable

__all__ = ["BusyError", "Exclusive", "cluster_of", "leave_cluster"]

HOST_LOCK = "\0pinchpoint-experiment"
"""Abstract Unix socket (unix(7)): there is one of a name, and it vanishes with its process."""
CLUSTER_PREFIX = "pinchpoint/experiment/"
"""Prefix of the keys in the monitors' config-key store: one for each experiment on the cluster."""
CEPH_SECONDS = 20.0
CREDENTIALS = struct.Struct("3i")
"""``struct ucred``: pid, uid and gid of a peer (SO_PEERCRED, unix(7))."""


class BusyError(Exception):
    """Another experiment is in progress; the message says whose, and what to do if it is dead."""


class Exclusive:
    """The only experiment on this host; `enter_cluster` makes it the only one on a Ceph cluster too."""

    def __init__(self) -> None:
        """Begin. Raises BusyError."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.bind(HOST_LOCK)
            self._socket.listen()
        except OSError as error:
            self._socket.close()
            raise BusyError(f"another experiment runs on this host{_holder()}: wait for its end") from error
        self._experiment = ""

    def enter_cluster(self, experiment: str, about: dict[str, Any], warn: Callable[[str], None]) -> None:
        """Be the only experiment on the Ceph cluster. Raises BusyError.

        Each writes a key of its own, then looks for others: of two that begin at once at least one ends. A cluster that
        does not allow keys only gets a warning.
        """
        try:
            _ceph(f"config-key set {shlex.quote(CLUSTER_PREFIX + experiment)} {shlex.quote(json.dumps(about))}")
            self._experiment = experiment
            keys = json.loads(_ceph("config-key ls --format json"))
        except (ShellError, ValueError) as error:
            warn(f"experiments that other hosts run on the cluster cannot be seen: {error}")
            return
        others = [key for key in keys if isinstance(key, str) and key.startswith(CLUSTER_PREFIX)]
        others = [key for key in others if key != CLUSTER_PREFIX + experiment]
        if others:
            raise BusyError(
                f"another experiment runs on this cluster: {printable(others[0].removeprefix(CLUSTER_PREFIX))} "
                f"({_about(others[0])}). If it is dead, restore its knob there with `pinchpoint experiment restore`, "
                f"which also removes its key; if that host is lost: `ceph config-key rm {printable(others[0])}`"
            )

    def close(self, warn: Callable[[str], None], *, restored: bool = True) -> None:
        """Let others begin; on the cluster only if the knob was restored, as they would take it for the usual value."""
        self._socket.close()
        if self._experiment and restored:
            if not leave_cluster(self._experiment):
                key = printable(CLUSTER_PREFIX + self._experiment)
                warn(f"the cluster cannot be reached and still keeps others out: `ceph config-key rm {key}`")
            self._experiment = ""


def cluster_of() -> str | None:
    """Return the fsid of the Ceph cluster that the command `ceph` finds; None if there is none."""
    try:
        return _ceph("fsid") or None
    except ShellError:
        return None


def leave_cluster(experiment: str, environment: Mapping[str, str] | None = None) -> bool:
    """Remove the key of an experiment from the cluster; return whether that could be reached."""
    try:
        _ceph(f"config-key rm {shlex.quote(CLUSTER_PREFIX + experiment)}", environment)
    except ShellError:
        return False
    return True


def _ceph(arguments: str, environment: Mapping[str, str] | None = None) -> str:
    return shell.run(f"exec ceph {arguments}", seconds=CEPH_SECONDS, environment=environment)


def _about(key: str) -> str:
    try:
        about = json.loads(_ceph(f"config-key get {shlex.quote(key)}"))
        return printable(", ".join(f"{name} {value}" for name, value in about.items()))
    except (ShellError, ValueError, AttributeError):
        return "no details"


def _holder() -> str:
    """Return in words which process has the host's lock."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as peer:
        try:
            peer.connect(HOST_LOCK)
            pid, uid, _ = CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
        except OSError:
            return ""
    return f", process {pid} of user {uid}"
