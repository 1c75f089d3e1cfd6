"""Text of foreign origin."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """Return a text in which U+FFFD replaces control characters and those that change the writing direction."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)
