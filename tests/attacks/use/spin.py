"""Thinks for 3 s of CPU time, then answers."""

import time

a, b = map(int, input().split())
while time.process_time() < 3:
    pass
print(a + b)
