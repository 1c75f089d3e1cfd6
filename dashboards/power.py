"""What idle states and clocks cost: which host is slow because its CPUs sleep deeply or run slowly."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.kit import (
    HOST,
    WAIT_COLOURS,
    About,
    Column,
    Panel,
    Query,
    board,
    lines,
    numbers,
    rows,
)
from pinchpoint.report.palette import IDLE_STATES, SERIES

FACTS = "governor|turbo|idle_states|platform_profile|tuned|cmdline|cpu_model|smt|clocksource|kernel"
"""Facts of a host that change how fast its CPUs are, or how fast they wake up."""
SLOW = "slow below"
COSTLY = "costly from"
CAP = "at most"

STATE_COLOURS = {
    "/^awake$/": WAIT_COLOURS["cpu"],
    "/^(POLL|poll|snooze)$/": IDLE_STATES[0],
    "/^(C1|C1_ACPI|WFI|haltpoll)$/": IDLE_STATES[1],
    "/^(C1E|C2|C2_ACPI|Nap)$/": IDLE_STATES[2],
    "/^(C3|C3_ACPI|cpu-sleep.*)$/": IDLE_STATES[3],
    "/^C6/": IDLE_STATES[4],
    "/^(C[7-9]|C10|cluster-sleep.*)/": IDLE_STATES[5],
}
"""By the names that drivers give (intel_idle, acpi_idle, haltpoll, psci_idle, powernv), the deeper the darker."""

NO_IDLE = "no idle states to see: a virtual machine, or cpuidle is off"
NO_CLOCK = "no clock to see: a virtual machine, or the firmware decides"


def dashboard() -> Dashboard:
    """Return the dashboard."""
    made = board(
        "pinchpoint-power",
        "Pinchpoint / CPU power",
        "Which host is slow because its CPUs run below their clock, or have to wake up from deep sleep.",
        variables=("host", "run"),
    )
    panels = (
        *(slowest, dearest, not_performance, capped),
        *(hosts, odd),
        *(busy_clock, full_clock, clock),
        *(residency, entries, lost),
        *(deep, wake_up, states),
    )
    for panel in panels:
        made.with_panel(panel())
    return made


# ---- Queries


def ratio(cpus: str) -> str:
    """Return a query for the clock against the maximum, of CPUs that are ``busy`` or ``full``."""
    return f'max by (instance) (pinchpoint_cpu_clock_ratio{{{HOST}, cpus="{cpus}"}})'


def hertz(which: str, of: str) -> str:
    """Return a query for a clock of each host: the ``min``, ``avg`` or ``max`` over its CPUs."""
    return f"{of} by (instance) (pinchpoint_cpu_frequency_{which}hertz{{{HOST}}})"


def at_most() -> str:
    """Return a query for the highest clock that the CPUs of a host may have."""
    return f"({hertz('limit_', 'min')} or {hertz('max_', 'min')})"


LATENCY = f"pinchpoint_cpu_idle_state_exit_latency_seconds{{{HOST}}}"
TIME = f"pinchpoint:idle_state:rate{{{HOST}}}"
ENTRIES = f"pinchpoint:idle_entries:rate{{{HOST}}}"
CPUS = f"pinchpoint:idle_cpus:count{{{HOST}}}"
LOST = f"{ENTRIES} * on (instance, state) group_left () {LATENCY}"
"""Time that the CPUs of a host lose in leaving each state."""
EXIT = f"pinchpoint:idle_exit:rate{{{HOST}}}"
"""Time that the CPU of a host that loses most of it loses in leaving idle states."""


def settings() -> str:
    """Return a query for driver, governor and preference of each host; a host without says so."""
    found = f"max by (instance, driver, governor, epp) (pinchpoint_cpu_governor_info{{{HOST}}})"
    seen = f"group by (instance) (pinchpoint_build_info{{{HOST}}})"
    return f'({found} or label_replace({seen} unless on (instance) {found}, "governor", "not seen", "", ""))'


def caps() -> dict[str, str]:
    """Return queries for the hosts whose clock something holds down, by what that is; the value is what is left."""
    limit = (
        f"min by (instance) (pinchpoint_cpu_frequency_limit_hertz{{{HOST}}}"
        f" / on (instance, cpu) pinchpoint_cpu_frequency_max_hertz{{{HOST}}})"
    )
    return {
        "turbo": f"max by (instance) (pinchpoint_cpu_turbo_disabled{{{HOST}}}) == 1",
        "performance": f"min by (instance) (pinchpoint_cpu_performance_limit_ratio{{{HOST}}}) < 1",
        "limit": f"{limit} < 1",
    }


# ---- The answer


def slowest() -> Panel:
    """Return the slowest clock that work sees."""
    about = About(
        "The host on which work sees the lowest clock, against the maximum of its CPUs.",
        "Above 80 %.",
        "Below: a governor that sees no reason to hurry, or a limit. 4 KiB writes at depth 1 made 441 IOPS under "
        "`powersave` and 2369 under `performance`.",
        ("GovernorPowersave", "FrequencyCapped"),
    )
    return numbers(
        "Slowest clock under load",
        about,
        Query(f"bottomk(1, {ratio('busy')})", "{{instance}}"),
        unit="percentunit",
        decimals=0,
        name=True,
        size=(6, 3),
        nothing="no clock to see",
    )


def dearest() -> Panel:
    """Return what wake-ups cost where they cost most."""
    about = About(
        "The host with the CPU that loses most of its time in leaving idle states: entries x exit latency.",
        "Below 1 %, or the phase is one of bandwidth: sleeping CPUs leave turbo to the others.",
        "More, in a phase that waits for one small thing after the other.",
        ("DeepIdleInLatencyPhase",),
    )
    return numbers(
        "Lost in wake-ups, worst CPU",
        about,
        Query(f"topk(1, {EXIT})", "{{instance}}"),
        unit="percentunit",
        decimals=1,
        name=True,
        size=(6, 3),
        nothing="no idle states to see",
    )


def not_performance() -> Panel:
    """Return how many hosts have another governor than performance."""
    about = About(
        "Hosts with a CPU under another governor than `performance`, of those whose governor can be seen.",
        "0; or they are fast all the same (clock of busy CPUs, below).",
        "More than 0, and a low clock.",
        ("GovernorPowersave", "HostsDiffer"),
    )
    seen = f"group by (instance, governor) (pinchpoint_cpu_governor_info{{{HOST}}})"
    other = f'group by (instance) (pinchpoint_cpu_governor_info{{{HOST}, governor!="performance"}})'
    return numbers(
        "Hosts not on performance",
        about,
        Query(f"count({other}) or count({seen}) * 0", "hosts"),
        size=(6, 3),
        nothing="no governor to see",
    )


def capped() -> Panel:
    """Return how many hosts can't reach their clock."""
    about = About(
        "Hosts that can't reach their maximum clock: turbo is off, or the driver or the governor has a limit.",
        "0; or the same on all hosts, on purpose, to make reruns alike.",
        "Some hosts: the phase ends when the slowest of them does.",
        ("FrequencyCapped", "HostsDiffer"),
    )
    found = " or ".join(f"({expr})" for expr in caps().values())
    return numbers(
        "Hosts with a limit",
        about,
        Query(f"count({found}) or count({hertz('max_', 'max')}) * 0", "hosts"),
        size=(6, 3),
        nothing="no clock to see",
    )


def hosts() -> Panel:
    """Return the power settings of each host, and what they lead to."""
    about = About(
        "Driver, governor and energy preference of each host, the clock that its work saw (`busy`: weighted by busy "
        "time; `full`: CPUs at least 80 % busy), what limits the clock, and what wake-ups cost its worst CPU. The "
        "slowest first.",
        "All alike; clocks above 80 %, nothing limited.",
        "A host that is slower than the others holds up all of them. `powersave` of intel_pstate is dynamic, and still "
        "stays low under a light load.",
        ("GovernorPowersave", "FrequencyCapped", "DeepIdleInLatencyPhase"),
    )
    base = settings()

    def of(expr: str) -> Query:
        return Query(f"{base} * 0 + on (instance) group_left () ({expr})")

    found = caps()
    return rows(
        "Hosts",
        about,
        {
            "host": Query(base),
            "busy": of(ratio("busy")),
            "full": of(ratio("full")),
            "turbo": of(f"max by (instance) (pinchpoint_cpu_turbo_disabled{{{HOST}}})"),
            "limit": of(f"{found['limit']} or {found['performance']} or {ratio('busy')} * 0 + 1"),
            "exits": of(EXIT),
        },
        {
            "instance": Column("host", width=130),
            "governor": Column("governor", width=100),
            "driver": Column("driver", width=100),
            "epp": Column("preference", width=140),
            "busy": Column("clock, busy", unit="percentunit", bar=WAIT_COLOURS["osd"], decimals=0),
            "full": Column("clock, full", unit="percentunit", width=85, decimals=0),
            "turbo": Column("turbo", width=60, words={"0": "on", "1": "off"}),
            "limit": Column("limit", unit="percentunit", width=65, decimals=0),
            "exits": Column("wake-ups", unit="percentunit", width=80, decimals=1),
        },
        size=(14, 7),
        sort="busy",
        ascending=True,
        nothing="no host is chosen",
    )


def odd() -> Panel:
    """Return what differs between the hosts."""
    about = About(
        "Settings and kinds of CPU that not more than half of the hosts of a group have, and what the majority has. "
        "Other settings: alert HostsDiffer, dashboard Runs.",
        "Empty, or different on purpose: give clients and storage hosts a label `group`.",
        "A governor, idle state or parameter that one host alone has: it sets the pace of all.",
        ("HostsDiffer", "GovernorPowersave", "FrequencyCapped"),
    )
    facts = f'max by (instance, group, fact, value) (pinchpoint_host_fact_info{{{HOST}, fact=~"{FACTS}"}})'
    have = f"count by (group, fact, value) ({facts})"
    most = f"{have} > on (group, fact) group_left () (count by (group, fact) ({facts}) / 2)"
    others = f"({facts} unless on (group, fact, value) ({most}))"
    usual = f'label_replace({most}, "usual", "$1", "value", "(.*)")'
    named = f"{others} * on (group, fact) group_left (usual) ({usual})"
    return rows(
        "Hosts that differ",
        about,
        {
            "with": Query(
                f"0 * ({named} or {others} unless on (group, fact) ({most})) "
                f"+ on (group, fact, value) group_left () {have}"
            )
        },
        {
            "fact": Column("setting", width=110),
            "instance": Column("on", width=130),
            "value": Column("has"),
            "usual": Column("most have"),
            "with": Column("hosts", width=60, decimals=0),
        },
        size=(10, 7),
        sort="with",
        ascending=True,
        nothing="all hosts are alike",
    )


# ---- Clocks


def clock_of(cpus: str, alert: str, title: str, about: About) -> Panel:
    """Return the clock of CPUs against their maximum, and from where on an alert calls it slow."""
    slow = f'max(pinchpoint_alert_threshold{{{HOST}, alert="{alert}"}} and on (instance) {ratio(cpus)})'
    return lines(
        title,
        about,
        Query(f"bottomk(8, {ratio(cpus)})", "{{instance}}"),
        Query(slow, SLOW),
        unit="percentunit",
        decimals=0,
        most=1,
        limit=SLOW,
        size=(8, 7),
        nothing=NO_CLOCK,
    )


def busy_clock() -> Panel:
    """Return the clock that work sees."""
    about = About(
        "Clock against the maximum, of all CPUs weighted by their busy time: what the work saw. The slowest hosts.",
        "Above the dashed line, and alike on all hosts.",
        "Below it: under a light load (one request after the other) the governor leaves the clock low.",
        ("GovernorPowersave", "HostsDiffer"),
    )
    return clock_of("busy", "GovernorPowersave", "Clock of busy CPUs, against maximum", about)


def full_clock() -> Panel:
    """Return the clock of CPUs that are full."""
    about = About(
        "Clock against the maximum, of CPUs that are at least 80 % busy. The slowest hosts; nothing where no CPU is.",
        "Above the dashed line. With all cores at work turbo is lower than for one alone.",
        "Below it: turbo is off, a limit, heat, or the BIOS (`Power Technology: Disabled` held CPUs at 2.1 of 3.7 "
        "GHz). Whatever one thread limits is slower in proportion.",
        ("FrequencyCapped",),
    )
    return clock_of("full", "FrequencyCapped", "Clock of full CPUs, against maximum", about)


def clock() -> Panel:
    """Return the clocks of each host in Hz."""
    about = About(
        "Clock of the CPUs of each host, mean and highest, and the highest that it may have. Read every 5 s.",
        "The highest near the dashed line while the host works.",
        "All CPUs at one clock far below the line, whatever the load: it is pinned.",
        ("FrequencyCapped", "GovernorPowersave"),
    )
    return lines(
        "Clock",
        about,
        Query(f"bottomk(6, {hertz('', 'avg')})", "mean {{instance}}"),
        Query(f"bottomk(6, {hertz('', 'max')})", "highest {{instance}}"),
        Query(f"min({at_most()})", CAP),
        unit="hertz",
        decimals=2,
        colours={"/^highest/": SERIES[5]},
        limit=CAP,
        size=(8, 7),
        nothing=NO_CLOCK,
    )


# ---- Idle states


def residency() -> Panel:
    """Return where CPUs spend their time."""
    about = About(
        "Share of the CPUs' time in each idle state, the deeper the darker, and awake; mean over the chosen hosts. It "
        "is the state that was asked for: hardware may stay in a shallower one.",
        "In a phase that waits for latency: shallow states. In one of bandwidth: deep ones, which leave turbo to CPUs "
        "that work.",
        "Deep states in `*_hard_*`, stat and delete phases: without C6 (133 us) ior_hard_write rose by 49 %.",
        ("DeepIdleInLatencyPhase",),
    )
    asleep = f"sum by (state) ({TIME}) / on () group_left () sum({CPUS})"
    return lines(
        "Where CPUs spend their time",
        about,
        Query(f"clamp_min(1 - sum({asleep}), 0)", "awake"),
        Query(asleep, "{{state}}"),
        unit="percentunit",
        decimals=0,
        colours=STATE_COLOURS,
        stack=True,
        most=1,
        size=(8, 7),
        nothing=NO_IDLE,
    )


def entries() -> Panel:
    """Return how often CPUs fall asleep."""
    about = About(
        "How often a CPU goes to sleep, by state; mean over the CPUs of the chosen hosts.",
        "Few, or shallow states.",
        "Thousands a second into a deep state: each is a wake-up that something waits for.",
        ("DeepIdleInLatencyPhase",),
    )
    return lines(
        "Sleeps a second of a CPU",
        about,
        Query(f"sum by (state) ({ENTRIES}) / on () group_left () sum({CPUS})", "{{state}}"),
        unit="cps",
        colours=STATE_COLOURS,
        stack=True,
        size=(8, 7),
        nothing=NO_IDLE,
    )


def lost() -> Panel:
    """Return what leaving each state costs."""
    about = About(
        "Time lost in leaving each idle state (entries x exit latency), as a share of a CPU; mean over the CPUs of the "
        "chosen hosts. It is an upper bound: drivers state the longest latency.",
        "Well below 1 %.",
        "One state has most of it: switch it off for phases that wait for latency, and on again for bandwidth.",
        ("DeepIdleInLatencyPhase",),
    )
    return lines(
        "Lost in leaving each state",
        about,
        Query(f"sum by (state) ({LOST}) / on () group_left () sum({CPUS})", "{{state}}"),
        unit="percentunit",
        decimals=2,
        colours=STATE_COLOURS,
        stack=True,
        size=(8, 7),
        nothing=NO_IDLE,
    )


def deep() -> Panel:
    """Return what deep states cost each host's worst CPU."""
    about = About(
        "Share of its time that the worst CPU of a host loses in leaving states of 50 us and more.",
        "Below the dashed line, or a phase of bandwidth.",
        "Above it in a phase that waits for one small thing after the other: C6 off gained up to 49 % there, and cost "
        "ior_easy_write 7 % and ior_easy_read 15 %.",
        ("DeepIdleInLatencyPhase",),
    )
    limit = f'pinchpoint_alert_threshold{{{HOST}, alert="DeepIdleInLatencyPhase"}} and on (instance) {EXIT}'
    return lines(
        "Lost in deep states, worst CPU of a host",
        about,
        Query(f"topk(8, pinchpoint:deep_idle_exit:rate{{{HOST}}})", "{{instance}}"),
        Query(f"max({limit})", COSTLY),
        unit="percentunit",
        decimals=1,
        shade=IDLE_STATES[4],
        limit=COSTLY,
        size=(8, 7),
        nothing=NO_IDLE,
    )


def wake_up() -> Panel:
    """Return what one wake-up costs on each host."""
    about = About(
        "Mean exit latency of a sleep on each host: what a request pays for each CPU that has to wake up for it.",
        "A few us, the same on all hosts.",
        "Tens of us on one host alone: its deep states are on, those of the others are off. Ping took 0.178 ms with C6 "
        "and 0.054 ms without.",
        ("DeepIdleInLatencyPhase", "HostsDiffer"),
    )
    cost = f"sum by (instance) ({LOST}) / sum by (instance) ({ENTRIES})"
    return lines(
        "Cost of one wake-up",
        about,
        Query(f"topk(8, {cost})", "{{instance}}"),
        unit="s",
        shade=IDLE_STATES[4],
        size=(8, 7),
        nothing=NO_IDLE,
    )


def states() -> Panel:
    """Return the idle states of each host."""
    about = About(
        "Idle states of each host: what leaving one takes, on how many CPUs it is off, how much time is spent there, "
        "and how often a CPU goes there.",
        "The same states, with the same switched off, on all hosts.",
        "A deep state that is used often. One that is off on some CPUs only: somebody forgot to undo it.",
        ("DeepIdleInLatencyPhase", "HostsDiffer"),
    )

    def of_a_cpu(expr: str) -> Query:
        return Query(f"max by (instance, state) ({expr}) / on (instance) group_left () {CPUS}")

    return rows(
        "Idle states",
        about,
        {
            "latency": Query(f"max by (instance, state) ({LATENCY})"),
            "off": Query(f"max by (instance, state) (pinchpoint_cpu_idle_state_disabled_cpus{{{HOST}}})"),
            "time": of_a_cpu(TIME),
            "entries": of_a_cpu(ENTRIES),
        },
        {
            "instance": Column("host", width=130),
            "state": Column("state", width=75),
            "latency": Column("exit", unit="s", width=75),
            "off": Column("off on CPUs", width=90, decimals=0),
            "time": Column("time", unit="percentunit", bar=IDLE_STATES[4], decimals=0),
            "entries": Column("sleeps", unit="cps", width=85, decimals=0),
        },
        size=(8, 7),
        sort="latency",
        nothing=NO_IDLE,
    )
