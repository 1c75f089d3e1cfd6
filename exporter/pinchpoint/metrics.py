"""Every metric that the exporter and the judge export: the single definition of its name, help text, kind and labels.

Code that makes or reads a series imports the constant, so a name appears only here.
"""

from __future__ import annotations

from pinchpoint.model import Metric, MetricKind

__all__ = ["EXPORTER", "JUDGE", "KEEP_ENDED_SECONDS", "TREND"]

KEEP_ENDED_SECONDS = 900.0
"""Seconds for which a series is shown after its subject has ended, so that a scrape still sees its last value."""

RUN = ("benchmark", "run")
PHASE = (*RUN, "phase")
RESULT = (*PHASE, "operation", "unit")


def _gauge(name: str, text: str, *labels: str, steady: bool = False) -> Metric:
    return Metric(name, text, MetricKind.GAUGE, labels, steady=steady)


def _number(name: str, text: str, *labels: str) -> Metric:
    """Return a gauge whose name has no unit: a count, yes or no, or a value whose unit is given elsewhere."""
    return Metric(name, text, MetricKind.GAUGE, labels, unitless=True)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, text, MetricKind.COUNTER, labels)


THREAD_CPU_SECONDS = _counter(
    "pinchpoint_thread_cpu_seconds_total", "CPU time used by the threads of a role.", "role", "owner"
)
THREAD_RUNQUEUE_SECONDS = _counter(
    "pinchpoint_thread_runqueue_seconds_total",
    "Time the threads of a role were runnable but had no CPU (includes CFS quota throttling).",
    "role",
    "owner",
)
THREADS = _number("pinchpoint_threads", "Number of threads of a role.", "role", "owner")
RESOURCE_BUSY_SECONDS = _counter(
    "pinchpoint_resource_busy_seconds_total",
    "Time the resource could take no more work: on CPU, waiting for a CPU, or blocked below.",
    "resource",
    "owner",
    "serves",
)
RESOURCE_SATURATED_SECONDS = _counter(
    "pinchpoint_resource_saturated_seconds_total",
    "Time covered by samples in which the resource was full: its busy share was at or above its threshold, and, for a "
    "disk, requests queued. Of disks and links a sample covers a short window.",
    "resource",
    "owner",
    "serves",
)
RESOURCE_RUNQUEUE_SECONDS = _counter(
    "pinchpoint_resource_runqueue_seconds_total",
    "Part of the busy time in which the resource was runnable but had no CPU (includes CFS quota throttling).",
    "resource",
    "owner",
)
RESOURCE_BLOCKED_SECONDS = _counter(
    "pinchpoint_resource_blocked_seconds_total",
    "Part of the busy time in which the resource waited for something below it.",
    "resource",
    "owner",
)
LOCK_OBSERVED_SECONDS = _counter(
    "pinchpoint_lock_observed_seconds_total",
    "Time for which the state of the lock was known: from when it was first found, while threads waited for it.",
    "resource",
    "owner",
)
LOCK_HELD_SECONDS = _counter(
    "pinchpoint_lock_held_seconds_total", "Part of the observed time in which the lock was held.", "resource", "owner"
)
LOCK_WAITING_SECONDS = _counter(
    "pinchpoint_lock_waiting_seconds_total",
    "Time for which threads waited for mds_lock, in the observed time: the sum over all of them. client_lock does not "
    "show who waits.",
    "resource",
    "owner",
)
UNKNOWN_THREAD_BUSY_RATIO = _gauge(
    "pinchpoint_unknown_thread_busy_ratio",
    "Share of the last 3 s in which one of the three busiest threads without a role ran or waited for a CPU; absent "
    "below 0.1. Of threads whose names differ in digits one counts. A name gives way only when another thread is "
    "busier by 0.2 or this one falls below 0.1.",
    "thread",
    "process",
)
TASK_SOURCE_INFO = _gauge(
    "pinchpoint_task_source_info",
    "Method used to read threads, and why nothing better was available.",
    "source",
    "file",
    "reason",
)
TASKS_FOLLOWED = _number("pinchpoint_tasks_followed", "Threads being sampled.")
TASKS_UNREADABLE = _number(
    "pinchpoint_tasks_unreadable",
    "Processes and threads, of interest or unknown, that the exporter lacks permission to read (hidepid).",
)
UNVERIFIED_PROCESSES = _number(
    "pinchpoint_unverified_processes",
    "Processes that have the name of a daemon, but not its user or its executable; absent where there are none.",
    "class",
)
KWORKER_SOURCE_INFO = _gauge(
    "pinchpoint_kworker_source_info",
    "Method used to attribute the time of workqueue workers to their work, and why nothing better was available.",
    "source",
    "reason",
)
PHASE_ACTIVE = _number("pinchpoint_phase_active", "1 while the phase of a benchmark run is in progress.", *PHASE)
PHASE_START_TIMESTAMP_SECONDS = _gauge(
    "pinchpoint_phase_start_timestamp_seconds", "Start of the phase, in Unix time.", *PHASE
)
PHASE_ELAPSED_SECONDS = _gauge(
    "pinchpoint_phase_elapsed_seconds", "Time since the phase began, or its total duration once it has ended.", *PHASE
)
PHASE_EXPECTED_SECONDS = _gauge(
    "pinchpoint_phase_expected_seconds", "Expected duration of the phase, from the benchmark's own options.", *PHASE
)
PHASE_PROGRESS_RATIO = _gauge(
    "pinchpoint_phase_progress_ratio",
    "Share of the phase that is complete; absent where progress is not visible.",
    *PHASE,
)
PHASE_NUMBER = _number("pinchpoint_phase_number", "Position of the phase in its run, starting from 1.", *PHASE)
PHASE_STALLED_SECONDS = _gauge(
    "pinchpoint_phase_stalled_seconds",
    "Time since the active phase last made progress; absent where its work is not visible.",
    *PHASE,
)
PHASE_SECOND_HALF_RATIO = _gauge(
    "pinchpoint_phase_second_half_ratio",
    "Throughput of the second half of the phase so far divided by that of the first half; absent where its work is "
    "not visible.",
    *PHASE,
)
PHASE_VALID = _number("pinchpoint_phase_valid", "0 if the benchmark reports the phase's result as invalid.", *PHASE)
PHASE_SOURCE_INFO = _gauge("pinchpoint_phase_source_info", "Method used to detect the active phase.", *PHASE, "source")
PHASE_RATE = _number(
    "pinchpoint_phase_rate",
    "Current rate of the active phase, as last printed by the benchmark, in base units.",
    *RESULT,
)
PHASE_RESULT = _number(
    "pinchpoint_phase_result",
    "Result of the phase as reported by the benchmark, in base units.",
    *RESULT,
)
RUN_START_TIMESTAMP_SECONDS = _gauge("pinchpoint_run_start_timestamp_seconds", "Start of the run, in Unix time.", *RUN)
RUN_END_TIMESTAMP_SECONDS = _gauge(
    "pinchpoint_run_end_timestamp_seconds", "End of the run, in Unix time; absent while the run is in progress.", *RUN
)
RUN_STATE = _number(
    "pinchpoint_run_state", "1 for the current state of the run, 0 for all other states.", *RUN, "state"
)
RUN_VALID = _number(
    "pinchpoint_run_valid", "0 if the benchmark reports the run, or one of its results, as invalid.", *RUN
)
RUN_SCORE = _number("pinchpoint_run_score", "Score of the run as reported by the benchmark.", *RUN, "operation", "unit")
RUN_PHASES = _number("pinchpoint_run_phases", "Number of phases the run will have; absent where it is not known.", *RUN)
RUN_BLIND_INFO = _gauge(
    "pinchpoint_run_blind_info",
    "What the exporter cannot read about the run: it lacks permission, reading hangs (hung), the user has no helper "
    "process at the moment (helper), or its output goes to another host (output).",
    *RUN,
    "what",
)
RUN_JOB_INFO = _gauge("pinchpoint_run_job_info", "The batch job that the run is part of.", *RUN, "job_id")
JOB_START_TIMESTAMP_SECONDS = _gauge(
    "pinchpoint_job_start_timestamp_seconds",
    "Start of a batch job on this host, in Unix time, while it runs; only where the batch system's prolog marks jobs.",
    "job_id",
    "user",
)
BENCHMARK_HELPERS = _number(
    "pinchpoint_benchmark_helpers",
    "Helper processes that read the files of benchmarks, one for each user who runs one; absent where the exporter "
    "itself reads them.",
)
BENCHMARK_HELPER_RESTARTS = _counter(
    "pinchpoint_benchmark_helper_restarts_total",
    "Helper processes that were replaced: hung (no answer for 10 s), invalid (an answer that cannot be), ended (killed "
    "or beyond a limit).",
    "reason",
)
WORKLOAD_SECONDS = _counter(
    "pinchpoint_workload_seconds_total",
    "Time of the benchmark's processes, by what they were doing or waiting for.",
    *RUN,
    "wait",
)
WORKLOAD_PROCESSES = _number("pinchpoint_workload_processes", "Benchmark processes, excluding idle helpers.", *RUN)
WORKLOAD_OWNER_INFO = _gauge(
    "pinchpoint_workload_owner_info",
    "Owner label of this run's processes in pinchpoint_resource_* series.",
    *RUN,
    "owner",
)
WORKLOAD_CLIENT_INFO = _gauge(
    "pinchpoint_workload_client_info",
    "Ceph clients that serve a benchmark, by the owner label of their resources.",
    *RUN,
    "client",
)
WORKLOAD_DONE = _counter(
    "pinchpoint_workload_done_total",
    "Work of the benchmark's processes: bytes that they moved by calls or at storage, whichever is more (bytes), and "
    "how often their main threads slept (waits: a request that is waited for is one).",
    *RUN,
    "unit",
)
WORKLOAD_RANKS = _number(
    "pinchpoint_workload_ranks",
    "Ranks, jobs or worker processes of the benchmark, by whether they still work or wait for the others (done); "
    "absent where only one process works.",
    *RUN,
    "state",
)
WORKLOAD_RANK_SECONDS = _counter(
    "pinchpoint_workload_rank_seconds_total",
    "Time of the benchmark's ranks, summed over them, by whether they worked or waited for the others (done).",
    *RUN,
    "state",
)
WORKLOAD_RANK_RATE = _number(
    "pinchpoint_workload_rank_rate",
    "Rate of the slowest, the median and the fastest rank since they last began together, while each worked, and the "
    "median absolute deviation of all, in units per second.",
    *RUN,
    "which",
    "unit",
)
WORKLOAD_RANK_WORK = _number(
    "pinchpoint_workload_rank_work",
    "What the slowest, the median and the furthest rank have done since they last began together, in the given unit.",
    *RUN,
    "which",
    "unit",
)
WORKLOAD_RANKS_WAITED_RATIO = _gauge(
    "pinchpoint_workload_ranks_waited_ratio",
    "Share of the ranks' time since they last began together in which they waited for the others.",
    *RUN,
)
WORKLOAD_SLOWEST_RANK = _number(
    "pinchpoint_workload_slowest_rank",
    "Number of the slowest rank that still works: its rank in MPI (mpi), or its place by its start among the processes "
    "(start) or the threads (thread).",
    *RUN,
    "numbered",
)
WORKLOAD_SLOWEST_RANK_SECONDS = _counter(
    "pinchpoint_workload_slowest_rank_seconds_total",
    "Time of the rank that was the slowest at each moment, by what it was doing or waiting for.",
    *RUN,
    "wait",
)
WAITS_SOURCE_INFO = _gauge(
    "pinchpoint_waits_source_info",
    "Method used to determine waits (bpf, stack, wchan or none), and why nothing better was available.",
    "source",
    "reason",
)
WAITS_KERNEL_SECONDS = _counter(
    "pinchpoint_waits_kernel_seconds_total",
    "CPU time that looking at waits has used in the kernel, outside of the exporter.",
)
WORKLOAD_UNKNOWN_STACKS = _number(
    "pinchpoint_workload_unknown_stacks", "Distinct recent kernel stacks that match no rule (listed by watch --stacks)."
)
PATH_SECONDS = _counter(
    "pinchpoint_path_seconds_total",
    "Time of the benchmark's threads in windows, by who was responsible for it (nobody: they themselves) and what they "
    "did: cpu, runqueue, or a wait for a timer, disk, network, interrupt, for what was earlier than the window, or for "
    "what did not come in it (pending).",
    *RUN,
    "owner",
    "role",
    "kind",
)
PATH_PASSED_SECONDS = _counter(
    "pinchpoint_path_passed_seconds_total",
    "Part of the time of an owner's role after which it woke another, which went on.",
    *RUN,
    "owner",
    "role",
    "to_owner",
    "to_role",
)
PATH_THREAD_SECONDS = _counter(
    "pinchpoint_path_thread_seconds_total",
    "Time of all of the benchmark's threads in windows, without those that were asleep.",
    *RUN,
)
PATH_RATIO = _gauge(
    "pinchpoint_path_ratio",
    "Share of the time of the benchmark's threads in the last four windows for which an owner's role was responsible "
    "(nobody: they themselves); absent below 0.01.",
    *RUN,
    "owner",
    "role",
)
PATH_SERVED_SECONDS = _counter(
    "pinchpoint_path_served_seconds_total",
    "Time in windows between requests of other hosts and this host's answers, by this end of the TCP connections "
    "(address and port), and by who was responsible for it and what they did, as in pinchpoint_path_seconds_total.",
    "endpoint",
    "owner",
    "role",
    "kind",
)
PATH_SERVED_PASSED_SECONDS = _counter(
    "pinchpoint_path_served_passed_seconds_total",
    "Part of the time of an owner's role after which it woke another, which went on, or answered (nobody).",
    "endpoint",
    "owner",
    "role",
    "to_owner",
    "to_role",
)
PATH_SERVED_ANSWERS = _counter("pinchpoint_path_served_answers_total", "These answers of this host.", "endpoint")
PATH_TRIP_SECONDS = _counter(
    "pinchpoint_path_trip_seconds_total",
    "Time in windows between requests to an end of a TCP connection on another host and its answers.",
    "endpoint",
)
PATH_TRIPS = _counter("pinchpoint_path_trips_total", "These answers of another host.", "endpoint")
PATH_OPEN_SECONDS = _counter("pinchpoint_path_window_seconds_total", "Time in windows.")
PATH_WAKEUPS = _counter("pinchpoint_path_wakeups_total", "Wake-ups on this host that were seen in windows.")
PATH_LOST_SECONDS = _counter(
    "pinchpoint_path_lost_seconds_total", "Time of waits in windows that found no room in the kernel's maps."
)
PATH_FULL = _counter(
    "pinchpoint_path_full_total", "Threads, names and ends of connections in windows that found no room in these maps."
)
PATH_SOURCE_INFO = _gauge(
    "pinchpoint_path_source_info",
    "Method used to see who wakes whom (bpf or none), and why nothing better was available.",
    "source",
    "reason",
)
COST_SAMPLES = _counter(
    "pinchpoint_cost_samples_total",
    "Stack samples of the resource's threads while it was full, by what they spent CPU time on.",
    "resource",
    "owner",
    "class",
)
COST_RATIO = _gauge(
    "pinchpoint_cost_ratio",
    "Share of the CPU time of the resource's threads by what it is spent on, from the last 100 to 1,000 samples; "
    "absent with fewer, and when the resource has not been full for 15 min.",
    "resource",
    "owner",
    "class",
)
COST_LOST_SAMPLES = _counter(
    "pinchpoint_cost_lost_samples_total", "Stack samples that were lost because they were read too late."
)
COST_SOURCE_INFO = _gauge(
    "pinchpoint_cost_source_info",
    "How full threads are sampled (perf_events, or none), and why they cannot be, or have no names.",
    "source",
    "reason",
)
CPU_IDLE_STATE_SECONDS = _counter(
    "pinchpoint_cpu_idle_state_seconds_total", "Time for which the CPU requested the idle state.", "cpu", "state"
)
CPU_IDLE_STATE_ENTRIES = _counter(
    "pinchpoint_cpu_idle_state_entries_total", "Number of times the CPU entered the idle state.", "cpu", "state"
)
CPU_IDLE_STATE_EXIT_LATENCY_SECONDS = _gauge(
    "pinchpoint_cpu_idle_state_exit_latency_seconds",
    "Longest time a CPU needs to leave the idle state, according to its driver.",
    "state",
    steady=True,
)
CPU_IDLE_STATE_DISABLED_CPUS = _gauge(
    "pinchpoint_cpu_idle_state_disabled_cpus",
    "CPUs on which the idle state is disabled.",
    "state",
    steady=True,
)
CPU_IDLE_EXIT_SECONDS = _counter(
    "pinchpoint_cpu_idle_exit_seconds_total",
    "Time lost leaving idle states: entries x exit latency, summed over the states.",
    "cpu",
)
CPU_FREQUENCY_HERTZ = _gauge("pinchpoint_cpu_frequency_hertz", "Clock frequency of the CPU when last sampled.", "cpu")
CPU_FREQUENCY_MAX_HERTZ = _gauge(
    "pinchpoint_cpu_frequency_max_hertz",
    "Highest clock frequency that the hardware supports.",
    "cpu",
    steady=True,
)
CPU_FREQUENCY_LIMIT_HERTZ = _gauge(
    "pinchpoint_cpu_frequency_limit_hertz",
    "Highest clock frequency the CPU is allowed to use; present only where it is below the hardware's maximum.",
    "cpu",
)
CPU_GOVERNOR_INFO = _gauge(
    "pinchpoint_cpu_governor_info",
    "Scaling driver, governor and energy preference in use on at least one CPU.",
    "driver",
    "governor",
    "epp",
)
CPU_TURBO_DISABLED = _number("pinchpoint_cpu_turbo_disabled", "1 if frequencies above the base clock are disabled.")
CPU_PERFORMANCE_LIMIT_RATIO = _gauge(
    "pinchpoint_cpu_performance_limit_ratio", "Share of the hardware's performance that intel_pstate is allowed to use."
)
CPU_CLOCK_RATIO = _gauge(
    "pinchpoint_cpu_clock_ratio",
    "Clock frequency divided by its maximum: mean of all CPUs weighted by busy time (busy), or of CPUs at least 80 "
    "% busy (full).",
    "cpus",
)
NETWORK_NAMESPACE_HIDDEN_INFO = _gauge(
    "pinchpoint_network_namespace_hidden_info",
    "Owner whose links are in another network namespace and cannot be read, and why.",
    "owner",
    "reason",
)
STORAGE_DEVICE_INFO = _gauge(
    "pinchpoint_storage_device_info",
    "Whole disk under the owner's open files, and the backing device under which writeback knows it; the disk is "
    "empty for a network file system.",
    "owner",
    "device",
    "bdi",
)
STORAGE_ROTATIONAL = _number(
    "pinchpoint_storage_rotational",
    "1 if a disk under the OSD's open files is a rotating one, 0 if all are solid-state, as the kernel says.",
    "owner",
)
MEMORY_DIRTY_BYTES = _gauge("pinchpoint_memory_dirty_bytes", "Page cache waiting to be written back.")
MEMORY_WRITEBACK_BYTES = _gauge("pinchpoint_memory_writeback_bytes", "Page cache being written back.")
MEMORY_DIRTY_THRESHOLD_BYTES = _gauge(
    "pinchpoint_memory_dirty_threshold_bytes", "Amount of dirty page cache at which writers have to wait for writeback."
)
MEMORY_ALLOCATION_STALLS = _counter(
    "pinchpoint_memory_allocation_stalls_total",
    "Allocations that had to reclaim memory themselves because kswapd could not keep up.",
)
CGROUP_CPU_PERIODS = _counter(
    "pinchpoint_cgroup_cpu_periods_total",
    "CPU quota periods in which there was work, for the owner's most throttled cgroup.",
    "owner",
)
CGROUP_CPU_THROTTLED_PERIODS = _counter(
    "pinchpoint_cgroup_cpu_throttled_periods_total",
    "CPU quota periods in which the quota was used up, for the owner's most throttled cgroup.",
    "owner",
)
CGROUP_CPU_THROTTLED_SECONDS = _counter(
    "pinchpoint_cgroup_cpu_throttled_seconds_total",
    "Time for which the CPU quota throttled CPUs, summed over CPUs, for the owner's most throttled cgroup.",
    "owner",
)
CGROUP_CPU_QUOTA_CPUS = _gauge(
    "pinchpoint_cgroup_cpu_quota_cpus", "Number of CPUs allowed by the owner's tightest CPU quota.", "owner"
)
CGROUP_IO_LIMIT = _number(
    "pinchpoint_cgroup_io_limit",
    "Tightest block I/O limit on the owner's cgroups, in the unit given by the limit label.",
    "owner",
    "device",
    "limit",
)
CGROUP_MEMORY_LIMIT_BYTES = _gauge(
    "pinchpoint_cgroup_memory_limit_bytes", "Tightest memory limit (maximum or high) on the owner's cgroups.", "owner"
)
MDS_RANK_HELD = _number(
    "pinchpoint_mds_rank_held",
    "1 if the MDS holds a rank (active) or follows one (standby-replay), 0 if it is a standby.",
    "daemon",
)
MDS_CACHE_BYTES = _gauge(
    "pinchpoint_mds_cache_bytes", "Cache size, as the MDS itself compares it with its limit.", "daemon"
)
MDS_CACHE_LIMIT_BYTES = _gauge(
    "pinchpoint_mds_cache_limit_bytes", "mds_cache_memory_limit: the cache size the MDS tries not to exceed.", "daemon"
)
MDS_CACHE_WARN_BYTES = _gauge(
    "pinchpoint_mds_cache_warn_bytes", "Cache size at which Ceph raises MDS_CACHE_OVERSIZED.", "daemon"
)
MDS_CACHE_PEAK_BYTES = _gauge(
    "pinchpoint_mds_cache_peak_bytes", "Largest cache size since the exporter first saw this process.", "daemon"
)
MDS_LOG_SEGMENTS_LIMIT = _number(
    "pinchpoint_mds_log_segments_limit",
    "mds_log_max_segments: the number of journal segments the MDS trims to, and at which it settles.",
    "daemon",
)
MDS_LOG_SEGMENTS_WARN = _number(
    "pinchpoint_mds_log_segments_warn", "Number of journal segments at which Ceph raises MDS_TRIM.", "daemon"
)
MDS_LOG_SEGMENTS = _number("pinchpoint_mds_log_segments", "Journal segments.", "daemon")
MDS_LOG_SEGMENTS_ADDED = _counter("pinchpoint_mds_log_segments_added_total", "Segments added to the journal.", "daemon")
MDS_LOG_SEGMENTS_TRIMMED = _counter(
    "pinchpoint_mds_log_segments_trimmed_total", "Segments trimmed from the journal.", "daemon"
)
MDS_LOG_EVENTS = _counter("pinchpoint_mds_log_events_total", "Events added to the journal.", "daemon")
MDS_INODES = _number("pinchpoint_mds_inodes", "Inodes in the cache.", "daemon")
MDS_INODES_WITH_CAPS = _number(
    "pinchpoint_mds_inodes_with_caps", "Cached inodes for which a client holds a capability.", "daemon"
)
MDS_INODES_PINNED = _number("pinchpoint_mds_inodes_pinned", "Inodes that cannot be dropped from the cache.", "daemon")
MDS_CAPS = _number("pinchpoint_mds_caps", "Capabilities held by clients.", "daemon")
MDS_SESSIONS = _number("pinchpoint_mds_sessions", "Client sessions.", "daemon")
MDS_REQUESTS = _counter("pinchpoint_mds_requests_total", "Client requests.", "daemon")
MDS_REPLIES = _counter("pinchpoint_mds_replies_total", "Replies to clients.", "daemon")
MDS_CAPS_REVOKED = _counter("pinchpoint_mds_caps_revoked_total", "Messages sent to revoke capabilities.", "daemon")
MDS_OSD_OPS_IN_FLIGHT = _number(
    "pinchpoint_mds_osd_ops_in_flight", "Operations that the MDS itself has in flight to OSDs.", "daemon"
)
MDS_DIR_FETCHES = _counter(
    "pinchpoint_mds_dir_fetches_total", "Directories or directory fragments read from OSDs.", "daemon"
)
MDS_EVICTIONS = _counter(
    "pinchpoint_mds_evictions_total",
    "Clients evicted by the MDS itself, for holding capabilities too long or having too much state.",
    "daemon",
)
MDS_JOURNAL_WRITE_SECONDS = _counter(
    "pinchpoint_mds_journal_write_seconds_total", "Time spent flushing the journal.", "daemon"
)
MDS_JOURNAL_WRITES = _counter("pinchpoint_mds_journal_writes_total", "Journal flushes.", "daemon")
MDS_REPLY_SECONDS = _counter(
    "pinchpoint_mds_reply_seconds_total", "Time from request to reply, summed over replies.", "daemon"
)
MDS_QUEUE_REQUESTS = _number(
    "pinchpoint_mds_queue_requests",
    "Messages in the dispatch queue when the balancer last ran (every 10 s); absent where the balancer does not run.",
    "daemon",
)
MDS_FORWARDS = _counter("pinchpoint_mds_forwards_total", "Requests forwarded to another rank.", "daemon")
MDS_INODES_EXPORTED = _counter(
    "pinchpoint_mds_inodes_exported_total", "Inodes that were moved to another rank.", "daemon"
)
MDS_INODES_IMPORTED = _counter(
    "pinchpoint_mds_inodes_imported_total", "Inodes that were taken over from another rank.", "daemon"
)
MDS_DIR_COMMITS = _counter(
    "pinchpoint_mds_dir_commits_total", "Directories or directory fragments written to OSDs.", "daemon"
)
MDS_CAP_THROTTLES = _counter(
    "pinchpoint_mds_cap_throttles_total",
    "Requests held back because their client acquires capabilities too fast (mds_session_cap_acquisition_throttle).",
    "daemon",
)
MDS_PURGES = _number("pinchpoint_mds_purges", "Deleted files whose objects are being removed.", "daemon")
MDS_PURGES_QUEUED = _number(
    "pinchpoint_mds_purges_queued", "Deleted files whose objects are still to be removed.", "daemon"
)
CEPH_OPTION_DAEMONS = _number(
    "pinchpoint_ceph_option_daemons",
    "Daemons of one type on this host that have this value of an option that affects benchmarks.",
    "type",
    "option",
    "value",
)
CEPH_MESSAGES = _counter(
    "pinchpoint_ceph_messages_total", "Messages handled by a daemon's network threads.", "daemon", "direction"
)
CEPH_MESSENGER_SECONDS = _counter(
    "pinchpoint_ceph_messenger_seconds_total",
    "Time of a daemon's messages in its network threads: receive, dispatch and send are their work, queue is the wait "
    "until a thread takes a message to send it; that for the network is not in it.",
    "daemon",
    "step",
)
CEPH_SOCKET_UP = _number(
    "pinchpoint_ceph_socket_up",
    "1 if the daemon's admin socket answered the latest queries in time; 0 if the daemon's internal state is unknown.",
    "daemon",
)
CEPH_SOCKET_PROBLEM_INFO = _gauge(
    "pinchpoint_ceph_socket_problem_info",
    "Why the admin socket does not answer: silent, stopped, refused, denied, missing, foreign, malformed, "
    "too_large, too_many.",
    "daemon",
    "reason",
)
CEPH_SOCKET_DURATION_SECONDS = _gauge(
    "pinchpoint_ceph_socket_duration_seconds", "Duration of the latest round of queries.", "daemon"
)
CEPH_DAEMON_STUCK = _number(
    "pinchpoint_ceph_daemon_stuck",
    "1 if the process is stopped, or its admin socket is silent and none of its threads has run since.",
    "daemon",
)
CEPH_DAEMON_INFO = _gauge(
    "pinchpoint_ceph_daemon_info", "Release and cluster (fsid) of a daemon.", "daemon", "cluster", "version"
)
OSD_OPS = _counter("pinchpoint_osd_ops_total", "Client operations completed.", "daemon", "type")
OSD_OP_SECONDS = _counter(
    "pinchpoint_osd_op_seconds_total",
    "Time taken by client operations, summed over operations.",
    "daemon",
    "type",
)
OSD_OP_QUEUE_SECONDS = _counter(
    "pinchpoint_osd_op_queue_seconds_total",
    "Time from an operation's arrival until a worker has it and its placement group's lock, summed over operations.",
    "daemon",
)
OSD_STEP_SECONDS = _counter(
    "pinchpoint_osd_step_seconds_total",
    "Time spent in one step of the operations of an OSD (docs/ceph.md lists the steps), summed over its occurrences.",
    "daemon",
    "step",
)
OSD_STEPS = _counter("pinchpoint_osd_steps_total", "Occurrences of one step of operations.", "daemon", "step")
OSD_ONODE_LOOKUPS = _counter(
    "pinchpoint_osd_onode_lookups_total",
    "Lookups of objects in BlueStore's metadata cache, by result: hit or miss. A new object is always a miss.",
    "daemon",
    "result",
)
OSD_ROCKSDB_SYNC_SECONDS = _counter(
    "pinchpoint_osd_rocksdb_sync_seconds_total",
    "Part of the kv commit time that RocksDB needs for its synchronous write.",
    "daemon",
)
OSD_ROCKSDB_DELAY_SECONDS = _counter(
    "pinchpoint_osd_rocksdb_delay_seconds_total",
    "Time for which RocksDB held writes back because flushes or compactions were behind; absent unless rocksdb_perf is "
    "on.",
    "daemon",
)
OSD_COMPACTIONS = _number(
    "pinchpoint_osd_compactions",
    "Compactions of key ranges that the OSD asked RocksDB for, by state: queued or running.",
    "daemon",
    "state",
)
OSD_BLUEFS_USED_BYTES = _gauge(
    "pinchpoint_osd_bluefs_used_bytes",
    "Space that RocksDB's files use on the database device (db), or beyond it on the main device (slow).",
    "daemon",
    "device",
)
OSD_ALLOCATION_FALLBACKS = _counter(
    "pinchpoint_osd_allocation_fallbacks_total",
    "Allocations for RocksDB's files that did not fit on their device and went to the main one.",
    "daemon",
)
OSD_FRAGMENTATION_RATIO = _gauge(
    "pinchpoint_osd_fragmentation_ratio",
    "Pieces of BlueStore's free space, against the most that there could be: 1 if no two free units are neighbours.",
    "daemon",
)
OSD_QUEUED_REQUESTS = _number(
    "pinchpoint_osd_queued_requests", "Requests of all kinds in the queues of the mClock scheduler.", "daemon"
)
OSD_RECOVERY_OPS = _counter("pinchpoint_osd_recovery_ops_total", "Recovery operations started.", "daemon")
OSD_OPS_IN_FLIGHT = _number("pinchpoint_osd_ops_in_flight", "Client operations in progress.", "daemon")
OSD_SLOW_OPS = _number("pinchpoint_osd_slow_ops", "Operations older than osd_op_complaint_time.", "daemon")
OSD_SLOW_STORE_OPS = _counter(
    "pinchpoint_osd_slow_store_ops_total",
    "Steps of BlueStore that took longer than bluestore_log_op_age.",
    "daemon",
)
OSD_SLOW_STORE_OP_AGE_SECONDS = _gauge(
    "pinchpoint_osd_slow_store_op_age_seconds",
    "Time since the exporter saw pinchpoint_osd_slow_store_ops_total rise; absent until it does.",
    "daemon",
)
OSD_KV_SYNCS = _counter("pinchpoint_osd_kv_syncs_total", "Commits by BlueStore's kv thread.", "daemon")
OSD_KV_SYNC_SECONDS = _counter(
    "pinchpoint_osd_kv_sync_seconds_total",
    "Time spent in commits by BlueStore's kv thread: flush and commit.",
    "daemon",
)
OSD_KV_FLUSH_SECONDS = _counter(
    "pinchpoint_osd_kv_flush_seconds_total", "Part of the kv commit time spent flushing the data device.", "daemon"
)
OSD_KV_COMMIT_SECONDS = _counter(
    "pinchpoint_osd_kv_commit_seconds_total", "Part of the kv commit time spent committing to RocksDB.", "daemon"
)
OSD_THROTTLE_WAIT_SECONDS = _counter(
    "pinchpoint_osd_throttle_wait_seconds_total",
    "Time spent waiting for a throttle, summed over waits.",
    "daemon",
    "throttle",
)
OSD_THROTTLE_FILL_RATIO = _gauge(
    "pinchpoint_osd_throttle_fill_ratio",
    "Share of a throttle in use; it can exceed 1.",
    "daemon",
    "throttle",
)
OSD_FINISHER_QUEUE = _number("pinchpoint_osd_finisher_queue", "Completions waiting for a finisher thread.", "daemon")
OSD_PGS = _number("pinchpoint_osd_pgs", "Placement groups on the OSD, by the OSD's role in them.", "daemon", "role")
CEPH_CLIENT_INSTANCES = _number(
    "pinchpoint_ceph_client_instances", "Instances of a Ceph client: mounts or sessions.", "client"
)
CEPH_CLIENT_BLIND_INSTANCES = _number(
    "pinchpoint_ceph_client_blind_instances",
    "Ceph client instances without data: their admin socket is missing, unreadable or silent.",
    "client",
)
CEPH_CLIENT_INFLIGHT_REQUESTS = _number(
    "pinchpoint_ceph_client_inflight_requests",
    "Ceph client requests waiting for a reply, summed over the readable instances.",
    "client",
    "target",
)
CEPH_CLIENT_INFLIGHT_SECONDS = _counter(
    "pinchpoint_ceph_client_inflight_seconds_total",
    "Integral of the requests in flight: its rate is their mean number; divided by the number of requests, it is "
    "their mean latency.",
    "client",
    "target",
)
CEPH_CLIENT_REQUESTS = _counter(
    "pinchpoint_ceph_client_requests_total", "Ceph client requests that were answered.", "client", "target"
)
CEPH_CLIENT_IO_SECONDS = _counter(
    "pinchpoint_ceph_client_io_seconds_total",
    "Time taken by Ceph client operations, summed over operations.",
    "client",
    "operation",
)
CEPH_CLIENT_IOS = _counter("pinchpoint_ceph_client_ios_total", "Ceph client operations.", "client", "operation")
CEPH_CLIENT_CLUSTER_INFO = _gauge(
    "pinchpoint_ceph_client_cluster_info",
    "Cluster (fsid) a Ceph client is connected to; absent where the client does not report it.",
    "client",
    "cluster",
)
CEPH_CLIENT_BLOCKLISTED = _number(
    "pinchpoint_ceph_client_blocklisted",
    "1 if the cluster has blocklisted a CephFS mount: its writes are lost.",
    "client",
)
TCP_RTT_SECONDS = _gauge(
    "pinchpoint_tcp_rtt_seconds",
    "Smoothed TCP round-trip time of the owner's connections: median weighted by the bytes each has just sent, "
    "because the value of an idle connection is stale. It includes the peer's delay before it acknowledges.",
    "owner",
)
TCP_RTT_MIN_SECONDS = _gauge(
    "pinchpoint_tcp_rtt_min_seconds",
    "Shortest TCP round-trip time in the last minutes among the owner's connections.",
    "owner",
)
TCP_CONNECTIONS = _number("pinchpoint_tcp_connections", "Established TCP connections of the owner.", "owner")
TCP_RETRANSMITS = _counter(
    "pinchpoint_tcp_retransmits_total", "TCP segments retransmitted by the owner's connections.", "owner"
)
TCP_SENT_BYTES = _counter(
    "pinchpoint_tcp_sent_bytes_total", "What the owner's connections have sent and their peers acknowledged.", "owner"
)
TCP_UNSENT_BYTES = _gauge(
    "pinchpoint_tcp_unsent_bytes",
    "What the owner's connections were given and have not sent yet. Divided by the rate of what they send, it is how "
    "long data waits for the network.",
    "owner",
)
HOST_FACT_INFO = _gauge(
    "pinchpoint_host_fact_info", "Host setting that affects benchmark results.", "fact", "value", steady=True
)
SELF_CPU_SECONDS = _counter(
    "pinchpoint_self_cpu_seconds_total", "CPU time used by the exporter and its helper processes."
)
SELF_RESIDENT_BYTES = _gauge(
    "pinchpoint_self_resident_bytes",
    "Resident memory of the exporter, and what its helper processes do not share with it.",
)
SELF_OPEN_FILES = _gauge("pinchpoint_self_open_files", "File descriptors held open by the exporter.")
BUILD_INFO = _gauge("pinchpoint_build_info", "Version of Pinchpoint and of Python.", "version", "python")
RESOURCE_THRESHOLD_RATIO = _gauge(
    "pinchpoint_resource_threshold_ratio",
    "Busy share at which the resource counts as full.",
    "resource",
    steady=True,
)
ALERT_THRESHOLD = _number(
    "pinchpoint_alert_threshold",
    "Threshold of an alert that does not compare a busy share: a ratio, or a value in the unit given in the roles "
    "file.",
    "alert",
)
PROBE_DURATION_SECONDS = _gauge("pinchpoint_probe_duration_seconds", "Duration of the probe's last sample.", "probe")
PROBE_SUCCESS = _number(
    "pinchpoint_probe_success",
    "1 if the probe's last sample succeeded, or there is nothing to read on this machine.",
    "probe",
)
PROBE_PRESENT = _number("pinchpoint_probe_present", "1 if this machine has what the probe reads.", "probe")
PROBE_MISSING_CAPABILITY_INFO = _gauge(
    "pinchpoint_probe_missing_capability_info",
    "Capability that the exporter lacks and the probe needs to see everything.",
    "probe",
    "capability",
)
PROBE_LAST_SUCCESS_TIMESTAMP_SECONDS = _gauge(
    "pinchpoint_probe_last_success_timestamp_seconds",
    "Time of the probe's last successful sample, in Unix time.",
    "probe",
)
PROBE_CPU_SECONDS = _counter(
    "pinchpoint_probe_cpu_seconds_total",
    "CPU time of the probe's samples, without that of threads and processes that work for it.",
    "probe",
)
PROBE_INTERVAL_SECONDS = _gauge(
    "pinchpoint_probe_interval_seconds", "Interval at which the probe is sampled.", "probe", steady=True
)
SAMPLER_SAMPLES = _counter("pinchpoint_sampler_samples_total", "Samples taken.", "probe")
SAMPLER_LATE_SAMPLES = _counter(
    "pinchpoint_sampler_late_samples_total", "Samples taken more than half an interval late.", "probe"
)
SAMPLER_LOST_SAMPLES = _counter(
    "pinchpoint_sampler_lost_samples_total",
    "Samples that were due but never taken, because the sampler had no CPU or a probe took too long.",
    "probe",
)
SAMPLER_DEGRADED = _number(
    "pinchpoint_sampler_degraded",
    "0 at the full rate; otherwise how many times as long the intervals between samples are, because the exporter "
    "exceeded its limit of CPU time.",
)
SAMPLER_RESTING = _number(
    "pinchpoint_sampler_resting",
    "1 while nothing happens on the host and probes are sampled less often: no benchmark runs and nothing is busy.",
)
SAMPLER_CLOCK_SET_SECONDS = _gauge(
    "pinchpoint_sampler_clock_set_seconds",
    "By how much the host's wall clock was set forward in all since the exporter started, negative if back. Timestamps "
    "include it.",
)
SAMPLER_PRIORITY_INFO = _gauge(
    "pinchpoint_sampler_priority_info",
    "Scheduling policy of the sampling thread, and why nothing better was available.",
    "policy",
    "reason",
)
SELF_SERIES = _number("pinchpoint_self_series", "Series in the last exposition.")
SELF_DROPPED_SERIES = _counter(
    "pinchpoint_self_dropped_series_total",
    "Series omitted because their value or a label cannot be written, counted at each exposition.",
)
USER_DROPPED_SERIES = _counter(
    "pinchpoint_user_dropped_series_total",
    "Series of untrusted users that were omitted, counted at each exposition: series (too many of one user), rate (too "
    "many new ones of one user), users (too many such users).",
    "reason",
)
HTTP_REFUSED_CONNECTIONS = _counter(
    "pinchpoint_http_refused_connections_total",
    "Connections that the exporter refused or closed early: full (too many), peer (too many from one address), "
    "headers (too large), timeout (not answered in time), browser (a web page of another site), "
    "tls (a failed handshake), password (missing or wrong), attempts (too many wrong passwords), "
    "rate (too many requests).",
    "reason",
)
WEB_CONFIG_RELOAD_SUCCESSFUL = _number(
    "pinchpoint_web_config_last_reload_successful",
    "1 if --web.config.file and what it names could be used when last read; 0: what was read before stays in use.",
)
WEB_CONFIG_RELOAD_TIME = _gauge(
    "pinchpoint_web_config_last_reload_success_timestamp_seconds", "When --web.config.file was last read successfully."
)
WEB_PASSWORD_CPU_SECONDS = _counter("pinchpoint_web_password_cpu_seconds_total", "CPU time used to check passwords.")

EXPORTER = tuple(metric for metric in list(vars().values()) if isinstance(metric, Metric))
"""What the exporter exports, in the order of the documentation."""

VERDICT_INFO = _gauge(
    "pinchpoint_verdict_info",
    "Current limit of a run: one series for each limit in the verdict, or one series without a resource.",
    *PHASE,
    "kind",
    "resource",
    "owner",
    "host",
    "confidence",
)
VERDICT_START_TIMESTAMP_SECONDS = _gauge(
    "pinchpoint_verdict_start_timestamp_seconds",
    "Time since which the current verdict on a run has held, in Unix time.",
    *PHASE,
)
VERDICT_WAIT_RATIO = _gauge(
    "pinchpoint_verdict_wait_ratio",
    "Share of the processes' time in a run over the last seconds, by what they wait for.",
    *RUN,
    "wait",
)
VERDICT_BLAME_RATIO = _gauge(
    "pinchpoint_verdict_blame_ratio",
    "Share of a run's time over the last seconds that is attributed to a resource; only the most blamed resources.",
    *RUN,
    "resource",
    "owner",
    "host",
)
VERDICT_SATURATED_RATIO = _gauge(
    "pinchpoint_verdict_saturated_ratio",
    "Share of the last seconds in which a blamed resource was full.",
    *RUN,
    "resource",
    "owner",
    "host",
)
VERDICT_CHAIN_RATIO = _gauge(
    "pinchpoint_verdict_chain_ratio",
    "Share of the time of a run's threads for which an owner's threads of a role are responsible, by who wakes whom "
    "and by what they did, on all hosts together in the last 16 to 24 s; only the largest.",
    *RUN,
    "owner",
    "role",
    "kind",
)
VERDICT_CHAIN_PASSED_RATIO = _gauge(
    "pinchpoint_verdict_chain_passed_ratio",
    "Part of that share after which these threads woke others of the largest.",
    *RUN,
    "owner",
    "role",
    "to_owner",
    "to_role",
)
VERDICT_CHAIN_PLACE = _number(
    "pinchpoint_verdict_chain_place",
    "Where a picture shows these threads: the benchmark in column 0, who wakes it in column -1; its heaviest chain "
    "in row 0.",
    *RUN,
    "owner",
    "role",
    "axis",
)
VERDICT_ADVICE_INFO = _gauge(
    "pinchpoint_verdict_advice_info",
    "The first thing to do about each limit in the current verdict of a run, and the page with more.",
    *RUN,
    "resource",
    "owner",
    "host",
    "advice",
    "page",
)
PHASE_VERDICT_INFO = _gauge(
    "pinchpoint_phase_verdict_info",
    "What limited a phase that has ended, over its whole duration.",
    *PHASE,
    "kind",
    "resource",
    "owner",
    "host",
    "confidence",
)
RUN_FACT_HOSTS = _number(
    "pinchpoint_run_fact_hosts", "Hosts with this setting in a run that is in progress.", "run", "fact", "value"
)
JUDGE_HOSTS = _number("pinchpoint_judge_hosts", "Hosts known to the judge, by whether they answer.", "state")
JUDGE_PROBLEM_INFO = _gauge(
    "pinchpoint_judge_problem_info", "What is wrong with a host, a source or a target file.", "source", "reason"
)
JUDGE_RUNS = _number("pinchpoint_judge_runs", "Runs in progress.")
JUDGE_BEHIND_RUNS = _number("pinchpoint_judge_behind_runs", "Runs not judged in the last round because time ran out.")
JUDGE_DATA_AGE_SECONDS = _gauge("pinchpoint_judge_data_age_seconds", "Age of the newest samples that were judged.")
JUDGE_ROUND_SECONDS = _gauge(
    "pinchpoint_judge_round_seconds", "Duration of the last round: reading new data and judging."
)
JUDGE_ROUNDS = _counter(
    "pinchpoint_judge_rounds_total", "Rounds completed: one per interval unless the judge falls behind."
)
JUDGE_INTERVAL_SECONDS = _gauge("pinchpoint_judge_interval_seconds", "Intended time between two rounds.")
JUDGE_CPU_SECONDS = _counter("pinchpoint_judge_cpu_seconds_total", "CPU time used by the judge.")
JUDGE_RESIDENT_MEMORY_BYTES = _gauge("pinchpoint_judge_resident_memory_bytes", "Resident memory of the judge.")
JUDGE_HTTP_REFUSED_CONNECTIONS = _counter(
    "pinchpoint_judge_http_refused_connections_total",
    "Connections that the judge refused or closed early, by the same reasons as the exporter.",
    "reason",
)
JUDGE_WEB_CONFIG_RELOAD_SUCCESSFUL = _number(
    "pinchpoint_judge_web_config_last_reload_successful",
    "1 if --web.config.file and what it names could be used when last read; 0: what was read before stays in use.",
)
JUDGE_WEB_CONFIG_RELOAD_TIME = _gauge(
    "pinchpoint_judge_web_config_last_reload_success_timestamp_seconds",
    "When --web.config.file was last read successfully.",
)
JUDGE_WEB_PASSWORD_CPU_SECONDS = _counter(
    "pinchpoint_judge_web_password_cpu_seconds_total", "CPU time used to check passwords."
)
JUDGE_BUILD_INFO = _gauge("pinchpoint_judge_build_info", "Version of the judge.", "version")

JUDGE = tuple(metric for metric in list(vars().values()) if isinstance(metric, Metric) and metric not in EXPORTER)
"""What the judge exports."""

RESULT_LEVEL = _number(
    "pinchpoint_result_level",
    "Mean of a result, or of the score (an empty phase), over the runs between two of its changes, in base units.",
    *RESULT,
)
RESULT_LEVEL_START = _gauge(
    "pinchpoint_result_level_start_timestamp_seconds",
    "Start of the first run of that level, in Unix time.",
    *RESULT,
)
RESULT_LEVEL_CHANGE_RATIO = _gauge(
    "pinchpoint_result_level_change_ratio",
    "That level as a multiple of the one before; absent for the first.",
    *RESULT,
)
TREND = (RESULT_LEVEL, RESULT_LEVEL_START, RESULT_LEVEL_CHANGE_RATIO)
"""What only ``pinchpoint export --trend`` writes."""
