"""What a full thread spends its CPU time on: samples of its stack, with names, divided into classes."""
