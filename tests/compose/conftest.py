from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from native import PARTS, Stack
from ports import stack_ports


@pytest.fixture(scope="session")
def programs() -> None:
    """Everything that a stack needs, or the reason why it cannot run."""
    for part in PARTS.values():
        if part.programs and not any(map(shutil.which, part.programs)):
            pytest.skip(f"{part.programs[0]} is not installed (`make setup` as root installs it)")


@pytest.fixture(scope="session")
def fio() -> str:
    if (path := shutil.which("fio")) is None:
        pytest.skip("fio is not installed (`make setup` as root installs it)")
    return path


@pytest.fixture(scope="module")
def stack(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("stack")
    with Stack(directory / "state", stack_ports(), runs=directory / "runs") as stack:
        yield stack
