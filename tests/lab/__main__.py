"""A Ceph cluster for people: ``python -m lab up``, ``down`` and ``status``, behind `make lab-up` and `make lab-down`.

It runs until ``down``. `.lab` at the root of the repository is a link to its directory.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lab.cluster import Cluster, LabError, processes, remove

TREE = Path(__file__).resolve().parents[2]
STATE = TREE / ".lab"
RECORD = "lab.json"
"""File in the cluster's directory that says where things are."""
LARGEST = 16


def running(state: Path) -> dict[str, Any] | None:
    """Return the record of the cluster that `state` is a link to, or None where none runs."""
    try:
        record: dict[str, Any] = json.loads((state / RECORD).read_bytes())
    except (OSError, ValueError):
        return None
    return record if processes(state.resolve()) else None


def up(state: Path) -> int:
    """Start a cluster, unless one runs."""
    if record := running(state):
        print(f"A lab cluster already runs:\n{_described(state, record)}")
        return 0
    if os.geteuid():
        raise LabError("Needs root, for ceph-fuse.")
    remove_left(state)
    sizes = {name: _size(name, default) for name, default in (("OSDS", 3), ("MDSS", 2))}
    started = time.monotonic()
    cluster = Cluster(osds=sizes["OSDS"], mdss=sizes["MDSS"], store="bluestore", kept=True)
    try:
        cluster.start()
        record = {"metrics": f"{cluster.prometheus_url}/metrics", "mount": str(cluster.mount().path)} | sizes
        (cluster.directory / RECORD).write_text(json.dumps(record))
        state.symlink_to(cluster.directory)
    except BaseException:
        cluster.stop()
        raise
    print(
        f"A Ceph cluster runs after {time.monotonic() - started:.0f} s, and keeps running:\n{_described(state, record)}"
    )
    return 0


def down(state: Path) -> int:
    """Stop the cluster, if one runs."""
    print("The lab cluster is stopped and removed." if remove_left(state) else "No lab cluster runs.")
    return 0


def status(state: Path) -> int:
    """Print where the cluster is."""
    if (record := running(state)) is None:
        print("No lab cluster runs; `make lab-up` starts one.")
        return 3
    print(f"A lab cluster runs:\n{_described(state, record)}")
    return 0


def remove_left(state: Path) -> bool:
    """End and remove the cluster that `state` is a link to; return whether anything ran."""
    if not state.is_symlink():
        return False
    directory = state.readlink()
    ran = bool(processes(directory))
    remove(directory)
    state.unlink()
    return ran


def _described(state: Path, record: Mapping[str, Any]) -> str:
    conf = state / "ceph.conf"
    lines = {
        "Daemons": f"1 monitor, 1 manager, {record['OSDS']} OSDs, {record['MDSS']} MDSs, of which 1 is active",
        "Ask it": f"CEPH_CONF={conf} ceph -s",
        "File system": f"{record['mount']} (ceph-fuse)",
        "Load": f"CEPH_CONF={conf} rados bench -p rbd 60 write",
        "Metrics": f"{record['metrics']} (the manager's)",
        "Logs": str(state / "log"),
    }
    ending = "`pinchpoint exporter` and `pinchpoint watch` find its daemons by themselves. `make lab-down` stops it."
    return "\n".join([*(f"  {title:<12} {text}" for title, text in lines.items()), ending])


def _size(name: str, default: int) -> int:
    text = os.environ.get(name, "").strip() or str(default)
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) <= LARGEST:
        raise LabError(f"{name}: must be a number from 1 to {LARGEST}, is {text!r}")
    return int(text)


def main() -> int:
    """Run the command line; return the exit status."""
    commands: Mapping[str, Callable[[Path], int]] = {"up": up, "down": down, "status": status}
    parser = argparse.ArgumentParser(prog="python -m lab", description="Start, show or stop a Ceph cluster.")
    parser.add_argument("command", choices=commands)
    parser.add_argument("--state", type=Path, default=STATE, metavar="LINK", help="by default .lab")
    options = parser.parse_args()
    # As an exception, so that half a cluster is removed.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return commands[options.command](options.state)
    except LabError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"{error.filename or 'the lab cluster'}: {error.strerror or error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("Interrupted; nothing is left running.", file=sys.stderr)
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
