"""TLS of the HTTP server, from the configuration of exporter-toolkit."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pinchpoint.wire.web_config import TlsServer, WebConfigError

__all__ = ["allowed", "cipher", "server_context"]

VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
VERIFIED = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
"""Curves by their names in Go (crypto/tls), as OpenSSL calls them."""
SUITE = re.compile(r"TLS_(ECDHE_RSA_|ECDHE_ECDSA_|RSA_)WITH_(AES_(?:128|256)_(?:GCM|CBC)_SHA(?:256|384)?)")
CHACHA = re.compile(r"TLS_(ECDHE_RSA|ECDHE_ECDSA)_WITH_CHACHA20_POLY1305(?:_SHA256)?")
SUITE_13 = re.compile(r"TLS_(?:AES|CHACHA20)_\w+")
"""Suites of TLS 1.3, which neither Go nor OpenSSL's list of ciphers can restrict."""
SAN_KINDS = ("DNS", "IP Address", "URI", "email")
"""The kinds of names in ``getpeercert``'s subjectAltName that Go compares (exporter-toolkit, web/tls_config.go)."""


def cipher(name: str) -> str | None:
    """Return OpenSSL's name of a cipher suite of Go, None for one of TLS 1.3. Raises ValueError if there is none."""
    if found := SUITE.fullmatch(name):
        key = found[1].removesuffix("_").replace("_", "-") + "-" if found[1] != "RSA_" else ""
        return key + found[2].replace("_CBC", "").replace("AES_", "AES", 1).replace("_", "-")
    if found := CHACHA.fullmatch(name):
        return f"{found[1].replace('_', '-')}-CHACHA20-POLY1305"
    if SUITE_13.fullmatch(name):
        return None
    raise ValueError(f"no cipher suite is called {name!r}")


def server_context(config: TlsServer) -> ssl.SSLContext:
    """Return what encrypts connections. Raises WebConfigError, which names the file or the key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = VERSIONS[config.min_version], VERSIONS[config.max_version]
    if config.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.verify_mode = VERIFIED[config.client_auth_type]
    with (
        _named(config.cert_file or "cert", config.key_file or "key"),
        _file(config.cert_file, config.cert) as certificate,
        _file(config.key_file, config.key) as key,
    ):
        context.load_cert_chain(certificate, key, password=_no_password)
    if context.verify_mode is not ssl.CERT_NONE:
        with _named(config.client_ca_file or "client_ca"):
            if config.client_ca_file or config.client_ca:
                context.load_verify_locations(config.client_ca_file or None, cadata=config.client_ca or None)
            else:
                context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    try:
        if names := [found for name in config.cipher_suites if (found := cipher(name)) is not None]:
            context.set_ciphers(":".join(names))
        for curve in config.curve_preferences:
            context.set_ecdh_curve(CURVES[curve])
    except KeyError as error:
        raise WebConfigError(f"tls_server_config.curve_preferences: no curve is called {error.args[0]!r}") from error
    except (ssl.SSLError, ValueError) as error:
        raise WebConfigError(f"tls_server_config: {error}") from error
    return context


def allowed(certificate: Any, names: Sequence[str]) -> bool:
    """Return whether a client's certificate, as ``getpeercert`` gives it, has one of the names, if any are given."""
    if not names:
        return True
    found = (certificate or {}).get("subjectAltName", ())
    return any(kind in SAN_KINDS and name in names for kind, name in found)


def _no_password() -> str:
    """Refuse an encrypted key: OpenSSL would ask for its password on the terminal."""
    raise ValueError("the key is encrypted, and nobody could type its password")


@contextmanager
def _named(*names: str) -> Iterator[None]:
    """Name the files in the error that OpenSSL raises without them."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise WebConfigError(f"tls_server_config: {' or '.join(names)}: {reason}") from error


@contextmanager
def _file(path: str, text: str) -> Iterator[str]:
    """Yield the path of a file that has a text: OpenSSL reads certificates and keys from files only."""
    if path:
        yield path
        return
    handle = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(handle, text.encode())
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
