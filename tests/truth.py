"""What is true of a fault, as it was made, and whether a verdict says so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pinchpoint.diagnosis.verdict import Kind, Verdict

__all__ = ["Truth"]


@dataclass(frozen=True)
class Truth:
    """What is true of a scenario, as it was built; the suite is judged by this, not the other way round."""

    kind: Sequence[Kind]
    """Kinds of verdict that are right, the likeliest first."""
    first: str = ""
    """Regular expression for ``RESOURCE OWNER`` of the first limit; "" where none may be named."""
    cleared: str = ""
    """Regular expression that one of the sentences on innocent suspects has to have."""

    def fits(self, found: Verdict) -> bool:
        """Return whether the verdict is right."""
        if found.kind not in self.kind:
            return False
        if self.cleared and not any(re.search(self.cleared, line) for line in found.innocent):
            return False
        names = [f"{limit.resource} {limit.owner}" for limit in found.limits]
        return bool(re.fullmatch(self.first, names[0])) if names else True

    def words(self) -> str:
        """Return what is true in words."""
        return f"{' or '.join(self.kind)}{f': {self.first}' if self.first else ''}"
