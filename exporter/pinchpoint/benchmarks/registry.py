"""The list of the benchmarks. Adding one is its file, and its line here."""

from __future__ import annotations

from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.dd import Dd
from pinchpoint.benchmarks.fio import Fio
from pinchpoint.benchmarks.io500 import Io500
from pinchpoint.benchmarks.ior import Ior
from pinchpoint.benchmarks.iozone import Iozone
from pinchpoint.benchmarks.iperf2 import Iperf2
from pinchpoint.benchmarks.iperf3 import Iperf3
from pinchpoint.benchmarks.mdtest import Mdtest
from pinchpoint.benchmarks.osd_bench import OsdBench
from pinchpoint.benchmarks.ping import Ping
from pinchpoint.benchmarks.rados_bench import RadosBench
from pinchpoint.benchmarks.rbd_bench import RbdBench

__all__ = ["BENCHMARKS"]

BENCHMARKS: tuple[type[Benchmark], ...] = (
    Io500,
    Ior,
    Mdtest,
    Fio,
    RadosBench,
    RbdBench,
    OsdBench,
    Iozone,
    Iperf2,
    Iperf3,
    Ping,
    Dd,
)
