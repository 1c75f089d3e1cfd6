"""Outliers among peers: ranks, OSDs, links or disks that do the same work.

Median and median absolute deviation are not moved by the outlier itself, unlike mean and standard deviation (F. R.
Hampel, The influence curve and its role in robust estimation, 1974, doi:10.1080/01621459.1974.10482962).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from pinchpoint.diagnosis.usage import Usage
from pinchpoint.figures import format_figure
from pinchpoint.threads.roles import builtin_roles

__all__ = ["MIN_PEERS", "is_above", "is_below", "outliers", "slow_osds", "uneven_resources"]

MIN_PEERS = 5
"""Peers from which their deviation says what is usual; of fewer, one is an outlier at twice or half the median."""
MAX_DEVIATIONS = 5.0
"""Standard deviations, estimated from the median absolute deviation, that chance explains: by a normal distribution
one of 3.5 million peers is farther off on one side; real ones have heavier tails."""
MIN_COMPARED = 3
"""Peers below which nobody can say who is unusual."""
MIN_REQUESTS = 20
"""Requests of an OSD in an interval from which their mean time says something ..."""
MIN_PEER_LOAD_SHARE = 0.25
"""... if it had this share of the median OSD's requests: OSDs with another load are not compared, ..."""
MIN_PEER_BUSY_SHARE = 0.5
"""... unless requests took this share of the interval: an OSD that is slow enough has few."""
MIN_UNEVEN_BUSY_SHARE = 0.5
"""Busy share from which a disk or link that is busier than its peers matters."""
MAX_NAMED_PEERS = 3
"""Maximum number of outliers that are named."""
NORMAL_RATIO = 1.4826
"""Standard deviation of a normal distribution relative to its median absolute deviation."""


def is_below(value: float, middle: float, deviation: float, number: int) -> bool:
    """Return whether a value is below those of its `number` peers, itself included, by more than chance explains.

    `middle` is their median and `deviation` their median absolute deviation.
    """
    if number < MIN_PEERS:
        return value < middle / 2
    return middle - value > MAX_DEVIATIONS * NORMAL_RATIO * deviation


def is_above(value: float, middle: float, deviation: float, number: int) -> bool:
    """Return whether a value is above those of its peers: see `is_below`."""
    if number < MIN_PEERS:
        return value > 2 * middle
    return value - middle > MAX_DEVIATIONS * NORMAL_RATIO * deviation


def outliers(values: Mapping[str, float], least: float) -> dict[str, float]:
    """Return the peers whose values are above those of the others, relative to the median, the largest first.

    `least` is the ratio from which it matters.
    """
    if len(values) < MIN_COMPARED:
        return {}
    middle = median(values.values())
    deviation = median(abs(value - middle) for value in values.values())
    found = {
        name: value / middle
        for name, value in values.items()
        if middle > 0 and value > least * middle and is_above(value, middle, deviation, len(values))
    }
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def slow_osds(hosts: Mapping[str, Usage]) -> Iterator[str]:
    """Yield a sentence on each OSD that is slower than its peers: the OSDs of its cluster that have as much to do."""
    groups: dict[tuple[str, frozenset[str]], dict[str, tuple[float, float]]] = {}
    full: set[str] = set()
    for host, use in hosts.items():
        for one in use.requests:
            group = groups.setdefault((one.what, use.clusters.get(one.daemon, frozenset())), {})
            name = f"{one.daemon} on {host}"
            group[name] = one.seconds, one.count
            if one.seconds * one.count >= MIN_PEER_BUSY_SHARE * use.seconds:
                full.add(name)
    least = builtin_roles().alerts["OsdSlowerThanPeers"]
    for (what, _), group in sorted(groups.items(), key=lambda item: item[0][0]):
        load = MIN_PEER_LOAD_SHARE * median(count for _, count in group.values())
        times = {
            name: time for name, (time, count) in group.items() if count >= max(MIN_REQUESTS, load) or name in full
        }
        for name, ratio in list(outliers(times, least).items())[:MAX_NAMED_PEERS]:
            took, usual = (format_figure(time, "seconds") for time in (times[name], times[name] / ratio))
            yield f"{name} is slower than its peers: a {what} takes {took}, the median of {len(times)} OSDs {usual}"


def uneven_resources(hosts: Mapping[str, Usage]) -> Iterator[str]:
    """Yield a sentence on each disk of an OSD, and each link, that is much busier than its peers."""
    found: dict[str, dict[str, float]] = {"disk": {}, "link": {}}
    for host, use in hosts.items():
        disks = {device.device for device in use.devices if device.owner.startswith("osd.")}
        for one in use.resources:
            if one.resource in found and (one.resource != "disk" or one.owner in disks):
                found[one.resource][f"{one.resource} {one.owner} on {host}"] = one.busy
    for busy in found.values():
        for name, ratio in list(outliers(busy, 2.0).items())[:MAX_NAMED_PEERS]:
            if busy[name] >= MIN_UNEVEN_BUSY_SHARE:
                usual = busy[name] / ratio
                yield f"{name} is busier than its peers: {busy[name]:.0%}, the median of {len(busy)} is {usual:.0%}"
