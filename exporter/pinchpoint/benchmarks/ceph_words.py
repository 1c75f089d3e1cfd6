"""Command lines of Ceph's programs: which words are commands, and which belong to options."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["words"]

FLAGS = frozenset(
    # main in src/tools/rados/rados.cc; src/tools/rbd/Shell.cc; parse_cmdargs in src/ceph.in (Ceph 16.2).
    {"--all", "--create", "--default", "--force", "--force-full", "--reuse-bench", "--show-time", "--striper"}
    | {"--verbose", "--concise", "--debug", "--block"}
)
"""Options without a value, besides --no-..., --with-... and --write-...; all others take the next word unless the value
follows ``=`` or is attached to a short option."""


def words(argv: Sequence[str]) -> list[str]:
    """Return the words after the first one that are neither options nor their values."""
    found = []
    valued = False
    for word in argv[1:]:
        if valued:
            valued = False
        elif word.startswith("--"):
            flag = word in FLAGS or word.startswith(("--no-", "--with-", "--write-"))
            valued = not flag and "=" not in word
        elif word.startswith("-") and len(word) > 1:
            valued = len(word) == 2
        else:
            found.append(word)
    return found
