"""Random faults with a known truth on a real cluster: `make thrash`."""
