"""The ``pinchpoint`` command: each subcommand is one file in ``commands/``, imported only when it is called.

An exporter that imports the live view's libraries would carry them in memory for months.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from pinchpoint import __version__
from pinchpoint.commands.reminder import remind
from pinchpoint.ending import fill_standard_streams, leave
from pinchpoint.statuses import statuses
from pinchpoint.terminal.plain import limits_reported

__all__ = ["main", "start"]

COMMANDS = {
    "exporter": "Serve this host's metrics to Prometheus.",
    "check": "Check hosts before a run for what would slow it down, make it void, or stay invisible.",
    "run": "Run a benchmark, mark its phases, record it, and report what was full.",
    "job": "Mark the jobs of a batch system, from its prolog and epilog.",
    "watch": "Show live what is busy on this host or on others.",
    "judge": "Report what limits every run of every cluster, as a service.",
    "import": "Import runs made without Pinchpoint from the output of their benchmarks.",
    "runs": "List the saved runs.",
    "report": "Report what limited each phase of a run, the evidence, and what to do.",
    "standing": "Show where a run of IO500 stands among the public runs of the list.",
    "compare": "Compare runs phase by phase, and show which differences exceed the noise.",
    "replay": "Show a saved run as `watch` would have shown it.",
    "experiment": "Change one knob, and know whether it helped.",
    "export": "Write the samples of a run as OpenMetrics text for a Prometheus server.",
    "rules": "Print the alert rules for another scrape interval, job or runbook URL.",
    "dashboards": "Bring the Grafana dashboards into an existing Grafana.",
    "metrics": "List every metric that the exporter can serve.",
    "runbook": "Show the runbook of an alert: what it means, how to be sure, what to do.",
    "docs": "Show a page of the documentation.",
    "config": "Check a configuration file.",
    "version": "Show the version, and what of this host matters to Pinchpoint.",
}
MODULES = {"import": "import_"}
"""Modules that cannot be named after their command."""

SERVICES = frozenset({"exporter", "judge", "experiment", "job"})
"""Commands that do not remind of a knob that is still set: a service runs as another user, `experiment` restores it."""


class _Commands(click.Group):
    def main(self, *args: Any, **options: Any) -> Any:
        with limits_reported():
            return super().main(*args, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in SERVICES and not ctx.resilient_parsing:
            remind()
        command: click.Command = import_module(f"pinchpoint.commands.{MODULES.get(cmd_name, cmd_name)}").command
        command.epilog = statuses(cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin so, without importing any."""
        named = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return named or super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pinchpoint")
def main() -> None:
    """Pinchpoint shows, live, what limits a storage benchmark run and what to do about it."""


def start() -> NoReturn:
    """Run the command that the arguments of this process name, and end the process with its status."""
    fill_standard_streams()
    status = 0
    try:
        main()
    except SystemExit as end:
        status = int(end.code or 0)
    leave(status)
