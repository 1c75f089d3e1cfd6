"""The cluster that the tests of this directory share; it ends after the last of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.fixtures import each_cluster


@pytest.fixture(scope="package")
def looked_at() -> Iterator[Cluster]:
    """The cluster of all tests that only read from one, or leave it as they found it.

    They run in one process: see `LOOKED_AT` in tests/conftest.py. With the cache of librbd, fio's writes would be
    complete before they are sent, and up to 1,024 would wait for the OSD (objecter_inflight_ops) whatever its depth.
    `rados bench` leaves its objects, and every write waits when a pool is full: memstore is 1 GiB large by default. By
    default an OSD also refuses a benchmark of many small blocks.
    """
    options = {
        "client": {"rbd_cache": "false"},
        "osd": {"memstore_device_bytes": "8Gi", "osd_bench_small_size_max_iops": "1000000"},
    }
    for start in each_cluster():
        yield start(options=options)
