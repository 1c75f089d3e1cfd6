from __future__ import annotations

import errno
import os
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinchpoint.host.confine import ALLOW, ARCHITECTURES, CONDITIONS, INSTRUCTION, KILL, REFUSE, can_confine, program
from polling import until

NOBODY = 65534
GROUPS = (100, 7000)
CONFINED = f"""
import ctypes, fcntl, mmap, os, signal, socket, sys
from pinchpoint.host.confine import User, allow_cpu_seconds, confine

pipe, parent = os.pipe(), os.getppid()
confine(User({NOBODY}, {NOBODY}, {GROUPS}), memory=32 << 20)
try:
    exec(sys.argv[1])
except MemoryError:
    os._exit(12)
except OSError as error:
    os._exit(error.errno)
os._exit(0)
"""
root = pytest.mark.skipif(
    os.geteuid() != 0 or not can_confine(), reason="needs root, to become another user, and a kernel with seccomp"
)


def run(code: str) -> subprocess.CompletedProcess[bytes]:
    """Run code in a confined process; its exit status is the number of the error that it raised."""
    return subprocess.run([sys.executable, "-c", CONFINED, code], stderr=subprocess.DEVNULL, check=False)


@pytest.fixture
def confined() -> Iterator[subprocess.Popen[bytes]]:
    """Return a confined process that waits."""
    code = "os.read(0, 1)"
    with subprocess.Popen([sys.executable, "-c", CONFINED, code], stdin=subprocess.PIPE) as process:
        assert until(20, lambda: field(process.pid, "Seccomp") == "2")
        yield process
        process.kill()


def field(pid: int, name: str) -> str:
    found = re.search(rf"^{name}:\s*(.*?)\s*$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return found[1] if found else ""


@root
def test_it_is_the_user_and_has_no_other_right(confined: subprocess.Popen[bytes]) -> None:
    for name in ("Uid", "Gid"):
        assert field(confined.pid, name).split() == [str(NOBODY)] * 4
    assert field(confined.pid, "Groups").split() == [str(group) for group in GROUPS]
    for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
        assert int(field(confined.pid, name), 16) == 0, name
    assert field(confined.pid, "NoNewPrivs") == "1"


@root
def test_its_user_cannot_see_what_it_inherited(confined: subprocess.Popen[bytes]) -> None:
    look = f"import os; os.setuid({NOBODY}); open('/proc/{confined.pid}/environ').read(1)"
    done = subprocess.run([sys.executable, "-c", look], stderr=subprocess.PIPE, check=False)

    assert b"PermissionError" in done.stderr


@root
def test_it_reads_what_its_user_may_read() -> None:
    assert run("os.listdir('/proc/self/fd'); open('/proc/self/stat', 'rb', buffering=0).read()").returncode == 0


@root
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("os.open('/etc/shadow', os.O_RDONLY)", errno.EACCES),
        ("os.open('/dev/null', os.O_WRONLY)", errno.EPERM),
        ("os.open('/tmp', os.O_TMPFILE | os.O_RDWR)", errno.EPERM),
        ("os.open('/tmp/new', os.O_RDONLY | os.O_CREAT)", errno.EPERM),
        ("os.write(pipe[1], b'x')", errno.EPERM),
        ("os.unlink('/tmp/none')", errno.EPERM),
        ("os.chmod('/tmp', 0o777)", errno.EPERM),
        ("socket.socket()", errno.EPERM),
        ("socket.socket(socket.AF_UNIX)", errno.EPERM),
        ("os.execv('/bin/true', ['true'])", errno.EPERM),
        ("os.fork()", errno.EPERM),
        ("os.kill(parent, 0)", errno.EPERM),
        ("os.kill(os.getpid(), 0)", errno.EPERM),
        ("signal.pidfd_send_signal(os.pidfd_open(parent), 0)", errno.EPERM),
        ("os.setuid(0)", errno.EPERM),
        ("os.setgroups([])", errno.EPERM),
        ("mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)", errno.EPERM),
        ("fcntl.fcntl(0, fcntl.F_SETOWN, 1)", errno.EPERM),
        ("fcntl.lockf(0, fcntl.LOCK_EX)", errno.EPERM),
        ("bytearray(64 << 20)", 12),
    ],
)
def test_it_can_do_nothing_else(code: str, error: int) -> None:
    assert run(code).returncode == error


@root
def test_it_may_not_compute_for_long() -> None:
    assert run("allow_cpu_seconds(0)\nwhile True: pass").returncode == -signal.SIGXCPU


@root
def test_it_ends_with_the_process_that_started_it() -> None:
    code = """
import os, sys, time
from pinchpoint.host.confine import User, confine

pid = os.fork()
if pid:
    print(pid, flush=True)
else:
    confine(User(65534, 65534))
    os.read(0, 1)
time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert until(20, lambda: field(child, "Seccomp") == "2")
        parent.kill()

    assert until(20, lambda: not Path(f"/proc/{child}").exists())


def decision(code: bytes, audit: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """Return what a filter decides about a system call, as ``seccomp_run_filters`` (kernel/seccomp.c) would."""
    words = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<iIQ6Q", number, audit, 0, *words)
    at = accumulator = 0
    instructions = list(INSTRUCTION.iter_unpack(code))
    while True:
        operation, if_true, if_false, operand = instructions[at]
        at += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, operand)
            case 0x54:
                accumulator &= operand
            case 0x15:
                at += if_true if accumulator == operand else if_false
            case 0x06:
                return int(operand)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_only_known_calls_of_the_own_architecture_are_allowed(machine: str) -> None:
    architecture = ARCHITECTURES[machine]
    code = program(architecture)
    free = {number for name, number in architecture.calls.items() if name not in CONDITIONS}
    limited = set(architecture.calls.values()) - free

    for number in range(600):
        if number not in limited:
            assert decision(code, architecture.audit, number) == (ALLOW if number in free else REFUSE), number
    assert decision(code, architecture.audit, 0x40000000 | min(free)) == REFUSE  # x32
    assert decision(code, 0x40000003, min(free)) == KILL


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize(
    ("call", "arguments", "verdict"),
    [
        ("openat", (0, 0, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), ALLOW),
        ("openat", (0, 0, os.O_PATH | os.O_DIRECTORY), ALLOW),
        ("openat", (0, 0, os.O_RDWR), REFUSE),
        ("openat", (0, 0, os.O_WRONLY), REFUSE),
        ("openat", (0, 0, os.O_CREAT), REFUSE),
        ("mmap", (0, 4096, 3), ALLOW),
        ("mmap", (0, 4096, 7), REFUSE),
        ("mprotect", (0, 4096, 4), REFUSE),
        ("fcntl", (3, 1030), ALLOW),
        ("fcntl", (3, 1), ALLOW),
        ("fcntl", (3, 1024), REFUSE),
        ("ioctl", (3, 0x5412), REFUSE),
        ("prlimit64", (0, 0), ALLOW),
        ("prlimit64", (1, 0), REFUSE),
    ],
)
def test_some_calls_are_allowed_with_some_arguments(
    machine: str, call: str, arguments: tuple[int, ...], verdict: int
) -> None:
    architecture = ARCHITECTURES[machine]

    assert decision(program(architecture), architecture.audit, architecture.calls[call], arguments) == verdict
