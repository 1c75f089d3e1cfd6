"""An admin socket for tests: it answers as Ceph does, or misbehaves as told."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

Answer = bytes | Callable[[socket.socket], None]
"""The payload of an answer, or what to do with the connection instead."""


def framed(payload: bytes) -> bytes:
    """Return an answer as it is sent on the socket."""
    return struct.pack(">I", len(payload)) + payload


def filtered(dump: bytes, logger: str, counter: str) -> bytes:
    """Return a ``perf dump`` of one logger, or of one of its counters, as dump_formatted_generic writes it."""
    counters = {name: value for name, value in json.loads(dump).get(logger, {}).items() if counter in ("", name)}
    return json.dumps({logger: counters} if counters else {}).encode()


class DaemonSocket:
    """Listens at a path in a thread that, like Ceph's, serves one connection at a time."""

    def __init__(self, path: Path, answers: dict[str, Any] | None = None, *, backlog: int = 5) -> None:
        self.path = path
        self.answers: dict[str, Answer] = {
            key: json.dumps(answer).encode() if isinstance(answer, dict) else answer
            for key, answer in (answers or {}).items()
        }
        self.asked: list[dict[str, str]] = []
        self._thawed = Event()
        self._thawed.set()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(backlog)
        self._thread = Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.thaw()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._socket.close()

    def freeze(self) -> None:
        """Answer nothing until `thaw`; the kernel still accepts connections up to the backlog."""
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    def hang(self) -> None:
        """Freeze in the middle of a request."""
        self.freeze()
        self._thawed.wait()

    def _serve(self) -> None:
        while True:
            self._thawed.wait()
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._thawed.wait()
            with connection:
                try:
                    self._answer(connection)
                except OSError:
                    pass  # the client has hung up

    def _answer(self, connection: socket.socket) -> None:
        request = b""
        while not request.endswith(b"\0"):
            piece = connection.recv(4096)
            if not piece:
                return
            request += piece
        question = json.loads(request[:-1])
        self.asked.append(question)
        key = f"{question['prefix']} {question.get('var', '')}".rstrip()
        answer = self.answers.get(key, b"ERROR: (22) Invalid argument\n")
        if "logger" in question and isinstance(answer, bytes):
            answer = filtered(answer, question["logger"], question.get("counter", ""))
        if callable(answer):
            answer(connection)
        else:
            connection.sendall(framed(answer))
