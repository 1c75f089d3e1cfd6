"""The file of ``--http-config``: how this program, as a client, speaks TLS and says who it is.

Its format is Prometheus' ``http_config`` (https://prometheus.io/docs/prometheus/latest/configuration/configuration/ and
config/http_config.go of prometheus/common), as promtool and amtool take it too.
"""

from __future__ import annotations

import logging
import ssl
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from pinchpoint.expressions import expression
from pinchpoint.tomlfile import ConfigError
from pinchpoint.wire.tls import Pair, TlsError, Version, authorities, client_context
from pinchpoint.wire.watched_files import WatchedFiles, why_unread
from pinchpoint.wire.yamlfile import Document, decode_yaml

__all__ = ["Access", "HttpAccess", "HttpConfig", "TokenAccess", "parse_http_config"]

log = logging.getLogger(__name__)

TOKEN = expression(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name (RFC 9110, section 5.6.2)."""
VALUE = expression(r"[\t\x20-\x7e\x80-\xff]*")
"""A header's value: one line of Latin-1."""
RESERVED_HEADERS = frozenset(
    [
        *("authorization", "host", "content-encoding", "content-length", "content-type", "user-agent", "connection"),
        *("keep-alive", "proxy-authenticate", "proxy-authorization", "www-authenticate", "accept-encoding"),
        *("transfer-encoding", "te", "trailer", "upgrade"),
    ]
)
"""Headers that other settings, or the connection itself, give."""
REFUSED = {
    "oauth2": "is not supported: use authorization or basic_auth",
    "bearer_token": "is not supported: write authorization: {credentials: ...}",
    "bearer_token_file": "is not supported: write authorization: {credentials_file: ...}",
    "proxy_url": "is not supported: servers are asked directly",
    "no_proxy": "is not supported: servers are asked directly",
    "proxy_from_environment": "is not supported: servers are asked directly",
    "proxy_connect_header": "is not supported: servers are asked directly",
}
"""Settings that Prometheus knows and that are not supported."""


class BasicAuth(msgspec.Struct, forbid_unknown_fields=True):
    """Section ``basic_auth``."""

    username: str = ""
    username_file: str = ""
    password: str = ""
    password_file: str = ""


class Authorization(msgspec.Struct, forbid_unknown_fields=True):
    """Section ``authorization``."""

    type: str = "Bearer"
    credentials: str = ""
    credentials_file: str = ""


class TlsClient(msgspec.Struct, forbid_unknown_fields=True):
    """Section ``tls_config``."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""
    insecure_skip_verify: bool = False
    min_version: str = ""
    max_version: str = ""


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """An entry of ``http_headers``."""

    values: list[str] = []
    secrets: list[str] = []
    files: list[str] = []


class HttpConfig(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    basic_auth: BasicAuth | None = None
    authorization: Authorization | None = None
    tls_config: TlsClient | None = None
    follow_redirects: bool = True
    enable_http2: bool = True
    """Allows HTTP/2, which is never spoken."""
    http_headers: dict[str, Header] = {}
    oauth2: Any = None
    bearer_token: Any = None
    bearer_token_file: Any = None
    proxy_url: Any = None
    no_proxy: Any = None
    proxy_from_environment: Any = None
    proxy_connect_header: Any = None


class Access(msgspec.Struct, frozen=True):
    """How servers are asked."""

    context: ssl.SSLContext
    headers: Mapping[str, str]
    """They are secret: only for the server that a user named, not for those to which it redirects."""
    server_name: str
    """The name that servers' certificates must have; empty for that in the address."""
    follow_redirects: bool


class HttpAccess:
    """How servers are asked, by a file that is read again when it or a file that it names changes.

    If they cannot be used any more, the last good ones stay in use.
    """

    def __init__(self, path: Path) -> None:
        """Read the files. Raises ConfigError."""
        self._path = path
        self._lock = Lock()
        self._problem = ""
        self._watched = WatchedFiles()
        self._config, self._access = self._read(self._watched)

    @property
    def scheme(self) -> str:
        """The scheme of an address that names none: a file with ``tls_config`` is for servers with TLS."""
        return "http" if self._config.tls_config is None else "https"

    def current(self) -> Access:
        """Return how servers are asked now; the same object until something changes."""
        with self._lock:
            if self._watched.changed:
                self._reload()
            return self._access

    def _reload(self) -> None:
        watched = WatchedFiles()
        try:
            config, access = self._read(watched)
        except ConfigError as error:
            if self._problem != str(error):
                self._problem = str(error)
                log.error("%s; what was read before stays in use", error)
        else:
            self._problem, self._config, self._access = "", config, access
        self._watched = watched

    def _read(self, files: WatchedFiles) -> tuple[HttpConfig, Access]:
        """Return the content of the file, and what follows from it and the files that it names. Raises ConfigError."""
        try:
            raw = files.read(self._path)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._path}: {why_unread(error)}") from error
        return _accessed(parse_http_config(raw, str(self._path)), files)


class TokenAccess(HttpAccess):
    """How servers are asked by a bearer token, the only line of a file."""

    def _read(self, files: WatchedFiles) -> tuple[HttpConfig, Access]:
        try:
            token = files.read(self._path).strip().decode("latin-1")
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._path}: {why_unread(error)}") from error
        if not token or not VALUE.fullmatch(token):
            raise ConfigError(f"{self._path}: a token must be one line of Latin-1")
        config = HttpConfig(authorization=Authorization(credentials=token))
        return _accessed(Document(config, str(self._path), {}), files)


def parse_http_config(raw: bytes, origin: str) -> Document[HttpConfig]:
    """Return the content of a file; `origin` names it in errors. Raises ConfigError.

    The files that it names are not read.
    """
    document = decode_yaml(raw, HttpConfig, origin)
    config = document.value
    for field, reason in REFUSED.items():
        if getattr(config, field) is not None:
            raise document.error(reason, field)
    if config.basic_auth is not None and config.authorization is not None:
        raise document.error("give either basic_auth or authorization", "authorization")
    _check_either(document, config.basic_auth, "basic_auth", "username", "password")
    _check_either(document, config.authorization, "authorization", "credentials")
    if config.authorization is not None:
        if config.authorization.type.lower() == "basic":
            raise document.error('cannot be "basic": use basic_auth', "authorization", "type")
        if not TOKEN.fullmatch(config.authorization.type):
            raise document.error("is not a scheme, such as Bearer", "authorization", "type")
    _check_either(document, config.tls_config, "tls_config", "ca", "cert", "key")
    if config.tls_config is not None:
        _check_tls(document, config.tls_config)
    for name in config.http_headers:
        if not TOKEN.fullmatch(name) or name.lower() in RESERVED_HEADERS:
            raise document.error("this header cannot be set here", "http_headers", name)
    return document


def _check_either(document: Document[HttpConfig], section: msgspec.Struct | None, name: str, *fields: str) -> None:
    for field in fields:
        if section is not None and getattr(section, field) and getattr(section, f"{field}_file"):
            raise document.error(f"give either {field} or {field}_file", name, f"{field}_file")


def _check_tls(document: Document[HttpConfig], tls: TlsClient) -> None:
    if bool(tls.cert or tls.cert_file) != bool(tls.key or tls.key_file):
        raise document.error("a certificate needs its key, and a key its certificate", "tls_config")
    for field in ("min_version", "max_version"):
        name = getattr(tls, field)
        if name and name not in Version.__members__:
            known = ", ".join(Version.__members__)
            raise document.error(f"{name!r} is not a TLS version that is supported: {known}", "tls_config", field)
    if Version[tls.min_version or "TLS12"] > Version[tls.max_version or "TLS13"]:
        raise document.error("is above max_version", "tls_config", "min_version")


def _accessed(document: Document[HttpConfig], files: WatchedFiles) -> tuple[HttpConfig, Access]:
    """Return a configuration, and what follows from it and the files that it names. Raises ConfigError."""
    config = document.value

    def content(section: Any, field: str, *place: str | int) -> bytes:
        """Return what stands in a section, or in the file that it names."""
        name = getattr(section, f"{field}_file")
        return _content(document, files, name, *place, f"{field}_file") if name else getattr(section, field).encode()

    headers = {name: _header(document, files, name, header) for name, header in config.http_headers.items()}
    if (basic := config.basic_auth) is not None:
        user = content(basic, "username", "basic_auth").strip()
        password = content(basic, "password", "basic_auth")
        password = password.strip() if basic.password_file else password
        headers["Authorization"] = f"Basic {b64encode(user + b':' + password).decode()}"
    if (authorization := config.authorization) is not None:
        secret = content(authorization, "credentials", "authorization").strip().decode("latin-1")
        if not VALUE.fullmatch(secret):
            raise document.error("credentials must be one line", "authorization")
        headers["Authorization"] = f"{authorization.type} {secret}"
    tls = config.tls_config or TlsClient()
    try:
        context = _context(tls, *(content(tls, field, "tls_config") for field in ("ca", "cert", "key")))
    except TlsError as error:
        field = error.part if getattr(tls, error.part) else f"{error.part}_file"
        raise document.error(str(error), "tls_config", field) from error
    return config, Access(context, headers, tls.server_name, config.follow_redirects)


def _context(tls: TlsClient, ca: bytes, cert: bytes, key: bytes) -> ssl.SSLContext:
    return client_context(
        authorities(ca) if tls.ca or tls.ca_file else "",
        Pair(cert, key) if cert or key else None,
        verify=not tls.insecure_skip_verify,
        minimum=Version[tls.min_version or "TLS12"],
        maximum=Version[tls.max_version or "TLS13"],
    )


def _header(document: Document[HttpConfig], files: WatchedFiles, name: str, header: Header) -> str:
    """Return the value of a header: several are one list."""
    values = [*header.values, *header.secrets]
    for number, file in enumerate(header.files):
        read = _content(document, files, file, "http_headers", name, "files", number)
        values.append(read.strip().decode("latin-1"))
    for value in values:
        if not VALUE.fullmatch(value):
            raise document.error("a value must be one line of Latin-1", "http_headers", name)
    return ", ".join(values)


def _content(document: Document[HttpConfig], files: WatchedFiles, name: str, *place: str | int) -> bytes:
    path = Path(document.origin).parent / name
    try:
        return files.read(path)
    except (OSError, ValueError) as error:
        raise document.error(f"{path}: {why_unread(error)}", *place) from error
