"""The file of ``--web.config.file``: TLS, passwords and limits of a server, as exporter-toolkit has them.

https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md; the same files mean the same here.
What Python's ssl cannot do is refused: `REFUSED` and `docs/tls.md` list it.
"""

from __future__ import annotations

import re

import msgspec

from pinchpoint.compat import StrEnum
from pinchpoint.expressions import expression
from pinchpoint.tomlfile import ConfigError
from pinchpoint.wire.tls import CIPHERS, CURVES, TLS13_CIPHERS, Version, can_order_curves
from pinchpoint.wire.yamlfile import Document, decode_yaml

__all__ = ["ClientAuth", "HttpServer", "RateLimit", "TlsServer", "WebConfig", "parse_web_config", "seconds"]

MAX_BCRYPT_COST = 18
"""Highest cost of a password's hash: to check one takes 18 s of CPU, and each step more twice as long."""
BCRYPT = expression(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
HEADERS: dict[str, tuple[str, ...]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
"""The headers that may be set, with their values if only some are valid (exporter-toolkit, web/handler.go)."""
DURATION_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
DURATION_PART = expression(r"(\d{1,18}\.?\d{0,18}|\.\d{1,18})(ns|us|µs|ms|s|m|h)")


class ClientAuth(StrEnum):
    """What is required of a client's certificate."""

    NONE = "NoClientCert"
    IF_GIVEN = "VerifyClientCertIfGiven"
    REQUIRED = "RequireAndVerifyClientCert"


REFUSED = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
"""They take a certificate of anybody without verifying it, which Python's ssl cannot, and which protects nothing."""


class TlsServer(msgspec.Struct, forbid_unknown_fields=True):
    """Section ``tls_server_config``."""

    cert: str = ""
    key: str = ""
    client_ca: str = ""
    cert_file: str = ""
    key_file: str = ""
    client_auth_type: str = ""
    client_ca_file: str = ""
    client_allowed_sans: list[str] = []
    min_version: str = ""
    max_version: str = ""
    cipher_suites: list[str] = []
    prefer_server_cipher_suites: bool = True
    curve_preferences: list[str] = []

    @property
    def enabled(self) -> bool:
        """Whether there is to be TLS (exporter-toolkit, TLSConfig.IsEnabled)."""
        fields = (self.cert, self.cert_file, self.key, self.key_file, self.client_ca, self.client_ca_file)
        return any(fields) or bool(self.client_auth_type)

    @property
    def client_auth(self) -> ClientAuth:
        """What is required of a client's certificate."""
        return ClientAuth(self.client_auth_type or ClientAuth.NONE)


class HttpServer(msgspec.Struct, forbid_unknown_fields=True):
    """Section ``http_server_config``."""

    http2: bool = True
    """Allows HTTP/2, which this server never speaks: clients agree on HTTP/1 then."""
    headers: dict[str, str] = {}


class RateLimit(msgspec.Struct, forbid_unknown_fields=True):
    """Section ``rate_limit``."""

    interval: str = "0"
    burst: int = 0


class WebConfig(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    tls_server_config: TlsServer = msgspec.field(default_factory=TlsServer)
    http_server_config: HttpServer = msgspec.field(default_factory=HttpServer)
    basic_auth_users: dict[str, str] = {}
    rate_limit: RateLimit = msgspec.field(default_factory=RateLimit)


def parse_web_config(raw: bytes, origin: str) -> Document[WebConfig]:
    """Return the content of a file; `origin` names it in errors. Raises ConfigError.

    The files that it names are not read.
    """
    document = decode_yaml(raw, WebConfig, origin)
    if document.value.tls_server_config != TlsServer():
        _check_tls(document)
    for name, value in document.value.http_server_config.headers.items():
        _check_header(document, name, value)
    for user, hashed in document.value.basic_auth_users.items():
        _check_user(document, user, hashed)
    limit = document.value.rate_limit
    try:
        seconds(limit.interval)
    except ValueError as error:
        raise document.error(str(error), "rate_limit", "interval") from error
    if limit.burst < 0:
        raise document.error("must not be negative", "rate_limit", "burst")
    return document


def seconds(duration: str) -> float:
    """Return a duration as Go writes it (time.ParseDuration), ``1m30s`` or ``0``, in seconds. Raises ValueError."""
    if duration == "0":
        return 0.0
    if not (parts := DURATION_PART.findall(duration)) or "".join(map("".join, parts)) != duration:
        raise ValueError(f"{duration!r} is not a duration, such as 500ms, 1s or 1m30s")
    return sum(float(number) * DURATION_UNITS[unit] for number, unit in parts)


def _check_tls(document: Document[WebConfig]) -> None:
    tls = document.value.tls_server_config

    def error(reason: str, *path: str | int) -> ConfigError:
        return document.error(reason, "tls_server_config", *path)

    if not tls.cert and not tls.cert_file:
        raise error("missing one of cert or cert_file")
    if not tls.key and not tls.key_file:
        raise error("missing one of key or key_file")
    for text, file in (("cert", "cert_file"), ("key", "key_file"), ("client_ca", "client_ca_file")):
        if getattr(tls, text) and getattr(tls, file):
            raise error(f"give either {text} or {file}", file)
    if tls.client_auth_type in REFUSED:
        reason = f"{tls.client_auth_type} takes any certificate unverified, which is not supported; "
        raise error(f"{reason}{ClientAuth.REQUIRED} verifies it", "client_auth_type")
    if tls.client_auth_type not in ("", *ClientAuth):
        raise error(f"unknown: {tls.client_auth_type!r}; known are {', '.join(ClientAuth)}", "client_auth_type")
    if tls.client_auth is ClientAuth.NONE:
        for field in ("client_ca", "client_ca_file", "client_allowed_sans"):
            if getattr(tls, field):
                reason = f"client certificates are not asked for: set client_auth_type: {ClientAuth.REQUIRED}"
                raise error(reason, field)
    for field in ("min_version", "max_version"):
        if reason := _version_problem(getattr(tls, field)):
            raise error(reason, field)
    if Version[tls.min_version or "TLS12"] > Version[tls.max_version or "TLS13"]:
        raise error("is above max_version", "min_version")
    ciphers = (*CIPHERS, *TLS13_CIPHERS)
    for number, name in enumerate(tls.cipher_suites):
        if name not in ciphers:
            raise error(f"unknown cipher: {name!r}; known are {', '.join(ciphers)}", "cipher_suites", number)
    if tls.cipher_suites and not set(tls.cipher_suites) & set(CIPHERS):
        reason = "has none of TLS 1.2, and those of TLS 1.3 cannot be chosen: leave it out and set min_version: TLS13"
        raise error(reason, "cipher_suites")
    for number, name in enumerate(tls.curve_preferences):
        if name not in CURVES:
            raise error(f"unknown curve: {name!r}; known are {', '.join(CURVES)}", "curve_preferences", number)
    if len(tls.curve_preferences) > 1 and not can_order_curves():
        raise error("this Python's ssl can set one curve only: list one, or leave it out for all", "curve_preferences")


def _version_problem(name: str) -> str:
    """Return why a version cannot be used; empty if it can."""
    if name in ("TLS10", "TLS11"):
        return f"{name} is obsolete (RFC 8996) and not supported"
    return "" if name in ("", *Version.__members__) else f"unknown TLS version: {name!r}; known are TLS12, TLS13"


def _check_header(document: Document[WebConfig], name: str, value: str) -> None:
    where = ("http_server_config", "headers", name)
    if name not in HEADERS:
        raise document.error(f"this header cannot be configured; {', '.join(HEADERS)} can", *where)
    if HEADERS[name] and value not in HEADERS[name]:
        raise document.error(f"invalid value: {value!r}; must be {' or '.join(HEADERS[name])}", *where)
    if not re.fullmatch(r"[\t\x20-\x7e]*", value):
        raise document.error("must be one line of ASCII", *where)


def _check_user(document: Document[WebConfig], user: str, hashed: str) -> None:
    where = ("basic_auth_users", user)
    if ":" in user:
        raise document.error("a user's name cannot have a colon (RFC 7617)", *where)
    if (found := BCRYPT.fullmatch(hashed)) is None:
        # The text may be the password itself: it is not repeated.
        raise document.error("not a bcrypt hash, $2y$10$ and 53 characters, as htpasswd -nBC 10 '' makes it", *where)
    if not 4 <= int(found[1]) <= MAX_BCRYPT_COST:
        raise document.error(f"its cost is {found[1]}, and must be 4 to {MAX_BCRYPT_COST}; 10 is usual", *where)
