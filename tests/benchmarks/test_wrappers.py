from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks.wrappers import programs


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("fio job.fio", ["fio job.fio"]),
        ("nice fio job.fio", ["fio job.fio"]),
        ("nice -n 19 ionice -c 3 fio job.fio", ["fio job.fio"]),
        ("env -i PATH=/usr/bin HOME=/tmp nice mpirun -np 2 ior -w", ["mpirun -np 2 ior -w"]),
        ("LANG=C time -p iozone -a", ["iozone -a"]),
        ("stdbuf -oL -e 0 fio x", ["fio x"]),
        ("sudo -u bench --preserve-env numactl -N 0 fio x", ["fio x"]),
        ("timeout -k 5 60 taskset -c 0-3 iperf -c host", ["iperf -c host"]),
        (
            "ip netns exec bn-hostA unshare --uts bash -c 'hostname a; nice mpirun io500 x.ini'",
            ["hostname a", "mpirun io500 x.ini"],
        ),
        ("sh -c 'mkdir -p /scratch && exec nice fio x | tee log'", ["mkdir -p /scratch", "fio x", "tee log"]),
        ("bash -lc mdtest -n 10", ["mdtest -n 10"]),
        ("bash ./io500.sh config.ini", ["bash ./io500.sh config.ini"]),
        ("./io500.sh config.ini", ["./io500.sh config.ini"]),
        ("nice", ["nice"]),
        ("", []),
    ],
)
def test_wrappers_are_taken_off(command: str, expected: list[str]) -> None:
    assert programs(shlex.split(command)) == [line.split() for line in expected]


@given(
    st.lists(
        st.sampled_from(["sh", "-c", "nice", "env", "A=1", "-n", "ip", "timeout", "'", "a;b", "\n", "x y"]) | st.text()
    )
)
def test_any_words(words: list[str]) -> None:
    for line in programs(words):
        assert line
