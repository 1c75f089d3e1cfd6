"""Who makes whom wait, compared with what the kernel counts for each thread in the same window."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

import pytest

from hosts import another_host
from hotplug import one_cpu_less
from lab.cluster import Cluster
from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.bpf.path import Source, Windows
from pinchpoint.diagnosis.verdict import Kind
from polling import until
from ports import free_port
from proofs import faults
from proofs.conftest import Check
from proofs.observed import Observed, Watch, watching
from truth import Truth
from waiters import called, names_below, waiting

GROUP = "Who makes whom wait"
SECONDS = 1.0
LONG = 12
LONGER = 24
"""Seconds of a run whose phase has a graph: at least 16 s of it are judged."""
MANY = 10_000_000
PATIENCE = 30.0
NEAR = 0.1
"""How far a share may be from the truth."""
FAST_LINK, SLOW_LINK = "10gbit", "100mbit"
FAR = "10.215.0.1"
"""The address of the test's own end of the link."""
REQUEST = 65536
"""Bytes that take 5 ms over the slow link."""
FRONTEND = """
import socket, sys, time
server = socket.create_server((sys.argv[1], 0))
open("/proc/self/comm", "w").write("toyfrontend")
print(server.getsockname()[1], flush=True)
client, _ = server.accept()
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
length, burns = int(sys.argv[2]), float(sys.argv[3])
while client.recv(length, socket.MSG_WAITALL):
    end = time.thread_time() + burns
    while time.thread_time() < end:
        pass
    client.send(b"x")
"""
"""Burns CPU time for each request."""
NGINX = """
user root; worker_processes 1; daemon off; pid {place}/pid; error_log {place}/errors;
events {{ }}
http {{
    access_log off; keepalive_requests {requests};
    client_body_temp_path {place}/body; proxy_temp_path {place}/proxy; fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
    server {{ listen {address}; location / {{ root {place}; dav_methods PUT; }} }}
}}
"""
QUERY = "SELECT sum(number) FROM generate_series(1, 10000) AS number;"
CLIENT = """
import socket, sys, time
server = socket.create_connection((sys.argv[1], int(sys.argv[2])))
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    server.sendall(bytes(int(sys.argv[4])))
    server.recv(1)
"""


@pytest.fixture
def windows() -> Iterator[Windows]:
    try:
        found = Windows(Path("/proc"))
    except BpfError as error:
        pytest.skip(str(error))
    yield found
    found.close()


def used(pid: int) -> float:
    """Return the seconds that a process ran or had no CPU."""
    run, wait, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return (int(run) + int(wait)) / 1e9


def seen(
    windows: Windows, toy: str, meanwhile: Callable[[], AbstractContextManager[object]] = nullcontext
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the shares of a toy's client by who is responsible, and what each process used, as shares of the time."""
    with waiting(toy) as pid:
        pids = names_below(pid)
        before = {name: used(child) for name, child in pids.items()}
        windows.open([pid], MANY)
        time.sleep(SECONDS / 2)
        with meanwhile():
            pass
        time.sleep(SECONDS / 2)
        after = {name: used(child) for name, child in pids.items()}  # to end a window may take a while
        window = windows.end()
        truth = {name: (after[name] - before[name]) / window.seconds for name in pids}
    (thread,) = window.threads
    shares: defaultdict[str, float] = defaultdict(float)
    for share in thread.shares:
        name = called(share.by)
        shares[name] += share.seconds / window.seconds
    return shares, truth


@pytest.mark.parametrize(
    ("toy", "name"),
    [
        *((toy, "toyworker") for toy in ("chain", "chain_by_socket", "chain_by_futex", "chain_by_ring")),
        ("chain_by_file_system", "toyworker"),
        *(("proxy", name) for name in ("toyproxy", "toyservice")),
        ("batch", "toycommitter"),
    ],
)
def test_a_process_answers_for_what_it_used(
    windows: Windows, measured: MutableMapping[str, str], toy: str, name: str
) -> None:
    shares, truth = seen(windows, toy)

    measured[name] = f"{shares[name]:.0%} of the time, used {truth[name]:.0%}"
    assert abs(shares[name] - truth[name]) < NEAR


def test_a_cpu_that_goes_and_comes_back_changes_no_share(windows: Windows, measured: MutableMapping[str, str]) -> None:
    shares, truth = seen(windows, "chain", one_cpu_less)

    measured["toyworker"] = f"{shares['toyworker']:.0%} of the time, used {truth['toyworker']:.0%}"
    assert abs(shares["toyworker"] - truth["toyworker"]) < NEAR


def test_of_two_servers_at_once_the_slower_one_answers_for_most(
    windows: Windows, measured: MutableMapping[str, str]
) -> None:
    shares, truth = seen(windows, "parallel")

    for name in ("toyslow", "toyfast"):
        measured[name] = f"{shares[name]:.0%} of the time, used {truth[name]:.0%}"
    assert shares["toyslow"] > 0.5
    assert shares["toyfast"] < truth["toyfast"] + NEAR


@pytest.mark.parametrize("toy", ["pool", "spin", "ahead"])
def test_whoever_serves_answers_for_what_its_clients_wait_for(
    windows: Windows, measured: MutableMapping[str, str], toy: str
) -> None:
    shares, _ = seen(windows, toy)

    served = shares["toyworker"] + shares["toyspinner"] + (shares[Source.TIMER.name] if toy == "pool" else 0.0)
    measured[toy] = f"{served:.0%} of the time"
    assert served > 0.6
    assert shares["toyother"] < NEAR


def test_a_holder_answers_for_a_lock_and_others_that_wait_for_it_do_not(
    windows: Windows, measured: MutableMapping[str, str]
) -> None:
    shares, truth = seen(windows, "lock")

    measured["holder"] = f"{shares['toyholder']:.0%} of the time, used {truth['toyholder']:.0%}"
    measured["others that wait"] = f"{shares['toywaiter']:.1%}"
    assert abs(shares["toyholder"] - truth["toyholder"]) < NEAR
    assert shares["toywaiter"] < NEAR


def test_a_worker_answers_for_its_sleep(windows: Windows, measured: MutableMapping[str, str]) -> None:
    shares, truth = seen(windows, "chain")

    slept = shares[Source.TIMER.name]
    measured["asleep"] = f"{slept:.0%} of the time, the worker used {truth['toyworker']:.0%}"
    assert slept > truth["toyworker"]


@contextmanager
def frontend(
    address: str = "127.0.0.1",
    prefix: Sequence[str] = (),
    *,
    length: int = 1,
    burns: float = 2e-3,
    seconds: int = LONG,
) -> Iterator[list[str]]:
    """Run a server that no rule knows, `prefix` on another host; give the command of its client.

    A request has `length` bytes and costs `burns` seconds of CPU time. The client ends after `seconds`.
    """
    command = [*prefix, sys.executable, "-c", FRONTEND, address, str(length), str(burns)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = process.stdout.readline().strip()
            yield [sys.executable, "-c", CLIENT, address, port, str(seconds), str(length)]
        finally:
            process.kill()


def test_a_full_server_that_no_rule_knows_is_the_limit(watch: Watch, check: Check) -> None:
    with frontend() as client:
        found = watch.judge(client)

    check(Truth((Kind.RESOURCE,), "unknown_thread toyfrontend"), found)


@contextmanager
def postgres() -> Iterator[list[str]]:
    """Run PostgreSQL, which refuses to run as root; give the command of pgbench, whose queries keep its server busy."""
    programs = next(iter(Path("/usr/lib/postgresql").glob("*/bin")), None)
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=KILL"]
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        shutil.chown(place, "postgres")
        data, query = f"{place}/data", Path(place, "query.sql")
        query.write_text(QUERY)
        make = [*as_user, f"{programs}/initdb", "--no-sync", "--auth=trust", data]
        subprocess.run(make, cwd=place, check=True, capture_output=True)
        serve = [*as_user, f"{programs}/postgres", "-D", data, "-k", place, "-c", "listen_addresses="]
        server = stack.enter_context(subprocess.Popen(serve, cwd=place, stderr=subprocess.DEVNULL))
        stack.callback(server.terminate)
        there = ["--host", place, "--username=postgres"]
        ask = [f"{programs}/pg_isready", *there]
        assert until(PATIENCE, lambda: not subprocess.run(ask, capture_output=True, check=False).returncode)
        yield [f"{programs}/pgbench", *there, "--no-vacuum", f"--file={query}", f"--time={LONG}", "postgres"]


def test_a_database_that_no_rule_knows_is_the_limit(watch: Watch, check: Check) -> None:
    with postgres() as pgbench:
        found = watch.judge(pgbench)

    check(Truth((Kind.RESOURCE,), "unknown_thread postgres"), found)


@contextmanager
def object_store() -> Iterator[list[str]]:
    """Run nginx with one worker, which keeps objects by WebDAV; give the command of ab, which puts objects there."""
    if shutil.which("nginx") is None or shutil.which("ab") is None:
        pytest.skip("nginx or ab is not installed")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:  # or the disk is the limit
        address = f"127.0.0.1:{free_port()}"
        content, config = Path(place, "content"), Path(place, "nginx.conf")
        content.write_bytes(bytes(1024))
        config.write_text(NGINX.format(place=place, address=address, requests=MANY))
        with subprocess.Popen(["nginx", "-c", config, "-e", f"{place}/errors"]) as server:
            try:
                assert until(PATIENCE, lambda: Path(place, "pid").exists())
                many = ["-k", "-c", "8", "-t", str(LONG), "-n", str(MANY)]  # the last one counts, as far as it goes
                yield ["ab", "-q", *many, "-u", str(content), f"http://{address}/object"]
            finally:
                server.terminate()


def test_an_object_store_that_no_rule_knows_is_the_limit(watch: Watch, check: Check) -> None:
    with object_store() as ab:
        found = watch.judge(ab)

    check(Truth((Kind.RESOURCE,), "unknown_thread nginx"), found)


@contextmanager
def two_hosts(place: Path, rate: str) -> Iterator[tuple[Watch, Sequence[str], str, Sequence[str], str]]:
    """Make two hosts with an exporter each, and a link between them that has this rate.

    Give what watches both from the first, what runs a command there, the address of the second, what runs one there,
    and the link.
    """
    with faults.shaped_namespace(rate) as (name, address, link), ExitStack() as stack:
        near, far = (stack.enter_context(another_host(*within)) for within in ((), ("ip", "netns", "exec", name)))
        for folder in ("near", "far"):
            (place / folder).mkdir()
        there = stack.enter_context(watching(place / "far", prefix=far, host=address))
        here = stack.enter_context(watching(place / "near", prefix=near, others=[there.address]))
        yield here, near, address, far, link


def test_a_full_server_on_another_host_that_no_rule_knows_is_the_limit(check: Check, tmp_path: Path) -> None:
    with two_hosts(tmp_path, FAST_LINK) as (here, near, address, far, _), frontend(address, far) as client:
        found = here.judge(client, prefix=near)

    check(Truth((Kind.RESOURCE,), "unknown_thread toyfrontend"), found)


def graph_shares(found: Observed) -> dict[str, float]:
    """Return the shares of the nodes of a graph by their names."""
    assert found.verdict.graph is not None, found.story()
    return {str(step.node): step.share for step in found.verdict.graph.steps}


def test_the_time_on_a_slow_link_is_the_networks_and_not_the_servers(
    measured: MutableMapping[str, str], tmp_path: Path
) -> None:
    with (
        two_hosts(tmp_path, SLOW_LINK) as (here, near, address, far, _),
        frontend(address, far, length=REQUEST, burns=2e-4, seconds=LONGER) as client,
    ):
        shares = graph_shares(here.judge(client, prefix=near))

    network = sum(share for name, share in shares.items() if name.startswith("network "))
    measured["network"] = f"{network:.0%}"
    measured["server"] = f"{shares.get('toyfrontend', 0.0):.0%}"
    assert network > 0.7
    assert shares.get("toyfrontend", 0.0) < 0.3


def test_a_chain_leads_from_a_client_to_the_commit_of_an_osd_on_another_host(
    measured: MutableMapping[str, str], tmp_path: Path
) -> None:
    with faults.shaped_namespace(FAST_LINK) as (name, address, _), ExitStack() as stack:
        client = stack.enter_context(another_host("ip", "netns", "exec", name))
        for folder in ("osd", "client"):
            (tmp_path / folder).mkdir()
        cluster = stack.enter_context(Cluster(store="bluestore", address=FAR))
        there = stack.enter_context(watching(tmp_path / "osd", host=FAR))
        here = stack.enter_context(watching(tmp_path / "client", prefix=client, host=address, others=[there.address]))
        bench = ["rados", "bench", "-p", "rbd", str(LONGER), "write", "-t", "1", "-b", "4096", "--no-cleanup"]
        found = here.judge(bench, environment=cluster.environment(), prefix=client)
    shares = graph_shares(found)
    graph = found.verdict.graph
    assert graph is not None
    chain = [str(step.node) for step in graph.steps[1 : 1 + graph.heaviest]]

    behind = sum(share for name, share in shares.items() if name.startswith(("osd.0 ", "kernel of ")))
    measured["OSD and its kernel"] = f"{behind:.0%}"
    measured["chain"] = " <- ".join(chain)
    assert behind > 0.5
    assert [one for one in chain if one.startswith("osd.0 ") and one != "osd.0 bluestore_aio"] == [
        "osd.0 messenger",
        "osd.0 osd_op",
        "osd.0 kv_final",
        "osd.0 kv_sync",
    ]
