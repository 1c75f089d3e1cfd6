"""Fixtures for every test, and how tests share a machine: in which process they run, and how long they wait."""

from __future__ import annotations

import gc
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

# The duration of an example means nothing on a machine that is busy with something else. Examples are a quarter of
# hypothesis' default number, and the same each time, so that a change does not fail by chance in unrelated code.
# `--hypothesis-profile thorough` runs forty times as many, different ones each time.
hypothesis.settings.register_profile("pinchpoint", deadline=None, max_examples=25, derandomize=True)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("pinchpoint")

# A shell ignores SIGINT in what it runs in the background, and every process that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["lab.fixtures"]

HERE = Path(__file__).parent
LOOKED_AT, OWN = "looked_at", "clusters"
"""Fixtures of tests that share a cluster, and of those that start their own. The former run in one process, the latter
one after the other in another, so that at most two clusters exist at a time."""
FIRST = (
    *(LOOKED_AT, OWN, "tests/commands/test_experiment.py", "tests/compose/test_native.py", "tests/test_recipes.py"),
    *("tests/commands/test_run.py", "tests/compose/test_demo.py", "tests/test_live.py", "tests/compose/test_readme.py"),
    *(
        "tests/deploy/test_install.py",
        "tests/test_release.py",
        "tests/test_packaging.py",
        "tests/test_foreign_bytes.py",
    ),
    *("tests/rules/test_alerts.py", "tests/bpf/test_choice.py", "tests/benchmarks/test_io500.py"),
)
"""Long tests, the longest first: what starts late ends late."""
DISK = "PINCHPOINT_TESTS_DISK"
"""Environment variable: the directory on a disk for tests that need one, where other temporary files are in memory."""
HANG = 300.0
"""Seconds of an idle machine after which a test counts as hanging; its own waits end earlier, with a better message."""
APART = ("commands", "compose", "lab", "dashboards/test_cost.py", "test_live.py")
"""Tests whose exporters count every daemon and benchmark that they see as their own."""

PACKAGES = ("deploy/test_install.py", "test_packaging.py", "test_release.py")
"""Tests of `make packages-check`, which make wheels, a release and an installed host."""
ON_REQUEST = ("proofs", "compose/test_engine.py")
"""What has a make target of its own: `make prove`, `make containers-check`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Allow scripts/test to run a part of the tests."""
    parser.addoption("--part", choices=["apart", "others", "packages"], help="a part of the tests: see scripts/test")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect only the files of the chosen part: collecting all of them takes 12 s of CPU time."""
    part = config.getoption("part")
    if part is None or not collection_path.is_relative_to(HERE):
        return None
    path = collection_path.relative_to(HERE).as_posix()
    if collection_path.is_dir():
        return path in ON_REQUEST or None
    return _part(path) != part or None


def _part(path: str) -> str | None:
    """Return the part of the tests that a file belongs to, if it is none of those on request."""
    if path in ON_REQUEST:
        return None
    if path in PACKAGES:
        return "packages"
    return "apart" if path.startswith(APART) else "others"


def pytest_configure(config: pytest.Config) -> None:
    """Send everything temporary to a directory that has room."""
    problem, directory = scratch_directory()
    if directory is None:
        pytest.exit(problem, returncode=4)
    tempfile.tempdir = os.environ["TMPDIR"] = str(directory)


def pytest_report_header() -> str:
    """Report the patience of the tests."""
    return f"patience: a CPU of this machine is {calibrated():.1f} times slower than the reference (tests/patience.py)"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from what stays until the end: it would take a tenth of the CPU time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Decide which tests share a process, which come first, and when one counts as hanging."""
    limit = HANG * patience(1.0)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(limit))
    items.sort(key=lambda item: FIRST.index(group) if (group := _group(item)) in FIRST else len(FIRST))


def _group(item: pytest.Item) -> str:
    """Return what a test shares a process with: a cluster, others that start one, or the rest of its file."""
    fixtures = getattr(item, "fixturenames", ())
    if OWN in fixtures:
        return OWN
    return LOOKED_AT if LOOKED_AT in fixtures else item.nodeid.partition("::")[0]


def pytest_runtest_logstart() -> None:
    """Read the state of the machine when a test begins."""
    WAITS.begin()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report what a failed test waited for, and what the machine did meanwhile."""
    report = yield
    if report.failed:
        report.sections.extend(WAITS.report().items())
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report what was skipped, in one line for each reason."""
    reasons: Counter[tuple[str, str]] = Counter()
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[report.nodeid.partition("::")[0], reason.removeprefix("Skipped: ")] += 1
    if reasons:
        terminalreporter.section("left out")
    for (path, reason), number in sorted(reasons.items()):
        terminalreporter.write_line(f"{path}: {number} left out: {reason}")


@pytest.fixture(scope="session")
def disk() -> Iterator[Path]:
    """Return a directory for tests that need a disk: other temporary files may be in memory."""
    with tempfile.TemporaryDirectory(dir=os.environ.get(DISK)) as folder:
        yield Path(folder)


@pytest.fixture
def disk_path(disk: Path) -> Iterator[Path]:
    """Return a directory like `tmp_path`, but on a disk."""
    with tempfile.TemporaryDirectory(dir=disk) as folder:
        yield Path(folder)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def puppet() -> Iterator[Puppet]:
    with Puppet() as puppet:
        yield puppet
