"""Who may ask the HTTP server: TLS, passwords and a limit of requests, from a file that is reread when it changes."""

from __future__ import annotations

import binascii
import hashlib
import logging
import os
import ssl
import time
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from pinchpoint.wire.connections import Reason, Refusals, peer_of
from pinchpoint.wire.tls import allowed, server_context
from pinchpoint.wire.web_config import WebConfig, WebConfigError, load_web_config

if TYPE_CHECKING:
    from pinchpoint.wire.http import Application, StartResponse

__all__ = ["UNPROTECTED", "Guard", "Passwords", "TokenBucket"]

UNPROTECTED = "Neither TLS nor a password protects these pages."

MAX_REMEMBERED_PASSWORDS = 100
"""Right passwords whose hashes are not computed again: bcrypt takes 50 ms and more, by design."""
MAX_REMEMBERED_PEERS = 1000
MAX_PASSWORD_BYTES = 72
"""What bcrypt looks at."""
PEER_CHECKS, PEER_CHECK_INTERVAL_SECONDS = 5, 1.0
"""Hashes that may be computed for one peer at once, and seconds until it has another one."""
ALL_CHECKS, ALL_CHECK_INTERVAL_SECONDS = 20, 0.2
"""The same for all peers together: wrong passwords cost at most a quarter of a CPU."""
READ_AGAIN_SECONDS = 5.0
"""Seconds until files that could not be used are read again although none has changed: they may name another one."""
UNKNOWN = b"$2b$10$thGPhJ7nFFGTa4oW.KH/pewyemTe6RFMP8Czqle2zPAncpGORwaNq"
"""A hash for users that there are not: the time of an answer does not say which ones there are."""

log = logging.getLogger(__name__)


class TokenBucket:
    """Lets `burst` things happen at once, and one every `interval` seconds. `clock` is monotonic, in seconds."""

    def __init__(self, burst: int, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst, self._interval, self._clock = burst, interval, clock
        self._tokens, self._filled = float(burst), clock()

    def take(self) -> bool:
        """Return whether one more may happen now, and count it."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) / self._interval)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Passwords:
    """Compares passwords with bcrypt hashes, one at a time and few in a second, so that wrong ones cost little."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._peers: OrderedDict[str, TokenBucket] = OrderedDict()
        self._all = TokenBucket(ALL_CHECKS, ALL_CHECK_INTERVAL_SECONDS, clock)

    def right(self, hashed: str | None, user: str, password: bytes, peer: str) -> bool | None:
        """Return whether a password belongs to a hash; None where that would be asked too often.

        `hashed` is None for a user that there is not.
        """
        import bcrypt

        key = hashlib.sha256(b"\0".join((user.encode(), (hashed or "").encode(), password))).digest()
        with self._lock:
            if key in self._right:
                self._right.move_to_end(key)
                return True
            if not (self._bucket(peer).take() and self._all.take()):
                return None
            try:
                right = bcrypt.checkpw(password[:MAX_PASSWORD_BYTES], (hashed or "").encode() or UNKNOWN)
            except ValueError:  # a NUL in it
                right = False
            if right and hashed is not None:
                self._right[key] = None
                if len(self._right) > MAX_REMEMBERED_PASSWORDS:
                    self._right.popitem(last=False)
            return right and hashed is not None

    def _bucket(self, peer: str) -> TokenBucket:
        bucket = self._peers.pop(peer, None) or TokenBucket(PEER_CHECKS, PEER_CHECK_INTERVAL_SECONDS, self._clock)
        self._peers[peer] = bucket
        if len(self._peers) > MAX_REMEMBERED_PEERS:
            self._peers.popitem(last=False)
        return bucket


class Guard:
    """What a web configuration file asks for; without a file, nothing.

    The file, and those that it names, are read again when they have changed: a new certificate or password needs no
    restart. If they can't be used then, the last ones stay, and the log says why. Raises WebConfigError at the start.
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._lock = Lock()
        self._passwords = Passwords(clock)
        self.config = WebConfig()
        self._context: ssl.SSLContext | None = None
        self._limit: TokenBucket | None = None
        self._seen: object = None
        self._told = ""
        self._again = float("inf")
        """When files that could not be used are read again, in monotonic seconds."""
        if path is not None:
            self._use(load_web_config(path))

    def describe(self) -> str:
        """Return in a sentence what protects the pages."""
        tls, users = self.config.tls_server_config, self.config.basic_auth_users
        if tls is None and not users:
            return UNPROTECTED
        return f"{'TLS' if tls else 'No TLS'} and {'passwords' if users else 'no password'} protect these pages."

    def wrap(self, client: Any) -> Any:
        """Return a new connection as it is used from now on; the handshake is still to be done. Raises OSError."""
        self._refresh()
        if self._context is None:
            return client
        return self._context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)

    def shake_hands(self, client: Any) -> bool:
        """Return whether a connection may be used: do its handshake, and look at its client's certificate."""
        if not isinstance(client, ssl.SSLSocket):
            return True
        try:
            client.do_handshake()
        except (OSError, ValueError) as error:
            log.debug("TLS: %s", error)
            return False
        tls = self.config.tls_server_config
        return tls is None or allowed(client.getpeercert(), tls.client_allowed_sans)

    def protect(self, app: Application, refusals: Refusals) -> Application:
        """Return `app`, which answers those that know a password, as often as the limit allows."""

        def guarded(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
            self._refresh()
            headers = [(name, str(value)) for name, value in self.config.http_server_config.headers.items()]

            def start(status: str, given: list[tuple[str, str]]) -> Any:
                return start_response(status, [*given, *headers])

            def refuse(status: str, reason: Reason, *more: tuple[str, str]) -> Iterable[bytes]:
                refusals.count(reason)
                start(status, [("Content-Type", "text/plain; charset=utf-8"), *more])
                return [f"{status[4:]}\n".encode()]

            if self._limit is not None and not self._limit.take():
                return refuse("429 Too Many Requests", Reason.RATE, ("Retry-After", "1"))
            match self._knows(environ):
                case False:
                    return refuse("401 Unauthorized", Reason.PASSWORD, ("WWW-Authenticate", 'Basic realm="Pinchpoint"'))
                case None:
                    return refuse("429 Too Many Requests", Reason.PASSWORD, ("Retry-After", "1"))
            return app(environ, start)

        return guarded

    def _knows(self, environ: dict[str, Any]) -> bool | None:
        users = self.config.basic_auth_users
        if not users:
            return True
        scheme, _, given = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        try:
            user, colon, password = b64decode(given.strip(), validate=True).partition(b":")
            name = user.decode()
        except (binascii.Error, ValueError):
            return False
        if scheme.lower() != "basic" or not colon:
            return False
        return self._passwords.right(users.get(name), name, password, peer_of(environ["REMOTE_ADDR"]))

    def _refresh(self) -> None:
        """Read the files again if one of them has changed."""
        if self._path is None:
            return
        with self._lock:
            state = self._state()
            if state == self._seen and self._clock() < self._again:
                return
            self._seen = state
            try:
                config = load_web_config(self._path)
                if (config.tls_server_config is None) != (self.config.tls_server_config is None):
                    raise WebConfigError(f"{self._path}: TLS is turned on and off by a restart only")
                self._use(config)
            except WebConfigError as error:
                self._again = self._clock() + READ_AGAIN_SECONDS
                if str(error) != self._told:
                    self._told = str(error)
                    log.warning("%s; what was read before stays in use", error)

    def _use(self, config: WebConfig) -> None:
        tls, limit = config.tls_server_config, config.rate_limit
        context = server_context(tls) if tls is not None else None
        self._limit = TokenBucket(limit.burst, limit.seconds, self._clock) if limit.seconds else None
        self._context, self.config = context, config
        self._seen, self._again, self._told = self._state(), float("inf"), ""

    def _state(self) -> object:
        """Return what shows that a file has changed."""
        tls = self.config.tls_server_config
        named = (tls.cert_file, tls.key_file, tls.client_ca_file) if tls is not None else ()
        return [_identity(str(name)) for name in (self._path, *named) if name]


def _identity(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
