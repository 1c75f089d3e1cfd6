"""Processes that wait for each other in a known way: ``waiters.py NAME`` runs one of `TOYS` until its input ends.

It prints the pid of the process whose wait is to be explained. Each process has a name that no rule knows.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import mmap
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pinchpoint.bpf.path import Endpoint, Responsible, Source

__all__ = ["HERD", "HIGH_PORT", "REMOTE_PORT", "THERE", "called", "has_rings", "names_below", "waiting"]


PATIENCE = 30.0
HERD = 1000
"""Threads that wait for one."""
CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
"""linux/sched.h."""
MS_REC, MS_PRIVATE = 1 << 14, 1 << 18
"""linux/mount.h."""
FUSE_FORGET, FUSE_GETATTR, FUSE_INIT, FUSE_HEADER = 2, 3, 26, 16
"""linux/fuse.h: operations, and bytes before an answer."""
IO_URING_SETUP, IO_URING_ENTER = 425, 426
"""Numbers of system calls of every architecture (asm-generic/unistd.h)."""
IORING_OP_READ, IORING_ENTER_GETEVENTS, IORING_OFF_SQES = 22, 1, 0x10000000
WHERE_IT_IS = 2**64 - 1
"""linux/io_uring.h; an offset of -1 stands for the file's own, as read(2) uses it."""
HERE, THERE, REMOTE_PORT, HIGH_PORT = "10.66.0.1", "10.66.0.2", 6800, 65500
"""Addresses of two hosts, the port of the server on the other one, and one above all that clients get."""


@contextmanager
def waiting(toy: str) -> Iterator[int]:
    """Run a toy, and give the pid of its client. At the end all of its processes have ended."""
    import psutil  # here, since a toy runs this file too, and has no use for it

    from polling import runs, until

    command = [sys.executable, __file__, toy]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            family = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
            os.killpg(process.pid, signal.SIGKILL)
            # Whoever looks for other processes must not take one that still ends for somebody else's.
            assert until(PATIENCE, lambda: not any(map(runs, family)))


def called(who: Responsible | Endpoint | Source) -> str:
    """Return the name of who is responsible."""
    if isinstance(who, Responsible):
        return who.name.decode()
    return who.name if isinstance(who, Source) else str(who)


def names_below(pid: int) -> dict[str, int]:
    """Return the processes that a toy's client has started, by name."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):  # it has gone
            found[Path(f"/proc/{child}/comm").read_text().strip()] = int(child)
    return found


def burn(seconds: float) -> None:
    """Use so much CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def rename(name: str) -> None:
    """Give this process a name."""
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)


def process(name: str, work: Callable[[], None], *, first: Callable[[], None] = lambda: None) -> None:
    """Start a process that does some work again and again; return when it has its name."""
    named, telling = os.pipe()
    if os.fork() == 0:
        rename(name)
        first()
        os.write(telling, b"x")
        while True:
            work()
    os.close(telling)
    os.read(named, 1)
    os.close(named)


def begin() -> None:
    """Print the pid of the client: all others have been started."""
    print(os.getpid(), flush=True)


def another_host() -> Callable[[Callable[[], socket.socket]], socket.socket]:
    """Move to a network namespace of our own that has a link to another one; return what opens a socket there."""
    libc = ctypes.CDLL(None, use_errno=True)

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    def alone() -> int:
        if libc.unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "no network namespace")
        ip("link", "set", "lo", "up")
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    there = alone()
    here = alone()
    ip("link", "add", "near", "type", "veth", "peer", "name", "far", "netns", f"/proc/{os.getpid()}/fd/{there}")
    ip("address", "add", f"{HERE}/24", "dev", "near")
    ip("link", "set", "near", "up")
    libc.setns(there, CLONE_NEWNET)
    ip("address", "add", f"{THERE}/24", "dev", "far")
    ip("link", "set", "far", "up")
    libc.setns(here, CLONE_NEWNET)

    def opened(open_socket: Callable[[], socket.socket]) -> socket.socket:
        libc.setns(there, CLONE_NEWNET)  # a socket belongs to the namespace in which it is opened
        found = open_socket()
        libc.setns(here, CLONE_NEWNET)
        return found

    return opened


Signal = tuple[Callable[[], object], Callable[[], object]]
"""What wakes somebody, and what waits for that."""


def pipe() -> Signal:
    """Wake by a pipe."""
    there, here = os.pipe()
    return lambda: os.write(here, b"x"), lambda: os.read(there, 1)


def pair() -> Signal:
    """Wake by a Unix socket."""
    there, here = socket.socketpair()
    return lambda: here.send(b"x"), lambda: there.recv(1)


def semaphore() -> Signal:
    """Wake by a futex."""
    libc = ctypes.CDLL(None)
    shared = (ctypes.c_char * 64).from_buffer(mmap.mmap(-1, mmap.PAGESIZE))
    libc.sem_init(shared, 1, 0)
    return lambda: libc.sem_post(shared), lambda: libc.sem_wait(shared)


def ring() -> Signal:
    """Wake by a pipe that is read through io_uring."""
    there, here = os.pipe()
    reader: list[Callable[[], None]] = []

    def wait() -> None:
        if not reader:
            reader.append(ring_reader(there))  # a ring belongs to the process that waits
        reader[0]()

    return lambda: os.write(here, b"x"), wait


def open_ring() -> tuple[int, bytes]:
    """Open an io_uring for one request at a time; return its descriptor and parameters. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    parameters = ctypes.create_string_buffer(120)
    fd = libc.syscall(IO_URING_SETUP, 1, parameters)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "io_uring_setup")
    return fd, parameters.raw


def has_rings() -> bool:
    """Return whether this host allows io_uring: a container's seccomp profile or a sysctl may not."""
    try:
        fd, _ = open_ring()
    except OSError:
        return False
    os.close(fd)
    return True


def ring_reader(descriptor: int) -> Callable[[], None]:
    """Return what reads a byte through an io_uring of its own (io_uring_setup(2), io_uring_enter(2))."""
    libc = ctypes.CDLL(None)
    fd, parameters = open_ring()
    # struct io_uring_params: ten words, then the offsets in both rings, of ten words each.
    words = struct.unpack("=30I", parameters)
    entries, completions, submission, completion = words[0], words[1], words[10:20], words[20:30]
    size = max(submission[6] + 4 * entries, completion[5] + 16 * completions)
    rings, requests = mmap.mmap(fd, size), mmap.mmap(fd, 64 * entries, offset=IORING_OFF_SQES)
    byte = ctypes.create_string_buffer(1)
    number = itertools.count(1)

    def read() -> None:
        request = (IORING_OP_READ, 0, 0, descriptor, WHERE_IT_IS, ctypes.addressof(byte), len(byte), 0, 0)
        struct.pack_into("=BBHiQQIIQ", requests, 0, *request)
        done = next(number)
        struct.pack_into("=I", rings, submission[1], done)  # the tail of the submission ring
        libc.syscall(IO_URING_ENTER, fd, 1, 1, IORING_ENTER_GETEVENTS, None, 0)
        struct.pack_into("=I", rings, completion[0], done)  # the head of the completion ring

    return read


def chain(by: Callable[[], Signal] = pipe) -> None:
    """A client waits for a server, and that for a worker, which burns 400 us and sleeps 1 ms."""
    (ask, asked), (answer, answered) = by(), by()

    def call() -> None:
        ask()
        answered()

    served(call, asked, answer, by)


def served(
    call: Callable[[], object],
    asked: Callable[[], object],
    answer: Callable[[], object],
    by: Callable[[], Signal],
    first: Callable[[], None] = lambda: None,
) -> None:
    """The client of a chain calls a server, which is asked and answers, after it has done something first."""
    (pass_on, passed), (finish, done) = by(), by()

    def server() -> None:
        asked()
        burn(200e-6)
        pass_on()
        done()
        answer()

    def worker() -> None:
        passed()
        burn(400e-6)
        time.sleep(1e-3)
        finish()

    process("toyserver", server, first=first)
    process("toyworker", worker)
    begin()
    while True:
        call()
        burn(100e-6)


def chain_by_socket() -> None:
    """The same by Unix sockets."""
    chain(pair)


def chain_by_futex() -> None:
    """The same by futexes."""
    chain(semaphore)


def chain_by_ring() -> None:
    """The same by pipes that are read through io_uring."""
    chain(ring)


def chain_by_file_system() -> None:
    """The same; the server is a file system (FUSE), and the client asks for attributes of a file."""
    files = FileSystem()
    served(lambda: os.stat(files.PLACE), files.take, files.answer, pipe, files.mount)


class FileSystem:
    """A file system that has a root and nothing else, in a mount namespace of this process.

    Formats: include/uapi/linux/fuse.h, version 7.31.
    """

    PLACE = "/mnt"

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        if self._libc.unshare(CLONE_NEWNS) or self._libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
            raise OSError(ctypes.get_errno(), "no mount namespace")
        self._device = -1
        self._request = 0

    def mount(self) -> None:
        """Mount it. Only its server does so: a client with this descriptor would wait for itself when it is killed."""
        self._device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0".encode()
        if self._libc.mount(b"toy", self.PLACE.encode(), b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), "no FUSE")

    def take(self) -> None:
        """Wait until somebody asks for the attributes of its root."""
        while True:
            _, operation, self._request = struct.unpack_from("=IIQ", os.read(self._device, 1 << 16))
            if operation == FUSE_GETATTR:
                return
            if operation == FUSE_INIT:
                self._reply(struct.pack("=IIIIHHI40x", 7, 31, 0, 0, 1, 1, mmap.PAGESIZE))
            elif operation != FUSE_FORGET:
                self._reply(error=errno.ENOSYS)

    def answer(self) -> None:
        """Answer with attributes that are valid for no time."""
        # struct fuse_attr begins after 16 bytes and has its mode after 60.
        self._reply(struct.pack("=16xQ52xII20x", 1, stat.S_IFDIR | 0o755, 2))

    def _reply(self, body: bytes = b"", error: int = 0) -> None:
        os.write(self._device, struct.pack("=IiQ", FUSE_HEADER + len(body), -error, self._request) + body)


def parallel() -> None:
    """A client waits for two servers at once: one burns 1.5 ms and the other 0.3 ms."""
    poller = select.epoll()
    asks = []
    for name, seconds in (("toyslow", 1.5e-3), ("toyfast", 0.3e-3)):
        ask, asked = pipe()
        answered, answer = os.pipe()

        def serve(asked: Callable[[], object] = asked, answer: int = answer, seconds: float = seconds) -> None:
            asked()
            burn(seconds)
            os.write(answer, b"x")

        process(name, serve)
        asks.append(ask)
        poller.register(answered, select.EPOLLIN)
    begin()
    while True:
        for ask in asks:
            ask()
        left = len(asks)
        while left:
            for answered, _ in poller.poll():
                os.read(answered, 1)
                left -= 1


def queue(clients: int, name: str, serve: Callable[[int, Callable[[int], object]], None], servers: int = 1) -> None:
    """Let this client and others wait for servers with one queue; `serve` gets its descriptor, and what answers one."""
    requests, asked = os.pipe()
    answers = [os.pipe() for _ in range(clients)]

    def answer(number: int) -> None:
        os.write(answers[number][1], b"x")

    def wait(number: int) -> None:
        os.write(asked, bytes([number]))
        os.read(answers[number][0], 1)

    for _ in range(servers):
        process(name, lambda: serve(requests, answer))
    for number in range(1, clients):
        process("toyother", lambda number=number: wait(number))  # type: ignore[misc]
    begin()
    while True:
        wait(0)


def pool() -> None:
    """This client and seven others wait for two workers with one queue, which sleep for 2 ms each time."""

    def work(requests: int, answer: Callable[[int], object]) -> None:
        number = os.read(requests, 1)[0]
        time.sleep(2e-3)
        answer(number)

    queue(8, "toyworker", work, servers=2)


def batch() -> None:
    """This client and five others wait for one who commits for all of them at once, which takes 3 ms."""

    def commit(requests: int, answer: Callable[[int], object]) -> None:
        waiting = os.read(requests, 6)
        burn(1e-3)
        time.sleep(2e-3)
        for number in waiting:
            answer(number)

    queue(6, "toycommitter", commit)


def spin() -> None:
    """A client waits for a server that never sleeps: it looks at shared memory, and burns 0.5 ms for each request."""
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    answer, answered = pipe()

    def serve() -> None:
        while not shared[0]:
            pass
        shared[0] = 0
        burn(5e-4)
        answer()

    process("toyspinner", serve)
    begin()
    while True:
        shared[0] = 1
        answered()
        time.sleep(1e-4)


def ahead() -> None:
    """A client has eight requests with a server, which burns 30 us for each and works on while the client wakes up."""
    requests, ask = os.pipe()
    answers, answer = os.pipe()

    def serve() -> None:
        os.read(requests, 1)
        burn(3e-5)
        os.write(answer, b"x")

    process("toyworker", serve)
    begin()
    os.write(ask, bytes(8))
    while True:
        os.write(ask, os.read(answers, 8))


def proxy() -> None:
    """A client waits for a proxy, which burns 600 us, and for a service behind it, which burns 150 us; all by TCP."""

    def connected() -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            here = socket.create_connection(server.getsockname())
            there, _ = server.accept()
        for one in (here, there):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return here, there

    (mine, front), (back, deep) = connected(), connected()

    def middle() -> None:
        front.recv(1)
        burn(300e-6)
        back.send(b"x")
        back.recv(1)
        burn(300e-6)
        front.send(b"x")

    def service() -> None:
        deep.recv(1)
        burn(150e-6)
        deep.send(b"x")

    process("toyproxy", middle)
    process("toyservice", service)
    begin()
    while True:
        mine.send(b"x")
        mine.recv(1)


def remote(port: int = REMOTE_PORT) -> None:
    """A client waits for a server on another host, and that for a worker there, which burns 400 us and sleeps 1 ms."""
    host = another_host()
    passed, done = os.pipe(), os.pipe()
    listening, mine = host(lambda: socket.create_server((THERE, port))), socket.socket()
    mine.connect((THERE, port))
    front, _ = listening.accept()
    for one in (mine, front):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def server() -> None:
        front.recv(1)
        burn(200e-6)
        os.write(passed[1], b"x")
        os.read(done[0], 1)
        front.send(b"x")

    def worker() -> None:
        os.read(passed[0], 1)
        burn(400e-6)
        time.sleep(1e-3)
        os.write(done[1], b"x")

    process("toyserver", server)
    process("toyworker", worker)
    begin()
    while True:
        mine.send(b"x")
        mine.recv(1)
        burn(100e-6)


def high() -> None:
    """The same, and the server has a higher port than the client."""
    remote(HIGH_PORT)


def lock() -> None:
    """A client wants a mutex that one process holds most of the time; three others want it too, and hold it briefly."""
    libc = ctypes.CDLL(None)
    mutex = (ctypes.c_char * 64).from_buffer(mmap.mmap(-1, mmap.PAGESIZE))
    attributes = (ctypes.c_char * 64)()
    libc.pthread_mutexattr_init(attributes)
    libc.pthread_mutexattr_setpshared(attributes, 1)  # PTHREAD_PROCESS_SHARED
    libc.pthread_mutex_init(mutex, attributes)

    def hold(seconds: float, rest: float) -> None:
        libc.pthread_mutex_lock(mutex)
        burn(seconds)
        libc.pthread_mutex_unlock(mutex)
        time.sleep(rest)

    process("toyholder", lambda: hold(4e-3, 5e-4))
    for _ in range(3):
        process("toywaiter", lambda: hold(2e-5, 1e-3))
    begin()
    while True:
        hold(2e-5, 0)


def poll() -> None:
    """A client looks every 500 us whether a server is ready, which sleeps for 3 ms."""
    asked, answered = os.pipe(), os.pipe()

    def server() -> None:
        os.read(asked[0], 1)
        time.sleep(3e-3)
        os.write(answered[1], b"x")

    process("toyserver", server)
    poller = select.epoll()
    poller.register(answered[0], select.EPOLLIN)
    begin()
    while True:
        os.write(asked[1], b"x")
        while not poller.poll(5e-4):
            pass
        os.read(answered[0], 1)


def churn() -> None:
    """A client waits for one short process after the other."""
    begin()
    while True:
        if (child := os.fork()) == 0:
            rename("toychild")
            burn(1e-3)
            os._exit(0)
        os.waitpid(child, 0)


def herd() -> None:
    """A thousand threads of a client wait for its last one, which burns 2 ms; all of them wait in one futex."""
    libc = ctypes.CDLL(None)
    barrier = (ctypes.c_char * 64)()
    libc.pthread_barrier_init(barrier, None, HERD + 1)

    def wait() -> None:
        while True:
            libc.pthread_barrier_wait(barrier)

    threading.stack_size(1 << 16)
    for _ in range(HERD):
        threading.Thread(target=wait, daemon=True).start()
    rename("toylast")
    begin()
    while True:
        burn(2e-3)
        libc.pthread_barrier_wait(barrier)


def renames() -> None:
    """A client has a new name all the time, and wakes another process."""
    there, back = os.pipe(), os.pipe()

    def answer() -> None:
        os.read(there[0], 1)
        os.write(back[1], b"x")

    process("toyanswer", answer)
    begin()
    for number in itertools.count():
        rename(f"toy{number}")
        os.write(there[1], b"x")
        os.read(back[0], 1)


def sleep() -> None:
    """A client sleeps."""
    begin()
    time.sleep(3600)


_ALL = (
    *(chain, chain_by_socket, chain_by_futex, chain_by_ring, chain_by_file_system),
    *(parallel, pool, batch, spin, ahead, proxy, remote, high),
    *(lock, poll, churn, herd, renames, sleep),
)
TOYS: dict[str, Callable[[], None]] = {toy.__name__: toy for toy in _ALL}

if __name__ == "__main__":
    if os.fork() == 0:
        TOYS[sys.argv[1]]()
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)
