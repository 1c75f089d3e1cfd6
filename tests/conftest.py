"""Fixtures that every test may use, and how tests share a machine: where they run, how long they wait."""

from __future__ import annotations

import os
import signal
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from machine import Machine
from patience import calibrated, patience
from polling import WAITS
from puppet import Puppet
from scratch import scratch_directory

# How long an example takes says nothing on a machine that is busy with something else. A quarter of hypothesis' own
# number of examples, the same ones each time: a change is not to fail by what chance finds in the rest of the code.
# `--hypothesis-profile thorough` looks forty times as hard, elsewhere each time.
hypothesis.settings.register_profile("pinchpoint", deadline=None, max_examples=25, derandomize=True)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("pinchpoint")

# A shell starts what it runs in the background with SIGINT ignored, and so would be every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["lab.fixtures"]

HERE = Path(__file__).parent
LOOKED_AT, OWN = "looked_at", "clusters"
"""Fixtures of tests that share a cluster, and of those that start their own: the former run in one process, the latter
in another, one after the other, so that no more than two clusters are there at a time."""
FIRST = (
    *(OWN, LOOKED_AT, "tests/dashboards/test_cost.py", "tests/compose/test_native.py", "tests/compose/test_scale.py"),
    *("tests/rules/test_alerts.py", "tests/bpf/test_choice.py", "tests/benchmarks/test_io500.py"),
)
"""What takes long has to begin early."""
HANG = 300.0
"""Seconds of an idle machine after which a test hangs; what it waits for ends earlier, with a better message."""
APART = ("commands", "compose", "lab", "dashboards/test_queries.py", "dashboards/test_cost.py", "test_live.py")
"""Tests whose exporters take every daemon and benchmark that they see for their own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let scripts/test run a part of the tests."""
    parser.addoption("--part", choices=["apart", "others"], help="only tests that need a PID namespace, or only others")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect the files of the chosen part only: to collect all of them takes 12 s of a CPU."""
    part = config.getoption("part")
    if part is None or not collection_path.is_relative_to(HERE):
        return None
    path = collection_path.relative_to(HERE).as_posix()
    if collection_path.is_dir():
        return path == "proofs" or None
    return path.startswith(APART) != (part == "apart") or None


def pytest_configure(config: pytest.Config) -> None:
    """Let everything temporary go to a directory that has room."""
    problem, directory = scratch_directory()
    if directory is None:
        pytest.exit(problem, returncode=4)
    tempfile.tempdir = os.environ["TMPDIR"] = str(directory)


def pytest_report_header() -> str:
    """Say what patience the tests have."""
    return f"patience: a CPU of this machine is {calibrated():.1f} times slower than the reference (tests/patience.py)"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests share a process, which come first, and when one hangs."""
    limit = HANG * patience(1.0)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(limit))
    items.sort(key=lambda item: FIRST.index(group) if (group := _group(item)) in FIRST else len(FIRST))


def _group(item: pytest.Item) -> str:
    """Return what a test shares a process with: a cluster, others that start one, or else its file."""
    fixtures = getattr(item, "fixturenames", ())
    if OWN in fixtures or item.get_closest_marker(OWN):
        return OWN
    return LOOKED_AT if LOOKED_AT in fixtures else item.nodeid.partition("::")[0]


def pytest_runtest_logstart() -> None:
    """Look at the machine as a test begins."""
    WAITS.begin()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say of a test that failed what it waited for, and what the machine did meanwhile."""
    report = yield
    if report.failed:
        report.sections.extend(WAITS.report().items())
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in a line for each reason what was left out."""
    reasons: Counter[tuple[str, str]] = Counter()
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[report.nodeid.partition("::")[0], reason.removeprefix("Skipped: ")] += 1
    if reasons:
        terminalreporter.section("left out")
    for (path, reason), number in sorted(reasons.items()):
        terminalreporter.write_line(f"{path}: {number} left out: {reason}")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def puppet() -> Iterator[Puppet]:
    with Puppet() as puppet:
        yield puppet
