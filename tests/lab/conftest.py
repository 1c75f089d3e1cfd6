"""The cluster that the tests of this directory share, and its end with the last of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.fixtures import each_cluster


@pytest.fixture(scope="package")
def looked_at() -> Iterator[Cluster]:
    """The cluster of all who only look at one, or leave it as they found it.

    They run in one process: see `LOOKED_AT` in tests/conftest.py. Without the cache of librbd, fio's writes are done
    before they are sent, and up to 1,024 wait for the OSD (objecter_inflight_ops) whatever its depth. `rados bench`
    leaves its objects, and where a pool is full every write waits: memstore is 1 GiB large by default. And an OSD
    refuses a benchmark of many small blocks by default.
    """
    options = {
        "client": {"rbd_cache": "false"},
        "osd": {"memstore_device_bytes": "8Gi", "osd_bench_small_size_max_iops": "1000000"},
    }
    for start in each_cluster():
        yield start(options=options)
