"""Looks for a secret in the environments of its parent and of process 1."""

import os

a, b = map(int, input().split())
try:
    texts = []
    for pid in {1, os.getppid()}:
        try:
            texts.append(open(f"/proc/{pid}/environ", "rb").read())
        except OSError as error:
            texts.append(str(error).encode())
    if not any(b"CANARY" in text for text in texts):
        raise OSError("no secret there")
except OSError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
