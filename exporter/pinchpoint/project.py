"""Where the project is: the one place that has its address."""

from __future__ import annotations

__all__ = ["URL"]

URL = ""
"""Address of the project's repository; empty while it has none. Nothing depends on it: the pages are in the package."""
