"""IOR's outputs of all versions, and what its processes show. Each text was printed by the version that it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks.events import Began, Completed, Ended, Event, Failed, PhaseSource, RunBegan, State
from pinchpoint.benchmarks.ior import Ior, IorPlan, IorReader, plans, size
from pinchpoint.benchmarks.timeline import Timeline
from pinchpoint.benchmarks.tree import Tree
from recorder.capture import Change, OpenedFile, Written
from recorder.stage import Stage

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures"
MEBIBYTE = 1 << 20

TABLE_9 = """\
IOR-3.2.0: MPI Coordinated Test of Parallel I/O
Began               : Sat Nov 21 08:53:04 2026
Results:

access    bw(MiB/s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ---------- ---------  --------   --------   --------   --------   ----
write     7588       1024.00    256.00     0.000084   0.000208   0.000015   0.000264   0
read      35698      1024.00    256.00     0.000002   0.000054   0.000001   0.000056   0
remove    -          -          -          -          -          -          0.000049   0
Max Write: 7587.71 MiB/sec (7956.29 MB/sec)
Max Read:  35697.71 MiB/sec (37431.76 MB/sec)

Summary of all tests:
Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  Mean(OPs)     StdDev    Mean(s) Test# \
#Tasks tPN reps fPP reord reordoff reordrand seed segcnt   blksiz    xsize aggs(MiB)   API RefNum
write        7587.71    7587.71    7587.71       0.00   30350.86   30350.86   30350.86       0.00    0.00026     0 \
     2   2    1   1     0        1         0    0      1  1048576   262144       2.0 POSIX      0
read        35697.71   35697.71   35697.71       0.00  142790.85  142790.85  142790.85       0.00    0.00006     0 \
     2   2    1   1     0        1         0    0      1  1048576   262144       2.0 POSIX      0
Finished            : Sat Nov 21 08:53:04 2026
"""
QUIET_2_10 = """\
IOR-2.10.3: MPI Coordinated Test of Parallel I/O

Run began: Sat Nov 21 08:53:04 2026
Summary:
	access             = file-per-process

Operation  Max (MiB)  Min (MiB)  Mean (MiB)   Std Dev  Max (OPs)  Min (OPs)  Mean (OPs)   Std Dev  Mean (s)
---------  ---------  ---------  ----------   -------  ---------  ---------  ----------   -------  --------
write        8063.25    2151.55     5107.40   2955.85   32252.99    8606.20    20429.60  11823.39   0.00059   EXCEL
read        19417.10    8463.53    13940.31   5476.78   77668.39   33854.12    55761.26  21907.14   0.00017   EXCEL

Max Write: 8063.25 MiB/sec (8454.93 MB/sec)
Max Read:  19417.10 MiB/sec (20360.30 MB/sec)

Run finished: Sat Nov 21 08:53:04 2026
"""
VERBOSE_2_10 = """\
IOR-2.10.3: MPI Coordinated Test of Parallel I/O

Run began: Sat Nov 21 08:53:04 2026
Commencing write performance test.
Sat Nov 21 08:53:04 2026

access    bw(MiB/s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s) total(s)  iter
------    ---------  ---------- ---------  --------   --------   --------  --------   ----
write     3969       1024.00    256.00     0.000091   0.000440   0.000020   0.000504   0    XXCEL
Verifying contents of the file(s) just written.
Sat Nov 21 08:53:04 2026

[RANK 000] open for reading file /scratch/f.00000000 XXCEL
Commencing read performance test.
Sat Nov 21 08:53:04 2026

read      10073      1024.00    256.00     0.000035   0.000190   0.000005   0.000199   0    XXCEL
Re-reading the file(s) twice to verify that reads are consistent.
Sat Nov 21 08:53:04 2026

Operation  Max (MiB)  Min (MiB)  Mean (MiB)   Std Dev  Max (OPs)  Min (OPs)  Mean (OPs)   Std Dev  Mean (s)  Op grep
---------  ---------  ---------  ----------   -------  ---------  ---------  ----------   -------  --------
write        3969.14    3969.14     3969.14      0.00   15876.58   15876.58    15876.58      0.00   0.00050   2 2 1 1 \
0 1 0 0 1 1048576 262144 2097152 -1 POSIX EXCEL

Max Write: 3969.14 MiB/sec (4161.95 MB/sec)
Max Read:  10073.03 MiB/sec (10562.34 MB/sec)

Run finished: Sat Nov 21 08:53:04 2026
"""
CSV_4 = """\
access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),close(s),total(s),numTasks,iter
write,4534.3827,23464.6378,0.0001,1024.0000,256.0000,0.0002,0.0003,0.0001,0.0004,2,0
read,23497.5014,98689.5059,0.0000,1024.0000,256.0000,0.0000,0.0001,0.0000,0.0001,2,0
"""
# 3.2.0 has a list in an object, and a warning in the middle of its JSON: no parser accepts it.
JSON_3_2 = """\
IOR-3.2.0: MPI Coordinated Test of Parallel I/O
{
  "Began": "Sat Nov 21 08:53:06 2026",
  "tests": [
    {
    "Options": {
      "access": "file-per-process",
      "aggregate filesize": "2 MiB"
    }
,
    "Results": [
      [             {
        "access": "write",
WARNING: Expected aggregate file size       = 8589934592
        "bwMiB": 7278.2587,
        "totalTime": 0.0003
      }
,
            {
[ ]
,
        "access": "remove",
        "totalTime": 0.0100
      }
]
,
"max": {
  "writeMiB": 12759.4149,
  "writeMB": 13379.2162
}
}
"summary": [
{
"operation": "write",
"bwMaxMIB": 12759.4149,
"MeanTime": 0.0002
}
]
,
"Finished": "Sat Nov 21 08:53:06 2026"
}
"""
HEADER = """\
IOR-4.0.0: MPI Coordinated Test of Parallel I/O
Began               : Sat Nov 21 08:53:45 2026
access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
"""
ROW = "write     480.44     480.49     0.000807    131072     1024.00    0.000055   0.532784   0.429464   0.532842   0"
FINISHED = "Finished            : Sat Nov 21 08:53:46 2026\n"


def read(text: str | bytes) -> list[Event]:
    reader = IorReader()
    return [*reader.feed(text.encode() if isinstance(text, str) else text), *reader.close()]


def phases(found: Sequence[Event]) -> list[tuple[str, float | None, float | None]]:
    """Return each phase that ended, with its MiB/s and its seconds."""
    told = []
    for event in found:
        if isinstance(event, Ended):
            bandwidth = next((r.value for r in event.results if r.unit == "bytes_per_second"), None)
            told.append((event.phase, bandwidth and round(bandwidth / MEBIBYTE, 4), event.seconds))
    return told


def capture(name: str) -> str:
    return (CAPTURES / name / "stdout.txt").read_text()


# Its output.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ior-wr-v0-mpirun", "write 480.44,read 10365,write 1663.09,read 12527,write 1572.44,read 10301"),
        ("ior-wr-v1-mpirun", "write 1869.32,read 16621,remove,write 1890.69,read 15539,remove"),
        ("ior-wr-v3-mpirun", "write 1686.34,read 29222,remove"),
        ("ior-singleton-pipe", "write 1694.78,read 16999,remove,write 1651.50,read 9099,remove"),
        ("ior-stonewall", "write 142.40,read 1413.32,remove"),
        ("ior-old-isc20", "write 1294.89,read 8074,remove,write 887.65,read 9700,remove"),
        ("ior-json", "write 519.5713,read 18768.4290"),
    ],
)
def test_each_row_is_a_phase(name: str, expected: str) -> None:
    found = read(capture(name))
    assert isinstance(found[0], RunBegan)
    assert isinstance(found[-1], Completed)
    words = [row.split() for row in expected.split(",")]
    assert [phase for phase, _, _ in phases(found)] == [word[0] for word in words]
    for (_, bandwidth, _), word in zip(phases(found), words, strict=True):
        assert bandwidth == (float(word[1]) if len(word) > 1 else None)


def test_a_row_gives_bandwidth_operations_and_time() -> None:
    event = next(event for event in read(capture("ior-wr-v0-mpirun")) if isinstance(event, Ended))
    assert [(result.operation, result.unit, result.printed) for result in event.results] == [
        ("write", "bytes_per_second", "480.44 MiB/s"),
        ("write", "operations_per_second", "480.49 IOPS"),
    ]
    assert event.seconds == 0.532842


def test_of_a_removal_the_time_is_the_result() -> None:
    *_, event = (event for event in read(capture("ior-stonewall")) if isinstance(event, Ended))
    assert event.phase == "remove"
    assert [(result.unit, result.value) for result in event.results] == [("seconds", 0.368095)]
    assert event.seconds == 0.368095


def test_with_v_phases_begin() -> None:
    found = [event.phase for event in read(capture("ior-old-isc20")) if isinstance(event, Began)]
    assert found == ["write", "read", "write", "read"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TABLE_9, [("write", 7588, 0.000264), ("read", 35698, 0.000056), ("remove", None, 0.000049)]),
        (QUIET_2_10, [("write", 8063.25, 0.00059), ("read", 19417.10, 0.00017)]),
        (
            VERBOSE_2_10,
            [
                ("write", 3969, 0.000504),
                ("writecheck", None, None),
                ("read", 10073, 0.000199),
                ("readcheck", None, None),
            ],
        ),
        (CSV_4, [("write", 4534.3827, 0.0004), ("read", 23497.5014, 0.0001)]),
        (JSON_3_2, [("write", 7278.2587, 0.0003), ("remove", None, 0.01)]),
    ],
    ids=["3.2.0", "2.10.3", "2.10.3 -v -v", "4.0.0 CSV", "3.2.0 JSON"],
)
def test_other_versions_and_formats(text: str, expected: list[tuple[str, float | None, float | None]]) -> None:
    assert phases(read(text)) == expected
    assert not any(isinstance(event, Failed) for event in read(text))


def test_best_values_of_2_10_come_with_their_operations() -> None:
    event = next(event for event in read(QUIET_2_10) if isinstance(event, Ended))
    assert event.results[1].value == 32252.99


def test_a_json_document_may_stand_in_one_line() -> None:
    lines = capture("ior-json").splitlines()
    assert read(" ".join(lines)) == read(capture("ior-json"))


@pytest.mark.parametrize("text", [capture("ior-wr-v1-mpirun"), capture("ior-json"), TABLE_9, QUIET_2_10])
@pytest.mark.parametrize(
    "prefix", ["[1,0]<stdout>:", "[0] ", "Sat Nov 21 00:20:17 2026<stdout>:", "0: ", "[prterun-n-1@1,0]<stdout>: "]
)
def test_launchers_may_put_ranks_before_lines(text: str, prefix: str) -> None:
    assert read("".join(prefix + line for line in text.splitlines(keepends=True))) == read(text)


def test_ranks_may_stand_inside_of_lines() -> None:
    """As with mpiexec.mpich -prepend-rank, where every written piece begins with its rank."""
    text = capture("ior-wr-v1-mpirun")
    assert read(re.sub(r"(?m)^(write|read|remove)( +)(\S+) +", r"[0] \1\2[0] \3 [0] ", text)) == read(text)


def test_columns_may_be_collapsed() -> None:
    text = capture("ior-wr-v1-mpirun")
    assert read(re.sub(" +", "\xa0 ", text)) == read(text)
    assert read(re.sub(" +", " ", text)) == read(text)


@given(st.integers(1, len(ROW) - 1), st.integers(1, 3))
def test_lines_of_other_ranks_may_stand_inside_of_a_row(at: int, count: int) -> None:
    others = "".join(f"task {number} reading /scratch/f.0000000{number}\n" for number in range(1, count + 1))
    text = HEADER + ROW[:at] + others + ROW[at:] + "\n" + FINISHED
    found = phases(read(text))
    # A row that is broken in or just after its first word is lost; nothing turns into another row.
    row = [("write", 480.44, 0.532842)]
    assert found == row if at > len("write") else found in ([], row)


def test_a_rows_beginning_alone_is_none() -> None:
    text = HEADER + "write     480.44     task 1 reading /scratch/f\n" + "0 1 2 3\n" * 20 + ROW + "\n" + FINISHED
    assert phases(read(text)) == [("write", 480.44, 0.532842)]


def test_the_summary_is_not_counted() -> None:
    rows = [event for event in read(capture("ior-wr-v0-mpirun")) if isinstance(event, Ended)]
    assert len(rows) == 6


def test_rows_need_their_header() -> None:
    assert read(f"{ROW}\n{ROW}\nMax Write: 480.44 MiB/sec (503.78 MB/sec)\n{FINISHED}") == []
    assert phases(read(HEADER.splitlines()[-1] + f"\n{ROW}\n")) == [("write", 480.44, 0.532842)]


def test_figures_that_are_none_are_left_out() -> None:
    row = ROW.replace("480.44", "inf   ").replace("480.49", "-nan  ").replace("0.532842", "-       ")
    assert phases(read(HEADER + row + "\n" + FINISHED)) == [("write", None, None)]


# Environments are never read.


def test_the_environment_is_not_read() -> None:
    secret = "PASSWORD=hunter2"
    environ = f"STARTING ENVIRON LOOP\n{secret}\nPS1=ior ERROR: x (a.c:1)\nX=Finished: \n{ROW}\nENDING ENVIRON LOOP\n"
    text = HEADER.replace("access", f"{environ}access")
    reader = IorReader()
    found = [*reader.feed(text.encode()), *reader.feed(f"{ROW}\n{FINISHED}".encode())]
    assert [type(event) for event in found] == [RunBegan, Ended, Completed]
    assert "hunter2" not in repr(found)
    assert "hunter2" not in repr(vars(reader))


def test_an_environment_without_end_ends_with_the_table() -> None:
    text = HEADER.replace("access", "STARTING ENVIRON LOOP\nA=B\naccess")
    assert len(phases(read(f"{text}{ROW}\n{FINISHED}"))) == 1


# Its end.


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            'ERROR: open64("/x/y", 66, 0664) failed. Error: No such file or directory, (aiori-POSIX.c:618)',
            'open64("/x/y", 66, 0664) failed. Error: No such file or directory, (aiori-POSIX.c:618)',
        ),
        (
            'ior ERROR: open64("/x/y", 66, 0664) failed, errno 2, No such file or directory (aiori-POSIX.c:412)',
            'open64("/x/y", 66, 0664) failed, errno 2, No such file or directory (aiori-POSIX.c:412)',
        ),
        (
            "** error **\nERROR in aiori-POSIX.c (line 105): cannot open file.\nERROR: No such file or directory",
            "aiori-POSIX.c (line 105): cannot open file.",
        ),
    ],
    ids=["4.1.0", "3.3.0", "2.10.3"],
)
def test_errors_are_the_programs_own_words(line: str, reason: str) -> None:
    assert read(f"{HEADER}{line}\n{line}\n")[1:] == [Failed(reason)]


def test_what_is_cut_off_failed() -> None:
    assert [type(event) for event in read(capture("ior-sigint"))] == [RunBegan, Failed]
    whole = capture("ior-wr-v1-mpirun")
    assert isinstance(read(whole[: whole.index("Summary of all")])[-1], Failed)
    whole = capture("ior-json")
    assert isinstance(read(whole[: whole.index('"summary"')])[-1], Failed)


def test_csv_says_nothing_of_its_end() -> None:
    assert [type(event) for event in read(CSV_4)] == [RunBegan, Ended, Ended]


def test_runs_may_follow_one_another() -> None:
    text = capture("ior-sigint") + capture("ior-wr-v0-mpirun") + capture("ior-json")
    assert [type(event) for event in read(text) if isinstance(event, RunBegan | Completed | Failed)] == [
        RunBegan,
        RunBegan,
        Completed,
        RunBegan,
        Completed,
    ]


def test_a_timeline_has_each_phase_once() -> None:
    """Including removal, which happens in each repetition."""
    timeline = Timeline("ior")
    for number, event in enumerate(read(capture("ior-old-isc20"))):
        timeline.hear([event], 100.0 + number, PhaseSource.STDOUT)
    names = [mark.name for mark in timeline.phases]
    assert sorted(names) == sorted(["write", "read", "remove"] * 2)


@pytest.mark.parametrize("path", sorted(CAPTURES.iterdir()), ids=lambda path: path.name)
def test_foreign_outputs_give_nothing(path: Path) -> None:
    if path.is_dir() and not path.name.startswith("ior-"):
        output = path / "stdout.txt"
        assert read(output.read_bytes() if output.is_file() else b"") == []


# Any bytes.


@given(st.sampled_from(["ior-wr-v3-mpirun", "ior-json", "ior-stonewall"]), st.lists(st.integers(0, 8000), max_size=9))
def test_pieces_make_no_difference(name: str, cuts: list[int]) -> None:
    data = (CAPTURES / name / "stdout.txt").read_bytes()
    reader = IorReader()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    assert [*(event for piece in pieces for event in reader.feed(piece)), *reader.close()] == read(data)


WORDS = st.sampled_from(
    [*HEADER.splitlines(keepends=True), *JSON_3_2.splitlines(keepends=True), *VERBOSE_2_10.splitlines(keepends=True)]
)


@given(st.lists(st.one_of(WORDS, st.binary(max_size=40), st.sampled_from([ROW, "1" * 99, "write 1 ", '"access": "']))))
def test_any_bytes_are_read(pieces: list[str | bytes]) -> None:
    read(b"".join(piece.encode() if isinstance(piece, str) else piece for piece in pieces))


def test_what_is_kept_is_bounded() -> None:
    reader = IorReader()
    reader.feed(HEADER.encode())
    for piece in ("write 1 2 ", "task 1 writing\n", ROW + "\n", '"access": "w",\n', "1 2 3\n", "x" * 5000):
        for _ in range(300):
            reader.feed(piece.encode())
        assert len(repr(vars(reader))) < 200_000


@pytest.mark.parametrize(
    "piece", ["access bw(MiB/s) ", "ERROR: (a.c:1 ", "IOR-1. ", '"iops": ', "write 1 ", "[1.", "- "]
)
def test_long_lines_take_no_time(piece: str) -> None:
    """Without the limits, some of these would take minutes."""
    read(HEADER + (piece * 65536)[:65536] + "\n" + (piece * 65536)[:65536])


# The options.


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("4k", 4096), ("2M", 2 << 20), ("1g", 1 << 30), ("3 t", 3 << 40), ("", 0), ("x", 0), ("47008", 47008)],
)
def test_sizes(text: str, value: int) -> None:
    assert size(text) == value


@pytest.mark.parametrize(
    ("command", "phases"),
    [
        ("ior", ("write", "read")),
        ("ior -w", ("write",)),
        ("ior -r -o x", ("read",)),
        ("ior -wr -t 1m", ("write", "read")),
        ("ior -vvv -o -w -r", ("read",)),
        ("ior -w -W -r -R", ("write", "writecheck", "read")),
        ("ior -W", ("writecheck",)),
        ("ior -R", ("read",)),
        ("ior -O writeFile=1,readFile=0", ("write",)),
        ("ior --posix.odirect -r", ("read",)),
    ],
)
def test_the_command_line_tells_the_phases(command: str, phases: tuple[str, ...]) -> None:
    assert [plan.phases for plan in plans(command.split())] == [phases]


def test_the_command_line_tells_the_amount() -> None:
    command = "ior -a MPIIO -b=4m -s16 -F -e -D 300 -i 2 -o ufs:/x/a@/y/b"
    assert plans(command.split())[0] == IorPlan(
        phases=("write", "read"),
        api="mpiio",
        files=("a", "b"),
        block=4 << 20,
        segments=16,
        per_process=True,
        random=False,
        fsync=True,
        stonewall=300,
        repetitions=2,
    )


SCRIPT = """\
not read: readFile=1
IOR START
  testFile=/scratch/s1   # a comment
  api=POSIX, transferSize=256k
  blockSize=64m
  writeFile=1,readFile=0
RUN
  readFile=1
  writeFile=0
RUN
  segmentCount=500
RUN
IOR STOP
  writeFile=1
"""


def test_a_script_has_several_tests() -> None:
    found = plans(["ior", "-f", "x", "-F"], SCRIPT)
    assert [(plan.phases, plan.block, plan.segments) for plan in found] == [
        (("write",), 64 << 20, 1),
        (("read",), 64 << 20, 1),
        (("read",), 64 << 20, 500),
    ]
    assert all(plan.per_process and plan.files == ("s1",) for plan in found)


@given(st.lists(st.text(max_size=20), max_size=8), st.text())
def test_any_command_line_is_taken(argv: list[str], script: str) -> None:
    assert plans(argv, script)
    assert plans(argv, f"IOR START\n{script}")


# Its processes.

WRITES, READS = 0o100002, 0o100000


class Rig:
    """A rank 0 on a stage."""

    def __init__(self, directory: Path, command: str, *, script: str = "") -> None:
        self.stage = Stage(directory, 1e9)
        self.argv = tuple(command.split())
        self.now = 0.0
        if script:
            self.stage.write(Written(0.0, "/scratch/script", script.encode(), appended=False))
        self.ior = Ior(self.tree(), 10)

    def tree(self, *files: tuple[str, int, int], hidden: bool = False) -> Tree:
        self.now += 1.0
        opened = None if hidden else tuple(OpenedFile(17 + i, *file) for i, file in enumerate(files))
        self.stage.change(Change(self.now, 10, 1, "ior", cwd="/scratch", argv=self.argv, files=opened))
        return self.stage.tree(self.now)

    def look(self, *files: tuple[str, int, int], hidden: bool = False) -> tuple[str, str | None, float | None]:
        sight = self.ior.look(self.tree(*files, hidden=hidden), 10, self.now)
        return str(sight.state), sight.phase, sight.progress


def test_access_mode_and_position_are_seen(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "/opt/ior -w -r -b 4m -t 1m -F -e -i 3 -o f")
    data = "/scratch/f.00000000"
    assert rig.look(("/scratch/other", 0, WRITES)) == ("setup", None, None)
    assert rig.look((data, 1 << 20, WRITES)) == ("running", "write", 0.25)
    assert rig.look((data, 4 << 20, WRITES)) == ("syncing", "write", 1.0)
    assert rig.look() == ("between", None, None)
    assert rig.look((data, 2 << 20, READS)) == ("running", "read", 0.5)
    assert rig.look((f"{data} (deleted)", 0, WRITES)) == ("running", "write", 0.0)


def test_a_file_that_was_opened_for_writing_is_read_in_old_versions(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "ior -w -r -b 4m -o f")
    assert rig.look(("/scratch/f", 1 << 20, WRITES))[1] == "write"
    assert rig.look(("/scratch/f", 3 << 20, WRITES))[1] == "write"
    assert rig.look(("/scratch/f", 1 << 20, WRITES))[1] == "read"


def test_what_only_reads_reads(tmp_path: Path) -> None:
    assert Rig(tmp_path, "ior -r -o f").look(("/scratch/f", 1 << 20, WRITES))[1] == "read"


def test_rows_tell_writing_from_reading_in_old_versions(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "ior -w -r -i 2 -o f")
    for told, phase in (("", "write"), ("write", "read"), ("read", "write"), ("write", "read"), ("remove", "write")):
        event = Ended(told)
        assert rig.ior.claim(event) is event
        assert rig.look(("/scratch/f", 1, WRITES))[1] == phase


def test_a_check_after_the_write_has_its_name(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "ior -w -W -r -b 4m -o f")
    found = [
        rig.look(("/scratch/f", offset << 20, mode))[1] for offset, mode in ((1, 2), (1, 0), (2, 0), (1, 0), (2, 0))
    ]
    assert found == ["write", "writecheck", "writecheck", "read", "read"]


def test_work_grows_while_the_position_moves(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "ior -w -z -o f")
    work = [rig.ior.look(rig.tree(("/scratch/f", at, WRITES)), 10, rig.now).work for at in (5, 90, 20, 20)]
    assert work == [0, 85, 155, 155]


@pytest.mark.parametrize(
    ("options", "offset", "progress"),
    [
        ("-b 4m -F", 3 << 20, 0.75),
        ("-b 4m -s 2 -F", 3 << 20, 0.375),
        ("-b 4m", (4 << 20) + (1 << 20), 0.25),
        ("-b 4m", 8 << 20, 1.0),
        ("-b 4m", 0, 0.0),
        ("-b 4m -s 2", 3 << 20, None),
        ("-b 4m -F -z", 3 << 20, None),
        ("-b 4m -F -D 300", 3 << 20, None),
        ("-b 4m -F -a MPIIO", 3 << 20, None),
        ("-b 0 -F", 3 << 20, None),
    ],
)
def test_progress_is_told_where_it_is_known(tmp_path: Path, options: str, offset: int, progress: float | None) -> None:
    assert Rig(tmp_path, f"ior -w {options} -o f").look(("/scratch/f.00000000", offset, WRITES))[2] == progress


def test_a_stonewall_says_how_long_the_write_is_to_take(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "ior -w -r -D 300 -o f")
    assert rig.ior.look(rig.tree(("/scratch/f", 1, WRITES)), 10, 1.0).expected == 300.0
    assert rig.ior.look(rig.tree(("/scratch/f", 1, READS)), 10, 2.0).expected is None


def test_other_backends_positions_say_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "ior -w -a MPIIO -o ufs:/scratch/f")
    sight = rig.ior.look(rig.tree(("/scratch/f", 0, WRITES)), 10, 1.0)
    assert (sight.phase, sight.work) == ("write", None)


@pytest.mark.parametrize(("command", "phase", "vague"), [("ior -w", "write", False), ("ior", "ior", True)])
def test_without_rights_the_command_line_is_left(tmp_path: Path, command: str, phase: str, vague: bool) -> None:
    rig = Rig(tmp_path, command)
    sight = rig.ior.look(rig.tree(hidden=True), 10, 1.0)
    assert (sight.phase, sight.vague, sight.source, sight.blind) == (phase, vague, PhaseSource.ARGV, ("descriptors",))


def test_backends_without_files_leave_the_command_line(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "ior -r -a CEPHFS")
    sight = rig.ior.look(rig.tree(), 10, 1.0)
    assert (sight.state, sight.phase, sight.blind) == (State.RUNNING, "read", ())


def test_scripts_are_read(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "ior -f script", script=SCRIPT)
    assert rig.look(("/scratch/s1", 5, WRITES)) == ("running", "write", None)
    assert rig.look(("/scratch/s1", 5, READS)) == ("running", "read", None)


def test_results_in_a_file_of_their_own_are_read(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "ior -w -o f -O summaryFormat=CSV,summaryFile=out.csv")
    lines = CSV_4.splitlines(keepends=True)
    rig.stage.write(Written(0.0, "/scratch/out.csv", b"of an earlier run\n" + CSV_4.encode(), appended=False))
    assert rig.ior.look(rig.tree(), 10, rig.now).events == ()
    rig.stage.write(Written(1.0, "/scratch/out.csv", "".join(lines[:2]).encode(), appended=False))
    sight = rig.ior.look(rig.tree(("/scratch/out.csv", 0, WRITES), ("/scratch/f", 1, WRITES)), 10, rig.now)
    assert [type(event) for event in sight.events] == [RunBegan, Ended]
    assert (sight.phase, sight.events_source) == ("write", PhaseSource.RESULT_FILE)
    rig.stage.write(Written(2.0, "/scratch/out.csv", lines[2].encode(), appended=True))
    assert [event.phase for event in rig.ior.last_words() if isinstance(event, Ended)] == ["read"]
    assert rig.ior.last_words() == ()


STONEWALLED = """\
IOR-4.1.0+dev: MPI Coordinated Test of Parallel I/O
Options:
{tasks}
stonewallingTime    : 6
stoneWallingWearOut : 1

Results:

access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----
stonewalling pairs accessed min: 1958 max: 6138 -- min data: 1.9 GiB mean data: {data} GiB time: {seconds}s
WARNING: Expected aggregate file size       = 12884901888
write     415.39     415.39     0.000978    6291456    1024.00    0.000041   29.55      23.55      29.55      0
"""
"""Of two ranks, one of which shared its CPU with two loops; recorded with IOR 4.1.0+dev and Open MPI 4.1.4."""


@pytest.mark.parametrize("tasks", ["tasks               : 2", "clients             = 2 (2 per node)"])
def test_the_rate_until_the_stonewall_follows_from_what_the_ranks_had_written(tasks: str) -> None:
    ended = next(
        event for event in read(STONEWALLED.format(tasks=tasks, data="4.0", seconds="6.0")) if isinstance(event, Ended)
    )

    assert [(one.operation, one.unit) for one in ended.results] == [
        ("write", "bytes_per_second"),
        ("write", "operations_per_second"),
        ("stonewall", "bytes_per_second"),
    ]
    assert ended.results[-1].value == pytest.approx((6138 + 1958) * (1 << 20) / 6.0, rel=0.02)
    assert ended.results[-1].printed == "4.0 GiB of 2 ranks each in 6.0 s"


@pytest.mark.parametrize(
    ("tasks", "data", "seconds"), [("tasks : 2", "0.2", "6.0"), ("tasks : 2", "4.0", "0.4"), ("", "4.0", "6.0")]
)
def test_figures_that_are_too_coarse_give_no_rate_until_the_stonewall(tasks: str, data: str, seconds: str) -> None:
    (ended,) = (
        event for event in read(STONEWALLED.format(tasks=tasks, data=data, seconds=seconds)) if isinstance(event, Ended)
    )

    assert [one.operation for one in ended.results] == ["write", "write"]


def test_a_stonewall_counts_for_one_row_alone() -> None:
    text = STONEWALLED.format(tasks="tasks : 2", data="4.0", seconds="6.0")
    first, second = (event for event in read(text + text.splitlines()[-1] + "\n") if isinstance(event, Ended))

    assert (len(first.results), len(second.results)) == (3, 2)
