"""A run of `pinchpoint run`: followed, judged, and saved."""
