"""Fixtures that every test may use."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from machine import Machine
from puppet import Puppet

# How long an example takes says nothing on a machine that is busy with something else.
# Half of hypothesis' own number: all tests together have 15 minutes on 2 CPUs. `--hypothesis-profile thorough` looks
# twenty times as hard.
hypothesis.settings.register_profile("pinchpoint", deadline=None, max_examples=50)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("pinchpoint")

# A shell starts what it runs in the background with SIGINT ignored, and so would be every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def puppet() -> Iterator[Puppet]:
    with Puppet() as puppet:
        yield puppet
