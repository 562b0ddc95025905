"""The same program and input give the same outcome: in any order, on any slot, after anything, warm or real."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest
from engine_help import job

from proctor.core.limits import Limits
from proctor.core.outcome import Outcome
from proctor.engine.job import Job
from proctor.engine.shared import SyncEngine

LIMITS = Limits(cpu_s=5, memory_mib=128, output_bytes=100_000, stderr_keep=5_000)
_BOX = re.compile(rb"/tmp/proctor-[-0-9a-f]+")
INPUTS = (b"", b"1 2 3\n", b"42\r\nx", b"-5 0 \xff\n", b"a b a\n" * 50)
# Each reads its input, and each would show a way in which an earlier run, a neighbour or the warm start shines through.
PROGRAMS = [
    "import sys; print(sys.stdin.buffer.read())",
    "print(sum(map(int, input().split())))",
    "import sys\nprint(len(sys.argv), sys.argv[0], __name__, __file__, sys.flags.optimize, sys.getrecursionlimit())",
    "import sys\nprint(sorted(set(sys.stdin.buffer.read().split())))",
    "import sys\nprint({w for w in map(str, sys.stdin.buffer.read().split())})",
    "print({hash(str(i)) % 1000 for i in range(50)})",
    "import os; print(sorted(os.environ.items()), os.getcwd(), os.umask(0))",
    "import os; print(sorted(os.listdir('.')), sorted(os.listdir(os.environ.get('TMPDIR', '/tmp'))))",
    "import os; open('f', 'a').write('x'); print(os.path.getsize('f'))",
    "import os; f = os.environ.get('TMPDIR', '/tmp') + '/f'; open(f, 'a').write('x'); print(os.path.getsize(f))",
    "import math, json\nmath.pi = 3\njson.left = 1\nprint(math.pi)",
    "import math, json; print(math.pi, hasattr(json, 'left'))",
    "import builtins\nprint(hasattr(builtins, 'left'))\nbuiltins.left = 1\nbuiltins.len = None",
    "import sys\nprint(sys.getrecursionlimit())\nsys.setrecursionlimit(50_000)",
    "def f(n): return n and 1 + f(n - 1)\ntry: print(f(900))\nexcept RecursionError: print('deep')\nprint(f(10**5))",
    "1 / 0",
    "raise SystemExit(len(input()))",
    "import sys; sys.exit('a message')",
    "import os; os._exit(7)",
    "import os; os.abort()",
    "def f(:",
    "print('x' * 200_000)",
    "import sys; sys.stderr.write('e' * 9_000)",
    "import threading\nt = [threading.Thread(target=print, args=(i,)) for i in range(5)]\nfor x in t: x.start(); x.join()",
    "import os\nfor i in range(3):\n    if os.fork() == 0: os._exit(i)\nprint(sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(3)))",
    "import os, time\nif os.fork() == 0: time.sleep(50)\nprint('left')",
    "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(1, input())'], capture_output=True).returncode)",
    "import decimal; decimal.getcontext().prec += 5; print(decimal.Decimal(1) / 3)",
    "import locale, sys; print(locale.getpreferredencoding(), sys.stdout.encoding, sys.stdin.errors)",
    "import signal; print([n for n in range(1, 65) if n not in (32, 33) and signal.getsignal(n) == signal.SIG_IGN])",
    "import gc, sys; print(gc.isenabled(), gc.get_threshold(), gc.get_debug(), sys.gettrace())",
    "import resource; print([resource.getrlimit(n) for n in range(16) if n != 6])",
    "import warnings; warnings.simplefilter('error'); warnings.warn('x')",
    "import atexit; atexit.register(print, 'bye'); print('hello')",
    "import re, functools\n@functools.lru_cache\ndef f(n): return n\nf(1); print(f.cache_info(), re.findall('a+', input()))",
    "import time; print(time.tzname, time.strftime('%Z'))",
    "import os; print(os.getpriority(os.PRIO_PROCESS, 0), os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid())",
    "import os; print(sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:3])",
    "x = [0] * 10\nprint(x[11])",
    "class A:\n    def __del__(self): print('gone')\na = A()\nprint('end')",
]  # fmt: skip
SEEDED = [
    "import random; print(random.random(), random.sample(range(100), 5))",
    "import random; random.seed(5); print(random.random())",
]


def form(outcome: Outcome) -> tuple[Any, ...]:
    """All of an outcome but its clocks and meters."""
    assert outcome.error is None, outcome.error
    if b"/proctor-" in outcome.stdout + outcome.stderr:  # no mounts here: the slot's own directory shows
        outcome = replace(outcome, **{name: _BOX.sub(b"/box", getattr(outcome, name)) for name in ("stdout", "stderr")})
    names = (
        "exit_code",
        "signal",
        "stdout",
        "stderr",
        "stdout_truncated",
        "stderr_truncated",
        "ended_by",
        "left_processes",
    )
    return tuple(getattr(outcome, name) for name in names)


def outcomes(slots: int, warm: bool, seed: int, sources: list[str]) -> dict[tuple[str, bytes], tuple[Any, ...]]:
    """Outcome by program and input, with jobs and their cases in an order of their own."""
    order = random.Random(seed)
    jobs: list[tuple[str, list[bytes], Job]] = []
    for source in order.sample(sources, len(sources)):
        inputs = order.sample(INPUTS, len(INPUTS))
        jobs.append((source, inputs, job(source, *inputs, limits=LIMITS, warm=warm)))
    engine = SyncEngine(slots=slots)
    futures = [engine.submit(job) for _, _, job in jobs]
    found = {
        (source, text): form(outcome)
        for (source, inputs, _), future in zip(jobs, futures, strict=True)
        for text, outcome in zip(inputs, future.result(), strict=True)
    }
    engine.close()
    return found


@pytest.mark.environments
def test_order_slots_and_start_do_not_show() -> None:
    first = outcomes(1, True, 1, PROGRAMS)
    assert len(first) == len(PROGRAMS) * len(INPUTS) == 200
    for slots, warm, seed in ((2, True, 2), (2, False, 3)):
        again = outcomes(slots, warm, seed, PROGRAMS)
        different = {key: (first[key], again[key]) for key in first if first[key] != again[key]}
        assert not different, (slots, warm, next(iter(different.items())))


def test_chance_is_the_same_each_time_in_a_warm_start() -> None:
    assert outcomes(1, True, 1, SEEDED) == outcomes(2, True, 2, SEEDED)
