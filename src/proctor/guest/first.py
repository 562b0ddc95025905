"""The first program in a machine, from its initial file system: load modules, mount the root, go on in it."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time

_LIBC = ctypes.CDLL(None, use_errno=True)
_FINIT_MODULE = 313
_READ_ONLY, _MOVE = 1, 8192
_DISK, _ROOT = "/dev/vda", "/image"


def _mount(source: str, target: str, kind: str | None, flags: int = 0, data: str | None = None) -> None:
    words = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    if _LIBC.mount(*words[:3], ctypes.c_ulong(flags), words[3]):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {target}: {os.strerror(number)}")


def main() -> None:
    """Never returns."""
    _mount("dev", "/dev", "devtmpfs")
    console = os.open("/dev/console", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(console, fd)
    with open("/modules/order") as file:
        names = json.load(file)
    for name in names:
        fd = os.open(f"/modules/{name}", os.O_RDONLY)
        if _LIBC.syscall(_FINIT_MODULE, fd, b"", 0):
            raise OSError(ctypes.get_errno(), f"module {name}")
        os.close(fd)
    deadline = time.monotonic() + 60
    while not os.path.exists(_DISK) and time.monotonic() < deadline:
        time.sleep(0.01)
    _mount(_DISK, _ROOT, "erofs", _READ_ONLY)
    _mount("/dev", f"{_ROOT}/dev", None, _MOVE)
    for folder, _, files in os.walk("/modules"):  # nobody needs them again
        for name in files:
            os.unlink(f"{folder}/{name}")
    os.chdir(_ROOT)
    _mount(".", "/", None, _MOVE)
    os.chroot(".")
    os.chdir("/")
    os.execve(sys.argv[1], [sys.argv[1], "-S", sys.argv[2]], {})


main()
