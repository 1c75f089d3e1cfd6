"""Pinchpoint's Grafana dashboards, from code: one module a dashboard. `make generated` writes them to ``json/``."""
