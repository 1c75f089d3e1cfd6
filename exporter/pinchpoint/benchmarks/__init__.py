"""The benchmarks that Pinchpoint knows, one file each: how a phase is seen while it runs, how results are read."""
