"""Needs 48 MiB of files, half of them in /tmp."""

import os

a, b = map(int, input().split())
try:
    for number in range(48):
        folder = (os.getcwd(), "/tmp")[number % 2]
        with open(f"{folder}/escape_mark_{number}", "wb") as file:
            file.write(b"x" * (1 << 20))
except OSError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
