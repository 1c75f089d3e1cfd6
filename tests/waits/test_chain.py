from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.bpf.path import Endpoint, Responsible, Share, Source, ThreadTime, Window
from pinchpoint.threads.processes import Process
from pinchpoint.threads.roles import BENCHMARK, load_roles
from pinchpoint.waits.chain import SELF, Chain, Kind, Namer, Node, chain_of, peer_node, seen_from_afar, served_chain

CLIENT, MESSENGER, MDS = (
    Responsible(10, b"ceph-fuse"),
    Responsible(10, b"msgr-worker-1"),
    Responsible(20, b"MR_Finisher"),
)
OBSERVER = Responsible(99, b"ceph-asker")
NODES: dict[Responsible | Endpoint, Node] = {
    CLIENT: Node("ceph-fuse", "client_lock"),
    MESSENGER: Node("ceph-fuse", "messenger"),
    MDS: Node("mds.a", "mds_lock"),
    OBSERVER: Node("pinchpoint", "ceph-asker"),
}
BENCHMARKS = {1, 2}


def share(
    by: Responsible | Source | Endpoint, seconds: float, via: Responsible | None = None, queued: float = 0.0
) -> Share:
    return Share(by, via, seconds, queued)


def thread(*shares: Share, tgid: int = 1, run: float = 0.0, queued: float = 0.0, pending: float = 0.0) -> ThreadTime:
    return ThreadTime(tgid, tgid, run, queued, len(shares), [*shares], pending)


def chain(*threads: ThreadTime, seconds: float = 1.0) -> Chain:
    return chain_of(Window(seconds, 100, [*threads], 0.0, 0), BENCHMARKS, NODES.__getitem__, {OBSERVER.tgid})


def shares(found: Chain) -> Mapping[tuple[Node, Kind], float]:
    return {key: round(seconds / found.seconds, 3) for key, seconds in found.parts.items()}


def test_parts_are_those_of_all_threads_by_node_and_kind() -> None:
    found = chain(
        thread(share(CLIENT, 0.4, queued=0.1), share(MESSENGER, 0.2, CLIENT), run=0.3, queued=0.1),
        thread(share(CLIENT, 1.0), tgid=2),
    )

    assert shares(found) == {
        (SELF, Kind.CPU): 0.15,
        (SELF, Kind.RUNQUEUE): 0.05,
        (NODES[CLIENT], Kind.CPU): 0.65,
        (NODES[CLIENT], Kind.RUNQUEUE): 0.05,
        (NODES[MESSENGER], Kind.CPU): 0.1,
    }


def test_a_timer_or_a_disk_is_a_part_of_the_thread_that_waited_for_it() -> None:
    found = chain(thread(share(Source.DEVICE, 0.5, MDS), share(Source.TIMER, 0.2), share(Source.BEFORE, 0.3, CLIENT)))

    assert shares(found) == {
        (NODES[MDS], Kind.DISK): 0.5,
        (SELF, Kind.TIMER): 0.2,
        (NODES[CLIENT], Kind.EARLIER): 0.3,
    }


def test_the_end_of_a_connection_on_another_host_is_a_node() -> None:
    server = Endpoint(b"\0" * 10 + b"\xff\xff\x0a\0\0\2", 6800)
    nodes = {**NODES, server: peer_node("10.0.0.2:6800")}
    window = Window(1.0, 9, [thread(share(MESSENGER, 0.1), share(server, 0.7, MESSENGER), run=0.2)], 0.0, 0)
    found = chain_of(window, BENCHMARKS, nodes.__getitem__, {OBSERVER.tgid})

    assert shares(found)[nodes[server], Kind.NETWORK] == 0.7
    assert found.heaviest() == [NODES[MESSENGER], nodes[server]]
    assert found.waited() == {}


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (b"\0" * 10 + b"\xff\xff\x7f\0\0\1", "127.0.0.1:6800"),
        (b"\xfe\x80" + b"\0" * 13 + b"\1", "[fe80::1]:6800"),
    ],
)
def test_an_end_has_its_address_and_port_as_its_name(address: bytes, shown: str) -> None:
    end = Endpoint(address, 6800)

    assert Namer({}, load_roles(), lambda pid: "")(end) == peer_node(shown) == Node("network", shown)


def test_what_goes_on_until_an_answer_is_a_chain_too() -> None:
    asked = share(OBSERVER, 0.1), share(Source.TIMER, 0.6, OBSERVER)
    parts = [share(MESSENGER, 0.1), share(MDS, 0.3, MESSENGER, queued=0.1), *asked]
    found = served_chain(parts, NODES.__getitem__, {OBSERVER.tgid})

    assert found.seconds == pytest.approx(0.4)
    assert found.passed == {(NODES[MESSENGER], SELF): 0.1, (NODES[MDS], NODES[MESSENGER]): 0.3}
    assert found.parts[NODES[MDS], Kind.RUNQUEUE] == 0.1


def test_threads_that_are_asleep_are_left_out() -> None:
    found = chain(thread(share(Source.TIMER, 0.9), run=0.1), thread(share(CLIENT, 0.5), run=0.5, tgid=2))
    waiting = chain(thread(pending=0.95, run=0.05))

    assert (found.asleep, found.seconds) == (1, 1.0)
    assert (waiting.asleep, waiting.seconds, waiting.steps()) == (1, 0.0, [])


def test_a_thread_that_waits_for_the_exporters_questions_is_asleep() -> None:
    asked = thread(share(OBSERVER, 0.1), share(Source.TIMER, 0.6, OBSERVER), share(MDS, 0.2, OBSERVER), run=0.1)
    first = thread(share(Source.BEFORE, 0.4), share(Source.TIMER, 0.5, OBSERVER), run=0.1)
    beside = thread(share(OBSERVER, 0.1), share(MDS, 0.8), run=0.1, tgid=2)

    assert (chain(asked).asleep, chain(asked).seconds) == (1, 0.0)
    assert (chain(first).asleep, chain(first).seconds) == (1, 0.0)
    assert shares(chain(beside))[NODES[OBSERVER], Kind.CPU] == 0.1


def test_other_processes_are_left_out() -> None:
    assert chain(thread(share(CLIENT, 1.0), tgid=7)).seconds == 0


def test_the_heaviest_chain_follows_what_is_behind_a_node_and_not_its_own_part() -> None:
    found = chain(thread(share(MESSENGER, 0.1), share(CLIENT, 0.3), share(MDS, 0.5, MESSENGER), run=0.1))

    assert found.heaviest() == [NODES[MESSENGER], NODES[MDS]]
    assert [step.node for step in found.steps()] == [NODES[MDS], NODES[CLIENT], SELF, NODES[MESSENGER]]


def test_threads_that_wake_each_other_in_turn_are_in_a_chain_once() -> None:
    found = chain(thread(share(CLIENT, 0.3), share(MESSENGER, 0.3, CLIENT), share(CLIENT, 0.2, MESSENGER), run=0.2))

    assert found.heaviest() == [NODES[CLIENT], NODES[MESSENGER]]


def test_a_chain_ends_at_the_kernel() -> None:
    worker = Responsible(0, b"kworker")
    nodes: dict[Responsible | Endpoint, Node] = {**NODES, worker: Node("kernel", "kworker")}
    window = Window(1.0, 9, [thread(share(worker, 0.5), share(MDS, 0.5, worker))], 0.0, 0)

    assert chain_of(window, BENCHMARKS, nodes.__getitem__, {OBSERVER.tgid}).heaviest() == [nodes[worker]]


def test_so_it_does_at_that_of_another_host() -> None:
    worker, sync = seen_from_afar(Node("kernel", "kworker"), "osd1:9748"), Node("osd.0", "kv_sync")
    found = Chain(1.0)
    found.passed.update({(worker, SELF): 0.5, (sync, worker): 0.5})

    assert worker == Node("kernel of osd1:9748", "kworker")
    assert found.heaviest() == [worker]
    assert seen_from_afar(sync, "osd1:9748") == sync


def test_windows_are_added_up() -> None:
    total = Chain()
    total.add(chain(thread(share(CLIENT, 0.5), run=0.5)))
    total.add(chain(thread(share(MDS, 0.5), run=0.5)))

    assert total.seconds == 2.0
    assert shares(total)[SELF, Kind.CPU] == 0.5


TIMES = st.floats(0, 10)
BY = st.sampled_from([*NODES, *Source])
SHARES = st.lists(st.builds(Share, BY, st.sampled_from([None, *NODES]), TIMES, TIMES), max_size=8)


@given(st.lists(st.builds(thread, tgid=st.sampled_from([1, 2, 7]), run=TIMES, queued=TIMES, pending=TIMES)), SHARES)
def test_parts_sum_up_and_a_chain_ends_whatever_was_seen(threads: list[ThreadTime], more: list[Share]) -> None:
    found = chain(*threads, thread(*more, run=1.0))

    assert sum(found.parts.values()) == pytest.approx(found.seconds)
    if found.seconds:
        assert sum(step.share for step in found.steps()) == pytest.approx(1.0)
        assert len({*found.heaviest()}) == len(found.heaviest())


@pytest.mark.parametrize(
    ("who", "node"),
    [
        (Responsible(20, b"MR_Finisher"), Node("mds.a", "mds_lock")),
        (Responsible(1, b"fio"), Node("fio", "benchmark")),
        (Responsible(20, b"novel-12"), Node("mds.a", "novel")),
        (Responsible(30, b"proxy_17"), Node("haproxy", "proxy")),
        (Responsible(31, b"42"), Node("42", "42")),
        (Responsible(0, b"kworker"), Node("kernel", "kworker")),
        (Responsible(0, b"jbd2"), Node("kernel", "jbd")),
        (Responsible(30, b"\xff\x1b[2J"), Node("haproxy", "\ufffd\ufffd[J")),
    ],
)
def test_names_are_those_of_roles_else_those_of_threads_without_digits(who: Responsible, node: Node) -> None:
    processes = {20: Process(20, 1, "ceph-mds", "ceph-mds", "mds.a", True), 1: Process(1, 1, "fio", BENCHMARK, "fio")}
    namer = Namer(processes, load_roles(), {30: "haproxy"}.get)  # type: ignore[arg-type]

    assert namer(who) == node


def test_a_process_that_looks_like_a_daemon_is_not_taken_for_it() -> None:
    namer = Namer({}, load_roles(), lambda pid: "osd.0")

    assert namer(Responsible(5, b"tp_osd_tp")).owner != "osd.0"
