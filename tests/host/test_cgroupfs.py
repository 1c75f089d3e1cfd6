from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.host.cgroupfs import (
    SERVICE_FILES,
    Hierarchy,
    IoLimit,
    Throttling,
    io_used,
    parse_cgroup,
    parse_cpu_max,
    parse_cpu_stat,
    parse_io_max,
    parse_io_stat,
    parse_memory_events,
    parse_memory_limit,
    parse_service,
    parse_throttle,
)
from pinchpoint.host.procfs import FormatError

SERVICE_BYTES = SERVICE_FILES["blkio.throttle.io_service_bytes"]


def test_limits_of_both_versions_are_understood() -> None:
    assert parse_cgroup(b"4:cpu,cpuacct:/a:b\n0::/c\nbad\n7:x:relative") == {
        "cpu": "/a:b",
        "cpuacct": "/a:b",
        "": "/c",
    }
    assert parse_cpu_max(b"20000 100000\n") == 0.2
    assert parse_cpu_max(b"max 100000\n") is None
    assert parse_cpu_stat(b"nr_periods 5\nnr_throttled 2\nthrottled_time 3000000000\n") == Throttling(5, 2, 3.0)
    assert parse_cpu_stat(b"usage_usec 1\nnr_periods 5\nnr_throttled 2\nthrottled_usec 3\n") == Throttling(5, 2, 3e-6)
    assert list(parse_io_max(b"8:0 rbps=7 riops=max x=1\n")) == [IoLimit("8:0", "rbps", 7)]
    assert list(parse_throttle(b"8:0 7\n8:1\nTotal 9\n", "wbps")) == [IoLimit("8:0", "wbps", 7)]


def test_memory_limits_and_how_often_they_were_met() -> None:
    assert parse_memory_limit(b"67108864\n") == 67108864
    assert parse_memory_limit(b"max\n") is None
    assert parse_memory_limit(b"9223372036854771712\n") is None, "what version 1 shows where there is no limit"
    assert parse_memory_events(b"low 0\nhigh 3\nmax 40\noom 1\noom_kill 0\n") == 43


@pytest.mark.parametrize("raw", [b"", b"-1", b"1 2", b"x"])
def test_what_is_no_memory_limit_is_an_error(raw: bytes) -> None:
    with pytest.raises(FormatError):
        parse_memory_limit(raw)
    with pytest.raises(FormatError):
        parse_memory_events(b"max " + raw)


def test_counts_of_version_2_are_those_that_a_limit_holds() -> None:
    raw = (
        b"8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=7 dios=8\n"
        b"259:0 rbytes=1 cost.usage=5\n"
        b"(unknown) rbytes=9 wbytes=9\n"
        b"8:0 \n"
    )

    assert parse_io_stat(raw) == {
        ("8:16", "rbps"): 1459200,
        ("8:16", "wbps"): 314773504,
        ("8:16", "riops"): 192,
        ("8:16", "wiops"): 353,
        ("259:0", "rbps"): 1,
    }


def test_counts_of_version_1_are_reads_and_writes_of_each_device() -> None:
    raw = b"254:0 Read 100\n254:0 Write 20\n254:0 Sync 110\n254:0 Discard 3\n254:0 Total 123\n7:3 Read 5\nTotal 128\n"

    assert parse_service(raw, SERVICE_BYTES) == {("254:0", "rbps"): 100, ("254:0", "wbps"): 20, ("7:3", "rbps"): 5}


def test_a_group_of_either_version_says_what_it_used(machine: Machine) -> None:
    machine.write("sys/a/io.stat", "8:0 rbytes=4096 rios=1\n")
    machine.write("sys/b/blkio.throttle.io_service_bytes", "8:0 Write 8192\nTotal 8192\n")
    machine.write("sys/b/blkio.throttle.io_serviced", "8:0 Write 2\nTotal 2\n")

    assert io_used(machine.sysfs / "a") == {("8:0", "rbps"): 4096, ("8:0", "riops"): 1}
    assert io_used(machine.sysfs / "b") == {("8:0", "wbps"): 8192, ("8:0", "wiops"): 2}
    assert io_used(machine.sysfs / "c") == {}


def test_a_group_is_below_all_groups_above_it(machine: Machine) -> None:
    tree = Hierarchy(frozenset({""}), machine.sysfs, PurePosixPath("/pod"))

    assert tree.chain({"": "/pod/a/b"}) == [machine.sysfs / "a/b", machine.sysfs / "a", machine.sysfs]
    assert tree.chain({"": "/elsewhere"}) == []
    assert tree.chain({"": "/../up"}) == []
    assert tree.chain({"": "/pod" + "/a" * 2000}) == []
    assert tree.chain({"cpu": "/pod/a"}) == []


WORDS = st.lists(
    st.sampled_from(
        [
            b"8:0 ",
            b"rbps=",
            b"rbytes=",
            b"Read ",
            b"nr_periods ",
            b"nr_throttled ",
            b"7",
            b"max ",
            b"\n",
            b" ",
            b":",
            b"/",
            b"9" * 30,
            b"\xff",
        ]
    )
).map(b"".join)


@given(st.binary() | WORDS)
def test_any_bytes_give_limits_or_a_format_error(raw: bytes) -> None:
    assert all(path.isprintable() for path in parse_cgroup(raw).values())
    assert all(limit.value >= 0 for limit in (*parse_io_max(raw), *parse_throttle(raw, "rbps")))
    for parse in (parse_cpu_max, parse_cpu_stat, parse_memory_limit, parse_memory_events):
        try:
            parse(raw)
        except FormatError:
            pass


@given(st.binary() | WORDS)
def test_any_bytes_give_counts_of_devices(raw: bytes) -> None:
    for used in (parse_io_stat(raw), parse_service(raw, SERVICE_BYTES)):
        assert all(count >= 0 and device.count(":") == 1 for (device, _), count in used.items())


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 4095), st.integers(0, 1 << 20)),
        st.tuples(*[st.integers(0, (1 << 64) - 1)] * 4),
        max_size=5,
    )
)
def test_what_the_kernel_writes_is_read_back(devices: dict[tuple[int, int], tuple[int, int, int, int]]) -> None:
    # blkcg_print_one_stat (block/blk-cgroup.c) and blkg_rwstat's __blkg_prfill_rwstat (block/blk-cgroup-rwstat.c)
    unified, legacy = "", ""
    expected: dict[tuple[str, str], int] = {}
    for (major, minor), (rbytes, wbytes, rios, wios) in devices.items():
        name = f"{major}:{minor}"
        unified += f"{name} rbytes={rbytes} wbytes={wbytes} rios={rios} wios={wios} dbytes=0 dios=0\n"
        legacy += f"{name} Read {rbytes}\n{name} Write {wbytes}\n{name} Total {rbytes + wbytes}\n"
        expected |= {(name, "rbps"): rbytes, (name, "wbps"): wbytes, (name, "riops"): rios, (name, "wiops"): wios}

    assert parse_io_stat(unified.encode()) == expected
    assert parse_service(f"{legacy}Total 7\n".encode(), SERVICE_BYTES) == {
        (device, key): value for (device, key), value in expected.items() if key in ("rbps", "wbps")
    }


@pytest.mark.parametrize("raw", [b"", b"1", b"x 5", b"5 0", b"5 5 5"])
def test_what_is_no_cpu_max_is_an_error(raw: bytes) -> None:
    with pytest.raises(FormatError):
        parse_cpu_max(raw)
