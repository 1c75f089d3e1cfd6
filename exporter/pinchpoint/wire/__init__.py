"""Series as text and over HTTP: expositions, recordings, Prometheus' API, and the sources of snapshots."""
