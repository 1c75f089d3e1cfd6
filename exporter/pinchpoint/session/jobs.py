"""The job of a batch system in which a run is started."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["job_of"]

VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")
"""Variables in which Slurm, PBS and OpenPBS, LSF and Grid Engine give the id of a job."""
ID = re.compile(r"\d{1,20}(?:\[\d{0,10}\])?")
"""The number of a job, or of an array of jobs; PBS adds the name of its server behind a dot."""


def job_of(environment: Mapping[str, str]) -> str:
    """Return the id of the job that a process is in, by its environment; empty outside of jobs."""
    ids = (ID.match(environment.get(name, "")) for name in VARIABLES)
    return next((found[0] for found in ids if found is not None), "")
