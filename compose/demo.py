"""The demo: a real fio workload in two phases under `pinchpoint run`, and the alerts that a real Alertmanager received.

Exits with 0 only if Alertmanager received the alert for the benchmark's saturated thread and, where the disk really was
full, the one for the disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx
import psutil

from demo_load import JOB, Choice, FullTime, LoadError, calibrated, end, read_disks, variables
from native import STATE, TREE, Stack, StackError, exit_on_sigterm, ports_from

EXPECTED = "BenchmarkThreadSaturated"
OWNER = "fio"
"""The alert that is due in the first phase, on any host."""
DISK_ALERT = "DiskSaturated"
"""The alert that is due in the second phase if a disk was full for long enough."""
BLIND_ALERT = "SamplerLate"
"""The alert that fires if the exporter got too little CPU to see what was full."""
DISK_SECONDS = 20.0
"""How long a disk has to be full before its alert is due, in seconds: half of the window, `for`, and some scrapes."""
PHASE_SECONDS = 25
"""Length of each phase: half of the rules' window of 15 s, their `for` of 10 s, and some scrapes."""
GRACE_SECONDS = 10.0
"""How long after the run the expected alert may still arrive."""
POLL_SECONDS = 0.5
STOP_SECONDS = 10.0
SCRAPE_SECONDS = 30.0


@dataclass(frozen=True)
class Alert:
    """An alert as Alertmanager has it."""

    name: str
    owner: str
    """Who owns the thread or device that it is about."""
    summary: str
    started: float
    """Unix time in seconds."""


class Watcher:
    """Polls Prometheus and Alertmanager: a resolved alert disappears from their answers."""

    def __init__(self, urls: dict[str, str], since: float) -> None:
        self.received: list[Alert] = []
        """Alerts that Alertmanager received and that started in this run, in the order in which they were seen."""
        self._urls = urls
        self._since = since
        self._pending: set[str] = set()
        # No proxy from the environment: everything is on this host.
        self._client = httpx.Client(timeout=2.0, trust_env=False)

    def look(self) -> None:
        """Ask once, and print what is new."""
        now = time.time()
        for name in sorted(self._ask_prometheus() - self._pending):
            self._pending.add(name)
            self._say(now, f"{name} is pending in Prometheus")
        for alert in self._ask_alertmanager():
            if alert.started >= self._since and alert not in self.received:
                self.received.append(alert)
                self._say(now, f"{alert.name} of {alert.owner or 'this host'} received by Alertmanager")

    def has(self, name: str, owner: str | None = None) -> bool:
        """Return whether Alertmanager received an alert, about this owner and not about something else on this host."""
        return any(alert.name == name and owner in (None, alert.owner) for alert in self.received)

    def _say(self, now: float, text: str) -> None:
        say(f"{now - self._since:3.0f} s  {text}")

    def _ask_prometheus(self) -> set[str]:
        try:
            answer = self._client.get(f"{self._urls['prometheus']}/api/v1/alerts").raise_for_status().json()
        except httpx.HTTPError:
            return set()
        return {
            alert["labels"]["alertname"]
            for alert in answer["data"]["alerts"]
            # Pinchpoint's own alerts may be pending while Prometheus has only a few samples.
            if alert["state"] == "pending" and alert["labels"].get("layer") != "pinchpoint"
        }

    def _ask_alertmanager(self) -> Iterator[Alert]:
        try:
            answer = self._client.get(f"{self._urls['alertmanager']}/api/v2/alerts").raise_for_status().json()
        except httpx.HTTPError:
            return
        for alert in answer:
            summary = alert["annotations"].get("summary", "")
            labels = alert["labels"]
            yield Alert(
                labels["alertname"],
                labels.get("owner", ""),
                summary,
                datetime.fromisoformat(alert["startsAt"]).timestamp(),
            )


@contextmanager
def stack_for_demo(state: Path) -> Iterator[Stack]:
    """Yield the stack that runs in `state`, or a new one that is stopped at the end. Raises StackError."""
    if (stack := Stack.running(state)) is not None:
        if not stack.kept:
            raise StackError("A demo runs in this directory already.")
        say("using the stack of `make up`")
        yield stack
        return
    stack = Stack(state, ports_from(os.environ))
    say("starting exporter, Prometheus, Alertmanager and node_exporter")
    with stack:
        yield stack


def wait_for_scrape(stack: Stack) -> None:
    """Wait until Prometheus has the exporter's metrics: it reads its targets up to 5 s after its start.

    Raises StackError if it never gets them.
    """
    url = stack.urls["prometheus"]
    deadline = time.monotonic() + SCRAPE_SECONDS
    while time.monotonic() < deadline:
        with suppress(httpx.HTTPError):
            targets = httpx.get(f"{url}/api/v1/targets", timeout=2.0, trust_env=False).json()["data"]["activeTargets"]
            if {target["health"] for target in targets if target["scrapePool"] == "pinchpoint"} == {"up"}:
                return
        time.sleep(POLL_SECONDS)
    raise StackError(f"Prometheus does not get the exporter's metrics; {page(url, 'targets')} says why.")


def page(prometheus: str, name: str) -> str:
    """Return the URL of a page of Prometheus: Debian's package has only the classic pages, 3.0 dropped them."""
    classic = f"{prometheus}/classic/{name}"
    with suppress(httpx.HTTPError):
        if httpx.get(classic, timeout=2.0, trust_env=False).is_success:
            return classic
    return f"{prometheus}/{name}"


def run(stack: Stack, cpu_seconds: int, disk_seconds: int) -> int:
    """Run the workload on a running stack and report what arrived; return the exit status.

    Raises StackError and LoadError.
    """
    # The state directory first: people expect `make demo` to write there.
    with calibrated([stack.state, TREE, Path(tempfile.gettempdir()), Path("/var/tmp")]) as (directory, choice, said):
        for line in said:
            say(line)
        return _run(stack, directory, choice, cpu_seconds, disk_seconds)


def _run(stack: Stack, directory: Path, choice: Choice, cpu_seconds: int, disk_seconds: int) -> int:
    urls = stack.urls
    wait_for_scrape(stack)
    say(f"alerts   {page(urls['prometheus'], 'alerts')}")
    say(f"metrics  {urls['pinchpoint']}/metrics")
    second = f", {DISK_ALERT} of {choice.disk} in the second" if choice.fills and disk_seconds >= DISK_SECONDS else ""
    say(f"phases of {cpu_seconds} s and {disk_seconds} s; {EXPECTED} has to come in the first{second}")
    watcher = Watcher(urls, time.time())
    full = FullTime(choice.disk)
    settings = variables(directory, choice.load, cpu_seconds, disk_seconds)
    with _workload(stack, directory, settings) as process:
        while process.poll() is None:
            watcher.look()
            full.add(read_disks())
            time.sleep(POLL_SECONDS)
    deadline = time.monotonic() + GRACE_SECONDS
    while not process.returncode and time.monotonic() < deadline and missing_alert(watcher, choice.disk, full.seconds):
        watcher.look()
        time.sleep(POLL_SECONDS)
    print(f"\nReceived by Alertmanager ({urls['alertmanager']}/api/v2/alerts):")
    for alert in watcher.received:
        print(f"  {alert.name}: {alert.summary}\n    what to do: `.venv/bin/pinchpoint runbook {alert.name}`")
    if process.returncode:
        say(f"FAILED: pinchpoint run ended with status {process.returncode}")
        return 1
    if missing := missing_alert(watcher, choice.disk, full.seconds):
        say(f"FAILED: {missing} did not arrive; the logs are in {stack.state / 'log'}")
        return 1
    if choice.disk and not watcher.has(DISK_ALERT, choice.disk):
        say(f"no {DISK_ALERT}: {choice.disk} was full for {full.seconds:.0f} s; the alert needs {DISK_SECONDS:.0f} s")
    say("passed; " + ("the stack keeps running" if stack.kept else "`make up` shows this run in Prometheus again"))
    return 0


def missing_alert(watcher: Watcher, disk: str, full_seconds: float) -> str:
    """Return the alert that is due and was not received, or "".

    None is due for a disk that was not full, or from an exporter that had no CPU to see it.
    """
    if not watcher.has(EXPECTED, OWNER):
        return EXPECTED
    seen = watcher.has(DISK_ALERT, disk) or watcher.has(BLIND_ALERT)
    return "" if full_seconds < DISK_SECONDS or seen else f"{DISK_ALERT} of {disk}"


def say(text: str) -> None:
    """Print a line of progress and flush it, since `pinchpoint run` and fio print to the same place."""
    print(f"demo: {text}", flush=True)


@contextmanager
def _workload(stack: Stack, directory: Path, settings: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the running `pinchpoint run`; if the block ends early, it and its fio are stopped too."""
    command = [
        str(Path(sys.executable).with_name("pinchpoint")),
        "run",
        "--name=demo",
        f"--target=127.0.0.1:{stack.ports['pinchpoint']}",
        f"--prometheus={stack.urls['prometheus']}",
        "--",
        "fio",
        "--eta=never",
        "--output-format=json",
        f"--output={directory / 'fio.json'}",
        str(JOB),
    ]
    with subprocess.Popen(command, env=os.environ | dict(settings), stdin=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                end(psutil.Process(process.pid), STOP_SECONDS)


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(description="Run a real workload and see its alerts arrive in Alertmanager.")
    parser.add_argument(
        "--state", type=Path, default=STATE, metavar="DIR", help="directory of the stack, by default .stack"
    )
    parser.add_argument("--cpu-seconds", type=int, default=PHASE_SECONDS, metavar="N", help="length of the first phase")
    parser.add_argument(
        "--disk-seconds", type=int, default=PHASE_SECONDS, metavar="N", help="length of the second phase"
    )
    options = parser.parse_args()
    exit_on_sigterm()
    if shutil.which("fio") is None:
        print("demo: fio is not installed; `make setup` as root installs it.", file=sys.stderr)
        print("`make up`, `.venv/bin/pinchpoint run` and `.venv/bin/pinchpoint watch` need no fio.", file=sys.stderr)
        return 1
    try:
        with stack_for_demo(options.state) as stack:
            return run(stack, options.cpu_seconds, options.disk_seconds)
    except (StackError, LoadError) as error:
        print(f"demo: {error}", file=sys.stderr)
    except OSError as error:
        print(f"demo: {error.filename or 'cannot run'}: {error.strerror or error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("demo: interrupted; what it started is stopped.", file=sys.stderr)
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
