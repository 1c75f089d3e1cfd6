"""What a thread waits for, from its kernel stack.

The rules are data (``waits.toml`` beside this module, and a file of the user's, whose rules come first): kernels
rename functions, and file systems bring their own. A rule lists functions; the first rule that finds one of them
anywhere in the stack decides. The innermost function alone says little: a wait for a page is in ``folio_wait_bit``,
whether a disk, an OSD or an NFS server has to deliver it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from pinchpoint.expressions import expression
from pinchpoint.shipped import shipped
from pinchpoint.tomlfile import ConfigError, decode_toml, read_toml

__all__ = [
    "DATA",
    "FLUSH",
    "FUSE",
    "PARKED",
    "RUNNING",
    "WAITS",
    "YIELDS",
    "Stack",
    "Stacks",
    "WaitRules",
    "load_waits",
    "parse_stack",
]

WAITS = (
    *("cpu", "runqueue", "mds", "osd", "client", "writeback", "disk", "network", "memory", "lock", "other", "idle"),
    "ceph",
)
"""The wait classes. ``ceph`` is a wait for an unknown part of Ceph."""

PARKED = "parked"
"""It waits for another thread, a message or a time: no stack shows what for."""
RUNNING = "running"
"""It runs, or could."""
YIELDS = "yields"
"""It runs, and offers its CPU to others: it polls."""
DATA = "data"
"""It waits for data: the file system of its open files says from where."""
FLUSH = "flush"
"""It waits for data to be written back: as `DATA`, and on a network file system that is the writeback's work."""
FUSE = "fuse"
"""It waits for the process that serves a FUSE mount."""

Class = Literal[
    "mds", "osd", "client", "writeback", "disk", "network", "memory", "lock", "other", "idle", "ceph",
    "parked", "running", "yields", "data", "flush", "fuse",
]  # fmt: skip

MAX_FRAMES = 64
"""Functions of one stack that are kept, as many as the kernel gives (MAX_STACK_TRACE_DEPTH, fs/proc/base.c)."""
MAX_FRAME_CHARACTERS = 128
"""Characters of a function's name that are kept (KSYM_NAME_LEN was 128, and is 512 since Linux 6.1)."""
MAX_RAW_STACKS = 4096
"""Raw stacks that are remembered."""
MAX_KNOWN_STACKS = 512
"""Different stacks that are remembered."""
FRAME = expression(rb"(?:\[<[0-9a-fA-Fx]+>\] )?([A-Za-z_.$][\w.$]*)(?:\+0x[0-9a-f]+/0x[0-9a-f]+)?(?: \[[\w-]+\])?")
"""A line of ``/proc/PID/stack``: ``[<0>] ceph_get_caps+0x1f/0x40 [ceph]`` (proc_pid_stack, fs/proc/base.c). The
address is 0 since Linux 4.14; ``wchan`` is the name alone."""
SUFFIX = expression(r"\.(?:isra|constprop|part|cold|llvm|lto_priv|\d+).*", re.DOTALL)
"""What compilers add to the names of functions that they have changed."""


class _RuleEntry(msgspec.Struct, forbid_unknown_fields=True):
    in_: Class = msgspec.field(name="class")
    frames: str
    seen: str
    with_: str = msgspec.field(name="with", default="")
    innermost: bool = False


class _FileSystemEntry(msgspec.Struct, forbid_unknown_fields=True):
    in_: Class = msgspec.field(name="class")
    types: str
    source: str = ".*"


class _ProgramEntry(msgspec.Struct, forbid_unknown_fields=True):
    match: str
    parked: Class


class _File(msgspec.Struct, forbid_unknown_fields=True):
    rule: list[_RuleEntry] = []
    filesystem: list[_FileSystemEntry] = []
    program: list[_ProgramEntry] = []


class _Rule(NamedTuple):
    wait: str
    frames: re.Pattern[str]
    with_: re.Pattern[str]
    innermost: bool

    def matches(self, frames: tuple[str, ...]) -> bool:
        """Return whether the rule matches one of the functions, and `with_` another one."""
        found = any(self.frames.fullmatch(frame) for frame in (frames[:1] if self.innermost else frames))
        return found and (not self.with_.pattern or any(self.with_.fullmatch(frame) for frame in frames))


def parse_stack(raw: bytes) -> tuple[str, ...]:
    """Return the functions of ``/proc/PID/task/TID/stack`` or of ``wchan``, innermost first.

    Compiler suffixes are removed. A thread that runs has no functions, and its ``wchan`` is 0. Lines without a
    function are left out: up to Linux 4.x the last one was an address.
    """
    frames = []
    for line in raw.split(b"\n", MAX_FRAMES)[:MAX_FRAMES]:
        if (found := FRAME.fullmatch(line.strip())) is not None:
            frames.append(SUFFIX.sub("", found[1].decode("ascii", "replace"))[:MAX_FRAME_CHARACTERS])
    return tuple(frame for frame in frames if frame)


class WaitRules:
    """The compiled rules of the built-in file and of the user's."""

    def __init__(
        self,
        rules: Iterable[_Rule],
        filesystems: Iterable[tuple[str, re.Pattern[str], re.Pattern[str]]],
        programs: Iterable[tuple[re.Pattern[str], str]],
    ) -> None:
        self._rules = tuple(rules)
        self._filesystems = tuple(filesystems)
        self._programs = tuple(programs)

    def decide(self, frames: tuple[str, ...]) -> str | None:
        """Return what a thread with this stack waits for; None if no rule matches."""
        if not frames:
            return RUNNING
        return next((rule.wait for rule in self._rules if rule.matches(frames)), None)

    def filesystem(self, fstype: str, source: str) -> str | None:
        """Return the wait class of a file system's data, by its type and what was mounted; None: it has no data."""
        for wait, types, sources in self._filesystems:
            if types.fullmatch(fstype) and sources.fullmatch(source):
                return wait
        return None

    def parked(self, comm: str) -> str:
        """Return what a program waits for while it is parked."""
        return next((wait for pattern, wait in self._programs if pattern.fullmatch(comm)), "idle")


class Stack:
    """One stack, and how often it was seen."""

    __slots__ = ("frames", "seen", "slept", "times", "wait")

    def __init__(self, frames: tuple[str, ...], wait: str | None) -> None:
        self.frames = frames
        self.wait = wait
        """What the rules say; None if none matches."""
        self.times = 0
        self.slept = False
        """Whether a thread slept in it; without a rule, only that shows that something was waited for."""
        self.seen = 0.0
        """When it was seen last, in monotonic seconds."""


class Stacks:
    """The stacks that were seen, each decided once."""

    def __init__(self, rules: WaitRules) -> None:
        self._rules = rules
        self._raw: dict[bytes, Stack] = {}
        self._known: dict[tuple[str, ...], Stack] = {}

    def look(self, raw: bytes, now: float, times: int = 1) -> Stack:
        """Return the stack that reads `raw`, which was seen so many times; `now` is a monotonic time in seconds."""
        stack = self._raw.get(raw)
        if stack is None:
            if len(self._raw) >= MAX_RAW_STACKS:
                self._raw.clear()
            stack = self._raw[raw] = self._meet(parse_stack(raw))
        stack.times += times
        stack.seen = now
        return stack

    def _meet(self, frames: tuple[str, ...]) -> Stack:
        stack = self._known.get(frames)
        if stack is None:
            if len(self._known) >= MAX_KNOWN_STACKS:
                oldest = sorted(self._known.values(), key=lambda known: known.seen)[: MAX_KNOWN_STACKS // 4]
                for known in oldest:
                    del self._known[known.frames]
                self._raw.clear()
            stack = self._known[frames] = Stack(frames, self._rules.decide(frames))
        return stack

    def __iter__(self) -> Iterator[Stack]:
        """Yield the stacks, the most frequent first."""
        yield from sorted(self._known.values(), key=lambda stack: (-stack.times, stack.frames))

    @property
    def unknown(self) -> int:
        """How many stacks of waits match no rule."""
        return sum(stack.wait is None and stack.slept for stack in self._known.values())

    def forget(self, before: float) -> None:
        """Forget what was not seen since `before`, in monotonic seconds."""
        gone = {frames for frames, stack in self._known.items() if stack.seen < before}
        if gone:
            self._known = {frames: stack for frames, stack in self._known.items() if frames not in gone}
            self._raw = {raw: stack for raw, stack in self._raw.items() if stack.frames not in gone}


def load_waits(user_file: Path | None = None) -> WaitRules:
    """Return the built-in rules, with those of `user_file` in front of them. Raises ConfigError."""
    if user_file is None:
        return _builtin()
    return _rules((read_toml(user_file, _File), str(user_file)), _builtin_file())


@cache
def _builtin() -> WaitRules:
    return _rules(_builtin_file())


def _builtin_file() -> tuple[_File, str]:
    name = "waits.toml (built in)"
    return decode_toml(shipped("waits/waits.toml").read_bytes(), _File, name), name


def _rules(*files: tuple[_File, str]) -> WaitRules:
    rules, filesystems, programs = [], [], []
    for file, origin in files:
        for index, rule in enumerate(file.rule):
            where = f"rule[{index}]"
            if not rule.frames:
                raise ConfigError(f"{origin}: {where}.frames: names no function")
            frames, with_ = (
                _compile(pattern, origin, f"{where}.{key}")
                for key, pattern in (("frames", rule.frames), ("with", rule.with_))
            )
            rules.append(_Rule(rule.in_, frames, with_, rule.innermost))
        for index, entry in enumerate(file.filesystem):
            where = f"filesystem[{index}]"
            types = _compile(entry.types, origin, f"{where}.types")
            filesystems.append((entry.in_, types, _compile(entry.source, origin, f"{where}.source")))
        for index, program in enumerate(file.program):
            programs.append((_compile(program.match, origin, f"program[{index}].match"), program.parked))
    return WaitRules(rules, filesystems, programs)


def _compile(pattern: str, origin: str, key: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{origin}: {key}: not a regular expression: {error}") from error
