"""Answers after 32 MiB of noise on the other stream."""

import os

a, b = map(int, input().split())
for _ in range(512):
    os.write(2, b"n" * (64 << 10))
print(a + b)
