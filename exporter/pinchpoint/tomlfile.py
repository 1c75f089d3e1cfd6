"""Typed TOML files: every error names the file, the key and the reason."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

__all__ = ["ConfigError", "decode_toml", "read_toml"]

T = TypeVar("T")


class ConfigError(ValueError):
    """A configuration or roles file that cannot be used; the message says where and why."""


def decode_toml(raw: bytes, type_: type[T], origin: str) -> T:
    """Return the content of a TOML file as `type_`; `origin` names it in errors. Raises ConfigError."""
    try:
        return msgspec.toml.decode(raw, type=type_)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at ")
        key = where.strip("`").removeprefix("$").lstrip(".") or "top level"
        raise ConfigError(f"{origin}: {key}: {reason}") from error
    except (ValueError, RecursionError) as error:  # what tomllib raises: also for a number or a nesting without end
        raise ConfigError(f"{origin}: not TOML: {error}") from error


def read_toml(path: Path, type_: type[T]) -> T:
    """Return the content of the TOML file `path` as `type_`. Raises ConfigError."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # a NUL in the path
        raise ConfigError(f"{str(path)!r}: {error}") from error
    return decode_toml(raw, type_, str(path))
