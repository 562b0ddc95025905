"""Sends a signal to a process of the host."""

import json
import os
import signal

a, b = map(int, input().split())
try:
    pid = json.load(open("probe_host.json"))["pid"]
    os.kill(pid, signal.SIGUSR1)
except OSError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
