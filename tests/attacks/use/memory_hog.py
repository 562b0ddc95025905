"""Touches 400 MiB."""

a, b = map(int, input().split())
try:
    held = [bytearray(b"x") * (16 << 20) for _ in range(25)]
except MemoryError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
