from __future__ import annotations

import os

from pinchpoint.benchmarks.progress import Progress, new_progress, read_progress


def test_the_exporter_sees_what_a_helper_reads() -> None:
    descriptor = new_progress()
    assert read_progress(descriptor) == 0

    Progress(descriptor).read(4_194_304)
    assert read_progress(descriptor) == 4_194_304
    os.close(descriptor)


def test_memory_that_a_helper_has_cut_says_nothing() -> None:
    descriptor = new_progress()
    os.ftruncate(descriptor, 2)

    assert read_progress(descriptor) == 0
    os.close(descriptor)
