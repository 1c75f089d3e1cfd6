"""TLS contexts, from certificates and keys in memory, with Go's names of versions, ciphers and curves."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from ipaddress import ip_address

from pinchpoint.expressions import expression

__all__ = [
    "CIPHERS",
    "CURVES",
    "TLS13_CIPHERS",
    "Pair",
    "TlsError",
    "Version",
    "alternative_names",
    "authorities",
    "can_order_curves",
    "client_context",
    "server_context",
]


class Version(IntEnum):
    """Versions by their names in configuration files."""

    TLS12 = ssl.TLSVersion.TLSv1_2
    TLS13 = ssl.TLSVersion.TLSv1_3


CIPHERS = {
    f"TLS_ECDHE_{kind}_WITH_{cipher}": f"ECDHE-{kind}-{openssl}"
    for cipher, openssl in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("AES_128_CBC_SHA", "AES128-SHA"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
    )
    for kind in ("ECDSA", "RSA")
}
"""OpenSSL's names of the cipher suites of TLS 1.2 that Go counts as secure (crypto/tls, CipherSuites)."""
TLS13_CIPHERS = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""Those of TLS 1.3: neither Go nor Python lets a program choose among them."""
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
"""OpenSSL's names of curves."""
CERTIFICATE = expression(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")
PRIVATE_KEY = expression(rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----")
ENCRYPTED_KEY = expression(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED", re.MULTILINE)


class TlsError(ValueError):
    """A certificate or key that cannot be used."""

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(reason)
        self.part = part
        """Which: ``cert``, ``key`` or ``ca``."""


class Pair:
    """A certificate, with those between it and its authority, and its key, in PEM."""

    def __init__(self, cert: bytes, key: bytes) -> None:
        """Check their forms. Raises TlsError."""
        authorities(cert, "cert")
        if not PRIVATE_KEY.search(key):
            raise TlsError("key", "holds no private key in PEM")
        if ENCRYPTED_KEY.search(key):
            raise TlsError("key", "is encrypted: store it without a passphrase, readable by this service's user only")
        self._cert, self._key = cert, key

    def load(self, context: ssl.SSLContext) -> None:
        """Give them to a context. Raises TlsError."""
        try:
            with _in_memory(self._cert) as cert, _in_memory(self._key) as key:
                context.load_cert_chain(cert, key)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise TlsError("key", "does not belong to the certificate") from error
            part = "cert" if error.reason and error.reason.startswith(("EE_", "CA_")) else "key"
            raise TlsError(part, f"OpenSSL refuses it: {error.reason or error}") from error
        except OSError as error:
            raise TlsError("cert", f"cannot be loaded: {error.strerror}") from error


def authorities(pem: bytes, part: str = "ca") -> str:
    """Return the certificates in a PEM file. Raises TlsError."""
    found = b"\n".join(CERTIFICATE.findall(pem)).decode("ascii", "replace")
    if not found:
        raise TlsError(part, "holds no certificate in PEM")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=found)
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(part, f"holds a malformed certificate: {getattr(error, 'reason', None) or error}") from error
    return found


def can_order_curves() -> bool:
    """Return whether more than one curve can be set: Python 3.15 is the first that can."""
    return hasattr(ssl.SSLContext, "set_groups")


def server_context(
    pair: Pair,
    *,
    verify: ssl.VerifyMode = ssl.CERT_NONE,
    ca: str = "",
    minimum: Version = Version.TLS12,
    maximum: Version = Version.TLS13,
    ciphers: Sequence[str] = (),
    curves: Sequence[str] = (),
    own_order: bool = True,
) -> ssl.SSLContext:
    """Return a server's context. Raises TlsError.

    Clients' certificates are verified by the authorities `ca`, or by those that the host trusts. `ciphers` and `curves`
    have Go's names; `own_order` says whether the server's order of ciphers counts, not the client's.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair.load(context)
    context.minimum_version, context.maximum_version = ssl.TLSVersion(minimum), ssl.TLSVersion(maximum)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if not own_order:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    # A scrape is one connection: nobody would use a ticket.
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    if ciphers:
        context.set_ciphers(":".join(CIPHERS[name] for name in ciphers if name in CIPHERS))
    if len(curves) == 1:
        context.set_ecdh_curve(CURVES[curves[0]])
    elif curves:
        context.set_groups(":".join(CURVES[name] for name in curves))  # type: ignore[attr-defined]  # novermin
    context.verify_mode = verify
    if verify is not ssl.CERT_NONE:
        _trust(context, ca, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(
    ca: str = "",
    pair: Pair | None = None,
    *,
    verify: bool = True,
    minimum: Version = Version.TLS12,
    maximum: Version = Version.TLS13,
) -> ssl.SSLContext:
    """Return a client's context, which trusts the authorities `ca`, or those that the host trusts. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = ssl.TLSVersion(minimum), ssl.TLSVersion(maximum)
    if verify:
        _trust(context, ca, ssl.Purpose.SERVER_AUTH)
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if pair is not None:
        pair.load(context)
    return context


def _trust(context: ssl.SSLContext, ca: str, purpose: ssl.Purpose) -> None:
    if not ca:
        context.load_default_certs(purpose)
        return
    context.load_verify_locations(cadata=ca)
    # As in Go, each of these certificates is trusted, whether it is an authority's own or not.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def alternative_names(connection: ssl.SSLSocket) -> Collection[str]:
    """Return the subject alternative names of the peer's verified certificate, as Go writes them; none without one."""
    found = (connection.getpeercert() or {}).get("subjectAltName", ())
    return {_as_in_go(*map(str, pair)) for pair in found}


def _as_in_go(kind: str, value: str) -> str:
    if kind != "IP Address":
        return value
    try:
        return str(ip_address(value.strip()))
    except ValueError:
        return value


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Give the path of a file with this content, which no file system has: ssl reads certificates from paths only."""
    descriptor = os.memfd_create("pinchpoint-tls", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
