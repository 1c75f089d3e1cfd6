"""One computation for all who ask for its result at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["SingleFlight"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """Calls `compute` once for all callers in different threads that want the same key while it runs.

    Different keys are computed one after the other, so that many callers do not use more than one CPU.
    """

    def __init__(self, compute: Callable[[K], V]) -> None:
        self._compute = compute
        self._flights: dict[K, Future[V]] = {}
        self._lock = Lock()
        self._turn = Lock()

    def __call__(self, key: K) -> V:
        """Return the result for `key`; what `compute` raises is raised for all who wait for it."""
        with self._lock:
            flight = self._flights.get(key)
            first = flight is None
            if flight is None:
                flight = self._flights[key] = Future()
        if first:
            try:
                with self._turn:
                    flight.set_result(self._compute(key))
            except BaseException as error:
                flight.set_exception(error)
            finally:
                with self._lock:
                    del self._flights[key]
        return flight.result()
