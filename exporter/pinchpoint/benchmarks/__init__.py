"""The benchmarks that Pinchpoint knows, one file each (`registry` lists them), and what they share.

- `base`, `events`, `output`, `tree`: the parts of a benchmark: a look at its processes, a reader of its output.
- `tail`, `units`, `mpi`, `wrappers`: files that grow, units, ranks, command lines around a benchmark.
- `detector`, `timeline`, `pace`: find running benchmarks, and turn what is seen and read into phases.
- `reading`, `document`: results from texts, and runs as JSON.
- `capture`, `stage`, `record`, `replay`: a recorded run, replayed to the same detector.
"""
