"""Certificates for tests, made when they run, by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["authority", "issue", "self_signed"]

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def self_signed(directory: Path, name: str, *names: str, extension: str = ".pem") -> tuple[Path, Path]:
    """Make a certificate that is its own authority, for names such as ``DNS:localhost``; return it and its key."""
    cert, key = directory / f"{name}{extension}", directory / f"{name}.key"
    _openssl("req", "-x509", *KEY, *_named(name, names), "-keyout", str(key), "-out", str(cert), "-days", "2")
    return cert, key


def authority(directory: Path, name: str = "ca") -> tuple[Path, Path]:
    """Make an authority; return its certificate and key."""
    return self_signed(directory, name)


def issue(ca: tuple[Path, Path], directory: Path, name: str, *names: str) -> tuple[Path, Path]:
    """Make a certificate that an authority has signed; return it and its key."""
    cert, key = directory / f"{name}.pem", directory / f"{name}.key"
    signed = ("-x509", "-CA", str(ca[0]), "-CAkey", str(ca[1]), "-addext", "basicConstraints=critical,CA:FALSE")
    _openssl("req", *signed, *KEY, *_named(name, names), "-keyout", str(key), "-out", str(cert), "-days", "2")
    return cert, key


def _named(name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    alternative = ("-addext", f"subjectAltName={','.join(names)}") if names else ()
    return ("-subj", f"/CN={name}", *alternative)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
