"""What the probes of Ceph share: admin sockets, who has which, and what their answers say."""
