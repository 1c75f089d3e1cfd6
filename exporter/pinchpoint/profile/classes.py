"""What a stack costs: classes by rules.

The rules are data: ``costs.toml`` beside this module, and a file of the user's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from pinchpoint.expressions import expression
from pinchpoint.shipped import shipped
from pinchpoint.tomlfile import ConfigError, decode_toml, read_toml

__all__ = ["MAX_CLASSES", "OTHER", "CostRules", "Frame", "cost_words", "load_costs", "without_switch"]

OTHER = "other"
"""The class of what no rule knows."""
MAX_CLASSES = 64
NAME = expression(r"[a-z][a-z0-9_]{0,31}")
SWITCH = "finish_task_switch"
"""Where a thread goes on after another one ran. The timer's interrupt waits for the end of the switch, so that samples
pile up there although the thread did nothing (5 to 44 % on a crowded host): the code around it decides."""
AROUND_SWITCH = expression(
    r"(__)?schedule(_.*)?|preempt_schedule.*|(irqentry_)?exit_to_user_mode.*|irqentry_exit.*|asm_.*|ret_from_fork.*"
)


class Frame(NamedTuple):
    """A function of a stack."""

    name: str
    """Its name without parameters; ``[FILE]`` where it has none."""
    file: str
    """The library or program; empty in the kernel."""


class _RuleEntry(msgspec.Struct, forbid_unknown_fields=True):
    in_: str = msgspec.field(name="class")
    seen: str
    functions: str = ""
    files: str = ""
    kernel: str = ""
    whole: bool = False


class _File(msgspec.Struct, forbid_unknown_fields=True):
    rule: list[_RuleEntry] = []
    class_: dict[str, str] = msgspec.field(name="class", default_factory=dict)


class _Rule(NamedTuple):
    order: int
    cost: str
    functions: re.Pattern[str] | None
    files: re.Pattern[str] | None
    kernel: re.Pattern[str] | None
    whole: bool

    def matches(self, frame: Frame) -> bool:
        if not frame.file:
            return self.kernel is not None and self.kernel.fullmatch(frame.name) is not None
        if self.functions is not None and self.functions.fullmatch(frame.name):
            return True
        return self.files is not None and self.files.fullmatch(frame.file) is not None


def without_switch(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return a stack, innermost first, without the switch to the thread that it may begin with."""
    if not frames or frames[0].file or not frames[0].name.startswith(SWITCH):
        return frames
    rest = next(
        (index for index, frame in enumerate(frames) if index and not _is_around_switch(frame)),
        len(frames),
    )
    return frames[rest:]


def _is_around_switch(frame: Frame) -> bool:
    return not frame.file and AROUND_SWITCH.fullmatch(frame.name) is not None


class CostRules:
    """The compiled rules."""

    def __init__(self, rules: Iterable[_Rule], words: Mapping[str, str]) -> None:
        self._rules = tuple(rules)
        self.words = words
        """What each class is, in words."""
        self._rule = lru_cache(maxsize=8192)(self._find)

    def _find(self, frame: Frame) -> _Rule | None:
        return next((rule for rule in self._rules if rule.matches(frame)), None)

    def decide(self, frames: Sequence[Frame]) -> str:
        """Return the class of a stack, innermost function first."""
        found = [rule for frame in frames if (rule := self._rule(frame)) is not None]
        whole = min((rule for rule in found if rule.whole), key=lambda rule: rule.order, default=None)
        if whole is not None:
            return whole.cost
        return found[0].cost if found else OTHER


def load_costs(user_file: Path | None = None) -> CostRules:
    """Return the built-in rules, with those of `user_file` in front of them. Raises ConfigError."""
    if user_file is None:
        return _builtin()
    return _rules((read_toml(user_file, _File), str(user_file)), _builtin_file())


def cost_words(cost: str) -> str:
    """Return what a class is in words; of a user's own class, its name."""
    return _builtin().words.get(cost, cost.replace("_", " "))


@cache
def _builtin() -> CostRules:
    return _rules(_builtin_file())


def _builtin_file() -> tuple[_File, str]:
    name = "costs.toml (built in)"
    return decode_toml(shipped("profile/costs.toml").read_bytes(), _File, name), name


def _rules(*files: tuple[_File, str]) -> CostRules:
    words: dict[str, str] = {}
    for file, origin in reversed(files):
        for name, what in file.class_.items():
            if not NAME.fullmatch(name) or name == OTHER:
                raise ConfigError(f"{origin}: class.{name}: not a name of up to 32 small letters, digits and _")
            words[name] = what
        if len(words) > MAX_CLASSES:
            raise ConfigError(f"{origin}: class: more than {MAX_CLASSES} classes")
    rules: list[_Rule] = []
    for file, origin in files:
        for index, rule in enumerate(file.rule):
            where = f"rule[{index}]"
            if rule.in_ not in words:
                raise ConfigError(f"{origin}: {where}.class: [class] has no {rule.in_!r}")
            functions, files_, kernel = (
                _compile(getattr(rule, key), origin, f"{where}.{key}") for key in ("functions", "files", "kernel")
            )
            if functions is None and files_ is None and kernel is None:
                raise ConfigError(f"{origin}: {where}: needs functions, files or kernel")
            rules.append(_Rule(len(rules), rule.in_, functions, files_, kernel, rule.whole))
    return CostRules(rules, words)


def _compile(pattern: str, origin: str, key: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern) if pattern else None
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{origin}: {key}: not a regular expression: {error}") from error
