"""The demo on a real Ceph cluster: a small MDS cache, the alert, Ceph's own warning, the runbook's command, the end.

A benchmark creates files and keeps them open, so that it cannot release capabilities. Exits with 0 only if Pinchpoint's
alert came before Ceph's warning, and running the command that the alert names, unchanged, cleared both.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from demo import page, say, stack_for_demo, wait_for_scrape
from lab.account import told
from lab.cluster import Cluster, LabError, missing
from lab.loads import metadata, metadata_command
from lab.observer import Observer
from native import STATE, Stack, StackError, exit_on_sigterm

LIMIT = 8 << 20
"""Limit of the MDS cache in bytes, enough for about 2,000 open files. The default of 4 GiB holds about a million."""
BEFORE = 1_700
"""Files that are open before the benchmark begins: on any cluster in use the cache is nearly full."""
FILES, RAMP, RATE = 13_300, 1_900, 50
"""Files that the benchmark opens; the first so many at this rate per second, the others as fast as it can."""
EARLY, LATE, CHECK = "MdsCacheNearLimit", "MdsCacheOversized", "MDS_CACHE_OVERSIZED"
POLL_SECONDS = 0.5
STEP_SECONDS = 90.0
"""Longest wait for one step."""


class FailedError(Exception):
    """A step of the story did not happen."""


class Story:
    """Waits for one step after another, and prints when each happened."""

    def __init__(self, observer: Observer, cluster: Cluster) -> None:
        self._observer = observer
        self._cluster = cluster
        self._began = time.monotonic()
        self._seen: set[str] = set()

    def seconds(self) -> float:
        """Return the seconds since the load began."""
        return time.monotonic() - self._began

    def wait(self, what: str, happened: Callable[[], Any]) -> Any:
        """Return the first true answer of `happened`; meanwhile print what else is new. Raises FailedError."""
        deadline = time.monotonic() + STEP_SECONDS
        while not (answer := happened()):
            if time.monotonic() > deadline:
                raise FailedError(f"{what}: not in {STEP_SECONDS:.0f} s")
            self._look()
            time.sleep(POLL_SECONDS)
        self._look()
        return answer

    def alert(self, name: str) -> dict[str, Any] | None:
        """Return the alert if Alertmanager has it."""
        return next(iter(self._observer.alerts(alertname=name)), None)

    def warned(self) -> bool:
        """Return whether Ceph warns about the cache."""
        return CHECK in self._cluster.health()

    def tell(self, text: str) -> None:
        """Print a line with the time."""
        say(f"{self.seconds():3.0f} s  {text}")

    def _look(self) -> None:
        """Print which alerts and health checks have come and gone since the last look."""
        now = {f"Ceph warns: {check}" for check in self._cluster.health()}
        now |= {
            f"{alert['labels']['alertname']} received by Alertmanager" for alert in self._observer.alerts(layer="mds")
        }
        for text in sorted(now - self._seen):
            self.tell(text)
        for text in sorted(self._seen - now):
            self.tell(f"{text.removeprefix('Ceph warns: ').removesuffix(' received by Alertmanager')} is gone")
        self._seen = now


def run(stack: Stack, cluster: Cluster) -> None:
    """Run the story on a running stack and cluster. Raises FailedError, LabError."""
    wait_for_scrape(stack)
    observer = Observer(stack)
    observer.watch(cluster)
    cluster.command("config set", who="mds", name="mds_cache_memory_limit", value=str(LIMIT))
    say(f"alerts   {page(stack.urls['prometheus'], 'alerts')}")
    say(f"cluster  CEPH_CONF={cluster.conf} ceph -s")
    say(
        f"an MDS cache of {LIMIT >> 20} MiB with {BEFORE:,} open files; a benchmark opens {FILES:,} more and keeps them"
    )
    with metadata(cluster, "hold", files=BEFORE).wait_ready(), _workload(stack, cluster):
        story = Story(observer, cluster)
        story.wait(EARLY, lambda: story.alert(EARLY))
        early = story.seconds()
        if story.warned():
            raise FailedError(f"Ceph warned of the cache before {EARLY} came")
        story.wait(CHECK, story.warned)
        say(f"       {EARLY} was {story.seconds() - early:.0f} s before Ceph's own warning")
        alert = story.wait(LATE, lambda: story.alert(LATE))
        print(f"\n{alert['annotations']['summary']}\n{alert['annotations']['description']}")
        print(f"What to do: `.venv/bin/pinchpoint runbook {LATE}`\n", flush=True)
        command = command_in(alert["annotations"]["description"])
        story.tell(f"running  {shlex.join(command)}")
        subprocess.run(command, env=os.environ | cluster.environment(), check=True, timeout=STEP_SECONDS)
        story.wait(f"end of {CHECK}", lambda: not story.warned())
        story.wait(f"end of {LATE} and {EARLY}", lambda: not story.alert(LATE) and not story.alert(EARLY))
        story.tell("Ceph no longer warns of the cache, and both alerts are gone")


def command_in(description: str) -> list[str]:
    """Return the command that an alert recommends."""
    found = re.search(r"ceph config set mds mds_cache_memory_limit \d+", description)
    if found is None:
        raise FailedError(f"the alert names no command: {description}")
    return found[0].split()


@contextmanager
def _workload(stack: Stack, cluster: Cluster) -> Iterator[None]:
    """Run the benchmark under `pinchpoint run` until the block ends."""
    load = metadata_command("hold", files=FILES, ramp=RAMP, rate=RATE)
    command = [
        str(Path(sys.executable).with_name("pinchpoint")), "run", "--name=demo-ceph", "--quiet",
        f"--target=127.0.0.1:{stack.ports['pinchpoint']}", f"--prometheus={stack.urls['prometheus']}", "--", *load,
    ]  # fmt: skip
    environment = os.environ | cluster.environment()
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()  # `run` passes it on to the client, which closes its files; then `run` prints its table


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(
        description="See the alert of a full MDS cache come, help and go on a real cluster."
    )
    parser.add_argument(
        "--state", type=Path, default=STATE, metavar="DIR", help="directory of the stack, by default .stack"
    )
    options = parser.parse_args()
    exit_on_sigterm()
    if packages := missing():  # before a stack is started for nothing
        print(f"demo: not installed: {', '.join(packages)}; `make setup` as root installs it.", file=sys.stderr)
        return 1
    try:
        with stack_for_demo(options.state) as stack:
            say("starting a Ceph cluster: a monitor, a manager, an OSD, two MDSs")
            with Cluster(mdss=2) as cluster:
                run(stack, cluster)
        say("passed")
        return 0
    except FailedError as error:
        print(f"demo: FAILED: {error}", file=sys.stderr)
    except (StackError, LabError) as error:
        print(f"demo: {told(error)}", file=sys.stderr)
    except httpx.HTTPError as error:
        print(f"demo: Prometheus or Alertmanager does not answer: {error}", file=sys.stderr)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"demo: cannot run: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("demo: interrupted; what it started is stopped.", file=sys.stderr)
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
