"""What idle states and clocks cost: which host is slow because its CPUs sleep deeply or run slowly."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.kit.about import About
from dashboards.kit.board import board, folded
from dashboards.kit.colours import WAIT_COLOURS
from dashboards.kit.over_time import lines
from dashboards.kit.panel import Panel
from dashboards.kit.present import numbers
from dashboards.kit.queries import HOST, Query
from dashboards.kit.tables import Column, rows
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
"""Keyed by the names that drivers use (intel_idle, acpi_idle, haltpoll, psci_idle, powernv); deeper is darker."""

NO_IDLE = "no idle states visible: a virtual machine, or cpuidle is off"
NO_CLOCK = "no clock visible: a virtual machine, or the firmware decides"


def dashboard() -> Dashboard:
    """Return the dashboard."""
    made = board(
        "pinchpoint-power",
        "Pinchpoint / CPU power",
        "Which host is slow because its CPUs run below their clock, or have to wake up from deep sleep.",
        variables=("host", "at", "run", "several"),
    )
    for panel in (slowest, dearest, not_performance, capped, hosts, odd):
        made.with_panel(panel())
    made.with_row(folded("Clocks", busy_clock(), full_clock(), clock()))
    made.with_row(folded("Idle states", residency(), entries(), lost(), deep(), wake_up(), states()))
    return made


def ratio(cpus: str) -> str:
    """Return a query for the clock of ``busy`` or ``full`` CPUs, relative to the maximum."""
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
"""Time that the CPUs of a host lose leaving each state."""
EXIT = f"pinchpoint:idle_exit:rate{{{HOST}}}"
"""Time that a CPU loses leaving idle states, for the CPU of each host that loses most."""


def settings() -> str:
    """Return a query for driver, governor and preference of each host; without any, its governor is ``not seen``."""
    found = f"max by (instance, driver, governor, epp) (pinchpoint_cpu_governor_info{{{HOST}}})"
    seen = f"group by (instance) (pinchpoint_build_info{{{HOST}}})"
    return f'({found} or label_replace({seen} unless on (instance) {found}, "governor", "not seen", "", ""))'


def caps() -> dict[str, str]:
    """Return queries for the hosts whose clock is limited, by kind of limit; ratios are the part that remains."""
    limit = (
        f"min by (instance) (pinchpoint_cpu_frequency_limit_hertz{{{HOST}}}"
        f" / on (instance, cpu) pinchpoint_cpu_frequency_max_hertz{{{HOST}}})"
    )
    return {
        "turbo": f"max by (instance) (pinchpoint_cpu_turbo_disabled{{{HOST}}}) == 1",
        "performance": f"min by (instance) (pinchpoint_cpu_performance_limit_ratio{{{HOST}}}) < 1",
        "limit": f"{limit} < 1",
    }


def slowest() -> Panel:
    """Return the host whose work gets the lowest clock."""
    about = About(
        "The host whose work gets the lowest clock, relative to the maximum of its CPUs.",
        "Above 80 %.",
        "Below: the governor keeps the clock low, or there is a limit. 4 KiB writes at depth 1 reached 441 IOPS "
        "under `powersave` and 2369 under `performance`.",
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
        nothing="no clock visible",
    )


def dearest() -> Panel:
    """Return the cost of wake-ups on the host where it is highest."""
    about = About(
        "The host with the CPU that loses most time leaving idle states: entries x exit latency.",
        "Below 1 %, or any value in a bandwidth phase: sleeping CPUs leave turbo to the others.",
        "More, in a phase that waits for one small request at a time.",
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
        nothing="no idle states visible",
    )


def not_performance() -> Panel:
    """Return how many hosts have a governor other than performance."""
    about = About(
        "Hosts with a CPU under a governor other than `performance`, among hosts whose governor is visible.",
        "0, or the hosts are fast anyway (clock of busy CPUs, below).",
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
        nothing="no governor visible",
    )


def capped() -> Panel:
    """Return how many hosts cannot reach their maximum clock."""
    about = About(
        "Hosts that cannot reach their maximum clock: turbo is off, or the driver or the governor has a limit.",
        "0, or the same limit on all hosts, on purpose, so that reruns are comparable.",
        "Only some hosts: the phase ends only when the slowest one is done.",
        ("FrequencyCapped", "HostsDiffer"),
    )
    found = " or ".join(f"({expr})" for expr in caps().values())
    return numbers(
        "Hosts with a limit",
        about,
        Query(f"count({found}) or count({hertz('max_', 'max')}) * 0", "hosts"),
        size=(6, 3),
        nothing="no clock visible",
    )


def hosts() -> Panel:
    """Return the power settings of each host, and what they lead to."""
    about = About(
        "Driver, governor and energy preference of each host, the clock that its work got (`busy`: weighted by "
        "busy time; `full`: CPUs at least 80 % busy), what limits the clock, and the cost of wake-ups on its "
        "worst CPU. The slowest hosts come first.",
        "All hosts alike, clocks above 80 %, no limits.",
        "A slower host holds up all the others. intel_pstate's `powersave` is dynamic but still stays low under a "
        "light load.",
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
            "instance": Column("host", width=100),
            "governor": Column("governor", width=80),
            "driver": Column("driver", width=80),
            "epp": Column("preference", width=90),
            "busy": Column("clock, busy", unit="percentunit", bar=WAIT_COLOURS["osd"], decimals=0),
            "full": Column("clock, full", unit="percentunit", width=85, decimals=0),
            "turbo": Column("turbo", width=60, words={"0": "on", "1": "off"}),
            "limit": Column("limit", unit="percentunit", width=65, decimals=0),
            "exits": Column("wake-ups", unit="percentunit", width=80, decimals=1),
        },
        size=(14, 7),
        sort="busy",
        ascending=True,
        nothing="no host is selected",
    )


def odd() -> Panel:
    """Return what differs between the hosts."""
    about = About(
        "Settings and CPU models that at most half of the hosts in a group have, and the value of the majority. "
        "For other settings, see the alert HostsDiffer and the dashboard Runs.",
        "Empty, or different on purpose: then give clients and storage hosts a label `group`.",
        "A governor, idle state or parameter that only one host has: that host sets the pace for all.",
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
            "instance": Column("on", width=130, several=True),
            "value": Column("has"),
            "usual": Column("most have"),
            "with": Column("hosts", width=60, decimals=0),
        },
        size=(10, 7),
        sort="with",
        ascending=True,
        nothing="all hosts are alike",
    )


def clock_of(cpus: str, alert: str, title: str, about: About) -> Panel:
    """Return the clock of CPUs relative to their maximum, and the ratio below which an alert calls it slow."""
    slow = f'max(pinchpoint_alert_threshold{{{HOST}, alert="{alert}"}} and on (instance) {ratio(cpus)})'
    return lines(
        title,
        about,
        Query(f"bottomk(8, {ratio(cpus)})", "{{instance}}"),
        Query(slow, SLOW),
        unit="percentunit",
        most=1,
        limit=SLOW,
        size=(8, 9),
        nothing=NO_CLOCK,
    )


def busy_clock() -> Panel:
    """Return the clock that the work of each host gets."""
    about = About(
        "Clock relative to the maximum, over all CPUs weighted by busy time: the clock that the work got. The "
        "slowest hosts.",
        "Above the dashed line, and similar on all hosts.",
        "Below it: under a light load (one request at a time) the governor leaves the clock low.",
        ("GovernorPowersave", "HostsDiffer"),
    )
    return clock_of("busy", "GovernorPowersave", "Clock of busy CPUs, against maximum", about)


def full_clock() -> Panel:
    """Return the clock of CPUs that are full."""
    about = About(
        "Clock relative to the maximum, over CPUs that are at least 80 % busy. The slowest hosts; empty where no "
        "CPU is that busy.",
        "Above the dashed line. With all cores at work, turbo is lower than for a single core.",
        "Below it: turbo is off, or a limit, heat or the BIOS slows the CPUs (`Power Technology: Disabled` held "
        "CPUs at 2.1 of 3.7 GHz). Everything limited by one thread slows down in proportion.",
        ("FrequencyCapped",),
    )
    return clock_of("full", "FrequencyCapped", "Clock of full CPUs, against maximum", about)


def clock() -> Panel:
    """Return the clocks of each host in Hz."""
    about = About(
        "CPU clock of each host, mean and highest, and the highest allowed. Read every 5 s.",
        "The highest is near the dashed line while the host works.",
        "All CPUs are at one clock far below the line, regardless of load: the clock is pinned.",
        ("FrequencyCapped", "GovernorPowersave"),
    )
    return lines(
        "Clock",
        about,
        Query(f"bottomk(6, {hertz('', 'avg')})", "mean$at"),
        Query(f"bottomk(6, {hertz('', 'max')})", "highest$at"),
        Query(f"min({at_most()})", CAP),
        unit="hertz",
        decimals=2,
        colours={"/^highest/": SERIES[5]},
        limit=CAP,
        size=(8, 9),
        nothing=NO_CLOCK,
    )


def residency() -> Panel:
    """Return where CPUs spend their time."""
    about = About(
        "Share of CPU time in each idle state (the deeper, the darker) and awake; mean over the selected hosts. "
        "This is the requested state: the hardware may stay in a shallower one.",
        "In a latency-bound phase: shallow states. In a bandwidth phase: deep states, which leave turbo to the "
        "working CPUs.",
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
        colours=STATE_COLOURS,
        stack=True,
        most=1,
        size=(8, 9),
        nothing=NO_IDLE,
    )


def entries() -> Panel:
    """Return how often CPUs fall asleep."""
    about = About(
        "How often a CPU goes to sleep, by state; mean over the CPUs of the selected hosts.",
        "Rarely, or into shallow states.",
        "Thousands of times a second into a deep state: something waits for each wake-up.",
        ("DeepIdleInLatencyPhase",),
    )
    return lines(
        "Sleeps per second and CPU",
        about,
        Query(f"sum by (state) ({ENTRIES}) / on () group_left () sum({CPUS})", "{{state}}"),
        unit="cps",
        colours=STATE_COLOURS,
        stack=True,
        size=(8, 9),
        nothing=NO_IDLE,
    )


def lost() -> Panel:
    """Return what leaving each state costs."""
    about = About(
        "Time lost leaving each idle state (entries x exit latency), as a share of a CPU; mean over the CPUs of "
        "the selected hosts. This is an upper bound: drivers state the longest latency.",
        "Well below 1 %.",
        "One state accounts for most of it: disable it for latency-bound phases, and enable it again for bandwidth.",
        ("DeepIdleInLatencyPhase",),
    )
    return lines(
        "Lost leaving each state",
        about,
        Query(f"sum by (state) ({LOST}) / on () group_left () sum({CPUS})", "{{state}}"),
        unit="percentunit",
        decimals=2,
        colours=STATE_COLOURS,
        stack=True,
        size=(8, 9),
        nothing=NO_IDLE,
    )


def deep() -> Panel:
    """Return what deep states cost each host's worst CPU."""
    about = About(
        "Share of time that the worst CPU of a host loses leaving states of 50 us or more.",
        "Below the dashed line, or any value in a bandwidth phase.",
        "Above it in a phase that waits for one small request at a time: disabling C6 gained up to 49 % there, "
        "and cost ior_easy_write 7 % and ior_easy_read 15 %.",
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
        limit=COSTLY,
        nothing=NO_IDLE,
    )


def wake_up() -> Panel:
    """Return what one wake-up costs on each host."""
    about = About(
        "Mean exit latency of a sleep on each host: the cost to a request for each CPU that has to wake up for it.",
        "A few us, the same on all hosts.",
        "Tens of us on one host only: its deep states are enabled, those of the others are disabled. Ping took "
        "0.178 ms with C6 and 0.054 ms without.",
        ("DeepIdleInLatencyPhase", "HostsDiffer"),
    )
    cost = f"sum by (instance) ({LOST}) / sum by (instance) ({ENTRIES})"
    return lines(
        "Cost of one wake-up",
        about,
        Query(f"topk(8, {cost})", "{{instance}}"),
        unit="s",
        nothing=NO_IDLE,
    )


def states() -> Panel:
    """Return the idle states of each host."""
    about = About(
        "Idle states of each host: exit latency, number of CPUs on which the state is disabled, share of time, "
        "and how often a CPU enters it.",
        "All hosts have the same states, with the same ones disabled.",
        "A deep state is used often. A state is disabled on some CPUs only: a change was not fully undone.",
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
        size=(24, 9),
        sort="latency",
        nothing=NO_IDLE,
    )
