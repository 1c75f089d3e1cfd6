"""What Python 3.10 lacks, from the packages that setup.cfg names for it alone, under the names of Python 3.11."""

from __future__ import annotations

import sys

__all__ = ["StrEnum", "re", "tomllib"]

if sys.version_info >= (3, 11):
    import re
    import tomllib
    from enum import StrEnum  # novermin
else:
    from enum import Enum

    import regex as re
    import tomli as tomllib

    class StrEnum(str, Enum):
        """A member is its value in texts, as those of Python 3.11 are."""

        __str__ = str.__str__
        __format__ = str.__format__
