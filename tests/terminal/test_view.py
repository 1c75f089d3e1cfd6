from __future__ import annotations

import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console

from pinchpoint.diagnosis.progress import ActivePhase, Run
from pinchpoint.diagnosis.recent import Judged
from pinchpoint.diagnosis.usage import (
    BlindProbe,
    Clock,
    Idle,
    IdleState,
    MemoryUse,
    Own,
    ResourceUse,
    RoleUse,
    SilentDaemon,
    UnknownThread,
    Usage,
    WorkloadUse,
)
from pinchpoint.diagnosis.verdict import Kind, Limit, Verdict
from pinchpoint.runs import Result
from pinchpoint.terminal.view import Down, HostView, Picture, View, duration

BUSY = Usage(
    time=1000.0,
    seconds=2.0,
    resources=(
        ResourceUse("mds_lock", "mds.a", ("mds",), 0.97, 0.93, 0.3, 0.8),
        ResourceUse("disk", "nvme0n1", ("disk",), 0.88, 0.3, None, 0.8),
        ResourceUse("writeback_worker", "ceph-1", ("writeback",), 0.4, 0.0, 0.05, 0.7),
        ResourceUse("kswapd", "node0", ("memory",), 0.001, 0.0, 0.0, 0.8),
    ),
    roles=(
        RoleUse("osd_op", "osd.0", 3.2, 0.8, 16),
        RoleUse("mds_lock", "mds.a", 0.68, 0.29, 5),
        RoleUse("writeback_worker", "ceph-1", 0.38, None, 0),
        RoleUse("kswapd", "node0", 0.001, 0.0, 1),
    ),
    phases=(ActivePhase("io500", "r1", "mdtest_hard_stat", 927.0),),
    idle=Idle((IdleState("POLL", 0.0, 0), IdleState("C1", 0.03, 0), IdleState("C6", 0.4, 2)), 0.013, 0.02),
    clock=Clock(2.1e9, 3.7e9, 0.57, 0.93, ("powersave",)),
    memory=MemoryUse(1.3e9, 5e7, 3.2e9, 6.0),
    silent=(SilentDaemon("mds.a", "silent", False), SilentDaemon("osd.0", "stopped", True)),
    blind=(BlindProbe("cgroups", True, 34.5), BlindProbe("devices", False, 3700.0), BlindProbe("self", True, None)),
    absent=("cpufreq",),
    own=Own(0.012, 95.0, 5.0),
)
IDLE = Usage(time=1000.0, seconds=2.0, resources=(ResourceUse("kswapd", "node0", (), 0.0, 0.0, 0.0, 0.8),))
EMPTY = Usage(time=1000.0, seconds=2.0)
HOSTILE = Usage(
    time=1000.0,
    seconds=2.0,
    resources=(
        ResourceUse("[bold red]x[/]", "\x1b[2J\x1b]0;owned\x07", (), 1.0, 1.0, 0.0, 0.8),
        ResourceUse("a\nb\tc\r\x00", "漢字" * 20, (), 0.5, 0.0, None, None),
        ResourceUse("\u202egnp.exe", "", (), 0.25, 0.0, None, 0.8),
    ),
    roles=(RoleUse("[link=file:///]", "\ud800" + "z" * 300, 12345.6, 0.004, 7),),
    phases=(ActivePhase("[/]", "r", "phase\n2", None),),
)


def plain(view: View, width: int = 80, encoding: str = "utf-8") -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
    Console(file=file, width=width, height=24, color_system=None, force_terminal=False).print(view)
    file.seek(0)
    return file.read().splitlines()


def golden(text: str) -> list[str]:
    return text.strip("\n").splitlines()


def test_a_busy_host() -> None:
    assert plain(View(Picture([HostView("node1:9748", "exporter", BUSY)]))) == golden(
        """
node1:9748 (exporter)  io500 mdtest_hard_stat 1:13       5 blind, costs 1.2% CPU
RESOURCE           OWNER          busy (▒ no CPU, │ limit)   BUSY SATURATED
mds_lock           mds.a          █████████████████▒▒▒│▒▒▒▒   97%       93% FULL
disk               nvme0n1        ████████████████████│██     88%       30% near
writeback_worker   ceph-1         █████████▒        │         40%        0%

ROLE               OWNER             CPUs  no CPU  threads
osd_op             osd.0             3.20    0.80       16
mds_lock           mds.a             0.68    0.29        5
writeback_worker   ceph-1            0.38       -        -

CPUs   C1 3% C6 40% (2 off), exits 1.3%; 2.1/3.7 GHz, busy 93%, powersave
memory dirty 1.2 GiB of 3.0 GiB, writeback 48 MiB, reclaim stalls 6
blind  mds.a (silent), osd.0 (stuck), cgroups (failing for 0:34), devices (no s…
absent cpufreq
"""
    )


def test_an_idle_host_and_one_without_data() -> None:
    assert plain(View(Picture([HostView("a:1", "exporter", IDLE), HostView("b:1", "exporter", EMPTY)]))) == golden(
        """
a:1 (exporter)  no benchmark runs                                    sampling ok
RESOURCE           OWNER          busy (▒ no CPU, │ limit)   BUSY SATURATED
 nothing is busy

CPUs   idle states unknown; clock unknown
memory dirty unknown, writeback unknown, reclaim stalls unknown

b:1 (exporter)  no benchmark runs                                    sampling ok
RESOURCE           OWNER          busy (▒ no CPU, │ limit)   BUSY SATURATED
 no resource has been measured

CPUs   idle states unknown; clock unknown
memory dirty unknown, writeback unknown, reclaim stalls unknown
"""
    )


RANKS = WorkloadUse("io500", "", {"network": 6.2, "cpu": 1.7}, ("io500",), ())


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (replace(IDLE, runs=(Run("fio", "r1", "running", 900.0),)), "fio running"),
        (replace(IDLE, runs=(Run("fio", "r1", "finished", 900.0, end=990.0),)), "no benchmark runs"),
        (replace(IDLE, workloads=(RANKS,)), "8 processes of io500"),
        (replace(IDLE, workloads=(replace(RANKS, waits={"cpu": 1.0}),)), "1 process of io500"),
        (replace(IDLE, workloads=(replace(RANKS, waits={"cpu": 0.0}),)), "no benchmark runs"),
        (replace(BUSY, workloads=(RANKS,)), "io500 mdtest_hard_stat 1:13"),
    ],
)
def test_a_host_says_what_benchmarks_do_on_it_also_where_it_only_has_ranks(use: Usage, words: str) -> None:
    assert plain(View(Picture([HostView("a:1", "exporter", use)])))[0].startswith(f"a:1 (exporter)  {words}  ")


def test_a_host_that_is_down_says_why_and_for_how_long_and_the_others_go_on() -> None:
    hosts = [
        HostView("a:1", "exporter", Down("Connection refused", 75.0)),
        HostView("b:1", "exporter", None),
        HostView("c:1", "exporter", IDLE),
    ]

    assert plain(View(Picture(hosts)))[:6] == golden(
        """
a:1  DOWN for 1:15: Connection refused

b:1 (exporter)  waiting for the second sample

c:1 (exporter)  no benchmark runs                                    sampling ok
RESOURCE           OWNER          busy (▒ no CPU, │ limit)   BUSY SATURATED
"""
    )


STRANGE = replace(IDLE, unknown=(UnknownThread("my_thread", "foo", 1.0, 0.97),))


def test_a_hot_thread_that_no_role_names_is_named_below_the_resources() -> None:
    lines = plain(View(Picture([HostView("a:1", "exporter", STRANGE)])))

    assert lines[4] == "no role: `my_thread` of `foo` at 100%"


def test_one_that_is_not_hot_is_not() -> None:
    calm = replace(IDLE, unknown=(UnknownThread("my_thread", "foo", 0.3, 0.1),))

    assert not any("no role" in line for line in plain(View(Picture([HostView("a:1", "exporter", calm)]))))


@pytest.mark.parametrize("height", range(1, 16))
def test_a_host_with_a_hot_thread_keeps_to_its_height(height: int) -> None:
    lines = plain(
        View(Picture([HostView("a:1", "exporter", replace(BUSY, unknown=STRANGE.unknown))]), height, "q quits")
    )

    assert len(lines) == height
    assert lines[-1] == "q quits"
    assert height < 11 or any("no role: `my_thread`" in line for line in lines)


def test_a_threads_name_can_do_nothing_to_the_terminal() -> None:
    evil = replace(IDLE, unknown=(UnknownThread("\x1b[2J[bold]\n", "\u202egnp.exe" + "z" * 300, 1.0, 1.0),))

    line = plain(View(Picture([HostView("a:1", "exporter", evil)])))[4]
    assert line.startswith("no role: `\ufffd[2J[bold]\ufffd` of `\ufffdgnp.exezzz")
    assert len(line) == 80


def test_names_are_drawn_as_plain_text() -> None:
    hosts = [HostView("[red]h\x1b[31m", "[b]", HOSTILE), HostView("x" * 200, "", Down("y\n" * 200, 1.0))]

    assert plain(View(Picture(hosts))) == golden(
        """
[red]h�[31m ([b])  [/] phase�2                                       sampling ok
RESOURCE           OWNER          busy (▒ no CPU, │ limit)   BUSY SATURATED
[bold red]x[/]     �[2J�]0;owned� ████████████████████│█████ 100%      100% FULL
a�b�c��            漢字漢字漢字 … █████████████               50%        0%
�gnp.exe                          ██████              │       25%        0%

ROLE               OWNER             CPUs  no CPU  threads
[link=file:///]    �zzzzzzzzzzzz…   12346    0.00        7

CPUs   idle states unknown; clock unknown
memory dirty unknown, writeback unknown, reclaim stalls unknown

xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
"""
    )


def test_a_terminal_without_unicode_gets_ascii() -> None:
    lines = plain(View(Picture([HostView("h", "n", BUSY), HostView("é", "n", HOSTILE)])), encoding="ascii")

    assert "\n".join(lines).isascii()
    assert lines[2] == "mds_lock           mds.a          #################+++|++++   97%       93% FULL"


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {}])
def test_full_is_said_by_a_word_and_colour_only_adds_to_it(variables: dict[str, str]) -> None:
    file = io.StringIO()
    console = Console(
        file=file, width=80, force_terminal=True, color_system="standard", _environ={"TERM": "xterm", **variables}
    )
    console.print(View(Picture([HostView("h", "n", BUSY)])))

    coloured = "\x1b[1;31mFULL" in file.getvalue()
    assert coloured is not bool(variables)
    assert "FULL" in file.getvalue()
    if variables:
        assert "31m" not in file.getvalue()


def test_samples_that_were_lost_are_told_in_the_header() -> None:
    lines = plain(View(Picture([HostView("h", "n", replace(BUSY, blind=(), silent=()))])))

    assert lines[0].endswith("5% of samples lost, costs 1.2% CPU")


def test_a_picture_fills_just_the_height_that_it_has() -> None:
    hosts = [HostView("a", "n", BUSY), HostView("b", "n", Down("gone", 1.0)), HostView("c", "n", IDLE)]
    for height in range(1, 60):
        assert len(plain(View(Picture(hosts), height, "q quits"))) == height
        assert plain(View(Picture(hosts), height, "q quits"))[-1] == "q quits"


def test_lines_that_one_host_does_not_need_are_for_the_others() -> None:
    lines = plain(View(Picture([HostView("a", "n", BUSY), HostView("c", "n", IDLE)]), 23, "q quits"))

    assert lines[-2].startswith("memory")
    assert "absent cpufreq" in lines
    assert sum(line.startswith("RESOURCE") for line in lines) == 2


def test_with_little_height_the_fullest_resources_are_left_and_then_the_number_of_hosts() -> None:
    hosts = [HostView(f"host{index}", "n", BUSY) for index in range(5)]

    assert plain(View(Picture(hosts), 11, "q quits"))[:4] == golden(
        """
host0 (n)  io500 mdtest_hard_stat 1:13                   5 blind, costs 1.2% CPU
mds_lock           mds.a          █████████████████▒▒▒│▒▒▒▒   97%       93% FULL
host1 (n)  io500 mdtest_hard_stat 1:13                   5 blind, costs 1.2% CPU
mds_lock           mds.a          █████████████████▒▒▒│▒▒▒▒   97%       93% FULL
"""
    )
    assert plain(View(Picture(hosts), 4, "q quits")) == golden(
        """
host0 (n)  mds_lock mds.a 97% FULL                       5 blind, costs 1.2% CPU
host1 (n)  mds_lock mds.a 97% FULL                       5 blind, costs 1.2% CPU
3 more do not fit: the window is too low
q quits
"""
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3.0, "0:00"), (59.9, "0:59"), (61, "1:01"), (3661, "1:01:01"), (360000, "100:00:00")]
)
def test_durations_are_minutes_and_seconds(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@given(
    width=st.integers(1, 200),
    height=st.one_of(st.none(), st.integers(1, 60)),
    name=st.text(max_size=90),
    count=st.integers(0, 4),
)
def test_no_line_is_wider_than_the_terminal(width: int, height: int | None, name: str, count: int) -> None:
    named = replace(
        BUSY,
        resources=tuple(msgspec.structs.replace(entry, resource=name, owner=name) for entry in BUSY.resources),
        roles=tuple(msgspec.structs.replace(entry, role=name, owner=name) for entry in BUSY.roles),
        phases=(ActivePhase(name, name, name, 1.0),) * count,
        clock=Clock(2.1e9, 3.7e9, 0.57, 0.93, (name,) * count),
        absent=(name,) * count,
    )
    hosts = [HostView(name, name, named), HostView("b", "n", HOSTILE), HostView(name, name, Down(name, 5.0))]
    view = View(Picture(hosts), height, name)

    for line in plain(view, width):
        assert cell_len(line) <= width
        assert line.isprintable()


HARD_WRITE = ActivePhase(
    "io500",
    "r1",
    "mdtest_hard_write",
    979.0,
    number=4,
    total=13,
    progress=0.31,
    expected=300.0,
    stalled=1.0,
    rates=(Result("write", "operations_per_second", 14_000.0),),
)
DONE = (
    ("ior_easy_write", Result("write", "bytes_per_second", 2.0**31)),
    ("mdtest_easy_write", Result("write", "operations_per_second", 47_400.0)),
)


def lines_of_run(run: Run, phases: tuple[ActivePhase, ...] = ()) -> list[str]:
    use = replace(IDLE, runs=(run,), phases=phases)
    return plain(View(Picture([HostView("n", "exporter", use)])))[1:]


def test_a_run_shows_phase_progress_rate_and_results_so_far() -> None:
    lines = lines_of_run(Run("io500", "r1", "running", 900.0, (HARD_WRITE,), DONE), (HARD_WRITE,))

    assert lines[0] == "io500  mdtest_hard_write (4 of 13), 0:21 of 5:00, 31% done, write 14 kIOPS"
    assert lines[1] == "       so far: mdtest_easy_write 47.4 kIOPS, ior_easy_write 2 GiB/s"


def test_a_phase_that_goes_on_after_its_time_is_not_called_done() -> None:
    late = replace(HARD_WRITE, start=600.0, elapsed=400.0, progress=1.0, rates=())

    line = lines_of_run(Run("io500", "r1", "running", 599.0, (late,)))[0]
    assert line.endswith("(4 of 13), 6:40 of 5:00, tail for 1:40")


def test_a_verdict_on_a_tail_says_so() -> None:
    judged = Judged("io500", "r", "ior_hard_write", FULL, tail=12.0)

    lines = plain(View(Picture([HostView("a", "exporter", None)], [judged])))
    assert lines[0].startswith("io500 ior_hard_write (tail): ")


def test_a_phase_that_hangs_and_a_run_that_is_paused_or_failed_say_so() -> None:
    stalled = replace(HARD_WRITE, stalled=14.0, rates=())

    assert ", nothing done for 14 s, " in lines_of_run(Run("io500", "r1", "running", 900.0, (stalled,)))[0]
    assert ", syncing, " in lines_of_run(Run("io500", "r1", "syncing", 900.0, (HARD_WRITE,)))[0]
    assert lines_of_run(Run("fio", "r1", "failed", 900.0))[0] == "fio    failed"
    assert lines_of_run(Run("io500", "r1", "finished", 900.0, valid=False))[0].endswith("calls its result invalid")


def test_runs_that_go_on_come_first_and_of_those_that_ended_only_the_last_ones_are_shown() -> None:
    ended = [Run("fio", f"f{number}", "finished", 900.0, end=900.0 + number) for number in range(5)]
    going = Run("io500", "r1", "running", 905.0, (HARD_WRITE,))
    lines = plain(View(Picture([HostView("n", "exporter", replace(IDLE, runs=(*ended, going)))])))

    assert lines[1].startswith("io500  mdtest_hard_write")
    assert lines[2:5] == [f"fio    finished, 1:{number} ago" for number in (36, 37, 38)]
    assert not lines[5].startswith("fio")


def test_a_score_has_no_unit() -> None:
    lines = lines_of_run(Run("io500", "r1", "finished", 900.0, results=(("score", Result("score", "score", 10.6933)),)))

    assert lines[1] == "       so far: score 10.69"


def test_a_run_that_we_may_not_see_says_what_is_missing() -> None:
    lines = lines_of_run(Run("io500", "r1", "running", 900.0, blind=("descriptors", "environ")))

    assert lines[1] == "       not allowed to see: descriptors, environ"


@pytest.mark.parametrize("height", range(1, 16))
def test_a_host_with_runs_keeps_to_its_height(height: int) -> None:
    use = replace(BUSY, runs=(Run("io500", "r1", "running", 900.0, (HARD_WRITE,), DONE),))

    assert len(plain(View(Picture([HostView("n", "exporter", use)]), height))) <= height


LOCK = Limit(
    resource="mds_lock",
    owner="mds.a",
    host="a",
    serves=("mds",),
    busy=0.94,
    runqueue=0.6,
    blocked=0.0,
    saturated=1.0,
    threshold=0.8,
    full=True,
    blame=0.6,
    reach=0.6,
)
FULL = Verdict(
    Kind.RESOURCE,
    3.0,
    {"mds": 0.9, "cpu": 0.1},
    (LOCK,),
    margin="just over: something",
    evidence=("90% of io500's time waits for the MDS", "mds_lock of mds.a is busy for 94% of the time"),
    innocent=("kswapd of node0 on a is busy for 100%: it keeps up",),
    advice="Use more active ranks.",
    runbook="MdsLockSaturated",
)


def test_what_limits_the_benchmark_stands_above_all_hosts_with_what_it_rests_on_and_what_to_do() -> None:
    picture = Picture([HostView("a", "exporter", None)], [Judged("io500", "r", "mdtest_easy_stat", FULL)])

    assert plain(View(picture))[:6] == [
        "io500 mdtest_easy_stat: limited by mds_lock of mds.a  (just over: something)",
        "  90% of io500's time waits for the MDS",
        "  mds_lock of mds.a is busy for 94% of the time",
        "  what to do: Use more active ranks. (`pinchpoint runbook MdsLockSaturated`)",
        "  not the limit: kswapd of node0 on a is busy for 100%: it keeps up",
        "",
    ]


def test_a_thread_without_a_role_comes_early_where_no_limit_is_known() -> None:
    words = "`my_thread` of `foo` on b at 98%"
    open_ = replace(FULL, kind=Kind.LATENCY_BOUND, limits=(), no_role=(words,), latency=("1.0 requests in flight",))

    def shown(found: Verdict) -> list[str]:
        return plain(View(Picture([HostView("a", "exporter", None)], [Judged("io500", "r", "", found)])))

    assert shown(open_)[3:6] == [
        f"  no role: {words}",
        "  1.0 requests in flight",
        "  what to do: Use more active ranks. (`pinchpoint runbook MdsLockSaturated`)",
    ]
    assert not any("no role" in line for line in shown(replace(FULL, no_role=(words,))))


@pytest.mark.parametrize("height", [1, 3, 8, 24])
def test_a_low_window_says_what_limits_the_benchmark_before_how_that_is_known(height: int) -> None:
    picture = Picture([HostView("a", "exporter", None)], [Judged("io500", "r", "", FULL)])
    lines = plain(View(picture, height, "q quits"))

    assert len(lines) == height
    if height > 1:
        assert lines[0].startswith("io500: limited by mds_lock of mds.a")
    assert lines[-1] == "q quits"
