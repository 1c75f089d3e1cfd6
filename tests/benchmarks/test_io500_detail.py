from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks.io500_detail import Nodes, PhaseDetail, PhaseText, RankTable, rank_times

FOLDERS = Path(__file__).parents[1] / "fixtures" / "io500"
APP, SHELL = FOLDERS / "cephfs-2025", FOLDERS / "cephfs-2019"
GIB = 1 << 30


def text(path: Path, phase: str) -> PhaseText:
    reader = PhaseText(phase, path.name)
    reader.feed(path.read_bytes())
    reader.close()
    return reader


def said(phase: str, *lines: str) -> PhaseDetail:
    reader = PhaseText(phase, "a.txt")
    reader.feed("\n".join([*lines, ""]).encode())
    reader.close()
    return reader.detail


def table(phase: str, raw: bytes) -> RankTable:
    reader = RankTable(phase)
    reader.feed(raw)
    reader.close()
    return reader


def test_ior_shows_its_stonewall_stages_ranks_and_nodes() -> None:
    detail = text(APP / "ior-easy-write.txt", "ior_easy_write").detail

    assert (detail.tasks, detail.nodes, detail.per_node, detail.wall) == (160, 10, 16, 300)
    assert (detail.wall_hit, detail.wall_fewest, detail.wall_most) == (300.0, 13225, 17684)
    assert (detail.opening, detail.moving, detail.closing) == (0.021313, 408.88, 0.000291)
    assert detail.rate == 27679 * (1 << 20)


def test_the_rate_until_the_stonewall_is_as_exact_as_its_digits() -> None:
    detail = text(APP / "ior-easy-write.txt", "ior_easy_write").detail

    (rate,) = detail.wall_rates
    assert rate.low < 35.05 * GIB < rate.high
    assert rate.error < 0.001


def test_an_older_ior_has_its_stonewall_in_one_line() -> None:
    (rate,) = text(SHELL / "ior_hard_write.txt", "ior_hard_write").detail.wall_rates

    assert rate.source == "ior_hard_write.txt: mean data of the ranks"
    assert rate.low < 5.2 * 70 / 300 * GIB < rate.high
    assert 0.009 < rate.error < 0.011


def test_the_summary_of_ior_3_3_has_the_stonewall_with_more_digits() -> None:
    (rate,) = said(
        "ior_easy_write",
        "Operation   Max(MiB)   Mean(s) Stonewall(s) Stonewall(MiB) API RefNum",
        "write      856728.86  367.17895     300.29    1017035.58  POSIX 0",
    ).wall_rates

    assert rate.middle == 1017035.58 * (1 << 20)
    assert rate.error < 1e-7


@pytest.mark.parametrize(("column", "rate"), [("674.46", 2 * 674.46), ("1348.92", 1348.92)])
def test_the_summarys_stonewall_is_of_the_mean_rank_since_ior_4_0(column: str, rate: float) -> None:
    least, most = said(
        "ior_easy_write",
        "tasks               : 2",
        "stonewalling pairs accessed min: 1958 max: 6138 -- min data: 1.9 GiB mean data: 4.0 GiB time: 6.0s",
        "Operation   Max(MiB)   Mean(s) Stonewall(s) Stonewall(MiB) API RefNum",
        f"write         415.39  29.55301       6.00        {column}  POSIX 0",
    ).wall_rates

    assert least.agrees(most)
    assert most.middle == pytest.approx(rate * (1 << 20))


def test_mdtest_shows_which_ranks_share_a_node() -> None:
    reader = text(APP / "mdtest-hard-write.txt", "mdtest_hard_write")

    assert (reader.detail.tasks, reader.detail.nodes, reader.detail.per_node) == (160, 10, 16)
    assert reader.cyclic is False


@pytest.mark.parametrize(
    ("bits", "cyclic"), [("11110000", False), ("10001000", True), ("10110000", None), ("1000", None), ("1111", False)]
)
def test_a_node_map_is_blocks_or_dealt_out_or_neither(bits: str, cyclic: bool | None) -> None:
    reader = PhaseText("mdtest_easy_stat", "a.txt")
    reader.feed(f"Nodemap: {bits}\n".encode())

    assert reader.cyclic is cyclic


def test_hosts_are_known_where_ior_names_them() -> None:
    reader = PhaseText("ior_easy_write", "a.txt")
    reader.feed(b"task 0 on c0414.ofp\ntask 1 on c0414.ofp\ntask 10 on c0415.ofp\n")

    assert reader.hosts == {0: "c0414", 1: "c0414", 10: "c0415"}


def test_a_phase_without_a_stonewall_has_none() -> None:
    assert said("ior_easy_read", "read  1 2").wall_rates == []


@pytest.mark.parametrize("words", ["", "ior -D", "ior -D 00000000199", "ior -D=1000000", "ior -D=²"])
def test_a_command_line_without_a_stonewall_has_none(words: str) -> None:
    assert said("ior_easy_write", f"Command line: {words}").wall is None


@pytest.mark.parametrize("nodes", ["00000000000000000199", "4294967296", "-1", "²", "0"])
def test_a_number_of_nodes_that_cannot_be_is_none(nodes: str) -> None:
    assert said("ior_easy_write", f"nodes : {nodes}").nodes is None


def test_the_times_of_ranks_are_by_rank() -> None:
    ranks = table("ior_easy_write", (APP / "ior-easy-write.csv").read_bytes())

    assert (ranks.rows, ranks.foreign) == (160, 0)
    assert ranks.seconds[135] == max(ranks.seconds.values()) == pytest.approx(408.9, abs=0.1)


def test_rows_of_mdtest_are_those_of_the_phases_operation() -> None:
    ranks = table("mdtest_hard_read", (APP / "mdtest-hard-read.csv").read_bytes())

    assert (ranks.rows, ranks.foreign) == (160, 0)
    assert 247 < min(ranks.seconds.values()) < max(ranks.seconds.values()) < 299


def test_ranks_of_pfind_look_for_work() -> None:
    ranks = table("find", (APP / "find.csv").read_bytes())

    assert ranks.runtime == pytest.approx(92.7, abs=0.1)
    assert len(ranks.searching) == ranks.rows == 160
    assert [*ranks.notes("find.csv", None)] == []


def test_a_table_of_another_locale_is_read() -> None:
    ranks = table("ior_easy_read", b"access;rank;runtime\nread;0;4,5e+01\nread;1;5,5e+01\n")

    assert [*ranks.seconds.values()] == [45, 55]


def test_a_row_that_is_cut_is_not_read_as_another_figure() -> None:
    ranks = table("ior_easy_read", b"access,rank,runtime\nread,0,4.5e+02\nread,1,4.5e+0")

    assert [*ranks.seconds.values()] == [450]
    assert [*ranks.notes("x.csv", 2)] == [
        "x.csv: 1 of 2 lines are not rows of its table; they are left out",
        "x.csv: it has 1 ranks, the run has 2",
    ]


def test_a_table_that_is_none_is_named() -> None:
    ranks = table("ior_easy_read", b"PK\x03\x04\n1,2\n")

    assert "not a table of ranks" in next(ranks.notes("x.csv", 4))


def test_a_rank_with_two_rows_counts_once() -> None:
    ranks = table("ior_easy_read", b"access,rank,runtime\nread,0,1\nread,0,2\n")

    assert [*ranks.seconds.values()] == [1]
    assert "several rows" in next(ranks.notes("x.csv", 1))


def test_ranks_beyond_the_limit_use_no_memory() -> None:
    ranks = table("ior_easy_read", b"access,rank,runtime\nread,999999999,1\n")

    assert len(ranks.seconds) == 0
    assert ranks.cut


def test_the_slowest_ranks_and_nodes_come_first() -> None:
    found = rank_times({0: 1.0, 1: 1.0, 2: 9.0, 3: 8.0}, Nodes(2, 2), {})

    assert found is not None
    assert [(one.rank, one.seconds) for one in found.ranks[:2]] == [(2, 9), (3, 8)]
    assert [(one.node, one.first, one.seconds) for one in found.nodes] == [(1, 2, 8.5), (0, 0, 1.0)]


def test_dealt_out_ranks_are_on_the_right_nodes() -> None:
    found = rank_times({0: 1.0, 1: 9.0, 2: 1.0, 3: 9.0}, Nodes(2, 2, cyclic=True), {})

    assert found is not None
    assert [(one.first, one.seconds) for one in found.nodes] == [(1, 9), (0, 1)]


def test_nodes_have_the_names_that_the_files_give() -> None:
    found = rank_times({0: 1.0, 1: 9.0}, None, {0: "a", 1: "b"})

    assert found is not None
    assert [one.host for one in found.nodes] == ["b", "a"]
    assert [one.host for one in found.ranks] == ["b", "a"]


def test_a_single_rank_has_no_spread() -> None:
    assert rank_times({1: 1.0}, None, {}) is None


@given(st.dictionaries(st.integers(0, 60), st.floats(0, 1e6), max_size=50), st.integers(1, 9), st.integers(1, 9))
def test_the_median_lies_between_fastest_and_slowest(seconds: dict[int, float], count: int, per_node: int) -> None:
    found = rank_times(seconds, Nodes(count, per_node, cyclic=count % 2 == 0), {})

    if found is not None:
        assert found.fastest <= found.median <= found.slowest
        assert found.fastest <= found.mean * (1 + 1e-9)
        assert found.mean <= found.slowest * (1 + 1e-9)


@given(st.binary(max_size=400))
def test_foreign_bytes_are_no_ranks(raw: bytes) -> None:
    ranks = table("mdtest_easy_stat", b"rank,items,time-File stat\n" + raw + b"\n")

    assert all(0 <= value < math.inf for value in ranks.seconds.values())
