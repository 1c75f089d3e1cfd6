"""The truth about a fault, by how it was made, and whether a verdict agrees."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pinchpoint.diagnosis.verdict import Kind, Verdict

__all__ = ["Truth"]


@dataclass(frozen=True)
class Truth:
    """The truth about a scenario, by how it was built; the suite is judged by this, not the other way round."""

    kind: Sequence[Kind]
    """The correct kinds of verdict, the likeliest first."""
    first: str = ""
    """Regular expression for ``RESOURCE OWNER`` of the first limit; "" if no limit may be named."""
    cleared: str = ""
    """Regular expression that one of the sentences on innocent suspects must match."""

    def fits(self, found: Verdict) -> bool:
        """Return whether the verdict is right."""
        if found.kind not in self.kind:
            return False
        if self.cleared and not any(re.search(self.cleared, line) for line in found.innocent):
            return False
        names = [f"{limit.resource} {limit.owner}" for limit in found.limits]
        return bool(re.fullmatch(self.first, names[0])) if names else True

    def words(self) -> str:
        """Return the truth in words."""
        return f"{' or '.join(self.kind)}{f': {self.first}' if self.first else ''}"
