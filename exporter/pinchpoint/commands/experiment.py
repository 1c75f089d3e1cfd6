"""``pinchpoint experiment``: change one knob, know whether it helped, and have it back as it was."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click

from pinchpoint.benchmarks.events import phase_name
from pinchpoint.clock import STEADY
from pinchpoint.commands.options import NumberRange, complete_runs, name_option, prometheus_option, targets_option
from pinchpoint.diagnosis.paired import MAX_PAIRS, MIN_PAIRS, side_order
from pinchpoint.experiment import exclusive, journal, ledger
from pinchpoint.experiment.conduct import Conductor, Stopping
from pinchpoint.experiment.exclusive import BusyError, Exclusive
from pinchpoint.experiment.journal import CommandLock, Journal
from pinchpoint.experiment.knob import Knob, KnobCommands, KnobError
from pinchpoint.experiment.ledger import Experiment, LedgerError
from pinchpoint.experiment.mitigations import all_mitigations, classes
from pinchpoint.experiment.owner import this_process
from pinchpoint.experiment.phases import PhasesError, find_config, in_config, phases_in, remove_copy, shortened
from pinchpoint.experiment.results import DEFAULT_PAIRS, Forecast, forecast_of, outcome
from pinchpoint.experiment.settle import STEPS, SettleError, Step, steps_in
from pinchpoint.experiment.suggest import Suggestion, file_system, suggestions
from pinchpoint.experiment.words import decision_words
from pinchpoint.limits import reason
from pinchpoint.report.experiment import document, page, ticket
from pinchpoint.runs import run_id
from pinchpoint.session import store
from pinchpoint.session.store import StoreError
from pinchpoint.statuses import statuses
from pinchpoint.terminal.experiment import experiment_parts, experiments_table, suggestion_parts
from pinchpoint.terminal.plain import fail, say, show, warn
from pinchpoint.text import as_utf8, printable

__all__ = ["command"]

STOPPED, NOT_RESTORED = 1, 3
SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


def complete_experiments(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of saved experiments that a shell may complete, the newest first."""
    try:
        names = sorted((path.name for path in ledger.experiments_directory().iterdir()), reverse=True)
    except OSError:
        names = []
    return [name for name in (store.LAST, *names) if name.startswith(incomplete)]


def complete_knobs(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the mitigations that an experiment may apply."""
    return [
        name
        for name, mitigation in all_mitigations().items()
        if name.startswith(incomplete) and classes()[mitigation.class_].unattended
    ]


@click.group(context_settings=SETTINGS)
def command() -> None:
    """Change one knob, and know whether it helped: pairs of runs, a decision, and the knob as it was before."""


@command.command(epilog=statuses("experiment run"), context_settings={**SETTINGS, "allow_interspersed_args": False})
@name_option("Name of the experiment. [default: the command's name]", several=True)
@click.option("--set", "set_", metavar="COMMAND", help="Shell command that sets the knob.")
@click.option("--undo", metavar="COMMAND", help="Shell command that restores it; $PINCHPOINT_OLD is the old value.")
@click.option("--check", metavar="COMMAND", help="Shell command that prints the knob's value.")
@click.option(
    "--knob",
    "mitigation",
    metavar="NAME",
    shell_complete=complete_knobs,
    help="Instead of the three: a mitigation of the runbooks, as `pinchpoint experiment suggest` names them.",
)
@click.option("--value", metavar="VALUE", help="Value for --knob instead of the runbook's.")
@click.option(
    "--yes", "allowed", multiple=True, metavar="CLASS", help="Class of --knob that may be set unattended; repeatable."
)
@click.option("--hypothesis", metavar="TEXT", default="", help="What you expect, and why; saved.")
@click.option(
    "--expect", metavar="PHASE[,PHASE...]", default="", help="Phases that the experiment is about. [default: the score]"
)
@click.option(
    "--phases",
    metavar="PHASE[,PHASE...]",
    help="Run only these phases of IO500, and those that write their files.",
)
@click.option(
    "--effect",
    type=NumberRange(0, 100, min_open=True),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="Smallest gain that matters: the number of pairs follows from it.",
)
@click.option("--pairs", default="auto", show_default=True, metavar="N", help="Number of pairs of runs, even.")
@click.option(
    "--settle",
    default="sync",
    show_default=True,
    metavar="STEP[=SECONDS],...",
    help=f"Steps before each run, with their bounds: {', '.join(STEPS)}.",
)
@click.option("--prepare", metavar="COMMAND", default="", help="Shell command before each run, such as a cleanup.")
@click.option(
    "--command-timeout",
    type=NumberRange(0, 3600, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest time of each of these commands.",
)
@click.option("--allow-invalid", is_flag=True, help="Let runs count that the benchmark calls invalid.")
@click.option("--dry-run", is_flag=True, help="Read the knob, show the forecast and the plan, and run nothing.")
@click.option("--quiet", is_flag=True, help="Print only the decision, and what the runs print.")
@targets_option("Exporters of the cluster's hosts, as for `pinchpoint run`; repeatable.")
@prometheus_option("As for `pinchpoint run`.")
@click.option("--http-config", type=click.Path(path_type=Path), metavar="FILE", help="As for `pinchpoint run`.")
@click.option("--phase-pattern", metavar="REGEX", help="As for `pinchpoint run`.")
@click.option("--path.runs", "runs", metavar="DIR", help="As for `pinchpoint run`.")
@click.option("--config.file", "config_file", metavar="FILE", help="As for `pinchpoint run`.")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def run(
    name: str | None,
    set_: str | None,
    undo: str | None,
    check: str | None,
    mitigation: str | None,
    value: str | None,
    allowed: tuple[str, ...],
    hypothesis: str,
    expect: str,
    phases: str | None,
    effect: float,
    pairs: str,
    settle: str,
    prepare: str,
    command_timeout: float,
    allow_invalid: bool,
    dry_run: bool,
    quiet: bool,
    targets: list[str],
    argv: tuple[str, ...],
    **passed: str | Path | None,
) -> None:
    """Run a benchmark in pairs, without a knob and with it, and decide whether the knob helped.

    The order is ABBA BAAB. The old value of the knob is read first, written to a journal before the knob is set, and
    restored at any end; reading it back proves it. The commands are yours: they run in a shell as the user who calls
    this, without a terminal, so they must not ask for a password.

    The experiment ends early once the answer is clear. All of it is saved: `pinchpoint experiment show last`.
    """

    def tell(text: str) -> None:
        if not quiet:
            warn(text)

    wanted = _wanted_pairs(pairs)
    if mitigation is not None:
        if set_ or undo or check:
            fail("--knob has its own commands: leave out --set, --undo and --check", 2)
        commands = _knob_commands(mitigation, value, allowed, command_timeout)
        name = name or mitigation
    elif not (set_ and undo and check):
        fail("give --set, --undo and --check, or --knob with a name: `pinchpoint experiment suggest` has some", 2)
    elif value is not None or allowed:
        fail("--value and --yes belong to --knob", 2)
    else:
        commands = KnobCommands(as_utf8(set_), as_utf8(undo), as_utf8(check), command_timeout)
    try:
        steps = steps_in(settle)
        earlier, kept = ledger.experiments(warn), store.runs(warn)
    except SettleError as error:
        fail(f"--settle: {error}", 2)
    except (LedgerError, StoreError) as error:
        fail(str(error), 2)
    only = _phases(phases, argv)
    expected = list(filter(None, map(phase_name, as_utf8(expect or phases or "").split(","))))
    known = forecast_of(argv, expected, effect / 100, earlier, kept)
    planned = wanted or known.pairs or (MAX_PAIRS if known.noise.degrees else DEFAULT_PAIRS)
    tell(_forecast_words(known, effect, planned))
    if dry_run:
        _show_plan(Knob(commands, Path.cwd()), steps, planned, argv)
        return
    options = _run_options(targets, passed)
    experiment = Experiment(
        id="",
        start=STEADY.now(),
        command=[as_utf8(word) for word in argv],
        knob=commands,
        pairs=planned,
        effect=effect / 100,
        hypothesis=as_utf8(hypothesis),
        mitigation=mitigation or "",
        expected=expected,
        phases=only,
        settle=[str(step) for step in steps],
        prepare=as_utf8(prepare),
        host=socket.gethostname(),
        owner=this_process(),
    )
    _restore_open(tell)
    # IO500 calls a run without all phases invalid.
    invalid = allow_invalid or bool(only)
    sys.exit(_conducted(experiment, name, steps, argv, options, invalid=invalid, tell=tell))


def _conducted(
    experiment: Experiment,
    name: str | None,
    steps: list[Step],
    argv: tuple[str, ...],
    options: list[str],
    *,
    invalid: bool,
    tell: Callable[[str], None],
) -> int:
    """Conduct an experiment; return the exit status."""
    stopping = Stopping()
    try:
        only = Exclusive()
    except BusyError as error:
        fail(str(error), 2)
    lock = None
    try:
        experiment.id, _ = ledger.new_directory(run_id(name, argv, STEADY.now()))
        if _about_ceph(experiment, steps) and (fsid := exclusive.cluster_of()):
            experiment.cluster = fsid
            ledger.save(experiment)  # whoever finds the key of a killed experiment finds the experiment too
            about = {"host": experiment.host, "user": os.getuid(), "process": os.getpid()}
            only.enter_cluster(experiment.id, about, warn)
        lock = CommandLock(experiment.id)
        knob = Knob(experiment.knob, Path.cwd(), descriptors=[lock.descriptor])
        with _command(argv, experiment) as command:
            experiment.copy = as_utf8(next((word for word in command if word not in argv), ""))
            ledger.save(experiment)
            tell(f"experiment {experiment.id}, at most {experiment.pairs} pairs")
            Conductor(
                experiment, knob, steps, command, options, invalid=invalid, stopping=stopping, say=tell, warn=warn
            ).conduct()
    except (PhasesError, BusyError, OSError) as error:
        if experiment.id:
            ledger.forget(experiment.id)
        fail(_refusal(error), 2)
    finally:
        if lock is not None:
            lock.close()
        only.close(warn, restored=experiment.restored is not False)
    return _end(experiment, stopping)


def _refusal(error: PhasesError | BusyError | OSError) -> str:
    if isinstance(error, OSError):
        return f"{reason(error)}: nothing was set"
    return f"--phases: {error}" if isinstance(error, PhasesError) else str(error)


def _phases(text: str | None, argv: Sequence[str]) -> list[str]:
    """Return the sections of the phases to which IO500 is shortened; ends the program if it can't be."""
    if text is None:
        return []
    try:
        only = phases_in(text)
        _, config = find_config(argv, Path.cwd())
        shortened(config, only)
    except PhasesError as error:
        fail(f"--phases: {error}", 2)
    return only


def _command(argv: Sequence[str], experiment: Experiment) -> AbstractContextManager[Sequence[str]]:
    if experiment.phases:
        return in_config(argv, Path.cwd(), experiment.phases, experiment.id)
    return nullcontext(argv)


def _end(experiment: Experiment, stopping: Stopping) -> int:
    """Print what stands; return the exit status."""
    warn(decision_words(experiment, outcome(experiment)))
    if experiment.state == "stopped":
        warn(f"stopped: {experiment.reason}")
    if experiment.restored is False:
        for open_ in journal.journals(warn):
            if open_.experiment == experiment.id:
                warn(journal.way_out(open_))
        return NOT_RESTORED
    warn(f"`pinchpoint experiment show {experiment.id}` shows the pairs")
    if stopping.number:
        return 128 + stopping.number
    return STOPPED if experiment.state == "stopped" else 0


def _knob_commands(name: str, value: str | None, allowed: tuple[str, ...], seconds: float) -> KnobCommands:
    """Return the commands of a mitigation whose class the user allows; ends the program if it may not be set."""
    known = all_mitigations().get(name)
    if known is None:
        fail(f"--knob {printable(name)!r}: the known ones are {', '.join(all_mitigations())}", 2)
    for other in allowed:
        if other not in classes():
            fail(f"--yes {printable(other)!r}: the classes are {', '.join(classes())}", 2)
    kind = classes()[known.class_]
    if not kind.unattended:
        fail(f"--knob {name} {kind.what}: `pinchpoint runbook {known.runbook}` says how", 2)
    if known.class_ not in allowed:
        fail(f"--knob {name} is {kind.what}; --yes {known.class_} lets it be set unattended. Risk: {known.risk}", 2)
    try:
        return known.commands(value, seconds)
    except ValueError as error:
        fail(f"--value: {error}", 2)


def _wanted_pairs(text: str) -> int | None:
    if text == "auto":
        return None
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
    if not MIN_PAIRS <= number <= MAX_PAIRS or number % 2:
        fail(f"--pairs {printable(text)!r}: use auto, or an even number from {MIN_PAIRS} to {MAX_PAIRS}", 2)
    return number


def _forecast_words(known: Forecast, effect: float, planned: int) -> str:
    if not known.noise.degrees:
        return f"no noise is known of this command: {planned} pairs; the next experiment has a forecast"
    noise = f"the noise of a pair is {100 * known.noise.variance**0.5:.2g} % ({known.noise.degrees:.0f} earlier pairs)"
    needs = f"{known.pairs} pairs" if known.pairs else f"more than {MAX_PAIRS} pairs"
    return f"{noise}: an effect of {effect:g} % needs {needs}; planned are {planned}"


def _show_plan(knob: Knob, steps: list[Step], pairs: int, argv: tuple[str, ...]) -> None:
    try:
        value = knob.read()
    except KnobError as error:
        fail(str(error), 2)
    say(f"knob     {printable(value)}")
    say(f"order    {side_order(pairs)}")
    say(f"settle   {', '.join(map(str, steps)) or '-'}")
    say(f"command  {printable(' '.join(argv))}")


def _run_options(targets: list[str], passed: dict[str, str | Path | None]) -> list[str]:
    flags = {"runs": "path.runs", "config_file": "config.file"}
    named = {key: flags.get(key, key.replace("_", "-")) for key in passed}
    return [
        *(f"--target={target}" for target in targets),
        *(f"--{named[key]}={value}" for key, value in passed.items() if value is not None),
    ]


def _about_ceph(experiment: Experiment, steps: list[Step]) -> bool:
    """Return whether the experiment has to do with the Ceph cluster that the command `ceph` finds."""
    texts = (experiment.knob.set, experiment.knob.undo, experiment.knob.check, *experiment.command)
    return any("ceph" in text for text in texts) or any(step.name in ("health-ok", "trim") for step in steps)


def _restore_open(tell: Callable[[str], None]) -> None:
    """Restore the knobs of killed experiments; ends the program if one cannot be."""
    found, unusable = _journals()
    done = [_restored(open_, tell) for open_ in found if open_.owner.lost]
    if unusable or not all(done):
        fail("nothing was started: the knob of an earlier experiment has to be restored first", NOT_RESTORED)
    _close_killed(tell)


def _journals() -> tuple[list[Journal], list[str]]:
    """Return the journals of this user, and what is wrong with those that cannot be used, which people are told."""
    unusable: list[str] = []
    found = list(journal.journals(unusable.append))
    for problem in unusable:
        warn(f"{problem}; its knob may still be set: restore it yourself, then remove the file")
    return found, unusable


def _restored(open_: Journal, tell: Callable[[str], None]) -> bool:
    """Restore the knob of a killed experiment; return whether it has its old value."""
    try:
        tell(f"experiment {open_.experiment} ended without restoring its knob: {journal.restore(open_)}")
    except KnobError as error:
        warn(str(error))
        warn(journal.way_out(open_))
        return False
    if open_.cluster:
        exclusive.leave_cluster(open_.experiment, open_.environment)
    try:
        found = ledger.load(ledger.experiments_directory() / open_.experiment)
    except (LedgerError, OSError) as error:
        warn(f"the ledger does not say so: {error}")
        return True
    found.restored = True
    if found.state == "running":
        _note_killed(found, "it was killed; the knob was restored later")
    else:
        found.reason = f"{found.reason}; the knob was restored later".removeprefix("; ")
        _save(found)
    return True


def _close_killed(tell: Callable[[str], None]) -> list[Experiment]:
    """Note what became of experiments that were killed while no journal was open, and let others use their clusters.

    Returns those whose Ceph cluster is another than the command `ceph` finds, or cannot be reached.
    """
    opened = {open_.experiment for open_ in journal.journals(lambda problem: None)}
    try:
        killed = [each for each in ledger.experiments() if each.standing == "killed" and each.id not in opened]
    except LedgerError as error:
        warn(str(error))
        return []
    fsid = exclusive.cluster_of() if any(each.cluster for each in killed) else None
    unreached = []
    for each in killed:
        journal.remove_lock(each.id)
        if each.cluster and (each.cluster != fsid or not exclusive.leave_cluster(each.id)):
            unreached.append(each)
            continue
        each.restored = True if each.value is not None else None
        _note_killed(each, "it was killed while its knob was not set")
        tell(f"experiment {each.id} was killed while its knob was not set")
    return unreached


def _note_killed(experiment: Experiment, why: str) -> None:
    if experiment.id in os.path.basename(experiment.copy):
        remove_copy(Path(experiment.copy))
    experiment.state, experiment.reason, experiment.end = "stopped", why, STEADY.now()
    _save(experiment)


def _save(experiment: Experiment) -> None:
    try:
        ledger.save(experiment)
    except OSError as error:
        warn(f"the ledger does not say so: {reason(error)}")


@command.command(epilog=statuses("experiment restore"), context_settings=SETTINGS)
def restore() -> None:
    """Restore the knobs of experiments that were killed, by the journals that they left.

    The value is read first: after a reboot it may already be the old one. A knob whose experiment still runs, or is one
    of another host that shares the home directory, is left alone. Only journals of the calling user are used.
    """
    found, unusable = _journals()
    for open_ in found:
        if open_.owner.elsewhere:
            warn(f"experiment {open_.experiment} is one of host {open_.owner.host}: restore its knob there")
        elif open_.owner.alive:
            warn(f"experiment {open_.experiment} still runs, and restores its knob itself")
    done = [_restored(open_, say) for open_ in found if open_.owner.lost]
    for each in _close_killed(say):
        warn(
            f"experiment {each.id} was killed and may keep others off the Ceph cluster {each.cluster}, which `ceph` "
            f"does not reach here: set CEPH_CONF, or remove {ledger.experiments_directory() / each.id} if it is gone"
        )
    if not found and not unusable:
        say("no knob has to be restored")
    if unusable or not all(done):
        sys.exit(NOT_RESTORED)


@command.command("list", epilog=statuses("experiment list"), context_settings=SETTINGS)
@click.option("--json", "as_json", is_flag=True, help="Print all data about the experiments as JSON.")
def list_(as_json: bool) -> None:
    """List the saved experiments, oldest first, with their decisions."""
    found = _experiments()
    if as_json:
        say(json.dumps({"experiments": [document(each) for each in found]}, indent=2))
    elif found:
        show(experiments_table(found))
    else:
        say("no experiment is saved yet: `pinchpoint experiment run` saves them")


@command.command("show", epilog=statuses("experiment show"), context_settings=SETTINGS)
@click.option("--json", "as_json", is_flag=True, help="Print the experiment as JSON.")
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a page with the pairs."
)
@click.argument("experiment", metavar="EXPERIMENT", shell_complete=complete_experiments)
def show_(as_json: bool, html: Path | None, experiment: str) -> None:
    """Show an experiment: the decision on each figure, its interval, and every pair.

    EXPERIMENT is an id, its beginning, a name (its newest), or "last".
    """
    found = _found(experiment)
    if html is not None:
        _write(html, page(found))
    if as_json:
        say(json.dumps(document(found), indent=2))
    elif html is None:
        show(*experiment_parts(found, outcome(found)))


@command.command("export", epilog=statuses("experiment export"), context_settings=SETTINGS)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="[default: standard output]"
)
@click.argument("experiment", metavar="EXPERIMENT", shell_complete=complete_experiments)
def export(output: Path | None, experiment: str) -> None:
    """Write an experiment as Markdown for a ticket: what was changed, how, what it did, and how to repeat it."""
    text = ticket(_found(experiment))
    if output is None:
        say(text.rstrip())
    else:
        _write(output, text)


@command.command(epilog=statuses("experiment suggest"), context_settings=SETTINGS)
@click.option("--json", "as_json", is_flag=True, help="Print the suggestions as JSON.")
@click.argument("run", metavar="[RUN]", default=store.LAST, shell_complete=complete_runs)
def suggest(as_json: bool, run: str) -> None:
    """Suggest what to try first for the verdicts of a run: the last one, or RUN.

    Each suggestion has its command with this cluster's names, the phases, the risk, what others measured, and what came
    of it here before. Nothing is set.
    """
    try:
        record = store.find(run, store.runs(warn))
    except StoreError as error:
        fail(str(error))
    found = suggestions(record.marker.phases, record.command, _experiments(), file_system(), record.facts)
    if as_json:
        say(json.dumps({"run": record.marker.run, "suggestions": [_suggestion(one) for one in found]}, indent=2))
    elif found:
        show(*suggestion_parts(found))
    else:
        say(
            f"{record.marker.run}: no mitigation is known for its verdicts; `pinchpoint report {record.marker.run}` "
            "names the runbooks"
        )


def _suggestion(one: Suggestion) -> dict[str, Any]:
    mitigation = one.mitigation
    return {
        "knob": one.name,
        "class": mitigation.class_,
        "phases": one.phases,
        "blame": round(one.blame, 3),
        "set": one.set,
        "undo": one.undo,
        "check": mitigation.check,
        "needs": mitigation.needs,
        "risk": mitigation.risk,
        "known": mitigation.known,
        "runbook": mitigation.runbook,
        "experiment": one.command or None,
        "tried": one.tried,
    }


def _experiments() -> list[Experiment]:
    try:
        return ledger.experiments(warn)
    except LedgerError as error:
        fail(str(error))


def _found(text: str) -> Experiment:
    try:
        return ledger.find(text, _experiments())
    except LedgerError as error:
        fail(str(error))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{path}: {error.strerror}")
