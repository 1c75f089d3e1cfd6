"""An NFS client that creates and removes a file, over and over, until it is killed: `nfs_client.py URL`."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from typing import Any

MODE = 0o644


class Url(ctypes.Structure):
    """struct nfs_url (nfsc/libnfs.h of libnfs 4.0)."""

    _fields_ = (("server", ctypes.c_char_p), ("path", ctypes.c_char_p), ("file", ctypes.c_char_p))


def main() -> None:
    """Mount what the command line names, and work in it."""
    library = ctypes.CDLL(ctypes.util.find_library("nfs"))
    library.nfs_init_context.restype = library.nfs_get_error.restype = ctypes.c_void_p
    library.nfs_parse_url_dir.restype = ctypes.POINTER(Url)
    context = ctypes.c_void_p(library.nfs_init_context())

    def call(name: str, *arguments: Any) -> None:
        if getattr(library, name)(context, *arguments):
            raise SystemExit(f"{name}: {ctypes.string_at(library.nfs_get_error(context)).decode()}")

    url = library.nfs_parse_url_dir(context, sys.argv[1].encode()).contents
    call("nfs_mount", url.server, url.path)
    path, file = f"/{os.getpid()}".encode(), ctypes.c_void_p()
    while True:
        call("nfs_creat", path, MODE, ctypes.byref(file))
        call("nfs_close", file)
        call("nfs_unlink", path)


if __name__ == "__main__":
    main()
