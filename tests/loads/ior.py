"""Does what IOR does with one rank, limited to 32 MiB/s so that its phases can be seen.

It takes `-w -r -F -t 64k -b SIZE -i N -o FILE` and prints what IOR 4.1.0+dev does (src/ior-output.c).
"""

from __future__ import annotations

import itertools
import os
import time

from imitation import become, say

TRANSFER = 64 << 10
RATE = 32 << 20
HEADER = """IOR-4.1.0+dev: MPI Coordinated Test of Parallel I/O
Began               : {now}
Command line        : ior {arguments}
Machine             : Linux test
TestID              : 0
StartTime           : {now}
Path                : {path}.00000000

Options:
api                 : POSIX
test filename       : {path}
access              : file-per-process
tasks               : 1
repetitions         : {repetitions}
xfersize            : 64 KiB

Results:

access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----"""


def access(path: str, size: int, *, write: bool) -> float:
    """Write or read the file; return the seconds that it took."""
    began = time.monotonic()
    flags = os.O_CREAT | os.O_RDWR if write else os.O_RDONLY
    descriptor = os.open(path, flags, 0o664)
    block = os.urandom(TRANSFER)
    for done in range(TRANSFER, size + 1, TRANSFER):
        if write:
            os.write(descriptor, block)
        else:
            os.read(descriptor, TRANSFER)
        time.sleep(max(0.0, began + done / RATE - time.monotonic()))
    if write:
        os.fsync(descriptor)
    os.close(descriptor)
    return time.monotonic() - began


def main() -> None:
    """Run."""
    arguments = become("ior")
    options = dict(itertools.pairwise(arguments))
    path, size, repetitions = options["-o"], int(options["-b"].removesuffix("m")) << 20, int(options["-i"])
    now = time.strftime("%a %b %d %H:%M:%S %Y")
    say(HEADER.format(now=now, arguments=" ".join(arguments), path=path, repetitions=repetitions))
    for iteration in range(repetitions):
        for name in ("write", "read"):
            seconds = access(f"{path}.00000000", size, write=name == "write")
            rate, iops = size / (1 << 20) / seconds, size / TRANSFER / seconds
            row = f"{rate:<10.2f} {iops:<10.2f} 0.001012    {size >> 10:<10d} 64.00      0.000074   {seconds:<10.6f} "
            say(f"{name:<10}{row}0.007327   {seconds:<10.6f} {iteration:<4d}")
        os.unlink(f"{path}.00000000")
    say(f"Finished            : {now}")


if __name__ == "__main__":
    main()
