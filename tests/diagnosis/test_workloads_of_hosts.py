from __future__ import annotations

from diagnosis.history import MadeHost, snapshots
from pinchpoint.diagnosis.blame import workloads
from pinchpoint.diagnosis.usage import usages
from pinchpoint.diagnosis.verdict import verdict


def first(run: str, job: str = "", waits: str = "mds") -> MadeHost:
    """The host of the first rank of a run, which knows the run and its job."""
    host = MadeHost().works({waits: 2.0}, run=run)
    return host.gauge("pinchpoint_run_job_info", 1, benchmark="fio", run=run, job_id=job) if job else host


def another(label: str = "", waits: str = "mds") -> MadeHost:
    """A host with two more ranks, which does not know their run."""
    return MadeHost().works({waits: 2.0}, run=label)


def totals(**hosts: MadeHost) -> dict[str, float]:
    """Return how many processes each run has."""
    return {work.run: work.total for work in workloads(usages(*snapshots(**hosts)))}


def test_ranks_that_know_only_their_job_count_towards_its_run_alone() -> None:
    hosts = {"a": first("a", "1"), "b": another("job1"), "c": first("c", "2"), "d": another("job2")}
    assert totals(**hosts) == {"a": 4.0, "c": 4.0}


def test_ranks_that_know_nothing_count_towards_each_run() -> None:
    assert totals(a=first("a", "1"), b=another(), c=first("c", "2")) == {"a": 4.0, "c": 4.0}


def test_ranks_in_a_job_count_towards_a_run_whose_job_is_not_known() -> None:
    assert totals(a=first("a"), b=another("job1")) == {"a": 4.0}


def test_ranks_of_a_job_whose_run_nobody_knows_are_a_workload_of_their_own() -> None:
    assert totals(a=first("a", "1"), b=another("job3")) == {"a": 2.0, "job3": 2.0}


def test_a_verdict_is_on_the_time_of_the_runs_own_ranks() -> None:
    own = {"a": first("a", "1", "cpu"), "b": another("job1", "cpu")}

    def waits(label: str) -> dict[str, float]:
        before, after = snapshots(**own, other=another(label))
        return {wait: round(share, 2) for wait, share in verdict(before, after, benchmark="fio", run="a").waits.items()}

    assert waits("") == {"cpu": 0.67, "mds": 0.33}
    assert waits("job2") == {"cpu": 1.0}


def test_a_verdict_on_a_run_is_not_made_of_another_job() -> None:
    assert verdict(*snapshots(b=another("job1")), benchmark="fio", run="a").waits
    known = MadeHost().gauge("pinchpoint_run_job_info", 1, benchmark="fio", run="a", job_id="1")
    assert not verdict(*snapshots(a=known, b=another("job2")), benchmark="fio", run="a").waits
    assert verdict(*snapshots(a=known, b=another("job1")), benchmark="fio", run="a").waits
