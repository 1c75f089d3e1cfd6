from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.captures import CAPTURES, EXPECTED
from pinchpoint.benchmarks.events import Began, Completed, Ended, Event, Failed, Rate, RunBegan, Scored
from pinchpoint.benchmarks.output import OutputReader
from pinchpoint.benchmarks.reading import KINDS, MAX_RUNS, FoundRun, ReaderKind, TextReader, date_in
from pinchpoint.runs import Result, RunState

SEEDS = Path(__file__).parents[1] / "fixtures" / "seeds"
START = 1_700_000_000.0
MIB = 2.0**20
GIB = 2.0**30


def read(*pieces: bytes, kinds: Iterable[ReaderKind] = KINDS) -> list[FoundRun]:
    reader = TextReader(kinds)
    for piece in pieces:
        reader.feed(piece)
    return reader.close(START)


def seed(name: str) -> bytes:
    return (SEEDS / name).read_bytes()


def figures(results: Iterable[Result]) -> list[tuple[str, float]]:
    return [(result.unit, result.value) for result in results]


class Words(OutputReader):
    """A benchmark whose output has one word per line, which says what happens."""

    def line(self, line: str) -> Iterator[Event]:
        word, _, name = line.strip().partition(" ")
        match word:
            case "run":
                yield RunBegan()
            case "begin":
                yield Began(name)
            case "rate":
                yield Rate(name)
            case "end":
                yield Ended(name, (Result("write", "bytes_per_second", 1.0),), 10.0)
            case "huge":
                yield Ended(name, (Result("write", "bytes_per_second", float("inf")),), float("nan"))
            case "skipped":
                yield Ended(name, ran=False)
            case "score":
                yield Scored((Result("total", "score", 2.0),), valid=name != "invalid")
            case "complete":
                yield Completed()
            case "fail":
                yield Failed(name)
            case "}":
                yield RunBegan()
                yield Ended("write")


WORDS = (ReaderKind("words", Words),)


def words(text: str) -> list[FoundRun]:
    return read(text.replace("; ", "\n").encode(), kinds=WORDS)


def phases(reading: FoundRun) -> list[str]:
    return [mark.name for mark in reading.state.phases]


# The diaries: every figure is compared with what a plain search finds in their bytes.


def test_every_figure_of_the_diary_of_io500_is_read_exactly() -> None:
    text = seed("io500-diary.txt").decode().replace("\xa0", " ")
    lines = re.findall(r"\[RESULT\] \w+ +phase \d +(\w+) +(\S+) (GiB/s|kiops) +: +time +(\S+) seconds", text)
    scores = re.findall(r"\[SCORE\] Bandwidth (\S+) GiB/s : IOPS (\S+) kiops : TOTAL (\S+)", text)
    assert (len(lines), len(scores)) == (216, 18)

    readings = read(seed("io500-diary.txt"))

    assert [reading.state.benchmark for reading in readings] == ["io500"] * 18
    found = [mark for reading in readings for mark in reading.state.phases]
    assert [(mark.name, mark.results[0].printed, mark.seconds, mark.valid) for mark in found] == [
        (name, f"{value} {unit}", float(seconds), True) for name, value, unit, seconds in lines
    ]
    factors = {"GiB/s": ("bytes_per_second", GIB), "kiops": ("operations_per_second", 1000.0)}
    assert [figures(mark.results) for mark in found] == [
        [(factors[unit][0], float(value) * factors[unit][1])] for _, value, unit, _ in lines
    ]
    assert [figures(reading.state.scores) for reading in readings] == [
        [
            ("bytes_per_second", float(bandwidth) * GIB),
            ("operations_per_second", float(iops) * 1000),
            ("score", float(total)),
        ]
        for bandwidth, iops, total in scores
    ]
    assert {(reading.state.state, reading.state.reason, reading.state.valid) for reading in readings} == {
        ("finished", "", True)
    }


def test_a_run_of_the_diary_begins_at_its_first_line() -> None:
    lines = seed("io500-diary.txt").decode().split("\n")

    for reading in read(seed("io500-diary.txt")):
        assert "ior_easy_write" in lines[reading.line - 1]


@pytest.mark.parametrize("name", ["rados-bench-overrun.txt", "rados-bench-burst.txt"])
def test_a_whole_rados_bench_of_the_diary_is_read_exactly(name: str) -> None:
    text = seed(name).decode()

    def printed(key: str) -> float:
        return float(re.findall(rf"^{re.escape(key)}\s*: ?(\S+)$", text, re.MULTILINE)[0])

    (reading,) = read(seed(name))
    write, cleanup = reading.state.phases

    assert (reading.state.benchmark, reading.state.state) == ("rados_bench", "finished")
    assert (write.name, write.seconds) == ("write", printed("Total time run"))
    assert figures(write.results) == [
        ("bytes_per_second", printed("Bandwidth (MB/sec)") * MIB),
        ("operations_per_second", printed("Average IOPS")),
        ("seconds", printed("Average Latency(s)")),
        ("seconds", printed("Max latency(s)")),
    ]
    assert (cleanup.name, cleanup.seconds) == ("cleanup", printed("Clean up completed and total clean up time"))
    assert ("operations", float(re.findall(r"Removed (\d+) objects", text)[0])) in figures(cleanup.results)


def test_a_rados_bench_of_which_only_rows_are_quoted_failed() -> None:
    (reading,) = read(seed("rados-bench-cut-off.txt"))

    assert (reading.state.state, phases(reading)) == ("failed", ["write"])
    assert reading.state.phases[0].results == []
    assert reading.state.phases[0].state == "failed"
    assert reading.state.reason


def test_the_bench_of_an_osd_is_read_exactly() -> None:
    text = seed("osd-bench.txt").decode()
    (rate,), (iops,), (seconds,) = (
        re.findall(rf'"{key}": ([\d.]+)', text) for key in ("bytes_per_sec", "iops", "elapsed_sec")
    )

    (reading,) = read(seed("osd-bench.txt"))
    (mark,) = reading.state.phases

    assert (reading.state.benchmark, reading.state.state) == ("ceph_osd_bench", "finished")
    assert figures(mark.results) == [("bytes_per_second", float(rate)), ("operations_per_second", float(iops))]
    assert mark.seconds == float(seconds)


def test_an_interrupted_rbd_bench_was_stopped_and_its_figures_are_read_exactly() -> None:
    text = seed("rbd-bench-interrupted.txt").decode()
    ((operations, rate),) = re.findall(r"^elapsed: .* ops/sec: (\S+) bytes/sec: (\S+)$", text, re.MULTILINE)

    (reading,) = read(seed("rbd-bench-interrupted.txt"))

    assert (reading.state.benchmark, reading.state.state) == ("rbd_bench", "stopped")
    assert set(figures(reading.state.phases[0].results)) >= {
        ("bytes_per_second", float(rate)),
        ("operations_per_second", float(operations)),
    }


def test_a_text_with_several_benchmarks_gives_the_runs_of_each_in_its_order() -> None:
    names = ["rados-bench-cut-off.txt", "osd-bench.txt", "rados-bench-burst.txt", "rbd-bench-interrupted.txt"]

    readings = read(b"prose\n".join(seed(name) for name in names))

    assert [(reading.state.benchmark, reading.state.state) for reading in readings] == [
        ("rados_bench", "failed"),
        ("ceph_osd_bench", "finished"),
        ("rados_bench", "finished"),
        ("rbd_bench", "stopped"),
    ]


def test_old_objects_that_are_removed_between_two_runs_are_no_run() -> None:
    removal = b"[root@deploy ~]# rados -p lma cleanup\nWarning: using slow linear search\nRemoved 39 objects\n"

    readings = read(seed("rados-bench-cut-off.txt"), removal, b"prose\n", seed("rados-bench-burst.txt"))

    assert [phases(reading) for reading in readings] == [["write"], ["write", "cleanup"]]
    assert [phases(reading) for reading in read(removal)] == [["cleanup"]]


# The captures.


ELSEWHERE = {"fio-output-file"}
"""Captures whose results are in another file."""
PRINTED = [name for name in EXPECTED if (CAPTURES / name / "stdout.txt").exists() and name not in ELSEWHERE]


@pytest.mark.parametrize("name", PRINTED)
def test_the_output_of_a_capture_is_the_run_that_was_captured(name: str) -> None:
    expected = EXPECTED[name]

    readings = read((CAPTURES / name / "stdout.txt").read_bytes())

    assert {reading.state.benchmark for reading in readings} <= {expected.benchmark}
    found = [result for reading in readings for mark in reading.state.phases for result in mark.results]
    for phase in expected.phases:
        for unit, value in phase.figures[:1]:
            # Some of the expected figures are rounded quotients.
            assert any(result.unit == unit and result.value == pytest.approx(value, rel=1e-6) for result in found)
    if expected.score is not None:
        assert readings[-1].state.scores[-1].value == expected.score
        assert readings[-1].state.valid == expected.valid


RESULT_FILES = sorted(path.parents[1].name for path in CAPTURES.glob("io500-*/resultdir/result.txt"))


@pytest.mark.parametrize("name", RESULT_FILES)
def test_the_result_file_of_io500_is_one_run(name: str) -> None:
    expected = EXPECTED[name]

    (reading,) = read((CAPTURES / name / "resultdir" / "result.txt").read_bytes())

    # It does not say why it ends before the score.
    assert (reading.state.benchmark, reading.state.state) == ("io500", expected.state.replace("stopped", "failed"))
    assert [(mark.name, *figures(mark.results)) for mark in reading.state.phases if mark.results] == [
        (phase.name, *phase.figures) for phase in expected.phases if phase.figures
    ]
    assert [result.value for result in reading.state.scores[-1:]] == [expected.score] * (expected.score is not None)


def test_a_result_file_in_the_midst_of_a_text_ends_where_the_prose_goes_on() -> None:
    name = "io500-main-openmpi-pipe"
    whole = (CAPTURES / name / "resultdir" / "result.txt").read_bytes()
    printed = (CAPTURES / name / "stdout.txt").read_bytes()

    readings = read(b"it began\n", whole, b"so much for it\n[other]\nscore = 3\n", printed)

    assert [reading.state.state for reading in readings] == ["finished", "finished"]
    assert readings[0].state.scores == readings[1].state.scores
    assert "other" not in phases(readings[0]) + phases(readings[1])


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n" * 1000,
        bytes(range(256)) * 400,
        b"[global]\nrw=write\n\n[job]\nsize=1g\nversion = 3\n",
        b"root:x:0:0:root:/root:/bin/bash\n",
        b'{"jobs": 3}\n{\n',
        b"{" * 100_000,
    ],
)
def test_a_text_without_any_benchmark_has_no_runs(text: bytes) -> None:
    assert read(text) == []


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_bytes_raise(pieces: list[bytes]) -> None:
    read(*pieces)


SAMPLE = b"".join(
    [
        *(seed(name) for name in ("rados-bench-cut-off.txt", "osd-bench.txt", "rbd-bench-interrupted.txt")),
        seed("io500-diary.txt")[:4000].replace(b"\n", b"\r\n"),
        seed("osd-bench.txt").replace(b"\n", b"\r\n"),
        (CAPTURES / "io500-main-openmpi-pipe" / "resultdir" / "result.txt").read_bytes()[:1500],
        b"x" * 100_000,
        b"\n-- started at 11/21/2026 00:20:17 --",
    ]
)


@given(st.lists(st.integers(0, len(SAMPLE)), max_size=30))
def test_however_a_text_is_cut_its_runs_are_the_same(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(SAMPLE)]

    assert read(*(SAMPLE[a:b] for a, b in pairwise(ends))) == read(SAMPLE)


def test_a_long_text_costs_no_memory_of_its_length() -> None:
    tracemalloc = pytest.importorskip("tracemalloc")
    reader = TextReader(KINDS)
    piece = b"x" * 65_536
    reader.feed(piece * 4)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(200):
        reader.feed(piece)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept - before < 4 * len(piece)


# Where a run ends and the next one begins.


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("run; end a; end b; complete; run; end a; complete", [["a", "b"], ["a"]]),
        ("end a; score; end a; score", [["a"], ["a"]]),
        ("run; end a; complete; begin clean; end clean; complete", [["a", "clean"]]),
        ("run; end a; fail it broke; run; end a; complete", [["a"], ["a"]]),
        ("run; run; end a; complete", [["a"]]),
        ("run; begin a; begin a; end a; end a; complete", [["a", "a"]]),
        ("run; begin a; rate a; rate; rate b; end b; complete", [["a", "b"]]),
        ("run; skipped a; end b; complete", [["b"]]),
        ("run; end a; score; score; complete", [["a"]]),
        ("nothing; of; this", []),
    ],
)
def test_a_text_is_cut_into_runs(text: str, found: list[list[str]]) -> None:
    assert [phases(reading) for reading in words(text)] == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("run; fail refused; run; end a; complete", [["a"]]),
        ("run; end a; complete; run; fail refused", [["a"]]),
        ("run; fail refused; score", [[]]),
        ("run; fail refused", [[]]),
        ("run; end cleanup; complete; run; end a; complete", [["a"]]),
        ("run; end cleanup; complete", [["cleanup"]]),
        ("run; begin cleanup; complete", []),
        ("run; begin a; complete; run; begin cleanup; fail refused", [["a"]]),
    ],
)
def test_what_measures_nothing_is_a_run_only_where_the_text_has_no_other(text: str, found: list[list[str]]) -> None:
    assert [phases(reading) for reading in words(text)] == found


@pytest.mark.parametrize(
    ("text", "state", "reason"),
    [
        ("run; end a; complete", "finished", ""),
        ("run; end a", "finished", ""),
        ("run; begin a", "failed", "the output ends before the benchmark does"),
        ("run; end a; fail no space left", "failed", "no space left"),
        ("run; fail one; fail two", "failed", "one"),
    ],
)
def test_a_run_ends_as_its_output_says(text: str, state: str, reason: str) -> None:
    (reading,) = words(text)

    assert (reading.state.state, reading.state.reason) == (state, reason)


def test_the_phase_in_which_a_run_failed_failed() -> None:
    (reading,) = words("run; end a; begin b; fail no space left")

    assert [mark.state for mark in reading.state.phases] == ["finished", "failed"]


def test_an_invalid_score_makes_the_run_invalid() -> None:
    assert [reading.state.valid for reading in words("end a; score invalid; end a; score")] == [False, True]


def test_phases_lie_one_after_the_other_in_the_texts_order() -> None:
    (reading,) = words("run; end b; begin a; end a; begin c; complete")

    assert [(mark.name, mark.start - START, (mark.end or 0) - START) for mark in reading.state.phases] == [
        ("b", 0, 10),
        ("a", 10, 20),
        ("c", 20, 20),
    ]
    assert (reading.state.start, reading.state.end) == (START, START + 20)


def test_what_is_no_figure_is_left_out() -> None:
    (reading,) = words("run; huge a; complete")

    assert (reading.state.phases[0].results, reading.state.phases[0].seconds) == ([], None)


def test_of_very_many_runs_the_first_are_kept_and_the_others_counted() -> None:
    reader = TextReader(WORDS)
    reader.feed(b"run\nend a\ncomplete\n" * (MAX_RUNS + 3))

    assert (len(reader.close(START)), reader.left_out) == (MAX_RUNS, 3)


# Location and time of a run.


def test_lines_are_counted_as_an_editor_does() -> None:
    assert [reading.line for reading in words("x\ry\r\nrun; end a; complete\r\n\r\nrun; end a")] == [2, 6]


def test_a_run_in_a_json_document_begins_with_the_document() -> None:
    text = "prose\n{\n" + '"a": {"b": "}{"},\n' * 5 + "}\nrun; end a"

    assert [reading.line for reading in words(text)] == [2, 9]


def test_a_brace_that_begins_no_document_is_none() -> None:
    assert [reading.line for reading in words("{\nfunction()\n}\nrun; end a")] == [3, 4]


@pytest.fixture
def utc() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


AT = 1_795_220_417.0  # 2026-11-21 00:20:17 UTC


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize(
    ("line", "date"),
    [
        (b"Began               : Sat Nov 21 00:20:17 2026", AT),
        (b"x: (groupid=0, jobs=1): err= 0: pid=7: Sat Nov 21 00:20:17 2026", AT),
        (b"Sat Nov 21 00:20:17 UTC 2026", AT),
        (b"-- started at 11/21/2026 00:20:17 --", AT),
        (b"2026-11-21 00:20:17.671241 min lat: 0.01", AT),
        (b"2026-11-21T00:20:17+0100 min lat: 0.01", AT - 3600),
        (b"2026-11-21T00:20:17.5-05:30", AT + 5.5 * 3600),
        (b"2026-11-21T00:20:17Z", AT),
        (b"^C2026-11-21 00:20:17.357 7f0f4effd700 -1 received signal: Interrupt", AT),
        (b"The result files are stored in the directory: ./results/2026.11.21-00.20.17", AT),
        (b'  "timestamp" : 1795220417,', AT),
        (b'"timesecs":\t1795220417', AT),
        (b"on Sat Xyz 21 00:20:17 2026", None),
        (b"2026-13-41 00:20:17", None),
        (b"12026-11-21 00:20:17", None),
        (b"2026-11-21 25:20:17", None),
        (b"1999-11-21 00:20:17", None),
        (b"write 2026 11 21 00:20", None),
        (b"", None),
    ],
)
def test_dates_are_found_as_benchmarks_print_them(line: bytes, date: float | None) -> None:
    assert date_in(line) == date


@given(st.from_regex(rb"20\d\d[-./]\d\d[-./]\d\d[- T]\d\d[:.]\d\d[:.]\d\d([+-]\d\d:\d\d)?"))
def test_no_date_raises(line: bytes) -> None:
    date_in(line)


@pytest.mark.usefixtures("utc")
def test_a_run_began_at_the_first_date_in_it_or_else_when_the_file_was_changed() -> None:
    text = "2001-01-01 00:00:00\nrun\n2026-11-21 00:20:17; 2027-01-01 00:00:00; end a; complete\nrun; end a; complete"

    assert [reading.state.start for reading in words(text)] == [AT, START]


@pytest.mark.usefixtures("utc")
def test_the_line_that_says_that_a_run_failed_may_be_the_one_that_dates_it() -> None:
    readings = words("run; begin a; fail 2026-11-21 00:20:17 refused; 2027-01-01 00:00:00")

    assert [reading.state.start for reading in readings] == [AT]


@pytest.mark.usefixtures("utc")
def test_a_run_that_only_a_document_tells_of_has_the_documents_date() -> None:
    assert [reading.state.start for reading in words('{\n"timestamp" : 1795220417\n}')] == [AT]


def test_the_line_before_a_run_is_its_note_unless_it_is_another_runs() -> None:
    readings = words(
        "we changed  it; ; run; begin write; end write; then that; run; begin write; end write; run; score"
    )

    assert [reading.note for reading in readings] == ["we changed it", "then that", ""]


def test_a_note_is_found_wherever_the_text_is_cut_and_is_not_too_long() -> None:
    text = b"\xff " + b"x" * 5000 + b"\nrun\nbegin write\nend write\n"
    whole = read(text, kinds=WORDS)
    cut = read(*(bytes([byte]) for byte in text), kinds=WORDS)

    assert [reading.note for reading in whole] == [reading.note for reading in cut]
    assert whole[0].note.startswith("\ufffd xx")
    assert whole[0].note.endswith("xx...")
    assert len(whole[0].note) == 400


def test_the_note_of_a_json_document_is_what_stands_before_it() -> None:
    (reading,) = words('$ bench --json; {; "x": 1; }')

    assert reading.note == "$ bench --json"


@given(st.lists(st.sampled_from(["nan", "-5", "1e300", "9" * 400, "9" * 12, "7.5"]), min_size=4, max_size=4))
def test_whatever_numbers_a_text_has_the_run_can_be_kept(numbers: list[str]) -> None:
    value, seconds, score, iops = numbers
    (reading,) = read(
        f"IO500 version io500-isc22_v2 (standard)\n"
        f"[RESULT]       ior-easy-write {value} GiB/s : time {seconds} seconds\n"
        f"[RESULT]       ior-easy-read {value} GiB/s : time {seconds} seconds\n"
        f"[SCORE ] Bandwidth {value} GiB/s : IOPS {iops} kiops : TOTAL {score}\n".encode()
    )

    assert msgspec.json.decode(msgspec.json.encode(reading.state), type=RunState) == reading.state
