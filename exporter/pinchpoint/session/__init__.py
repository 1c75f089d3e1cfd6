"""A run of `pinchpoint run`: followed, judged, and kept."""
