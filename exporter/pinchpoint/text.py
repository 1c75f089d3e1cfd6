"""Text of foreign origin, and small words of our own."""

from __future__ import annotations

__all__ = ["as_utf8", "counted", "printable"]


def as_utf8(word: str) -> str:
    """Return a word, of a command line or a file name, without what JSON can't hold: bytes that are not UTF-8."""
    return word.encode("utf-8", "replace").decode()


def printable(text: str) -> str:
    """Return a text in which U+FFFD replaces control characters and those that change the writing direction."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


def counted(count: int, word: str) -> str:
    """Return a number of things: ``1 phase``, ``12 phases``, ``2 processes``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}{'es' if word.endswith('s') else 's'}"
