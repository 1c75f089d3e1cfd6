from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.session.samples import Samples
from report.made import CLIENT, MDS, START, record


def test_moments_are_read_where_they_are_wanted(tmp_path: Path) -> None:
    record(tmp_path / "r")

    samples = Samples(tmp_path / "r")
    found = list(samples.moments({10, 20}))

    assert samples.times[10] == START + 10
    assert [{host: taken.time for host, taken in moment.items()} for moment in found] == [
        {CLIENT: START + 10, MDS: START + 10},
        {CLIENT: START + 20, MDS: START + 20},
    ]
    assert found[0][CLIENT].value("pinchpoint_cpu_frequency_max_hertz", cpu="0") == 3.7e9
    assert samples.damage == ""


def test_a_moment_in_which_no_host_answered_was_when_the_last_one_was(tmp_path: Path) -> None:
    texts = ("b 1 5.0\n# EOF\n", "# EOF\n", "b 1 7.0\n# EOF\n")
    (tmp_path / "r").write_bytes(b"".join(gzip.compress(text.encode()) for text in texts))

    assert Samples(tmp_path / "r").times == [5.0, 5.0, 7.0]


def test_threads_without_a_role_are_found_in_every_moment_though_few_are_parsed(tmp_path: Path) -> None:
    record(tmp_path / "r")
    samples = Samples(tmp_path / "r")

    names = {(found.host, found.thread, found.process, found.busy) for found in samples.sightings}
    assert names == {(MDS, "my_thread", "foo", 0.96)}
    assert len(list(samples.sightings)) == 50
    assert {found.time for found in samples.sightings} < set(samples.times)


def test_a_sighting_that_is_no_share_is_none(tmp_path: Path) -> None:
    name = "pinchpoint_unknown_thread_busy_ratio"
    lines = ("a 1 5.0", *(f'{name}{{thread="t"}} {value} 5.0' for value in ("NaN", "-1", "+Inf", "0.5")), "# EOF", "")
    (tmp_path / "r").write_bytes(gzip.compress("\n".join(lines).encode()))

    assert [found.busy for found in Samples(tmp_path / "r").sightings] == [0.5]


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Samples(tmp_path / "missing")


LINES = st.sampled_from(["# TYPE a counter", "a_total 1 1", 'a{b="c"} 1 2.5', "a 1 x", "a", "# EOF", "a NaN nan", ""])


@given(st.lists(LINES, max_size=5).map(lambda lines: gzip.compress("\n".join(lines).encode())) | st.binary(max_size=80))
def test_any_bytes_are_moments_or_damage(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(raw)

    samples = Samples(path)
    found = list(samples.moments(range(100)))

    assert len(found) <= len(samples.times)
    assert samples.damage == "" or "not a recording" in samples.damage


@pytest.mark.parametrize("time", ["nan", "1e300", "-1"])
def test_a_moment_with_an_impossible_time_is_damage(tmp_path: Path, time: str) -> None:
    path = tmp_path / "samples.om.gz"
    path.write_bytes(b"".join(gzip.compress(f"a 1 {at}\n# EOF\n".encode()) for at in ("5", time)))

    samples = Samples(path)

    assert samples.times == [5.0]
    assert "no time" in samples.damage or "has no time" in samples.damage
