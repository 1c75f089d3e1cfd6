"""What is left of a run when it is over: one document, which a terminal, a program or a browser shows."""
