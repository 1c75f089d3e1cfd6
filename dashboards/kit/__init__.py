"""Building blocks of the dashboards.

Each panel answers a question, and has an `About` that says what good and bad look like and where to read more.
Statements about Grafana are true of versions 12.3 and 12.4 (dashboard schema version 42).
"""
