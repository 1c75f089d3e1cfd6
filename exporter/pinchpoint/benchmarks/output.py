"""Output as a stream: bytes come in arbitrary pieces and become lines, JSON documents, and events.

No more than one line and one document are kept, however long the output is.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from pinchpoint.benchmarks.events import Event
from pinchpoint.expressions import expression
from pinchpoint.runs import MAX_FIGURE

__all__ = ["Documents", "Lines", "OutputReader", "number", "text"]

MAX_LINE_BYTES = 64 << 10
"""Longest line in bytes; the rest is dropped (fio's terse lines have 2 KiB)."""
MAX_DOCUMENT_CHARACTERS = 16 << 20
"""Longest JSON document in characters; a longer one is dropped (fio: 5 KiB a job)."""
ENDS = expression(rb"[\r\n]")
LINE_COST_CHARACTERS = 64
"""Overhead in characters counted for each line of a document: each is an object."""
STRING = expression(r'"(?>(?:[^"\\]|\\.)*)"?')
"""A string, or the part of it in this line: so no character is examined twice."""


class Lines:
    r"""Cuts a stream into lines; ``\n`` and ``\r`` both end one, so ``\r\n`` is followed by an empty line."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the lines that end in these bytes."""
        at = 0
        for end in ENDS.finditer(data):
            piece, at = data[at : end.start()], end.end()
            if self._rest:
                self._keep(piece)
                yield self._take()
            else:
                yield text(piece[:MAX_LINE_BYTES])
        self._keep(data[at:])

    def close(self) -> Iterator[str]:
        """Yield the last line, if it had no end."""
        if self._rest:
            yield self._take()

    @property
    def rest(self) -> str:
        """The line that has not ended yet."""
        return text(bytes(self._rest))

    def _keep(self, piece: bytes) -> None:
        self._rest += piece[: MAX_LINE_BYTES - len(self._rest)]

    def _take(self) -> str:
        line = self.rest
        self._rest.clear()
        return line


def text(raw: bytes) -> str:
    """Return bytes as text; what is not UTF-8 becomes U+FFFD, and a no-break space is a space."""
    return raw.decode("utf-8", "replace").replace("\xa0", " ")


class Documents:
    """Finds the JSON documents among the lines of an output: each begins with a brace at the start of a line."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._length = 0
        self._depth = 0

    def feed(self, line: str) -> Iterator[dict[str, Any]]:
        """Yield the document that ends in this line, if any; any other line is ignored."""
        if not self._lines and not line.startswith("{"):
            return
        bare = STRING.sub("", line)
        self._depth += bare.count("{") - bare.count("}")
        self._length += len(line) + LINE_COST_CHARACTERS
        self._lines.append(line)
        if self._length > MAX_DOCUMENT_CHARACTERS:
            self._drop()
        elif self._depth <= 0:
            whole = "\n".join(self._lines)
            self._drop()
            try:
                document, _ = json.JSONDecoder().raw_decode(whole)
            except (ValueError, RecursionError):
                return
            if isinstance(document, dict):
                yield document

    @property
    def inside(self) -> bool:
        """Whether a document has begun and not ended."""
        return bool(self._lines)

    def _drop(self) -> None:
        self._lines.clear()
        self._length = self._depth = 0


def number(value: object) -> float | None:
    """Return a figure of a JSON document, a number or a string that holds one; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if abs(found) < MAX_FIGURE else None


class OutputReader(ABC):
    """Reads one benchmark's output as it comes.

    The events do not depend on how the bytes are cut. Foreign text gives no events, and nothing raises.
    """

    def __init__(self) -> None:
        self._lines = Lines()

    def feed(self, data: bytes) -> list[Event]:
        """Return the events in these bytes."""
        return [event for line in self._lines.feed(data) for event in self.line(line)]

    def close(self) -> list[Event]:
        """Return the events that are known only at the end of the output."""
        events = [event for line in self._lines.close() for event in self.line(line)]
        return [*events, *self.end()]

    @abstractmethod
    def line(self, line: str) -> Iterable[Event]:
        """Return the events in one line, which has no line end."""

    def end(self) -> Iterable[Event]:
        """Return the events at the end of the output, after its last line."""
        return ()
