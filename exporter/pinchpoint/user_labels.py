"""How a label says which untrusted user chose it: it ends in ``@uid1000``.

Anybody may choose the rest, which may have such an end too: only the last one counts, and Pinchpoint puts it there.
"""

from __future__ import annotations

import re

from pinchpoint.expressions import expression

__all__ = ["MAX_LABEL_BYTES", "marked", "split_user", "unmarked", "user_mark", "user_of", "with_end"]

MAX_LABEL_BYTES = 255
"""Bytes of a name that are exported: any user may have chosen it."""
USER = expression(r"@uid(\d{1,10})\Z", re.ASCII)


def user_mark(uid: int) -> str:
    """Return what the labels of a user end with."""
    return f"@uid{uid}"


def user_of(label: str) -> int | None:
    """Return the user whose mark a label has, None if it has none."""
    found = USER.search(label, max(0, len(label) - 14)) if "@uid" in label else None
    return None if found is None else int(found[1])


def split_user(label: str) -> tuple[str, str]:
    """Return a label without its mark, and the mark; this is empty if there is none."""
    uid = user_of(label)
    name = label if uid is None else label[: label.rindex("@")]
    return name, label[len(name) :]


def marked(label: str, mark: str) -> str:
    """Return a label with a mark at its end, unless it has it already; a long one is cut before the mark."""
    return label if not mark or label.endswith(mark) else with_end(label, mark)


def unmarked(label: str) -> str:
    """Return a name that somebody chose, without an end that looks like a mark."""
    return label if user_of(label) is None else label.replace("@", "\ufffd")


def with_end(label: str, end: str) -> str:
    """Return a label with something at its end; a long one is cut before that."""
    room = MAX_LABEL_BYTES - len(end)
    return label.encode("utf-8", "replace")[:room].decode("utf-8", "ignore") + end
