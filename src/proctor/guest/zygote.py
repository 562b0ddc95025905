"""The warm interpreter: imports what solutions import, then forks one jail a job.

It never sees a job. What it holds is what every program starts with, so it is
the same for all: hash seed, address layout, modules, the state of ``random``.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import signal
import sys
import traceback
import types
from importlib.machinery import SourceFileLoader
from typing import Any

from . import case, harness, jail, linux, protocol
from .jail import Jail, Run, Slot

# Each adds to the heap that every case copies (fork: 0.9 ms here, 6.4 with 50 MB
# more), so only what the measured solutions really import.
PRELOAD = (
    "abc array bisect cmath collections contextlib copy dataclasses datetime decimal enum fractions functools heapq "
    "io itertools json math numbers operator os queue random re statistics string struct sys textwrap threading time "
    "types typing unittest"
).split()

_WARM_UP = """
import collections, heapq, re, sys
d = collections.defaultdict(int)
for word in "a b a".split():
    d[word] += 1
h = []
heapq.heappush(h, (1, "x"))
print(sorted(d.items()), re.sub("a", "b", "aa"), f"{1.5:.2f}", sum(int(x) for x in "1 2".split()))
"""


def preload(names: list[str]) -> None:
    """Import modules and run a small program once, so that no case pays for first use."""
    for name in [*PRELOAD, *names]:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # a module that this image lacks is the program's own import error later
    keep = sys.stdout
    with open(os.devnull, "w") as sys.stdout:
        exec(compile(_WARM_UP, "<warm-up>", "exec"), {"__name__": "warm_up"})
    sys.stdout = keep
    random.seed(0)


def modules_now() -> frozenset[str]:
    """Top-level names that a program's own file would hide in a fresh interpreter."""
    return frozenset(name.partition(".")[0] for name in sys.modules)


def disguise(cwd: str, own_path: str, hidden: list[str]) -> None:
    """Look like ``python3 solution.py`` in every process forked from here on.

    ``hidden`` are the site directories that programs do not see: what the
    interpreter's start has loaded from there goes as well.
    """
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name.partition(".")[0] == "proctor_guest" or any(file.startswith(place + "/") for place in hidden):
            del sys.modules[name]
            top = name.partition(".")[0]
            sys.meta_path[:] = [f for f in sys.meta_path if (f if isinstance(f, type) else type(f)).__module__ != top]
    sys.path[:] = [cwd] + [entry for entry in sys.path[1:] if entry != own_path]
    sys.path_importer_cache.pop(own_path, None)
    sys.argv[:] = ["solution.py"]
    sys.orig_argv[:] = [sys.executable, "solution.py"]
    # main.py's own frame lies under the program's: let it not count.
    limit = sys.getrecursionlimit()
    set_limit, get_limit = sys.setrecursionlimit, sys.getrecursionlimit
    set_limit(limit + 1)

    def setrecursionlimit(limit: int, /) -> None:
        """Set the maximum depth of the Python interpreter stack to n."""
        set_limit(limit + 1 if isinstance(limit, int) and 0 < limit < 0x7FFFFFFF else limit)

    def getrecursionlimit() -> int:
        """Return the current value of the recursion limit."""
        return get_limit() - 1

    sys.setrecursionlimit, sys.getrecursionlimit = setrecursionlimit, getrecursionlimit


def settle() -> None:
    """Put all that exists out of the collector's sight, so that no case copies it to count it."""
    gc.collect()
    gc.freeze()
    gc.disable()


def loop(slot: Slot) -> Run:
    """Fork a jail, wait for its job to end, again; returns only in a case's process."""
    home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC) if slot.namespaces else -1
    while True:
        if slot.namespaces:
            linux.unshare(linux.NEWPID)
        pid = os.fork()
        if pid == 0:
            if home >= 0:
                os.close(home)
            try:
                return Jail(slot).serve()
            except BaseException as exc:
                report(slot.control, exc)
        if slot.namespaces:
            linux.setns(home, linux.NEWPID)
        _, status = os.waitpid(pid, 0)
        if status != 0:
            os._exit(jail.FAILED)


def report(control: int, exc: BaseException) -> None:
    """Tell the host what broke here and end."""
    text = "".join(traceback.format_exception(exc))[-1800:]
    try:
        jail.write_all(control, protocol.pack(protocol.FAULT, {"message": text}))
    finally:
        os._exit(jail.FAILED)


def into_case(run: Run, slot: Slot) -> types.ModuleType:
    """Last steps in a case's process: a fresh ``__main__``, or exec; the caller runs it."""
    if run.source is None and run.request is None:
        argv = list(run.argv)
        path = None
        if argv[0] in ("python3", "python", sys.executable):
            argv[0], path = "python3", slot.python
        case.execute(argv, slot.env, path)
    for number in (signal.SIGINT,):
        signal.signal(number, signal.default_int_handler)
    random.seed(0)  # the module reseeds itself in every fork
    gc.enable()
    if run.request is not None:
        harness.run(run.request, case.RESULT_FD)
    sys.argv[:] = run.argv[1:]
    sys.orig_argv[:] = ["python3", *run.argv[1:]]
    return new_main(f"{run.cwd}/{run.source}")


def new_main(path: str) -> types.ModuleType:
    """A ``__main__`` like the interpreter's own for a script."""
    main = types.ModuleType("__main__")
    values: dict[str, Any] = {"__file__": path, "__cached__": None, "__annotations__": {}}
    main.__dict__.update(values)
    main.__loader__ = SourceFileLoader("__main__", path)
    main.__builtins__ = sys.modules["builtins"]  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    return main
