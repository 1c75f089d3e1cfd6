"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
