"""A real Ceph cluster for tests and for people: see cluster.py."""
