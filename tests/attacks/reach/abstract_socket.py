"""Connects to an abstract unix socket of the host."""

import socket

a, b = map(int, input().split())
try:
    socket.socket(socket.AF_UNIX).connect("\0escape_mark_host")
except OSError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
