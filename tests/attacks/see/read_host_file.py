"""Reads a file that everybody on the host may read."""

a, b = map(int, input().split())
try:
    open("/tmp/escape_mark_victim").read()
except OSError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
