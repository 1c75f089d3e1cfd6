from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.captures import CAPTURES, EXPECTED
from pinchpoint.benchmarks.events import Began, Completed, Ended, Event, Failed, RunBegan, Scored, State
from pinchpoint.benchmarks.io500_output import Io500Reader, ResultFile
from pinchpoint.runs import Result
from recorder.capture import read_capture

GIB = 1 << 30
IO500 = sorted(name for name in EXPECTED if name.startswith("io500"))
OTHERS = sorted(EXPECTED.keys() - set(IO500))
DIARY = Path(__file__).parents[1] / "fixtures" / "seeds" / "io500-diary.txt"
VERSION = "IO500 version io500-isc26_v2-26-g02091cf254d8 (standard)"
EXTENDED = f"""\
{VERSION.replace("standard", "extended")}
[RESULT]       ior-easy-write        2.000000 GiB/s : time 300.500 seconds
[      ]   mdworkbench-create        3.500000 kIOPS : time 2.000 seconds
[RESULT]            find-easy       12.250000 kIOPS : time 4.000 seconds
[SCORE ] Bandwidth 2.000000 GiB/s : IOPS 12.000000 kiops : TOTAL 4.898979
[SCOREX] Bandwidth 3.000000 GiB/s : IOPS 27.000000 kiops : TOTAL 9.000000 [INVALID]

The result files are stored in the directory: ./results/2026.11.21-00.06.06
"""

E = TypeVar("E", bound=Event)


def stdout(name: str) -> bytes:
    return (CAPTURES / name / "stdout.txt").read_bytes()


def events(data: bytes | str) -> list[Event]:
    reader = Io500Reader()
    return [*reader.feed(data if isinstance(data, bytes) else data.encode()), *reader.close()]


def of(kind: type[E], found: Iterable[Event]) -> list[E]:
    return [event for event in found if isinstance(event, kind)]


def one_result(line: str) -> Ended:
    (ended,) = of(Ended, events(f"{VERSION}\n{line}\n"))
    return ended


def told(data: bytes | str) -> list[Event]:
    return ResultFile().feed(data if isinstance(data, bytes) else data.encode())


def result_file(name: str) -> bytes:
    (found,) = (CAPTURES / name).glob("resultdir*/result.txt")
    return found.read_bytes()


@pytest.mark.parametrize("name", [name for name in IO500 if not name.endswith("-at-once")])
def test_every_capture_gives_its_phases_once_and_in_order(name: str) -> None:
    found = events(stdout(name))
    expected = [phase for phase in EXPECTED[name].phases if phase.figures]
    ended = [event for event in of(Ended, found) if event.ran]
    assert [event.phase for event in ended] == [phase.name for phase in expected]
    for event, phase in zip(ended, expected, strict=True):
        assert [result.unit for result in event.results] == [unit for unit, _ in phase.figures]
        assert [result.value for result in event.results] == pytest.approx([value for _, value in phase.figures])
        assert event.valid == phase.valid
    assert bool(of(Completed, found)) == (EXPECTED[name].state == "finished")
    assert bool(of(Failed, found)) == (EXPECTED[name].state in ("failed", "stopped"))


@pytest.mark.parametrize("name", [name for name in IO500 if EXPECTED[name].score is not None])
def test_the_total_is_the_last_score(name: str) -> None:
    scored = of(Scored, events(stdout(name)))[-1]
    assert [score.operation for score in scored.scores] == ["bandwidth", "iops", "total"]
    assert scored.scores[-1].value == EXPECTED[name].score
    assert scored.valid == EXPECTED[name].valid


def test_the_diary_has_eighteen_runs_of_twelve_phases() -> None:
    found = events(DIARY.read_bytes())
    starts = [index for index, event in enumerate(found) if isinstance(event, RunBegan)]
    assert len(starts) == 18
    for start, end in pairwise([*starts, len(found)]):
        run = found[start:end]
        assert len({event.phase for event in of(Ended, run)}) == len(of(Ended, run)) == 12
        assert all(event.ran and event.valid and len(event.results) == 1 for event in of(Ended, run))
        assert [type(event) for event in run[-2:]] == [Scored, Completed]
    assert of(Ended, found)[0] == Ended(
        "ior_easy_write", (Result("write", "bytes_per_second", 6.021 * GIB, "6.021 GiB/s"),), 35.83
    )
    assert of(Scored, found)[0] == Scored(
        (
            Result("bandwidth", "bytes_per_second", 0.822726 * GIB, "0.822726 GiB/s"),
            Result("iops", "operations_per_second", 12628.6, "12.6286 kiops"),
            Result("total", "score", 3.22333, "3.22333"),
        )
    )


@pytest.mark.parametrize(
    ("line", "phase", "operation", "unit", "value", "valid"),
    [
        (
            "[RESULT-invalid] BW   phase 1            ior_easy_write                0.337 GiB/s : time   0.35 seconds",
            *("ior_easy_write", "write", "bytes_per_second", 0.337 * GIB, False),
        ),
        (
            # Submission 24 of the list, 2019; IOR printed 856728.86 MiB/s.
            "[RESULT] BW   phase 1            ior_easy_write              836.649 GB/s : time 367.18 seconds",
            *("ior_easy_write", "write", "bytes_per_second", pytest.approx(856728.86 * (1 << 20)), True),
        ),
        (
            "[RESULT] IOPS phase 3 find 9.830 kiops : time 0.47 seconds",
            *("find", "find", "operations_per_second", 9830, True),
        ),
        (
            "[RESULT-invalid]       ior-easy-write        0.774872 GiB/s  : time 0.160 seconds",
            *("ior_easy_write", "write", "bytes_per_second", 0.774872 * GIB, False),
        ),
        (
            "[RESULT]   mdtest-easy-delete       77.031714 kIOPS : time 0.074 seconds",
            *("mdtest_easy_delete", "delete", "operations_per_second", pytest.approx(77031.714), True),
        ),
        (
            "[      ]  ior-rnd4K-easy-read        1.720519 GiB/s : time 1.313 seconds [INVALID]",
            *("ior_rnd4k_easy_read", "read", "bytes_per_second", 1.720519 * GIB, False),
        ),
        (
            "[      ]   mdworkbench-create        3.500000       : time 2.000 seconds",
            *("mdworkbench_create", "create", "operations_per_second", 3500, True),
        ),
        (
            "[RESULT]            find-hard       12.250000 kIOPS : time 4.000 seconds",
            *("find_hard", "find", "operations_per_second", 12250, True),
        ),
        (
            "[RESULT]                concurrent        7.500000 score : time 4.000 seconds",
            *("concurrent", "concurrent", "score", 7.5, True),
        ),
        (
            "[RESULT] ior-rnd9GB-yet-to-come-write 1e+03 GiB/s : time 2.5 seconds",
            *("ior_rnd9gb_yet_to_come_write", "write", "bytes_per_second", 1000 * GIB, True),
        ),
    ],
)
def test_every_format_of_a_result(line: str, phase: str, operation: str, unit: str, value: float, valid: bool) -> None:
    ended = one_result(line)
    (result,) = ended.results
    assert (ended.phase, ended.valid, ended.ran) == (phase, valid, True)
    assert (result.operation, result.unit, result.value) == (operation, unit, value)


def test_a_figure_in_an_unknown_unit_is_not_guessed_and_its_phase_is_known() -> None:
    ended = one_result("[RESULT] BW phase 1 ior_easy_write 836.649 parsecs/s : time 367.18 seconds")

    assert (ended.phase, ended.results, ended.seconds) == ("ior_easy_write", (), 367.18)


@pytest.mark.parametrize(
    "line",
    [
        "[1,0]<stdout>:[RESULT]                 find     2897.178791 kIOPS : time 0.002 seconds",
        "Sat Nov 21 00:20:17 2026<stdout>:[RESULT]                 find     2897.178791 kIOPS : time 0.002 seconds",
        "[0] [RESULT] [0]                 find     2897.178791 kIOPS : time 0.002 seconds",
        "[0] [RESULT][0]                 find     2897.178791 kIOPS[0]  : time 0.002 seconds",
        "[RESULT]\xa0IOPS \xa0phase 3\xa0\xa0 find\xa02897.178791 kiops : time\xa0\xa00.002 seconds",
    ],
)
def test_what_launchers_and_web_pages_put_between_does_not_matter(line: str) -> None:
    ended = one_result(line)
    assert (ended.phase, ended.seconds, ended.results[0].printed.split()[0]) == ("find", 0.002, "2897.178791")


def test_a_prefix_in_the_middle_of_an_unscored_phase() -> None:
    line = "[0] [      ][0]   ior-rnd4K-easy-read        1.720519 GiB/s : time 1.313 seconds"
    assert one_result(line).phase == "ior_rnd4k_easy_read"


@pytest.mark.parametrize(
    ("line", "ran"),
    [
        ("[      ]            timestamp        0.000000 kIOPS : time 0.000 seconds", False),
        ("[      ]            timestamp        0.000000 kIOPS : time 0.004 seconds", False),
        ("[RESULT]       ior-easy-write        0.000000 GiB/s : time 0.000 seconds [INVALID]", False),
        ("[RESULT]     mdtest-easy-stat        0.000000 kIOPS : time 1.000 seconds [INVALID]", True),
        ("[RESULT] IOPS phase 4          mdtest_easy_stat              900.170 kiops : time   0.00 seconds", True),
        ("[RESULT]       ior-easy-write       -2.000000 GiB/s : time -300.5 seconds", True),
    ],
)
def test_a_phase_that_was_left_out_did_not_run(line: str, ran: bool) -> None:
    assert one_result(line).ran == ran


def test_the_shell_drivers_summary_is_no_second_run() -> None:
    found = events(stdout("io500-isc20-sh-both"))
    began = [index for index, event in enumerate(found) if isinstance(event, RunBegan)]
    assert len(began) == len(of(Scored, found)) == len(of(Completed, found)) == 2
    shell, app = found[: began[1]], found[began[1] :]
    assert [event.phase for event in of(Began, shell)] == [event.phase for event in of(Ended, shell)]
    assert len(of(Ended, shell)) == len(of(Ended, app)) == 12
    assert not of(Began, app)


def test_the_same_phase_with_other_figures_is_of_another_run() -> None:
    lines = [
        "[RESULT] BW phase 1 ior_easy_write 1.000 GiB/s : time 30.00 seconds",
        "[RESULT] BW phase 1 ior_easy_write 2.000 GiB/s : time 30.00 seconds",
    ]
    found = events("\n".join(lines))
    assert [type(event) for event in found] == [RunBegan, Ended, Failed, RunBegan, Ended, Failed]


def test_the_standard_score_comes_after_the_extended_one() -> None:
    found = events(EXTENDED)
    scored = of(Scored, found)[-1]
    assert [(score.operation, score.printed) for score in scored.scores] == [
        ("extended_bandwidth", "3.000000 GiB/s"),
        ("extended_iops", "27.000000 kiops"),
        ("extended_total", "9.000000"),
        ("bandwidth", "2.000000 GiB/s"),
        ("iops", "12.000000 kiops"),
        ("total", "4.898979"),
    ]
    assert scored.valid
    assert len(of(RunBegan, found)) == len(of(Completed, found)) == 1
    assert not of(Failed, found)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("io500-main-baddir", "FATAL (src/util.c:110) Couldn't create directory /proc/nope/"),
        ("io500-main-fatal-findnproc-pipe", "FATAL (src/phase_find.c:222) Couldn't split rank"),
        ("io500-main-sigint", "the output ends before the score"),
        ("io500-isc20-sh-fail", "the output ends before the score"),
    ],
)
def test_a_failure_has_the_programs_own_words(name: str, reason: str) -> None:
    (failed,) = of(Failed, events(stdout(name)))
    assert failed.reason.startswith(reason)


def test_a_failure_before_anything_else() -> None:
    found = events("FATAL (src/ini-parse.c:29) Cannot open config file nope.ini\n" * 2)
    assert found == [RunBegan(), Failed("FATAL (src/ini-parse.c:29) Cannot open config file nope.ini")]


def test_an_invalid_run_that_failed_is_both() -> None:
    found = events(f"ERROR INVALID stonewall-time != 300s\n{VERSION}\n")
    assert [type(event) for event in found] == [RunBegan, Scored, Failed]
    assert not of(Scored, found)[0].valid


def test_the_launchers_words_are_a_reason() -> None:
    line = "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 11 (Segmentation fault)."
    assert of(Failed, events(f"{VERSION}\n{line}\n")) == [Failed(line)]
    assert events(line) == []


@pytest.mark.parametrize("name", OTHERS)
def test_other_benchmarks_are_not_understood(name: str) -> None:
    assert events(b"".join(path.read_bytes() for path in sorted((CAPTURES / name).glob("std*.txt")))) == []


@pytest.mark.parametrize(
    "text",
    [
        "We ran IO500 version 2 of the benchmark\n",
        "[Starting] the engine\n",
        "[      ]  a checkbox  1.0 kIOPS : time 0.5 seconds\n",
        "The result files are stored in the directory: /tmp\n",
        "FATAL (net.c:12) no route\n",
        "write 480.44 480.49 0.0008 131072 1024.00 0.0 0.5 0.0 0.5 0\n",
    ],
)
def test_prose_is_silent(text: str) -> None:
    assert events(text) == []


@given(
    st.sampled_from([stdout(name) for name in IO500] + [EXTENDED.encode(), DIARY.read_bytes()[-6000:]]),
    st.lists(st.integers(0, 12_000), max_size=12),
)
def test_it_does_not_matter_how_the_bytes_are_cut(data: bytes, cuts: list[int]) -> None:
    reader = Io500Reader()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found = [event for start, end in pairwise(places) for event in reader.feed(data[start:end])]
    assert [*found, *reader.close()] == events(data)


@given(
    st.sampled_from([result_file("io500-main-openmpi-pipe"), result_file("io500-main-verbosity0")]), st.integers(1, 999)
)
def test_nor_how_those_of_the_file_are(data: bytes, length: int) -> None:
    file = ResultFile()
    pieces = [data[at : at + length] for at in range(0, len(data), length)]
    assert [event for piece in pieces for event in file.feed(piece)] == told(data)


WORDS = st.sampled_from(
    "[RESULT]|[      ]|[SCORE ]|[SCOREX]|[Starting]|ior-easy-write|find|1e999|-nan|0.5|:|GiB/s|kIOPS|time|seconds|[0]|"
    "[INVALID]|Bandwidth|IOPS|kiops|TOTAL|\n|ERROR INVALID |FATAL (src/main.c:1) x|[find]|[SCORE]|score = 1|MD = 2|"
    f"t_delta = inf|; END|t_pause = 1|SCORE = nan|{VERSION}|{'9' * 400}".split("|")
)


@given(st.lists(WORDS | st.text(max_size=3), max_size=60).map(" ".join))
def test_no_text_is_too_strange(text: str) -> None:
    for reader in (Io500Reader(), ResultFile()):
        found = [*reader.feed(text.encode("utf-8", "surrogatepass")), *reader.close()]
        assert all(abs(result.value) < float("inf") for event in of(Ended, found) for result in event.results)


@given(st.binary(max_size=300))
def test_no_bytes_are_too_strange(data: bytes) -> None:
    for reader in (Io500Reader(), ResultFile()):
        reader.feed(data)
        reader.close()


def test_what_is_kept_does_not_grow_with_the_output() -> None:
    reader, file = Io500Reader(), ResultFile()
    tracemalloc.start()
    try:
        for number in range(5_000):
            reader.feed(b"[RESULT] phase-%d 1.5 kIOPS : time 2.5 seconds\n[Starting] ior_easy_%d\n" % (number, number))
            file.feed(b"[phase-%d]\nexe = ./ior\nkey-%d = 1\n" % (number, number))
        assert tracemalloc.get_traced_memory()[0] < 1 << 18
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("line", ["[" + " " * 60_000, "[ ]" * 20_000, "[ ]" + "[1]" * 20_000, "[ ] a" + "-a" * 30_000])
def test_a_hostile_line_takes_no_time(line: str) -> None:
    # A pattern that tried every way to read such a line would exceed the test's time limit.
    for _ in range(20):
        events(line)


@pytest.mark.parametrize("name", [name for name in IO500 if (CAPTURES / name / "resultdir" / "result.txt").exists()])
def test_the_file_of_results_tells_the_same_as_the_output(name: str) -> None:
    found = told(result_file(name))
    printed = events(stdout(name))
    ended = {event.phase: event for event in of(Ended, found) if event.ran}
    for event in of(Ended, printed):
        if event.ran:
            assert ended[event.phase].results == event.results
            assert ended[event.phase].valid == event.valid
            if (seconds := ended[event.phase].seconds) is not None:
                assert seconds == pytest.approx(event.seconds, abs=0.001)
    assert [event.phase for event in of(Ended, found) if event.ran] == [e.phase for e in of(Ended, printed) if e.ran]
    for score, other in zip(of(Scored, found), [s for s in of(Scored, printed) if s.scores], strict=True):
        assert [result.value for result in score.scores] == [result.value for result in other.scores]
        assert score.valid == other.valid
    assert len(of(Completed, found)) == len(of(Completed, printed))


@pytest.mark.parametrize("name", [name for name in IO500 if (CAPTURES / name / "files.tsv").exists()])
def test_the_phase_is_that_of_the_last_section_as_the_file_grows(name: str) -> None:
    capture = read_capture(CAPTURES / name)
    files: dict[str, ResultFile] = {}
    phases: dict[str, list[str | None]] = {}
    for written in sorted(capture.files, key=lambda written: written.time):
        if not written.path.endswith("/result.txt"):
            continue
        if not written.appended:
            files[written.path] = ResultFile()
        file = files[written.path]
        file.feed(written.data)
        phases.setdefault(written.path, []).append(file.phase)
        if file.phase is not None:
            assert file.state is State.RUNNING
    assert phases


def test_a_phase_begins_with_its_section_and_ends_with_its_time() -> None:
    file = ResultFile()
    assert file.feed(b"[run]\nprocs           = 96\nmode            = extended\n; START 2026-11-21 00:02:36\n") == []
    assert (file.processes, file.extended, file.phase, file.state) == (96, True, None, State.SETUP)
    assert file.feed(b"\n\n[ior-easy-write]\nt_start         = 2026-11-21 00:02:36\nexe   ") == [
        Began("ior_easy_write")
    ]
    assert file.feed(b"= ./ior -w -D 300\n") == []
    assert (file.phase, file.state, file.command) == ("ior_easy_write", State.RUNNING, ("./ior", "-w", "-D", "300"))
    assert file.feed(b"; ERROR INVALID Runtime\nscore           = 0.367381\nt_delta         = 2.13") == []
    assert file.feed(b"08\n") == [
        Ended(
            "ior_easy_write",
            (Result("write", "bytes_per_second", 0.367381 * GIB, "0.367381 GiB/s"),),
            2.1308,
            valid=False,
        )
    ]
    assert (file.phase, file.state) == (None, State.BETWEEN)


def test_without_times_a_phase_ends_with_its_score() -> None:
    file = ResultFile()
    assert file.feed(b"[find]\nexe = ./pfind /x\n") == [Began("find")]
    assert [event.ran for event in of(Ended, file.feed(b"score = 932.825234\n"))] == [True]
    assert file.feed(b"\n[timestamp]\n\n[ior-easy-read]\nexe = ./ior -r\n") == [Began("ior_easy_read")]


def test_a_pause_is_before_the_phase() -> None:
    file = ResultFile()
    pause = b"[find]\nt_pause         = 2026-11-21 00:17:09\n; Checking for pause file /scratch/pause/find\n"
    assert file.feed(pause) == []
    assert (file.phase, file.state) == (None, State.PAUSED)
    assert file.feed(b"t_start         = 2026-11-21 00:17:14\n") == [Began("find")]
    assert (file.phase, file.state) == ("find", State.RUNNING)


def test_the_scores_of_both_modes_are_in_the_file() -> None:
    text = "[SCORE]\nMD = 12.0\nBW = 2.0\nSCORE = 4.9 [INVALID]\nhash = 1\n[SCOREX]\nMD = 27.0\nBW = 3.0\nSCORE = 9.0\n"
    standard, _, both, _ = told(text)
    assert isinstance(standard, Scored)
    assert isinstance(both, Scored)
    assert [score.operation for score in both.scores] == [
        *("extended_bandwidth", "extended_iops", "extended_total", "bandwidth", "iops", "total"),
    ]
    assert (standard.valid, both.valid) == (False, False)
