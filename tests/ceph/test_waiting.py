from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ceph_answers import run_daemon
from daemon_socket import DaemonSocket
from machine import Machine
from pinchpoint.ceph import follower
from pinchpoint.ceph.waiting import (
    BLIND_AFTER_SECONDS,
    MAX_LOOKS_PER_SECOND,
    SUMS,
    ClientWaits,
    LibraryReader,
    Looked,
    MountReader,
    WaitReader,
)
from pinchpoint.host.procfs import FormatError
from pinchpoint.threads.processes import Process
from polling import until

FIXTURES = Path(__file__).parents[1] / "fixtures" / "ceph"
ME = os.getpid()


def counter(total: float, number: int = 1) -> dict[str, float]:
    return {"avgcount": number, "sum": total, "avgtime": total / number}


def dump(*, active: int = 0, lat: float = 0.0, data: float = 0.0, blocked: float = 0.0) -> dict[str, Any]:
    """Return a ``perf dump`` as from a client with libcephfs."""
    return {
        "objecter": {"op_active": active, "op_reply": 3},
        "client": {"lat": counter(lat), "wrlat": counter(data / 2), "rdlat": counter(data / 2), "fsync": counter(0.0)},
        "objectcacher-libcephfs": {"write_time_blocked": blocked},
    }


def take(reader: WaitReader, *answers: dict[str, Any]) -> Looked:
    """Have a reader take answers of one round."""
    reader.take(0.0, {str(index): json.dumps(answer).encode() for index, answer in enumerate(answers)})
    return reader.looked


def test_looks_are_counted_and_those_that_found_operations_in_flight() -> None:
    reader = LibraryReader()
    for active in (0, 3, 1, 0):
        take(reader, {"objecter": {"op_active": active}})

    assert reader.looked[:2] == (4, 2)


def test_a_negative_number_of_operations_is_none() -> None:
    assert take(LibraryReader(), {"objecter": {"op_active": 2**64 - 1}})[:2] == (1, 0)


def test_sums_of_latencies_are_taken_as_they_are() -> None:
    found = take(MountReader(), dump(lat=1.5, data=4.0, blocked=0.5))

    assert (found.requests, found.data, found.blocked) == (1.5, 4.0, 0.5)


def test_a_client_without_a_counter_says_nothing_of_it() -> None:
    assert take(LibraryReader(), {}, {"client": {}}) == Looked()


def answers(**given: Any) -> dict[str, bytes]:
    """Return the answer of a client with libcephfs to the question for its sums."""
    return {SUMS.key: json.dumps(dump(**given)).encode()}


@pytest.mark.parametrize(
    ("make", "done", "wanted"),
    [
        (LibraryReader, {"lat": 0.5}, False),
        (LibraryReader, {"lat": 0.4}, True),
        (LibraryReader, {"data": 0.5}, True),
        (MountReader, {"lat": 0.1}, False),
        (MountReader, {"data": 0.1}, False),
        (MountReader, {}, True),
    ],
)
def test_operations_in_flight_are_asked_for_while_sums_do_not_say_what_a_client_waits_for(
    make: type[WaitReader], done: dict[str, float], wanted: bool
) -> None:
    reader = make()
    reader.take(0.0, answers())
    assert reader.wants(make.in_flight)
    reader.take(0.5, answers(**done))

    assert reader.wants(make.in_flight) == wanted
    assert all(reader.wants(question) for question in make.questions if question is not make.in_flight)
    reader.take(0.6, {})
    assert reader.wants(make.in_flight) == wanted
    reader.take(1.0, answers(**done))
    assert reader.wants(make.in_flight), "its sums stand still"


def test_operations_in_flight_are_asked_for_again_when_a_client_has_unmounted() -> None:
    reader = LibraryReader()
    reader.take(0.0, answers())
    reader.take(0.5, answers(lat=0.5))
    reader.take(1.0, {SUMS.key: b"{}"})

    assert reader.wants(LibraryReader.in_flight)


def test_the_answers_of_a_real_client_have_every_counter_that_is_asked_for() -> None:
    answer = json.loads((FIXTURES / "client_ceph_fuse.json").read_bytes())

    for question in (*LibraryReader.questions, *MountReader.questions):
        assert question.counter in ("", *answer[question.logger])
    assert {"lat", "wrlat", "rdlat", "fsync"} <= answer["client"].keys()


def test_only_a_few_counters_are_asked_for() -> None:
    for question in (*LibraryReader.questions, *MountReader.questions):
        words = json.loads(question.request[:-1])
        assert words["prefix"] == "perf dump"
        assert words["logger"] == question.logger


@given(st.binary(max_size=200))
def test_no_answer_breaks_a_reader(answer: bytes) -> None:
    reader = LibraryReader()
    try:
        reader.take(0.0, {"perf dump objecter op_active": answer})
    except FormatError:
        pass

    assert reader.looked.looks <= 1


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonSocket]:
    monkeypatch.setattr(follower, "LOOK_AGAIN_SECONDS", (0.0,))
    with DaemonSocket(tmp_path / "client.admin.asok", {"perf dump": dump()}) as found:
        yield found


@pytest.fixture
def waits(machine: Machine) -> Iterator[ClientWaits]:
    found = ClientWaits(machine.procfs, Path("/"), LibraryReader)
    yield found
    found.close()


CLIENT = Process(ME, 100, "fio", "benchmark", "fio")


def test_a_client_says_what_it_did_since_the_last_call_and_nothing_of_before(
    machine: Machine, socket: DaemonSocket, waits: ClientWaits
) -> None:
    run_daemon(machine, "fio", "x", socket.path)
    socket.answers["perf dump"] = json.dumps(dump(lat=100.0)).encode()
    waits.follow([CLIENT], 0.0)
    until(10, lambda: socket.asked)
    assert until(10, lambda: ME in waits.looked(0.0))

    socket.answers["perf dump"] = json.dumps(dump(lat=100.5, active=1)).encode()
    gained = Looked()

    def enough() -> bool:
        nonlocal gained
        gained = gained + (waits.looked(0.0)[ME] or Looked())
        return gained.requests > 0 and gained.active > 1

    assert until(10, enough)
    assert gained.requests == pytest.approx(0.5)


def test_a_client_without_a_socket_is_blind_once_it_had_time_to_open_one(machine: Machine, waits: ClientWaits) -> None:
    machine.process(ME, "fio")
    machine.write(f"proc/{ME}/net/unix", "head\n")
    waits.follow([CLIENT], 0.0)

    assert waits.looked(BLIND_AFTER_SECONDS / 2) == {}
    assert waits.looked(BLIND_AFTER_SECONDS) == {ME: None}


def test_a_client_that_closes_its_socket_is_done_and_not_blind(
    machine: Machine, socket: DaemonSocket, waits: ClientWaits
) -> None:
    run_daemon(machine, "fio", "x", socket.path)
    waits.follow([CLIENT], 0.0)
    assert until(10, lambda: ME in waits.looked(0.0))

    machine.write(f"proc/{ME}/net/unix", "head\n")
    waits.follow([CLIENT], 10.0)
    assert waits.looked(10.0) == {ME: Looked()}


def test_many_clients_are_looked_at_more_rarely(machine: Machine, waits: ClientWaits, socket: DaemonSocket) -> None:
    run_daemon(machine, "fio", "x", socket.path)
    others = [Process(number, 100, "fio", "benchmark", "fio") for number in range(2, 102)]
    waits.follow([CLIENT, *others], 0.0)

    intervals = {found.reader.interval for _, followers in waits._followers for found in followers}
    assert intervals == {101 / MAX_LOOKS_PER_SECOND}
