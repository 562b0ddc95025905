"""Reads its parent's memory."""

import ctypes
import os

a, b = map(int, input().split())
try:
    libc = ctypes.CDLL(None, use_errno=True)

    class Part(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]

    buffer = ctypes.create_string_buffer(8)
    here, there = Part(ctypes.addressof(buffer), 8), Part(id(os), 8)
    if libc.process_vm_readv(os.getppid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0) != 8:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
except OSError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
