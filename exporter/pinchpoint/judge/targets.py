"""The exporters: named one by one, or in files in Prometheus' file_sd_config format.

The files are lists of groups in YAML or JSON (https://prometheus.io/docs/prometheus/latest/configuration/configuration/,
file_sd_config), read again when they change.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import yaml

from pinchpoint.wire.yamlfile import MAX_NESTING, nesting

__all__ = ["Target", "TargetFiles", "TargetsError", "parse_targets"]

log = logging.getLogger(__name__)

MAX_TARGETS_FILE_BYTES = 1 << 20
"""Longest file in bytes: 10,000 targets have 0.3 MB."""
MAX_TARGETS = 10_000
"""Maximum number of targets in one file."""
MAX_LABELS = 100
"""Maximum number of labels of one group."""


class TargetsError(ValueError):
    """An invalid target file; the message says where and why."""


class Target(NamedTuple):
    """An exporter."""

    host: str
    """Its name: its label ``instance``, as in Prometheus."""
    url: str


class _TargetGroup(msgspec.Struct):
    targets: Annotated[list[str], msgspec.Meta(max_length=MAX_TARGETS)]
    labels: Annotated[dict[str, str], msgspec.Meta(max_length=MAX_LABELS)] = {}


class _Loader(yaml.SafeLoader):
    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Refuse merge keys (``<<``): ten lines of them can stand for any number of entries."""


def parse_targets(text: str, origin: str, scheme: str = "http") -> list[Target]:
    """Return the targets of a file; `origin` names it in errors. Raises TargetsError.

    `scheme` is that of targets without a label ``__scheme__``.
    """
    if nesting(text) > MAX_NESTING:
        raise TargetsError(f"{origin}: has more than {MAX_NESTING} brackets inside of each other")
    try:
        groups = msgspec.convert(yaml.load(text, _Loader) or [], list)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f":{error.problem_mark.line + 1}"
        raise TargetsError(f"{origin}{line}: not YAML: {error.problem}") from error
    except msgspec.ValidationError as error:
        raise TargetsError(f"{origin}: top level: {error}") from error
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise TargetsError(f"{origin}: not YAML: {error}") from error
    found: list[Target] = []
    for number, group in enumerate(groups):
        # One at a time: by aliases a short file may have the same long list in each of many groups.
        try:
            found += _targets(msgspec.convert(group, _TargetGroup), scheme)
        except msgspec.ValidationError as error:
            reason, _, where = str(error).partition(" - at ")
            raise TargetsError(f"{origin}: [{number}]{where.strip('`$')}: {reason}") from error
        if len(found) > MAX_TARGETS:
            raise TargetsError(f"{origin}: has more than {MAX_TARGETS} targets")
    return found


def _targets(group: _TargetGroup, scheme: str) -> Iterator[Target]:
    scheme = group.labels.get("__scheme__", scheme)
    path = group.labels.get("__metrics_path__", "/metrics")
    for address in group.targets:
        yield Target(group.labels.get("instance", address), f"{scheme}://{address}{path}")


class TargetFiles:
    """The files matched by patterns: a malformed one keeps its last targets and logs that."""

    def __init__(self, patterns: Sequence[str], scheme: str = "http") -> None:
        self.problems: dict[str, str] = {}
        """What is wrong with a file, by its path."""
        self._patterns = patterns
        self._scheme = scheme
        self._files: dict[str, tuple[object, list[Target]]] = {}

    def read(self) -> list[Target]:
        """Return the targets of all files, each once."""
        names = sorted({name for pattern in self._patterns for name in glob(pattern) or [pattern]})
        # The targets of a deleted file are dropped only if a pattern matched it: a file given by name may come back.
        self._files = {name: known for name, known in self._files.items() if name in names}
        problems: dict[str, str] = {}
        for name in names:
            try:
                self._read(name)
            except (OSError, TargetsError) as error:
                problems[name] = f"{name}: {error.strerror}" if isinstance(error, OSError) else str(error)
        for name, problem in problems.items():
            if self.problems.get(name) != problem:
                log.warning("%s; keeping its last targets", problem)
        self.problems = problems
        return list({target.host: target for _, targets in self._files.values() for target in targets}.values())

    def _read(self, name: str) -> None:
        status = os.stat(name)
        state = status.st_mtime_ns, status.st_size, status.st_ino
        if name in self._files and self._files[name][0] == state and name not in self.problems:
            return
        if status.st_size > MAX_TARGETS_FILE_BYTES:
            raise TargetsError(f"{name}: has {status.st_size} bytes, {MAX_TARGETS_FILE_BYTES} are the most")
        text = Path(name).read_bytes()[: MAX_TARGETS_FILE_BYTES + 1].decode("utf-8", "replace")
        self._files[name] = state, parse_targets(text, name, self._scheme)
