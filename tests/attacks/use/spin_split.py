"""Lets six processes think for half a second each, one after the other."""

import os
import time

a, b = map(int, input().split())
for _ in range(6):
    if os.fork() == 0:
        while time.process_time() < 0.5:
            pass
        os._exit(0)
    os.wait()
print(a + b)
