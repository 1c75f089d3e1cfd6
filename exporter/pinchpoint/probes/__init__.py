"""The probes: one file per source. To add one, add a file, a line here, and what it reads in `pinchpoint.choices`."""

from __future__ import annotations

from pinchpoint.probes.affinity import Affinity
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.probes.benchmark import BenchmarkProbe
from pinchpoint.probes.ceph_client import CephClient
from pinchpoint.probes.ceph_daemons import CephDaemons
from pinchpoint.probes.ceph_kernel import CephKernel
from pinchpoint.probes.cgroups import Cgroups
from pinchpoint.probes.cpu import Cpu
from pinchpoint.probes.cpufreq import CpuFreq
from pinchpoint.probes.cpuidle import CpuIdle
from pinchpoint.probes.devices import Devices
from pinchpoint.probes.host_facts import HostFacts
from pinchpoint.probes.kworkers import Kworkers
from pinchpoint.probes.locks import Locks
from pinchpoint.probes.mds import Mds
from pinchpoint.probes.memory import MemoryProbe
from pinchpoint.probes.namespaces import Namespaces
from pinchpoint.probes.osd import Osd
from pinchpoint.probes.path import Path
from pinchpoint.probes.profile import ProfileProbe
from pinchpoint.probes.self_cost import SelfCost
from pinchpoint.probes.storage import Storage
from pinchpoint.probes.tasks import Tasks
from pinchpoint.probes.tcp import Tcp
from pinchpoint.probes.waits import Waits

__all__ = ["PROBES", "Host", "NotPresent", "Probe"]

PROBES: tuple[type[Probe], ...] = (
    Tasks,
    Kworkers,
    Locks,
    BenchmarkProbe,
    Waits,
    Path,
    ProfileProbe,
    Cpu,
    Affinity,
    CpuIdle,
    CpuFreq,
    Devices,
    Namespaces,
    Storage,
    MemoryProbe,
    Cgroups,
    Mds,
    Osd,
    CephDaemons,
    CephClient,
    CephKernel,
    Tcp,
    HostFacts,
    SelfCost,
)
