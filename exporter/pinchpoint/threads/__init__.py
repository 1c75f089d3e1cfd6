"""Threads and processes: what each is for (the roles file), what it used, and what of it can be full."""
