"""The journal of a knob that may be set: on disk before the knob is, gone only after the old value was read back.

Whoever finds a journal whose process is gone knows how to restore the knob: the next command of the same user, or the
systemd unit.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from pinchpoint.experiment import durable
from pinchpoint.experiment.knob import Knob, KnobCommands, KnobError
from pinchpoint.experiment.owner import Owner, this_process
from pinchpoint.runs import Time
from pinchpoint.state import state_root
from pinchpoint.text import as_utf8, printable
from pinchpoint.typedjson import decoder

__all__ = [
    "CommandLock",
    "Journal",
    "JournalError",
    "close",
    "journals",
    "open_directory",
    "read_journal",
    "record",
    "remove_lock",
    "restore",
    "way_out",
]

MAX_JOURNAL_BYTES = 1 << 20
"""Longest journal that is read, in bytes: a command line has at most 128 KiB (MAX_ARG_STRLEN)."""
SUFFIX = ".json"
POLL_SECONDS = 0.1


class JournalError(Exception):
    """A journal that cannot be read or used; the message says why, and what to do."""


class Journal(msgspec.Struct, frozen=True):
    """What is needed to restore a knob."""

    experiment: str
    knob: KnobCommands
    old: str
    """The value to restore."""
    directory: str
    """Where the commands run."""
    environment: dict[str, str]
    start: Time
    owner: Owner
    cluster: str = ""


DECODER = decoder(Journal)


def open_directory() -> Path:
    """Return where journals of knobs are that may be set. Raises OSError if there is no such place."""
    return state_root() / "open"


def record(experiment: str, knob: Knob, old: str, *, cluster: str, now: float) -> None:
    """Write the journal: afterwards the knob may be set. Raises OSError."""
    journal = Journal(
        experiment=experiment,
        knob=knob.commands,
        old=old,
        directory=as_utf8(str(knob.directory)),
        environment={name: value for name, value in knob.environment.items() if name + value == as_utf8(name + value)},
        start=now,
        owner=this_process(),
        cluster=cluster,
    )
    open_directory().mkdir(parents=True, exist_ok=True, mode=0o700)
    durable.write(open_directory() / f"{experiment}{SUFFIX}", msgspec.json.encode(journal))


def close(experiment: str) -> None:
    """Remove the journal: the old value was read back. Raises OSError."""
    if open_directory().exists():
        durable.remove(open_directory() / f"{experiment}{SUFFIX}")


def read_journal(raw: bytes) -> Journal:
    """Return the content of a journal. Raises JournalError."""
    try:
        return DECODER.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise JournalError(f"not a journal: {error}") from error


def journals(warn: Callable[[str], None]) -> Iterator[Journal]:
    """Yield the journals of this user, the oldest first; `warn` is called for each that cannot be used."""
    directory = open_directory()
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        warn(f"{directory}: {error.strerror}")
        return
    for path in [directory / name for name in names if name.endswith(SUFFIX) and not name.startswith(".")]:
        try:
            yield _load(path)
        except JournalError as error:
            warn(f"{path}: {error}")


def _load(path: Path) -> Journal:
    """Return a journal that nobody else can have written: its commands are executed. Raises JournalError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            raw = file.read(MAX_JOURNAL_BYTES + 1)
        parent = path.parent.stat()
    except OSError as error:
        raise JournalError(error.strerror or str(error)) from error
    for owner in (status, parent):
        if owner.st_uid != os.geteuid() or owner.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise JournalError("another user owns it or may write to it, so its commands are not run; read it yourself")
    if not stat.S_ISREG(status.st_mode) or len(raw) > MAX_JOURNAL_BYTES:
        raise JournalError("not a journal")
    journal = read_journal(raw)
    if f"{journal.experiment}{SUFFIX}" != path.name:
        raise JournalError(f"it is of the experiment {printable(journal.experiment)!r}: was the file renamed?")
    return journal


def restore(journal: Journal) -> str:
    """Restore a knob whose experiment was killed, and close its journal; return what was done. Raises KnobError.

    A command that the killed experiment had started may still run: it is awaited as long as it may take.
    """
    _await_command(journal.experiment, journal.knob.seconds)
    directory = Path(journal.directory)
    knob = Knob(journal.knob, directory if directory.is_dir() else Path("/"), environment=dict(journal.environment))
    if knob.read() == journal.old:
        done = f"the knob already has its old value {printable(journal.old)!r}"
    else:
        knob.undo(journal.old)
        done = f"the knob has its old value {printable(journal.old)!r} again, and was read back"
    try:
        close(journal.experiment)
    except OSError as error:
        raise KnobError(f"{done}, but {error.filename}: {error.strerror}") from error
    return done


def way_out(journal: Journal) -> str:
    """Return what a person has to do if the undo fails."""
    return (
        f"the knob of experiment {journal.experiment} may still be set. Its old value is {printable(journal.old)!r}. "
        f"Restore it yourself: `{printable(journal.knob.undo)}` (PINCHPOINT_OLD is the old value); "
        f"`{printable(journal.knob.check)}` then has to print the old value. "
        "Afterwards `pinchpoint experiment restore` closes the journal"
    )


class CommandLock:
    """Held by a knob's commands for as long as they run, even if we are killed: they inherit its descriptor."""

    def __init__(self, experiment: str) -> None:
        """Take it. Raises OSError."""
        open_directory().mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = _lock_file(experiment)
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)

    def close(self) -> None:
        """Give it up."""
        os.close(self.descriptor)
        with suppress(OSError):
            self.path.unlink()


def remove_lock(experiment: str) -> None:
    """Remove the lock that a killed experiment left."""
    with suppress(OSError):
        _lock_file(experiment).unlink()


def _lock_file(experiment: str) -> Path:
    return open_directory() / f"{experiment}.lock"


def _await_command(experiment: str, seconds: float) -> None:
    path = _lock_file(experiment)
    deadline = time.monotonic() + seconds
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            while time.monotonic() < deadline:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(POLL_SECONDS)
                else:
                    path.unlink()
                    return
        finally:
            os.close(descriptor)
