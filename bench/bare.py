"""What a warm case is held against: fork, exit and wait of an equally warm interpreter, without any protection.

The hooks that ``random`` and ``threading`` have for forks run, as in any plain fork.

Run as a script by the interpreter of the image, with ``-S`` and the folder of
the guest's modules. A line ``N`` on standard input asks for N forks; the
answer is a JSON list of pairs: seconds, and CPU seconds of the child.
"""

import json
import os
import sys
import time
import types

package = types.ModuleType("proctor_guest")
package.__path__ = [sys.argv[1]]
sys.modules["proctor_guest"] = package

from proctor_guest import zygote  # noqa: E402


def main() -> None:
    """Warm up like a zygote, then fork on request."""
    zygote.preload([], True)
    zygote.settle()
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            usage = os.wait4(pid, 0)[2]
            seconds.append((time.perf_counter() - start, usage.ru_utime + usage.ru_stime))
        print(json.dumps(seconds), flush=True)


main()
