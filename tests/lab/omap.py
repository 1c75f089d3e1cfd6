"""A load on the databases of OSDs: small keys that are cleared and set again; run by Debian's Python, which has rados.

Prints ``ready`` when it has connected, and ends on SIGTERM.
"""

from __future__ import annotations

import argparse
import itertools
import os
import threading

import rados

VALUE_BYTES = 512


def work(pool: rados.Ioctx, numbers: itertools.count[int], objects: int, keys: int) -> None:
    """Replace all keys of one object after another."""
    names = tuple(f"key{number:06d}" for number in range(keys))
    values = tuple(os.urandom(VALUE_BYTES) for _ in names)
    while True:
        with rados.WriteOpCtx() as operation:
            operation.new(rados.LIBRADOS_CREATE_IDEMPOTENT)
            pool.clear_omap(operation)
            pool.set_omap(operation, names, values)
            pool.operate_write_op(operation, f"omap.{next(numbers) % objects}")


def main() -> None:
    """Replace keys until SIGTERM."""
    parser = argparse.ArgumentParser(description="Put a load on the databases of OSDs.")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--objects", type=int, default=100)
    parser.add_argument("--keys", type=int, default=2000)
    parser.add_argument("--pool", default="rbd")
    options = parser.parse_args()
    cluster = rados.Rados(conffile=os.environ["CEPH_CONF"])
    cluster.connect()
    pool = cluster.open_ioctx(options.pool)
    numbers = itertools.count()
    for _ in range(options.threads):
        threading.Thread(target=work, args=(pool, numbers, options.objects, options.keys), daemon=True).start()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
