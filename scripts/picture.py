"""Draws docs/watch.svg, the picture in docs/use.md: the live view of this host during a real fio run.

``make picture`` runs it; fio has to be installed. It takes ten seconds.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from pinchpoint.build import LocalSource, local_sampler
from pinchpoint.config import Config
from pinchpoint.diagnosis.recent import Recent, RecentVerdicts
from pinchpoint.terminal.view import HostView, Picture, View

HOST = "this host"
PICTURE = Path(__file__).parent.parent / "docs" / "watch.svg"
JOBS = """
[global]
time_based
runtime=12
[burn]
ioengine=cpuio
cpuload=100
[sync_write]
directory={directory}
rw=randwrite
bs=64k
size=256m
fsync=1
numjobs=4
"""


def main() -> None:
    """Run fio, wait until it is at work, and draw the live view."""
    if shutil.which("fio") is None:
        raise SystemExit("fio is not installed: make setup as root installs it")
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent.parent) as directory:
        jobs = Path(directory, "jobs.fio")
        jobs.write_text(JOBS.format(directory=directory))
        config = Config()
        config.path.runs = directory
        run = [sys.executable, "-m", "pinchpoint", "run", "--name", "example", f"--path.runs={directory}", "--", "fio"]
        with subprocess.Popen([*run, str(jobs)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            source = LocalSource(local_sampler(config))
            time.sleep(5)
            recent = Recent()
            recent.add(source.snapshot())
            time.sleep(4)
            recent.add(source.snapshot())
            source.close()
            process.wait()
    console = Console(record=True, width=80, file=StringIO(), force_terminal=True, color_system="truecolor")
    picture = Picture([HostView(HOST, "sampled here", recent.usage())], RecentVerdicts().take(0, {HOST: recent}))
    console.print(View(picture))
    svg = console.export_svg(title="pinchpoint watch", theme=MONOKAI)
    # rich links fonts on a server: a picture must need no network, and the viewer's monospace font will do.
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\n?", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main()
