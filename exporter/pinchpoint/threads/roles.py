"""The roles file: which threads do what, how full is too full, and when an alert fires.

The rules are data (``roles.toml`` beside this module, and an optional file of the user's, whose rules come first), so a
new Ceph release or benchmark takes a few lines of TOML.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from pinchpoint.resources import all_resources
from pinchpoint.shipped import shipped
from pinchpoint.threads.identity import NOT_THE_PROGRAM
from pinchpoint.tomlfile import ConfigError, decode_toml, read_toml

__all__ = [
    "BENCHMARK",
    "CEPH_CLIENTS",
    "KWORKER",
    "UNVERIFIED",
    "UNVERIFIED_ROLE",
    "ProcessRule",
    "Role",
    "Roles",
    "builtin_roles",
    "load_roles",
]

Unit = Literal["thread", "lock", "pool"]
State = Literal["fair_mutex", "mutex"]
BENCHMARK = "benchmark"
"""The process class of everything that a run started."""
CEPH_CLIENTS = frozenset({"ceph-client", "cephfs-client"})
"""The process classes of Ceph clients in user space."""
KWORKER = "kworker"
"""The process class whose "thread names" are the work of a workqueue worker."""
UNVERIFIED = "unverified"
"""The process class of everything that only has the name of a daemon. No role applies to it, so it is never full."""
OTHER = "_other"
"""How the names of roles for threads without a rule end."""
UNVERIFIED_ROLE = f"{UNVERIFIED}{OTHER}"
"""The role of all of its threads."""


class _ProcessEntry(msgspec.Struct, forbid_unknown_fields=True):
    match: str
    in_: str = msgspec.field(name="class")
    owner: str = "{comm}"
    kernel: bool = False
    daemon: bool = False


class _RoleEntry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    in_: list[str] = msgspec.field(name="in")
    threads: str
    help: str = ""
    owner: str | None = None
    unit: Unit | None = None
    state: State | None = None
    serves: list[str] = []
    threshold: float | None = None


class _ResourceEntry(msgspec.Struct, forbid_unknown_fields=True):
    threshold: float | None = None
    serves: list[str] = []


class _File(msgspec.Struct, forbid_unknown_fields=True):
    process: list[_ProcessEntry] = []
    role: list[_RoleEntry] = []
    resource: dict[str, _ResourceEntry] = {}
    alert: dict[str, float] = {}
    threshold: float | None = None


class ProcessRule(NamedTuple):
    """Which processes are of interest, by the name of their leader."""

    pattern: re.Pattern[str]
    class_: str
    owner: str
    """Template of the owner: ``{comm}``, ``{ceph_id}``, or ``{1}`` for a group of the pattern."""
    kernel: bool
    daemon: bool
    """Whether only a daemon counts: see `pinchpoint.threads.identity`."""


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """What a thread is for.

    `unit` says what can be full: each ``thread`` by itself, a ``lock`` (the sum over the threads that take it), a
    ``pool`` (their mean), or None for a role that is shown and never full.
    """

    name: str
    classes: frozenset[str]
    pattern: re.Pattern[str]
    owner: str | None
    unit: Unit | None
    state: State | None = None
    """How a lock shows whether it is held: see `pinchpoint.probes.locks`."""
    serves: tuple[str, ...]
    threshold: float
    fallback: bool = False
    """Whether it is ``CLASS_other``: for threads without a rule."""


class Match(NamedTuple):
    """A role together with the groups that its pattern found in a name."""

    role: Role
    groups: tuple[str, ...]


class Roles:
    """The compiled rules of the built-in file and of the user's."""

    def __init__(
        self,
        processes: Iterable[ProcessRule],
        roles: Iterable[Role],
        thresholds: Mapping[str, float],
        serves: Mapping[str, tuple[str, ...]],
        alerts: Mapping[str, float],
    ) -> None:
        self._processes = tuple(processes)
        self.roles = tuple(roles)
        self.thresholds = thresholds
        """Threshold of every resource, roles included: the busy share from which it counts as full."""
        self.serves = serves
        """Wait classes that each resource serves."""
        self.alerts = alerts
        """Thresholds of alerts that do not compare a resource's busy share."""
        self._daemons = tuple(
            start for rule in self._processes if rule.daemon and (start := rule.owner.partition("{")[0])
        )
        self._by_class: dict[str, tuple[Role, ...]] = {}
        self._locks = {class_: role for role in self.roles if role.state is not None for class_ in role.classes}
        self.process = lru_cache(maxsize=8192)(self._process)
        self.thread_role = lru_cache(maxsize=8192)(self._thread_role)

    def _process(self, comm: str, *, kernel: bool) -> tuple[ProcessRule, tuple[str, ...]] | None:
        """Return the rule for a process with that leader's name, and the groups its pattern found; None: ignored."""
        for rule in self._processes:
            if rule.kernel == kernel and (found := rule.pattern.fullmatch(comm)):
                return rule, tuple(group or "" for group in found.groups())
        return None

    def lock_of(self, class_: str) -> Role | None:
        """Return the role of the lock of such processes that shows whether it is held; None if there is none."""
        return self._locks.get(class_)

    def unruled_owner(self, comm: str) -> str:
        """Return the owner of a process that has no rule: its name, marked if a daemon's owner may be the same."""
        return f"{comm}{NOT_THE_PROGRAM}" if comm.startswith(self._daemons) else comm

    def _thread_role(self, class_: str, comm: str) -> Match:
        """Return the role of a thread named `comm` in a process of `class_`; ``CLASS_other`` if no rule matches."""
        roles = self._by_class.get(class_)
        if roles is None:
            roles = self._by_class[class_] = tuple(role for role in self.roles if class_ in role.classes)
        for role in roles:
            if found := role.pattern.fullmatch(comm):
                return Match(role, tuple(group or "" for group in found.groups()))
        other = f"{class_.replace('-', '_')}{OTHER}"
        return Match(
            Role(
                name=other,
                classes=frozenset({class_}),
                pattern=re.compile(""),
                owner=None,
                unit=None,
                serves=(),
                threshold=1.0,
                fallback=True,
            ),
            (),
        )


def load_roles(user_file: Path | None = None) -> Roles:
    """Return the built-in roles, with those of `user_file` in front of them. Raises ConfigError."""
    own = [] if user_file is None else [(read_toml(user_file, _File), str(user_file))]
    builtin = _builtin_file()
    return _merge([*own, builtin], default=builtin[0].threshold)


@cache
def builtin_roles() -> Roles:
    """Return the built-in roles. The same object each time: one has caches, and holds itself by them."""
    return load_roles()


def _builtin_file() -> tuple[_File, str]:
    name = "roles.toml (built in)"
    file = decode_toml(shipped("threads/roles.toml").read_bytes(), _File, name)
    for resource, entry in all_resources().items():
        if entry.threshold is not None:
            file.resource[resource] = _ResourceEntry(entry.threshold, list(entry.serves))
    return file, name


def _merge(files: list[tuple[_File, str]], default: float | None) -> Roles:
    overall = default
    for file, origin in reversed(files):
        if file.threshold is not None:
            overall = _ratio(file.threshold, origin, "threshold")
    processes: list[ProcessRule] = []
    roles: list[Role] = []
    thresholds: dict[str, float] = {}
    serves: dict[str, tuple[str, ...]] = {}
    alerts: dict[str, float] = {}
    # A resource's threshold may be overridden alone, so the first file that gives one wins.
    for file, origin in files:
        for name, entry in file.resource.items():
            if entry.threshold is not None:
                thresholds.setdefault(name, _ratio(entry.threshold, origin, f"resource.{name}.threshold"))
            if entry.serves:
                serves.setdefault(name, tuple(entry.serves))
        for name, value in file.alert.items():
            if not 0 <= value < math.inf:
                raise ConfigError(f"{origin}: alert.{name}: must be finite and not negative, is {value}")
            alerts.setdefault(name, value)
        for index, role in enumerate(file.role):
            if role.threshold is not None:
                where = f"role[{index}] ({role.name}).threshold"
                thresholds.setdefault(role.name, _ratio(role.threshold, origin, where))
    for file, origin in files:
        for index, process in enumerate(file.process):
            where = f"process[{index}]"
            pattern = _compile(process.match, origin, f"{where}.match")
            _check_owner(process.owner, pattern, origin, f"{where}.owner")
            processes.append(ProcessRule(pattern, process.in_, process.owner, process.kernel, process.daemon))
        for index, role in enumerate(file.role):
            where = f"role[{index}] ({role.name})"
            pattern = _compile(role.threads, origin, f"{where}.threads")
            if role.owner is not None and (role.owner != "{1}" or not pattern.groups or role.in_ != [KWORKER]):
                reason = f"only a role of {KWORKER} has one, and it is {{1}}: the first group of threads"
                raise ConfigError(f"{origin}: {where}.owner: {reason}")
            if role.unit is not None:
                if overall is not None:
                    thresholds.setdefault(role.name, overall)
                serves.setdefault(role.name, tuple(role.serves))
            roles.append(
                Role(
                    name=role.name,
                    classes=frozenset(role.in_),
                    pattern=pattern,
                    owner=role.owner,
                    unit=role.unit,
                    state=role.state,
                    serves=tuple(role.serves),
                    threshold=thresholds.get(role.name, 1.0),
                )
            )
    builtin = files[-1][0]
    names = builtin.resource.keys() | {role.name for role in roles}
    for file, origin in files:
        for kind, given, there in (("resource", file.resource, names), ("alert", file.alert, builtin.alert)):
            if strange := sorted(given.keys() - there):
                raise ConfigError(f"{origin}: {kind}.{strange[0]}: there is none of that name")
    known = {process.class_ for process in processes} | {BENCHMARK, KWORKER}
    for file, origin in files:
        for index, role in enumerate(file.role):
            if unknown := sorted(set(role.in_) - known):
                where = f"role[{index}] ({role.name}).in"
                raise ConfigError(f"{origin}: {where}: no [[process]] has the class {', '.join(unknown)}")
    return Roles(processes, roles, thresholds, serves, alerts)


def _compile(pattern: str, origin: str, key: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{origin}: {key}: not a regular expression: {error}") from error


def _check_owner(template: str, pattern: re.Pattern[str], origin: str, key: str) -> None:
    groups = {str(index + 1) for index in range(pattern.groups)}
    for name in re.findall(r"\{([^{}]*)\}", template):
        if name not in {"comm", "ceph_id"} | groups:
            raise ConfigError(f"{origin}: {key}: unknown field {{{name}}}; there are comm, ceph_id and groups {{1}}..")


def _ratio(value: float, origin: str, key: str) -> float:
    if not 0 < value <= 1:
        raise ConfigError(f"{origin}: {key}: must be above 0 and at most 1, is {value}")
    return value
