"""Answers after 6 s in which it does nothing."""

import time

a, b = map(int, input().split())
time.sleep(6)
print(a + b)
