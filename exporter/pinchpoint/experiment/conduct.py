"""Conducts an experiment: turns the knob, runs the pairs, looks at them, and restores the knob whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType

from pinchpoint.clock import STEADY
from pinchpoint.diagnosis.paired import Decision, Looks
from pinchpoint.experiment import journal, ledger, shell
from pinchpoint.experiment.knob import Knob, KnobError
from pinchpoint.experiment.ledger import Experiment, Trial
from pinchpoint.experiment.results import EXPERIMENT_TAG, Outcome, figures_of, next_side, outcome
from pinchpoint.experiment.settle import SettleError, Step, settle
from pinchpoint.experiment.shell import ShellError
from pinchpoint.host.confine import end_with_parent
from pinchpoint.host.exitstatus import STOPPING, signal_name
from pinchpoint.limits import LIMITS, reason, words
from pinchpoint.runs import MAX_SEVERAL_NAME_CHARACTERS
from pinchpoint.session import store
from pinchpoint.session.store import RunRecord, StoreError, name_of
from pinchpoint.text import printable

__all__ = ["Conductor", "Stopping"]

GRACE_SECONDS = 10.0
"""Seconds after which a benchmark that got no signal of its own, or ignored it, gets SIGTERM."""
POLL_SECONDS = 0.1
PINCHPOINT = "import sys; sys.path = [place for place in sys.path if place]; from pinchpoint.cli import start; start()"
"""The ``pinchpoint`` command. ``python -m`` would import what lies in the current directory, which may be anybody's."""


class Stopping:
    """Notes the signals that ask us to stop: the knob is restored before we do."""

    def __init__(self) -> None:
        """From now on such a signal only sets `number`, unless our caller ignores it."""
        self.number = 0
        """The first signal; 0 for none."""
        self.when = 0.0
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def __call__(self) -> bool:
        """Return whether we were asked to stop."""
        return self.number != 0

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.number:
            self.number, self.when = number, time.monotonic()


class Conductor:
    """Conducts `experiment`, whose runs are of `command` and have the further `options` of ``pinchpoint run``.

    `say` gets what happens, `warn` what went wrong without ending it.
    """

    def __init__(
        self,
        experiment: Experiment,
        knob: Knob,
        steps: Sequence[Step],
        command: Sequence[str],
        options: Sequence[str],
        *,
        invalid: bool,
        stopping: Stopping,
        say: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._experiment = experiment
        self._knob = knob
        self._steps = steps
        self._command = command
        self._options = options
        self._invalid = invalid
        """Whether runs count that the benchmark calls invalid."""
        self._stopping = stopping
        self._say = say
        self._warn = warn
        self._open = False
        """Whether the knob may be set."""

    def conduct(self) -> None:
        """Run it to its end; the experiment then says how it ended. It never raises what a host or command causes."""
        experiment = self._experiment
        try:
            self._pairs()
            experiment.state = "finished" if not experiment.reason else "stopped"
        except (KnobError, SettleError, ShellError, _StoppedError) as error:
            self._stop(str(error))
        except LIMITS as error:
            self._stop(reason(error))
        finally:
            self._restore()
            if experiment.state == "running":
                self._stop("it ended unexpectedly")
            experiment.end = STEADY.now()
            self._save()

    def _stop(self, why: str) -> None:
        self._experiment.state, self._experiment.reason = "stopped", why

    def _pairs(self) -> None:
        experiment = self._experiment
        experiment.old = self._knob.read()
        self._say(f"the knob is {printable(experiment.old)!r}")
        self._save()
        looks = Looks(experiment.pairs).shares
        while side := next_side(experiment.trials, experiment.pairs):
            self._set() if side == "B" else self._undo()
            trial = Trial(side, STEADY.now())
            self._settle(trial)
            self._run(trial)
            pairs, odd = divmod(len(experiment.trials), 2)
            if odd:
                continue
            found = outcome(experiment)
            self._say(self._standing(found))
            if pairs in looks and found.decision is not Decision.UNDECIDED:
                break

    def _standing(self, found: Outcome) -> str:
        head = f"{found.pairs} of {self._experiment.pairs} pairs"
        for key in sorted(found.primary):
            finding = found.findings[key]
            head += f", {printable(key.phase or 'score')} {finding.change:+.1%}"
            if finding.interval is not None:
                head += f" ({finding.interval[0]:+.1%} to {finding.interval[1]:+.1%})"
        return f"{head}: {found.decision}"

    def _set(self) -> None:
        if self._open:
            return
        experiment = self._experiment
        assert experiment.old is not None
        journal.record(experiment.id, self._knob, experiment.old, cluster=experiment.cluster, now=STEADY.now())
        self._open = True
        experiment.value = self._knob.set(experiment.old)
        self._say(f"the knob is set: {printable(experiment.value)!r}")

    def _undo(self) -> None:
        """Restore the knob if it may be set. Raises KnobError."""
        experiment = self._experiment
        if not self._open:
            return
        assert experiment.old is not None
        self._knob.undo(experiment.old)
        self._open = False
        try:
            journal.close(experiment.id)
        except OSError as error:
            self._warn(f"{reason(error)}: the journal is still there, the knob is restored")
        self._say(f"the knob is restored: {printable(experiment.old)!r}")

    def _restore(self) -> None:
        experiment = self._experiment
        was_set = self._open or experiment.value is not None
        try:
            self._undo()
        except (KnobError, *LIMITS) as error:
            experiment.restored = False
            if not experiment.reason:
                experiment.state = "stopped"
            why = str(error) if isinstance(error, KnobError) else words(error)
            # The last undo of the pairs may have failed in the same way.
            experiment.reason = "; ".join(dict.fromkeys(filter(None, [experiment.reason, why])))
        else:
            experiment.restored = True if was_set else None

    def _settle(self, trial: Trial) -> None:
        """Prepare and settle. Raises SettleError, ShellError."""
        experiment = self._experiment
        try:
            if experiment.prepare:
                shell.run(
                    experiment.prepare,
                    seconds=self._knob.commands.seconds,
                    directory=self._knob.directory,
                    stopped=self._stopping,
                )
            for step in self._steps:
                trial.settled[step.name] = round(settle(step, self._stopping), 3)
        except (SettleError, ShellError):
            if not self._stopping():
                raise
        if self._stopping():
            raise _StoppedError(self._signal())

    def _signal(self) -> str:
        return f"{signal_name(self._stopping.number)} ended it"

    def _run(self, trial: Trial) -> None:
        experiment = self._experiment
        number = len(experiment.trials)
        label = f"run {number + 1} of {2 * experiment.pairs}, {trial.side}"
        self._say(f"{label} ({'with' if trial.side == 'B' else 'without'} the knob)")
        trial.start = STEADY.now()
        name = name_of(experiment.id)[:MAX_SEVERAL_NAME_CHARACTERS]
        status = self._benchmark(f"{name}-{number // 2 + 1}{trial.side}", trial.side)
        record = self._record()
        if record is not None:
            marker = record.marker
            trial.run = marker.run
            trial.figures = figures_of(marker)
            trial.verdicts = {mark.name: mark.verdict for mark in marker.phases if mark.verdict is not None}
        trial.state, trial.reason = self._judged(status, record, trial)
        experiment.trials.append(trial)
        self._save()
        if self._stopping():
            raise _StoppedError(f"{self._signal()} in {label}")
        if trial.state != "done":
            raise _StoppedError(f"{label}: {trial.reason}; the complete pairs stand")

    def _judged(self, status: int, record: RunRecord | None, trial: Trial) -> tuple[str, str]:
        """Return how a run ended, and why if not well."""
        if not status and record is None:
            return "failed", "the run was not saved"
        if status or record is None:
            how = f"the signal {signal_name(-status)}" if status < 0 else f"status {status}"
            said = f": {record.marker.reason}" if record is not None and record.marker.reason else ""
            return "failed", f"the benchmark ended with {how}{said}"
        if record.marker.state == "failed":
            return "failed", f"the benchmark failed: {record.marker.reason or 'it printed no reason'}"
        if not trial.figures:
            return "failed", "the run has no figure: Pinchpoint does not know this benchmark's output"
        phases = list(dict.fromkeys(figure.phase for figure in trial.figures if figure.phase))
        if lacking := [name for name in self._experiment.expected if name not in phases]:
            return (
                "failed",
                f"the run has no figure of {', '.join(lacking)}, only of {', '.join(phases)}: see --expect",
            )
        invalid = [mark.name for mark in record.marker.phases if not mark.valid]
        if (invalid or not record.marker.valid) and not self._invalid:
            where = f" ({', '.join(invalid)})" if invalid else ""
            return "invalid", f"the benchmark calls the run invalid{where}; --allow-invalid lets such runs count"
        return "done", ""

    def _benchmark(self, name: str, side: str) -> int:
        """Run the benchmark under ``pinchpoint run``; return its status, or minus the signal that ended it."""
        argv = [
            sys.executable, "-c", PINCHPOINT, "run", "--quiet", f"--name={name}",
            f"--tag={EXPERIMENT_TAG}={self._experiment.id}", f"--tag=side={side}", *self._options, "--", *self._command,
        ]  # fmt: skip
        own = os.getpid()
        with subprocess.Popen(argv, preexec_fn=lambda: end_with_parent(own, signal.SIGTERM)) as process:
            asked = False
            while process.poll() is None:
                # A terminal's Ctrl-C reaches the benchmark by itself, and it may need a moment to end well.
                urgent = self._stopping.number not in (0, signal.SIGINT, signal.SIGQUIT)
                late = self._stopping() and time.monotonic() > self._stopping.when + GRACE_SECONDS
                if (urgent or late) and not asked:
                    asked = True
                    with suppress(OSError):
                        process.send_signal(signal.SIGTERM)
                time.sleep(POLL_SECONDS)
            return process.returncode

    def _record(self) -> RunRecord | None:
        """Return the run that just ended."""
        known = {trial.run for trial in self._experiment.trials}
        try:
            runs = store.runs()
        except StoreError as error:
            self._warn(str(error))
            return None
        mine = [run for run in runs if run.marker.tags.get(EXPERIMENT_TAG) == self._experiment.id]
        return next((run for run in reversed(mine) if run.marker.run not in known), None)

    def _save(self) -> None:
        try:
            ledger.save(self._experiment)
        except LIMITS as error:
            self._warn(f"{reason(error)}: the ledger lacks what happened last")


class _StoppedError(Exception):
    """The experiment cannot go on."""
