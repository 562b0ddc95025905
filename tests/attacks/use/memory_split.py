"""Touches 400 MiB, a little in each of ten processes."""

import os
import signal

signal.alarm(20)
a, b = map(int, input().split())
read, write = os.pipe()
for _ in range(10):
    if os.fork() == 0:
        signal.alarm(20)
        held = bytearray(b"x") * (40 << 20)
        os.write(write, b"x")
        signal.pause()
os.close(write)
got = 0
while got < 10 and os.read(read, 1):
    got += 1
if got < 10:
    raise SystemExit(f"held: {got} of 10")
print(a + b, flush=True)
os.killpg(os.getpgrp(), signal.SIGKILL) if os.getpgrp() == os.getpid() else None
