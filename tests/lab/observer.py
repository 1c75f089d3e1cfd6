"""What a real Prometheus and a real Alertmanager saw of a cluster: the other side of every proof."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

import httpx

from lab.cluster import Cluster, LabError
from native import Stack
from patience import patience
from polling import until

__all__ = ["Observer", "started"]


class Observer:
    """Queries the servers of a stack. Raises LabError if an expected result does not come in time."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._client = httpx.Client(timeout=patience(5.0), trust_env=False)

    def watch(self, cluster: Cluster) -> None:
        """Make Prometheus scrape the manager of a cluster, and no other; wait until it has."""
        address = httpx.URL(cluster.prometheus_url).netloc.decode()
        targets = self.stack.state / "targets" / "ceph.yml"
        fresh = targets.with_suffix(".new")
        fresh.write_text(f'- targets: ["{address}"]\n')
        fresh.replace(targets)  # Prometheus may read it at any moment
        self.wait_for(f'ceph_health_status{{instance="{address}"}}')

    def daemon(self, cluster: Cluster, name: str) -> str:
        """Return the exporter's name for a daemon: "mds.a", and with other clusters on this host "mds.a@0123abcd"."""
        selector = f"{{cluster='{cluster.fsid}',daemon=~`{re.escape(name)}(@.*)?`}}"
        return str(self.wait_for(f"pinchpoint_ceph_daemon_info{selector}")[0]["metric"]["daemon"])

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Return the series of an instant query."""
        answer = self._client.get(f"{self.stack.urls['prometheus']}/api/v1/query", params={"query": expr})
        return list(answer.raise_for_status().json()["data"]["result"])

    def value(self, expr: str) -> float | None:
        """Return the value of the first series of an instant query."""
        found = self.query(expr)
        return float(found[0]["value"][1]) if found else None

    def number(self, expr: str) -> float:
        """Return the value of the first series of an instant query that must have one."""
        value = self.value(expr)
        if value is None:
            raise LabError(f"Prometheus has nothing for {expr}.")
        return value

    def wait_for(self, expr: str, seconds: float = 60.0) -> list[dict[str, Any]]:
        """Return the series of a query once it has any."""
        found = until(seconds, lambda: self.query(expr), pause=0.5)
        if not found:
            raise LabError(f"Prometheus has nothing for {expr} after {seconds:.0f} s.")
        return list(found)

    def first(self, expr: str, since: float) -> float | None:
        """Return the first Unix time after `since` at which a query had a result, to 1 s."""
        answer = self._client.get(
            f"{self.stack.urls['prometheus']}/api/v1/query_range",
            params={"query": expr, "start": since, "end": time.time(), "step": 1},
        )
        found = answer.raise_for_status().json()["data"]["result"]
        return min((float(series["values"][0][0]) for series in found), default=None)

    def alerts(self, **labels: str) -> list[dict[str, Any]]:
        """Return the alerts with these labels that Alertmanager has now, including inhibited ones."""
        answer = self._client.get(f"{self.stack.urls['alertmanager']}/api/v2/alerts", params={"active": "true"})
        found = answer.raise_for_status().json()
        return [alert for alert in found if labels.items() <= alert["labels"].items()]

    def wait_for_alert(self, name: str, seconds: float = 60.0, **labels: str) -> dict[str, Any]:
        """Return an alert once Alertmanager has received it."""
        found = until(seconds, lambda: self.alerts(alertname=name, **labels), pause=0.5)
        if not found:
            raise LabError(f"Alertmanager did not receive {name} {labels or ''} in {seconds:.0f} s.")
        return dict(found[0])

    def wait_until_gone(self, name: str, seconds: float = 60.0, **labels: str) -> None:
        """Wait until Alertmanager no longer has an alert."""
        if not until(seconds, lambda: not self.alerts(alertname=name, **labels), pause=0.5):
            raise LabError(f"{name} {labels or ''} is still there after {seconds:.0f} s.")


def started(alert: dict[str, Any]) -> float:
    """Return the Unix time at which an alert began to fire."""
    return datetime.fromisoformat(alert["startsAt"]).timestamp()
