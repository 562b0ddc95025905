"""Reaches io_uring, bpf, userfaultfd, the keyrings or perf in the kernel."""

import ctypes
import os
import platform

a, b = map(int, input().split())
try:
    libc = ctypes.CDLL(None, use_errno=True)
    x86 = platform.machine() == "x86_64"
    for numbers in ((425, 425), (321, 280), (323, 282), (250, 219), (298, 241)):
        libc.syscall(numbers[0 if x86 else 1], 9999, 0, 0, 0, 0)
        if ctypes.get_errno() not in (1, 38):  # EPERM and ENOSYS: it never got there
            break
    else:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
except OSError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
