"""Touches 400 MiB of shared memory, which no process calls its own."""

import mmap

a, b = map(int, input().split())
try:
    held = mmap.mmap(-1, 400 << 20)
    for at in range(0, 400 << 20, 4096):
        held[at] = 1
except (OSError, ValueError) as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
