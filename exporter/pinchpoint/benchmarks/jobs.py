"""The job of a batch system that a process is part of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from pinchpoint.expressions import expression
from pinchpoint.runs import JOB_PATTERN

__all__ = ["VARIABLES", "JobId", "job_id", "job_name", "job_of"]

VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")
"""Variables in which Slurm, PBS and OpenPBS, LSF and Grid Engine give the id of a job."""
ID = expression(JOB_PATTERN)
"""PBS adds the name of its server behind a dot."""
JobId = Annotated[str, Meta(pattern=rf"^(?:{JOB_PATTERN})?\Z")]
"""Id of a job; empty for none."""


def job_of(environment: Mapping[str, str]) -> str:
    """Return the id of the job that a process is in, by its environment; empty outside of jobs."""
    return next((job for name in VARIABLES if (job := job_id(environment.get(name, "")))), "")


def job_id(text: str) -> str:
    """Return the id of a job as its batch system writes it, without what follows; empty where there is none."""
    found = ID.match(text)
    return "" if found is None else found[0]


def job_name(job: str, program: str) -> str:
    """Return the name of a run of a program that has no other: with the id of its job."""
    return f"job{job}-{program}" if job else program
