"""The benchmarks that Pinchpoint knows, one file each (`registry` lists them), and what they share.

- `base`, `events`, `output`, `tree`: what a benchmark is made of: a look at its processes, a reader of its output.
- `tail`, `units`, `mpi`, `wrappers`: files that grow, units, ranks, command lines around a benchmark.
- `detector`, `timeline`, `pace`: finds running benchmarks, and makes phases of what is seen and read.
- `reading`, `document`: results out of texts, and runs as JSON.
- `capture`, `stage`, `record`, `replay`: a recorded run, played again before the same detector.
"""
