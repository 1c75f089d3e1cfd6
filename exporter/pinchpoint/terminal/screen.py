"""A picture of hosts that is redrawn continuously: on the whole screen with keys, or as plain text."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from rich.console import Console
from rich.live import Live

from pinchpoint.terminal.view import Picture, View

__all__ = ["Bell", "is_screen", "show_live", "show_plain", "status_of"]

PLAIN_COLUMNS = 80
QUIT = b"qQ\x03\x04"
"""Keys that end the live view: q, and Ctrl-C and Ctrl-D where they come as keys."""


class Bell:
    """A file descriptor by which threads and signals wake the main loop."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        os.set_blocking(self._write_end, False)

    def ring(self) -> None:
        """Make it readable."""
        with suppress(BlockingIOError):  # it is full: it rings already
            os.write(self._write_end, b".")

    def wait(self, timeout: float, *also: int) -> set[int]:
        """Wait for the bell, for one of `also`, or for `timeout` seconds; return what is readable of `also`."""
        ready, _, _ = select.select([self.read_end, *also], [], [], max(0.0, timeout))
        with suppress(BlockingIOError):
            os.read(self.read_end, 4096)
        return set(ready) - {self.read_end}


class _Signals:
    """What signals have requested; as a context, it catches them."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self.end: int | None = None
        """The signal that asked for the end."""
        self.suspend = False

    def _caught(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTSTP:
            self.suspend = True
        elif number != signal.SIGWINCH:
            self.end = number
        self._bell.ring()

    @contextmanager
    def caught(self, *numbers: int) -> Iterator[None]:
        """Catch the signals meanwhile."""
        before = {number: signal.signal(number, self._caught) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _keys() -> Iterator[tuple[int, ...]]:
    """Give the descriptor from which single keys can be read, if there is a keyboard; restore it at the end."""
    try:
        keyboard = sys.stdin.fileno()
        before = termios.tcgetattr(keyboard)
    except (OSError, ValueError, termios.error):
        yield ()
        return
    tty.setcbreak(keyboard)
    try:
        yield (keyboard,)
    finally:
        with suppress(termios.error):  # the terminal may have gone
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def is_screen() -> bool:
    """Return whether standard output is a terminal on which a picture can be redrawn in place."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _ignore(key: bytes) -> None:
    pass


def show_live(
    picture: Callable[[], Picture],
    footer: Callable[[], str],
    bell: Bell,
    interval: float,
    *,
    press: Callable[[bytes], None] = _ignore,
) -> int | None:
    """Show a picture on the whole screen until a key or signal ends it; return the signal, or None.

    It is drawn when the bell rings, when a key was pressed (passed to `press`), and every `interval` seconds.
    """
    console = Console(highlight=False)
    signals = _Signals(bell)
    with signals.caught(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH, signal.SIGTSTP):
        while True:
            with _keys() as keyboard, Live(console=console, screen=True, auto_refresh=False) as live:
                while not signals.suspend and signals.end is None:
                    live.update(View(picture(), console.height, footer()), refresh=True)
                    for key in bell.wait(interval, *keyboard):
                        pressed = os.read(key, 64)
                        if not pressed or any(byte in QUIT for byte in pressed):
                            return None
                        press(pressed)
            if signals.end is not None:
                return signals.end
            # The screen is restored: now stop for real, and continue here when the shell resumes us.
            signals.suspend = False
            os.kill(os.getpid(), signal.SIGSTOP)


def show_plain(pictures: Iterator[tuple[str, Picture]]) -> None:
    """Print pictures one after another, each below its title where it has one."""
    # Not sys.stdout's own errors: a name may hold what the terminal's encoding lacks.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    console = Console(width=PLAIN_COLUMNS, color_system=None, force_terminal=False, highlight=False)
    for number, (title, picture) in enumerate(pictures):
        if number:
            console.print()
        if title:
            console.print(title, markup=False)
        console.print(View(picture))
        sys.stdout.flush()


def status_of(show: Callable[[], int | None]) -> int:
    """Return the exit status of a command that shows pictures until `show` returns: the signal that ended it, or None.

    A keyboard interrupt is the normal way to end it, not a failure.
    """
    try:
        ended_by = show()
    except KeyboardInterrupt:
        return 0
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return 128 + signal.SIGHUP  # the terminal has gone, and nothing can be written any more
    return 128 + ended_by if ended_by is not None and ended_by != signal.SIGINT else 0
