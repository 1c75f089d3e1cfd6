"""Every reader of foreign bytes: what users, daemons, servers and the kernel write, and what parses it.

There is one entry for each, called as its callers call it. `test_foreign_bytes.py` tries them with changed seeds, and
fuzz.py searches for inputs that break them. An entry raises `AssertionError` where the result is not what callers rely
on: a label that can't be printed, a negative counter, a number that is not finite.
"""

from __future__ import annotations

import gzip
import io
import math
import re
import socket
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from unittest.mock import patch
from urllib.parse import urlsplit

import msgspec

import reader_seeds as seeds
from machine import Machine
from pinchpoint.benchmarks import fio, ior, mdtest, talk
from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.detector import Detector, merged
from pinchpoint.benchmarks.events import Ended, Event, Scored, bounded
from pinchpoint.benchmarks.io500_detail import Nodes, PhaseText, RankTable, rank_times
from pinchpoint.benchmarks.io500_folder import Folders
from pinchpoint.benchmarks.io500_hash import config_hash, score_hash
from pinchpoint.benchmarks.io500_output import ResultFile
from pinchpoint.benchmarks.io500_plan import ini_sections, phase_of_command, phases_of, plan_of
from pinchpoint.benchmarks.job_marks import JobMark, JobMarks
from pinchpoint.benchmarks.markers import Marker, RunDirectory
from pinchpoint.benchmarks.output import OutputReader
from pinchpoint.benchmarks.pattern import pattern
from pinchpoint.benchmarks.reading import KINDS, TextReader, date_in
from pinchpoint.benchmarks.registry import BENCHMARKS
from pinchpoint.benchmarks.result_files import FoundFile, ResultFilesError, archive_files
from pinchpoint.benchmarks.wrappers import programs
from pinchpoint.bpf.tasks import _field
from pinchpoint.ceph.asok import MAX_ANSWER_BYTES, AdminSocketError, Conversation
from pinchpoint.ceph.follower import DaemonReader, Follower
from pinchpoint.ceph.perf import PerfDump, parse_option, parse_version
from pinchpoint.ceph.sockets import AdminSocket, listening_sockets
from pinchpoint.ceph.waiting import LibraryReader, MountReader
from pinchpoint.config import Config, ConfigError, check_config
from pinchpoint.diagnosis.io500_rules import result_folder
from pinchpoint.experiment.journal import JournalError, read_journal
from pinchpoint.experiment.ledger import LedgerError, read_experiment
from pinchpoint.grafana import Board, boards, data_source
from pinchpoint.host.capabilities import CapabilitySets
from pinchpoint.host.cgroupfs import (
    SERVICE_FILES,
    parse_cgroup,
    parse_cpu_max,
    parse_cpu_stat,
    parse_hierarchies,
    parse_io_max,
    parse_io_stat,
    parse_memory_events,
    parse_memory_limit,
    parse_service,
    parse_throttle,
)
from pinchpoint.host.netlink import attributes, parse_messages
from pinchpoint.host.process_cost import parse_private
from pinchpoint.host.procfs import (
    FormatError,
    kworker_work,
    parse_cpu_list,
    parse_cpu_times,
    parse_cpus_allowed,
    parse_file_info,
    parse_mounts,
    parse_process_io,
    parse_real_uid,
    parse_schedstat,
    parse_sleeps,
    parse_stat,
    parse_thread_group,
)
from pinchpoint.host.qdisc import parse_links, parse_qdiscs
from pinchpoint.host.sockdiag import parse_connections, parse_listening
from pinchpoint.host.sysfs import read_int, read_text
from pinchpoint.host.tcptable import parse_tcp_table
from pinchpoint.host.users import parse_passwd, parse_subuid
from pinchpoint.judge.client import JudgeError, parse_verdicts
from pinchpoint.metrics import HTTP_REFUSED_CONNECTIONS
from pinchpoint.model import Snapshot
from pinchpoint.probes.ceph_client import ClientReader
from pinchpoint.probes.ceph_daemons import _Alive
from pinchpoint.probes.ceph_kernel import parse_latency, parse_mdsc, parse_osdc, parse_status
from pinchpoint.probes.devices import parse_disk, parse_link
from pinchpoint.probes.host_facts import (
    HostFacts,
    allocator,
    distribution,
    huge_pages,
    parse_inet6,
    parse_routes,
    swap_kinds,
    swapped_bytes,
)
from pinchpoint.probes.mds import MdsReader, parse_cache_bytes
from pinchpoint.probes.memory import parse_pressure, parse_vmstat
from pinchpoint.probes.osd import OsdReader, parse_blocked_ops
from pinchpoint.profile import classes
from pinchpoint.profile.cfi import Budget, CfiError, FrameTable, Row
from pinchpoint.profile.classes import load_costs
from pinchpoint.profile.demangle import short_name
from pinchpoint.profile.elf import Elf, ElfError
from pinchpoint.profile.kernel import KernelSymbols
from pinchpoint.profile.maps import parse_maps
from pinchpoint.profile.perf_events import parse_records
from pinchpoint.profile.symbols import Symbols
from pinchpoint.profile.unwind import MissingError, Stack, evaluate, unwind
from pinchpoint.report.folder import folder_lines
from pinchpoint.runs import MAX_FIGURE, PhaseMark, RunState
from pinchpoint.session import store
from pinchpoint.session.samples import Samples
from pinchpoint.session.stacks import parse_stacks, read_stacks
from pinchpoint.threads import roles
from pinchpoint.threads.fair_mutex import parse_tickets, tickets_before
from pinchpoint.threads.lock_state import parse_futex_wait
from pinchpoint.threads.processes import Process, ceph_id
from pinchpoint.threads.pthread_mutex import mutex_at, parse_mutex
from pinchpoint.threads.roles import load_roles
from pinchpoint.threads.task_source import _parse_stat_times
from pinchpoint.tomlfile import decode_toml
from pinchpoint.waits import stack_rules
from pinchpoint.waits.stack_rules import Stacks, load_waits
from pinchpoint.wire import fetch
from pinchpoint.wire.addresses import AddressError, parse_address
from pinchpoint.wire.basic_auth import Answer, Passwords, credentials
from pinchpoint.wire.connections import Refusals
from pinchpoint.wire.fetch import Fetcher, FetchError
from pinchpoint.wire.grafana_api import GrafanaApi, GrafanaError, install
from pinchpoint.wire.http import Server, application, serve
from pinchpoint.wire.prometheus import PrometheusError, raw_series
from pinchpoint.wire.prometheus_hosts import _instant, known
from pinchpoint.wire.recording import read_recording
from pinchpoint.wire.sampletext import parse_head, split_sample
from pinchpoint.wire.sources import PrometheusSource, SourceError, parse_exposition
from profile_samples import MAPS, PROGRAM, RECORDS

__all__ = ["READERS", "Reader", "reader_named"]

NOW = 1_700_000_000.0
EXPRESSIONS = (b"\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22", b"w\xa0\x01", b"0\x23\x08")
"""That of .plt (binutils, bfd/elfxx-x86.c), that of __restore_rt (glibc), and 0 + 8."""
RUN = "20231114T221320Z-base"
URL = "http://127.0.0.1:9"


@dataclass(frozen=True)
class Reader:
    """A function that reads foreign bytes."""

    name: str
    """The name of its entry, and of its directory in `tests/fixtures/found/`."""
    read: Callable[[bytes], object]
    """Reads the bytes as its callers do; raises AssertionError for a result that they could not use."""
    seeds: Callable[[], Sequence[bytes]]
    """Bytes that it is written for."""
    rejects: tuple[type[Exception], ...] = ()
    """What it may raise for bytes that are not of its format."""
    lines: bool = False
    """Whether it reads line after line, so that a short input can be all that a long one is."""


@cache
def scratch() -> Path:
    """Return a directory for readers that take a path; it lasts as long as this process."""
    directory = tempfile.TemporaryDirectory(prefix="readers-")
    KEPT.append(directory)
    return Path(directory.name)


KEPT: list[tempfile.TemporaryDirectory[str]] = []


def in_file(read: Callable[[Path], object], name: str = "file") -> Callable[[bytes], object]:
    """Return a reader of bytes for one that takes a path."""

    def wrapped(raw: bytes) -> object:
        path = scratch() / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(raw)
        return read(path)

    return wrapped


def printable(texts: Iterable[str]) -> None:
    assert all(text.isprintable() for text in texts)


def counts(numbers: Iterable[float]) -> None:
    assert all(0 <= number < math.inf for number in numbers)


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def words(raw: bytes) -> list[str]:
    """Return a command line as `pinchpoint.benchmarks.tree.Tree` does."""
    return [text(word) for word in raw.split(b"\0")[:-1]]


# What users' benchmarks print, and the files that they write.


def told(reader: OutputReader, raw: bytes) -> list[Event]:
    """Return the events in an output that comes in two pieces, as they are taken in: what they hold can be exported."""
    half = len(raw) // 2
    events = [bounded(event) for event in (*reader.feed(raw[:half]), *reader.feed(raw[half:]), *reader.close())]
    for event in events:
        results = event.results if isinstance(event, Ended) else event.scores if isinstance(event, Scored) else ()
        assert all(0 <= result.value <= MAX_FIGURE for result in results)
    return events


def output(kind: type[Benchmark]) -> Reader:
    def own() -> Sequence[bytes]:
        name = kind.name.removeprefix("ceph_").replace("_", "-")
        return (
            *seeds.captured(kind.name),
            *(raw for folder in ("bench", "seeds", kind.name) for raw in seeds.contents(f"fixtures/{folder}/{name}*")),
            *(seeds.contents("fixtures/fio/*.txt") if kind.name == "fio" else ()),
        )

    return Reader(f"output-{kind.name}", lambda raw: told(kind.reader(), raw), own, lines=True)


OWN_BENCHMARK = pattern("own", ["own"], re.compile(r"^(?P<phase>\w+): (?P<value>\S+) (?P<unit>\S+)"))


def texts(raw: bytes) -> object:
    reader = TextReader(KINDS)
    reader.feed(raw)
    return [msgspec.json.encode(run.state) for run in reader.close(NOW)]


def heard(raw: bytes) -> object:
    detector = Detector(BENCHMARKS, watch=None)
    detector.hear(raw, NOW, named=BENCHMARKS[:1])
    return msgspec.json.encode(merged(detector.followed, "r", NOW))


def phase_text(raw: bytes) -> object:
    reader = PhaseText("ior_easy_write", "a.txt")
    reader.feed(raw)
    reader.close()
    printable([*reader.hosts.values()])
    return msgspec.json.encode(reader.detail)


def ranks(raw: bytes) -> object:
    table = RankTable("mdtest_hard_read")
    table.feed(raw)
    table.close()
    found = rank_times(table.seconds, Nodes(10, 16), {})
    return [*table.notes("a.csv", 160)], msgspec.json.encode(found)


def folder(raw: bytes) -> object:
    """Read a result file in a folder, and all that is said about it."""
    folders = Folders()
    folders.take(FoundFile("a/result.txt", len(raw), NOW, lambda: iter([raw])))
    found = [(result_folder(run), run.run.state) for run in folders.runs(NOW)]
    return [(msgspec.json.encode(known), [*folder_lines(known, state)]) for known, state in found]


def hashes(raw: bytes) -> object:
    return config_hash(text(raw)), score_hash(text(raw))


def archive(path: Path) -> object:
    return [(file.name, b"".join(file.pieces())) for file in archive_files(path, lambda line: None)]


def archives() -> Sequence[bytes]:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as packed:
        packed.add(Path(__file__).parent / "fixtures" / "io500" / "cephfs-2019", "results")
    return [found.getvalue()[: 32 << 10]]


def fio_plan(raw: bytes) -> object:
    groups = fio.plan(words(raw), lambda name: name)
    assert all(group.processes > 0 for group in groups)
    return groups


def job_file(raw: bytes) -> object:
    return fio.plan(["fio", "job"], lambda name: text(raw), lambda name: name)


def ior_script(raw: bytes) -> object:
    return ior.plans(["ior", "-f", "x"], text(raw))


def io500_command(raw: bytes) -> object:
    return plan_of(words(raw), 2), phase_of_command(words(raw))


def helper_answers(raw: bytes) -> object:
    return [*talk.answers(bytearray(raw))]


def helper_said() -> Sequence[bytes]:
    runs = (msgspec.json.decode(raw, type=RunState) for raw in markers())
    found = [talk.Found(10 + place, 100, "fio", NOW, None, run) for place, run in enumerate(runs)]
    said: Sequence[talk.Answer] = (talk.Said("a line"), *found, talk.Done(1))
    return [b"".join(talk.message(one) for one in said)]


def users(raw: bytes) -> object:
    found = parse_passwd(raw)
    printable(found)
    counts(found.values())
    ranges = parse_subuid(raw, {"ceph": 64045})
    counts(number for one in ranges for number in one)
    return found, ranges


def marker(raw: bytes) -> object:
    runs = RunDirectory(scratch() / "runs")
    runs.create()
    (runs.path / "r.json").write_bytes(raw)
    found = runs.markers(NOW)
    assert runs.command_pids(NOW) == runs.commands
    return [msgspec.json.encode(one) for one in found]


def job_mark(raw: bytes) -> object:
    marks = JobMarks(scratch() / "jobs")
    (scratch() / "jobs").mkdir(exist_ok=True)
    (scratch() / "jobs/1.job").write_bytes(raw)
    found = marks.running()
    assert all(mark.job == "1" for mark in found)
    return [msgspec.json.encode(one) for one in found]


def job_marks() -> Sequence[bytes]:
    return [msgspec.json.encode(JobMark("1", 1000, "alice", NOW))]


def a_marker(run: str) -> Marker:
    marks = [PhaseMark("write", NOW, NOW + 10), PhaseMark("read", NOW + 10)]
    return Marker(run, "fio", NOW, None, phases=marks, pid=1, pid_start=2, command_pid=3, tags={"host": "a"})


def markers() -> Sequence[bytes]:
    return [msgspec.json.encode(a_marker("r"))]


def run_records() -> Sequence[bytes]:
    return [msgspec.json.encode(store.RunRecord(a_marker(RUN), ["fio", "a"], 0, facts={"here": {"kernel": ["6.1"]}}))]


def run_record(path: Path) -> object:
    return msgspec.json.encode(store.load(path.parent))


# What the kernel shows: names in it are those of users' processes, mounts, groups and interfaces.


def stat(raw: bytes) -> object:
    found = parse_stat(raw)
    printable([found.comm])
    return found, _parse_stat_times(raw)


def futex_wait(raw: bytes) -> object:
    wait = parse_futex_wait(raw, "x86_64")
    return wait and (tickets_before(wait), mutex_at(wait))


def cpu_times(raw: bytes) -> object:
    found = parse_cpu_times(raw)
    counts(value for cpu in found.values() for value in cpu)
    return found


def cpus(parse: Callable[[bytes], frozenset[int]], raw: bytes) -> object:
    found = parse(raw)
    assert all(0 <= cpu < 1 << 14 for cpu in found)
    return found


def file_info(raw: bytes) -> object:
    found = parse_file_info(raw)
    counts([found.mount, found.flags])
    return found


def process_io(raw: bytes) -> object:
    found = parse_process_io(raw)
    counts(found)
    return found


def mounts(raw: bytes) -> object:
    found = parse_mounts(raw)
    for mount in found:
        printable([mount.source, mount.device])
        counts([mount.number or 0])
    for hierarchy in parse_hierarchies(raw, Path("/sys"), Path("/")):
        printable(map(str, hierarchy.chain({"": "/", "cpu": "/", "memory": "/", "blkio": "/"})))
    return found


def cgroup(raw: bytes) -> object:
    found = parse_cgroup(raw)
    printable(found.values())
    return found


def io_limits(raw: bytes) -> object:
    found = [*parse_io_max(raw), *parse_throttle(raw, "rbps")]
    counts(limit.value for limit in found)
    return found


def io_use(raw: bytes) -> object:
    found = [parse_io_stat(raw), *(parse_service(raw, keys) for keys in SERVICE_FILES.values())]
    for used in found:
        counts(used.values())
        assert all(device.count(":") == 1 for device, _ in used)
    return found


def messages(raw: bytes) -> object:
    found, _ = parse_messages(raw)
    assert all(message.body in raw for message in found)
    return found, [list(attributes(message.body, 0, len(message.body))) for message in found]


def queues(raw: bytes) -> object:
    found, _ = parse_qdiscs(raw)
    printable(queue.kind for queue in found)
    counts(queue.backlog for queue in found)
    return found


def links(raw: bytes) -> object:
    found, _ = parse_links(raw)
    printable(name for _, name in found)
    return found


def sysfs_value(path: Path) -> object:
    found = read_text(path)
    printable([found or ""])
    return found, read_int(path)


def networks(raw: bytes) -> object:
    found = [*parse_routes(raw), *parse_inet6(raw)]
    printable(name for name, _ in found)
    assert all(network.prefixlen <= network.max_prefixlen for _, network in found)
    return found, swap_kinds(raw), swapped_bytes(raw), huge_pages(raw), allocator(raw), distribution(raw)


@cache
def machine() -> Machine:
    return Machine(scratch() / "machine")


@cache
def facts_probe() -> HostFacts:
    return HostFacts(machine().host())


def host_facts(raw: bytes) -> object:
    for path in ("cpuinfo", "meminfo", "cmdline", "swaps", "1/net/route", "1/mountinfo", "sys/kernel/osrelease"):
        machine().write(f"proc/{path}", raw)
    found = dict(facts_probe()._read())
    printable(value or "" for value in found.values())
    return found


def numbers(parse: Callable[[bytes], int | None], raw: bytes) -> object:
    found = parse(raw)
    counts([found or 0])
    return found


def vmstat(raw: bytes) -> object:
    found = parse_vmstat(raw)
    counts(found.values())
    return found


def latencies(raw: bytes) -> object:
    found = parse_latency(raw)
    printable(found)
    counts(number for latency in found.values() for number in latency)
    return found


def disk(raw: bytes) -> object:
    found = parse_disk(raw)
    counts([found.ios])
    return found


def link(raw: bytes) -> object:
    found = parse_link(raw)
    counts([found.received])
    return found


def stack(raw: bytes) -> object:
    found = Stacks(WAITS).look(raw, 1.0)
    assert len(found.frames) <= 64
    assert all(frame and frame.isascii() and len(frame) <= 128 for frame in found.frames)
    return found


WAITS = load_waits()
ROLES = load_roles()


# What Ceph daemons and clients answer.


ANSWERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def take(make: Callable[[], DaemonReader], raw: bytes) -> object:
    """Give a reader two rounds of answers: an object of them by question, or else the bytes as the answer to each."""
    reader = make()
    try:
        answers = {question: bytes(answer) for question, answer in ANSWERS.decode(raw).items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        answers = {}
    if not any(question.key in answers for question in reader.questions):
        answers = {question.key: raw for question in reader.questions}
    for now in (0.0, 1.0):
        reader.take(now, answers)
    found = list(reader.points("name"))
    counts(point.value for point in found)
    return found


def client(raw: bytes) -> object:
    reader = ClientReader()
    for now in (0.0, 1.0):
        reader.take(now, {"perf dump": raw})
    counts(value for values in reader.reading for value in values.values())
    return reader.reading


def waiting(raw: bytes) -> object:
    library, mount = LibraryReader(), MountReader()
    for reader in (library, mount):
        reader.take(0.0, {question.key: raw for question in reader.questions})
    return library.looked, mount.looked


def identity(raw: bytes) -> object:
    process = Process(1, 2, "ceph-osd", "ceph-osd", "osd.0")
    follower = Follower(scratch(), process, AdminSocket(scratch(), "/x.asok", scratch()), _Alive())
    follower._identify({"version": raw, "config get fsid": raw})
    follower.reader.take(0.0, {"version": raw})
    assert len(follower.version) <= 64
    assert len(follower.cluster) <= 64
    return follower.version, follower.cluster


def counters(raw: bytes) -> object:
    dump = PerfDump.parse(raw)
    names = dump.loggers()[:100]
    values = [dump.value(name, "op_active", "request", "val") or 0.0 for name in names]
    assert all(map(math.isfinite, values))
    return values, [dump.average(name, "lat", "reply_latency", "kv_sync_lat") for name in names]


def option(raw: bytes) -> object:
    return parse_option(raw), parse_version(raw)


def sockets(raw: bytes) -> object:
    found = listening_sockets(raw)
    assert all(path.startswith("/") for path in found.values())
    return found


def admin_socket(raw: bytes) -> object:
    conversation = Conversation.__new__(Conversation)
    conversation._received, conversation._limit = bytearray(), MAX_ANSWER_BYTES
    with said_by_peer(raw) as (conversation._socket, _):
        return conversation.answer(30)


@contextmanager
def said_by_peer(raw: bytes) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Give a connection, and its other end: as much as fits into its buffer was sent there, and no more will come."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        with suppress(BlockingIOError):
            theirs.sendall(raw)
        theirs.shutdown(socket.SHUT_WR)
        yield ours, theirs


# What programs are made of, and samples of them.


def elf(raw: bytes) -> object:
    found = Elf(lambda offset, size: raw[offset : offset + size])
    symbols = Symbols(found, lambda build_id: lambda offset, size: raw[offset : offset + size])
    names = [symbols.name(address) for address in range(0, 0x400, 16)]
    printable(name for name in names if name is not None)
    printable(section.name for section in found.sections)
    return found.build_id, names


def frame_rows(raw: bytes) -> object:
    table, budget = FrameTable(Elf(lambda offset, size: raw[offset : offset + size])), Budget()
    return [table.row(address, budget) for address in range(0, 0x400, 16)]


def mappings(raw: bytes) -> object:
    found = parse_maps(raw).mappings
    printable(mapping.path for mapping in found)
    return found


@cache
def toy_rows() -> FrameTable:
    return FrameTable(Elf(lambda offset, size: PROGRAM[offset : offset + size]))


def samples(raw: bytes) -> object:
    found = parse_records(raw)
    assert found.lost >= 0
    mapped = parse_maps(MAPS)

    def row(address: int, budget: Budget) -> Row | None:
        mapping = mapped.find(address)
        return None if mapping is None else toy_rows().row(address - mapping.start, budget)

    return [unwind(one.registers, one.stack, row, lambda at: True) for one in found.samples if one.registers]


def frame_expression(raw: bytes) -> object:
    return evaluate(raw, range(0x7000, 0x7011), Stack(0x7000, bytes(range(256))), 0x7010)


def kernel_symbols(raw: bytes) -> object:
    found = KernelSymbols(io.BytesIO(raw))
    names = [found.name(address << 60) for address in range(16)]
    printable(name for name in names if name is not None)
    return names


# What comes over the network, and what was saved of it.


@cache
def server() -> Server:
    """Return an exporter's server, which never accepts a connection by itself."""
    app = application(tuple, "/metrics")
    found = serve(("127.0.0.1", 0), app, Refusals(HTTP_REFUSED_CONNECTIONS))
    found.socket.close()
    return found


def password(raw: bytes) -> object:
    found = credentials(raw.decode("latin-1"))
    if found is None:
        return None
    answer = Passwords(matches=bytes.__eq__).check({"alice": "secret"}, *found, "192.0.2.1")
    assert answer is not Answer.RIGHT or found == ("alice", b"secret")
    return answer


def http_request(raw: bytes) -> object:
    with said_by_peer(raw) as (ours, theirs):
        assert server().verify_request(ours, ("127.0.0.1", 1))
        server().finish_request(ours, ("127.0.0.1", 1))
        server().shutdown_request(ours)
        with suppress(BlockingIOError):
            answer = theirs.recv(1 << 16)
            assert b" 500 " not in answer.partition(b"\n")[0]
            return answer
    return b""


def http_answer(raw: bytes) -> object:
    fetcher = Fetcher(30.0)
    fetcher._connection, fetcher._server = fetch._connection(urlsplit(URL), 30.0), ("http", "127.0.0.1:9")
    with said_by_peer(raw) as (fetcher._connection.sock, _):
        return fetcher.get(URL)


class Said(Fetcher):
    """A fetcher that gives the same answer to each question, or an error response with it."""

    def __init__(self, body: bytes, *, error: bool = False) -> None:
        super().__init__(1.0)
        self.body = body
        self.error = error

    def get(self, url: str, parameters: object = None) -> bytes:
        if self.error:
            raise FetchError("400 Bad Request", self.body)
        return self.body


def series(raw: bytes) -> object:
    return [one.labels() for one in raw_series(Said(raw), URL, "up", 1.0)]


def refused_query(raw: bytes) -> object:
    return raw_series(Said(raw, error=True), URL, "up", 1.0)


def prometheus_hosts(raw: bytes) -> object:
    return known(_instant(Said(raw), URL, "up"))


def prometheus_source(raw: bytes) -> object:
    source = PrometheusSource(URL, clock=lambda: 1.0)
    source._fetcher = Said(raw)
    return source.snapshots()


GRAFANA_ANSWERS = (
    b'{"database":"ok","version":"12.3.0"}',
    b'{"dashboard":{"uid":"x","title":"T","revision":5},"meta":{"folderUid":"pinchpoint","provisioned":false}}',
    b'{"uid":"pinchpoint-prometheus","type":"prometheus","url":"http://p:9090","jsonData":{},"readOnly":false}',
    b'[{"type":"prometheus"}]',
)


class Answering(Fetcher):
    """Says the same to everybody."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(1.0)
        self._raw = raw

    def get(self, url: str, parameters: Mapping[str, str] | None = None) -> bytes:
        return self._raw

    def send(self, method: str, url: str, document: bytes) -> bytes:
        return self._raw


@cache
def two_boards() -> list[Board]:
    return boards()[:2]


def grafana_answers(raw: bytes) -> None:
    """Install two dashboards into a Grafana that answers the same to every question."""
    api = GrafanaApi(Answering(raw), "http://grafana")
    api.release()
    source = data_source("http://p:9090")
    list(install(api, two_boards(), folder_uid="f", source=source, message="", dry_run=False))


def exposition(raw: bytes) -> Snapshot:
    return parse_exposition(text(raw), NOW)


def recording(path: Path) -> object:
    moments, samples = list(read_recording(path)), Samples(path)
    assert all(snapshot.time >= 0 for moment in moments for snapshot in moment.values())
    return moments, samples.windows([PhaseMark("write", NOW, NOW + 5)])


def packed_recording(path: Path) -> object:
    path.write_bytes(gzip.compress(path.read_bytes(), 1))
    return recording(path)


def sample_line(raw: bytes) -> object:
    name, labels = parse_head(split_sample(text(raw))[0])
    assert name
    assert list(labels) == sorted(labels)
    return name, labels


def expositions() -> Sequence[bytes]:
    return *seeds.contents("golden/*.prom"), *seeds.contents("fixtures/ceph/mgr_prometheus/*.prom")


STACKS = b"write;osd1:9748;kv_sync of osd.0;main;rocksdb::DBImpl::Write(rocksdb::WriteBatch*);memcpy 30\n" * 20


def sample_lines() -> Sequence[bytes]:
    return [line for raw in expositions() for line in raw.split(b"\n")[:200] if line[:1] != b"#"]


def verdicts() -> Sequence[bytes]:
    from judge.test_service import judged

    return [msgspec.json.encode(judged().to_json())]


def config(raw: bytes) -> object:
    found = decode_toml(raw, Config, "config")
    check_config(found, "config")
    return found


def rules(load: Callable[[Path], object], module: ModuleType) -> Callable[[bytes], object]:
    """Return a reader for a user's rules, which come in front of the built-in ones: these are read once."""
    builtin = cache(module._builtin_file)

    def wrapped(path: Path) -> object:
        with patch.object(module, "_builtin_file", builtin):
            return load(path)

    return in_file(wrapped)


READERS: tuple[Reader, ...] = (
    *map(output, BENCHMARKS),
    Reader(
        "output-of-a-pattern",
        lambda raw: told(OWN_BENCHMARK.reader(), raw),
        lambda: [b"write: 1,234.5 MiB/s\n"],
        lines=True,
    ),
    Reader("output-of-a-command", heard, lambda: seeds.contents("fixtures/captures/*/stdout.txt")[::8], lines=True),
    Reader(
        "io500-result",
        lambda raw: told(ResultFile(), raw),
        lambda: seeds.captured("io500", "result*.txt"),
        lines=True,
    ),
    Reader("io500-config", lambda raw: phases_of(ini_sections(text(raw))), lambda: seeds.captured("io500", "*.ini")),
    Reader("io500-phase-text", phase_text, lambda: seeds.contents("fixtures/io500/*/*write.txt"), lines=True),
    Reader("io500-ranks", ranks, lambda: seeds.contents("fixtures/io500/*/*.csv"), lines=True),
    Reader("io500-folder", folder, lambda: seeds.contents("fixtures/io500/*/result*.txt"), lines=True),
    Reader("io500-hashes", hashes, lambda: seeds.contents("fixtures/io500/*/config.ini")),
    Reader("archive", in_file(archive, "run.tar"), archives, (ResultFilesError,)),
    Reader("io500-command", io500_command, seeds.command_lines),
    Reader("fio-job-file", job_file, lambda: [seeds.JOBS]),
    Reader("fio-command", fio_plan, seeds.command_lines),
    Reader("ior-script", ior_script, lambda: [seeds.SCRIPT]),
    Reader("ior-command", lambda raw: ior.plans(words(raw)), seeds.command_lines),
    Reader("mdtest-command", lambda raw: mdtest.MdtestPlan.of(words(raw)), seeds.command_lines),
    Reader("wrapped-command", lambda raw: programs(words(raw)), seeds.command_lines),
    Reader("ceph-command", lambda raw: ceph_id(words(raw)), seeds.command_lines),
    Reader("text", texts, lambda: seeds.contents("fixtures/seeds/*.txt"), lines=True),
    Reader(
        "date",
        date_in,
        lambda: seeds.DATES,
    ),
    Reader("marker", marker, markers),
    Reader("job_mark", job_mark, job_marks),
    Reader("helper-answers", helper_answers, helper_said, (FormatError,)),
    Reader("run-record", in_file(run_record, f"{RUN}/run.json"), run_records, (store.StoreError,)),
    Reader("stat", stat, seeds.stat_lines, (FormatError,)),
    Reader("schedstat", parse_schedstat, lambda: seeds.archived("proc/*/schedstat")[:20], (FormatError,)),
    Reader("cpu-times", cpu_times, lambda: seeds.archived("proc/stat"), (FormatError,)),
    Reader("cpu-list", partial(cpus, parse_cpu_list), lambda: seeds.STATUS, (FormatError,)),
    Reader("futex-wait", futex_wait, lambda: (seeds.WAITS_FOR_A_TURN, seeds.WAITS_FOR_A_MUTEX, b"running\n")),
    Reader("tickets", parse_tickets, lambda: (bytes.fromhex("09c9010009c90100"),)),
    Reader("mutex", parse_mutex, lambda: (bytes.fromhex("0200000000000000d20400000100000000000000"),)),
    Reader("cpus-allowed", partial(cpus, parse_cpus_allowed), lambda: seeds.STATUS, (FormatError,)),
    Reader("real-uid", partial(numbers, parse_real_uid), lambda: seeds.STATUS, (FormatError,)),
    Reader("thread-group", partial(numbers, parse_thread_group), lambda: seeds.STATUS, (FormatError,)),
    Reader("sleeps", partial(numbers, parse_sleeps), lambda: seeds.STATUS, (FormatError,)),
    Reader("process-io", process_io, lambda: [seeds.PROCESS_IO], (FormatError,)),
    Reader("users", users, lambda: [seeds.USERS, b"ceph:100000:65536\n1000:231072:65536\n"]),
    Reader("private-memory", partial(numbers, parse_private), lambda: [seeds.ROLLUP], (FormatError,)),
    Reader("status-field", lambda raw: _field(raw, b"NSpid"), lambda: seeds.STATUS),
    Reader("kworker", lambda raw: kworker_work(text(raw)), lambda: seeds.KWORKERS),
    Reader("file-info", file_info, lambda: [b"pos:\t2108\nflags:\t0100001\nmnt_id:\t27\nino:\t1\n"], (FormatError,)),
    Reader("mounts", mounts, lambda: seeds.MOUNTS),
    Reader("cgroup", cgroup, lambda: seeds.CGROUPS),
    Reader("cpu-limit", parse_cpu_max, lambda: seeds.CGROUPS, (FormatError,)),
    Reader("cpu-throttling", parse_cpu_stat, lambda: seeds.CGROUPS, (FormatError,)),
    Reader("memory-limit", parse_memory_limit, lambda: seeds.CGROUPS, (FormatError,)),
    Reader("memory-events", parse_memory_events, lambda: seeds.CGROUPS, (FormatError,)),
    Reader("io-limits", io_limits, lambda: seeds.CGROUPS),
    Reader("io-use", io_use, lambda: seeds.CGROUPS),
    Reader("netlink", messages, seeds.netlink, (FormatError, OSError)),
    Reader("queues", queues, seeds.netlink, (FormatError, OSError)),
    Reader("links", links, seeds.netlink, (FormatError, OSError)),
    Reader("tcp-table", parse_tcp_table, lambda: [seeds.TCP_TABLE]),
    Reader("connections", parse_connections, seeds.netlink, (FormatError, OSError)),
    Reader("listening", parse_listening, seeds.netlink, (FormatError, OSError)),
    Reader("capabilities", CapabilitySets.unpack, lambda: [bytes(12) + b"\x80\0\0\0" + bytes(8)], (ValueError,)),
    Reader("sysfs-value", in_file(sysfs_value), lambda: [b"1500\n", b"up\n", b"[always] madvise never\n"]),
    Reader("networks", networks, lambda: seeds.NETWORKS),
    Reader(
        "host-facts",
        host_facts,
        lambda: (*seeds.archived("proc/*info"), b"BOOT_IMAGE=/v ro numa=fake=4 quiet"),
        lines=True,
    ),
    Reader(
        "disk",
        disk,
        lambda: seeds.archived_lines("proc/diskstats"),
        (FormatError,),
    ),
    Reader(
        "link",
        link,
        lambda: seeds.archived_lines("proc/net/dev"),
        (FormatError,),
    ),
    Reader("vmstat", vmstat, lambda: seeds.archived("proc/vmstat"), (FormatError,)),
    Reader("pressure", partial(numbers, parse_pressure), lambda: seeds.archived("proc/pressure/*"), (FormatError,)),
    Reader("kernel-osdc", partial(numbers, parse_osdc), lambda: seeds.archived("*/osdc"), (FormatError,)),
    Reader("kernel-mdsc", partial(numbers, parse_mdsc), lambda: seeds.archived("*/mdsc"), (FormatError,)),
    Reader("kernel-status", parse_status, lambda: seeds.archived("*/status"), (FormatError,)),
    Reader("kernel-latency", latencies, lambda: seeds.archived("*/metrics/latency"), (FormatError,)),
    Reader("stack", stack, lambda: seeds.STACK),
    Reader("elf", elf, lambda: [PROGRAM], (ElfError,)),
    Reader("frame-rows", frame_rows, lambda: [PROGRAM], (ElfError, CfiError)),
    Reader("maps", mappings, lambda: [MAPS]),
    Reader("stack-samples", samples, lambda: [RECORDS]),
    Reader("frame-expression", frame_expression, lambda: EXPRESSIONS, (CfiError, MissingError)),
    Reader("kernel-symbols", kernel_symbols, lambda: [b"ffffffff81000000 T _stext\nffffffffc0000000 t f\t[ceph]\n"]),
    Reader("function-name", lambda raw: short_name(text(raw)), lambda: [b"_ZNSt6vectorIN1a1bELi4EE4pushEv", b"malloc"]),
    Reader("unix-sockets", sockets, lambda: [seeds.UNIX_TABLE]),
    Reader("admin-socket", admin_socket, lambda: [b"\0\0\0\2{}", b"\0\0\0\x09ERROR: (x"], (AdminSocketError,)),
    Reader("perf-dump", counters, seeds.ceph_counters, (FormatError,)),
    Reader("ceph-option", option, seeds.option_answers, (FormatError,)),
    Reader("ceph-identity", identity, seeds.option_answers, (FormatError,)),
    Reader("mds", partial(take, lambda: MdsReader(ROLES)), lambda: seeds.ceph_answers("mds"), (FormatError,)),
    Reader("mds-cache", partial(numbers, parse_cache_bytes), seeds.option_answers, (FormatError,)),
    Reader("osd", partial(take, lambda: OsdReader(ROLES)), lambda: seeds.ceph_answers("osd"), (FormatError,)),
    Reader("osd-blocked-ops", partial(numbers, parse_blocked_ops), seeds.option_answers, (FormatError,)),
    Reader("ceph-client", client, seeds.ceph_counters, (FormatError,)),
    Reader("ceph-waits", waiting, seeds.ceph_counters, (FormatError,)),
    Reader("http-request", http_request, lambda: seeds.REQUESTS),
    Reader("password", password, lambda: seeds.PASSWORDS),
    Reader("http-answer", http_answer, lambda: seeds.RESPONSES, (FetchError,)),
    Reader("prometheus-series", series, seeds.prometheus_answers, (PrometheusError, ValueError)),
    Reader("prometheus-error", refused_query, seeds.prometheus_answers, (PrometheusError,)),
    Reader("prometheus-hosts", prometheus_hosts, seeds.prometheus_answers, (PrometheusError,)),
    Reader("prometheus-source", prometheus_source, seeds.prometheus_answers, (SourceError,)),
    Reader("exposition", exposition, expositions, (ValueError,), lines=True),
    Reader("sample-line", sample_line, sample_lines, (ValueError,)),
    Reader("saved-stacks", read_stacks, lambda: [gzip.compress(STACKS)]),
    Reader("saved-stacks-text", lambda raw: list(parse_stacks(text(raw))), lambda: [STACKS]),
    Reader("recording", in_file(recording), seeds.packed_recordings, (ValueError,)),
    Reader("recording-text", in_file(packed_recording), seeds.recordings, (ValueError,)),
    Reader("grafana", grafana_answers, lambda: GRAFANA_ANSWERS, (GrafanaError,)),
    Reader("experiment", read_experiment, seeds.experiments, (LedgerError,)),
    Reader("journal", read_journal, seeds.journals, (JournalError,)),
    Reader("verdicts", parse_verdicts, verdicts, (JudgeError,)),
    Reader("listen-address", lambda raw: parse_address(text(raw)), lambda: [b":9748", b"[::1]:9748"], (AddressError,)),
    Reader("config", config, lambda: [seeds.CONFIG], (ConfigError,), lines=True),
    Reader("roles", rules(load_roles, roles), lambda: seeds.rules("threads"), (ConfigError,), lines=True),
    Reader("waits", rules(load_waits, stack_rules), lambda: seeds.rules("waits"), (ConfigError,), lines=True),
    Reader("costs", rules(load_costs, classes), lambda: seeds.rules("profile"), (ConfigError,), lines=True),
)


def reader_named(name: str) -> Reader:
    """Return the reader of that name. Raises KeyError."""
    return {reader.name: reader for reader in READERS}[name]
