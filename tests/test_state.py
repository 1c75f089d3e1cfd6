from __future__ import annotations

from pathlib import Path

import pytest

from pinchpoint.state import state_root


@pytest.mark.parametrize("state", ["", "relative/state"])
def test_a_relative_place_is_ignored(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.setenv("HOME", "/home/user")

    assert state_root() == Path("/home/user/.local/state/pinchpoint")


def test_an_absolute_place_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/scratch/state")

    assert state_root() == Path("/scratch/state/pinchpoint")
