"""Checks for every test of BPF."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from descriptors import open_files


@pytest.fixture(autouse=True)
def every_descriptor_is_given_back() -> Iterator[None]:
    before = open_files()
    yield
    assert open_files() == before
