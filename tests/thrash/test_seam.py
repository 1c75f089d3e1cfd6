from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from thrash.faults import SEAM, set_clock

HOUR_SECONDS = 3600.0
BPF_MAP_CREATE, BPF_PROG_LOAD = 0, 5  # linux/bpf.h
ASK = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for command in map(int, sys.argv[1:]):
    ctypes.set_errno(0)
    libc.syscall({number}, command, None, 0)
    print(os.strerror(ctypes.get_errno()))
"""


def program(folder: Path, name: str, text: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a script of this name with the seam."""
    script = folder / name
    script.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(SEAM), "PINCHPOINT_SEAM": str(folder)}
    command = [sys.executable, str(script), *arguments]
    return subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.parametrize(("name", "ahead"), [("pinchpoint", HOUR_SECONDS), ("supervisord", 0.0)])
def test_the_clock_of_our_programs_can_be_set_while_they_run_and_no_other(
    tmp_path: Path, name: str, ahead: float
) -> None:
    set_clock(tmp_path, 0.0)
    text = "import time\nwhile input() or True: print(time.time(), flush=True)"
    with program(tmp_path, name, text) as process:
        assert process.stdin
        assert process.stdout
        for step in (0.0, HOUR_SECONDS, 0.0):
            set_clock(tmp_path, step)
            before = time.time()
            process.stdin.write("\n")
            process.stdin.flush()
            found = float(process.stdout.readline())
            expected = min(step, ahead)
            assert before + expected <= found <= time.time() + expected
        process.kill()


def test_one_command_of_bpf_is_denied_to_a_program_that_starts(tmp_path: Path) -> None:
    seam = pytest.importorskip("thrash.seam.sitecustomize")
    set_clock(tmp_path, 0.0)
    (tmp_path / "bpf").write_text(str(BPF_PROG_LOAD))
    number = seam.SYS_BPF[os.uname().machine]
    asked = [str(BPF_MAP_CREATE), str(BPF_PROG_LOAD)]
    said, _ = program(tmp_path, "pinchpoint", ASK.format(number=number), *asked).communicate()
    (tmp_path / "bpf").unlink()
    free, _ = program(tmp_path, "pinchpoint", ASK.format(number=number), *asked).communicate()

    assert said.splitlines()[1] == os.strerror(1)
    assert said.splitlines()[0] == free.splitlines()[0]
    assert free.splitlines()[1] != said.splitlines()[1] or os.geteuid() != 0
