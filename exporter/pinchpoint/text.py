"""Text of foreign origin."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """Return a text without what a terminal would obey, or write in another direction: U+FFFD stands in its place."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)
