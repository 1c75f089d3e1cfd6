"""Pinchpoint's Grafana dashboards as code, one module each. `make generated` writes their JSON to ``json/``."""
