"""Limits hold, on first and second use, and what stays within them is left alone."""

from __future__ import annotations

from typing import Any

from proctor.core.limits import MIB
from proctor.core.outcome import EndedBy, Outcome
from proctor.doctor.conformance.check import LIMITS, Check, Judge, Runs, between, both, each, ends, of_probe, shows
from proctor.doctor.probe import LIMITS as PROBED
from proctor.engine.job import Case

GROUP = "limits"
SHORT = PROBED.with_(cpu_s=0.1, wall_s=8.0)  # their programs go on for ever


def _check(key: str, title: str, program: str, judge: Judge, **more: Any) -> Check:
    return Check(key=key, group=GROUP, title=title, program=program, judge=judge, **more)


_COUNTED = """
count = 1
try:
    for _ in range(200):
        {start}
        count += 1
except (OSError, RuntimeError):
    pass
print(count, flush=True)
"""


def _peak_mib(outcome: Outcome) -> float | None:
    return (outcome.peak_memory_bytes or 0) / MIB or None


LIMITED: tuple[Check, ...] = (
    of_probe("cpu", GROUP, SHORT),
    of_probe("cpu_tree", GROUP, SHORT),
    _check(
        "cpu_of_the_dead",
        "CPU time of children that have ended counts",
        """
        import os, time
        while True:
            if os.fork() == 0:
                end = time.process_time() + 0.05
                while time.process_time() < end: pass
                os._exit(0)
            os.wait()
        """,
        ends(EndedBy.CPU),
        limits=LIMITS.with_(cpu_s=0.1),
        runs=Runs.FREE,
    ),
    _check(
        "cpu_within",
        "CPU time is that of the case alone: one that stays within its limit is never ended, whatever ran before",
        "import time\nwhile time.process_time() < 0.3: pass\nprint(1)\n",
        both(shows("1\n"), between("CPU seconds", lambda o: o.cpu_s, 0.1, 1.0)),
        cases=(Case(), Case()),
        limits=LIMITS.with_(cpu_s=0.5),
        runs=Runs.FREE,
    ),
    of_probe("wall", GROUP, PROBED.with_(wall_s=0.5)),
    _check(
        "wall_stopped",
        "a program that stops itself is ended by its wall limit, with what it had written",
        "import os, signal\nprint('before', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)\nprint('after')\n",
        both(ends(EndedBy.WALL, None), each(lambda o: b"after" not in o.stdout, True)),
        limits=LIMITS.with_(wall_s=0.5),
        runs=Runs.FREE,
    ),
    of_probe("memory", GROUP),
    of_probe("memory_tree", GROUP),
    _check(
        "memory_within",
        "memory and files that stay within the limit together are never refused",
        """
        import time
        held = bytearray(b"x") * (40 << 20)
        open("file", "wb").write(b"x" * (6 << 20))
        time.sleep(0.1)
        print(len(held))
        """,
        both(shows(f"{40 * MIB}\n"), between("peak memory in MiB", _peak_mib, 30, 128)),
        cases=(Case(), Case(), Case()),
    ),
    of_probe("processes_limit", GROUP),
    _check(
        "processes_exact",
        "as many processes as the limit says, the next is refused; those that a case leaves do not count in the next",
        "import os, signal\n" + _COUNTED.format(start="if os.fork() == 0: signal.pause()"),
        both(shows("12\n"), each(lambda o: o.left_processes, 11)),
        cases=(Case(), Case(), Case()),
        limits=LIMITS.with_(processes=12),
    ),
    _check(
        "threads_exact",
        "threads count like processes",
        "import os, threading, time\n"
        + _COUNTED.format(start="threading.Thread(target=time.sleep, args=(60,), daemon=True).start()")
        + "os._exit(0)\n",
        shows("12\n"),
        cases=(Case(), Case()),
        limits=LIMITS.with_(processes=12),
    ),
    of_probe("open_files", GROUP),
    of_probe("output", GROUP),
    _check(
        "output_exact",
        "output up to the limit comes back whole; of more, exactly the first bytes, flagged, and the program is ended",
        "import os, sys\nos.write(1, b'0123456789' * int(sys.stdin.readline()))\n",
        lambda outcomes: (
            shows(b"0123456789" * 10_000)(outcomes[:1])
            or ends(EndedBy.OUTPUT, b"0123456789" * 10_000)(outcomes[1:])
            or each(lambda o: o.stdout_truncated, False, True)(outcomes)
        ),
        cases=(Case(b"10000\n"), Case(b"10001\n")),
        limits=LIMITS.with_(output_bytes=100_000),
        runs=Runs.FREE,
    ),
    _check(
        "output_kept",
        "what is written beyond the kept part is cut and flagged, and ends nobody",
        "import os\nos.write(1, b'0123456789' * 500)\nos.write(2, b'abcdefghij' * 500)\n",
        both(
            each(lambda o: (o.ok, o.stdout, o.stderr), (True, b"0123456789" * 10, b"abcdefghij" * 20)),
            each(lambda o: (o.stdout_truncated, o.stderr_truncated), (True, True)),
        ),
        limits=LIMITS.with_(stdout_keep=100, stderr_keep=200),
    ),
    of_probe("workspace", GROUP),
    of_probe("inodes", GROUP),
    of_probe("sparse_files", GROUP),
    _check(
        "files_within",
        "bytes and files that stay within the limits are never refused, also when the case before used them up",
        """
        import os
        for number in range(100):
            with open(f"{number}", "wb") as file:
                file.write(b"x" * 60_000)
        print(sum(os.stat(name).st_size for name in os.listdir(".") if name.isdigit()))
        """,
        shows("6000000\n"),
        cases=(Case(), Case(), Case()),
    ),
)
