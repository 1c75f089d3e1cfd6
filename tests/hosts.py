"""PID namespaces as hosts: an exporter in one sees the processes of its host alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Thread

from polling import until

__all__ = ["another_host", "remote_shell"]

ALONE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sleep", "infinity")
SHELL = """\
#!{python} -ES
import os, socket, sys
words = sys.argv[1:]
while words[0].startswith("-"):
    del words[0]
os.chdir({place!r})
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({name!r})
    socket.send_fds(asked, [" ".join(words).encode()], [0, 1, 2])
    sys.exit(int(asked.recv(8) or b"255"))
"""
"""What is called as ``ssh [OPTIONS] HOST COMMAND...``."""


@contextmanager
def another_host(*within: str) -> Iterator[Sequence[str]]:
    """Make a host; give what has to stand before a command so that it runs there.

    `within` runs a command in other namespaces, such as ``ip netns exec NAME``; the host has those too. All of its
    processes end with it.
    """
    with subprocess.Popen([*within, *ALONE]) as unshare:
        children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
        try:
            first = until(10, lambda: children.read_text().strip())
            yield ("nsenter", f"--target={first}", "--pid", "--mount", "--net")
        finally:
            unshare.kill()


@contextmanager
def remote_shell(place: Path, hosts: Mapping[str, Sequence[str]]) -> Iterator[Path]:
    """Make a program that runs commands on these hosts, as ssh does, for those who call it on one of them.

    It is made in the directory `place`. The hosts are those of `another_host`, by name: a process of one cannot enter
    another (pidns_install, kernel/pid_namespace.c), so this process does it for them.
    """
    name, shell = "shell.socket", place / "shell"
    shell.write_text(SHELL.format(python=sys.executable, place=str(place), name=name))
    shell.chmod(0o755)
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        # The whole path may be longer than a socket's may be, unix(7).
        directory = os.open(place, os.O_PATH)
        listening.bind(f"/proc/self/fd/{directory}/{name}")
        os.close(directory)
        listening.listen()
        thread = Thread(target=_serve, args=(listening, hosts))
        thread.start()
        try:
            yield shell
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listening: socket.socket, hosts: Mapping[str, Sequence[str]]) -> None:
    with ExitStack() as stack:
        while True:
            try:
                asked, _ = listening.accept()
            except OSError:
                return
            command, streams, *_ = socket.recv_fds(asked, 65536, 3)
            host, _, line = command.decode().partition(" ")
            stdin, stdout, stderr = streams
            process = subprocess.Popen([*hosts[host], "sh", "-c", line], stdin=stdin, stdout=stdout, stderr=stderr)
            for descriptor in streams:
                os.close(descriptor)
            waits = Thread(target=_tell, args=(asked, process))
            waits.start()
            stack.callback(waits.join)
            stack.callback(process.kill)


def _tell(asked: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Tell the caller how its command ended."""
    with asked:
        asked.sendall(str(process.wait() % 256).encode())
