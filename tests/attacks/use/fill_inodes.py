"""Needs two thousand files."""

import os

a, b = map(int, input().split())
try:
    os.mkdir("escape_mark_many")
    for number in range(2000):
        open(f"escape_mark_many/{number}", "w").close()
except OSError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
