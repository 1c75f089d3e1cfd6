"""Pinchpoint's Grafana dashboards, from code: one module a dashboard. `make dashboards` writes them to ``json/``."""
