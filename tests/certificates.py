"""Certificates for tests, made by openssl: an authority, and what it signs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

__all__ = ["Authority", "Certificate"]


class Certificate(NamedTuple):
    """The files of a certificate and of its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates that are valid for a day."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self.file = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl("req", "-x509", *_new(self._key), "-subj", f"/CN={name}", "-days", "1", "-out", str(self.file))

    def sign(self, name: str, names: str = "DNS:localhost,IP:127.0.0.1") -> Certificate:
        """Return a new certificate; `names` are its subjectAltName, as openssl has them."""
        made = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        asked, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n")
        _openssl("req", *_new(made.key), "-subj", f"/CN={name}", "-out", str(asked))
        _openssl(
            *("x509", "-req", "-in", str(asked), "-CA", str(self.file), "-CAkey", str(self._key), "-CAcreateserial"),
            *("-days", "1", "-extfile", str(extensions), "-out", str(made.certificate)),
        )
        return made


def _new(key: Path) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key)]


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
