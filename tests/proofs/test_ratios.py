"""The costs of the sources relative to each other, with 1,500 sleeping threads: ratios of CPU time, measured in turns.

The lowest of several samples is compared, since other load can only add to one. The bounds are generous; figures are in
docs/performance.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compiled import MissingError
from pinchpoint.threads.task_source import raise_file_limit
from samplers import LIMIT_OF, OURS, sampler
from workload import ceph_host, running

GROUP = "Cost of a sample"
THREADS = 1_500
SAMPLES = 8
PSUTIL, KEPT, PLAIN = 20.0, 4.0, 1.5
"""Minimum factors by which BPF is cheaper than psutil and kept descriptors, and these than opening files each time."""
OVER_C = {"bpf": 5.0, "bpf-iter": 5.0, "kept": 3.0}
"""Maximum cost relative to a loop in C. The loop in BPF takes 30 us, as long as a few calls in Python."""


def ratio(kind: str, of: str) -> float:
    """Return the cost of a sample divided by that of another method; skip the test if one does not work here."""
    try:
        with sampler(kind) as one, sampler(of) as other:
            costs = [(one.sample().cpu, other.sample().cpu) for _ in range(SAMPLES)]
    except MissingError as error:
        pytest.skip(str(error))
    return min(cost for cost, _ in costs) / min(cost for _, cost in costs)


@pytest.fixture(scope="module", autouse=True)
def threads() -> Iterator[None]:
    if raise_file_limit() < 2 * THREADS:
        pytest.skip("too few files may be open")
    with running(ceph_host(THREADS, 0)):
        yield


def test_a_sample_by_bpf_is_much_cheaper_than_by_psutil() -> None:
    assert ratio("bpf", "psutil") < 1 / PSUTIL


def test_a_sample_by_bpf_is_cheaper_than_by_kept_descriptors() -> None:
    assert ratio("bpf", "kept") < 1 / KEPT


def test_a_kept_descriptor_is_cheaper_than_opening_the_file_each_time() -> None:
    assert ratio("kept", "plain") < 1 / PLAIN


@pytest.mark.parametrize("kind", OVER_C)
def test_our_pass_costs_little_more_than_a_loop_in_c(kind: str) -> None:
    assert ratio(kind, LIMIT_OF[kind]) < OVER_C[kind]


@pytest.mark.parametrize("kind", [*OURS, *LIMIT_OF.values()])
def test_every_way_finds_the_thread_that_samples(kind: str) -> None:
    try:
        with sampler(kind) as one:
            found = [one.sample().changed for _ in range(3)]
    except MissingError as error:
        pytest.skip(str(error))
    assert min(found) >= 1
