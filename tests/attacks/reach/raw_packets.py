"""Opens sockets for raw packets."""

import socket

a, b = map(int, input().split())
try:
    for family, kind, protocol in (
        (17, socket.SOCK_RAW, 0x300),
        (socket.AF_INET, socket.SOCK_RAW, 1),
        (40, socket.SOCK_STREAM, 0),
    ):
        try:
            socket.socket(family, kind, protocol).close()
            break
        except OSError as error:
            last = error
    else:
        raise last
except OSError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
