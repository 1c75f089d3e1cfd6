"""What the judge exports."""

from __future__ import annotations

from pinchpoint.model import Kind, Metric

__all__ = [
    "AGE",
    "BEHIND",
    "BLAME",
    "BUILD",
    "CPU",
    "FACT",
    "HOSTS",
    "INTERVAL",
    "MEMORY",
    "METRICS",
    "PHASE",
    "PROBLEM",
    "ROUND",
    "ROUNDS",
    "RUNS",
    "SINCE",
    "VERDICT",
    "WAIT",
]

RUN = ("benchmark", "run")
LIMIT = ("kind", "resource", "owner", "host")

VERDICT = Metric(
    "pinchpoint_verdict_info",
    "What limits a run now: a series for each limit that the verdict names, or one without a resource.",
    labels=(*RUN, "phase", *LIMIT, "confidence"),
)
SINCE = Metric(
    "pinchpoint_verdict_start_timestamp_seconds", "Since when this is the verdict on a run.", labels=(*RUN, "phase")
)
WAIT = Metric(
    "pinchpoint_verdict_wait_ratio",
    "Share of the time of a run's processes by what they wait for, over the last seconds.",
    labels=(*RUN, "wait"),
)
BLAME = Metric(
    "pinchpoint_verdict_blame_ratio",
    "Share of a run's time that a resource answers for, over the last seconds; the most blamed ones.",
    labels=(*RUN, "resource", "owner", "host"),
)
PHASE = Metric(
    "pinchpoint_phase_verdict_info",
    "What limited a phase that has ended, over all of it.",
    labels=(*RUN, "phase", *LIMIT, "confidence"),
)
FACT = Metric(
    "pinchpoint_run_fact_hosts", "Hosts with this setting, of a run that goes on.", labels=("run", "fact", "value")
)
HOSTS = Metric("pinchpoint_judge_hosts", "Hosts that the judge knows, by whether they answer.", labels=("state",))
PROBLEM = Metric(
    "pinchpoint_judge_problem_info",
    "Why a host, a source or a file of targets is not read.",
    labels=("source", "reason"),
)
RUNS = Metric("pinchpoint_judge_runs", "Runs that go on.")
BEHIND = Metric(
    "pinchpoint_judge_behind_runs",
    "Runs that were not judged in the last round, as no time was left for them.",
)
AGE = Metric("pinchpoint_judge_data_age_seconds", "How old the newest samples are that were judged.")
ROUND = Metric("pinchpoint_judge_round_seconds", "How long the last round took: reading what came, and judging.")
ROUNDS = Metric("pinchpoint_judge_rounds_total", "Rounds: one in each interval unless it falls behind.", Kind.COUNTER)
INTERVAL = Metric("pinchpoint_judge_interval_seconds", "Time between two rounds as it is meant to be.")
CPU = Metric("pinchpoint_judge_cpu_seconds_total", "CPU time of the judge.", Kind.COUNTER)
MEMORY = Metric("pinchpoint_judge_resident_memory_bytes", "Resident memory of the judge.")
BUILD = Metric("pinchpoint_judge_build_info", "Version of the judge.", labels=("version",))
METRICS = (
    VERDICT, SINCE, WAIT, BLAME, PHASE, FACT, HOSTS, PROBLEM, RUNS, BEHIND, AGE, ROUND, ROUNDS, INTERVAL, CPU,
    MEMORY, BUILD,
)  # fmt: skip
