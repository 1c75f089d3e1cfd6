"""The configuration file: TOML, typed; every error names the file, the key and the reason."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pinchpoint.choices import AUTO, KWORKER_SOURCES, LOG_LEVELS, PROBE_HELP, TASK_SOURCES, WAIT_SOURCES
from pinchpoint.tomlfile import ConfigError, read_toml
from pinchpoint.wire.addresses import AddressError, parse_address

__all__ = ["Config", "ConfigError", "Problem", "check_config", "load_config", "phase_pattern", "problems", "with_flags"]

MIN_SAMPLE_INTERVAL_SECONDS, MAX_SAMPLE_INTERVAL_SECONDS = 0.02, 10.0
"""Bounds of the sampling interval in seconds."""
MIN_COST_LIMIT, MAX_COST_LIMIT = 0.005, 100.0
"""Bounds of the limit of the exporter's own cost, in CPUs."""


class Paths(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """Where the observed host's file systems are mounted."""

    procfs: str = "/proc"
    sysfs: str = "/sys"
    rootfs: str = "/"
    runs: str | None = None


class Web(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """Where metrics are served, and how they are protected."""

    listen_address: str = ":9748"
    telemetry_path: str = "/metrics"
    config_file: str | None = None
    """TLS and passwords, in the format of exporter-toolkit."""
    systemd_socket: bool = False
    """Whether the service manager's sockets are used instead of an address."""


class OwnBenchmark(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """A benchmark unknown to Pinchpoint, and how its output names its phases."""

    name: str
    """The ``benchmark`` label."""
    processes: list[str]
    """Names of the processes that may be its leader."""
    phase_pattern: str
    """A regular expression: a matching line begins a phase, named by group ``phase`` or the first group."""


class Config(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """Everything that can be configured. Command-line flags take precedence."""

    sample_interval: float = 0.1
    rest: bool = True
    """Whether probes are sampled less often while nothing happens on the host."""
    cost_limit: float = 0.1
    """CPUs that the exporter may use, on average over 10 s, before it samples less often; 0.1 is 10 % of one."""
    roles_file: str | None = None
    waits_file: str | None = None
    costs_file: str | None = None
    task_source: str = AUTO
    """How threads are read: one of `pinchpoint.choices.TASK_SOURCES`."""
    kworker_source: str = AUTO
    """How the time of workqueue workers is attributed: one of `pinchpoint.choices.KWORKER_SOURCES`."""
    wait_source: str = AUTO
    """How it is found out what benchmarks wait for: one of `pinchpoint.choices.WAIT_SOURCES`."""
    log_level: str = "info"
    trusted_users: list[str | int] = []
    """Names or uids of users whose benchmarks and markers count as root's do."""
    path: Paths = msgspec.field(default_factory=Paths)
    web: Web = msgspec.field(default_factory=Web)
    probe: dict[str, bool] = {}
    """Which probes run; those not named do."""
    benchmark: list[OwnBenchmark] = []


def load_config(path: Path | None) -> Config:
    """Return the configuration of a file, or the defaults for None. Raises ConfigError."""
    if path is None:
        return Config()
    config = read_toml(path, Config)
    check_config(config, str(path))
    if config.roles_file is not None:
        config.roles_file = str(path.parent / config.roles_file)
    if config.waits_file is not None:
        config.waits_file = str(path.parent / config.waits_file)
    if config.costs_file is not None:
        config.costs_file = str(path.parent / config.costs_file)
    if config.web.config_file is not None:
        config.web.config_file = str(path.parent / config.web.config_file)
    return config


def with_flags(config: Config, flags: Mapping[str, Any]) -> Config:
    """Return the configuration with the flags of `pinchpoint exporter`, by their parameters' names.

    Raises ConfigError, or AddressError for an address.
    """
    if flags["web_config_file"] is not None:
        config.web.config_file = flags["web_config_file"]
    if flags["systemd_socket"] is not None:
        config.web.systemd_socket = flags["systemd_socket"]
    if flags["telemetry_path"] is not None:
        config.web.telemetry_path = flags["telemetry_path"]
    for name in ("procfs", "sysfs", "rootfs", "runs"):
        if flags[name] is not None:
            setattr(config.path, name, flags[name])
    for name in ("sample_interval", "rest", "cost_limit", "task_source", "kworker_source", "wait_source", "log_level"):
        if flags[name] is not None:
            setattr(config, name, flags[name])
    for name in PROBE_HELP:
        if (wanted := flags[f"probe_{name}"]) is not None:
            config.probe[name] = wanted
    check_config(config, "command line")
    for address in flags["listen"]:
        parse_address(address)
    for name in ("procfs", "sysfs", "rootfs"):
        path = getattr(config.path, name)
        if not os.path.isdir(path):
            raise ConfigError(f"--path.{name}: {path} is not a directory")
    return config


def phase_pattern(text: str, origin: str) -> re.Pattern[str]:
    """Return a regular expression that names phases. Raises ConfigError."""
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"{origin}: {text!r} is not a valid Python regular expression: {error}") from error


class Problem(NamedTuple):
    """A value that cannot be used."""

    path: tuple[str | int, ...]
    """The keys that lead to it, from the top; a number counts the tables of an array, from 0."""
    reason: str
    """What it must be."""


def check_config(config: Config, origin: str) -> None:
    """Check what types can't express. Raises ConfigError."""
    for path, reason in problems(config):
        raise ConfigError(f"{origin}: {_named(config, path)}: {reason}")


def _named(config: Config, path: tuple[str | int, ...]) -> str:
    match path:
        case ("benchmark", int(index), key):
            return f"benchmark {config.benchmark[index].name!r}: {key}"
    return ".".join(map(str, path))


def problems(config: Config) -> Iterator[Problem]:
    """Yield everything that types can't express, each with what it must be."""
    if not MIN_SAMPLE_INTERVAL_SECONDS <= config.sample_interval <= MAX_SAMPLE_INTERVAL_SECONDS:
        bounds = f"{MIN_SAMPLE_INTERVAL_SECONDS:g} to {MAX_SAMPLE_INTERVAL_SECONDS:g} seconds"
        yield Problem(("sample-interval",), f"must be {bounds}")
    if not MIN_COST_LIMIT <= config.cost_limit <= MAX_COST_LIMIT:
        yield Problem(("cost-limit",), f"must be {MIN_COST_LIMIT:g} to {MAX_COST_LIMIT:g} CPUs")
    if config.task_source not in TASK_SOURCES:
        yield Problem(("task-source",), f"must be one of {', '.join(TASK_SOURCES)}")
    if config.kworker_source not in KWORKER_SOURCES:
        yield Problem(("kworker-source",), f"must be one of {', '.join(KWORKER_SOURCES)}")
    if config.wait_source not in WAIT_SOURCES:
        yield Problem(("wait-source",), f"must be one of {', '.join(WAIT_SOURCES)}")
    for name in config.probe:
        if name not in PROBE_HELP:
            yield Problem(("probe", name), f"unknown probe; known probes are {', '.join(PROBE_HELP)}")
    for name, path in msgspec.structs.asdict(config.path).items():
        if path is not None and (not path or "\0" in path):
            yield Problem(("path", name), f"{path!r} is not a valid path")
    try:
        parse_address(config.web.listen_address)
    except AddressError as error:
        yield Problem(("web", "listen-address"), str(error))
    if not config.web.telemetry_path.startswith("/") or config.web.telemetry_path in ("/", "/-/healthy"):
        yield Problem(("web", "telemetry-path"), "must be a path other than / and /-/healthy")
    for index, own in enumerate(config.benchmark):
        where = ("benchmark", index)
        if not re.fullmatch("[a-z][a-z0-9_]{0,63}", own.name):
            reason = "must be of lower-case letters, digits and _, and begin with a letter"
            yield Problem((*where, "name"), reason)
        if not own.processes or not all(own.processes):
            yield Problem((*where, "processes"), "name at least one process (its comm: see ps -o comm)")
        try:
            phase_pattern(own.phase_pattern, "")
        except ConfigError as error:
            yield Problem((*where, "phase-pattern"), str(error).removeprefix(": "))
    if config.log_level not in LOG_LEVELS:
        yield Problem(("log-level",), f"must be one of {', '.join(LOG_LEVELS)}")
