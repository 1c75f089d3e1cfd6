"""What the kernel shows of a host: pure parsers of its files and sockets, each with the source file in the kernel."""
