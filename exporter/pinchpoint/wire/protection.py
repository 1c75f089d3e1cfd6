"""What protects a server: TLS, passwords and limits by the file of ``--web.config.file``, which is read again.

Imported only with such a file: bcrypt, PyYAML and certificates cost memory.
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from pinchpoint.model import Point
from pinchpoint.tomlfile import ConfigError
from pinchpoint.wire.basic_auth import FORGIVE_SECONDS, Answer, Passwords, credentials
from pinchpoint.wire.connections import Reason, Refusals, peer_of
from pinchpoint.wire.guard import Application, ProtectionMetrics, StartResponse
from pinchpoint.wire.tls import Pair, TlsError, Version, alternative_names, authorities, server_context
from pinchpoint.wire.token_bucket import TokenBucket
from pinchpoint.wire.watched_files import WatchedFiles, why_unread
from pinchpoint.wire.web_config import ClientAuth, TlsServer, WebConfig, parse_web_config, seconds
from pinchpoint.wire.yamlfile import Document

__all__ = ["Protection", "check_files"]

log = logging.getLogger(__name__)

MAX_SESSIONS = 256
"""Sessions of TLS 1.2 that a context may keep. OpenSSL keeps 20,480 of clients that know no tickets, 20 to 40 MB, and
Python has no way to limit them but a new context."""
PLAIN_HTTP = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
"""As Go's net/http answers it."""
VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.IF_GIVEN: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


class _State(msgspec.Struct):
    """What the file says, with the content of the files that it names."""

    config: WebConfig
    material: tuple[bytes, ...]
    """Certificates and key."""
    make_context: Callable[[], ssl.SSLContext] | None
    """Makes the TLS context; None without TLS."""
    context: ssl.SSLContext | None
    limiter: TokenBucket | None

    @property
    def weaknesses(self) -> set[str]:
        """What an attacker would like to see gone is not there."""
        tls = self.config.tls_server_config
        return {
            name
            for name, there in (
                ("TLS", self.context),
                ("the verification of client certificates", tls.client_auth is ClientAuth.REQUIRED),
                ("the list of allowed client certificates", tls.client_allowed_sans),
                ("passwords", self.config.basic_auth_users),
            )
            if not there
        }


class Protection:
    """Protects a server by a file in the format of exporter-toolkit's web configuration.

    The file, and those that it names, are looked at for each connection. If they cannot be used any more, or lack a
    protection that they had, the last good ones stay in use: a file that is just being written may be empty.
    """

    def __init__(self, path: Path, metrics: ProtectionMetrics, refusals: Refusals) -> None:
        """Read the files. Raises ConfigError."""
        self._path = path
        self._metrics = metrics
        self._refusals = refusals
        self._passwords = Passwords()
        self._lock = Lock()
        self._problem = ""
        """Why the last reading failed."""
        self._read_at = time.time()
        self._watched = WatchedFiles()
        self._state = _read(path, self._watched)

    @property
    def summary(self) -> str:
        """What protects the server, for its log."""
        state = self._state
        parts = ["TLS" if state.context is not None else "no TLS"]
        if state.config.tls_server_config.client_auth is not ClientAuth.NONE:
            parts.append("client certificates")
        parts.append("passwords" if state.config.basic_auth_users else "no passwords")
        return ", ".join(parts)

    def secure(self, client: socket.socket) -> socket.socket:
        """Return the connection on which a client speaks HTTP: another object on the same one if there is TLS.

        The handshake waits for the client. Raises OSError if it fails.
        """
        state = self._current()
        if state.context is None:
            return client
        # A duplicate, since ssl takes the descriptor away from what it wraps: whoever shuts the client's connection
        # down because it lasts too long has to find it.
        secured = state.context.wrap_socket(client.dup(), server_side=True, do_handshake_on_connect=False)
        try:
            secured.do_handshake()
            self._check_names(secured, state.config.tls_server_config)
        except OSError as error:
            secured.close()
            if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
                self._refusals.count(Reason.TLS)
                if getattr(error, "reason", "") == "HTTP_REQUEST":
                    client.send(PLAIN_HTTP, socket.MSG_DONTWAIT)
            raise
        return secured

    @staticmethod
    def _check_names(secured: ssl.SSLSocket, tls: TlsServer) -> None:
        # As in Go, whoever need not show a certificate is not asked for a name either.
        if tls.client_allowed_sans and secured.getpeercert():
            names = alternative_names(secured)
            if not set(names) & set(tls.client_allowed_sans):
                raise ssl.SSLError(ssl.SSL_ERROR_SSL, f"no allowed name in the client's certificate: {sorted(names)}")

    def wrap(self, app: Application) -> Application:
        """Return `app`, protected by rate limit and passwords, with the configured headers."""

        def wrapped(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
            state = self._current()
            headers = [(name, value) for name, value in state.config.http_server_config.headers.items() if value]

            def start(status: str, given: list[tuple[str, str]]) -> Any:
                return start_response(status, [*given, *headers])

            if state.limiter is not None and not state.limiter.take():
                self._refusals.count(Reason.RATE)
                return _refuse(start, "429 Too Many Requests", ("Retry-After", _whole(1 / state.limiter.rate)))
            users = state.config.basic_auth_users
            if not users:
                return app(environ, start)
            given = credentials(environ.get("HTTP_AUTHORIZATION", ""))
            answer = Answer.WRONG
            if given is not None:
                answer = self._passwords.check(users, *given, peer_of(environ["REMOTE_ADDR"]))
            if answer is Answer.RIGHT and given is not None:
                return app({**environ, "REMOTE_USER": given[0]}, start)
            if answer is Answer.UNCHECKED:
                self._refusals.count(Reason.ATTEMPTS)
                return _refuse(start, "429 Too Many Requests", ("Retry-After", _whole(FORGIVE_SECONDS)))
            self._refusals.count(Reason.PASSWORD)
            return _refuse(start, "401 Unauthorized", ("WWW-Authenticate", 'Basic realm="pinchpoint", charset="UTF-8"'))

        return wrapped

    def points(self) -> Iterator[Point]:
        """Yield its metrics."""
        yield self._metrics.reload_successful.point(not self._problem)
        yield self._metrics.reload_time.point(self._read_at)
        yield self._metrics.password_cpu.point(self._passwords.cpu_seconds)

    def _current(self) -> _State:
        """Return what holds now, after a look at the files."""
        if self._watched.changed:
            with self._lock:
                if self._watched.changed:
                    self._reload()
        state = self._state
        if state.make_context and state.context and state.context.session_stats()["number"] > MAX_SESSIONS:
            state.context = state.make_context()
        return state

    def _reload(self) -> None:
        watched = WatchedFiles()
        try:
            state = _read(self._path, watched)
            if lost := sorted(state.weaknesses - self._state.weaknesses):
                raise ConfigError(f"{self._path}: has lost {' and '.join(lost)}: restart to serve without")
        except ConfigError as error:
            if self._problem != str(error):
                self._problem = str(error)
                log.error("%s; what was read before stays in use", error)
        else:
            if state.config.rate_limit == self._state.config.rate_limit:
                state.limiter = self._state.limiter
            news = self._problem or (state.config, state.material) != (self._state.config, self._state.material)
            self._problem, self._state, self._read_at = "", state, time.time()
            if news:
                log.info("%s was read again: %s", self._path, self.summary)
        self._watched = watched


def check_files(path: Path) -> None:
    """Read a file and those that it names. Raises ConfigError if a server could not use them."""
    _read(path, WatchedFiles())


def _read(path: Path, files: WatchedFiles) -> _State:
    """Return the content of a file and of those that it names. Raises ConfigError; `files` watches what was found."""
    try:
        raw = files.read(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {why_unread(error)}") from error
    document = parse_web_config(raw, str(path))
    config = document.value
    material = _material(document, path.parent, files) if config.tls_server_config.enabled else ()
    make = partial(_context, config.tls_server_config, material) if material else None
    interval = seconds(config.rate_limit.interval)
    limiter = TokenBucket(1 / interval, config.rate_limit.burst) if interval else None
    try:
        context = None if make is None else make()
    except TlsError as error:
        raise document.error(str(error), *_place(document.value.tls_server_config, error.part)) from error
    return _State(config, material, make, context, limiter)


def _material(document: Document[WebConfig], directory: Path, files: WatchedFiles) -> tuple[bytes, bytes, bytes]:
    """Return certificate, key and authorities (empty without any). Raises ConfigError."""
    tls = document.value.tls_server_config

    def content(text: str, name: str, field: str) -> bytes:
        if text or not name:
            return text.encode()
        path = directory / name
        try:
            return files.read(path)
        except (OSError, ValueError) as error:
            raise document.error(f"{path}: {why_unread(error)}", "tls_server_config", field) from error

    return (
        content(tls.cert, tls.cert_file, "cert_file"),
        content(tls.key, tls.key_file, "key_file"),
        content(tls.client_ca, tls.client_ca_file, "client_ca_file"),
    )


def _context(tls: TlsServer, material: tuple[bytes, bytes, bytes]) -> ssl.SSLContext:
    """Return a new TLS context. Raises TlsError."""
    cert, key, authority = material
    return server_context(
        Pair(cert, key),
        verify=VERIFY[tls.client_auth],
        ca=authorities(authority) if tls.client_ca or tls.client_ca_file else "",
        minimum=Version[tls.min_version or "TLS12"],
        maximum=Version[tls.max_version or "TLS13"],
        ciphers=tls.cipher_suites,
        curves=tls.curve_preferences,
        own_order=tls.prefer_server_cipher_suites,
    )


def _place(tls: TlsServer, part: str) -> tuple[str, str]:
    """Return where the file names a part that cannot be used."""
    field = {"cert": "cert", "key": "key", "ca": "client_ca"}[part]
    return "tls_server_config", field if getattr(tls, field) else f"{field}_file"


def _refuse(start: StartResponse, status: str, header: tuple[str, str]) -> Iterable[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8"), header])
    return [f"{status.partition(' ')[2]}\n".encode()]


def _whole(seconds: float) -> str:
    return str(math.ceil(seconds))
