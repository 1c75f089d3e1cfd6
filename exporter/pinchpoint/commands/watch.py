"""``pinchpoint watch``: what is busy on this host or on others, live or as plain text."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import click

from pinchpoint.build import LocalSource, local_sampler
from pinchpoint.clock import STEADY
from pinchpoint.commands.chain import show as show_chains
from pinchpoint.commands.options import NumberRange, http_config_option, load_access, prometheus_option, targets_option
from pinchpoint.commands.stacks import show as show_stacks
from pinchpoint.config import Config, ConfigError, load_config
from pinchpoint.diagnosis.recent import MIN_WINDOW_SECONDS, Recent, RecentVerdicts
from pinchpoint.diagnosis.usage import Usage
from pinchpoint.judge.client import JudgeError, ask
from pinchpoint.terminal.plain import fail
from pinchpoint.terminal.screen import Bell, is_screen, show_live, show_plain, status_of
from pinchpoint.terminal.view import Down, HostView, Picture
from pinchpoint.wire.fetch import Fetcher
from pinchpoint.wire.poller import Poller
from pinchpoint.wire.sources import Demand, PrometheusSource, Source, SourceError, TargetSource

if TYPE_CHECKING:
    from pinchpoint.wire.http_config import HttpAccess

__all__ = ["command"]

PORT = 9748
MIN_INTERVAL_SECONDS = 0.1
"""Shortest interval in seconds."""
SCRAPE_TIMEOUT_SECONDS = 2.0
"""Seconds after which a silent target counts as down."""
MAX_SOURCE_OVERDUE_SECONDS = 2 * SCRAPE_TIMEOUT_SECONDS
"""Seconds beyond its interval after which a source without a timeout (a name lookup) counts as down."""


class WatchedJudge:
    """A judge, queried every `interval` seconds in a separate thread."""

    def __init__(self, url: str, interval: float, changed: Bell, access: HttpAccess | None) -> None:
        self._url = url if "://" in url else f"{'http' if access is None else access.scheme}://{url}"
        self._interval = interval
        self._changed = changed
        self._stop = Event()
        self._picture = Picture([HostView(url, "judge", None)])
        self._fetcher = Fetcher(SCRAPE_TIMEOUT_SECONDS, access)
        self.answered = False
        """Whether its last answer was valid."""

    def start(self) -> None:
        """Begin to query."""
        Thread(target=self._run, name="watch", daemon=True).start()

    def stop(self) -> None:
        """End querying."""
        self._stop.set()

    def picture(self) -> Picture:
        """Return the judge's last answer, or that it does not answer."""
        return self._picture

    def pictures(self, *, once: bool) -> Iterator[tuple[str, Picture]]:
        """Yield each of its answers, or one."""
        while True:
            self.ask()
            yield "", self._picture
            if once or self._stop.wait(self._interval):
                return

    def _run(self) -> None:
        while not self._stop.is_set():
            self.ask()
            self._changed.ring()
            self._stop.wait(self._interval)

    def ask(self) -> None:
        """Query once."""
        try:
            verdicts = ask(self._fetcher, self._url)
        except JudgeError as error:
            self.answered = False
            self._picture = Picture([HostView(self._url, "judge", Down(str(error), 0.0))])
        else:
            self.answered = True
            self._picture = Picture([], verdicts)


class Watched:
    """One source, queried every `interval` seconds, and what is known about its hosts."""

    def __init__(self, source: Source, note: str, interval: float, changed: Bell) -> None:
        self._name = source.name
        self._note = note
        self._patience = interval + MAX_SOURCE_OVERDUE_SECONDS
        self._poller = Poller(source, interval, ring=changed.ring)
        self._recent: dict[str, Recent] = {}
        self._down: dict[str, Down] = {}
        self._rounds = 0
        self.pictures = 0
        """How often it has given something new."""

    def stop(self) -> None:
        """End querying, and release the source."""
        self._poller.close()

    @property
    def hangs(self) -> bool:
        """Whether it takes longer than any timeout of ours."""
        return self._poller.waited > self._patience

    def look(self) -> None:
        """Take in new answers."""
        rounds = self._poller.rounds
        for host, snapshot in self._poller.collect().items():
            self._recent.setdefault(host, Recent()).add(snapshot)
        now = STEADY.now()
        problems = self._poller.problems(self._patience)
        self._down = {host: Down(problem.reason, max(0.0, now - problem.since)) for host, problem in problems.items()}
        for host in self._down.keys() & self._recent.keys():
            self._recent[host].clear()
        if rounds != self._rounds and (self._down or any(recent.usage() for recent in self._recent.values())):
            self.pictures += 1
        self._rounds = rounds

    def views(self) -> list[HostView]:
        """Return what is known about its hosts."""
        hosts = dict.fromkeys([*self._recent, *self._down]) or {self._name: None}
        return [HostView(host, self._note, self._state(host)) for host in hosts]

    def recent(self) -> dict[str, Recent]:
        """Return the snapshots of the hosts that answer."""
        return {host: recent for host, recent in self._recent.items() if isinstance(self._state(host), Usage)}

    def _state(self, host: str) -> Usage | Down | None:
        if host in self._down:
            return self._down[host]
        return self._recent[host].usage() if host in self._recent else None


def _picture(watched: Sequence[Watched], verdicts: RecentVerdicts, demand: Demand) -> Picture:
    for source in watched:
        source.look()
    hosts = {host: recent for source in watched for host, recent in source.recent().items()}
    found = verdicts.take(time.monotonic(), hosts)
    demand.full = bool(found)
    return Picture([view for source in watched for view in source.views()], found)


def _wait_for_all(watched: Sequence[Watched], bell: Bell, deadline: float) -> None:
    """Wait until each source that does not hang has a new picture, or until `deadline`, in monotonic seconds."""
    before = [host.pictures for host in watched]
    while (now := time.monotonic()) < deadline:
        for host in watched:
            host.look()
        new = [host.pictures > count for host, count in zip(watched, before, strict=True)]
        if any(new) and all(done or host.hangs for host, done in zip(watched, new, strict=True)):
            return
        bell.wait(deadline - now)


def _pictures(
    watched: Sequence[Watched], picture_of: Callable[[], Picture], bell: Bell, interval: float, *, once: bool
) -> Iterator[tuple[str, Picture]]:
    """Yield the hosts each time there is something new from all, or once, when running benchmarks can be judged."""
    # The first picture needs two samples.
    deadline = time.monotonic() + 2 * interval + MAX_SOURCE_OVERDUE_SECONDS
    judged = deadline + MIN_WINDOW_SECONDS
    while True:
        _wait_for_all(watched, bell, deadline)
        picture = picture_of()
        if not once or _is_judged(picture) or time.monotonic() > judged:
            yield "", picture
            if once:
                return
        deadline = time.monotonic() + interval + MAX_SOURCE_OVERDUE_SECONDS


def _is_judged(picture: Picture) -> bool:
    """Return whether there is a verdict, or no benchmark to judge."""
    uses = [host.state for host in picture.hosts if isinstance(host.state, Usage)]
    return bool(picture.verdicts) or not any(sum(work.waits.values()) for use in uses for work in use.workloads)


def _sources(
    targets: Sequence[str], prometheus: str | None, config: Config, access: HttpAccess | None, demand: Demand
) -> list[tuple[Source, str]]:
    """Return what to watch and how: what was named, else an exporter here, else this host."""
    named: list[tuple[Source, str]] = [
        (TargetSource(target, SCRAPE_TIMEOUT_SECONDS, access=access, demand=demand), "exporter") for target in targets
    ]
    if prometheus is not None:
        others = set(targets)
        source = PrometheusSource(prometheus, others.__contains__, SCRAPE_TIMEOUT_SECONDS, access=access)
        named.append((source, "by Prometheus"))
    if named:
        return named
    exporter = TargetSource(f"127.0.0.1:{PORT}", SCRAPE_TIMEOUT_SECONDS, access=access)
    try:
        if any(name.startswith("pinchpoint_") for name in exporter.snapshot().values):
            return [(exporter, "exporter")]
    except SourceError:
        pass
    sampled = LocalSource(local_sampler(config))
    sampled.name = socket.gethostname()
    return [(sampled, "sampled here")]


def _show_judge(url: str, interval: float, access: HttpAccess | None, *, once: bool) -> int:
    bell = Bell()
    judge = WatchedJudge(url, interval, bell, access)
    if not is_screen() or once:
        status = status_of(lambda: show_plain(judge.pictures(once=once)))
        return status or int(once and not judge.answered)
    judge.start()
    try:
        return status_of(lambda: show_live(judge.picture, lambda: f"q quits; said by {url}", bell, max(1.0, interval)))
    finally:
        judge.stop()


@click.command()
@targets_option("Exporters to watch; may be repeated. Without it: the exporter of this host, or this host itself.")
@prometheus_option("Prometheus server whose hosts to watch, at its scrape interval.")
@click.option(
    "--interval",
    type=NumberRange(MIN_INTERVAL_SECONDS, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two updates.",
)
@click.option("--judge", "judge_url", metavar="URL", help="Judge whose verdicts on all runs are shown.")
@http_config_option
@click.option("--stacks", is_flag=True, help="List the kernel stacks in which benchmarks on this host wait.")
@click.option("--chain", is_flag=True, help="List who makes the threads of benchmarks on this host wait.")
@click.option("--once", is_flag=True, help="Print one screen as plain text; exit status 1 if every target was down.")
@click.option(
    "--config.file",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file, used when this command samples this host itself.",
)
@click.pass_context
def command(
    ctx: click.Context,
    targets: list[str],
    prometheus: str | None,
    interval: float,
    judge_url: str | None,
    http_config: Path | None,
    stacks: bool,
    chain: bool,
    once: bool,
    config_file: Path | None,
) -> None:
    """Show live what is busy on this host or on others, or a judge's verdicts on all runs."""
    access = load_access(http_config)
    if judge_url is not None:
        if targets or prometheus or stacks or chain:
            raise click.UsageError(
                "--judge knows its hosts itself: leave out --target, --prometheus, --stacks and --chain"
            )
        ctx.exit(_show_judge(judge_url, interval, access, once=once))
    if stacks and chain:
        raise click.UsageError("--stacks and --chain are two listings: leave out one")
    if (stacks or chain) and (targets or prometheus):
        raise click.UsageError(
            f"--{'stacks' if stacks else 'chain'} reads this host's own processes: run it there, without --target and "
            "--prometheus"
        )
    demand = Demand()
    try:
        if stacks or chain:
            show = show_stacks if stacks else show_chains
            ctx.exit(show(load_config(config_file), interval, once=once))
        sources = _sources(targets, prometheus, load_config(config_file), access, demand)
    except ConfigError as error:
        fail(str(error), 2)
    bell = Bell()
    watched = [Watched(source, note, interval, bell) for source, note in sources]
    picture_of = partial(_picture, watched, RecentVerdicts(), demand)
    try:
        if is_screen() and not once:
            # Log lines of a sampler in this process would spoil the picture, which names blind probes itself.
            logging.getLogger("pinchpoint").addHandler(logging.NullHandler())
            footer = f"q quits; drawn every {interval:g} s, over the last {max(interval, MIN_WINDOW_SECONDS):g} s"
            # The age of hosts that are down grows even without new data.
            pause = max(1.0, interval)
            status = status_of(lambda: show_live(picture_of, lambda: footer, bell, pause))
        else:
            status = status_of(lambda: show_plain(_pictures(watched, picture_of, bell, interval, once=once)))
            up = any(isinstance(view.state, Usage) for view in picture_of().hosts)
            status = status or int(once and not up)
    finally:
        for host in watched:
            host.stop()
    ctx.exit(status)
