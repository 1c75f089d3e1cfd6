"""``pinchpoint standing``: where a run of IO500 stands among the public runs of the list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import msgspec

from pinchpoint.benchmarks.io500_public import (
    TOTAL,
    PublicRun,
    file_systems,
    io500_figures,
    public_runs,
    submissions,
)
from pinchpoint.commands.options import complete_runs
from pinchpoint.diagnosis.standing import Stand, standing
from pinchpoint.session import store
from pinchpoint.session.store import StoreError
from pinchpoint.terminal.plain import fail, say, show, warn
from pinchpoint.terminal.standing import standing_parts, unit_of

__all__ = ["command"]

LIST = "https://github.com/IO500/submission-data"
DEFAULT_FILE_SYSTEM = "ceph"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--list",
    "clone",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"A clone of the list's public data: git clone {LIST}",
)
@click.option(
    "--file-system",
    default=DEFAULT_FILE_SYSTEM,
    show_default=True,
    metavar="NAME",
    help=f"Which runs are alike: {', '.join(file_systems())}, or a word in the names of their systems.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="Client nodes of the run, for figures per node. [default: as its result folder says]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the places as JSON.")
@click.argument("run", metavar="[RUN]", default=store.LAST, shell_complete=complete_runs)
def command(clone: Path, file_system: str, nodes: int | None, as_json: bool, run: str) -> None:
    """Show where a run of IO500 stands among the public runs of the list: the last one, or RUN.

    Of each phase and the score it shows the share of public runs that are slower: among all, among those with the same
    file system, and both per client node. It names the phases that are furthest behind the same file system, by what
    the score would gain: there tuning pays most. Nothing is downloaded or sent.
    """
    try:
        record = store.find(run, store.runs(warn))
    except StoreError as error:
        fail(str(error))
    figures = io500_figures(record.marker)
    if TOTAL not in figures:
        fail(f"{record.marker.run}: it is not a run of IO500 with a score; `pinchpoint runs` lists the saved ones")
    names = list(submissions(clone))
    if not names:
        why = "no folder in it is called submission-N" if clone.is_dir() else "not a directory"
        fail(f"--list {clone}: {why}; get the list's data with git clone {LIST}", 2)
    read = {name: public_runs(clone, name) for name in names}
    public = [one for runs in read.values() for one in runs]
    if not public:
        why = f"none of its {len(names)} submissions has a valid run with a score"
        fail(f"--list {clone}: {why}: is the clone complete?", 2)
    kin = _kin(public, file_system)
    if nodes is None and record.folder is not None:
        nodes = record.folder.nodes
    stands = standing(figures, nodes, public, kin)
    if as_json:
        say(json.dumps(_document(record.marker.run, nodes, file_system, stands), indent=2))
        return
    say(f"{record.marker.run}, {'client nodes not known' if nodes is None else f'client nodes: {nodes}'}")
    show(*standing_parts(stands, file_system))
    if empty := sum(not runs for runs in read.values()):
        say(f"{len(names)} submissions; {empty} of them have no valid run with a score.")
    if nodes is None:
        say("For figures per node, import its result folder, or name its client nodes: --nodes N.")


def _kin(public: list[PublicRun], file_system: str) -> list[PublicRun]:
    words = file_systems().get(file_system, (file_system,))
    kin = [one for one in public if one.is_of(words)]
    if not kin:
        fail(
            f"--file-system {file_system}: the name of no public run's system has this word; "
            f"known are {', '.join(file_systems())}",
            2,
        )
    return kin


def _document(run: str, nodes: int | None, file_system: str, stands: list[Stand]) -> dict[str, Any]:
    figures = [{"unit": unit_of(stand.figure), **msgspec.to_builtins(stand)} for stand in stands]
    return {"run": run, "nodes": nodes, "file_system": file_system, "figures": figures}
