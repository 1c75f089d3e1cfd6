"""Every metric that the exporter and the judge export: the one place of its name, help text, kind and labels.

Whoever makes a series and whoever reads one imports the constant, so that a name stands here and nowhere else.
"""

from __future__ import annotations

from pinchpoint.model import Metric, MetricKind

__all__ = ["EXPORTER", "JUDGE", "KEEP_ENDED_SECONDS"]

KEEP_ENDED_SECONDS = 900.0
"""Seconds for which a series is shown after what it is about has ended, so that a scrape still sees its last value."""

RUN = ("benchmark", "run")
PHASE = (*RUN, "phase")


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, text, MetricKind.GAUGE, labels)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, text, MetricKind.COUNTER, labels)


THREAD_CPU_SECONDS = _counter(
    "pinchpoint_thread_cpu_seconds_total", "Time that the threads of a role spent on a CPU.", "role", "owner"
)
THREAD_RUNQUEUE_SECONDS = _counter(
    "pinchpoint_thread_runqueue_seconds_total",
    "Time that the threads of a role were runnable and had no CPU (it includes CFS quota throttling).",
    "role",
    "owner",
)
THREADS = _gauge("pinchpoint_threads", "Threads of a role.", "role", "owner")
RESOURCE_BUSY_SECONDS = _counter(
    "pinchpoint_resource_busy_seconds_total",
    "Time in which the resource could take no more work: on CPU, waiting for a CPU, or blocked below.",
    "resource",
    "owner",
    "serves",
)
RESOURCE_SATURATED_SECONDS = _counter(
    "pinchpoint_resource_saturated_seconds_total",
    "Time in samples whose busy share was at or above the resource's threshold.",
    "resource",
    "owner",
    "serves",
)
RESOURCE_RUNQUEUE_SECONDS = _counter(
    "pinchpoint_resource_runqueue_seconds_total",
    "The part of busy in which the resource was runnable and had no CPU (it includes CFS quota throttling).",
    "resource",
    "owner",
)
RESOURCE_BLOCKED_SECONDS = _counter(
    "pinchpoint_resource_blocked_seconds_total",
    "The part of busy in which the resource waited for something below it.",
    "resource",
    "owner",
)
UNKNOWN_THREAD_BUSY_RATIO = _gauge(
    "pinchpoint_unknown_thread_busy_ratio",
    "Share of the last 3 s in which the busiest thread without a role ran or waited for a CPU; absent below 0.1. "
    "It keeps its name until another thread is busier by 0.2, or it is below 0.1 itself.",
    "thread",
    "process",
)
TASK_SOURCE_INFO = _gauge(
    "pinchpoint_task_source_info",
    "How threads are read; the reason says why no better way could be used.",
    "source",
    "file",
    "reason",
)
TASKS_FOLLOWED = _gauge("pinchpoint_tasks_followed", "Threads that are read.")
TASKS_UNREADABLE = _gauge(
    "pinchpoint_tasks_unreadable", "Processes and threads of interest, or unknown ones, that may not be read (hidepid)."
)
KWORKER_SOURCE_INFO = _gauge(
    "pinchpoint_kworker_source_info",
    "How the time of workqueue workers is attributed to their work; the reason says why no better way could be used.",
    "source",
    "reason",
)
PHASE_ACTIVE = _gauge("pinchpoint_phase_active", "1 while the phase of a benchmark run goes on.", *PHASE)
PHASE_START_TIMESTAMP_SECONDS = _gauge(
    "pinchpoint_phase_start_timestamp_seconds", "When the phase began, in Unix time.", *PHASE
)
PHASE_ELAPSED_SECONDS = _gauge(
    "pinchpoint_phase_elapsed_seconds", "How long the phase has gone on, or how long it took.", *PHASE
)
PHASE_EXPECTED_SECONDS = _gauge(
    "pinchpoint_phase_expected_seconds", "How long the phase is meant to take, by the benchmark's own options.", *PHASE
)
PHASE_PROGRESS_RATIO = _gauge(
    "pinchpoint_phase_progress_ratio", "Share of the phase that is done, where that can be seen.", *PHASE
)
PHASE_NUMBER = _gauge("pinchpoint_phase_number", "Place of the phase among those of its run, from 1.", *PHASE)
PHASE_STALLED_SECONDS = _gauge(
    "pinchpoint_phase_stalled_seconds",
    "For how long the active phase has done nothing; absent where its work can't be seen.",
    *PHASE,
)
PHASE_SECOND_HALF_RATIO = _gauge(
    "pinchpoint_phase_second_half_ratio",
    "Throughput of the second half of the phase so far over that of its first half, where its work can be seen.",
    *PHASE,
)
PHASE_VALID = _gauge("pinchpoint_phase_valid", "0 where the benchmark calls the phase's result invalid.", *PHASE)
PHASE_SOURCE_INFO = _gauge("pinchpoint_phase_source_info", "How the active phase is known.", *PHASE, "source")
PHASE_RATE = _gauge(
    "pinchpoint_phase_rate",
    "What the active phase does now, as the benchmark printed it last, in base units.",
    *PHASE,
    "operation",
    "unit",
)
PHASE_RESULT = _gauge(
    "pinchpoint_phase_result",
    "What the benchmark gave as the phase's result, in base units.",
    *PHASE,
    "operation",
    "unit",
)
RUN_START_TIMESTAMP_SECONDS = _gauge(
    "pinchpoint_run_start_timestamp_seconds", "When the run began, in Unix time.", *RUN
)
RUN_END_TIMESTAMP_SECONDS = _gauge(
    "pinchpoint_run_end_timestamp_seconds", "When the run ended, in Unix time; absent while it goes on.", *RUN
)
RUN_STATE = _gauge("pinchpoint_run_state", "1 for the state that the run is in, 0 for every other.", *RUN, "state")
RUN_VALID = _gauge("pinchpoint_run_valid", "0 where the benchmark calls the run or one of its results invalid.", *RUN)
RUN_SCORE = _gauge("pinchpoint_run_score", "The score that the benchmark gave to the run.", *RUN, "operation", "unit")
RUN_PHASES = _gauge("pinchpoint_run_phases", "Number of phases that the run will have, where that is known.", *RUN)
RUN_BLIND_INFO = _gauge("pinchpoint_run_blind_info", "What the exporter has no right to see of the run.", *RUN, "what")
WORKLOAD_SECONDS = _counter(
    "pinchpoint_workload_seconds_total", "What the processes of a benchmark did with their time.", *RUN, "wait"
)
WORKLOAD_PROCESSES = _gauge(
    "pinchpoint_workload_processes", "Processes of a benchmark that count: idle helpers are left out.", *RUN
)
WORKLOAD_OWNER_INFO = _gauge(
    "pinchpoint_workload_owner_info", "What the processes that count are called as owners of resources.", *RUN, "owner"
)
WORKLOAD_CLIENT_INFO = _gauge(
    "pinchpoint_workload_client_info",
    "The Ceph clients that serve a benchmark, by the owner of their resources.",
    *RUN,
    "client",
)
WAITS_SOURCE_INFO = _gauge(
    "pinchpoint_waits_source_info",
    "How waits are known (stack, wchan, none); the reason says why in no better way.",
    "source",
    "reason",
)
WORKLOAD_UNKNOWN_STACKS = _gauge(
    "pinchpoint_workload_unknown_stacks", "Different stacks of the last minutes that no rule knows (watch --stacks)."
)
CPU_IDLE_STATE_SECONDS = _counter(
    "pinchpoint_cpu_idle_state_seconds_total", "Time for which the CPU asked to be in the idle state.", "cpu", "state"
)
CPU_IDLE_STATE_ENTRIES = _counter(
    "pinchpoint_cpu_idle_state_entries_total", "How often the CPU entered the idle state.", "cpu", "state"
)
CPU_IDLE_STATE_EXIT_LATENCY_SECONDS = _gauge(
    "pinchpoint_cpu_idle_state_exit_latency_seconds",
    "Longest time that a CPU needs to leave the idle state, as its driver states it.",
    "state",
)
CPU_IDLE_STATE_DISABLED_CPUS = _gauge(
    "pinchpoint_cpu_idle_state_disabled_cpus", "CPUs on which the idle state is switched off.", "state"
)
CPU_IDLE_EXIT_SECONDS = _counter(
    "pinchpoint_cpu_idle_exit_seconds_total",
    "Time lost in leaving idle states: entries x exit latency, summed over the states.",
    "cpu",
)
CPU_FREQUENCY_HERTZ = _gauge("pinchpoint_cpu_frequency_hertz", "Clock of the CPU at the last look.", "cpu")
CPU_FREQUENCY_MAX_HERTZ = _gauge("pinchpoint_cpu_frequency_max_hertz", "Highest clock that the hardware has.", "cpu")
CPU_FREQUENCY_LIMIT_HERTZ = _gauge(
    "pinchpoint_cpu_frequency_limit_hertz",
    "Highest clock that the CPU may use, where that is not the highest it has.",
    "cpu",
)
CPU_GOVERNOR_INFO = _gauge(
    "pinchpoint_cpu_governor_info",
    "Scaling driver, governor and energy preference that are in use on some CPU.",
    "driver",
    "governor",
    "epp",
)
CPU_TURBO_DISABLED = _gauge("pinchpoint_cpu_turbo_disabled", "1 if clocks above the base clock are switched off.")
CPU_PERFORMANCE_LIMIT_RATIO = _gauge(
    "pinchpoint_cpu_performance_limit_ratio", "Share of the hardware's performance that intel_pstate may use."
)
CPU_CLOCK_RATIO = _gauge(
    "pinchpoint_cpu_clock_ratio",
    "Clock against the maximum: of all CPUs weighted by their busy time (busy), of CPUs at least 80 % busy (full).",
    "cpus",
)
NETWORK_NAMESPACE_HIDDEN_INFO = _gauge(
    "pinchpoint_network_namespace_hidden_info",
    "Owner whose links are in another network namespace and can't be seen, and why.",
    "owner",
    "reason",
)
STORAGE_DEVICE_INFO = _gauge(
    "pinchpoint_storage_device_info",
    "A whole disk under the files that the owner has open, and the backing device that writeback knows it by; no "
    "disk where it is a network file system.",
    "owner",
    "device",
    "bdi",
)
MEMORY_DIRTY_BYTES = _gauge("pinchpoint_memory_dirty_bytes", "Page cache that has yet to be written back.")
MEMORY_WRITEBACK_BYTES = _gauge("pinchpoint_memory_writeback_bytes", "Page cache that is being written back.")
MEMORY_DIRTY_THRESHOLD_BYTES = _gauge(
    "pinchpoint_memory_dirty_threshold_bytes", "Dirty page cache at which writers are made to wait for writeback."
)
MEMORY_ALLOCATION_STALLS = _counter(
    "pinchpoint_memory_allocation_stalls_total",
    "Allocations that had to reclaim memory themselves, because kswapd did not keep up.",
)
CGROUP_CPU_PERIODS = _counter(
    "pinchpoint_cgroup_cpu_periods_total",
    "Periods of the CPU quota in which there was work, of the owner's most throttled cgroup.",
    "owner",
)
CGROUP_CPU_THROTTLED_PERIODS = _counter(
    "pinchpoint_cgroup_cpu_throttled_periods_total",
    "Periods in which the CPU quota was used up, of the owner's most throttled cgroup.",
    "owner",
)
CGROUP_CPU_THROTTLED_SECONDS = _counter(
    "pinchpoint_cgroup_cpu_throttled_seconds_total",
    "Time for which the CPU quota held CPUs back, summed over CPUs, of the owner's most throttled cgroup.",
    "owner",
)
CGROUP_CPU_QUOTA_CPUS = _gauge(
    "pinchpoint_cgroup_cpu_quota_cpus", "CPUs that the owner's tightest CPU quota allows.", "owner"
)
CGROUP_IO_LIMIT = _gauge(
    "pinchpoint_cgroup_io_limit",
    "Tightest limit of block I/O on the owner's cgroups, in the unit that the limit label names.",
    "owner",
    "device",
    "limit",
)
MDS_RANK_HELD = _gauge(
    "pinchpoint_mds_rank_held",
    "1 if the MDS has a rank (active, or following one as standby-replay), 0: standby.",
    "daemon",
)
MDS_CACHE_BYTES = _gauge(
    "pinchpoint_mds_cache_bytes", "Size of the cache, as the MDS itself compares it with its limit.", "daemon"
)
MDS_CACHE_LIMIT_BYTES = _gauge(
    "pinchpoint_mds_cache_limit_bytes", "mds_cache_memory_limit: the size that the MDS tries to keep.", "daemon"
)
MDS_CACHE_WARN_BYTES = _gauge(
    "pinchpoint_mds_cache_warn_bytes", "Size of the cache from which Ceph warns (MDS_CACHE_OVERSIZED).", "daemon"
)
MDS_CACHE_PEAK_BYTES = _gauge(
    "pinchpoint_mds_cache_peak_bytes", "Largest size of the cache since the exporter first saw this process.", "daemon"
)
MDS_LOG_SEGMENTS_LIMIT = _gauge(
    "pinchpoint_mds_log_segments_limit",
    "mds_log_max_segments: the number that the MDS trims to; it rests there.",
    "daemon",
)
MDS_LOG_SEGMENTS_WARN = _gauge(
    "pinchpoint_mds_log_segments_warn", "Segments from which Ceph warns (MDS_TRIM).", "daemon"
)
MDS_LOG_SEGMENTS = _gauge("pinchpoint_mds_log_segments", "Segments of the journal.", "daemon")
MDS_LOG_SEGMENTS_ADDED = _counter(
    "pinchpoint_mds_log_segments_added_total", "Segments that were added to the journal.", "daemon"
)
MDS_LOG_SEGMENTS_TRIMMED = _counter(
    "pinchpoint_mds_log_segments_trimmed_total", "Segments that were trimmed from the journal.", "daemon"
)
MDS_LOG_EVENTS = _counter("pinchpoint_mds_log_events_total", "Events that were added to the journal.", "daemon")
MDS_INODES = _gauge("pinchpoint_mds_inodes", "Inodes in the cache.", "daemon")
MDS_INODES_WITH_CAPS = _gauge(
    "pinchpoint_mds_inodes_with_caps", "Inodes in the cache that a client has a capability for.", "daemon"
)
MDS_INODES_PINNED = _gauge("pinchpoint_mds_inodes_pinned", "Inodes that can't be dropped from the cache.", "daemon")
MDS_CAPS = _gauge("pinchpoint_mds_caps", "Capabilities of clients.", "daemon")
MDS_SESSIONS = _gauge("pinchpoint_mds_sessions", "Sessions of clients.", "daemon")
MDS_REQUESTS = _counter("pinchpoint_mds_requests_total", "Requests of clients.", "daemon")
MDS_REPLIES = _counter("pinchpoint_mds_replies_total", "Replies to clients.", "daemon")
MDS_CAPS_REVOKED = _counter("pinchpoint_mds_caps_revoked_total", "Messages that revoke capabilities.", "daemon")
MDS_OSD_OPS_IN_FLIGHT = _gauge(
    "pinchpoint_mds_osd_ops_in_flight", "Operations that the MDS itself has in flight to OSDs.", "daemon"
)
MDS_DIR_FETCHES = _counter(
    "pinchpoint_mds_dir_fetches_total", "Directories, or parts of one, that were read from OSDs.", "daemon"
)
MDS_EVICTIONS = _counter(
    "pinchpoint_mds_evictions_total",
    "Clients that the MDS itself evicted: capabilities kept too long, or too much state.",
    "daemon",
)
MDS_JOURNAL_WRITE_SECONDS = _counter(
    "pinchpoint_mds_journal_write_seconds_total", "Time that flushes of the journal took.", "daemon"
)
MDS_JOURNAL_WRITES = _counter("pinchpoint_mds_journal_writes_total", "Flushes of the journal.", "daemon")
MDS_REPLY_SECONDS = _counter(
    "pinchpoint_mds_reply_seconds_total", "Time from requests to their replies, summed over the replies.", "daemon"
)
MDS_QUEUE_REQUESTS = _gauge(
    "pinchpoint_mds_queue_requests",
    "Messages in the dispatch queue when the balancer last ran (every 10 s); only where it does.",
    "daemon",
)
CEPH_OPTION_DAEMONS = _gauge(
    "pinchpoint_ceph_option_daemons",
    "Daemons of one type on this host in which an option that benchmarks depend on has this value.",
    "type",
    "option",
    "value",
)
CEPH_MESSAGES = _counter(
    "pinchpoint_ceph_messages_total", "Messages of a daemon's network threads.", "daemon", "direction"
)
CEPH_SOCKET_UP = _gauge(
    "pinchpoint_ceph_socket_up",
    "1 if the daemon's admin socket answered the last questions in time; 0: nothing is known of its inside.",
    "daemon",
)
CEPH_SOCKET_PROBLEM_INFO = _gauge(
    "pinchpoint_ceph_socket_problem_info",
    "Why the admin socket gives no answers: silent, stopped, refused, denied, missing, foreign, malformed, "
    "too_large, too_many.",
    "daemon",
    "reason",
)
CEPH_SOCKET_DURATION_SECONDS = _gauge(
    "pinchpoint_ceph_socket_duration_seconds", "How long the last round of questions took.", "daemon"
)
CEPH_DAEMON_STUCK = _gauge(
    "pinchpoint_ceph_daemon_stuck",
    "1 if the process is stopped, or its admin socket is silent and none of its threads has run since.",
    "daemon",
)
CEPH_DAEMON_INFO = _gauge(
    "pinchpoint_ceph_daemon_info", "Release and cluster (fsid) of a daemon.", "daemon", "cluster", "version"
)
OSD_OPS = _counter("pinchpoint_osd_ops_total", "Operations of clients that were completed.", "daemon", "type")
OSD_OP_SECONDS = _counter(
    "pinchpoint_osd_op_seconds_total",
    "Time that operations of clients took, summed over the operations.",
    "daemon",
    "type",
)
OSD_OP_QUEUE_SECONDS = _counter(
    "pinchpoint_osd_op_queue_seconds_total",
    "Time from the arrival of operations until a worker had them and their placement group's lock, summed over them.",
    "daemon",
)
OSD_OPS_IN_FLIGHT = _gauge("pinchpoint_osd_ops_in_flight", "Operations of clients that are being worked on.", "daemon")
OSD_SLOW_OPS = _gauge("pinchpoint_osd_slow_ops", "Operations that are older than osd_op_complaint_time.", "daemon")
OSD_KV_SYNCS = _counter("pinchpoint_osd_kv_syncs_total", "Commits of BlueStore's kv thread.", "daemon")
OSD_KV_SYNC_SECONDS = _counter(
    "pinchpoint_osd_kv_sync_seconds_total", "Time inside those commits: flush and commit.", "daemon"
)
OSD_KV_FLUSH_SECONDS = _counter(
    "pinchpoint_osd_kv_flush_seconds_total", "The part of it that the flush of the data device took.", "daemon"
)
OSD_KV_COMMIT_SECONDS = _counter(
    "pinchpoint_osd_kv_commit_seconds_total", "The part of it that the commit to RocksDB took.", "daemon"
)
OSD_THROTTLE_WAIT_SECONDS = _counter(
    "pinchpoint_osd_throttle_wait_seconds_total",
    "Time that work waited for a throttle, summed over the waits.",
    "daemon",
    "throttle",
)
OSD_THROTTLE_FILL_RATIO = _gauge(
    "pinchpoint_osd_throttle_fill_ratio",
    "Share of a throttle that is taken; above 1 is possible.",
    "daemon",
    "throttle",
)
OSD_FINISHER_QUEUE = _gauge("pinchpoint_osd_finisher_queue", "Completions that wait for a finisher thread.", "daemon")
OSD_PGS = _gauge("pinchpoint_osd_pgs", "Placement groups of the OSD by its role in them.", "daemon", "role")
CEPH_CLIENT_INSTANCES = _gauge(
    "pinchpoint_ceph_client_instances", "Instances of a Ceph client: mounts or sessions.", "client"
)
CEPH_CLIENT_BLIND_INSTANCES = _gauge(
    "pinchpoint_ceph_client_blind_instances",
    "Instances of a Ceph client that say nothing: no admin socket, or one that can't be read or is silent.",
    "client",
)
CEPH_CLIENT_INFLIGHT_REQUESTS = _gauge(
    "pinchpoint_ceph_client_inflight_requests",
    "Requests of a Ceph client that wait for an answer, summed over the instances that can be read.",
    "client",
    "target",
)
CEPH_CLIENT_INFLIGHT_SECONDS = _counter(
    "pinchpoint_ceph_client_inflight_seconds_total",
    "Integral of the requests in flight: its rate is their mean number; divided by the requests, their mean latency.",
    "client",
    "target",
)
CEPH_CLIENT_REQUESTS = _counter(
    "pinchpoint_ceph_client_requests_total", "Requests of a Ceph client that were answered.", "client", "target"
)
CEPH_CLIENT_IO_SECONDS = _counter(
    "pinchpoint_ceph_client_io_seconds_total",
    "Time that operations of a Ceph client took, summed over the operations.",
    "client",
    "operation",
)
CEPH_CLIENT_IOS = _counter("pinchpoint_ceph_client_ios_total", "Operations of a Ceph client.", "client", "operation")
CEPH_CLIENT_CLUSTER_INFO = _gauge(
    "pinchpoint_ceph_client_cluster_info",
    "Cluster (fsid) that a Ceph client talks to, where it says it.",
    "client",
    "cluster",
)
CEPH_CLIENT_BLOCKLISTED = _gauge(
    "pinchpoint_ceph_client_blocklisted",
    "1 if the cluster has shut a CephFS mount out, so that its writes are lost.",
    "client",
)
TCP_RTT_SECONDS = _gauge(
    "pinchpoint_tcp_rtt_seconds",
    "Smoothed TCP round trip of the owner's connections: median, weighted by what each has just sent (that of an "
    "idle one is stale). It includes what the other end waits before it acknowledges.",
    "owner",
)
TCP_RTT_MIN_SECONDS = _gauge(
    "pinchpoint_tcp_rtt_min_seconds",
    "Shortest TCP round trip of the last minutes, of any of the owner's connections.",
    "owner",
)
TCP_CONNECTIONS = _gauge("pinchpoint_tcp_connections", "Established TCP connections of the owner.", "owner")
TCP_RETRANSMITS = _counter(
    "pinchpoint_tcp_retransmits_total", "TCP segments that the owner's connections have sent again.", "owner"
)
HOST_FACT_INFO = _gauge(
    "pinchpoint_host_fact_info", "A setting of this host that changes benchmark results.", "fact", "value"
)
SELF_CPU_SECONDS = _counter("pinchpoint_self_cpu_seconds_total", "CPU time of the exporter's own process.")
SELF_RESIDENT_BYTES = _gauge("pinchpoint_self_resident_bytes", "Resident memory of the exporter's own process.")
SELF_OPEN_FILES = _gauge("pinchpoint_self_open_files", "File descriptors that the exporter keeps open.")
BUILD_INFO = _gauge("pinchpoint_build_info", "The version of Pinchpoint and of Python.", "version", "python")
RESOURCE_THRESHOLD_RATIO = _gauge(
    "pinchpoint_resource_threshold_ratio", "Busy share from which the resource counts as full.", "resource"
)
ALERT_THRESHOLD = _gauge(
    "pinchpoint_alert_threshold",
    "Threshold of an alert that does not compare a busy share: a ratio, or in the unit that the roles file names.",
    "alert",
)
PROBE_DURATION_SECONDS = _gauge("pinchpoint_probe_duration_seconds", "How long the probe's last sample took.", "probe")
PROBE_SUCCESS = _gauge(
    "pinchpoint_probe_success", "1 if the probe's last sample worked, or there is nothing to read here.", "probe"
)
PROBE_PRESENT = _gauge("pinchpoint_probe_present", "1 if this machine has what the probe reads.", "probe")
PROBE_LAST_SUCCESS_TIMESTAMP_SECONDS = _gauge(
    "pinchpoint_probe_last_success_timestamp_seconds", "When the probe last worked, in Unix time.", "probe"
)
PROBE_INTERVAL_SECONDS = _gauge("pinchpoint_probe_interval_seconds", "Pace at which the probe is sampled.", "probe")
SAMPLER_SAMPLES = _counter("pinchpoint_sampler_samples_total", "Samples that were taken.", "probe")
SAMPLER_LATE_SAMPLES = _counter(
    "pinchpoint_sampler_late_samples_total", "Samples that were taken more than half an interval late.", "probe"
)
SAMPLER_LOST_SAMPLES = _counter(
    "pinchpoint_sampler_lost_samples_total",
    "Samples that were due and never taken, because the sampler had no CPU or a probe took too long.",
    "probe",
)
SAMPLER_PRIORITY_INFO = _gauge(
    "pinchpoint_sampler_priority_info",
    "Scheduling policy of the sampling thread; the reason says why it got no better one.",
    "policy",
    "reason",
)
SELF_SERIES = _gauge("pinchpoint_self_series", "Series of the last exposition.")
SELF_DROPPED_SERIES = _counter(
    "pinchpoint_self_dropped_series_total",
    "Series left out because their value or a label cannot be written, counted at each exposition.",
)

EXPORTER = tuple(metric for metric in list(vars().values()) if isinstance(metric, Metric))
"""What the exporter exports, in the order of the documentation."""

VERDICT_INFO = _gauge(
    "pinchpoint_verdict_info",
    "What limits a run now: a series for each limit that the verdict names, or one without a resource.",
    *PHASE,
    "kind",
    "resource",
    "owner",
    "host",
    "confidence",
)
VERDICT_START_TIMESTAMP_SECONDS = _gauge(
    "pinchpoint_verdict_start_timestamp_seconds", "Since when this is the verdict on a run.", *PHASE
)
VERDICT_WAIT_RATIO = _gauge(
    "pinchpoint_verdict_wait_ratio",
    "Share of the time of a run's processes by what they wait for, over the last seconds.",
    *RUN,
    "wait",
)
VERDICT_BLAME_RATIO = _gauge(
    "pinchpoint_verdict_blame_ratio",
    "Share of a run's time that a resource answers for, over the last seconds; the most blamed ones.",
    *RUN,
    "resource",
    "owner",
    "host",
)
PHASE_VERDICT_INFO = _gauge(
    "pinchpoint_phase_verdict_info",
    "What limited a phase that has ended, over all of it.",
    *PHASE,
    "kind",
    "resource",
    "owner",
    "host",
    "confidence",
)
RUN_FACT_HOSTS = _gauge(
    "pinchpoint_run_fact_hosts", "Hosts with this setting, of a run that goes on.", "run", "fact", "value"
)
JUDGE_HOSTS = _gauge("pinchpoint_judge_hosts", "Hosts that the judge knows, by whether they answer.", "state")
JUDGE_PROBLEM_INFO = _gauge(
    "pinchpoint_judge_problem_info", "Why a host, a source or a file of targets is not read.", "source", "reason"
)
JUDGE_RUNS = _gauge("pinchpoint_judge_runs", "Runs that go on.")
JUDGE_BEHIND_RUNS = _gauge(
    "pinchpoint_judge_behind_runs", "Runs that were not judged in the last round, as no time was left for them."
)
JUDGE_DATA_AGE_SECONDS = _gauge("pinchpoint_judge_data_age_seconds", "How old the newest samples are that were judged.")
JUDGE_ROUND_SECONDS = _gauge(
    "pinchpoint_judge_round_seconds", "How long the last round took: reading what came, and judging."
)
JUDGE_ROUNDS = _counter("pinchpoint_judge_rounds_total", "Rounds: one in each interval unless it falls behind.")
JUDGE_INTERVAL_SECONDS = _gauge("pinchpoint_judge_interval_seconds", "Time between two rounds as it is meant to be.")
JUDGE_CPU_SECONDS = _counter("pinchpoint_judge_cpu_seconds_total", "CPU time of the judge.")
JUDGE_RESIDENT_MEMORY_BYTES = _gauge("pinchpoint_judge_resident_memory_bytes", "Resident memory of the judge.")
JUDGE_BUILD_INFO = _gauge("pinchpoint_judge_build_info", "Version of the judge.", "version")

JUDGE = tuple(metric for metric in list(vars().values()) if isinstance(metric, Metric) and metric not in EXPORTER)
"""What the judge exports."""
