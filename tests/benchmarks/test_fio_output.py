"""fio's output, in each of its formats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.captures import CAPTURES
from pinchpoint.benchmarks.events import Completed, Ended, Event, Failed, Rate, RunBegan
from pinchpoint.benchmarks.fio_output import FioOutput, group_name

FIXTURES = Path(__file__).parents[1] / "fixtures" / "fio"
TEXTS = {path.name: path.read_bytes() for path in FIXTURES.glob("*.txt")} | {
    path.name: (path / "stdout.txt").read_bytes() for path in CAPTURES.glob("fio-*")
}
MIB = 2.0**20


def read(*texts: str | bytes, pieces: int = 1 << 20) -> list[Event]:
    reader = FioOutput()
    data = b"".join(text if isinstance(text, bytes) else text.encode() for text in texts)
    events = [event for at in range(0, len(data), pieces) for event in reader.feed(data[at : at + pieces])]
    return events + reader.close()


def of(name: str) -> list[Event]:
    return read(TEXTS[name])


def outline(events: Iterable[Event]) -> list[str]:
    """Return the events except rates, in words: phases with their operations, the main one first."""
    words = []
    for event in events:
        match event:
            case RunBegan():
                words.append("began")
            case Ended():
                words.append(" ".join([event.phase, *(result.operation for result in event.results[::2])]))
            case Completed():
                words.append("completed")
            case Failed():
                words.append(f"failed: {event.reason}")
    return words


def rates(events: Iterable[Event]) -> list[Rate]:
    return [event for event in events if isinstance(event, Rate) and event.results]


def figures(event: Ended | Rate) -> dict[tuple[str, str], float]:
    return {(result.operation, result.unit): result.value for result in event.results}


def ended(events: Iterable[Event]) -> dict[str, Ended]:
    return {event.phase: event for event in events if isinstance(event, Ended)}


# Status in the normal format


def test_status_for_people_has_each_group_with_its_figures_as_printed() -> None:
    events = of("fio-jobs-stonewall")

    assert outline(events) == [
        "began", "seq_write write", "rand_read read", "rand_write write", "mixed read write", "completed",
    ]  # fmt: skip
    mixed = ended(events)["mixed"]
    assert [(result.operation, result.value, result.printed) for result in mixed.results] == [
        ("read", 329 * MIB, "329MiB/s"),
        ("read", 21000, "21.0k IOPS"),
        ("write", 140 * MIB, "140MiB/s"),
        ("write", 8946, "8946 IOPS"),
    ]
    assert mixed.seconds == 3.001


def test_jobs_of_a_group_add_up() -> None:
    events = of("threads.txt")

    assert outline(events) == ["began", "warm_up write", "alpha+beta read write", "completed"]
    both = figures(ended(events)["alpha+beta"])
    assert both["read", "bytes_per_second"] == 2 * 799 * 1024
    assert both["write", "operations_per_second"] == 200
    assert all(result.printed == "" for result in ended(events)["alpha+beta"].results[:2])


def test_group_reporting_has_one_status_for_a_group_that_keeps_its_name() -> None:
    assert outline(of("group-reporting.txt")) == ["began", "warm_up write", "alpha+beta read write", "completed"]


def test_a_status_without_headers_names_a_group_by_its_first_job_only() -> None:
    status = TEXTS["group-reporting.txt"].split(b"processes\n")[1]

    assert outline(read(status)) == ["began", "warm_up write", "alpha read write", "completed"]


def test_statuses_that_repeat_count_once_and_show_the_present_rate() -> None:
    events = of("normal-status.txt")

    assert outline(events) == ["began", "st write", "completed"]
    assert ended(events)["st"].seconds == 3.001
    assert [figures(rate)["write", "operations_per_second"] for rate in rates(events)] == [200, 200, 199]


def test_a_job_without_io_ends_without_figures() -> None:
    events = of("cpu.txt")

    assert outline(events) == ["began", "cpu", "completed"]
    assert ended(events)["cpu"].seconds is None


def test_blanks_that_were_collapsed_or_turned_into_no_break_spaces_do_not_matter() -> None:
    text = TEXTS["fio-jobs-stonewall"].decode()
    collapsed = "\n".join(" ".join(line.split()) for line in text.splitlines())

    assert read(collapsed) == read(text.replace(" ", "\u00a0")) == read(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("BW=1049Mbit/s (1000Mibit/s)(496MiB/4001msec)", 1049e6 / 8),
        ("BW=134MB/s (128MiB/s)(513MB/4001msec)", 134e6),
        ("BW=1.21GiB/s (1300MB/s)(5GiB/4001msec); 0 zone resets", 1.21 * 2**30),
        ("BW=512B/s (512B/s)(2048B/4001msec)", 512),
    ],
)
def test_units(text: str, value: float) -> None:
    events = read(f"a: (groupid=0, jobs=1): err= 0: pid=1: now\n  read: IOPS=1.2M, {text}\n")

    found = figures(ended(events)["a"])
    assert found["read", "bytes_per_second"] == pytest.approx(value)
    assert found["read", "operations_per_second"] == 1.2e6


# Older versions


def test_up_to_2_16_k_is_1024_in_bytes_and_1000_in_operations() -> None:
    events = of("old-2.16.txt")

    assert outline(events) == ["began", "fill write", "mixed read write", "completed"]
    fill = ended(events)["fill"]
    assert (fill.results[0].value, fill.results[0].printed) == (131072 * 1024, "131072KB/s")
    assert figures(ended(events)["mixed"]) == {
        ("read", "bytes_per_second"): 2 * 34560 * 1024,
        ("read", "operations_per_second"): 2 * 8640,
        ("write", "bytes_per_second"): 14848 * 1024 + 14.5 * MIB,
        ("write", "operations_per_second"): 2 * 3712,
    }
    assert ended(events)["mixed"].seconds == 8.001


def test_the_running_jobs_of_2_16() -> None:
    fill, mixed = rates(of("old-2.16.txt"))

    assert (fill.phase, mixed.phase) == ("fill", "mixed")
    assert figures(fill) == {("write", "bytes_per_second"): 127.1 * MIB, ("write", "operations_per_second"): 31}
    assert figures(mixed)["read", "operations_per_second"] == 17600


def test_3_7_shows_a_standstill_as_zeros() -> None:
    moving, still = rates(of("old-3.7.txt"))

    assert (moving.progress, still.progress) == (0.5, 0.75)
    assert figures(moving)["read", "bytes_per_second"] == 124 * MIB
    assert set(figures(still).values()) == {0.0}
    assert outline(of("old-3.7.txt")) == ["began", "rw4k read write", "completed"]


def test_a_json_document_of_2_16_counts_in_kib() -> None:
    job = {"jobname": "a", "groupid": 0, "error": 0, "read": {"runtime": 1000, "io_bytes": 3, "bw": 3, "iops": 1.5}}

    (rate, operations) = ended(read(document(job, version="fio-2.16")))["a"].results
    assert (rate.value, rate.printed) == (3072, "3 KiB/s")
    assert (operations.value, operations.printed) == (1.5, "1.5 IOPS")


# JSON


def document(*jobs: object, version: str = "fio-3.33", **more: object) -> str:
    return json.dumps({"fio version": version, **more, "jobs": jobs}, indent=2) + "\n"


def job(name: str, done: int, *, group: int = 0, elapsed: int = 1, eta: int = 0, **more: object) -> dict[str, object]:
    written = {"io_bytes": done, "bw_bytes": done // elapsed, "iops": done / 4096, "runtime": elapsed * 1000}
    return {"jobname": name, "groupid": group, "error": 0, "elapsed": elapsed, "eta": eta, "write": written, **more}


def test_json_has_exact_figures() -> None:
    (rate, operations) = ended(of("fio-json"))["rw4k"].results

    assert (rate.operation, rate.unit, rate.value) == ("write", "bytes_per_second", 174475066)
    assert (rate.printed, operations.printed) == ("174475066 B/s", "42596.451774 IOPS")


def test_the_last_of_several_documents_counts_and_the_others_show_the_running_group() -> None:
    events = of("fio-jobs-stonewall-json-status")

    assert outline(events) == [
        "began", "seq_write write", "rand_read read", "rand_write write", "mixed read write", "completed",
    ]  # fmt: skip
    assert ended(events)["seq_write"].results[0].value == 1477015144
    seen = list(dict.fromkeys(rate.phase for rate in rates(events)))
    assert seen == ["seq_write", "rand_read", "rand_write", "mixed"]
    work = [rate.work or 0 for rate in rates(events) if rate.phase == "rand_read"]
    assert work == sorted(work)
    assert work[0] > 0


def test_an_interrupted_run_keeps_its_results_and_has_failed() -> None:
    assert outline(of("fio-sigint-json")) == ["began", "rw4k write", "failed: terminating on signal 2"]
    assert outline(of("interrupted.txt")) == ["began", "i read", "failed: terminating on signal 2"]


def test_a_run_whose_last_document_has_time_left_was_cut_off() -> None:
    events = read(document(job("a", 100, elapsed=5, eta=5)))

    assert outline(events) == ["began", "a write", "failed: the output ends before the last status of the jobs"]
    assert rates(events)[0].progress == 0.5


def test_formats_that_are_printed_together_count_once_by_the_most_exact_one() -> None:
    for name in ("normal-json.txt", "normal-terse.txt"):
        assert outline(of(name)) == ["began", "both read", "completed"]
    assert ended(of("normal-json.txt"))["both"].results[0].printed.endswith(" B/s")


def test_commands_that_follow_one_another_are_runs_of_their_own() -> None:
    same = [document(job("p", done, elapsed=4), timestamp_ms=at) for done, at in ((10, 9_000), (20, 14_000))]

    assert outline(read(*same)) == ["began", "p write", "completed"] * 2
    assert outline(read(document(job("p", 1)), document(job("q", 2)))) == [
        "began", "p write", "completed", "began", "q write", "completed",
    ]  # fmt: skip
    assert outline(read(TEXTS["threads.txt"], TEXTS["normal-json.txt"], TEXTS["terse-3.txt"])) == [
        "began", "warm_up write", "alpha+beta read write", "completed",
        "began", "both read", "completed",
        "began", "warm_up write", "alpha+beta read write", "completed",
    ]  # fmt: skip


def test_figures_that_are_no_numbers_are_left_out() -> None:
    broken = document(job("a", 100)).replace('"iops": 0.0244140625', '"iops": -nan').replace('"eta": 0', '"eta": inf')

    assert outline(read(broken)) == ["began", "a", "completed"]
    assert outline(read(document(job("a", 100, latency=float("nan"))))) == ["began", "a write", "completed"]


def test_other_documents_and_lone_braces_hide_nothing() -> None:
    status = document(job("a", 100))

    for before in ("{\n", '{\n"start": {\n', "{\n{\n", status[: len(status) // 2] + "\n"):
        assert outline(read(before, status)) == ["began", "a write", "completed"]
    assert outline(read(json.dumps({"jobs": [job("a", 1)]}))) == []


def test_a_client_has_the_statuses_of_its_servers() -> None:
    text = json.dumps(
        {"fio version": "fio-3.33", "client_stats": [job("a", 100), job("a", 50), job("All clients", 150)]}
    )

    assert ended(read(text))["a"].results[0].value == 150


def test_an_error_of_a_job_fails_the_run_in_its_own_words() -> None:
    assert outline(of("error.txt")) == [
        "began",
        "failed: bad: err=28 (file:io_u.c:1876, func=io_u error, error=No space left on device)",
    ]
    assert outline(read(document(job("a", 100, error=5), job("b", 1, group=1)))) == [
        "began", "a write", "b write", "failed: a: err=5 (Input/output error)",
    ]  # fmt: skip


# Terse


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_terse_lines_of_every_version(version: int) -> None:
    events = of(f"terse-{version}.txt")

    assert outline(events) == ["began", "warm_up write", "alpha+beta read write", "completed"]
    warm_up = ended(events)["warm_up"]
    assert warm_up.seconds == 1.001
    assert warm_up.results[0].printed in ("799 KiB/s", "803 KiB/s")
    assert warm_up.results[0].value == float(warm_up.results[0].printed.split()[0]) * 1024


def test_terse_lines_that_repeat_count_once() -> None:
    events = of("fio-terse")

    assert outline(events) == ["began", "rw4k write", "completed"]
    assert ended(events)["rw4k"].results[0].value == 143744 * 1024
    assert len(rates(events)) == 4


def test_jobs_of_one_name_are_told_from_a_status_that_repeats() -> None:
    events = of("terse-twins-status.txt")

    assert outline(events) == ["began", "twins read", "completed"]
    assert figures(ended(events)["twins"])["read", "operations_per_second"] == 200 + 199


def test_a_run_begins_with_its_first_line_in_every_format() -> None:
    for name in ("terse-3.txt", "threads.txt"):
        first, rest = TEXTS[name].split(b"\n", 1)
        for before in (b"", TEXTS["normal-json.txt"]):
            reader = FioOutput()
            reader.feed(before)
            assert RunBegan() in reader.feed(first + b"\n")
            assert RunBegan() not in reader.feed(rest)


@pytest.mark.parametrize("name", ["unified.txt", "unified-terse.txt"])
def test_unified_reporting_is_mixed(name: str) -> None:
    events = of(name)

    assert outline(events) == ["began", "u mixed", "completed"]
    assert ended(events)["u"].results[0].value == 1602 * 1024


# The line of the running jobs


def test_the_line_of_the_running_jobs_has_rates_and_progress() -> None:
    events = of("fio-eta-always-pipe")

    assert [(rate.phase, rate.progress) for rate in rates(events)] == [("rw4k", 0.6), ("rw4k", 0.8), ("rw4k", 1.0)]
    assert figures(rates(events)[0]) == {
        ("write", "bytes_per_second"): 87.5 * MIB,
        ("write", "operations_per_second"): 22400,
    }


def test_the_places_of_the_running_jobs_name_their_group() -> None:
    events = of("eta-groups.txt")

    assert [rate.phase for rate in rates(events)] == ["e1"] * 4 + ["e2"] * 4
    assert all(rate.progress is None for rate in rates(events))


HEADERS = (
    "a: (g=0): rw=read, bs=\n...\nb: (g=1): rw=read, bs=\n...\nc: (g=2): rw=randwrite, bs=\nfio-3.33\n"
    "Starting {} processes\n"
)


@pytest.mark.parametrize(
    ("processes", "states", "phase"),
    [
        (5, "R(2),P(3)", "a"),
        (5, "_(2),R(2),P(1)", "b"),
        (9, "_(3),R(5),P(1)", ""),  # 3 and 5 of a and b, or more of a
        (9, "R(6),P(3)", "a"),
        (9, "_(8),w(1)", "c"),
        (9, "_(8),/(1)", "c"),
    ],
)
def test_a_group_is_named_only_where_that_is_certain(processes: int, states: str, phase: str) -> None:
    line = f"Jobs: 1 (f=1): [{states}][50.0%][r=1MiB/s][r=1 IOPS][eta 00m:01s]\r"

    assert [rate.phase for rate in rates(read(HEADERS.format(processes), line))] == [phase]


def test_jobs_that_stand_still_have_a_rate_of_zero() -> None:
    lines = [f"Jobs: 1 (f=1): [w(1)][{share}%]{rate}[eta 00m:09s]\r"
             for share, rate in ((10, "[w=1MiB/s][w=9 IOPS]"), (20, ""))]  # fmt: skip

    assert [figures(rate)["write", "bytes_per_second"] for rate in rates(read(*lines))] == [MIB, 0]


def test_rates_alone_promise_no_status() -> None:
    """With --output, standard output has nothing but rates."""
    assert outline(read("Jobs: 1 (f=1): [w(1)][10.0%][w=1MiB/s][w=9 IOPS][eta 00m:09s]\r")) == ["began"]


# What goes wrong


def test_a_run_that_was_announced_and_has_no_status_has_failed() -> None:
    text = TEXTS["threads.txt"].split(b"\n\n")[0]

    assert outline(read(text)) == ["began", "failed: the output ends before any status of the jobs"]


@pytest.mark.parametrize(
    "line",
    [
        "fio: failed parsing rw=sideways",
        "fio: unrecognized option '--sise'",
        "No jobs(s) defined",
        "fio: unable to open 'x.fio' job file",
        "Bad option <foo=1>",
    ],
)
def test_options_that_are_refused_fail_the_run(line: str) -> None:
    assert outline(read(f"{line}\nfio: job x dropped\n")) == ["began", f"failed: {line}"]
    assert outline(read(f"{line}\n", TEXTS["cpu.txt"])) == ["began", f"failed: {line}", "began", "cpu", "completed"]


def test_an_error_before_any_job_is_the_reason() -> None:
    error = "err=22/file:filesetup.c:1155, func=total_file_size, error=Invalid argument"

    assert outline(read(f"fio-3.33\nStarting 1 process\nfio: pid=0, {error}\n\nRun status group 0 (all jobs):\n")) == [
        "began", f"failed: {error}",
    ]  # fmt: skip


# Any text


FOREIGN = sorted(path for path in CAPTURES.iterdir() if (path / "stdout.txt").exists() and path.name[:4] != "fio-")


@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: path.name)
def test_what_other_benchmarks_print_says_nothing(path: Path) -> None:
    assert read((path / "stdout.txt").read_bytes()) == []


@pytest.mark.parametrize("name", sorted(TEXTS))
@pytest.mark.parametrize("size", [1, 1000])
def test_pieces_may_be_cut_anywhere(name: str, size: int) -> None:
    assert read(TEXTS[name][:20_000], pieces=size) == read(TEXTS[name][:20_000])


LINES = sorted(
    {
        line
        for name, text in TEXTS.items()
        for line in text.replace(b"\r", b"\n").split(b"\n")
        if (name != "fio-jobs-stonewall-json-status") and len(line) < 2000
    }
)


@given(st.lists(st.sampled_from(LINES) | st.binary(max_size=40), max_size=40))
def test_any_mixture_of_lines_is_read(lines: Sequence[bytes]) -> None:
    events = read(b"\n".join(lines))

    assert events == read(b"\n".join(lines), pieces=3)
    began = [isinstance(event, RunBegan) for event in events]
    assert not events or began[0]
    assert sum(isinstance(event, Completed | Failed) for event in events) <= sum(began)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["jobs", "jobname", "groupid", "error", "elapsed", "eta", "write", "read", "runtime", "bw", "iops"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(["jobs", "client_stats", "timestamp", "timestamp_ms"]), JSON), max_size=3)
)
def test_any_document_is_read(documents: Sequence[dict[str, object]]) -> None:
    for event in read(*(json.dumps({"fio version": "", **document}, indent=1) + "\n" for document in documents)):
        if isinstance(event, Ended | Rate):
            assert all(abs(result.value) < float("inf") for result in event.results)


def test_what_is_kept_is_bounded() -> None:
    reader = FioOutput()
    header = b"a: (g=0): rw=read, bs=\n"
    block = b"a: (groupid=0, jobs=1): err= 0: pid=%d: now\n  read: IOPS=1, BW=1B/s (1B/s)(1B/1msec)\n"
    line = TEXTS["terse-3.txt"].split(b"\n")[1] + b"\n"
    for count in range(5_000):
        reader.feed(header + block % count + line + b"{\n")

    run = reader._run
    assert run is not None
    assert len(run.headers) <= 4096
    assert all(len(status.jobs) <= 4096 for status in run.statuses.values())


def test_names_of_groups() -> None:
    assert group_name(["Seq-Write", "b", "b", "---"]) == "seq_write+b+unnamed"
    assert len(group_name(f"job{count}" for count in range(100))) == 64
