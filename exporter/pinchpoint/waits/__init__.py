"""What the processes of benchmarks wait for, and how their time is divided."""
