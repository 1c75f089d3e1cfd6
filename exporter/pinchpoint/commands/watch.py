"""``pinchpoint watch``: what is busy on this host or on others, live or as plain text."""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import select
import signal
import socket
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock, Thread
from types import FrameType

import click
from rich.console import Console
from rich.live import Live

from pinchpoint.build import local_sampler
from pinchpoint.config import Config, ConfigError, load_config
from pinchpoint.diagnosis.usage import Usage, usage
from pinchpoint.model import Snapshot
from pinchpoint.sources import LocalSource, Source, SourceError, TargetSource
from pinchpoint.terminal.view import Down, HostView, View
from pinchpoint.web import AddressError, parse_address

__all__ = ["command"]

PORT = 9748
FASTEST = 0.1
"""Shortest interval in seconds."""
WINDOW = 2.0
"""Seconds that a picture covers at least: some probes sample once a second only."""
PLAIN_WIDTH = 80
SCRAPE_TIMEOUT = 2.0
"""Seconds after which a target that is silent counts as down."""
QUIT = b"qQ\x03\x04"
"""Keys that end the live view: q, and Ctrl-C and Ctrl-D where they come as keys."""


class Watched:
    """One host, asked every `interval` seconds in a thread of its own, so that a slow one holds up nobody else."""

    def __init__(self, source: Source, note: str, interval: float, changed: _Bell) -> None:
        self._source = source
        self._note = note
        self._interval = interval
        self._changed = changed
        self._stop = Event()
        self._lock = Lock()
        self._state: Usage | Down | None = None
        self._asked = time.monotonic()
        self._down_since: float | None = None
        self._cost: float | None = None
        self.pictures = 0
        """How often its state was replaced."""
        # The look-up of a name may take as long as it likes: the process must not wait.
        self._thread = Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """End asking, and release the source."""
        self._stop.set()
        self._source.close()

    def hangs(self, now: float) -> bool:
        """Return whether the host answers more slowly than any timeout of ours can see; `now` in monotonic seconds."""
        return now - self._asked > self._interval + 2 * SCRAPE_TIMEOUT

    def view(self, now: float) -> HostView:
        """Return what is known of the host at `now`, in monotonic seconds."""
        with self._lock:
            state = self._state
            if self.hangs(now):
                state = Down("no answer", now - self._asked)
            elif isinstance(state, Down) and self._down_since is not None:
                state = Down(state.reason, now - self._down_since)
        return HostView(self._source.name, self._note, state)

    def _run(self) -> None:
        history: deque[Snapshot] = deque()
        due = time.monotonic()
        while not self._stop.is_set():
            with self._lock:
                self._asked = time.monotonic()
            self._replace(self._ask(history))
            due = max(due + self._interval, time.monotonic())
            self._stop.wait(due - time.monotonic())

    def _ask(self, history: deque[Snapshot]) -> Usage | Down | None:
        try:
            snapshot = self._source.snapshot()
        except SourceError as error:
            reason = str(error).removeprefix(f"{self._source.name}: ").removesuffix(": ")
            reason = re.sub(r"\[Errno -?\d+\] ", "", reason)
        except Exception as error:  # whatever a foreign server makes a parser do, the others go on
            reason = f"not an exposition of metrics: {type(error).__name__}: {error}"
        else:
            if any(name.startswith("pinchpoint_") for name in snapshot.values):
                if history and snapshot.time <= history[-1].time:
                    history.clear()  # the clock was set back: nothing that came before can be compared
                history.append(snapshot)
                while len(history) > 2 and snapshot.time - history[1].time >= WINDOW:
                    history.popleft()
                return self._picture(history) if len(history) > 1 else None
            reason = "answers, but has no metrics of Pinchpoint: is this its exporter?"
        history.clear()
        return Down(reason, 0.0)

    def _picture(self, history: deque[Snapshot]) -> Usage:
        use = usage(history[0], history[-1])
        if use.own.cpu is None:
            # An exporter reads its own cost more rarely than we look: what it last was stays in sight.
            return replace(use, own=replace(use.own, cpu=self._cost))
        self._cost = use.own.cpu
        return use

    def _replace(self, state: Usage | Down | None) -> None:
        with self._lock:
            self._state = state
            if not isinstance(state, Down):
                self._down_since = None
            elif self._down_since is None:
                self._down_since = self._asked
            if state is not None:
                self.pictures += 1
        self._changed.ring()


class _Bell:
    """A file descriptor that becomes readable when a thread or a signal has something to say to the main loop."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        os.set_blocking(self._write_end, False)

    def ring(self) -> None:
        with suppress(BlockingIOError):  # it is full: it rings already
            os.write(self._write_end, b".")

    def wait(self, timeout: float, *also: int) -> set[int]:
        """Wait for the bell, for one of `also`, or for `timeout` seconds; return what is readable of `also`."""
        ready, _, _ = select.select([self.read_end, *also], [], [], max(0.0, timeout))
        with suppress(BlockingIOError):
            os.read(self.read_end, 4096)
        return set(ready) - {self.read_end}


class _Signals:
    """What signals have asked for; as a context, it catches them."""

    def __init__(self, bell: _Bell) -> None:
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
    """Give the descriptor that keys can be read from one by one, if there is a keyboard; restore it at the end."""
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


def _live(watched: Sequence[Watched], bell: _Bell, interval: float) -> int | None:
    """Show the hosts on the whole screen until somebody ends it; return the signal that did, or None."""
    console = Console(highlight=False)
    footer = f"q quits; drawn every {interval:g} s, over the last {max(interval, WINDOW):g} s"
    signals = _Signals(bell)
    with signals.caught(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH, signal.SIGTSTP):
        while True:
            with _keys() as keyboard, Live(console=console, screen=True, auto_refresh=False) as live:
                while not signals.suspend and signals.end is None:
                    now = time.monotonic()
                    hosts = [host.view(now) for host in watched]
                    live.update(View(hosts, console.height, footer), refresh=True)
                    # The age of what is down grows also when nothing new comes.
                    for key in bell.wait(max(1.0, interval), *keyboard):
                        pressed = os.read(key, 64)
                        if not pressed or any(byte in QUIT for byte in pressed):
                            return None
            if signals.end is not None:
                return signals.end
            # The screen is as it was before: now stop for real, and go on here when the shell says so.
            signals.suspend = False
            os.kill(os.getpid(), signal.SIGSTOP)


def _wait_for_all(watched: Sequence[Watched], bell: _Bell, deadline: float) -> None:
    """Wait until there is a new picture of every host that does not hang, or until `deadline`, in monotonic seconds."""
    before = [host.pictures for host in watched]
    while (now := time.monotonic()) < deadline:
        new = [host.pictures > count for host, count in zip(watched, before, strict=True)]
        if any(new) and all(done or host.hangs(now) for host, done in zip(watched, new, strict=True)):
            return
        bell.wait(deadline - now)


def _plain(watched: Sequence[Watched], bell: _Bell, interval: float, *, once: bool) -> bool:
    """Print pictures one after another, or one; return whether any host of the last one was up."""
    # Not sys.stdout's own errors: a name may hold what the terminal's encoding lacks.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    console = Console(width=PLAIN_WIDTH, color_system=None, force_terminal=False, highlight=False)
    first = True
    while True:
        # The first picture takes two samples.
        deadline = time.monotonic() + interval * (2 if first else 1) + 2 * SCRAPE_TIMEOUT
        _wait_for_all(watched, bell, deadline)
        now = time.monotonic()
        views = [host.view(now) for host in watched]
        if not first:
            console.print()
        console.print(View(views))
        sys.stdout.flush()
        first = False
        if once:
            return any(isinstance(view.state, Usage) for view in views)


def _sources(targets: Sequence[str], config: Config) -> list[tuple[Source, str]]:
    """Return what to watch, each with how it is watched: the targets, else an exporter here, else this host itself."""
    if targets:
        return [(TargetSource(target, SCRAPE_TIMEOUT), "exporter") for target in targets]
    exporter = TargetSource(f"127.0.0.1:{PORT}", SCRAPE_TIMEOUT)
    try:
        if any(name.startswith("pinchpoint_") for name in exporter.snapshot().values):
            return [(exporter, "exporter")]
    except SourceError:
        pass
    source = LocalSource(local_sampler(config))
    source.name = socket.gethostname()
    return [(source, "sampled here")]


def _targets(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str]:
    """Return every target of the option once, in order."""
    found: dict[str, None] = {}
    for value in values:
        for target in value.split(","):
            if not (target := target.strip()):
                raise click.BadParameter(f"{value!r} has an empty target", ctx, param)
            if "://" in target:
                if not target.startswith(("http://", "https://")):
                    raise click.BadParameter(f"{target!r}: only http and https can be watched", ctx, param)
            else:
                try:
                    host, _ = parse_address(target)
                except AddressError as error:
                    raise click.BadParameter(str(error), ctx, param) from error
                if not host:
                    raise click.BadParameter(f"{target!r} names no host", ctx, param)
            found[target] = None
    return list(found)


def _seconds(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise click.BadParameter("is not a number", ctx, param)
    return value


@click.command()
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="HOST:PORT[,HOST:PORT...]",
    callback=_targets,
    help="Exporters to watch; may be repeated. Without it: the exporter of this host, or this host itself.",
)
@click.option(
    "--interval",
    type=click.FloatRange(FASTEST, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    callback=_seconds,
    help="Time between two pictures.",
)
@click.option("--once", is_flag=True, help="Print one picture as plain text; status 1 if every target was down.")
@click.option(
    "--config.file",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration for when this host is sampled by this command itself.",
)
@click.pass_context
def command(ctx: click.Context, targets: list[str], interval: float, once: bool, config_file: Path | None) -> None:
    """Show live what is busy on this host or on others."""
    try:
        sources = _sources(targets, load_config(config_file))
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    bell = _Bell()
    live = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not once
    watched = [Watched(source, note, interval, bell) for source, note in sources]
    for host in watched:
        host.start()
    try:
        if live:
            # What a sampler in this process logs would be written across the picture, which names blind probes itself.
            logging.getLogger("pinchpoint").addHandler(logging.NullHandler())
            ended_by = _live(watched, bell, interval)
            status = 128 + ended_by if ended_by is not None and ended_by != signal.SIGINT else 0
        else:
            status = 0 if _plain(watched, bell, interval, once=once) else 1
    except KeyboardInterrupt:
        status = 0
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        status = 128 + signal.SIGHUP  # the terminal has gone, and nothing can be written any more
    finally:
        for host in watched:
            host.stop()
    ctx.exit(status)
