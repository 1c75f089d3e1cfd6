"""Real bytes that readers are written for: recorded where a fixture has them, else in the format of the cited source.

Fuzzing and the property tests change these. Each function returns whole files, messages or answers.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import msgspec

from experiment.made import experiment
from host.test_netlink import END
from host.test_netlink import message as netlink_message
from host.test_qdisc import interface, qdisc
from host.test_sockdiag import answer as connection
from host.test_sockdiag import tcp_info
from machine import LINK, SEPARATOR, stat_line
from pinchpoint.experiment.journal import Journal
from pinchpoint.experiment.knob import KnobCommands
from pinchpoint.experiment.owner import Owner

__all__ = [
    "ARGUMENTS",
    "CGROUPS",
    "CONFIG",
    "DATES",
    "JOBS",
    "KWORKERS",
    "MOUNTS",
    "NETWORKS",
    "PASSWORDS",
    "PROCESS_IO",
    "REQUESTS",
    "RESPONSES",
    "ROLLUP",
    "SCRIPT",
    "STACK",
    "STATUS",
    "UNIX_TABLE",
    "USERS",
    "archived",
    "archived_lines",
    "captured",
    "ceph_answers",
    "ceph_counters",
    "command_lines",
    "contents",
    "experiments",
    "journals",
    "netlink",
    "option_answers",
    "packed_recordings",
    "prometheus_answers",
    "recordings",
    "rules",
    "stat_lines",
]

TESTS = Path(__file__).parent
FIXTURES = TESTS / "fixtures"
CAPTURES = FIXTURES / "captures"
BASE_RECORDINGS = 3
"""Recordings of faults that are used, the smallest ones: all have the same format, and the largest 80 KB."""


CONFIG = b"""
sample-interval = 0.1
log-level = "info"
task-source = "auto"
[path]
procfs = "/host/proc"
[web]
listen-address = "[::1]:9748"
telemetry-path = "/metrics"
[probe]
tcp = false
[[benchmark]]
name = "own"
processes = ["own"]
phase-pattern = '(?P<phase>\\w+) begins'
"""
USERS = b"root:x:0:0:root:/root:/bin/bash\nceph:x:64045:64045:Ceph storage service:/var/lib/ceph:/usr/sbin/nologin\n"
ROLLUP = b"5581-7ffd ---p 00000000 00:00 0  [rollup]\nRss: 5504 kB\nPrivate_Clean: 0 kB\nPrivate_Dirty: 4700 kB\n"
PASSWORDS = (b"Basic YWxpY2U6c2VjcmV0", b"basic YWxpY2U6", b"Basic Ojo6", b"Bearer YTpi")
REQUESTS = (
    b"GET /metrics HTTP/1.1\r\nHost: localhost:9748\r\nAccept: application/openmetrics-text;q=0.5\r\n\r\n",
    b"GET /metrics?name[]=a&name%5B%5D=b HTTP/1.0\r\nHost: 127.0.0.1\r\nSec-Fetch-Site: cross-site\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: [::1]:1\r\nOrigin: http://evil\r\n\r\n",
    b"POST /-/healthy HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
)
RESPONSES = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\na 1\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na 1\n\r\n0\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\nno",
)
CGROUPS = (
    b"4:cpu,cpuacct:/a:b\n0::/system.slice/ceph-osd@0.service\nbad\n7:x:relative",
    b"nr_periods 5\nnr_throttled 2\nthrottled_usec 3\n",
    b"nr_periods 5\nnr_throttled 2\nthrottled_time 3000000000\n",
    b"20000 100000\n",
    b"max 100000\n",
    b"8:0 rbps=7 riops=max\n254:0 wbps=1048576\n8:0 7\n",
    b"8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=7 dios=8\n259:0 rbytes=1 cost.usage=5\n",
    b"254:0 Read 100\n254:0 Write 20\n254:0 Sync 110\n254:0 Total 123\n7:3 Read 5\nTotal 128\n",
    b"low 0\nhigh 3\nmax 40\noom 1\noom_kill 0\n",
    b"9223372036854771712\n",
)
MOUNTS = (
    b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n",
    b"40 35 0:45 / /data rw - ceph 10.0.0.1:6789:/ rw,name=admin\nx 35 0:46 / /odd rw - tmpfs some\\040text rw\n",
    b"/dev/sda1 / ext4 rw 0 0\n",
)
NETWORKS = (
    b"Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
    b"bond0 00000000 0100010A 0003 0 0 0 00000000 0 0 0\neth2 0000020A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n",
    b"fe80000000000000505400fffe123456 02 40 20 80     eth0\n",
    b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/zram0 partition 1024 0 100\n/swap file 7 0 -2\n",
)
STACK = (
    b"[<0>] folio_wait_bit_common+0x110/0x310\n[<0>] ceph_get_caps+0x1f/0x40 [ceph]\n[<0>] do_syscall_64+0x1/0x2\n",
    b"hrtimer_nanosleep",
)
WAITS_FOR_A_TURN = b"202 0x5634be1e4634 0x189 0x0 0x0 0x0 0xffffffff 0x7f5bb1ff9f80 0x7f5bc0a2d8f6\n"
"""``syscall`` of a thread on a condition variable, as those of ceph-mds 16.2.15 wait for mds_lock (glibc 2.36)."""
WAITS_FOR_A_MUTEX = b"202 0x55e4ac22a120 0x80 0x2 0x0 0x0 0x0 0x7f1d5a7fb150 0x7f1d5f48a8f6\n"
"""The same of a thread that waits for a std::mutex."""
STATUS = (
    b"Name:\tfio\nTgid:\t77\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t77\t1\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,7\n"
    b"voluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n",
    b"0-3,7\n",
)
PROCESS_IO = (
    b"rchar: 323934931\nwchar: 323929600\nsyscr: 632687\nsyscw: 632675\nread_bytes: 0\nwrite_bytes: 323932160\n"
    b"cancelled_write_bytes: 0\n"
)
"""The example of Documentation/filesystems/proc.rst (Linux 6.1)."""
SCRIPT = b"""\
IOR START
  testFile=/scratch/s1   # a comment
  api=POSIX, transferSize=256k
  blockSize=64m
RUN
  readFile=1
  segmentCount=500
RUN
IOR STOP
"""
JOBS = b"""\
; two steps
[global]
directory=/scratch/${NAME}
runtime=3
[seq-write]
rw=write
size=10%
[rand-read]
stonewall
numjobs=2
runtime=1.5m
include other.fio
"""
ARGUMENTS = (
    b"ior\0-w\0-t\x0047008\0-b=1m\0-s\x005\0-O\0stoneWallingStatusFile=/a,stoneWallingWearOut=1\0-D\x0030\0",
    b"mdtest\0-C\0-n\x001000\0-d\0/a@/b\0-W\x0030\0-x\0/stone\0-F\0",
    b"fio\0--name=a\0--rw=randread\0--numjobs=2\0--stonewall\0--section\0b\0job.fio\0",
    b"env\0A=1\0timeout\0-k\x001\x0010\0sh\0-c\0cd /x && exec fio --name=a; ior -w\0",
    b"ceph-osd\0-i\x003\0--id=4\0-n\0osd.5\0",
)


UNIX_TABLE = b"""\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 101 /var/run/ceph/ceph-osd.0.asok
0000000000000000: 00000003 00000000 00000000 0001 03 102 /var/run/ceph/ceph-osd.0.asok
0000000000000000: 00000002 00000000 00010000 0001 01 103 @/tmp/abstract.asok
0000000000000000: 00000002 00000000 00010000 0001 01 104 /run/a name with blanks.asok
"""
"""In the format of unix_seq_show (net/unix/af_unix.c, Linux 6.18)."""
DATES = (b"2026-11-21 00:02:55.1+0100", b"Sat Nov 21 00:20:17 UTC 2026", b"11/21/2026 00:20:17")
KWORKERS = (b"kworker/u8:1+flush-254:0", b"kworker/0:1-events")


@cache
def contents(pattern: str) -> tuple[bytes, ...]:
    """Return the files below `tests/` that match a glob."""
    return tuple(path.read_bytes() for path in sorted(TESTS.glob(pattern)) if path.is_file())


@cache
def captured(benchmark: str, name: str = "stdout.txt") -> tuple[bytes, ...]:
    """Return the files of that name in the captures of a benchmark."""
    folders = [path.parent for path in sorted(CAPTURES.glob("*/expected.txt")) if _benchmark(path) == benchmark]
    return tuple(found.read_bytes() for folder in folders for found in sorted(folder.rglob(name)))


def _benchmark(expected: Path) -> str:
    return expected.read_text().split(maxsplit=1)[0]


@cache
def command_lines() -> tuple[bytes, ...]:
    """Return the command lines of all captures, as ``/proc/PID/cmdline`` has them, and some with more options."""
    return *(b"\0".join([*raw.split(), b""]) for raw in contents("fixtures/captures/*/cmd.txt")), *ARGUMENTS


@cache
def rules(room: str) -> tuple[bytes, ...]:
    """Return the built-in rules of a room of the package."""
    return contents(f"../exporter/pinchpoint/{room}/*.toml")


@cache
def archived(pattern: str) -> tuple[bytes, ...]:
    """Return the files of the recorded machines whose path matches, each content once."""
    found: dict[bytes, None] = {}
    for archive in (*contents("fixtures/machines/*.txt"), *contents("fixtures/ceph/debugfs_*.txt")):
        for entry in archive.decode().split(SEPARATOR)[1:]:
            path, _, content = entry.partition("\n")
            if Path(path).match(pattern) and not content.startswith(LINK):
                found[content.encode()] = None
    return tuple(found)


@cache
def archived_lines(pattern: str) -> tuple[bytes, ...]:
    """Return the lines of these files."""
    return tuple(line for raw in archived(pattern) for line in raw.splitlines(keepends=True))


@cache
def stat_lines() -> tuple[bytes, ...]:
    """Return lines of ``/proc/PID/stat``."""
    names = ("fio", b") S 1 (", "kworker/u8:1+flush-254:0")
    return (*archived("proc/*/stat")[:20], *(stat_line(7, name, utime=11, start=987) for name in names))


@cache
def ceph_answers(daemon: str) -> tuple[bytes, ...]:
    """Return the recorded answers of daemons or clients of a kind: an object of answers by question in each."""
    return contents(f"fixtures/ceph/{daemon}_*.json")


@cache
def ceph_counters() -> tuple[bytes, ...]:
    """Return answers to ``perf dump``."""
    dumps = (json.loads(raw)["perf dump"] for raw in (*ceph_answers("mds"), *ceph_answers("osd")))
    return (*(json.dumps(dump).encode() for dump in dumps), *ceph_answers("client"))


@cache
def option_answers() -> tuple[bytes, ...]:
    """Return the answers to the short questions: options, and the version."""
    found: dict[bytes, None] = {b'{"version":"16.2.15","release":"pacific","release_type":"stable"}': None}
    for raw in (*ceph_answers("mds"), *ceph_answers("osd")):
        for question, answer in json.loads(raw).items():
            if question != "perf dump":
                found[json.dumps(answer).encode()] = None
    return tuple(found)


TCP_TABLE = (
    b"   0: 0100007F:8E01 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 212938 1 0 100 0\n"
    b"   1: 0100007F:B2D0 0100007F:8E01 01 00000000:00000000 02:0000076E 00000000     0        0 212962 2 0 20 4\n"
)


@cache
def netlink() -> tuple[bytes, ...]:
    """Return answers of the kernel: connections, queues, links, and what ends or refuses an answer."""
    return (
        connection(tcp_info()) + connection(tcp_info(again=3), cookie=78) + END,
        qdisc(4, "tbf", 3028, handle=0x80010000) + qdisc(5, "noqueue", 0) + END,
        interface(1, b"lo") + interface(2, b"eth0") + END,
        netlink_message(2, b"\xff\xff\xff\xff"),
        netlink_message(1) + netlink_message(16, b"odd"),
    )


@cache
def prometheus_answers() -> tuple[bytes, ...]:
    """Return answers of a Prometheus server: samples, newest values, firing alerts, an error."""
    clock = {"__name__": "pinchpoint_clock_seconds", "instance": "a:9748", "job": "pinchpoint"}
    disk = {"__name__": "pinchpoint_resource_busy_seconds_total", "instance": "a:9748", "owner": "vda"}
    alert = {"__name__": "ALERTS", "alertname": "DiskSaturated", "alertstate": "firing", "run": "r", "severity": "info"}
    times = [[1_700_000_000.125 + second, str(second)] for second in range(3)]
    samples = [{"metric": labels, "values": times} for labels in (clock, disk, alert)]
    newest = [{"metric": labels, "value": [1_700_000_000.125, "1"]} for labels in (clock, disk, {"__name__": "up"})]
    return tuple(
        json.dumps(answer).encode()
        for answer in (
            {"status": "success", "data": {"resultType": "matrix", "result": samples}},
            {"status": "success", "data": {"resultType": "vector", "result": newest}},
            {"status": "error", "errorType": "bad_data", "error": "parse error"},
        )
    )


@cache
def recordings() -> tuple[bytes, ...]:
    """Return texts of recordings: some moments of each."""
    packed = sorted(contents("fixtures/faults/*.om.gz"), key=len)[:BASE_RECORDINGS]
    moments = (gzip.decompress(raw).split(b"# EOF\n") for raw in packed)
    return tuple(b"".join(moment + b"# EOF\n" for moment in found[:3]) for found in moments)


def packed_recordings() -> list[bytes]:
    """Return recordings as they are stored, of the first lines of one moment each: small ones are tried often."""
    begins = (text[: text.index(b"\n", 4 << 10) + 1] for text in recordings())
    return [gzip.compress(begin + b"# EOF\n") for begin in begins]


def experiments() -> list[bytes]:
    """Return files of the ledger."""
    return [msgspec.json.encode(experiment(ratios)) for ratios in ((1.0, 1.1), ())]


def journals() -> list[bytes]:
    """Return journals of knobs that are set."""
    commands = KnobCommands("echo on > knob", "echo off > knob", "cat knob")
    owner = Owner(7, 12345, "6ff13ea4-7a1b-4c1e-a7a8-a2c2c3c9d3a0")
    return [msgspec.json.encode(Journal("one", commands, "off", "/root", {"PATH": "/bin"}, 1.7e9, owner))]
