"""Where a user's saved runs and experiments are."""

from __future__ import annotations

import errno
import os
from pathlib import Path

__all__ = ["state_root"]


def state_root() -> Path:
    """Return ``$XDG_STATE_HOME/pinchpoint``. Raises OSError if there is no such place.

    A relative path is ignored, as the XDG Base Directory Specification says: each directory would have another place.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        return (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state") / "pinchpoint"
    except RuntimeError as error:  # neither HOME nor an entry in the user database
        raise FileNotFoundError(errno.ENOENT, "no home directory", "~") from error
