from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pinchpoint.model import Snapshot
from pinchpoint.recording import Recorder, read_recording

KINDS = {"a_seconds_total": ("counter", "Seconds."), "b_bytes": ("gauge", "Bytes.")}


def snapshot(time: float, value: float = 1.0) -> Snapshot:
    labels = (("owner", "x"),)
    return Snapshot(time, {"a_seconds_total": {labels: value}, "b_bytes": {(): value * 2}})


def record(path: Path, *snapshots: Snapshot) -> Path:
    recorder = Recorder(path)
    for taken in snapshots:
        recorder.add(taken, KINDS)
    recorder.close()
    return path


def test_snapshots_come_back_as_they_were_in_their_order(tmp_path: Path) -> None:
    taken = [snapshot(1_700_000_000.125, 1.5), snapshot(1_700_000_001.25, 2.5), snapshot(1_700_000_002.5, 1e-9)]

    assert list(read_recording(record(tmp_path / "r", *taken))) == taken


def test_a_recording_is_openmetrics_that_any_tool_unpacks(tmp_path: Path) -> None:
    text = gzip.decompress(record(tmp_path / "r", snapshot(1_700_000_000.5)).read_bytes()).decode()

    assert 'a_seconds_total{owner="x"} 1.0 1700000000.5\n' in text
    assert text.endswith("# EOF\n")


def test_a_recording_goes_on_where_it_was_left(tmp_path: Path) -> None:
    record(tmp_path / "r", snapshot(1.0))
    record(tmp_path / "r", snapshot(2.0))

    assert [found.time for found in read_recording(tmp_path / "r")] == [1.0, 2.0]


def test_what_was_recorded_can_be_read_before_the_recorder_is_closed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r")
    recorder.add(snapshot(1.0), KINDS)

    assert [found.time for found in read_recording(tmp_path / "r")] == [1.0]
    recorder.close()


def test_a_metric_that_nobody_knows_is_not_recorded(tmp_path: Path) -> None:
    path = record(tmp_path / "r", Snapshot(1.0, {"b_bytes": {(): 1.0}, "foreign": {(): 2.0}}))

    assert [found.values for found in read_recording(path)] == [{"b_bytes": {(): 1.0}}]


def test_a_truncated_recording_gives_what_was_complete(tmp_path: Path) -> None:
    whole = record(tmp_path / "r", *(snapshot(float(second)) for second in range(1, 4))).read_bytes()
    ends = [len(record(tmp_path / f"r{count}", *(snapshot(float(s)) for s in range(1, count + 1))).read_bytes())
            for count in range(4)]  # fmt: skip
    for cut in range(len(whole) + 1):
        (tmp_path / "cut").write_bytes(whole[:cut])
        complete = sum(end <= cut for end in ends) - 1

        assert [found.time for found in read_recording(tmp_path / "cut")] == [1.0, 2.0, 3.0][:complete]


def test_a_long_recording_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinchpoint.recording.CHUNK", 100)
    taken = [snapshot(float(second)) for second in range(1, 50)]
    path = record(tmp_path / "r", *taken)
    reads: list[int] = []
    read = io.BufferedReader.read

    class Reader(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            reads.append(-1 if size is None else size)
            return read(self, size)

    monkeypatch.setattr(Path, "open", lambda self, mode: Reader(io.FileIO(self)))

    assert list(read_recording(path)) == taken
    assert set(reads) == {100}


@pytest.mark.parametrize(
    "content",
    [b"garbage", *map(gzip.compress, (b"garbage", b"\xff", b"a 1 x\n# EOF\n", b"a 1\n"))],
    ids=["no gzip", "no metrics", "no text", "no time", "no end"],
)
def test_a_file_that_is_no_recording_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "r").write_bytes(content)

    with pytest.raises(ValueError, match="r: not a recording: "):
        list(read_recording(tmp_path / "r"))


def test_what_was_complete_is_given_before_the_error_of_a_damaged_recording(tmp_path: Path) -> None:
    path = record(tmp_path / "r", snapshot(1.0), snapshot(2.0))
    path.write_bytes(path.read_bytes() + b"\0" * 100)
    snapshots = read_recording(path)

    assert (next(snapshots).time, next(snapshots).time) == (1.0, 2.0)
    with pytest.raises(ValueError, match="not a recording"):
        next(snapshots)


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(read_recording(tmp_path / "missing"))


FRAGMENTS = """\
# TYPE a counter
# TYPE a gauge
# TYPE a histogram
# TYPE a info
# TYPE a stateset
# HELP a x
# UNIT a x
# EOF
# {x
a_total 1
a{
a{b="c"} 1 1
a 1 1 # {} 1
a_bucket{le="x"} 1
a NaN 1e999
{"a"} 1

"""
LINES = st.sampled_from(FRAGMENTS.split("\n")) | st.text(max_size=10)


@given(st.lists(LINES, max_size=5).map(lambda lines: gzip.compress("\n".join(lines).encode())) | st.binary(max_size=80))
@example(gzip.compress(b'# TYPE a histogram\na_bucket{le="x"} 1\n# EOF\n'))
@example(gzip.compress(b""))
@example(gzip.compress(b"# # \t a\n# EOF\n"))  # IndexError in prometheus_client 0.26
def test_any_bytes_are_snapshots_or_a_value_error(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(raw)
    try:
        found = list(read_recording(path))
    except ValueError as error:
        reason = str(error)
    else:
        reason = ""

    assert ("not a recording" in reason) if reason else all(isinstance(taken, Snapshot) for taken in found)
