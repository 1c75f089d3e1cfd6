"""Fixtures for tests on a real Ceph cluster, which are skipped if there cannot be one: a pytest plugin."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator

import pytest

from lab.cluster import Cluster, lacking
from lab.observer import Observer
from native import PARTS, Stack
from ports import stack_ports

Clusters = Callable[..., Cluster]


def each_cluster() -> Iterator[Clusters]:
    """Yield a function that starts clusters, with the parameters of `Cluster`; they end when this is resumed."""
    if reason := lacking():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        yield lambda **parameters: stack.enter_context(Cluster(**parameters))


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    """Start clusters, with the parameters of `Cluster`; they end with the test."""
    yield from each_cluster()


@pytest.fixture(scope="module")
def module_clusters() -> Iterator[Clusters]:
    """Start clusters that end with the module: for tests that leave them unchanged."""
    yield from each_cluster()


@pytest.fixture
def cluster(clusters: Clusters) -> Cluster:
    """A cluster of the smallest size."""
    return clusters()


@pytest.fixture(scope="module")
def observer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observer]:
    """The exporter, Prometheus and Alertmanager."""
    for part in PARTS.values():
        if part.programs and not any(map(shutil.which, part.programs)):
            pytest.skip(f"not installed: {part.programs[0]}; `make setup` as root installs it")
    state = tmp_path_factory.mktemp("stack")
    with Stack(state, stack_ports(), runs=state / "runs") as stack:
        yield Observer(stack)
