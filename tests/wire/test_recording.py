from __future__ import annotations

import gzip
import io
import resource
import signal
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pinchpoint.model import THIS_HOST, Labels, Snapshot, Snapshots, time_of
from pinchpoint.wire.recording import FILE, Recorder, read_documents, read_recording, read_series

KINDS = {"a_seconds_total": ("counter", "Seconds."), "b_bytes": ("gauge", "Bytes.")}


def snapshot(time: float, value: float = 1.0) -> Snapshot:
    labels = (("owner", "x"),)
    return Snapshot(time, {"a_seconds_total": {labels: value}, "b_bytes": {(): value * 2}})


def moment(time: float, value: float = 1.0) -> Snapshots:
    return {"a:1": snapshot(time, value), "b:1": snapshot(time + 0.25, 3 * value)}


def times(path: Path) -> list[float]:
    return [found["a:1"].time for found in read_recording(path)]


def record(path: Path, *moments: Snapshots) -> Path:
    recorder = Recorder(path)
    for taken in moments:
        recorder.add(taken, KINDS)
    recorder.close()
    return path


def test_moments_come_back_as_they_were_in_their_order(tmp_path: Path) -> None:
    taken = [moment(1_700_000_000.125, 1.5), moment(1_700_000_001.25, 2.5), moment(1_700_000_002.5, 0.25)]

    assert list(read_recording(record(tmp_path / "r", *taken))) == taken


def test_a_host_that_is_scraped_rarely_stands_as_long_in_its_recording(tmp_path: Path) -> None:
    taken = {"a:1": snapshot(1.0), "b:1": replace(snapshot(1.0), lasts=37.5)}

    assert list(read_recording(record(tmp_path / "r", taken))) == [taken]


@pytest.mark.parametrize(("written", "lasts"), [("-1", 5.0), ("NaN", 5.0), ("+Inf", 3600.0), ("1e300", 3600.0)])
def test_nobody_makes_a_recorded_host_stand_for_ever(tmp_path: Path, written: str, lasts: float) -> None:
    text = f'a_b{{instance="a:1"}} 1 1\npinchpoint_recording_lasts_seconds{{instance="a:1"}} {written} 1\n# EOF\n'
    (tmp_path / "r").write_bytes(gzip.compress(text.encode()))
    (found,) = read_recording(tmp_path / "r")

    assert found["a:1"].lasts == lasts


def test_values_are_kept_to_the_nanosecond(tmp_path: Path) -> None:
    path = record(tmp_path / "r", {"a:1": snapshot(1.0, 0.1 + 0.2), "b:1": snapshot(1.0, 1e-9)})
    (found,) = read_recording(path)

    assert found["a:1"].value("a_seconds_total", owner="x") == 0.3
    assert found["b:1"].value("a_seconds_total", owner="x") == 1e-9


def test_one_metric_is_found_in_a_moment_without_parsing_the_rest(tmp_path: Path) -> None:
    labels = (("a", 'x"} 1\n\\'), ("b", "b_bytes{"))
    taken = Snapshot(1.0, {"a_seconds_total": {(): 1.0}, "b_bytes": {labels: 2.0, (("c", "d"),): 3.0}})
    (document,) = read_documents(record(tmp_path / "r", {"h:1": taken}))

    assert list(read_series(document, "b_bytes")) == [("h:1", labels, 2.0), ("h:1", (("c", "d"),), 3.0)]
    assert list(read_series(document, "b_byte")) == []


def test_a_recording_is_openmetrics_that_any_tool_unpacks(tmp_path: Path) -> None:
    text = gzip.decompress(record(tmp_path / "r", moment(1_700_000_000.5)).read_bytes()).decode()

    assert 'a_seconds_total{owner="x",instance="a:1"} 1.0 1700000000.5\n' in text
    families = list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
    assert [(family.name, family.type, len(family.samples)) for family in families] == [
        ("a_seconds", "counter", 2),
        ("b_bytes", "gauge", 2),
    ]


def test_a_recording_of_before_hosts_had_names_is_of_this_host(tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(gzip.compress(b'# TYPE b_bytes gauge\nb_bytes{x="1"} 2.0 3.0\n# EOF\n'))

    assert list(read_recording(tmp_path / "r")) == [{THIS_HOST: Snapshot(3.0, {"b_bytes": {(("x", "1"),): 2.0}})}]


def test_a_recording_goes_on_where_it_was_left(tmp_path: Path) -> None:
    record(tmp_path / "r", moment(1.0))
    record(tmp_path / "r", moment(2.0))

    assert times(tmp_path / "r") == [1.0, 2.0]


def test_what_was_recorded_can_be_read_before_the_recorder_is_closed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r")
    recorder.add(moment(1.0), KINDS)

    assert times(tmp_path / "r") == [1.0]
    recorder.close()


def test_a_metric_that_nobody_knows_is_not_recorded(tmp_path: Path) -> None:
    path = record(tmp_path / "r", {"a": Snapshot(1.0, {"b_bytes": {(): 1.0}, "foreign": {(): 2.0}})})

    assert [found["a"].values for found in read_recording(path)] == [{"b_bytes": {(): 1.0}}]


def test_a_truncated_recording_gives_what_was_complete(tmp_path: Path) -> None:
    whole = record(tmp_path / "r", *(moment(float(second)) for second in range(1, 4))).read_bytes()
    ends = [len(record(tmp_path / f"r{count}", *(moment(float(s)) for s in range(1, count + 1))).read_bytes())
            for count in range(4)]  # fmt: skip
    for cut in range(len(whole) + 1):
        (tmp_path / "cut").write_bytes(whole[:cut])
        complete = sum(end <= cut for end in ends) - 1

        assert times(tmp_path / "cut") == [1.0, 2.0, 3.0][:complete]


def test_a_long_recording_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinchpoint.wire.recording.RECORDING_CHUNK_BYTES", 100)
    taken = [moment(float(second)) for second in range(1, 50)]
    path = record(tmp_path / "r", *taken)
    reads: list[int] = []
    read = io.BufferedReader.read

    class Reader(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            reads.append(-1 if size is None else size)
            return read(self, size)

    monkeypatch.setattr("pinchpoint.wire.recording.open_regular", lambda path: Reader(io.FileIO(path)))

    assert list(read_recording(path)) == taken
    assert set(reads) == {100}


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True).filter(lambda name: name != "instance")
LABELS = st.dictionaries(NAMES, st.text(max_size=8), max_size=3).map(lambda labels: tuple(sorted(labels.items())))


@given(st.dictionaries(LABELS, st.floats(allow_nan=False), min_size=1, max_size=5), st.text(max_size=8))
@example({(("a", '"\\\n,}={'),): 1.0}, '}" 1 2\n')
def test_hostile_labels_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, values: dict[Labels, float], host: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "hostile"
    path.unlink(missing_ok=True)
    taken = {host: Snapshot(1.5, {"b_bytes": values})}
    kept = {host: Snapshot(1.5, {"b_bytes": {labels: round(value, 9) for labels, value in values.items()}})}

    assert list(read_recording(record(path, taken))) == [kept]
    text = gzip.decompress(path.read_bytes()).decode()
    (family,) = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    assert {tuple(sorted(sample.labels.items())) for sample in family.samples} == {
        tuple(sorted((*labels, ("instance", host)))) for labels in values
    }


@pytest.mark.parametrize(
    "content",
    [b"garbage", *map(gzip.compress, (b"garbage", b"\xff", b"a 1 x\n# EOF\n", b"a 1 nan\n# EOF\n", b"a 1 1\n"))],
    ids=["no gzip", "no metrics", "no text", "no time", "never", "no end"],
)
def test_a_file_that_is_no_recording_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "r").write_bytes(content)

    with pytest.raises(ValueError, match="r: not a recording: "):
        list(read_recording(tmp_path / "r"))


@pytest.mark.parametrize(
    "rubbish",
    [b"\0" * 100, gzip.compress(b"a 1 x\n# EOF\n"), gzip.compress(b"a 1 1\n")],
    ids=["no gzip", "no time", "no end"],
)
def test_what_follows_the_last_moment_and_is_none_is_left_out_and_told(tmp_path: Path, rubbish: bytes) -> None:
    path = record(tmp_path / "r", moment(1.0), moment(2.0))
    path.write_bytes(path.read_bytes() + rubbish)
    told: list[str] = []

    assert [found["a:1"].time for found in read_recording(path, told.append)] == [1.0, 2.0]
    assert told[0].startswith(f"{path}: damaged behind its first 2 moments, which are used: ")
    assert len(told) == 1


@pytest.mark.parametrize(("cut", "left"), [(None, 2), (-1, 1)])
def test_a_last_moment_that_is_under_way_is_no_damage(tmp_path: Path, cut: int | None, left: int) -> None:
    path = record(tmp_path / "r", moment(1.0), moment(2.0))
    path.write_bytes(path.read_bytes()[:cut])
    told: list[str] = []

    assert len(list(read_recording(path, told.append))) == left
    assert told == []


def test_only_the_moments_that_are_wanted_are_parsed(tmp_path: Path) -> None:
    path = record(tmp_path / "r", *(moment(float(second)) for second in range(5)))

    assert [time_of(found) for found in read_recording(path, only={1, 4})] == [1.0, 4.0]
    assert len(list(read_documents(path))) == 5


def test_help_is_written_once_and_types_in_each_moment(tmp_path: Path) -> None:
    first, second = read_documents(record(tmp_path / "r", moment(1.0), moment(2.0)))

    assert first.count("# HELP") == 2
    assert second.count("# HELP") == 0
    assert second.count("# TYPE") == 2


def test_a_disk_that_is_full_for_a_while_costs_only_what_came_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "r"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    recorder = Recorder(path)
    try:
        recorder.add(moment(1.0), KINDS)
        # Only part of the next one fits.
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, before[1]))
        with pytest.raises(OSError, match="too large"):
            recorder.add(moment(2.0), KINDS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    recorder.add(moment(3.0), KINDS)
    recorder.close()

    assert times(path) == [1.0, 3.0]


def test_a_moment_that_unpacks_without_end_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinchpoint.wire.recording.MAX_DOCUMENT_BYTES", 1 << 20)
    path = record(tmp_path / "r", moment(1.0))
    path.write_bytes(path.read_bytes() + gzip.compress(b"#" * (1 << 21)))
    told: list[str] = []

    assert len(list(read_recording(path, told.append))) == 1
    assert "a moment of more than 1 MiB" in told[0]


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
def test_any_bytes_are_moments_or_a_value_error(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(raw)
    try:
        found = list(read_recording(path))
    except ValueError as error:
        reason = str(error)
    else:
        reason = ""

    assert (
        ("not a recording" in reason)
        if reason
        else all(isinstance(taken, Snapshot) for hosts in found for taken in hosts.values())
    )


def test_a_recording_has_the_wall_clock_too_once_it_was_set(tmp_path: Path) -> None:
    path = tmp_path / FILE
    recorder = Recorder(path)
    series: dict[str, dict[Labels, float]] = {"a_total": {(): 1.0}}
    recorder.add({"h": Snapshot(1000.0, series)}, {"a_total": ("counter", "A.")})
    recorder.add({"h": Snapshot(1001.0, series)}, {"a_total": ("counter", "A.")}, -3600.0)
    recorder.close()

    first, second = read_documents(path)

    assert "ahead" not in first
    assert 'pinchpoint_recording_clock_ahead_seconds{instance="h"} -3600.0 1001.0' in second
    assert [moment["h"].values for moment in read_recording(path)] == [series, series]
