"""Needs a hundred threads at once."""

import threading

a, b = map(int, input().split())
try:
    threading.stack_size(64 << 10)
    gate = threading.Event()
    threads = [threading.Thread(target=gate.wait, args=(20,), daemon=True) for _ in range(100)]
    try:
        for thread in threads:
            thread.start()
    finally:
        gate.set()
except RuntimeError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
