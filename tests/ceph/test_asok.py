from __future__ import annotations

import os
import re
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pinchpoint
from daemon_socket import DaemonSocket, framed
from pinchpoint.ceph.asok import (
    LOCK_FREE,
    MAX_ANSWER_BYTES,
    AdminSocketError,
    Conversation,
    Question,
    SilentError,
    UnknownCommandError,
    ask,
)

VERSION = Question("version")
LOCKING = """
    status|cache status|cache drop|session ls|client ls|dump loads|dump tree|get subtrees|openfiles ls|damage ls|ops
    scrub status|dump snaps|dump cache|dump inode|flush journal|mds_requests|mds_sessions|dump_cache|heap stats
    config set|injectargs|perf reset|log flush|dump_historic_ops
"""


def test_an_answer_comes_whole_and_as_it_is(tmp_path: Path) -> None:
    with DaemonSocket(tmp_path / "a.asok", {"config get fsid": {"fsid": "x"}}) as daemon:
        assert ask(daemon.path, Question("config get", "fsid")) == b'{"fsid": "x"}'
        assert daemon.asked == [{"prefix": "config get", "format": "json", "var": "fsid"}]


def test_only_json_is_asked_for_since_the_default_is_half_as_long_again(tmp_path: Path) -> None:
    assert VERSION.request == b'{"prefix":"version","format":"json"}\0'


@pytest.mark.parametrize("prefix", [command.strip() for command in re.split(r"[|\n]", LOCKING) if command.strip()])
def test_a_command_that_may_wait_for_a_lock_is_never_sent(tmp_path: Path, prefix: str) -> None:
    with DaemonSocket(tmp_path / "a.asok", {prefix: {}}) as daemon:
        with pytest.raises(ValueError, match="free of locks"):
            ask(daemon.path, Question(prefix))
        assert daemon.asked == []


def test_the_whole_package_asks_nothing_else() -> None:
    source = "\n".join(path.read_text() for path in Path(pinchpoint.__file__).parent.rglob("*.py"))
    prefixes = set(re.findall(r'\bQuestion\(\s*"([^"]*)"', source))

    assert len(prefixes) > 3
    assert prefixes <= LOCK_FREE
    # Others send a datagram to the service manager, and keep a second experiment out.
    streams = re.compile(r"AF_UNIX, socket\.SOCK_STREAM\b")
    connecting = {
        path.name for path in Path(pinchpoint.__file__).parent.rglob("*.py") if streams.search(path.read_text())
    }
    assert connecting == {"asok.py", "exclusive.py"}, "only one place connects to daemons"
    assert source.count("AF_UNIX") == len(re.findall(r"AF_UNIX, socket\.SOCK_(?:STREAM|DGRAM)\b", source))


def test_an_error_in_the_place_of_the_answer_means_another_release(tmp_path: Path) -> None:
    with DaemonSocket(tmp_path / "a.asok") as daemon, pytest.raises(UnknownCommandError, match="Invalid argument"):
        ask(daemon.path, VERSION)


def test_an_answer_in_single_bytes_is_put_together(tmp_path: Path) -> None:
    def trickle(connection: socket.socket) -> None:
        for byte in framed(b'{"version":"16.2.15"}'):
            connection.sendall(bytes([byte]))

    with DaemonSocket(tmp_path / "a.asok", {"version": trickle}) as daemon:
        assert ask(daemon.path, VERSION, timeout=30) == b'{"version":"16.2.15"}'


def test_who_waited_in_vain_may_wait_again_for_the_same_answer(tmp_path: Path) -> None:
    with DaemonSocket(tmp_path / "a.asok", {"version": {"version": "1"}}) as daemon:
        daemon.freeze()
        with Conversation(daemon.path, VERSION) as conversation:
            with pytest.raises(SilentError):
                conversation.answer(0.01)
            daemon.thaw()
            assert conversation.answer(30) == b'{"version": "1"}'
        assert len(daemon.asked) == 1


def test_the_time_limit_is_for_the_whole_answer_not_for_each_piece(tmp_path: Path) -> None:
    def endless(connection: socket.socket) -> None:
        connection.sendall(struct.pack(">I", MAX_ANSWER_BYTES))
        while True:
            connection.sendall(b" ")

    with DaemonSocket(tmp_path / "a.asok", {"version": endless}) as daemon, pytest.raises(SilentError):
        ask(daemon.path, VERSION, timeout=0.2)


def test_a_full_queue_of_connections_is_silence_and_does_not_block(tmp_path: Path) -> None:
    with DaemonSocket(tmp_path / "a.asok", backlog=0) as daemon:
        daemon.freeze()
        waiting = []
        for _ in range(10):
            try:
                waiting.append(Conversation(daemon.path, VERSION))
            except SilentError:
                break
        for conversation in waiting:
            conversation.close()
        assert 0 < len(waiting) < 10


def test_an_answer_that_is_announced_too_long_is_not_read(tmp_path: Path) -> None:
    def boast(connection: socket.socket) -> None:
        connection.sendall(b"\xff\xff\xff\xff")

    with DaemonSocket(tmp_path / "a.asok", {"version": boast}) as daemon:
        assert reason(daemon.path) == "too_large"


def test_a_question_may_have_a_limit_of_its_own(tmp_path: Path) -> None:
    with DaemonSocket(tmp_path / "a.asok", {"version": b"12345"}) as daemon:
        assert ask(daemon.path, Question("version", limit=5), timeout=30) == b"12345"
        with pytest.raises(AdminSocketError, match="the limit is 4"):
            ask(daemon.path, Question("version", limit=4), timeout=30)


@pytest.mark.parametrize("cut", [b"", b"\0\0", b"\0\0\0\x08half"])
def test_a_connection_that_ends_early_is_no_answer(tmp_path: Path, cut: bytes) -> None:
    with DaemonSocket(tmp_path / "a.asok", {"version": lambda connection: connection.sendall(cut)}) as daemon:
        assert reason(daemon.path) == "refused"


def test_what_cannot_be_connected_says_why(tmp_path: Path) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "dead.asok"))
    dead.close()
    (tmp_path / "file.asok").write_text("")
    (tmp_path / "loop.asok").symlink_to("loop.asok")

    assert reason(tmp_path / "none.asok") == "missing"
    assert reason(tmp_path / "dead.asok") == "refused"
    assert reason(tmp_path / "file.asok") == "refused"
    assert reason(tmp_path / "file.asok" / "below.asok") == "missing"
    assert reason(tmp_path / "loop.asok") == "missing"


def test_another_process_that_listens_there_is_not_asked(tmp_path: Path) -> None:
    with DaemonSocket(tmp_path / "a.asok", {"version": {}}) as daemon:
        assert reason(daemon.path, pid=1) == "foreign"
        assert ask(daemon.path, VERSION, pid=os.getpid()) == b"{}"
        assert len(daemon.asked) == 1


def test_a_path_that_is_too_long_for_a_socket_is_reached_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / ("d" * 60) / ("e" * 60)
    directory.mkdir(parents=True)
    monkeypatch.chdir(directory)
    with DaemonSocket(Path("a.asok"), {"version": {}}):
        assert ask(directory / "a.asok", VERSION) == b"{}"


@given(st.binary(max_size=200))
def test_whatever_comes_is_an_answer_or_an_error_of_ours(raw: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        conversation = Conversation.__new__(Conversation)
        conversation._socket, conversation._received, conversation._limit = ours, bytearray(), MAX_ANSWER_BYTES
        theirs.sendall(raw)
        theirs.shutdown(socket.SHUT_WR)
        with conversation:
            try:
                answer = conversation.answer(30)
            except AdminSocketError as error:
                answer, found = b"", error.reason
            else:
                found = "complete"
    length = struct.unpack(">I", raw[:4])[0] if len(raw) >= 4 else MAX_ANSWER_BYTES
    whole = raw[4 : 4 + length]
    if found == "complete":
        assert answer == whole
    else:
        assert (
            found == "too_large" if length > MAX_ANSWER_BYTES else len(whole) < length or whole.startswith(b"ERROR: (")
        )


def reason(path: Path, pid: int = 0) -> str:
    with pytest.raises(AdminSocketError) as raised:
        ask(path, VERSION, timeout=30, pid=pid)
    return raised.value.reason
