"""Regular expressions that are compiled when they are first applied.

The package has more than two hundred of them, most for the outputs of benchmarks that a host never sees. Compiling all
took a seventh of the instructions with which a command starts.
"""

from __future__ import annotations

from typing import Any, AnyStr, Generic, cast

from pinchpoint.compat import re

__all__ = ["Expression", "expression"]


class Expression(Generic[AnyStr]):
    """It stands for an `re.Pattern`, whose attributes it takes over when one of them is first used."""

    def __init__(self, text: AnyStr, flags: int) -> None:
        self._source: tuple[AnyStr, int] = text, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)  # of copy, pickle and the like, which ask for what may not be there
        compiled = re.compile(*self._source)
        # From now on they are found without coming here: `match` is the pattern's own method, at its own speed.
        vars(self).update(
            (attribute, getattr(compiled, attribute)) for attribute in dir(compiled) if attribute[0] != "_"
        )
        return getattr(compiled, name)


def expression(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return the expression `text`, as `re.compile` does; an error in it is raised at its first use."""
    return cast("re.Pattern[AnyStr]", Expression(text, flags))
