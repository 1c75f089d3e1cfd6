"""Proofs in real time: each is repeated, and other load on the machine is measured meanwhile.

A proof is a test of this folder; one run of it is a trial. A trial is not judged if other programs took CPUs or memory
during it; it is then repeated, a limited number of times. All others are judged. The session fails only if a proof is
right significantly less often than its goal: see bench/trials.py. `make prove` runs it; bench/accuracy.py makes the
page.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest

import accuracy
from disturbance import LIMITS, MARK, Disturbance, look
from proofs.observed import Observed, Watch, watching
from trials import GOAL, Ending, Trial
from truth import Truth

HERE = Path(__file__).parent
TREE = HERE.parents[1]
RESULTS = TREE / ".prove" / "trials.jsonl"
"""One line per trial; bench/accuracy.py reads it."""
KEEP = os.environ.get("KEEP", "")
"""Directory for recordings of scenarios that were judged right, such as those in tests/fixtures/faults."""
WRONG = TREE / ".prove" / "wrong"
"""Directory for recordings of those that were judged wrong: a change of the verdict has to be tried on them."""
REPEATS = int(os.environ.get("REPEATS") or 3)
SPARE = min(REPEATS, 2)
"""How often a proof is repeated after other load disturbed it."""
OURS = str(os.getpid())
"""Mark of every process that is started here."""
ENOUGH = "judged often enough"
SECONDS = 600.0
"""Longest trial: one that takes longer hangs."""

Check = Callable[[Truth, Observed], None]


class Proofs:
    """The trials of this session."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self.stories: list[str] = []
        """What is known of each wrong trial."""
        self.left_out: dict[str, str] = {}
        self.story = ""
        self.begin("", "")

    def begin(self, proof: str, group: str, story: str = "") -> None:
        """Begin a trial. Trials of one `story` observe the same events, so a disturbance of one disturbs them all."""
        self.proof, self.group = proof, group
        self.ended = False
        self.facts: dict[str, Any] = {}
        self.measured: dict[str, str] = {}
        self.limits = LIMITS
        if not story or story != self.story:
            self.began, self.look = time.monotonic(), look(OURS, os.getpid())
        self.story = story

    def enough(self, proof: str) -> bool:
        """Return whether a proof needs no further trial."""
        mine = [trial for trial in self.trials if trial.proof == proof]
        return sum(trial.ending is not Ending.NOT_JUDGED for trial in mine) >= REPEATS

    def end(self, reason: str) -> Trial:
        """End the trial, which is right if there is no reason to call it wrong."""
        self.ended = True
        disturbance = Disturbance.between(self.look, look(OURS, os.getpid()))
        ending = Ending.WRONG if reason else Ending.RIGHT
        if disturbed := disturbance.reason(self.limits):
            ending, reason = Ending.NOT_JUDGED, disturbed
        trial = Trial(
            proof=self.proof,
            group=self.group,
            ending=ending,
            reason=reason,
            seconds=time.monotonic() - self.began,
            measured=self.measured,
            disturbance=disturbance.numbers(),
            **self.facts,
        )
        self.trials.append(trial)
        RESULTS.parent.mkdir(exist_ok=True)
        with RESULTS.open("a") as file:
            file.write(trial.to_json() + "\n")
        return trial


PROOFS = Proofs()


def name_of(item: pytest.Item) -> str:
    """Return the name of the proof that a test item is a trial of."""
    assert isinstance(item, pytest.Function)
    others = [str(value) for name, value in item.callspec.params.items() if name != "trial"]
    return " ".join([item.name.partition("[")[0].removeprefix("test_"), *others])


def is_proof(item: pytest.Item) -> bool:
    """Return whether an item belongs to this folder."""
    return item.path.parent == HERE


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat each proof; all of a file once, then all again, so that slow changes affect each of them."""
    metafunc.fixturenames.append("trial")
    metafunc.parametrize("trial", range(1, REPEATS + SPARE + 1), scope="module")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the proofs, which run only on request, and leave the long ones out of the shortest form."""
    for item in filter(is_proof, items):
        item.add_marker("proof")
        item.add_marker(pytest.mark.timeout(SECONDS))
        if REPEATS == 1 and item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip("takes long: it is for two repeats or more"))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Mark every process that is started from here on as ours."""
    os.environ[MARK] = OURS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Read the state of the machine before a trial."""
    assert isinstance(item, pytest.Function)
    module = item.module
    story = f"{module.__name__} {item.callspec.params['trial']}" if getattr(module, "ONE_STORY", False) else ""
    PROOFS.begin(name_of(item), module.GROUP, story)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a proof that was judged often enough, before anything is set up for it."""
    if PROOFS.enough(name_of(item)):
        pytest.skip(ENOUGH)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Turn what pytest would call a passed or failed test into a trial."""
    report: Any = yield
    if report.skipped:
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason != ENOUGH:
            PROOFS.left_out[name_of(item)] = reason
    elif report.when == "teardown":
        if report.failed:
            PROOFS.stories.append(f"{name_of(item)} could not be cleaned up:\n{report.longreprtext}")
            report.outcome = "passed"
    elif PROOFS.ended:
        report.outcome, report.hidden = "passed", True  # pytest goes on after a setup whose failure we took for a trial
    elif report.failed or report.when == "call":
        text = str(call.excinfo.value) if call.excinfo else ""
        reason = (text.splitlines() or [call.excinfo.typename])[0] if call.excinfo else ""
        report.trial = PROOFS.end(f"could not be set up: {reason}" if report.when == "setup" else reason)
        if report.trial.ending is Ending.WRONG:
            sections = "\n".join(f"{title}: {content}" for title, content in report.sections)
            PROOFS.stories.append(f"{name_of(item)} is wrong:\n{report.longreprtext}\n{sections}")
        report.outcome = "passed"
    return report  # type: ignore[no-any-return]


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Show a trial by its ending."""
    trial: Trial | None = getattr(report, "trial", None)
    if trial is None:
        hidden = getattr(report, "hidden", False) or (
            report.skipped and isinstance(report.longrepr, tuple) and ENOUGH in report.longrepr[2]
        )
        return ("", "", "") if hidden else None
    letter = {Ending.RIGHT: ".", Ending.WRONG: "W", Ending.NOT_JUDGED: "d"}[trial.ending]
    what = "; ".join(filter(None, (trial.said, trial.reason if trial.ending is not Ending.RIGHT else "")))
    category = "passed" if trial.ending is Ending.RIGHT else str(trial.ending)  # what reads pytest's summary counts it
    return category, letter, f"{trial.ending} ({trial.seconds:.0f} s) {what}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a proof is significantly below its goal, and only then."""
    if PROOFS.trials and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED if accuracy.missed(PROOFS.trials) else pytest.ExitCode.OK


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the details of wrong trials, and the rates: last, since the end of a long output is what people see."""
    for story in PROOFS.stories:
        terminalreporter.section("wrong")
        terminalreporter.write_line(story)
    if PROOFS.trials:
        terminalreporter.section(f"proofs, with a goal of {GOAL:.0%}")
        terminalreporter.write_line(accuracy.summary(PROOFS.trials))


@pytest.fixture(scope="session")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    """An exporter for all scenarios."""
    if os.geteuid():
        pytest.skip("needs root, to see what the load waits for")
    with watching(tmp_path_factory.mktemp("watch")) as found:
        yield found


@pytest.fixture
def measured() -> MutableMapping[str, str]:
    """Measurements of a trial, with units, by name: the page shows them."""
    return PROOFS.measured


@pytest.fixture
def waits_for_memory() -> None:
    """Have trials judged whose own load waits for memory."""
    PROOFS.limits = LIMITS._replace(memory=1.0)


@pytest.fixture
def check() -> Check:
    """Compare the verdict on a scenario with the truth about it."""

    def compare(truth: Truth, seen: Observed) -> None:
        found = seen.verdict
        PROOFS.facts = {
            "truth": truth.words(),
            "expected": ", ".join(truth.kind),
            "found": str(found.kind),
            "said": found.words,
            "confidence": str(found.confidence),
            "chain": str(Ending.RIGHT if truth.names(found.woken) else Ending.WRONG) if found.woken else "",
            "led": bool(found.limits) and not found.limits[0].serves,
            "first_right": seen.first_right(truth),
        }
        right = truth.fits(found)
        if not right:
            seen.keep(WRONG, PROOFS.proof, truth)
        assert right, f"{seen.story()}\nkept in {WRONG}"
        if KEEP:
            seen.keep(Path(KEEP), PROOFS.proof, truth)

    return compare
