"""The file that protects the HTTP side with TLS and passwords, in the format of Prometheus' exporters.

The format is exporter-toolkit's (docs/web-configuration.md of github.com/prometheus/exporter-toolkit, version 0.14).
Relative paths in it start from its directory. What Python's ssl cannot do is refused, not ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

__all__ = ["HttpServer", "RateLimit", "TlsServer", "WebConfig", "WebConfigError", "load_web_config", "parse_web_config"]

MAX_WEB_CONFIG_BYTES = 1 << 20
"""Longest file in bytes: ten thousand users have 0.9 MB."""
BCRYPT = re.compile(r"\$2[abxy]\$[0-9]{2}\$[./A-Za-z0-9]{53}")
"""A bcrypt hash (crypt(5)): its version, its cost, salt and hash."""
DURATION = re.compile(r"(\d{1,9})(ms|s|m|h)")
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
"""Seconds in each unit of a duration."""
HEADERS: Mapping[str, tuple[str, ...]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
"""Headers that may be set, and their values where not all are allowed, as in exporter-toolkit (web/handler.go)."""
UNVERIFIED = ("RequestClientCert", "RequireAnyClientCert")
"""Kinds of client authentication that accept any certificate: Python's ssl verifies all that it requests."""

Version = Literal["TLS10", "TLS11", "TLS12", "TLS13"]


class WebConfigError(ValueError):
    """A file that cannot be used; the message says where, and why."""


class TlsServer(msgspec.Struct, forbid_unknown_fields=True):
    """How connections are encrypted, and who may connect."""

    cert_file: str = ""
    key_file: str = ""
    cert: str = ""
    """The certificate itself, in PEM, instead of its file; so are `key` and `client_ca`."""
    key: str = ""
    client_auth_type: Literal[
        "NoClientCert",
        "RequestClientCert",
        "RequireAnyClientCert",
        "VerifyClientCertIfGiven",
        "RequireAndVerifyClientCert",
    ] = "NoClientCert"
    client_ca_file: str = ""
    client_ca: str = ""
    client_allowed_sans: list[str] = []
    """A client's certificate must have one of these names (RFC 5280, 4.2.1.6)."""
    min_version: Version = "TLS12"
    max_version: Version = "TLS13"
    cipher_suites: list[str] = []
    """Names as Go has them; those of TLS 1.3 cannot be chosen."""
    prefer_server_cipher_suites: bool = True
    curve_preferences: list[str] = []


class HttpServer(msgspec.Struct, forbid_unknown_fields=True):
    """HTTP itself. HTTP/2 is never spoken, whatever `http2` says: a client agrees on HTTP/1.1."""

    http2: bool = True
    headers: dict[str, str | int] = {}


class RateLimit(msgspec.Struct, forbid_unknown_fields=True):
    """How many requests are answered."""

    interval: str = "0s"
    """Mean time between two requests; 0 means no limit."""
    burst: int = 0
    """Requests that may come at once."""

    @property
    def seconds(self) -> float:
        """Return the interval in seconds."""
        found = DURATION.fullmatch(self.interval)
        return float(found[1]) * UNITS[found[2]] if found else 0.0


class WebConfig(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    tls_server_config: TlsServer | None = None
    http_server_config: HttpServer = msgspec.field(default_factory=HttpServer)
    basic_auth_users: dict[str, str] = {}
    """Users, and the bcrypt hashes of their passwords."""
    rate_limit: RateLimit = msgspec.field(default_factory=RateLimit)


def load_web_config(path: Path) -> WebConfig:
    """Return the configuration of a file, with paths that start from our directory. Raises WebConfigError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_WEB_CONFIG_BYTES + 1)
    except OSError as error:
        raise WebConfigError(f"{path}: {error.strerror}") from error
    if len(raw) > MAX_WEB_CONFIG_BYTES:
        raise WebConfigError(f"{path}: is longer than {MAX_WEB_CONFIG_BYTES >> 20} MiB")
    try:
        config = parse_web_config(raw.decode(), str(path))
    except UnicodeDecodeError as error:
        raise WebConfigError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error
    if (tls := config.tls_server_config) is not None:
        for name in ("cert_file", "key_file", "client_ca_file"):
            if value := getattr(tls, name):
                setattr(tls, name, str(path.parent / value))
    return config


def parse_web_config(text: str, origin: str) -> WebConfig:
    """Return the configuration in a text; `origin` names it in errors. Raises WebConfigError."""
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text) or {}
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f":{error.problem_mark.line + 1}"
        raise WebConfigError(f"{origin}{line}: not YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise WebConfigError(f"{origin}: not YAML: {error}") from error
    lines = _lines(root)
    try:
        config = msgspec.convert(document, WebConfig)
        _check(config)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at ")
        path = tuple(re.findall(r"\w+", where))
        unknown = re.search(r"unknown field `([^`]+)`", reason)
        place = (*path, unknown[1]) if unknown else path
        named = ".".join(path)
        raise WebConfigError(f"{origin}:{_line(place, lines)}: {f'{named}: ' if named else ''}{reason}") from error
    return config


def _check(config: WebConfig) -> None:
    """Check what types can't express. Raises msgspec.ValidationError, with a path as msgspec gives it."""

    def refuse(reason: str, where: str) -> None:
        raise msgspec.ValidationError(f"{reason} - at `$.{where}`")

    if (tls := config.tls_server_config) is not None:
        at = "tls_server_config"
        for name in ("cert", "key"):
            given = bool(getattr(tls, name)) + bool(getattr(tls, f"{name}_file"))
            if given != 1:
                refuse(f"needs {name}_file or {name}{', not both' if given else ''}", at)
        if tls.client_auth_type in UNVERIFIED:
            verified = "use VerifyClientCertIfGiven or RequireAndVerifyClientCert"
            refuse(f"{tls.client_auth_type} would accept any certificate: {verified}", f"{at}.client_auth_type")
        if (tls.client_ca or tls.client_ca_file) and tls.client_auth_type == "NoClientCert":
            refuse("a CA of clients needs a client_auth_type", at)
        if tls.client_allowed_sans and tls.client_auth_type != "RequireAndVerifyClientCert":
            refuse("needs client_auth_type: RequireAndVerifyClientCert", f"{at}.client_allowed_sans")
        if tls.min_version > tls.max_version:
            refuse(f"{tls.min_version} is above max_version {tls.max_version}", f"{at}.min_version")
        if len(tls.curve_preferences) > 1:
            refuse("Python's ssl can be given one curve only", f"{at}.curve_preferences")
    for name, value in config.http_server_config.headers.items():
        where = "http_server_config.headers"
        if name not in HEADERS:
            refuse(f"{name!r} cannot be set; these can: {', '.join(HEADERS)}", where)
        if HEADERS[name] and str(value).lower() not in HEADERS[name]:
            refuse(f"{name} must be {' or '.join(HEADERS[name])}, not {value!r}", where)
        if not str(value).isprintable():
            refuse(f"{name} has characters that no header may have", where)
    for user, hashed in config.basic_auth_users.items():
        if not BCRYPT.fullmatch(hashed):
            made = "htpasswd -nBC 10 '' makes one"
            refuse(f"the password of {user!r} is not a bcrypt hash; {made}", f"basic_auth_users.{user}")
    limit = config.rate_limit
    if not DURATION.fullmatch(limit.interval):
        refuse(f"{limit.interval!r} is not a duration such as 100ms, 1s or 1m", "rate_limit.interval")
    if limit.burst < 0 or (limit.seconds and not limit.burst):
        refuse("must be at least 1", "rate_limit.burst")


def _lines(node: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], int]:
    """Return the line, from 1, of each key of a YAML document."""
    import yaml

    found = {path: node.start_mark.line + 1} if node is not None else {}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                # Levels that the format does not have are not looked at: an alias may repeat them without end.
                deeper = _lines(value, (*path, str(key.value))) if len(path) < 3 else {}
                found |= deeper | {(*path, str(key.value)): key.start_mark.line + 1}
    return found


def _line(path: tuple[str, ...], lines: Mapping[tuple[str, ...], int]) -> int:
    """Return the line of a path, or of the innermost that has one around it."""
    return next((lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in lines), 1)
