"""The warm interpreter: imports what solutions import, then forks one jail a job.

It never sees a job. What it holds is what every program starts with, so it is
the same for all: hash seed, address layout, modules, the state of ``random``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import random
import signal
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Iterator
from importlib.machinery import BuiltinImporter, SourceFileLoader
from typing import Any, NoReturn

from . import case, finish, forks, harness, linux, protocol, stream
from .jail import Jail
from .slot import Run, Slot

Script = tuple[types.CodeType, dict[str, Any]]  # a program's code and the names of its ``__main__``

# The names that this version gives a script's module, in its order: main.py is one.
_MAIN_NAMES = tuple(name for name in vars(sys.modules["__main__"]) if name.startswith("__"))

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


def preload(names: list[str], covered: bool) -> None:
    """Import modules and run a small program once, so that no case pays for first use.

    ``covered``: the host's directories of packages cannot be seen from here.
    """
    start_site(covered)
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


@contextlib.contextmanager
def packages(over: list[list[Any]]) -> Iterator[None]:
    """Show directories of an image's packages in their places meanwhile, so that modules of theirs can be imported.

    ``over``: [place, [directory, newest first]]. Taken away again: no overlay is laid over what has a mount in it.
    """
    for place, folders in over:
        if len(folders) == 1:
            linux.mount(folders[0], place, None, linux.MS_BIND)
            continue
        options = f"userxattr,lowerdir={':'.join(folders)}"
        linux.mount("packages", place, "overlay", linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV, options)
    yield
    for place, _ in over:
        linux.umount(place, linux.MNT_DETACH)


def out_of_sight(covers: dict[str, list[list[str]]]) -> list[str]:
    """Packages that were asked for and that this interpreter does not find by itself; the first few."""
    looked = {os.path.realpath(path) for path in sys.path}
    entries = [entry for shown in covers.values() for entry in shown]
    return [name for source, name in entries if os.path.realpath(os.path.dirname(source)) not in looked][:5]


def start_site(covered: bool) -> None:
    """The end of the interpreter's own start, which ``-S`` kept from seeing the host's site directories.

    Where they are still to be seen, what lies in them is not looked at.
    """
    import site

    look = site.addpackage
    if not covered:
        site.addpackage = lambda sitedir, name, known_paths: known_paths
    site.main()
    site.addpackage = look
    linux.set_flag("no_site", 0)


_kept: list[object] = []


def keep(*things: object) -> None:
    """Let these never be freed: in a case's process that would copy every page that they lie on."""
    _kept.extend(things)


def modules_now() -> frozenset[str]:
    """Top-level names that a program's own file would hide in a fresh interpreter."""
    return frozenset(name.partition(".")[0] for name in sys.modules)


def disguise(cwd: str, own_path: str, inside: bool) -> None:
    """Look like ``python3 solution.py`` in every process forked from here on.

    ``inside``: behind namespaces, where nobody needs this process's arguments to find it.
    """
    for name in [name for name in sys.modules if name.partition(".")[0] == "proctor_guest"]:
        del sys.modules[name]
    finish.known = frozenset(sys.modules)
    sys.path[:] = [cwd, *(entry for entry in sys.path[1:] if entry != own_path)]
    sys.path_importer_cache.pop(own_path, None)
    sys.argv[:] = ["solution.py"]
    sys.orig_argv[:] = ["python3", "solution.py"]
    for folder in os.environ.get("PATH", "").split(":"):
        found = f"{folder}/python3"
        if os.path.realpath(found) == os.path.realpath(sys.executable):  # the name that it would have been started by
            sys.executable = sys._base_executable = found  # type: ignore[attr-defined]
            break
    for number in signal.valid_signals():  # a trainer started by nohup leaves SIGHUP ignored, and so on
        if signal.getsignal(number) == signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    linux.lower_depth(linux.OUR_DEPTH)
    if inside:
        linux.hide_arguments(b"python3\0solution.py\0")


def settle() -> None:
    """Put all that exists out of the collector's sight, so that no case copies it to count it."""
    gc.collect()
    gc.freeze()
    gc.disable()


def loop(slot: Slot) -> Run:
    """Fork a jail, wait for its job to end, again; returns only in a case's process."""
    home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC) if slot.namespaces else -1
    slot.features["exact_times"] = not slot.sentry and linux.exact_times()
    between = slot.namespaces and not can_return(home)
    if slot.seccomp is not None:
        linux.seccomp_prepare(slot.seccomp)
    while True:
        if slot.namespaces and not between:
            linux.unshare(linux.NEWPID)
        pid = os.fork()
        if pid == 0 and between:
            linux.unshare(linux.NEWPID)
            if inner := os.fork():
                os._exit(stream.FAILED if os.waitpid(inner, 0)[1] else 0)
        if pid == 0:
            if home >= 0:
                os.close(home)
            try:
                prison = Jail(slot)
                keep(prison)
                return prison.serve()
            except BaseException as exc:
                report(slot.control, exc)
        if slot.namespaces and not between:
            linux.setns(home, linux.NEWPID)
        _, status = os.waitpid(pid, 0)
        if status != 0:
            os._exit(stream.FAILED)


def can_return(home: int) -> bool:
    """This kernel lets a process back into its own PID namespace; where not, one stays behind for each jail."""
    try:
        linux.setns(home, linux.NEWPID)
    except OSError:
        return False
    return True


def report(control: int, exc: BaseException) -> NoReturn:
    """Tell the host what broke here and end."""
    text = "".join(traceback.format_exception(exc))[-1800:]
    try:
        stream.write_all(control, protocol.pack(protocol.FAULT, {"message": text}))
    finally:
        os._exit(stream.FAILED)


def into_case(run: Run, slot: Slot) -> Script:
    """Last steps in a case's process: exec, the harness, or a fresh ``__main__`` that the caller runs."""
    if run.source is None and run.request is None:
        argv = list(run.argv)
        path = None
        if slot.python and argv[0] in ("python3", "python", slot.python):
            argv[0], path = "python3", slot.python
        case.execute(argv, slot.env, path)
    keep(run)
    forks.release()
    threading.main_thread()._native_id = os.getpid()  # type: ignore[attr-defined]  # a fork leaves the parent's
    gc.freeze()  # what was made since: the collector need not look at it, and so not copy its pages
    gc.enable()
    if run.request is not None:
        new_main(None)
        harness.run(run.request, case.RESULT_FD)
    sys.argv[:] = run.argv[1:]
    sys.orig_argv[:] = ["python3", *run.argv[1:]]
    path = os.path.join(run.cwd, run.source or "")
    space = new_main(path)  # only now: what is frozen is never collected, and this shall be at the end
    try:
        file = os.open(path, os.O_RDONLY)  # file objects would copy more pages
        source = stream.read_exact(file, os.fstat(file).st_size)
        os.close(file)
        if not run.piped:
            return compile(source, path, "exec", dont_inherit=True), space
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("default")
            code = compile(source, path, "exec", dont_inherit=True)
        for note in noted:
            warnings.warn_explicit(note.message, note.category, note.filename, note.lineno)
        return code, space
    except BaseException:
        # Read as a file, a broken source has other messages: the interpreter itself shall give them. What is on
        # stderr are warnings that it repeats; a pipe takes nothing back, so there they were held.
        if not run.piped:
            os.ftruncate(2, os.lseek(2, 0, os.SEEK_SET))
        case.execute(["python3", *run.argv[1:]], slot.env, slot.python)
        raise


def new_main(path: str | None) -> dict[str, Any]:
    """The names of a new ``__main__``, as the interpreter sets them for a script, or for none."""
    main = types.ModuleType("__main__")
    space = main.__dict__
    space.clear()
    loader: Any = SourceFileLoader("__main__", path) if path else BuiltinImporter
    space.update({name: None for name in _MAIN_NAMES if path or name not in ("__file__", "__cached__")})
    space.update({"__name__": "__main__", "__loader__": loader, "__builtins__": sys.modules["builtins"]})
    if path:
        space["__file__"] = path
    if "__annotations__" in space:
        space["__annotations__"] = {}
    sys.modules["__main__"] = main
    return space
