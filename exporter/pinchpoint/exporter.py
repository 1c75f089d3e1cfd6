"""The exporter as a service: it listens, gives up rights that it does not need, and samples until it is told to end."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread

from pinchpoint import __version__
from pinchpoint.activity import ASKED_SECONDS
from pinchpoint.build import enabled_probes, fork_nursery, local_sampler
from pinchpoint.config import Config
from pinchpoint.cost_limit import CostLimit
from pinchpoint.ending import leave
from pinchpoint.host.capabilities import drop_all_but, effective, losses, names
from pinchpoint.host.heap import share_one_heap
from pinchpoint.host.systemd import Watchdog, notify
from pinchpoint.metrics import (
    HTTP_REFUSED_CONNECTIONS,
    WEB_CONFIG_RELOAD_SUCCESSFUL,
    WEB_CONFIG_RELOAD_TIME,
    WEB_PASSWORD_CPU_SECONDS,
)
from pinchpoint.model import Point
from pinchpoint.wire.connections import Refusals
from pinchpoint.wire.guard import ProtectionMetrics
from pinchpoint.wire.http import application
from pinchpoint.wire.listeners import Listeners, load_protection, open_sockets

__all__ = ["serve"]

SAMPLER_GC_THRESHOLDS = (20_000, 20, 20)
"""Python's garbage collection thresholds: a sample makes thousands of objects, none of them in a cycle."""

PROTECTION = ProtectionMetrics(WEB_CONFIG_RELOAD_SUCCESSFUL, WEB_CONFIG_RELOAD_TIME, WEB_PASSWORD_CPU_SECONDS)

log = logging.getLogger(__name__)


def serve(config: Config, addresses: Sequence[str]) -> None:
    """Serve this host's metrics on `addresses` until SIGTERM or SIGINT, which ends the process.

    Raises ConfigError, AddressError or ListenError where the configuration does not allow it.
    """
    logging.basicConfig(level=config.log_level.upper(), format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    share_one_heap()
    nursery = fork_nursery(config)
    refusals = Refusals(HTTP_REFUSED_CONNECTIONS)
    # After the fork: helpers, which run as other users, must not have keys and passwords in their memory.
    web_config = config.web.config_file
    protection = load_protection(None if web_config is None else Path(web_config), PROTECTION, refusals)
    sampler = local_sampler(config, beat=Watchdog().beat, nursery=nursery, limit=CostLimit(config.cost_limit))
    sockets = open_sockets(addresses, config.web.systemd_socket)
    sampler.refusals = refusals

    def points() -> Iterator[Point]:
        yield from sampler.points()
        if protection is not None:
            yield from protection.points()

    app = application(points, config.web.telemetry_path, lambda: sampler.hold_full_rate(ASKED_SECONDS), sampler.stacks)
    listeners = Listeners(sockets, app, refusals, protection)
    try:
        sampler.host.runs.create()
    except OSError as error:
        log.warning("%s: %s: runs will not show their phases", sampler.host.runs.path, error.strerror)
    _drop_capabilities(config)
    lacking = {capability for capabilities in sampler.lacks.values() for capability in capabilities}
    for loss in losses(lacking):
        log.info("%s", loss)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: Thread(target=listeners.shutdown).start())
    sampler.start()
    # What exists now lives as long as the process: the garbage collector need not scan it again.
    gc.freeze()
    gc.set_threshold(*SAMPLER_GC_THRESHOLDS)
    log.info("protection: %s", listeners.protected_by)
    for address in listeners.addresses:
        log.info("Pinchpoint %s listens on %s", __version__, address)
    notify("READY=1")
    listeners.serve_forever()
    notify("STOPPING=1")
    sampler.stop()
    listeners.close()
    leave(0)  # a thread that hangs in the kernel must not keep the process from ending


def _drop_capabilities(config: Config) -> None:
    """Keep the capabilities that an enabled probe needs, and no others; every thread is started after this.

    What is opened once is open by now, such as a port below 1024.
    """
    try:
        before = drop_all_but({capability for probe in enabled_probes(config) for capability in probe.capabilities})
        kept = effective()
    except OSError as error:
        log.warning("capabilities cannot be dropped: %s: %s", error.filename, error.strerror)
        return
    log.info("capabilities: keeps %s; dropped %s", names(kept), names(before.permitted - kept))
