"""A Ceph cluster to use by hand: ``python -m lab up``, ``down`` and ``status``, behind `make lab-up` and `lab-down`.

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

from lab.account import processes_by_daemon, state_of, tails, told
from lab.cluster import Cluster, LabError, processes, remove

TREE = Path(__file__).resolve().parents[2]
STATE = TREE / ".lab"
RECORD = "lab.json"
"""File in the cluster's directory that records its addresses and paths."""
LARGEST = 16


def running(state: Path) -> dict[str, Any] | None:
    """Return the record of the cluster that `state` links to, or None if none runs."""
    try:
        record: dict[str, Any] = json.loads((state / RECORD).read_bytes())
    except (OSError, ValueError):
        return None
    return record if processes(state.resolve()) else None


def up(state: Path) -> int:
    """Start a cluster, unless one runs."""
    if record := running(state):
        if broken := _broken(state, record):
            # Its user may be inspecting it, or may have killed a daemon on purpose.
            raise LabError(f"{broken}\n`make lab-down` removes it; `make lab-up` starts another one then.")
        print(f"A lab cluster already runs:\n{_described(state, record)}")
        return 0
    if state.exists() and not state.is_symlink():
        raise LabError(f"{state} is not a link to a lab cluster; move it away, or name another one with --state.")
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
    except BaseException as error:
        cluster.give_up(error)
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
    if broken := _broken(state, record):
        print(f"{broken}\n{_described(state, record)}")
        return 1
    print(f"A lab cluster runs:\n{_described(state, record)}")
    return 0


def remove_left(state: Path) -> bool:
    """End and remove the cluster that `state` links to; return whether anything ran."""
    if not state.is_symlink():
        return False
    directory = state.readlink()
    ran = bool(processes(directory))
    remove(directory)
    state.unlink()
    return ran


def _broken(state: Path, record: Mapping[str, Any]) -> str:
    """Return which daemons of the cluster do not work, or ""."""
    directory = state.resolve()
    osds, mdss = range(record["OSDS"]), range(record["MDSS"])
    wanted = ["mon.a", "mgr.a", *(f"osd.{number}" for number in osds), *(f"mds.{chr(ord('a') + n)}" for n in mdss)]
    found = processes_by_daemon(processes(directory))
    states = {name: state_of(found.get(name)) for name in [*wanted, "ceph-fuse"]}
    # A daemon that waits for a disk works.
    if not (broken := {name: what for name, what in states.items() if what and "state D" not in what}):
        return ""
    lines = [
        f"A lab cluster runs in {directory}, but not all of it:",
        *(f"  {name} {broken[name]}." for name in broken),
    ]
    logs = directory / "log"
    first = next(iter(broken))
    ends = tails(logs / f"ceph-{first}.log", logs / f"ceph-{first}.out")
    return "\n".join(filter(None, [*lines, ends]))


def _described(state: Path, record: Mapping[str, Any]) -> str:
    conf = state / "ceph.conf"
    lines = {
        "Daemons": f"1 monitor, 1 manager, {record['OSDS']} OSDs, {record['MDSS']} MDSs (1 active)",
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
    # Raised as an exception, so that half a cluster is removed.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return commands[options.command](options.state)
    except LabError as error:
        print(told(error), file=sys.stderr)
    except OSError as error:
        print(f"{error.filename or 'the lab cluster'}: {error.strerror or error}", file=sys.stderr)
    except (KeyboardInterrupt, SystemExit) as error:
        notes = getattr(error, "__notes__", ["Nothing is left running."] if options.command == "up" else [])
        print("\n".join(["Interrupted.", *notes]), file=sys.stderr)
        return 130 if isinstance(error, KeyboardInterrupt) else int(error.code or 0)
    return 1


if __name__ == "__main__":
    sys.exit(main())
