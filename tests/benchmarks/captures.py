"""The captures among the fixtures, and what a replay of each has to show.

Times and figures were read from the recorded bytes by hand: a phase ends when its result arrives. It begins as long
before as the result says that it took, or when its section of result.txt or its files appeared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures"

FACTORS = {
    "B/s": ("bytes_per_second", 1.0),
    "kB/s": ("bytes_per_second", 1024.0),  # iozone's
    "kBytes/s": ("bytes_per_second", 1024.0),
    "KiB/s": ("bytes_per_second", 1024.0),
    "MiB/s": ("bytes_per_second", 2.0**20),
    "MB/sec": ("bytes_per_second", 2.0**20),  # rados'
    "GiB/s": ("bytes_per_second", 2.0**30),
    "bits/s": ("bytes_per_second", 1 / 8),
    "Gbits/s": ("bytes_per_second", 1e9 / 8),
    "IOPS": ("operations_per_second", 1.0),
    "ops/s": ("operations_per_second", 1.0),
    "kIOPS": ("operations_per_second", 1e3),
    "kiops": ("operations_per_second", 1e3),
    "s": ("seconds", 1.0),
    "ms": ("seconds", 1e-3),
    "objects": ("operations", 1.0),
}


@dataclass(frozen=True)
class Phase:
    """One phase: times in seconds since the start of the capture, None if the recorded bytes don't show them."""

    name: str
    start: float | None
    end: float | None
    figures: tuple[tuple[str, float], ...]
    """Unit and value in base units; the first is the main one."""
    valid: bool


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a replay of a capture has to show."""

    benchmark: str
    state: str
    valid: bool
    score: float | None
    phases: tuple[Phase, ...]
    unordered: bool
    """Whether all results come at once, in no particular order."""


def _phase(line: str) -> Phase:
    name, start, end, *rest = line.split(None, 3)
    figures, invalid, _ = (rest[0] if rest else "").partition(" invalid")
    found = []
    for figure in filter(None, figures.split(";")):
        number, kilo, unit = re.fullmatch(r"\s*([\d.]+)(k?)\s*(\S+)", figure).groups()  # type: ignore[union-attr]
        base, factor = FACTORS[unit]
        found.append((base, float(number) * factor * (1000.0 if kilo else 1.0)))
    times = [None if word == "-" else float(word) for word in (start, end)]
    return Phase(name, times[0], times[1], tuple(found), not invalid)


def _expected(text: str) -> tuple[str, Expected]:
    head, *lines = text.splitlines()
    name, _, words = head.partition(": ")
    benchmark, state, *rest = words.split()
    score = float(rest[-1]) if "score" in rest else None
    return name, Expected(
        benchmark=benchmark,
        state=state,
        valid="invalid" not in rest,
        score=score,
        phases=tuple(map(_phase, lines)),
        unordered="unordered" in rest,
    )


TABLE = """
io500-isc20-app-pipe: io500 finished invalid score 4.536464
  ior_easy_write         0.45   0.61 0.774872 GiB/s invalid
  mdtest_easy_write      0.64   2.45 0.547533 kIOPS invalid
  ior_hard_write         2.47   2.67 0.365415 GiB/s invalid
  mdtest_hard_write      2.68   3.85 0.674365 kIOPS invalid
  find                   3.85   3.85 2747.867001 kIOPS
  ior_easy_read          3.86   4.03 1.955170 GiB/s
  mdtest_easy_stat       4.02   4.03 639.735754 kIOPS
  ior_hard_read          4.04   4.27 0.488751 GiB/s
  mdtest_hard_stat       4.28   4.42 72.379449 kIOPS
  mdtest_easy_delete     4.40   4.44 27.811878 kIOPS
  mdtest_hard_read       4.45   4.71 316.800968 kIOPS
  mdtest_hard_delete     4.70   5.44 1.061623 kIOPS

io500-isc20-sh-both: io500 finished invalid score 7.307997
  ior_easy_write         5.89   6.75 0.337 GiB/s invalid
  mdtest_easy_write      6.75   7.41 15.108 kiops invalid
  ior_hard_write         7.41   7.95 0.596 GiB/s invalid
  mdtest_hard_write      7.95   8.52 16.478 kiops invalid
  find                   8.52   9.02 9.830 kiops
  ior_easy_read          9.02   9.53 11.336 GiB/s
  mdtest_easy_stat       9.53   9.91 900.170 kiops
  ior_hard_read          9.92  10.42 8.182 GiB/s
  mdtest_hard_stat      10.42  10.84 999.822 kiops
  mdtest_easy_delete    10.84  11.46 265.118 kiops
  mdtest_hard_read      11.47  11.85 322.149 kiops
  mdtest_hard_delete    11.85  14.04 0.954 kiops
  ior_easy_write        14.42  14.91 0.237395 GiB/s invalid
  mdtest_easy_write     14.90  15.98 2.455963 kIOPS invalid
  ior_hard_write        15.98  16.09 0.656845 GiB/s invalid
  mdtest_hard_write     16.09  16.76 2.558993 kIOPS invalid
  find                  16.76  16.76 3075.942144 kIOPS
  ior_easy_read         16.76  16.84 2.373236 GiB/s
  mdtest_easy_stat      16.84  16.85 243.054811 kIOPS
  ior_hard_read         16.86  16.89 2.316578 GiB/s
  mdtest_hard_stat      16.89  16.89 975.590125 kIOPS
  mdtest_easy_delete    16.89  16.96 77.031714 kIOPS
  mdtest_hard_read      16.96  16.98 69.877241 kIOPS
  mdtest_hard_delete    16.98  17.46 3.649923 kIOPS

io500-isc20-sh-fail: io500 failed
  ior_easy_write         9.94  10.47

io500-main-baddir: io500 failed invalid

io500-main-fatal-findnproc-pipe: io500 failed invalid

io500-main-mpich-pipe: io500 finished invalid score 9.797190
  ior_easy_write         0.15   0.39 0.569707 GiB/s invalid
  mdtest_easy_write      0.39   1.56 18.186132 kIOPS invalid
  ior_hard_write         1.56   1.72 0.503793 GiB/s invalid
  mdtest_hard_write      1.73   2.89 18.321488 kIOPS invalid
  find                   2.90   2.90 932.825234 kIOPS
  ior_easy_read          2.90   2.98 1.514774 GiB/s
  mdtest_easy_stat       2.98   4.00 359.450151 kIOPS
  ior_hard_read          4.01   4.04 2.127675 GiB/s
  mdtest_hard_stat       4.04   5.05 417.551419 kIOPS
  mdtest_easy_delete     5.06   6.10 120.554846 kIOPS
  mdtest_hard_read       6.10   7.11 139.056908 kIOPS
  mdtest_hard_delete     7.11   8.26 10.766738 kIOPS
  ior_rnd4k_easy_read    8.27   9.58 1.720519 GiB/s

io500-main-openmpi-pipe: io500 finished invalid score 18.360761
  ior_easy_write         0.32   2.46 0.367381 GiB/s invalid
  mdtest_easy_write      2.46   4.30 47.431519 kIOPS invalid
  ior_hard_write         4.30   4.91 0.712392 GiB/s invalid
  mdtest_hard_write      4.91   6.55 31.263773 kIOPS invalid
  find                   6.55   6.58 2181.298345 kIOPS
  ior_easy_read          6.58   6.66 10.746813 GiB/s
  mdtest_easy_stat       6.67   7.73 624.219726 kIOPS
  ior_hard_read          7.73   7.79 7.016300 GiB/s
  mdtest_hard_stat       7.80   8.82 790.170494 kIOPS
  mdtest_easy_delete     8.82  10.06 197.157963 kIOPS
  mdtest_hard_read      10.06  11.13 265.410204 kIOPS
  mdtest_hard_delete    11.14  16.14 5.130865 kIOPS
  ior_rnd4k_easy_read   16.14  18.75 2.636265 GiB/s

io500-main-openmpi-tty: io500 finished invalid score 10.190295
  ior_easy_write         0.43   0.73 0.398566 GiB/s invalid
  mdtest_easy_write      0.73   2.62 3.365421 kIOPS invalid
  ior_hard_write         2.62   2.91 0.241850 GiB/s invalid
  mdtest_hard_write      2.92   5.12 1.329102 kIOPS invalid
  find                   5.12   5.12 2001.684668 kIOPS
  ior_easy_read          5.12   5.14 7.113993 GiB/s
  mdtest_easy_stat       5.14   6.15 911.607042 kIOPS
  ior_hard_read          6.15   6.16 5.138430 GiB/s
  mdtest_hard_stat       6.17   7.17 960.344362 kIOPS
  mdtest_easy_delete     7.17   8.29 50.804537 kIOPS
  mdtest_hard_read       8.29   9.30 237.772336 kIOPS
  mdtest_hard_delete     9.30  10.45 11.500539 kIOPS
  ior_rnd4k_easy_read   10.45  11.53 3.743251 GiB/s

io500-main-pausedir: io500 finished invalid score 5.014079
  ior_easy_write         0.50   1.70 0.097265 GiB/s invalid
  mdtest_easy_write      1.71   3.36 5.281235 kIOPS invalid
  ior_hard_write         8.37   8.63 0.252503 GiB/s invalid
  mdtest_hard_write      8.64   9.83 8.314237 kIOPS invalid
  find                   9.84   9.84 1589.341502 kIOPS
  ior_easy_read          9.84  10.01 1.144342 GiB/s
  mdtest_easy_stat      10.07  11.09 585.034034 kIOPS
  ior_hard_read         11.10  11.91 1.026261 GiB/s
  mdtest_hard_stat      11.91  12.92 158.242034 kIOPS
  mdtest_easy_delete    12.93  14.12 110.196627 kIOPS
  mdtest_hard_read      14.14  15.68 135.294674 kIOPS
  mdtest_hard_delete    15.77  17.69 1.991873 kIOPS
  ior_rnd4k_easy_read   17.69  19.05 1.284636 GiB/s

io500-main-rank-segv: io500 failed invalid

io500-main-sigint: io500 stopped invalid
  ior_easy_write         0.59   4.29 0.159661 GiB/s invalid
  mdtest_easy_write      4.29   6.36

io500-main-singleton-pipe: io500 finished invalid score 9.163527
  ior_easy_write         0.32   0.51 0.347064 GiB/s invalid
  mdtest_easy_write      0.51   2.69 1.268193 kIOPS invalid
  ior_hard_write         2.69   2.75 0.817565 GiB/s invalid
  mdtest_hard_write      2.75   3.80 27.106807 kIOPS invalid
  find                   3.80   3.80 1025.118977 kIOPS
  ior_easy_read          3.80   3.80 5.659543 GiB/s
  mdtest_easy_stat       3.80   4.79 327.714137 kIOPS
  ior_hard_read          4.79   4.79 2.466627 GiB/s
  mdtest_hard_stat       4.79   5.84 344.819977 kIOPS
  mdtest_easy_delete     5.84   6.85 76.879770 kIOPS
  mdtest_hard_read       6.85   7.84 99.674525 kIOPS
  mdtest_hard_delete     7.84   9.02 5.162355 kIOPS
  ior_rnd4k_easy_read    9.02  10.02 2.700954 GiB/s

io500-main-tag-output: io500 finished invalid score 3.105052
  ior_easy_write         0.47   1.08 0.203473 GiB/s invalid
  mdtest_easy_write      1.08   2.93 4.087417 kIOPS invalid
  ior_hard_write         2.94   4.48 0.045344 GiB/s invalid
  mdtest_hard_write      4.48   5.75 6.541775 kIOPS invalid
  find                   5.74   5.75 2897.178791 kIOPS
  ior_easy_read          5.74   5.89 0.971816 GiB/s
  mdtest_easy_stat       5.90   7.20 21.455850 kIOPS
  ior_hard_read          7.21   7.29 1.231102 GiB/s
  mdtest_hard_stat       7.29   8.29 764.076785 kIOPS
  mdtest_easy_delete     8.29   9.43 78.750498 kIOPS
  mdtest_hard_read       9.43  10.62 13.309916 kIOPS
  mdtest_hard_delete    10.63  15.15 0.460318 kIOPS
  ior_rnd4k_easy_read   15.14  16.22 1.148419 GiB/s

io500-main-twohosts: io500 finished invalid score 6.443771
  ior_easy_write         0.85   3.23 0.260555 GiB/s invalid
  mdtest_easy_write      3.23   6.55 0.932847 kIOPS invalid
  ior_hard_write         6.59   7.37 0.688381 GiB/s invalid
  mdtest_hard_write      7.35   9.70 18.516116 kIOPS invalid
  find                   9.71   9.81 212.672330 kIOPS
  ior_easy_read          9.81   9.99 3.758712 GiB/s
  mdtest_easy_stat       9.99  11.13 75.545574 kIOPS
  ior_hard_read         11.14  11.49 2.234498 GiB/s
  mdtest_hard_stat      11.51  12.69 368.446602 kIOPS
  mdtest_easy_delete    12.72  13.93 61.528007 kIOPS
  mdtest_hard_read      13.94  15.43 69.330548 kIOPS
  mdtest_hard_delete    15.41  18.84 8.926770 kIOPS
  ior_rnd4k_easy_read   18.88  21.05 1.692635 GiB/s

io500-main-verbosity0: io500 finished invalid score 6.007893
  ior_easy_write         0.37   1.01 0.184746 GiB/s invalid
  mdtest_easy_write      1.04   2.17 22.050874 kIOPS invalid
  ior_hard_write         2.18   2.37 0.367836 GiB/s invalid
  mdtest_hard_write      2.41   3.69 6.675739 kIOPS invalid
  find                   3.68   3.69 1742.114783 kIOPS
  ior_easy_read          3.65   3.82 1.013007 GiB/s
  mdtest_easy_stat       3.83   4.84 428.325288 kIOPS
  ior_hard_read          4.83   4.88 1.534276 GiB/s
  mdtest_hard_stat       4.88   5.93 581.835131 kIOPS
  mdtest_easy_delete     5.93   7.05 115.061651 kIOPS
  mdtest_hard_read       7.05   8.07 75.015497 kIOPS
  mdtest_hard_delete     8.08  12.54 0.468174 kIOPS
  ior_rnd4k_easy_read   12.55  13.95 1.356818 GiB/s

io500-sc20-openmpi-pipe: io500 finished invalid score 8.816311
  ior_easy_write         0.37   0.45 1.428762 GiB/s invalid
  mdtest_easy_write      0.45   2.04 1.758173 kIOPS invalid
  ior_hard_write         2.06   2.32 0.272961 GiB/s invalid
  mdtest_hard_write      2.31   2.45 16.192720 kIOPS invalid
  find                   2.45   2.45 1107.626779 kIOPS
  ior_easy_read          2.46   2.49 3.592944 GiB/s
  mdtest_easy_stat       2.49   2.52 979.110235 kIOPS
  ior_hard_read          2.52   2.56 1.530363 GiB/s
  mdtest_hard_stat       2.55   2.56 936.502223 kIOPS
  mdtest_easy_delete     2.56   2.67 105.523912 kIOPS
  mdtest_hard_read       2.68   2.69 148.025766 kIOPS
  mdtest_hard_delete     2.68   5.25 0.641470 kIOPS

fio-bwlog: fio finished
  rw4k                      -   5.20 128MiB/s; 32.8k IOPS

fio-eta-always-pipe: fio finished
  rw4k                   0.50   4.70 125MiB/s; 32.0k IOPS

fio-eta-interval500-quirk: fio finished
  rw4k                      -   4.39 227MiB/s; 58.1k IOPS

fio-fail-badopt: fio failed

fio-jobs-stonewall: fio finished
  seq_write              0.93   4.07 2343MiB/s; 2343 IOPS
  rand_read              4.19   7.30 211MiB/s; 54.1k IOPS
  rand_write             7.47  10.58 130MiB/s; 33.3k IOPS
  mixed                 10.68  14.88 329MiB/s; 21.0k IOPS; 140MiB/s; 8946 IOPS

fio-jobs-stonewall-json-status: fio finished
  seq_write                 -      - 1477015144 B/s; 1408.591409 IOPS
  rand_read                 -      - 95954903 B/s; 23426.490066 IOPS
  rand_write                -      - 67753026 B/s; 16541.266158 IOPS
  mixed                     -  15.20 229022075 B/s; 13977.068794 IOPS; 97242225 B/s; 5934.197408 IOPS

fio-json: fio finished
  rw4k                      -   4.84 174475066 B/s; 42596.451774 IOPS

fio-randwrite-pipe: fio finished
  rw4k                   0.55   4.63 124MiB/s; 31.7k IOPS

fio-seed-syncwrite: fio finished
  4k_sync_write_2           -   4.50 7035KiB/s; 1758 IOPS

fio-sigint-json: fio stopped
  rw4k                      -      - 65154840 B/s; 15906.94345 IOPS

fio-terse: fio finished
  rw4k                   0.60   4.61 143744 KiB/s; 35936 IOPS

ior-json: ior finished
  write                  0.33   0.58 519.5713 MiB/s; 519.7272 IOPS
  read                   0.60   0.61 18768.4290 MiB/s; 18815.1297 IOPS

ior-old-isc20: ior finished
  write                  0.48   0.58 1294.89 MiB/s
  read                   0.58   0.60 8074 MiB/s
  remove                 0.60   0.65 0.053973 s
  write                  0.66   0.83 887.65 MiB/s
  read                   0.84   0.93 9700 MiB/s
  remove                 0.93   1.17 0.235686 s

ior-sigint: ior stopped
  write                     -      -

ior-singleton-pipe: ior finished
  write                  0.38   0.46 1694.78 MiB/s
  read                   0.46   0.46 16999 MiB/s
  remove                 0.46   0.50 0.036317 s
  write                  0.50   0.58 1651.50 MiB/s
  read                   0.58   0.59 9099 MiB/s
  remove                 0.59   0.63 0.034589 s

ior-stonewall: ior finished
  write                  0.31   6.07 142.40 MiB/s
  read                   6.07   6.65 1413.32 MiB/s
  remove                 6.65   7.02 0.368095 s

ior-wr-v0-mpirun: ior finished
  write                  0.33   0.86 480.44 MiB/s
  read                   0.87   0.90 10365 MiB/s
  write                  0.96   1.11 1663.09 MiB/s
  read                   1.13   1.15 12527 MiB/s
  write                  1.28   1.44 1572.44 MiB/s
  read                   1.44   1.46 10301 MiB/s

ior-wr-v1-mpirun: ior finished
  write                  0.44   0.58 1869.32 MiB/s
  read                   0.58   0.60 16621 MiB/s
  remove                 0.60   0.65 0.049707 s
  write                  0.65   0.79 1890.69 MiB/s
  read                   0.78   0.80 15539 MiB/s
  remove                 0.80   0.85 0.049250 s

ior-wr-v3-mpirun: ior finished
  write                  0.65   0.67 1686.34 MiB/s
  read                   0.67   0.67 29222 MiB/s
  remove                 0.67   0.68 0.007557 s

iozone-excel-R: iozone finished
  write                     -   0.10 2395139 kBytes/s
  rewrite                   -   0.10 5306022 kBytes/s
  read                      -   0.10 8552280 kBytes/s
  reread                    -   0.10 7392988 kBytes/s
  write                     -   0.15 2752828 kBytes/s
  rewrite                   -   0.15 6659365 kBytes/s
  read                      -   0.15 9937420 kBytes/s
  reread                    -   0.15 9023961 kBytes/s
  write                     -   0.19 3479956 kBytes/s
  rewrite                   -   0.19 7277121 kBytes/s
  read                      -   0.19 14427096 kBytes/s
  reread                    -   0.19 11371329 kBytes/s
  write                     -   0.26 1315164 kBytes/s
  rewrite                   -   0.26 4697286 kBytes/s
  read                      -   0.26 6810914 kBytes/s
  reread                    -   0.26 6229323 kBytes/s
  write                     -   0.30 999503 kBytes/s
  rewrite                   -   0.30 6804170 kBytes/s
  read                      -   0.30 9460786 kBytes/s
  reread                    -   0.30 8668371 kBytes/s
  write                     -   0.35 2339815 kBytes/s
  rewrite                   -   0.35 7173514 kBytes/s
  read                      -   0.35 11251448 kBytes/s
  reread                    -   0.35 10556617 kBytes/s

iozone-fail: iozone failed
  write                  0.07   0.07

iozone-single: iozone finished
  write                     -   0.58 1808945 kBytes/s
  rewrite                   -   0.58 4789914 kBytes/s
  read                   0.58   0.68 4988636 kBytes/s
  reread                 0.58   0.68 2030675 kBytes/s
  random_read            0.68   0.77 3849841 kBytes/s
  random_write           0.68   0.77 3247888 kBytes/s

iozone-throughput: iozone finished
  write                  0.33   0.58 477661.14 kB/s
  rewrite                0.58   2.67 4846448.00 kB/s
  read                   2.67   4.78 3000905.00 kB/s
  reread                 4.78   6.73 17953265.50 kB/s
  random_read            6.73  10.81 17002909.00 kB/s
  random_write          10.81  14.95 2386290.03 kB/s

iperf2-fail: iperf2 failed
  send                      -      -

iperf2-seed: iperf2 finished
  send                   0.05   3.16 12.3 Gbits/s

iperf2-seed-P4-i1: iperf2 finished
  send                   0.01   3.04 17.5 Gbits/s

iperf3-fail-refused: iperf3 failed
  send                      -      -

iperf3-fail-refused-json: iperf3 failed
  send                      -      -

iperf3-json: iperf3 finished
  send                      -   3.02 15781055274.377188 bits/s; 15823679929.185986 bits/s

mdtest-old-isc20: mdtest finished unordered
  file_creation             -      - 654.403 ops/s; 702.876 ops/s; 606.119 ops/s
  file_stat                 -      - 157709.170 ops/s; 196180.856 ops/s; 134173.384 ops/s
  file_read                 -      - 78893.768 ops/s; 136570.684 ops/s; 45773.877 ops/s
  file_removal              -      - 43404.501 ops/s; 62590.882 ops/s; 30444.609 ops/s
  tree_creation             -      - 627.133 ops/s; 752.836 ops/s; 501.429 ops/s
  tree_removal              -      - 31.618 ops/s; 37.593 ops/s; 25.643 ops/s

mdtest-std: mdtest finished unordered
  file_creation             -      - 11650.366 ops/s; 14003.512 ops/s; 9297.219 ops/s
  file_stat                 -      - 103850.629 ops/s; 202226.094 ops/s; 5475.164 ops/s
  file_read                 -      - 34290.274 ops/s; 56355.107 ops/s; 12225.440 ops/s
  file_removal              -      - 46913.018 ops/s; 62575.401 ops/s; 31250.635 ops/s
  tree_creation             -      - 4381.867 ops/s; 7463.174 ops/s; 1300.559 ops/s
  tree_removal              -      - 18.681 ops/s; 24.969 ops/s; 12.393 ops/s

io500-main-two-at-once: io500 finished invalid score 10.879119
  ior_easy_write          0.34   0.61 1.506251 GiB/s invalid
  mdtest_easy_write       0.78   2.50 14.005719 kIOPS invalid
  ior_hard_write          2.33   2.52 0.925197 GiB/s invalid
  mdtest_hard_write       2.52   4.15 11.244612 kIOPS invalid
  ior_easy_write          3.35   4.14 0.497751 GiB/s invalid
  find                    4.15   4.16 1794.725684 kIOPS
  ior_easy_read           4.18   4.35 2.406704 GiB/s
  mdtest_easy_write       4.47   6.09 16.066037 kIOPS invalid
  mdtest_easy_stat        4.64   5.75 131.606652 kIOPS
  ior_hard_read           5.53   5.75 0.904215 GiB/s
  mdtest_hard_stat        5.72   6.74 410.281131 kIOPS
  ior_hard_write          5.89   6.09 0.892055 GiB/s invalid
  mdtest_hard_write       5.96   7.27 20.532534 kIOPS invalid
  mdtest_easy_delete      6.74   7.88 197.301020 kIOPS
  find                    7.27   7.28 973.392499 kIOPS
  ior_easy_read           7.31   7.50 2.299880 GiB/s
  mdtest_easy_stat        7.54   8.62 430.070340 kIOPS
  mdtest_hard_read        7.88   8.92 165.235248 kIOPS
  ior_hard_read           8.59   8.70 1.626800 GiB/s
  mdtest_hard_stat        8.69   9.72 2067.517581 kIOPS
  mdtest_hard_delete      9.12  13.51 1.787749 kIOPS
  mdtest_easy_delete      9.72  10.80 250.043459 kIOPS
  mdtest_hard_read       10.81  11.86 143.447320 kIOPS
  mdtest_hard_delete     11.86  17.38 1.362316 kIOPS
  ior_rnd4k_easy_read    13.34  15.64 1.588264 GiB/s
  ior_rnd4k_easy_read    17.38  18.43 5.225139 GiB/s

fio-output-file: fio finished
  seqwrite               0.70   2.85 5744MiB/s; 91.9kIOPS
  randread               3.10   5.10 110MiB/s; 28.3kIOPS
  mix                    5.23   7.23 43.8MiB/s; 11.2kIOPS; 19.2MiB/s; 4917 IOPS

fio-client: fio finished
  seqwrite               2.28   4.28 7214MiB/s; 115kIOPS
  randread               4.38   6.39 56.8MiB/s; 14.5kIOPS
  mix                    6.11   8.11 22.3MiB/s; 5713 IOPS; 9.80MiB/s; 2509 IOPS

mdtest-3.3-slow-removal: mdtest finished
  tree_creation          0.44   0.44 150511.740 ops/s
  file_creation          0.44   1.74 6143.062 ops/s
  file_stat              1.74   1.77 277584.740 ops/s
  file_read              1.72   1.77 171146.615 ops/s
  file_removal           1.77   8.10 1263.273 ops/s
  tree_removal           8.10   8.13 27.782 ops/s

ping-fail: ping failed
  ping                      -      -

ping-pipe: ping finished
  ping                   0.01   0.96 0.185 ms

rados-bench-write: rados_bench finished
  write                     -      - 322.304 MB/sec; 80 IOPS; 0.0988597 s

rados-bench-seq: rados_bench finished
  seq                       -      - 604.898 MB/sec; 151 IOPS; 0.0521798 s

rados-bench-4k-pipe: rados_bench finished
  write                  0.05   5.06 7.50169 MB/sec; 1920 IOPS
  cleanup                5.07   8.11 3161.208819 IOPS; 9609 objects

rados-bench-json: rados_bench finished
  write                     -      - 9.565658 MB/sec; 2448 IOPS
  cleanup                   -      - 3515.009 IOPS; 12249 objects

rados-cleanup: rados_bench finished
  cleanup                   -      - 650 objects

rbd-bench-write: rbd_bench finished
  write                     -      - 16 MiB/s; 4203.61 ops/s

rbd-bench-pipe: rbd_bench finished
  write                  0.04   2.18 19 MiB/s; 4785.05 ops/s

ceph-tell-osd-bench: ceph_osd_bench finished
  write                     -      - 643658505.61831903 B/s; 153.46014633615471 IOPS
"""

EXPECTED = dict(_expected(block) for block in TABLE.strip("\n").split("\n\n"))
