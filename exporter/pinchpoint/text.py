"""Text of foreign origin, and small words of our own."""

from __future__ import annotations

__all__ = ["counted", "printable"]


def printable(text: str) -> str:
    """Return a text in which U+FFFD replaces control characters and those that change the writing direction."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


def counted(count: int, word: str) -> str:
    """Return a number of things: ``1 phase``, ``12 phases``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
