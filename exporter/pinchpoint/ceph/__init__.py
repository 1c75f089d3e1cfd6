"""What the probes of Ceph share: admin sockets, their owners, and what their answers say."""
