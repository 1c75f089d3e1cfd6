"""The job of a batch system that a process is part of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

__all__ = ["VARIABLES", "JobId", "job_name", "job_of"]

VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")
"""Variables in which Slurm, PBS and OpenPBS, LSF and Grid Engine give the id of a job."""
PATTERN = r"[0-9]{1,20}(?:\[[0-9]{0,10}\])?"
"""The number of a job, or of an array of jobs; PBS adds the name of its server behind a dot."""
ID = re.compile(PATTERN)
JobId = Annotated[str, Meta(pattern=rf"^(?:{PATTERN})?\Z")]
"""Id of a job; empty for none."""


def job_of(environment: Mapping[str, str]) -> str:
    """Return the id of the job that a process is in, by its environment; empty outside of jobs."""
    ids = (ID.match(environment.get(name, "")) for name in VARIABLES)
    return next((found[0] for found in ids if found is not None), "")


def job_name(job: str, program: str) -> str:
    """Return the name of a run of a program that has no other: with the id of its job."""
    return f"job{job}-{program}" if job else program
