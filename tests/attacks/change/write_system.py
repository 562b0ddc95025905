"""Makes a file in a folder of the system."""

import os

a, b = map(int, input().split())
try:
    for folder in ("/usr/lib", "/etc", "/var/tmp", "/", "/opt", "/dev", "/run"):
        try:
            path = os.path.join(folder, "escape_mark_write")
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            os.unlink(path)
            break
        except OSError as error:
            last = error
    else:
        raise last
except OSError as error:
    raise SystemExit(f"held: {error}") from None
print(a + b)
