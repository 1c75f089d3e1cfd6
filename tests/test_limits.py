from __future__ import annotations

import errno
import os

import pytest

from pinchpoint.limits import is_limit, reason

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
NO_FILE = OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/proc/1/stat")
NO_THREAD = RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FULL, "No space left on device"),
        (NO_FILE, "/proc/1/stat: Too many open files"),
        (OSError("odd"), "odd"),
        (MemoryError(), "out of memory"),
        (NO_THREAD, "can't start new thread"),
    ],
)
def test_a_limit_is_named_in_a_few_words(error: Exception, words: str) -> None:
    assert is_limit(error)
    assert reason(error) == words


@pytest.mark.parametrize(
    "error", [RuntimeError("dictionary changed"), ValueError("x"), BrokenPipeError(errno.EPIPE, "")]
)
def test_a_mistake_of_ours_and_a_reader_that_left_are_no_limits(error: Exception) -> None:
    assert not is_limit(error)
