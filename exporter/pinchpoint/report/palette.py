"""Colours: one for each wait class, the same in every chart.

They suit colour-blind readers: any two stay distinct with protanopia and deuteranopia too (a test computes it after
Machado et al., IEEE TVCG 2009), and each stands out on white and on near-black, so that light and dark pages share
them.
"""

from __future__ import annotations

from collections.abc import Mapping

from pinchpoint.waits.chain import Kind

__all__ = ["IDLE_STATES", "KINDS", "PARTS", "PHASES", "SERIES", "STATUS", "WAITS", "WAIT_WORDS", "wait_colour"]

WAITS = {
    "cpu": "#E3B505",
    "runqueue": "#D62828",
    "mds": "#7C048C",
    "osd": "#6254FF",
    "client": "#B679C8",
    "writeback": "#5BB191",
    "disk": "#725E9C",
    "network": "#9BB2FF",
    "memory": "#563F44",
    "lock": "#FF4D06",
    "ceph": "#4411D1",
    "other": "#7A7A7A",
    "idle": "#C8C8C8",
}
"""Wait classes in stacking order, from the bottom."""
WAIT_WORDS = {
    "cpu": "on a CPU",
    "runqueue": "ready, and no CPU is free",
    "mds": "waits for the MDS",
    "osd": "waits for OSDs",
    "client": "inside the Ceph client",
    "writeback": "waits for writeback",
    "disk": "waits for a disk",
    "network": "waits for the network",
    "memory": "waits for memory",
    "lock": "waits for a lock in the kernel",
    "ceph": "waits for Ceph, nobody says which part",
    "other": "waits where no rule knows",
    "idle": "sleeps or polls",
}
PARTS: Mapping[Kind, str] = {
    Kind.CPU: WAITS["cpu"],
    Kind.RUNQUEUE: WAITS["runqueue"],
    Kind.DISK: WAITS["disk"],
    Kind.NETWORK: WAITS["network"],
    Kind.TIMER: WAITS["writeback"],
    Kind.INTERRUPT: WAITS["memory"],
    Kind.EARLIER: WAITS["other"],
    Kind.PENDING: WAITS["idle"],
}
"""What a node of a chain did, in stacking order."""
KINDS = {
    "resource": "#C2410C",
    "several": "#C2410C",
    "straggler": "#B45309",
    "stuck": "#B91C1C",
    "latency-bound": "#2563EB",
    "unknown": "#7A7A7A",
    "blind": "#7A7A7A",
    "idle": "#9AA0A6",
    "too short": "#9AA0A6",
}
"""Kinds of verdicts."""
PHASES = {
    "write|creat|mkdir": WAITS["osd"],
    "(^|[^h])read|rand|seq": WAITS["network"],
    "find|stat": WAITS["cpu"],
    "delete|remov|clean": WAITS["lock"],
    ".*": WAITS["other"],
}
"""Colours by the kind of work that the name of a phase suggests, as regular expressions; the first match counts."""
STATUS = {"good": WAITS["writeback"], "bad": KINDS["resource"]}
"""Colours of a figure that is fine, and of one that needs attention."""
IDLE_STATES = ("#BFD3E6", "#9EBCDA", "#8C96C6", "#8C6BB1", "#88419D", "#6E016B")
"""Idle states, from the shallowest to the deepest."""
SERIES = ("#6254FF", "#C2410C", "#429800", "#B574C9", "#8C4F0C", "#9BB2FF", "#D4AD10", "#7A7A7A")
"""Colours without a class, for hosts and daemons in turn."""


def wait_colour(wait: str) -> str:
    """Return the colour of a wait class; unknown ones have that of ``other``."""
    return WAITS.get(wait, WAITS["other"])
