"""Runs a command as if nobody stood in between: its output, its signals and its exit status pass through unchanged."""

from __future__ import annotations

import fcntl
import os
import pty
import resource
import select
import signal
import sys
import termios
from collections.abc import Callable, Iterable, Sequence
from threading import Event, Thread
from typing import BinaryIO, NoReturn

__all__ = ["Command", "CommandError", "end_like", "hold_signals"]

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
HANDLED = {*FORWARDED, signal.SIGCHLD, signal.SIGWINCH}
CHUNK = 1 << 16
LINGER = 0.2
"""Seconds for which output is still awaited after the command's end: a child that it left may hold the pipe open."""


def hold_signals() -> set[int]:
    """Let signals wait until `Command.wait` asks for them, in this thread and all that it starts; return the old mask.

    A thread that did not hold them would take them from the command's hands.
    """
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED))


class CommandError(Exception):
    """The command could not be started; `status` is what a shell would exit with."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Command:
    """A running command whose standard output is copied to ours and to `keep`.

    Where our own standard output is a terminal the command gets a pseudo-terminal, else a pipe: so it buffers and
    prints just as it would without us. Standard input and standard error are ours, untouched.
    """

    def __init__(self, argv: Sequence[str], keep: BinaryIO, mask: Iterable[int]) -> None:
        """Start the command with the signal mask `mask`. Raises CommandError.

        The caller holds signals (`hold_signals`) since before it started any thread.
        """
        self._keep = keep
        self._closing = Event()
        self._pty = sys.stdout.isatty()
        sys.stdout.flush()
        self._read, write = pty.openpty() if self._pty else os.pipe()
        if self._pty:
            self._as_our_terminal(write)
        try:
            self.pid = os.posix_spawnp(
                argv[0],
                list(argv),
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_CLOSE, self._read)],
                setsigmask=mask,
                setsigdef=[signal.SIGPIPE],  # Python ignores it, and an ignored signal stays so over exec
            )
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            raise CommandError(f"{argv[0]}: {error.strerror}", 127 if missing else 126) from error
        finally:
            os.close(write)
        self._pump = Thread(target=self._copy, name="output", daemon=True)
        self._pump.start()

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
        """Copy the command's output until its end, or until nobody reads ours any more."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN | select.POLLHUP)
        while True:
            if not poll.poll(LINGER * 1000):
                if self._closing.is_set():
                    return
                continue
            try:
                data = os.read(self._read, CHUNK)
            except OSError:  # EIO: the last user of a pseudo-terminal has closed it
                return
            if not data:
                return
            try:
                self._keep.write(data)
                self._keep.flush()
            except OSError:
                pass  # a full disk must not stop the benchmark; what the command prints still comes through
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(1, view) :]
            except OSError:
                # Our reader has gone: the command learns it the same way, by its next write.
                os.close(self._read)
                self._read = -1
                return

    def wait(self, tick: Callable[[], None], interval: float) -> int:
        """Wait for the end and return the wait status; call `tick` every `interval` seconds meanwhile."""
        while True:
            info = signal.sigtimedwait(HANDLED, interval)
            if info is not None and info.si_signo == signal.SIGWINCH and self._pty:
                self._resize()
            elif info is not None and info.si_signo in FORWARDED and info.si_code <= 0:
                # The kernel sends a terminal's signals to the whole foreground group (si_code SI_KERNEL, above 0):
                # the command has had those already.
                os.kill(self.pid, info.si_signo)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            tick()
        self._closing.set()
        self._pump.join()
        if self._read >= 0:
            os.close(self._read)
        return status


def end_like(status: int) -> NoReturn:
    """End this process as the command ended: with its exit status, or by the same signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.waitstatus_to_exitcode(status))
