"""Threads and processes: what each is for (the roles file), what it used, and which can be full."""
