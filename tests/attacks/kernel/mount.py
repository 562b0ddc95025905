"""Mounts a file system over its own folder."""

import ctypes
import os

a, b = map(int, input().split())
try:
    libc = ctypes.CDLL(None, use_errno=True)
    os.mkdir("escape_mark_mount")
    if libc.mount(b"escape_mark", b"escape_mark_mount", b"tmpfs", 0, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
except OSError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
