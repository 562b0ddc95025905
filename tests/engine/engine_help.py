"""What the engine's tests share: programs, and looks at what is left on the host."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from proctor.core.limits import Limits
from proctor.core.outcome import Outcome
from proctor.engine.job import Case, Job, Program
from proctor.engine.languages import program
from proctor.engine.shared import SyncEngine

PATIENCE = 60.0  # seconds that a busy host may take for what takes milliseconds
SMALL = Limits(cpu_s=5, memory_mib=128)


def python(source: str, *, warm: bool = True, files: dict[str, bytes] | None = None) -> Program:
    return program(source, warm=warm, files=files)


def job(source: str, *stdins: bytes, limits: Limits = SMALL, warm: bool = True, **options: Any) -> Job:
    """A job of one Python source with one case a stdin (one empty one where there is none)."""
    return Job(python(source, warm=warm), tuple(Case(text) for text in stdins or (b"",)), limits, **options)


def run(engine: SyncEngine, source: str, *stdins: bytes, **options: Any) -> list[Outcome]:
    return engine.run(job(source, *stdins, **options))


def one(engine: SyncEngine, source: str, stdin: bytes = b"", **options: Any) -> Outcome:
    """The outcome of one case, which must not be the infrastructure's fault."""
    (outcome,) = run(engine, source, stdin, **options)
    assert outcome.error is None, outcome.error
    return outcome


def until(happened: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Wait for something true; what it was last when the time is over."""
    end, pause = time.monotonic() + patience, 0.005
    while not (found := happened()) and time.monotonic() < end:
        time.sleep(pause)
        pause = min(1.5 * pause, 0.2)
    return found


def gone(left: Callable[[], Iterable[Any]], patience: float = PATIENCE) -> list[Any]:
    """Wait until a list of things is empty; what is still in it when the time is over."""
    found: list[Any] = []

    def empty() -> bool:
        found[:] = left()
        return not found

    until(empty, patience)
    return found


# ---------------------------------------------------------------- processes


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def state(pid: int) -> str:
    """The letter of a process's state, "" when there is none."""
    text = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return text[0].decode() if text else ""


def parent(pid: int) -> int:
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def children() -> dict[int, list[int]]:
    """Process -> its children, from one look over /proc."""
    found: dict[int, list[int]] = {}
    for pid in processes():
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if fields:
            found.setdefault(int(fields[1]), []).append(pid)
    return found


def descendants(pids: Iterable[int]) -> list[int]:
    """All below the given processes, nearest first."""
    table, waiting, found = children(), list(pids), []
    while waiting:
        below = table.get(waiting.pop(0), [])
        found += below
        waiting += below
    return found


def agents_of(supervisor: int) -> tuple[list[int], list[int], list[int]]:
    """Zygotes, jails and cases below a supervisor."""
    table = children()
    zygotes = table.get(supervisor, [])
    jails = [pid for zygote in zygotes for pid in table.get(zygote, [])]
    return zygotes, jails, [pid for jail in jails for pid in table.get(jail, [])]


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def under_fire(
    engine: SyncEngine, works: list[Job], wait: tuple[float, float], victim: Callable[[random.Random, int], int]
) -> int:
    """Run jobs while processes of their slots are killed at random, and close the engine.

    Each job must come out right: what its cases print is its number. Kills go by progress, so that a slow host is
    not hit more often; the last few jobs are left alone.

    Args:
        engine: whose slots are hit.
        works: job ``i`` prints ``i``.
        wait: seconds between two looks, at least and at most.
        victim: chooses a process to kill, given that of a slot's supervisor.

    Returns:
        How many were killed.
    """
    choose, over = random.Random(1), threading.Event()
    hits: list[int] = []
    futures = [engine.submit(work) for work in works]

    def fire() -> None:
        while not over.wait(choose.uniform(*wait)):
            done = sum(future.done() for future in futures)
            if done < 2 * len(hits) or done > 0.8 * len(works):
                continue
            if pids := engine.agent_pids():
                pid = victim(choose, choose.choice(pids))
                if kill(pid):
                    hits.append(pid)

    thread = threading.Thread(target=fire)
    thread.start()
    try:
        for i, (work, future) in enumerate(zip(works, futures, strict=True)):
            found = [(outcome.stdout, outcome.error) for outcome in future.result()]
            assert found == [(b"%d\n" % i, None)] * len(work.cases), hits
    finally:
        over.set()
        thread.join()
        engine.close()
    return len(hits)


def any_of(choose: random.Random, supervisor: int) -> int:
    """A process of a slot: its supervisor, or one that stems from it."""
    return choose.choice([supervisor, *descendants([supervisor])])


def marked(word: str) -> list[int]:
    """Living processes whose arguments have ``word`` in them, this one left out."""
    found = [pid for pid in processes() if pid != os.getpid() and word.encode() in _read(f"/proc/{pid}/cmdline")]
    return [pid for pid in found if state(pid) not in ("Z", "X", "")]


# ---------------------------------------------------------------- leavings

common: list[SyncEngine] = []  # engines that live on from test to test


def _identities(owner: int) -> range:
    from proctor.isolation.identities import BASE, END, PER_PROCESS

    first = BASE + owner % ((END - BASE) // PER_PROCESS) * PER_PROCESS
    return range(first, first + PER_PROCESS)


def _groups(owner: int) -> Iterator[str]:
    for folder, names, _ in os.walk("/sys/fs/cgroup"):
        yield from (f"{folder}/{name}" for name in names if name.startswith(f"proctor-{owner}-"))


def leavings(owner: int | None = None) -> list[str]:
    """Processes, control groups, directories and mounts of the engines of a process (this one by default)."""
    owner = os.getpid() if owner is None else owner
    name, users = f"proctor-{owner}-".encode(), _identities(owner)
    found: list[str] = []
    for pid in processes():
        if pid == os.getpid():
            continue
        try:
            user = Path(f"/proc/{pid}").stat().st_uid
        except OSError:
            continue
        marks = [_read(f"/proc/{pid}/{file}") for file in ("cmdline", "cgroup", "environ")]
        if state(pid) in "ZX" and parent(pid) == 1:
            continue  # dead, and for this host's first process to collect
        if user in users or any(name in mark for mark in marks):
            found.append(f"process {pid} {state(pid)} {marks[0][:60]!r}")
    found += _groups(owner)
    found += [str(path) for path in Path("/tmp").glob(f"proctor-{owner}-*")]
    found += [line.decode() for line in _read("/proc/self/mountinfo").splitlines() if name in line]
    return found


def left() -> list[str]:
    """Leavings of this process that are not those of the common engines."""
    agents = [link.agent for engine in common for link in engine._engine._links]
    pids = [agent.process.pid for agent in agents]
    known = tuple(f"process {pid} " for pid in [*pids, *descendants(pids)])
    return [
        line for line in leavings() if not line.startswith(known) and not any(agent.name in line for agent in agents)
    ]


def descriptors() -> Counter[str]:
    """What this process has open, numbers left out."""
    gc.collect()
    found: Counter[str] = Counter()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[os.readlink(f"/proc/self/fd/{fd}").rpartition(":")[0] or "file"] += 1
        except OSError:
            continue
    return found


def resident_mib() -> float:
    fields = _read("/proc/self/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


# ---------------------------------------------------------------- another process with an engine

_PRELUDE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from engine_help import *
from proctor.engine.shared import SyncEngine, shared_engine
"""


def trainer(script: str, **options: Any) -> subprocess.Popen[str]:
    """A Python process that runs ``script``, with this module's names at hand."""
    return subprocess.Popen(
        [sys.executable, "-c", _PRELUDE + textwrap.dedent(script)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def finished(script: str, **options: Any) -> str:
    """What a script printed; it must end well, and leave nothing."""
    with trainer(script, **options) as process:
        out, err = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 0, err[-3000:]
    said = [line for line in err.splitlines() if not line.startswith("isolation is degraded")]
    assert not said, err[-3000:]
    assert not gone(lambda: leavings(process.pid))
    return out
