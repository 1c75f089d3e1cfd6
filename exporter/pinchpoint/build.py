"""Puts the parts together: from a configuration to a running sampler."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.finder import find_in_helpers
from pinchpoint.benchmarks.markers import RunDirectory, default_run_directory
from pinchpoint.benchmarks.nursery import Nursery
from pinchpoint.benchmarks.pattern import pattern
from pinchpoint.benchmarks.registry import BENCHMARKS
from pinchpoint.bpf.choice import UnusableSourceError, choose_source
from pinchpoint.choices import AUTO
from pinchpoint.clock import STEADY
from pinchpoint.config import Config, ConfigError, phase_pattern
from pinchpoint.cost_limit import CostLimit
from pinchpoint.host.capabilities import Capability, effective, missing, names
from pinchpoint.host.users import Users, named_uids, read_subuid
from pinchpoint.metrics import PROBE_MISSING_CAPABILITY_INFO
from pinchpoint.model import THIS_HOST, Point, Snapshot, Snapshots
from pinchpoint.probes import PROBES, Host, Probe, benchmark, kworkers
from pinchpoint.probes.profile import ProfileProbe
from pinchpoint.probes.tasks import Tasks
from pinchpoint.probes.waits import Waits
from pinchpoint.profile.classes import load_costs
from pinchpoint.profile.collected import folded
from pinchpoint.quotas import SeriesQuota
from pinchpoint.sampler import Sampler, raise_priority
from pinchpoint.threads import thresholds
from pinchpoint.threads.processes import Processes
from pinchpoint.threads.roles import load_roles
from pinchpoint.threads.task_source import raise_file_limit
from pinchpoint.waits.stack_rules import load_waits
from pinchpoint.wire.connections import Refusals

__all__ = [
    "Host",
    "HostSampler",
    "LocalSource",
    "benchmark_kinds",
    "build_host",
    "enabled_probes",
    "fork_nursery",
    "local_sampler",
    "trusted_users",
]


class HostSampler(Sampler):
    """The sampler of one host: its probes' points, and the thresholds they are judged by."""

    host: Host
    refusals: Refusals | None = None
    """What the HTTP server of this process refused, if it has one."""
    profile: ProfileProbe | None = None
    """The probe of full threads, unless it is disabled."""
    lacks: Mapping[str, list[Capability]] = {}
    """The capabilities that each probe needs and this process lacked at its start."""

    def stacks(self, seconds: float = math.inf) -> str:
        """Return the stacks of threads that were full in the last `seconds`, in the folded format."""
        return folded(self.profile.profiles, STEADY.now() - seconds) if self.profile is not None else ""

    def hold_full_rate(self, seconds: float) -> None:
        """Sample at the full rate for the next `seconds`, and see for whom this host's daemons work."""
        self.host.activity.ask(time.monotonic(), seconds)

    def constants(self) -> Iterable[Point]:
        """Yield the thresholds, what the probes lack, and what the HTTP server refused."""
        yield from thresholds.points(self.host.roles)
        for probe, capabilities in self.lacks.items():
            for capability in capabilities:
                yield PROBE_MISSING_CAPABILITY_INFO.point(1, probe, names([capability]))
        if self.refusals is not None:
            yield from self.refusals.points()


class LocalSource:
    """A sampler that runs in this process, as a `pinchpoint.wire.sources.Source` of one host."""

    problems: Mapping[str, str] = {}

    def __init__(self, sampler: Sampler) -> None:
        self.name = THIS_HOST
        self._sampler = sampler
        sampler.start()

    def snapshot(self) -> Snapshot:
        """Return the sampler's series now."""
        return Snapshot.of(STEADY.now(), self._sampler.points())

    def snapshots(self) -> Snapshots:
        """Return the host under its name."""
        return {self.name: self.snapshot()}

    def stacks(self, seconds: float) -> str:
        """Return the stacks of threads that were full in the last `seconds`, in the folded format."""
        return self._sampler.stacks(seconds) if isinstance(self._sampler, HostSampler) else ""

    def close(self) -> None:
        """Stop the sampler."""
        self._sampler.stop()


def benchmark_kinds(config: Config) -> tuple[type[Benchmark], ...]:
    """Return the benchmarks to detect: the user's own, and all that Pinchpoint knows. Raises ConfigError."""
    own = [
        pattern(own.name, own.processes, phase_pattern(own.phase_pattern, f"benchmark {own.name!r}: phase-pattern"))
        for own in config.benchmark
    ]
    return (*own, *BENCHMARKS)


def trusted_users(config: Config, more: Iterable[int] = ()) -> Users:
    """Return who the configuration trusts, and `more` users. Raises ConfigError."""
    rootfs = Path(config.path.rootfs)
    try:
        named = named_uids(config.trusted_users, rootfs)
    except LookupError as error:
        missing_name = f"trusted-users: {rootfs / 'etc' / 'passwd'} has no {error.args[0]!r}: give the uid"
        raise ConfigError(missing_name) from error
    return Users((*named, *more), lambda: read_subuid(rootfs))


def build_host(config: Config, nursery: Nursery | None = None) -> Host:
    """Return the host that the configuration describes; `nursery` is that of `Host`. Raises ConfigError."""
    procfs = Path(config.path.procfs)
    roles = load_roles(Path(config.roles_file) if config.roles_file else None)
    users = trusted_users(config, (os.geteuid(),))
    runs = RunDirectory(Path(config.path.runs) if config.path.runs else default_run_directory(), procfs, users)

    def adopted() -> frozenset[int]:
        # Every probe waits while processes are scanned, even the fastest, and the directory may be on a file system
        # that hangs or is under test: only the probe that reads it anyway may wait for it.
        return (
            runs.commands if config.probe.get(benchmark.BenchmarkProbe.name, True) else runs.command_pids(time.time())
        )

    rootfs = Path(config.path.rootfs)
    processes = Processes(procfs, roles, adopted, rootfs=rootfs, users=users)
    return Host(
        procfs=procfs,
        sysfs=Path(config.path.sysfs),
        rootfs=rootfs,
        roles=roles,
        processes=processes,
        runs=runs,
        benchmarks=benchmark_kinds(config),
        users=users,
        waits=load_waits(Path(config.waits_file) if config.waits_file else None),
        costs=load_costs(Path(config.costs_file) if config.costs_file else None),
        task_source=config.task_source,
        kworker_source=config.kworker_source,
        wait_source=config.wait_source,
        nursery=nursery,
    )


def enabled_probes(config: Config) -> list[type[Probe]]:
    """Return the probes that the configuration does not switch off."""
    return [probe for probe in PROBES if config.probe.get(probe.name, True)]


def fork_nursery(config: Config) -> Nursery | None:
    """Fork the process that starts helpers, None where there can be none. Raises ConfigError.

    This process must have a single thread, and what it has read by now is in the memory of each helper.
    """
    kinds = benchmark_kinds(config)
    if not config.probe.get(benchmark.BenchmarkProbe.name, True):
        return None
    return find_in_helpers(kinds, Path(config.path.procfs))


def local_sampler(
    config: Config | None = None,
    *,
    beat: Callable[[], None] = lambda: None,
    nursery: Nursery | None = None,
    limit: CostLimit | None = None,
) -> HostSampler:
    """Return a sampler of this host, not started yet; `beat` and `limit` are those of `Sampler`. Raises ConfigError."""
    config = config or Config()
    host = build_host(config, nursery)
    raise_file_limit()
    _try_sources(config, host)
    probes = [probe(host) for probe in enabled_probes(config)]
    sampler = HostSampler(
        probes,
        config.sample_interval,
        priority=raise_priority,
        beat=beat,
        admit=SeriesQuota(host.users.trusts, time.monotonic).admit,
        activity=host.activity if config.rest else None,
        limit=limit,
    )
    sampler.host = host
    sampler.profile = next((probe for probe in probes if isinstance(probe, ProfileProbe)), None)
    held = effective()
    sampler.lacks = {
        probe.name: missing((*probe.capabilities, *probe.start_capabilities, *probe.helper_capabilities), held)
        for probe in enabled_probes(config)
    }
    return sampler


def _try_sources(config: Config, host: Host) -> None:
    """Raise ConfigError where a source that the configuration requires does not work here."""
    if config.task_source != AUTO and config.probe.get(Tasks.name, True):
        try:
            choose_source(host.procfs, lambda tgid, comm: 1, config.task_source).close()
        except (UnusableSourceError, OSError) as error:
            raise ConfigError(f"task-source {config.task_source}: {error}") from error
    if config.kworker_source != AUTO and config.probe.get(kworkers.Kworkers.name, True):
        try:
            kworkers.choose_source(host.procfs, host.processes, config.kworker_source).close()
        except UnusableSourceError as error:
            raise ConfigError(f"kworker-source {config.kworker_source}: {error}") from error
    if config.wait_source != AUTO and config.probe.get(Waits.name, True):
        try:
            Waits(host).close()
        except UnusableSourceError as error:
            raise ConfigError(f"wait-source {config.wait_source}: {error}") from error
