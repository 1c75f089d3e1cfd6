"""What may be named is what there is."""

from __future__ import annotations

from pinchpoint.bpf.choice import BPF
from pinchpoint.bpf.workqueues import TracedSource
from pinchpoint.choices import AUTO, KWORKER_SOURCES, PROBE_HELP, TASK_SOURCES, WAIT_SOURCES
from pinchpoint.probes import PROBES
from pinchpoint.threads.work_source import CommSource
from pinchpoint.waits.kernel_looks import KernelLooks
from pinchpoint.waits.stack_files import StackFiles


def test_every_probe_says_in_one_line_what_it_reads() -> None:
    assert list(PROBE_HELP) == [probe.name for probe in PROBES]


def test_every_source_may_be_asked_for() -> None:
    assert (AUTO, *BPF, "kept", "plain") == TASK_SOURCES
    assert (AUTO, TracedSource.name, CommSource.name) == KWORKER_SOURCES
    assert (AUTO, KernelLooks.name, StackFiles.name) == WAIT_SOURCES
