"""The judge: a service that reports what limits every run of every cluster, from the snapshots of all hosts."""
