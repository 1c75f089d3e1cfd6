"""Runs a command transparently: its output, its signals and its exit status pass through unchanged."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import resource
import select
import shutil
import signal
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import BinaryIO, NoReturn

from pinchpoint.ending import flush_output, leave
from pinchpoint.host.exitstatus import STOPPING, signal_name
from pinchpoint.limits import LIMITS, reason

__all__ = ["Command", "CommandError", "end_like"]

FORWARDED = (*STOPPING, signal.SIGUSR1, signal.SIGUSR2)
HANDLED = {*FORWARDED, signal.SIGCHLD, signal.SIGWINCH}
FAILURE_STATUS = 1 << 8
"""Wait status of a process that exits with 1."""
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores from the start. Whether our caller ignored them too is unknown, but that is rare."""
NO_ROOM = (errno.EAGAIN, errno.ENOMEM)
"""Errors with which a host refuses another process (fork(2))."""
CHUNK_BYTES = 1 << 16
STOP_WITHIN_SECONDS = 60.0
"""Seconds within which a command that is asked to stop does so: a later end has another cause."""
OUTPUT_LINGER_SECONDS = 0.2
"""Seconds for which output is awaited after the command's end: a remaining child may hold the pipe open."""
MAX_LINGERING_BYTES = 1 << 20
"""Bytes that are read after the command's end, more than a pipe holds: a remaining child may print forever."""


class CommandError(Exception):
    """The command could not be started; `status` is what a shell would exit with."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Command:
    """A command whose standard output is copied to ours and to a file.

    If our standard output is a terminal the command gets a pseudo-terminal, else a pipe, so it buffers and prints as it
    would without us. Standard input and standard error are ours, untouched. If our standard output cannot be written (a
    full disk) the command continues, its output is still saved, and `failure` and `warnings` say so. If its output
    cannot be saved, it has our standard output itself.
    """

    pid: int
    failure = 0
    """Wait status to end with if the command's own is 0."""

    def __init__(self) -> None:
        """Record our initial state, so that the command inherits it. Raises OSError.

        Call this before anything starts threads, opens files that stay open or raises limits. From now on signals are
        blocked until `wait`, in this thread and all it starts: a thread without the block would take the command's
        signals.
        """
        self.warnings: list[str] = []
        self._asked = float("-inf")
        """When we were last asked to stop the command, in monotonic seconds."""
        self.stopped = False
        """Whether the command ended soon after we were asked to stop it."""
        self._closing = Event()
        self._pump: Thread | None = None
        """Copies the output; None if the command has our standard output."""
        self._left_open = False
        """Whether a process that the command left behind can still print."""
        self._buffer = bytearray(CHUNK_BYTES)
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        self._files = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._pty = os.isatty(1)
        # Made here for a low number: posix_spawn_file_actions_adddup2 (glibc) refuses one above the limit of files.
        self._read, self._write = pty.openpty() if self._pty else os.pipe()
        if self._pty:
            self._as_our_terminal(self._write)

    def asked_to_stop(self) -> int:
        """Return the signal that asked us to stop before there is a command; 0 if none did.

        A command that begins later does not get the one of a terminal (see `wait`).
        """
        pending = signal.sigpending().intersection(STOPPING)
        return next((number for number in sorted(pending) if signal.getsignal(number) is not signal.SIG_IGN), 0)

    def start(self, argv: Sequence[str], keep: BinaryIO | None, release: Callable[[], None] = lambda: None) -> None:
        """Start the command; its output is copied to `keep`, if there is such a file. Raises CommandError.

        `release` is called, once, if the host refuses another process: it ends what we can do without.
        """
        if not argv[0]:
            raise CommandError(f"'': {os.strerror(errno.ENOENT)}", 127)
        if keep is not None:
            self._start_pump(keep)
        try:
            try:
                self.pid = self._spawn(argv)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                release()
                self.pid = self._spawn(argv)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            raise CommandError(f"{argv[0]}: {error.strerror}", 127 if missing else 126) from error
        finally:
            os.close(self._write)
            if self._pump is None:
                os.close(self._read)
                self._read = -1

    def _start_pump(self, keep: BinaryIO) -> None:
        """Begin to copy output, before there is any: afterwards it would be too late to do without."""
        self._keep = keep
        pump = Thread(target=self._copy, name="output", daemon=True)
        try:
            pump.start()
        except LIMITS as error:
            self._warn(
                f"{keep.name}: {reason(error)}: the output is not saved, and phases that only it shows are missing"
            )
        else:
            self._pump = pump

    def _spawn(self, argv: Sequence[str]) -> int:
        try:
            return self._execute(argv)
        except OSError as error:
            if error.errno != errno.ENOEXEC or (script := _shell_script(argv[0])) is None:
                raise
            return self._execute(["/bin/sh", script, *argv[1:]])

    def _execute(self, argv: Sequence[str]) -> int:
        ours = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Open files stay open; a probe that opens one just now fails, and tries again at its next sample.
        resource.setrlimit(resource.RLIMIT_NOFILE, self._files)
        try:
            return os.posix_spawnp(
                argv[0],
                list(argv),
                os.environ,
                file_actions=[] if self._pump is None else [(os.POSIX_SPAWN_DUP2, self._write, 1)],
                setsigmask=self._mask,
                setsigdef=IGNORED,  # an ignored signal stays ignored across exec
            )
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, ours)

    def _as_our_terminal(self, descriptor: int) -> None:
        settings = termios.tcgetattr(descriptor)
        settings[1] &= ~termios.OPOST  # the real terminal does this, once
        termios.tcsetattr(descriptor, termios.TCSANOW, settings)
        self._resize()

    def _resize(self) -> None:
        try:
            size = fcntl.ioctl(1, termios.TIOCGWINSZ, b"\0" * 8)
            fcntl.ioctl(self._read, termios.TIOCSWINSZ, size)
        except OSError:
            pass

    def _copy(self) -> None:
        """Copy the command's output until its end, or until our reader has gone."""
        passing, last = True, MAX_LINGERING_BYTES
        poll = select.poll()
        poll.register(self._read, select.POLLIN | select.POLLHUP)
        while True:
            # Asked before: without a CPU, this thread may learn of the end long after it found no output.
            closing = self._closing.is_set()
            if not poll.poll(OUTPUT_LINGER_SECONDS * 1000):
                if closing:
                    self._left_open = passing
                    return
                continue
            try:
                # Into memory that is there: whoever ceases to read here would stop the command.
                data = memoryview(self._buffer)[: os.readv(self._read, [self._buffer])]
            except OSError:  # EIO: the last user of a pseudo-terminal has closed it
                return
            if not data:
                return
            try:
                _write(self._keep.fileno(), data)
            except OSError as error:  # the command's output still passes through
                self._warn(f"{self._keep.name}: {error.strerror}: it lacks a part of the output")
            if not passing:
                continue
            try:
                _write(1, data)
            except OSError as error:
                if error.errno == errno.EPIPE or (error.errno == errno.EIO and self._pty):
                    # Our reader has gone: the command notices at its next write.
                    os.close(self._read)
                    self._read = -1
                    return
                # A benchmark of hours must not end because of its log, but an incomplete log must be reported.
                passing = False
                self.failure = FAILURE_STATUS
                self._warn(f"standard output: {error.strerror}: the rest of the output is only in {self._keep.name}")
                continue
            if closing and (last := last - len(data)) < 0:
                self._left_open = True
                return

    def _warn(self, message: str) -> None:
        if message not in self.warnings:
            self.warnings.append(message)

    def wait(self) -> int:
        """Wait for the end and return the wait status."""
        while True:
            # Not forever: if our caller ignored SIGCHLD, it never comes.
            info = signal.sigtimedwait(HANDLED, 1.0)
            if info is not None and info.si_signo == signal.SIGWINCH and self._pty:
                if self._read >= 0:
                    self._resize()
            elif info is not None and info.si_signo in FORWARDED:
                # A signal that we, and so the command, ignore still arrives here because it is blocked.
                if info.si_signo in STOPPING and signal.getsignal(info.si_signo) is not signal.SIG_IGN:
                    self._asked = time.monotonic()
                # The kernel sends a terminal's signals to the whole foreground group (si_code SI_KERNEL, above 0):
                # the command has already received those.
                if info.si_code <= 0:
                    self._forward(info.si_signo)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
        self.stopped = time.monotonic() - self._asked <= STOP_WITHIN_SECONDS
        self._closing.set()
        if self._pump is not None:
            self._pump.join()
        if self._read >= 0:
            if self._left_open:
                self._pass_on()
            os.close(self._read)
        return status

    def _pass_on(self) -> None:
        """Have another process pass on what the processes print that the command left behind."""
        with suppress(OSError):  # without it they are stopped by SIGPIPE, as by a reader that has gone
            os.posix_spawnp(
                "cat",
                ["cat"],
                os.environ,
                # At the end of a pseudo-terminal, cat complains of EIO.
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, self._read, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setsigmask=self._mask,
                setsigdef=IGNORED,
            )
            self._warn("processes that the command left behind go on: what they print passes through, and is not saved")

    def _forward(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except OSError as error:  # it has another user's rights, as sudo has
            self._warn(f"the command did not get {signal_name(number)}: {error.strerror}")


def _shell_script(name: str) -> str | None:
    """Return the path of a script without ``#!``, None for a foreign binary. Raises OSError.

    execve(2) refuses both with ENOEXEC; shells run the first with sh, and, like bash, recognise it by the lack of NUL
    bytes.
    """
    path = shutil.which(name) or name
    with open(path, "rb") as file:
        return None if b"\0" in file.read(80) else path


def _write(descriptor: int, view: memoryview) -> None:
    """Write all of it, however long it takes, even to a non-blocking file. Raises OSError."""
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            room = select.poll()
            room.register(descriptor, select.POLLOUT)
            room.poll()


def end_like(status: int) -> NoReturn:
    """End this process like the command: with its exit status, or by the same signal."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        flush_output()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
        leave(128 + number)
    leave(os.waitstatus_to_exitcode(status))
