"""Needs five hundred open files."""

import os

a, b = map(int, input().split())
try:
    held = [os.dup(0) for _ in range(500)]
except OSError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
