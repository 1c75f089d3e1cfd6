from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon_socket import DaemonSocket
from machine import Machine
from pinchpoint.ceph import follower
from pinchpoint.ceph.asok import LOCK_FREE, Conversation
from pinchpoint.ceph.clients import ClientReading, Clients, Instance, Integral
from pinchpoint.host.procfs import FormatError
from pinchpoint.metrics import CEPH_CLIENT_REQUESTS, KEEP_ENDED_SECONDS
from pinchpoint.model import Snapshot
from pinchpoint.probes import NotPresent
from pinchpoint.probes.ceph_client import CephClient, ClientReader
from polling import until

FIXTURES = Path(__file__).parents[1] / "fixtures" / "ceph"
PREFIX = "pinchpoint_ceph_client_"
REQUESTS = f"{PREFIX}requests_total"
INFLIGHT = f"{PREFIX}inflight_requests"
INFLIGHT_SECONDS = f"{PREFIX}inflight_seconds_total"
IO_SECONDS = f"{PREFIX}io_seconds_total"
IOS = f"{PREFIX}ios_total"


def dump(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / f"client_{name}.json").read_bytes())
    return found


def latency(number: int, total: float) -> dict[str, float]:
    return {"avgcount": number, "sum": total, "avgtime": total / (number or 1)}


class Session:
    """Readers of several sockets, whose answers a test sets, and their series."""

    def __init__(self) -> None:
        self.clients = Clients()
        self.readers: dict[str, ClientReader] = {}

    def round(self, now: float, **answers: dict[str, Any] | None) -> Snapshot:
        """Return the series after all sockets have given these answers; None stands for a blind one."""
        instances = []
        for name, answer in answers.items():
            reader = self.readers.setdefault(name, ClientReader())
            if answer is not None:
                reader.take(now, {"perf dump": json.dumps(answer).encode()})
            instances.append(Instance(name, "fio", None if answer is None else reader.reading))
        self.clients.update(now, instances)
        return Snapshot.of(now, self.clients.points())


@pytest.fixture
def session() -> Session:
    return Session()


def test_requests_in_flight_to_osds_are_those_of_all_objecters_of_a_process(session: Session) -> None:
    answer = dump("rados")
    assert session.round(0.0, a=answer).value(INFLIGHT, client="fio", target="osd") == 16

    # A second librados handle in one CephContext (src/common/perf_counters.cc); throttle-objecter_ops is not one.
    answer["objecter-0x55f5b2525910"] = {"op_active": 5, "op_reply": 1}
    answer["objectcacher"] = {"op_active": 1000}
    assert session.round(1.0, a=answer).value(INFLIGHT, client="fio", target="osd") == 21

    answer["objecter"]["op_active"] = 2**64 - 1
    assert session.round(2.0, a=answer).value(INFLIGHT, client="fio", target="osd") == 5


def test_the_integral_over_looks_divided_by_the_replies_is_the_mean_latency_of_an_osd_request(session: Session) -> None:
    answer = dump("rados")
    for second in range(11):
        answer["objecter"] |= {"op_active": 16, "op_reply": 32 + 80 * second}
        found = session.round(float(second), a=answer)

    seconds = found.value(INFLIGHT_SECONDS, client="fio", target="osd")
    requests = found.value(REQUESTS, client="fio", target="osd")
    assert (seconds, requests) == pytest.approx((160.0, 800))


def test_writes_that_wait_for_room_in_the_clients_cache_are_an_operation_of_their_own(session: Session) -> None:
    answer = dump("ceph_fuse")
    session.round(0.0, a=answer)
    answer["objectcacher-libcephfs"] |= {"write_ops_blocked": 3, "write_time_blocked": 1.5}
    found = session.round(1.0, a=answer)

    labels = {"client": "fio", "operation": "write_blocked"}
    assert found.value("pinchpoint_ceph_client_ios_total", **labels) == 3
    assert found.value("pinchpoint_ceph_client_io_seconds_total", **labels) == 1.5


def test_what_a_client_did_before_it_was_first_looked_at_is_not_counted_as_if_it_happened_now(session: Session) -> None:
    found = session.round(0.0, a=dump("libcephfs"))

    assert found.value(REQUESTS, client="fio", target="mds") == 0
    assert found.value(INFLIGHT_SECONDS, client="fio", target="mds") == 0


def test_metadata_requests_in_flight_come_from_the_seconds_that_ended_in_the_last_interval(session: Session) -> None:
    answer = dump("libcephfs")
    found = session.round(0.0, a=answer)
    assert found.value(INFLIGHT, client="fio", target="mds") is None

    answer["client"]["lat"] = latency(6259 + 1500, 17.948635637 + 1.6)
    found = session.round(2.0, a=answer)
    assert found.value(INFLIGHT, client="fio", target="mds") == pytest.approx(0.8)
    assert found.value(INFLIGHT_SECONDS, client="fio", target="mds") == pytest.approx(1.6)
    assert found.value(REQUESTS, client="fio", target="mds") == 1500


def test_a_metadata_request_that_stalls_shows_when_it_ends(session: Session) -> None:
    answer = dump("libcephfs")
    for second in range(10):
        found = session.round(float(second), a=answer)
    assert found.value(INFLIGHT, client="fio", target="mds") == 0

    answer["client"]["lat"] = latency(6260, 17.948635637 + 9.5)
    found = session.round(10.0, a=answer)
    assert found.value(INFLIGHT, client="fio", target="mds") == pytest.approx(9.5)


def test_operations_of_a_file_system_client_are_seen_as_its_applications_see_them(session: Session) -> None:
    answer = dump("ceph_fuse")
    session.round(0.0, a=answer)
    answer["client"] |= {
        "wrlat": latency(1546, 1.35371891),
        "rdlat": latency(3, 0.06),
        "fsync": latency(14, 0.716926802),
    }
    found = session.round(1.0, a=answer)

    def io(operation: str) -> tuple[float | None, float | None]:
        labels = {"client": "fio", "operation": operation}
        return found.value(IOS, **labels), found.value(IO_SECONDS, **labels)

    assert io("write") == pytest.approx((10, 1.0))
    assert io("read") == pytest.approx((3, 0.06))
    assert io("fsync") == pytest.approx((2, 0.5))
    assert io("flush") == (None, None)


def test_operations_of_librbd_are_summed_over_images_and_its_write_log_is_none(session: Session) -> None:
    answer = dump("fio_rbd")
    (name,) = (logger for logger in answer if logger.startswith("librbd-"))
    session.round(0.0, a=answer)
    image = answer[name]
    answer[name] = image | {"wr_latency": latency(23104 + 10, 2.723999917 + 0.5)}
    answer["librbd-2-rbd-other"] = image | {"wr_latency": latency(7, 0.25), "discard_latency": latency(1, 0.01)}
    answer["librbd-pwl-2-rbd-other"] = {"wr_latency": latency(1000, 1000.0)}
    found = session.round(1.0, a=answer)

    assert found.value(IOS, client="fio", operation="write") == 17
    assert found.value(IO_SECONDS, client="fio", operation="write") == pytest.approx(0.75)
    assert found.value(IOS, client="fio", operation="discard") == 1
    assert found.value(REQUESTS, client="fio", target="mds") is None


def test_a_release_without_a_counter_has_no_series_of_it(session: Session) -> None:
    found = session.round(0.0, a={"objecter": {"op_reply": 3}, "client": {}})
    assert set(found.values) == {f"{PREFIX}instances", f"{PREFIX}blind_instances", REQUESTS}


@given(st.binary() | st.recursive(st.none() | st.floats() | st.text(), lambda inner: st.dictionaries(st.sampled_from(
    ["objecter", "op_active", "op_reply", "client", "lat", "avgcount", "sum", "librbd-1", "rd_latency"]), inner)
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_answer_is_a_reading_or_a_format_error(raw: bytes) -> None:
    reader = ClientReader()
    for now in (0.0, 1.0):
        try:
            reader.take(now, {"perf dump": raw})
        except FormatError:
            pass
    assert all(isinstance(value, float | int) for value in (*reader.reading[0].values(), *reader.reading[1].values()))


def test_instances_of_one_name_are_summed_and_one_that_ends_takes_nothing_away(session: Session) -> None:
    one, two = dump("rados"), dump("rados")
    session.round(0.0, a=one, b=two)
    one["objecter"]["op_reply"] += 100
    two["objecter"]["op_reply"] += 10
    found = session.round(1.0, a=one, b=two)
    assert found.value(REQUESTS, client="fio", target="osd") == 110
    assert found.value(INFLIGHT, client="fio", target="osd") == 32
    assert found.value(f"{PREFIX}instances", client="fio") == 2

    two["objecter"]["op_reply"] += 1
    found = session.round(2.0, b=two)
    assert found.value(REQUESTS, client="fio", target="osd") == 111
    assert found.value(INFLIGHT, client="fio", target="osd") == 16
    assert found.value(f"{PREFIX}instances", client="fio") == 1


def test_a_counter_that_was_reset_begins_anew_and_never_goes_back(session: Session) -> None:
    answer = dump("rados")
    totals = []
    for second, replies in enumerate((1000, 1010, 4, 6)):
        answer["objecter"]["op_reply"] = replies
        totals.append(session.round(float(second), a=answer).value(REQUESTS, client="fio", target="osd"))

    assert totals == [0, 10, 14, 16]


def test_a_blind_instance_is_counted_and_goes_on_where_it_was(session: Session) -> None:
    answer = dump("rados")
    session.round(0.0, a=answer, b=answer)
    found = session.round(1.0, a=answer, b=None)
    assert found.value(f"{PREFIX}instances", client="fio") == 2
    assert found.value(f"{PREFIX}blind_instances", client="fio") == 1
    assert found.value(INFLIGHT, client="fio", target="osd") == 16

    answer["objecter"]["op_reply"] += 7
    found = session.round(2.0, a=dump("rados"), b=answer)
    assert found.value(REQUESTS, client="fio", target="osd") == 7
    assert found.value(f"{PREFIX}blind_instances", client="fio") == 0


def test_a_client_is_shown_a_while_after_its_end_and_then_no_more(session: Session) -> None:
    session.round(0.0, a=dump("rados"))
    found = session.round(KEEP_ENDED_SECONDS, b=None)
    assert found.value(REQUESTS, client="fio", target="osd") == 0
    assert found.value(INFLIGHT, client="fio", target="osd") is None
    session.clients.update(2 * KEEP_ENDED_SECONDS, [])
    assert session.clients
    session.clients.update(2 * KEEP_ENDED_SECONDS + 1, [])
    assert not session.clients


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.none() | st.floats(0, 1e9))))
def test_a_sum_never_goes_back_whatever_its_instances_do(rounds: list[dict[str, float | None]]) -> None:
    clients = Clients()
    last = 0.0
    for now, instances in enumerate(rounds):
        readings = {
            name: None if value is None else ClientReading({}, {(CEPH_CLIENT_REQUESTS, "osd", ""): value})
            for name, value in instances.items()
        }
        clients.update(float(now), [Instance(name, "fio", reading) for name, reading in readings.items()])
        total = Snapshot.of(0, clients.points()).value(REQUESTS, client="fio", target="osd") or last
        assert total >= last
        last = total


def test_an_integral_says_nothing_of_a_time_in_which_nobody_looked() -> None:
    integral = Integral()
    for now, number in ((0.0, 4.0), (1.0, 8.0), (60.0, 8.0), (60.5, 8.0)):
        integral.look(now, number)
    assert integral.seconds == 6.0 + 4.0


class Host:
    """A machine with Ceph clients."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.probe = CephClient(machine.host())

    def client(self, pid: int, comm: str, *sockets: DaemonSocket) -> None:
        self.machine.process(pid, comm, threads={pid + 1: "log", pid + 2: "msgr-worker-0"})
        lines = [f"0: 2 0 00010000 0001 01 {pid}{index} {one.path}" for index, one in enumerate(sockets)]
        self.machine.write(f"proc/{pid}/net/unix", "\n".join(["head", *lines, ""]))
        directory = self.machine.procfs / str(pid)
        (directory / "fd").mkdir(exist_ok=True)
        for index in range(len(sockets)):
            (directory / f"fd/{index}").symlink_to(f"socket:[{pid}{index}]")
        (directory / "root").symlink_to("/")

    def sample(self, now: float) -> Snapshot:
        self.probe.sample(now)
        return Snapshot.of(now, self.probe.points())


@pytest.fixture
def host(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(follower, "ROUND_TIMEOUT_SECONDS", 30.0)
    # The listening process is the test itself, not the one of the fake machine.
    monkeypatch.setattr(follower, "Conversation", lambda path, question, pid: Conversation(path, question))
    found = Host(machine)
    yield found
    found.probe.close()


def test_only_what_takes_no_lock_is_asked_of_a_client(host: Host, tmp_path: Path) -> None:
    with DaemonSocket(tmp_path / "a.asok", {"perf dump": dump("rados")}) as socket:
        host.client(50, "rados", socket)
        assert until(30, lambda: host.sample(0.0).value(INFLIGHT, client="rados", target="osd"))
        asked = {question["prefix"] for question in socket.asked}

    assert asked <= LOCK_FREE
    assert asked == {"perf dump", "config get"}


def test_every_socket_of_a_process_is_an_instance(host: Host, tmp_path: Path) -> None:
    with (
        DaemonSocket(tmp_path / "a.asok", {"perf dump": dump("rados")}) as a,
        DaemonSocket(tmp_path / "b.asok", {"perf dump": dump("rados")}) as b,
    ):
        host.client(50, "fio", a, b)
        host.client(60, "fio")
        assert until(30, lambda: host.sample(0.0).value(INFLIGHT, client="fio", target="osd") == 32)
        found = host.sample(0.0)

    assert found.value(f"{PREFIX}instances", client="fio") == 3
    assert found.value(f"{PREFIX}blind_instances", client="fio") == 1


def test_a_process_with_the_threads_of_a_ceph_library_and_no_socket_is_blind_others_are_none_of_ours(
    host: Host,
) -> None:
    host.client(50, "qemu-system-x86")
    host.machine.process(60, "fio", threads={61: "fio"})
    found = host.sample(0.0)

    assert dict(found.values) == {
        f"{PREFIX}instances": {(("client", "qemu-system-x86"),): 1},
        f"{PREFIX}blind_instances": {(("client", "qemu-system-x86"),): 1},
    }


def test_a_client_that_was_not_answered_yet_is_neither_blind_nor_counted_from_its_beginning(
    host: Host, tmp_path: Path
) -> None:
    with DaemonSocket(tmp_path / "a.asok", {"perf dump": dump("rados")}) as socket:
        socket.freeze()
        host.client(50, "rados", socket)
        found = host.sample(0.0)
        assert found.value(f"{PREFIX}instances", client="rados") == 1
        assert found.value(f"{PREFIX}blind_instances", client="rados") == 0

        socket.thaw()
        assert until(30, lambda: host.sample(0.0).value(INFLIGHT, client="rados", target="osd"))
        assert host.sample(0.0).value(REQUESTS, client="rados", target="osd") == 0


def test_a_process_that_becomes_a_client_later_is_found(host: Host) -> None:
    host.machine.process(60, "fio")
    with pytest.raises(NotPresent):
        host.sample(0.0)
    host.client(60, "fio")
    found = host.sample(5.0)

    assert found.value(f"{PREFIX}blind_instances", client="fio") == 1


def test_a_silent_client_is_blind_and_the_others_are_not(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "ROUND_TIMEOUT_SECONDS", 1.0)
    with (
        DaemonSocket(tmp_path / "a.asok", {"perf dump": dump("rados")}) as a,
        DaemonSocket(tmp_path / "b.asok", {"perf dump": dump("rados")}) as b,
    ):
        b.freeze()
        host.client(50, "fio", a)
        host.client(60, "rados", b)
        assert until(30, lambda: host.sample(0.0).value(f"{PREFIX}blind_instances", client="rados"))
        assert until(30, lambda: host.sample(0.0).value(f"{PREFIX}blind_instances", client="fio") == 0)
        found = host.sample(0.0)

    assert found.value(f"{PREFIX}blind_instances", client="rados") == 1
    assert found.value(INFLIGHT, client="rados", target="osd") is None


def test_a_child_that_inherited_a_socket_is_no_instance_unless_it_is_a_client_itself(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "Conversation", Conversation)
    with DaemonSocket(tmp_path / "a.asok", {"perf dump": dump("rados")}) as socket:
        host.client(50, "fio", socket)
        host.machine.end(50, 52)
        host.client(60, "rados", socket)
        host.sample(0.0)
        assert until(
            30, lambda: [f.problem for _, followers in host.probe._followers for f in followers] == ["foreign"]
        )
        host.sample(1.0)
        found = host.sample(2.0)

    assert not found.value(f"{PREFIX}instances", client="fio")
    assert found.value(f"{PREFIX}blind_instances", client="rados") == 1


def test_a_host_without_ceph_clients_is_not_a_failure(host: Host) -> None:
    host.machine.process(60, "dd")
    with pytest.raises(NotPresent):
        host.sample(0.0)


def test_a_client_that_has_ended_keeps_its_counters(host: Host, tmp_path: Path) -> None:
    with DaemonSocket(tmp_path / "a.asok", {"perf dump": dump("rados")}) as socket:
        host.client(50, "rados", socket)
        assert until(30, lambda: host.sample(0.0).value(INFLIGHT, client="rados", target="osd"))
    host.machine.end(50)
    found = host.sample(10.0)

    assert found.value(f"{PREFIX}instances", client="rados") == 0
    assert found.value(REQUESTS, client="rados", target="osd") == 0
