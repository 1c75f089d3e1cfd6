"""What follows from snapshots: pure functions that read neither a clock nor a file."""
