"""The judge: a service that says what limits every run of every cluster, from the snapshots of all hosts."""
