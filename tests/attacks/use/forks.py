"""Needs a hundred processes at once."""

import os
import signal

a, b = map(int, input().split())
try:
    signal.alarm(20)
    for _ in range(100):
        if os.fork() == 0:
            signal.alarm(20)
            signal.pause()
            os._exit(0)
except OSError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
