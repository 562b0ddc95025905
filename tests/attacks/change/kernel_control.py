"""Opens the kernel's control files for writing, and writes nothing."""

import os

a, b = map(int, input().split())
try:
    for path in (
        "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger",
        "/proc/sys/vm/drop_caches",
        "/sys/power/state",
    ):
        try:
            os.close(os.open(path, os.O_WRONLY))
            break
        except OSError as error:
            last = error
    else:
        raise last
except OSError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
