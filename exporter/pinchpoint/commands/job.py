"""``pinchpoint job``: marks the jobs of a batch system, for the exporter of the host."""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path
from typing import Any

import click

from pinchpoint.benchmarks.job_marks import MAX_USER_CHARACTERS, JobMark, JobMarks
from pinchpoint.benchmarks.jobs import VARIABLES, job_id, job_of
from pinchpoint.benchmarks.shared_directory import RUNS
from pinchpoint.host.users import ROOT
from pinchpoint.statuses import statuses
from pinchpoint.terminal.plain import fail, say

__all__ = ["command"]

USER_VARIABLES = ("SLURM_JOB_UID", "LSFUSER")
"""Variables in which a prolog of Slurm, and one of LSF, gets the user of the job."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Mark the jobs of a batch system, from its prolog and epilog.

    With marks, the ranks of a job count towards its run on every host, whatever else runs in the cluster, and
    pinchpoint_job_start_timestamp_seconds shows which job ran where and when.
    """


def _job(context: click.Context, parameter: click.Parameter, text: str | None) -> str:
    job = job_of(os.environ) if text is None else job_id(text)
    if not job:
        raise click.BadParameter(
            f"none of {', '.join(VARIABLES)} is set" if text is None else f"{text!r} does not begin with a number"
        )
    return job


def _user(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, str]:
    """Return the uid and the name of the job's user."""
    named = text or next((value for name in USER_VARIABLES if (value := os.environ.get(name))), None)
    if named is None:
        raise click.BadParameter(f"none of {', '.join(USER_VARIABLES)} is set")
    try:
        entry = pwd.getpwuid(int(named)) if named.isascii() and named.isdigit() else pwd.getpwnam(named)
    except (KeyError, ValueError, OverflowError):
        raise click.BadParameter(f"this host has no user {named!r}") from None
    return entry.pw_uid, entry.pw_name[:MAX_USER_CHARACTERS]


def _job_option(function: Any) -> Any:
    flags: dict[str, Any] = {"type": click.Path(path_type=Path), "metavar": "DIR", "default": RUNS}
    function = click.option("--path.runs", "runs", help="Directory for marks. [default: /run/pinchpoint]", **flags)(
        function
    )
    return click.option(
        "--job", callback=_job, metavar="ID", help="The job. [default: that of the environment, such as SLURM_JOB_ID]"
    )(function)


@command.command(epilog=statuses("job begin"))
@_job_option
@click.option(
    "--user", callback=_user, metavar="NAME", help="Its user, by name or uid. [default: SLURM_JOB_UID or LSFUSER]"
)
def begin(*, job: str, runs: Path, user: tuple[int, str]) -> None:
    """Mark a job as running on this host, in a prolog. Only marks of root count."""
    if os.geteuid() != ROOT:
        fail("only marks of root count: call this in the prolog; in a job, `pinchpoint run` marks the run", 2)
    uid, name = user
    try:
        JobMarks(runs).begin(JobMark(job, uid, name, time.time()))
    except OSError as error:
        fail(f"{error.filename or runs}: {error.strerror}")


@command.command(epilog=statuses("job end"))
@_job_option
def end(*, job: str, runs: Path) -> None:
    """Remove the mark of a job, in an epilog."""
    try:
        found = JobMarks(runs).end(job)
    except OSError as error:
        fail(f"{error.filename or runs}: {error.strerror}")
    if not found:
        say(f"job {job} is not marked on this host")
