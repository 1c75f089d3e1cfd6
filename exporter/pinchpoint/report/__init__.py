"""The report on a run: one document, which a terminal, a program or a browser shows."""
