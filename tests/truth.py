"""The truth about a fault, by how it was made, and whether a verdict agrees."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pinchpoint.diagnosis.verdict import Kind, Limit, Verdict

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
    since: float = 0.0
    """Seconds after the start of the load from which it is the truth: a slow rank holds nobody while all work."""

    def fits(self, found: Verdict) -> bool:
        """Return whether the verdict is right."""
        if found.kind not in self.kind:
            return False
        if self.cleared and not any(re.search(self.cleared, line) for line in found.innocent):
            return False
        return self._leads(found.limits) if found.limits else True

    def names(self, limits: Sequence[Limit]) -> bool:
        """Return whether these limits would be a right verdict."""
        return bool({Kind.RESOURCE, Kind.SEVERAL}.intersection(self.kind)) and self._leads(limits)

    def _leads(self, limits: Sequence[Limit]) -> bool:
        return bool(re.fullmatch(self.first, f"{limits[0].resource} {limits[0].owner}"))

    def words(self) -> str:
        """Return the truth in words."""
        return f"{' or '.join(self.kind)}{f': {self.first}' if self.first else ''}"
