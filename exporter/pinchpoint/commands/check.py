"""``pinchpoint check``: what to know about hosts before a run."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pinchpoint.build import LocalSource, local_sampler
from pinchpoint.commands.options import http_config_option, load_access, prometheus_option, targets_option
from pinchpoint.config import Config, ConfigError, load_config
from pinchpoint.diagnosis.check import SILENT, check, sources
from pinchpoint.diagnosis.findings import Finding, Level
from pinchpoint.model import Snapshot
from pinchpoint.terminal.check import check_parts
from pinchpoint.terminal.plain import fail, say, show
from pinchpoint.wire.poller import Together
from pinchpoint.wire.prometheus import PrometheusError
from pinchpoint.wire.prometheus_hosts import ask_known
from pinchpoint.wire.sources import Source, SourceError, TargetSource

if TYPE_CHECKING:
    from pinchpoint.wire.http_config import HttpAccess

__all__ = ["command"]

EXPORTER = "127.0.0.1:9748"
SETTLE_SECONDS = 2.5
"""Seconds after which our own sampler has read everything: Ceph's sockets have a second to answer."""
TARGETS_TIMEOUT_SECONDS = 6.0
"""Seconds for all targets together: name lookups have no timeout of their own."""


class _Asked:
    """The queried hosts and their answers."""

    def __init__(self) -> None:
        self.hosts: dict[str, Snapshot] = {}
        self.unreachable: dict[str, str] = {}
        self.servers: dict[str, str] = {}
        """Prometheus servers that do not answer, and why."""

    def ask(self, sources: Sequence[Source]) -> None:
        """Query all sources at once, for at most `TARGETS_TIMEOUT_SECONDS`, even if one hangs."""
        together = Together(sources, TARGETS_TIMEOUT_SECONDS)
        try:
            self.hosts.update(together.snapshots())
        except SourceError:
            pass  # each of them is named in `problems`
        finally:
            together.close()
        self.unreachable.update((name, _reason(name, why)) for name, why in together.problems.items())

    def ask_prometheus(self, url: str, access: HttpAccess | None, *, hosts: bool) -> None:
        """Query a Prometheus server for the data of Ceph's managers, and also for the hosts it scrapes."""
        try:
            known = ask_known(url, sources(), access=access)
        except PrometheusError as error:
            self.servers[url] = _reason(url, str(error))
            return
        if known.cluster is not None:
            self.hosts[url] = known.cluster
        if not hosts:
            return
        self.hosts.update(known.hosts)
        self.unreachable.update(dict.fromkeys(known.down, "Prometheus cannot scrape its exporter"))
        if not known.hosts and not known.down:
            self.servers[url] = "it knows no host with Pinchpoint; does it scrape a job named pinchpoint?"


def _reason(name: str, why: str) -> str:
    reason = why.removeprefix(f"{name}: ").removesuffix(": ")
    return re.sub(r"\[Errno -?\d+\] ", "", reason)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@targets_option("Exporters of the hosts to check; repeatable. [default: this host]")
@prometheus_option("Prometheus server to query for Ceph's health and for hosts.")
@http_config_option
@click.option("--all", "every", is_flag=True, help="Also print the checks that passed.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--config.file", "config_file", type=click.Path(path_type=Path), metavar="FILE", help="TOML file.")
def command(
    targets: list[str],
    prometheus: str | None,
    http_config: Path | None,
    every: bool,
    as_json: bool,
    config_file: Path | None,
) -> None:
    """Check hosts before a run for what would slow it down, make it void, or stay invisible.

    Checks this host by default, the hosts of --target, or with --prometheus alone every host that the server scrapes.
    It changes nothing. The exit status is 1 if problems were found and 2 if a host did not answer; the others are still
    checked.
    """
    access = load_access(http_config)
    asked = _Asked()
    try:
        config = load_config(config_file)
        if targets:
            asked.ask([TargetSource(name, access=access) for name in targets])
        elif prometheus is None:
            _ask_this_host(asked, config, access)
    except ConfigError as error:
        fail(str(error), 2)
    if prometheus is not None:
        asked.ask_prometheus(prometheus, access, hosts=not targets)
    findings = check(asked.hosts, asked.unreachable, asked.servers)
    checked = [name for name in (*asked.hosts, *asked.unreachable) if name != prometheus]
    if as_json:
        say(json.dumps(_document(findings, checked), indent=2))
    else:
        show(*check_parts(findings, checked, every=every))
    raise SystemExit(_status(findings))


def _ask_this_host(asked: _Asked, config: Config, access: HttpAccess | None) -> None:
    """Query this host's exporter, which has seen more than a new sampler; otherwise sample for a moment."""
    name = socket.gethostname()
    exporter = TargetSource(EXPORTER, access=access)
    exporter.name = name
    trial = _Asked()
    trial.ask([exporter])
    if any(metric.startswith("pinchpoint_") for host in trial.hosts.values() for metric in host.values):
        asked.hosts.update(trial.hosts)
        return
    source = LocalSource(local_sampler(config))
    source.name = name
    time.sleep(SETTLE_SECONDS)
    asked.ask([source])


def _status(findings: Sequence[Finding]) -> int:
    if any(finding.check in SILENT for finding in findings):
        return 2
    return int(any(finding.level is Level.PROBLEM for finding in findings))


def _document(findings: Sequence[Finding], hosts: Sequence[str]) -> Mapping[str, Any]:
    return {
        "hosts": list(hosts),
        "unreachable": [host for finding in findings if finding.check in SILENT for host in finding.hosts],
        "findings": [
            {
                "check": finding.check,
                "what": finding.what,
                "level": str(finding.level),
                "hosts": list(finding.hosts),
                "found": finding.text,
                "matters": finding.matters,
                "harmless": finding.harmless,
                "page": finding.page,
            }
            for finding in findings
        ],
    }
