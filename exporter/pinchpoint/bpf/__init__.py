"""What runs in the kernel, and what talks to it."""
