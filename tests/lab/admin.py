"""Commands for the monitors and the manager, over one librados connection; run by Debian's Python, which has librados.

A call of the `ceph` program costs 0.2 s of CPU. This program reads one JSON object per line on standard input, with
``to`` (mon or mgr) and ``command``, and answers each with one line: ``code``, ``output`` and ``status``, as librados
returns them. It ends at the end of its input.
"""

from __future__ import annotations

import json
import sys
import time

import rados

CONNECT_SECONDS = 120.0
COMMAND_SECONDS = 120


def connect(conf: str) -> rados.Rados:
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        # A handle that failed to connect cannot be used again.
        handle = rados.Rados(conffile=conf)
        try:
            handle.connect(timeout=5)
        except rados.Error:
            if time.monotonic() > deadline:
                raise
        else:
            return handle


def main() -> None:
    handle: rados.Rados | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            handle = handle or connect(sys.argv[1])
            send = handle.mgr_command if request["to"] == "mgr" else handle.mon_command
            code, output, status = send(json.dumps(request["command"]), b"", timeout=COMMAND_SECONDS)
        except rados.Error as error:
            code, output, status = -abs(getattr(error, "errno", None) or 5), b"", str(error)
        answer = {"code": code, "output": output.decode(errors="replace"), "status": status}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
