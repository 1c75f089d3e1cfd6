"""The ledger: every experiment in a file of its own, with all that its decision follows from."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from pinchpoint.diagnosis.comparison import Key
from pinchpoint.diagnosis.paired import MAX_PAIRS, MIN_PAIRS
from pinchpoint.experiment import durable
from pinchpoint.experiment.knob import KnobCommands
from pinchpoint.experiment.owner import Owner
from pinchpoint.runs import Share, Time, VerdictMark, numbered
from pinchpoint.session.store import LAST, name_of
from pinchpoint.state import state_root
from pinchpoint.typedjson import decoder

__all__ = [
    "Experiment",
    "LedgerError",
    "State",
    "Trial",
    "TrialFigure",
    "TrialState",
    "experiments",
    "experiments_directory",
    "find",
    "forget",
    "load",
    "new_directory",
    "read_experiment",
    "save",
]

FILE = "experiment.json"
MAX_EXPERIMENT_BYTES = 16 << 20
"""Longest file that is read, in bytes: 64 pairs of runs with 4,096 phases each have 12 MB."""
MAX_PER_SECOND = 1000
"""Maximum number of experiments of one name that begin in the same second."""
MAX_NAMED = 5
"""Maximum number of experiments named in a message."""

State = str
"""``running``, ``finished`` (as planned, or because the answer was clear), or ``stopped`` (`reason` says why)."""
TrialState = str
"""``done``, ``failed`` or ``invalid`` (the last two end the experiment)."""


class LedgerError(Exception):
    """An experiment that cannot be loaded; the message says why, and what to do."""


class TrialFigure(msgspec.Struct, frozen=True, array_like=True):
    """One figure of a run, in base units."""

    benchmark: str
    phase: str
    """Empty for a score."""
    occurrence: Annotated[int, Meta(ge=1, le=1 << 20)]
    operation: str
    unit: str
    value: Annotated[float, Meta(ge=0.0, le=2.0**63)]

    @property
    def key(self) -> Key:
        """Identifies the same figure in other runs."""
        return Key(self.benchmark, self.phase, self.occurrence, self.operation, self.unit)


class Trial(msgspec.Struct):
    """One run of an experiment."""

    side: str
    """``A`` without the knob, ``B`` with it."""
    start: Time
    run: str = ""
    """The saved run; empty if there is none."""
    state: TrialState = "done"
    reason: str = ""
    settled: dict[str, Time] = {}
    """By settling step, how many seconds it took."""
    figures: list[TrialFigure] = []
    verdicts: dict[str, VerdictMark] = {}
    """What limited each phase."""


class Experiment(msgspec.Struct):
    """One experiment; times in Unix seconds."""

    id: str
    start: Time
    command: list[str]
    knob: KnobCommands
    pairs: Annotated[int, Meta(ge=MIN_PAIRS, le=MAX_PAIRS)]
    """Planned number of pairs."""
    effect: Share
    """The gain asked for, as a share."""
    hypothesis: str = ""
    mitigation: str = ""
    """The entry of ``mitigations.toml``; empty for commands of the operator's own."""
    expected: list[str] = []
    """The phases that the experiment is about; empty: the score, or the only figure."""
    phases: list[str] = []
    """The phases to which the benchmark's config was shortened; empty: all of them."""
    copy: str = ""
    """The path of that shortened config, which is removed at the end."""
    settle: list[str] = []
    prepare: str = ""
    """Shell command before each run."""
    cluster: str = ""
    """The fsid of the Ceph cluster; empty if none was asked."""
    host: str = ""
    owner: Owner = Owner()
    """The process that conducts it."""
    state: State = "running"
    reason: str = ""
    """Why it stopped."""
    end: Time | None = None
    old: str | None = None
    """The knob's value before."""
    value: str | None = None
    """The knob's value once set."""
    restored: bool | None = None
    """Whether the old value was read back at the end; None if the knob was never set, or while it runs."""
    trials: list[Trial] = []

    @property
    def standing(self) -> str:
        """Its state: one that still runs although its process is gone was killed."""
        return "killed" if self.state == "running" and self.owner.lost else self.state


DECODER = decoder(Experiment)


def experiments_directory() -> Path:
    """Return where experiments are saved. Raises OSError if there is no such place."""
    return state_root() / "experiments"


def new_directory(experiment: str) -> tuple[str, Path]:
    """Make a directory for an experiment; a second one in the same second gets a number. Raises OSError."""
    for number in range(MAX_PER_SECOND):
        name = numbered(experiment, number + 1)
        path = experiments_directory() / name
        try:
            path.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            continue
        return name, path
    raise FileExistsError(errno.EEXIST, "too many experiments with this name in one second", experiment)


def save(experiment: Experiment) -> None:
    """Replace an experiment's file as a whole. Raises OSError."""
    raw = msgspec.json.format(msgspec.json.encode(experiment))
    durable.write(experiments_directory() / experiment.id / FILE, raw)


def forget(experiment: str) -> None:
    """Remove an experiment that never began."""
    directory = experiments_directory() / experiment
    with suppress(OSError):
        (directory / FILE).unlink(missing_ok=True)
        directory.rmdir()


def read_experiment(raw: bytes) -> Experiment:
    """Return the content of an experiment's file. Raises LedgerError."""
    try:
        return DECODER.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise LedgerError(f"not an experiment: {error}") from error


def load(directory: Path) -> Experiment:
    """Return the experiment that a directory holds. Raises LedgerError."""
    path = directory / FILE
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            raw = file.read(MAX_EXPERIMENT_BYTES + 1)
    except OSError as error:
        raise LedgerError(f"{path}: {error.strerror}") from error
    if len(raw) > MAX_EXPERIMENT_BYTES:
        raise LedgerError(f"{path}: longer than {MAX_EXPERIMENT_BYTES >> 20} MiB")
    try:
        found = read_experiment(raw)
    except LedgerError as error:
        raise LedgerError(f"{path}: {error}") from error
    if found.id != directory.name:
        raise LedgerError(f"{path}: holds the experiment {found.id!r}: was the directory renamed?")
    return found


def experiments(warn: Callable[[str], None] = lambda message: None) -> list[Experiment]:
    """Return the saved experiments, oldest first; `warn` is called for each that can't be read. Raises LedgerError."""
    try:
        directories = sorted(path for path in experiments_directory().iterdir() if path.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LedgerError(f"{error.filename}: {error.strerror}") from error
    found = []
    for directory in directories:
        try:
            found.append(load(directory))
        except LedgerError as error:
            warn(str(error))
    return sorted(found, key=lambda each: (each.start, each.id))


def find(text: str, among: Sequence[Experiment]) -> Experiment:
    """Return the one experiment that `text` means: ``last``, an id, its beginning, or its name. Raises LedgerError.

    Of several with the same name, it is the newest.
    """
    if not among:
        raise LedgerError("no experiment is saved yet: `pinchpoint experiment run` saves them")
    if text == LAST:
        return among[-1]
    ways: tuple[Callable[[str], bool], ...] = (
        lambda name: name == text,
        lambda name: name_of(name) == text,
        lambda name: name.startswith(text),
    )
    for way in ways if text else ():
        if found := [each for each in among if way(each.id)]:
            return found[-1]
    names = ", ".join(each.id for each in among[-MAX_NAMED:])
    raise LedgerError(f"no experiment is {text!r}; the last ones are {names}")
