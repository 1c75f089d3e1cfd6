"""Fixtures of the scenarios, and the table of what the verdict made of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pinchpoint.diagnosis.verdict import Verdict
from scenarios.observed import Outcome, Truth, Watch, watching

HERE = Path(__file__).parent
OUTCOMES: list[Outcome] = []
REPEAT = int(os.environ.get("REPEAT", "1"))
"""How often each scenario is run: a verdict must not flip."""

Check = Callable[[Truth, Verdict], None]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat each scenario."""
    if "check" in metafunc.fixturenames and REPEAT > 1:
        metafunc.fixturenames.append("repetition")
        metafunc.parametrize("repetition", range(1, REPEAT + 1))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the scenarios that may run beside others."""
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("alone") is None:
            item.add_marker(pytest.mark.light)


@pytest.fixture(scope="session")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    """An exporter for all scenarios."""
    if os.geteuid():
        pytest.skip("needs root, to see what the load waits for")
    with watching(tmp_path_factory.mktemp("watch")) as found:
        yield found


@pytest.fixture
def check(request: pytest.FixtureRequest) -> Check:
    """Compare a verdict with what is true, and note it for the table."""

    def compare(truth: Truth, found: Verdict) -> None:
        outcome = Outcome(request.node.name.removeprefix("test_"), truth, found)
        OUTCOMES.append(outcome)
        print(outcome.story())
        assert outcome.right, outcome.story()

    return compare


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was true and what was said."""
    if not OUTCOMES:
        return
    right = sum(outcome.right for outcome in OUTCOMES)
    terminalreporter.section(f"{right} of {len(OUTCOMES)} verdicts are right")
    for outcome in OUTCOMES:
        found = outcome.found
        waits = " ".join(f"{wait} {share:.0%}" for wait, share in list(found.waits.items())[:3])
        limits = ", ".join(f"{limit.resource} {limit.owner} {limit.blame:.2f}" for limit in found.limits)
        mark = "    " if outcome.right else "NOT "
        terminalreporter.write_line(f"{mark}{outcome.scenario:60} {found.kind:14} {limits:50} {waits}")
