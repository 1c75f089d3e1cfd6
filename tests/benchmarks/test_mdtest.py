"""mdtest's outputs of all versions, and what its processes show. Each text was printed by the version that it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks.events import Began, Completed, Ended, Event, Failed, PhaseSource, RunBegan
from pinchpoint.benchmarks.mdtest import Mdtest, MdtestPlan, MdtestReader
from pinchpoint.benchmarks.tree import Tree
from recorder.capture import Change, OpenedFile
from recorder.stage import Stage

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures"

HEADER = """\
-- started at 11/21/2026 08:53:32 --

mdtest-VERSION was launched with 2 total task(s) on 1 node(s)
Command line used: mdtest OPTIONS
Path: /scratch
2 tasks, 12000 files/directories

"""
FINISHED = "-- finished at 11/21/2026 08:54:10 --\n"
RULER = """\
   Operation                      Max            Min           Mean        Std Dev
   ---------                      ---            ---           ----        -------
"""
SUMMARY_1_9 = f"""\
SUMMARY: (of 2 iterations)
{RULER}\
   Directory creation:     104910.603      90505.792      97708.197       7202.406
   Directory stat    :    3079370.782    2645327.690    2862349.236     217021.546
   File creation     :     125458.577     121085.654     123272.116       2186.462
   Tree creation     :      22074.568       7954.753      15014.661       7059.907
"""
SUMMARY_3_3 = f"""\
SUMMARY rate: (of 1 iterations)
{RULER}\
   Directory rename          :     339885.795     339885.795     339885.795          0.000
   File creation             :     137137.002     137137.002     137137.002          0.000
   File stat                 :          0.000          0.000          0.000          0.000
   File read                 :    1540856.051    1540856.051    1540856.051          0.000
   File create (stonewall)   :             NA             NA      88498.266             NA
   Tree removal              :         59.386         59.386         59.386          0.000
"""
RANKS_4_1 = """\
SUMMARY rate (in ops/sec): (of 1 iterations)
   Operation     per Rank: Max            Min           Mean      per Iteration: Max            Min           Mean
   ---------               ---            ---           ----                      ---            ---           ----
   Directory stat         999993.006     981200.250     990596.628            1954703.018    1954703.018 \
   1954703.018          0.000
   Tree creation                1360.462       1360.462       1360.462           1360.462       1360.462 \
      1360.462          0.000
"""
RATES_4_1 = """\
SUMMARY rate (in ops/sec): (of 1 iterations)
   Operation                     Max            Min           Mean        Std Dev
   Directory creation          17389.164      17389.164      17389.164          0.000
   File stat                 2021838.515    2021838.515    2021838.515          0.000
   File read                       0.000          0.000          0.000          0.000

"""
TIMES_4_1 = """\
SUMMARY time (in ms/op): (of 1 iterations)
   Operation                     Max            Min           Mean        Std Dev
   Directory creation              0.690          0.690          0.690          0.000
   File stat                       0.006          0.006          0.006          0.000
   File read                       0.000          0.000          0.000          0.000
"""
LIVE_4 = """\
V-1: Rank   0 Line  2015 main: * iteration 1 *
V-1: Rank   0 Line  1941 Entering create_remove_directory_tree on /scratch/md/test-dir.0-0, currDepth = 0...
V-1: Rank   0 Line  1941 Entering create_remove_directory_tree on /scratch/md/test-dir.0-0/x, currDepth = 1...
V-1: Rank   0 Line  2091 V-1: main:   Tree creation     :          0.001 sec,       1434.931 ops/sec
V-1: Rank   0 Line   945 Entering directory_test on mdtest_tree.0.0
V-1: Rank   0 Line   322 Entering unique_dir_access, set it to /scratch/md/test-dir.0-0/mdtest_tree.0.0
V-1: Rank   0 Line   506 Entering create_remove_items on /scratch/md/test-dir.0-0/mdtest_tree.0.0, currDepth = 0...
V-1: Rank   0 Line   439 Entering create_remove_items_helper on /scratch/md/test-dir.0-0/mdtest_tree.0.0
V-1: Rank   0 Line   574 Entering mdtest_stat on /scratch/md/test-dir.0-0/mdtest_tree.0.0
V-1: Rank   0 Line   858 Entering mdtest_rename on /scratch/md/test-dir.0-0/mdtest_tree.0.0
V-1: Rank   0 Line   506 Entering create_remove_items on /scratch/md/test-dir.0-0/mdtest_tree.0.0, currDepth = 0...
V-1: Rank   0 Line  1113    Directory creation:          0.259 sec,      23189.200 ops/sec
V-1: Rank   0 Line  1114    Directory stat    :          0.006 sec,    1035204.607 ops/sec
V-1: Rank   0 Line  1115    Directory rename :          0.035 sec,     169976.185 ops/sec
V-1: Rank   0 Line  1116    Directory removal :          0.148 sec,      40575.118 ops/sec
V-1: Rank   0 Line   506 Entering create_remove_items on /scratch/md/test-dir.0-0/mdtest_tree.0.0, currDepth = 0...
V-1: Rank   0 Line   574 Entering mdtest_stat on /scratch/md/test-dir.0-0/mdtest_tree.0.0
V-1: Rank   0 Line   656 Entering mdtest_read on /scratch/md/test-dir.0-0/mdtest_tree.0.0
V-1: Rank   0 Line   506 Entering create_remove_items on /scratch/md/test-dir.0-0/mdtest_tree.0.0, currDepth = 0...
V-1: Rank   0 Line  1399   File creation     :          0.542 sec,      11063.681 ops/sec
V-1: Rank   0 Line  1401   File creation (stonewall):          0.500 sec,      11000.000 ops/sec
V-1: Rank   0 Line  1403   File stat         :          0.000 sec,    1008205.761 ops/sec
V-1: Rank   0 Line  1404   File read         :          0.007 sec,     825894.260 ops/sec
V-1: Rank   0 Line  1405   File removal      :          0.000 sec,          0.000 ops/sec
V-1: Rank   0 Line  1941 Entering create_remove_directory_tree on /scratch/md/test-dir.0-0, currDepth = 0...
V-1: Rank   0 Line  2201 main   Tree removal      :          0.009 sec,        110.205 ops/sec

SUMMARY rate: (of 1 iterations)
   Operation                     Max            Min           Mean        Std Dev
   Directory creation          46377.160      46377.160      46377.160          0.000
   File creation               22127.157      22127.157      22127.157          0.000
   File removal               777863.349     777863.349     777863.349          0.000
"""
LIVE_1_9 = """\
V-1: main: * iteration 1 11/21/2026 08:53:32 *
V-1: Entering create_remove_directory_tree, currDepth = 0...
V-1: main:   Tree creation     :          0.000 sec,      14276.537 ops/sec
V-1: Entering file_test...
V-1: Entering create_remove_items, currDepth = 0...
V-1: Entering create_remove_items_helper...
V-1: Entering mdtest_stat...
V-1: Entering mdtest_read...
V-1: mdtest_read path = /scratch/md/#test-dir.0/mdtest_tree.0.0
V-1: Entering create_remove_items, currDepth = 0...
V-1:   File creation     :          0.250 sec,      48000.000 ops/sec
"""


def header(version: str = "4.1.0+dev", options: str = "-n 6000 -u") -> str:
    return HEADER.replace("VERSION", version).replace("OPTIONS", options)


def read(text: str | bytes) -> list[Event]:
    reader = MdtestReader()
    return [*reader.feed(text.encode() if isinstance(text, str) else text), *reader.close()]


def ended(found: Sequence[Event]) -> dict[str, Ended]:
    events = [event for event in found if isinstance(event, Ended)]
    assert len({event.phase for event in events}) == len(events)
    return {event.phase: event for event in events}


def main_figures(found: Sequence[Event]) -> dict[str, float]:
    return {phase: event.results[0].value for phase, event in ended(found).items()}


def capture(name: str) -> str:
    return (CAPTURES / name / "stdout.txt").read_text()


# Its output.


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("mdtest-std", [4381.867, 11650.366, 103850.629, 34290.274, 46913.018, 18.681]),
        ("mdtest-old-isc20", [627.133, 654.403, 157709.170, 78893.768, 43404.501, 31.618]),
    ],
)
def test_each_row_of_the_summary_is_a_phase(name: str, figures: list[float]) -> None:
    found = read(capture(name))
    assert isinstance(found[0], RunBegan)
    assert isinstance(found[-1], Completed)
    names = ["tree_creation", "file_creation", "file_stat", "file_read", "file_removal", "tree_removal"]
    assert main_figures(found) == dict(zip(names, figures, strict=True))
    assert list(ended(found)) == names


def test_the_mean_of_several_iterations_comes_with_its_range() -> None:
    results = ended(read(capture("mdtest-std")))["file_creation"].results
    assert [(result.operation, result.printed) for result in results] == [
        ("creation", "11650.366 ops/sec"),
        ("max", "14003.512 ops/sec"),
        ("min", "9297.219 ops/sec"),
        ("stddev", "3327.852 ops/sec"),
    ]
    assert {result.unit for result in results} == {"operations_per_second"}


def test_time_follows_from_the_number_of_items() -> None:
    found = ended(read(capture("mdtest-std")))
    assert found["file_creation"].seconds == pytest.approx(3000 / 11650.366)
    assert found["tree_removal"].seconds == pytest.approx(1 / 18.681)


@pytest.mark.parametrize("options", ["-n 6000 -x status -T", "-T '-x' 's'"])
def test_time_is_unknown_where_an_earlier_run_says_how_many_items_there_are(options: str) -> None:
    found = ended(read(header(options=options) + RATES_4_1 + FINISHED))
    assert {event.seconds for event in found.values()} == {None}


def test_a_stonewall_changes_the_number_of_items() -> None:
    hit = "Continue stonewall hit min: 900 max: 1000 avg: 950.0 \n\n"
    found = ended(read(header() + hit + SUMMARY_3_3 + FINISHED))
    assert found["file_creation"].seconds == pytest.approx(2000 / 137137.002)
    assert found["directory_rename"].seconds is None
    again = ended(read(header() + hit + hit + SUMMARY_3_3 + FINISHED))
    assert again["file_creation"].seconds is None


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        (
            SUMMARY_1_9,
            {
                "tree_creation": 15014.661,
                "directory_creation": 97708.197,
                "directory_stat": 2862349.236,
                "file_creation": 123272.116,
            },
        ),
        (
            SUMMARY_3_3,
            {
                "directory_rename": 339885.795,
                "file_creation": 137137.002,
                "file_read": 1540856.051,
                "tree_removal": 59.386,
            },
        ),
        (RANKS_4_1, {"tree_creation": 1360.462, "directory_stat": 1954703.018}),
        (RATES_4_1, {"directory_creation": 17389.164, "file_stat": 2021838.515}),
    ],
    ids=["1.9.4-rc1", "3.3.0", "4.1.0+dev --showRankStatistics", "4.1.0+dev"],
)
def test_other_versions(text: str, figures: dict[str, float]) -> None:
    assert main_figures(read(header() + text + FINISHED)) == figures
    # Blanks may be collapsed.
    assert main_figures(read(re.sub(" +", " ", header() + text + FINISHED))) == figures


def test_a_row_with_another_number_of_columns_gives_nothing_rather_than_another_figure() -> None:
    wider = re.sub(r"(\d\.\d{3})$", r"\1 9.999", RATES_4_1, flags=re.MULTILINE)
    assert wider != RATES_4_1
    assert main_figures(read(header() + wider + FINISHED)) == {}


def test_what_did_not_run_is_no_phase() -> None:
    assert "file_stat" not in ended(read(header() + SUMMARY_3_3 + FINISHED))


def test_rates_up_to_the_stonewall_are_told_too() -> None:
    result = ended(read(header() + SUMMARY_3_3 + FINISHED))["file_creation"].results[-1]
    assert (result.operation, result.value) == ("stonewall", 88498.266)


def test_rates_and_times_are_one_phase() -> None:
    found = ended(read(header(options="-P -n 6000") + RATES_4_1 + TIMES_4_1 + FINISHED))
    assert {phase: event.seconds for phase, event in found.items()} == {"directory_creation": 0.69, "file_stat": 0.006}
    assert found["file_stat"].results[0].value == 2021838.515


def test_times_alone_are_results() -> None:
    found = ended(read(header(options="-Z") + TIMES_4_1 + FINISHED))
    assert {phase: (event.results[0].unit, event.seconds) for phase, event in found.items()} == {
        "directory_creation": ("seconds", 0.69),
        "file_stat": ("seconds", 0.006),
    }


@pytest.mark.parametrize("text", ["the data on read (3 errors)!", "the data read!"])
def test_data_that_is_not_what_was_written_is_invalid(text: str) -> None:
    error = f"\nERROR: verifying {text} Take the performance values with care!\n\n"
    found = ended(read(header() + SUMMARY_3_3 + error + FINISHED))
    assert {phase for phase, event in found.items() if not event.valid} == {"file_read"}


def test_each_number_of_tasks_is_a_test_of_its_own() -> None:
    text = header() + RATES_4_1 + "1 tasks, 6000 files/directories\n" + RATES_4_1 + FINISHED
    found = [event for event in read(text) if isinstance(event, Ended) and event.phase == "file_stat"]
    assert [event.seconds for event in found] == [pytest.approx(count / 2021838.515) for count in (12000, 6000)]


def test_with_v_phases_begin_and_end() -> None:
    found = read(header("4.0.0", "'-v' '-n' '6000'") + LIVE_4 + FINISHED)
    begun = [event.phase for event in found if isinstance(event, Began)]
    assert begun == [
        "tree_creation",
        "directory_creation",
        "directory_stat",
        "directory_rename",
        "directory_removal",
        "file_creation",
        "file_stat",
        "file_read",
        "file_removal",
        "tree_removal",
    ]
    told = ended(found)
    # Values of the lines are not counted again; those that the lines lack are in the summary.
    assert told["file_removal"].results[0].value == 777863.349
    assert told["file_creation"].seconds == 0.542
    assert told["file_stat"].seconds == pytest.approx(12000 / 2016411.522)


@pytest.mark.parametrize(("version", "factor"), [("3.3.0", 1), ("3.3.0+dev", 1), ("3.4.0+dev", 2), ("4.0.0", 2)])
def test_rates_of_one_rank_are_summed_up(version: str, factor: int) -> None:
    found = ended(read(header(version, "-v") + LIVE_4 + FINISHED))
    assert found["file_creation"].results[0].value == pytest.approx(11063.681 * factor)
    assert found["tree_creation"].results[0].value == 1434.931


def test_old_versions_say_what_they_enter() -> None:
    found = read(header("1.9.4-rc1", "-v -F") + LIVE_1_9)
    assert [event.phase for event in found if isinstance(event, Began)] == [
        "tree_creation",
        "file_creation",
        "file_stat",
        "file_read",
        "file_removal",
    ]


def test_items_are_removed_where_none_are_created() -> None:
    line = "V-1: Rank   0 Line   506 Entering create_remove_items on /scratch, currDepth = 0...\n"
    found = read(header("4.0.0", "-v -r -F") + line + line)
    assert [event.phase for event in found if isinstance(event, Began)] == ["file_removal"]


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "[0] ", "Sat Nov 21 00:20:17 2026<stdout>:", "0: "])
def test_launchers_may_put_ranks_before_lines(prefix: str) -> None:
    text = capture("mdtest-std")
    assert read("".join(prefix + line for line in text.splitlines(keepends=True))) == read(text)


# Its end.


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "11/21/2026 08:53:45: Process 1: FAILED in main, unable to stat file system: No such file or directory",
            "FAILED in main, unable to stat file system: No such file or directory",
        ),
        (
            "11/21/2026 08:53:45: Process 1(node-1): FAILED at 212, out of memory: Success",
            "FAILED at 212, out of memory: Success",
        ),
        (
            'ERROR: open64("/x/y", 66, 0664) failed. Error: No such file or directory, (aiori-POSIX.c:618)',
            'open64("/x/y", 66, 0664) failed. Error: No such file or directory, (aiori-POSIX.c:618)',
        ),
    ],
    ids=["3.2.0", "1.9.4-rc1", "4.1.0+dev"],
)
def test_errors_are_the_programs_own_words(line: str, reason: str) -> None:
    assert read(f"{header()}{line}\n{line}\n")[1:] == [Failed(reason)]


def test_what_is_cut_off_failed_and_keeps_its_results() -> None:
    text = capture("mdtest-std")
    found = read(text[: text.index("   Tree creation")])
    assert list(ended(found)) == ["file_creation", "file_stat", "file_read", "file_removal"]
    assert isinstance(found[-1], Failed)


def test_a_summary_alone_is_enough() -> None:
    found = read(SUMMARY_3_3)
    assert len(ended(found)) == 4
    assert not any(isinstance(event, Failed) for event in found)


def test_runs_may_follow_one_another() -> None:
    text = header() + capture("mdtest-std") + capture("mdtest-old-isc20")
    assert [type(event) for event in read(text) if isinstance(event, RunBegan | Completed | Failed)] == [
        RunBegan,
        RunBegan,
        Completed,
        RunBegan,
        Completed,
    ]


@pytest.mark.parametrize("path", sorted(CAPTURES.iterdir()), ids=lambda path: path.name)
def test_foreign_outputs_give_nothing(path: Path) -> None:
    if path.is_dir() and not path.name.startswith("mdtest-"):
        output = path / "stdout.txt"
        assert read(output.read_bytes() if output.is_file() else b"") == []


def test_rows_need_their_summary() -> None:
    assert read(SUMMARY_3_3.partition("\n")[2] + LIVE_1_9 + FINISHED) == []


# Any bytes.

TEXTS = [header() + text + FINISHED for text in (LIVE_4, LIVE_1_9, SUMMARY_3_3, RATES_4_1 + TIMES_4_1)]


@given(st.sampled_from(TEXTS), st.lists(st.integers(0, 5000), max_size=9))
def test_pieces_make_no_difference(text: str, cuts: list[int]) -> None:
    data = text.encode()
    reader = MdtestReader()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    assert [*(event for piece in pieces for event in reader.feed(piece)), *reader.close()] == read(data)


WORDS = st.sampled_from([line for text in TEXTS for line in text.splitlines(keepends=True)])


@given(st.lists(st.one_of(WORDS, st.binary(max_size=40), st.sampled_from(["1" * 99, "inf", "nan", "NA"]))))
def test_any_bytes_are_read(pieces: list[str | bytes]) -> None:
    read(b"".join(piece.encode() if isinstance(piece, str) else piece for piece in pieces))


def test_what_is_kept_is_bounded() -> None:
    reader = MdtestReader()
    reader.feed((header() + "SUMMARY: (of 1 iterations)\n").encode())
    for number in range(2000):
        name = "".join(chr(97 + int(digit)) for digit in str(number))
        reader.feed(f"   File {name} : 1 2 3 4\n   File {name} : 1.0 sec, 2.0 ops/sec\n".encode())
        reader.feed(b"Continue stonewall hit min: 1 max: 2 avg: 1\n")
    assert len(repr(vars(reader))) < 20_000


@pytest.mark.parametrize("piece", ["File creation ", "SUMMARY ", "1 tasks, ", "1.0 ", "-- started at ", "[1."])
def test_long_lines_take_no_time(piece: str) -> None:
    """Without the limit, some of these would take minutes."""
    read(header() + "SUMMARY: (of 1 iterations)\n" + "File creation" + (piece * 65536)[:65536] + "\n")


# The options.


@pytest.mark.parametrize(
    ("command", "phase"),
    [
        ("mdtest -C -F -n 100", "file_creation"),
        ("mdtest -TD", "directory_stat"),
        ("mdtest -r -F", "file_removal"),
        ("mdtest -E", "file_read"),
        ("mdtest -E -w 3901 -e 3901 -d /x -r", None),
        ("mdtest -U", "directory_rename"),
        ("mdtest -C", None),
        ("mdtest -F", None),
        ("mdtest", None),
        ("mdtest -d -C -T -F", "file_stat"),
    ],
)
def test_one_operation_is_one_phase(command: str, phase: str | None) -> None:
    assert MdtestPlan.of(command.split()).phase == phase


def test_the_command_line_tells_the_number_of_items() -> None:
    assert MdtestPlan.of(["mdtest", "-n", "1k", "-W=300"])[2:] == (1024, 300, False, 0, True)
    assert MdtestPlan.of(["mdtest", "-n100", "-c", "-x", "f", "-z", "2", "-b", "3"])[2:] == (0, 0, True, 2, False)


@given(st.lists(st.text(max_size=20), max_size=8))
def test_any_command_line_is_taken(argv: list[str]) -> None:
    assert MdtestPlan.of(argv).operations


# Its processes.

WRITES, READS = 0o100002, 0o100000


class Rig:
    """A rank 0 on a stage; a look every half second."""

    def __init__(self, directory: Path, command: str) -> None:
        self.stage = Stage(directory, 1e9)
        self.argv = tuple(command.split())
        self.now = 0.0
        self.mdtest = Mdtest(self.tree(), 10)

    def tree(self, *files: tuple[str, int], hidden: bool = False) -> Tree:
        self.now += 0.5
        opened = None if hidden else tuple(OpenedFile(17 + i, path, 0, mode) for i, (path, mode) in enumerate(files))
        self.stage.change(Change(self.now, 10, 1, "mdtest", cwd="/scratch", argv=self.argv, files=opened))
        return self.stage.tree(self.now)

    def look(self, *files: tuple[str, int]) -> tuple[str | None, bool, float | None]:
        sight = self.mdtest.look(self.tree(*files), 10, self.now)
        return sight.phase, sight.vague, sight.progress


def data(number: int, iteration: int = 0, owner: int = 0) -> str:
    return f"/scratch/md/test-dir.{iteration}-0/mdtest_tree.{owner}.0/file.mdtest.{owner}.{number}"


def test_files_are_created_then_read(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "mdtest -n 200 -d md -u -i 2")
    assert rig.look(("/scratch/other", WRITES)) == ("mdtest", True, None)
    assert rig.look((data(49), WRITES)) == ("file_creation", False, 0.25)
    assert rig.look() == ("file_creation", False, 0.25)
    assert rig.look((data(149), WRITES)) == ("file_creation", False, 0.75)
    assert rig.look((data(9), WRITES)) == ("file_read", False, 0.05)
    assert rig.look((data(199), WRITES)) == ("file_read", False, 1.0)
    assert rig.look((data(99, iteration=1), WRITES)) == ("file_creation", False, 0.5)
    assert rig.look((data(3, iteration=1), READS))[0] == "file_read"


def test_what_another_rank_created_is_read(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "mdtest -n 200 -N 1")
    assert rig.look((data(9), WRITES))[0] == "file_creation"
    assert rig.look((data(19, owner=2), WRITES))[0] == "file_read"


def test_a_tree_with_branches_is_not_walked_in_order(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "mdtest -n 200 -z 2 -b 3")
    assert [rig.look((data(number), WRITES))[0] for number in (50, 20, 90)] == ["file_creation"] * 3


def test_a_phase_without_files_is_not_known(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "mdtest -n 200")
    assert rig.look((data(9), WRITES))[0] == "file_creation"
    found = [rig.look()[:2] for _ in range(6)]
    assert found[0] == ("file_creation", False)
    assert found[-1] == ("mdtest", True)
    # Reading is recognised, even though creation was lost from view.
    assert rig.look((data(3), WRITES))[0] == "file_read"


def test_creation_goes_on_while_files_are_left_at_its_pace(tmp_path: Path) -> None:
    """On a slow file system, most of the time a file is still being opened."""
    rig = Rig(tmp_path, "mdtest -F -n 200")
    early = [rig.look()[1] for _ in range(20)]
    rig.look((data(19), WRITES))  # 20 files in 10 s: 90 s are left
    held = [rig.look()[0] for _ in range(170)]
    later = [rig.look()[0] for _ in range(20)]

    assert all(early)
    assert set(held) == {"file_creation"}
    assert later[-1] == "mdtest"


def test_reading_that_was_seen_once_has_no_pace(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "mdtest -F -n 200")
    for _ in range(20):
        rig.look()
    assert rig.look((data(19), READS))[0] == "file_read"
    assert [rig.look()[0] for _ in range(6)][-1] == "mdtest"


def test_only_what_is_asked_for_is_seen(tmp_path: Path) -> None:
    assert Rig(tmp_path, "mdtest -T -E -n 9").look((data(1), WRITES))[0] == "file_read"


def test_old_names_of_directories(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "MDTEST -n 100")
    path = data(49).replace("test-dir.0-0", "#test-dir.0")
    assert rig.look((f"{path} (deleted)", WRITES)) == ("file_creation", False, 0.5)


def test_one_operation_needs_no_files(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "mdtest -T -F")
    sight = rig.mdtest.look(rig.tree(), 10, 1.0)
    assert (sight.phase, sight.vague, sight.source, sight.work) == ("file_stat", False, PhaseSource.ARGV, None)


def test_work_is_the_number_of_files(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "mdtest -C -F -n 100 -W 300")
    sights = [rig.mdtest.look(rig.tree((data(n), WRITES)), 10, rig.now) for n in (5, 5, 30)]
    assert [sight.work for sight in sights] == [0, 0, 25]
    assert {sight.expected for sight in sights} == {300.0}
    assert {sight.progress for sight in sights} == {None}


def test_a_sync_is_seen(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "mdtest -C -F -Y")
    assert str(rig.mdtest.look(rig.tree(), 10, 0.5).state) == "running"
    rig.stage.change(Change(0.6, 20, 10, "sh"))
    rig.stage.change(Change(0.6, 21, 20, "sync"))
    assert str(rig.mdtest.look(rig.tree(), 10, 1.0).state) == "syncing"


def test_without_rights_the_command_line_is_left(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "mdtest")
    sight = rig.mdtest.look(rig.tree(hidden=True), 10, 1.0)
    assert (sight.phase, sight.vague, sight.blind) == ("mdtest", True, ("descriptors",))
