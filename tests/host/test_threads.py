from __future__ import annotations

import os
from pathlib import Path
from threading import Event

from patience import patience
from pinchpoint.host.threads import NamedThread


def test_the_kernel_knows_a_thread_by_its_name() -> None:
    found: list[str] = []
    done = Event()

    def look() -> None:
        found.append(Path("/proc/thread-self/comm").read_text().rstrip("\n"))
        done.set()

    NamedThread(target=look, name="probe-namespaces", daemon=True).start()

    assert done.wait(patience(10))
    assert found == ["probe-namespace"]
    assert Path(f"/proc/{os.getpid()}/comm").read_text() != "probe-namespace\n"
