"""A knob: the commands that set it, undo that, and read it back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from pinchpoint.experiment import shell
from pinchpoint.experiment.shell import ShellError
from pinchpoint.text import printable

__all__ = ["OLD", "Knob", "KnobCommands", "KnobError"]

OLD = "PINCHPOINT_OLD"
"""Environment variable of the undo command: the value that was read before the first set."""
MAX_KNOB_CHARACTERS = 4096
"""Longest value of a knob, in characters."""
UNDO_ATTEMPTS = 3
"""How often an undo is tried: a command to a busy daemon may fail once."""
ATTEMPT_PAUSE_SECONDS = 1.0
READ_ATTEMPTS = 10
"""How often a value is read until it is the expected one: a daemon takes a setting over a moment later."""
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "CEPH_CONF", "CEPH_ARGS", "CEPH_KEYRING", "KUBECONFIG")
"""Environment variables that an undo by another process needs."""


class KnobError(Exception):
    """The knob could not be read, set or undone; the message says how it stands."""


class KnobCommands(msgspec.Struct, frozen=True):
    """The operator's commands, for a shell."""

    set: str
    undo: str
    check: str
    """Prints the knob's value."""
    seconds: Annotated[float, Meta(gt=0, le=3600)] = 60.0
    """Longest time of each."""


UNREADABLE = "\ufffd"
"""Stands for bytes of a command's output that are not UTF-8."""


class Knob:
    """A knob that these commands turn, in `directory`; they inherit the open `descriptors`."""

    def __init__(
        self,
        commands: KnobCommands,
        directory: Path,
        *,
        environment: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.commands = commands
        self.directory = directory
        self.environment = kept(os.environ) if environment is None else dict(environment)
        self._descriptors = descriptors
        self._pause = pause

    def read(self) -> str:
        """Return the knob's value. Raises KnobError."""
        try:
            value = self._run(self.commands.check)
        except ShellError as error:
            raise KnobError(f"the knob cannot be read: {error}") from error
        if not value or len(value) > MAX_KNOB_CHARACTERS:
            size = "nothing" if not value else f"more than {MAX_KNOB_CHARACTERS} characters"
            raise KnobError(f"--check `{printable(self.commands.check)}` prints {size}: it has to print the value")
        if "\0" in value or UNREADABLE in value:
            what = f"--check `{printable(self.commands.check)}` prints bytes that are not UTF-8 text"
            raise KnobError(f"{what}: $PINCHPOINT_OLD cannot hold them")
        return value

    def set(self, old: str) -> str:
        """Set the knob and return its new value. Raises KnobError, also if it is still the old one."""
        try:
            self._run(self.commands.set, old)
        except ShellError as error:
            raise KnobError(f"the knob cannot be set: {error}") from error
        value = self._await(lambda value: value != old)
        if value == old:
            raise KnobError(
                f"`{printable(self.commands.set)}` changed nothing: "
                f"`{printable(self.commands.check)}` still prints {printable(old)!r}"
            )
        return value

    def undo(self, old: str) -> None:
        """Put the old value back, and check that it is there. Raises KnobError."""
        problem = ""
        for attempt in range(UNDO_ATTEMPTS):
            if attempt:
                self._pause(ATTEMPT_PAUSE_SECONDS)
            try:
                self._run(self.commands.undo, old)
            except ShellError as error:
                problem = str(error)
            try:
                value = self._await(lambda value: value == old)
            except KnobError as error:
                problem = problem or str(error)
                continue
            if value == old:
                return
            problem = problem or f"it is {printable(value)!r} and not {printable(old)!r}"
        raise KnobError(f"the knob is not restored: {problem}")

    def _await(self, wanted: Callable[[str], bool]) -> str:
        """Return the value as soon as it is a wanted one, or else the last one read. Raises KnobError."""
        for _ in range(READ_ATTEMPTS - 1):
            value = self.read()
            if wanted(value):
                return value
            self._pause(ATTEMPT_PAUSE_SECONDS / READ_ATTEMPTS)
        return self.read()

    def _run(self, command: str, old: str | None = None) -> str:
        return shell.run(
            command,
            seconds=self.commands.seconds,
            directory=self.directory,
            environment=self.environment if old is None else {**self.environment, OLD: old},
            descriptors=self._descriptors,
        )


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what of an environment the commands get: the same as an undo by another process."""
    return {name: environment[name] for name in KEPT_VARIABLES if name in environment}
