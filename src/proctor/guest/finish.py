"""The end of a script: all that an interpreter does then which a program can see, in its order.

What is left out is the rest of its end, which frees the memory of a process
that is about to be gone: 6.5 ms and 1,900 page faults.

Programs may have replaced anything that they can reach by name. So what is
needed here is bound before they run, the built-in names included.
"""

from __future__ import annotations

import _thread
import _weakref
import atexit
import builtins
import gc
import os
import signal
import sys
from typing import Any

from . import linux

__builtins__ = dict(vars(builtins))  # type: ignore[assignment]  # functions look names up in their module's own, when it has one

known: frozenset[str] = frozenset()  # modules that were there before the program: they stay to the end
_HERE = os.path.dirname(os.path.abspath(__file__))
_Module = type(sys)
_exit, _kill, _write, _print = os._exit, os.kill, os.write, builtins.print
_display, _unraisable = sys.__excepthook__, sys.__unraisablehook__


def finish(failure: BaseException | None) -> None:
    """Report an uncaught exception, wait for threads, run atexit, drop the program's objects, leave with its status."""
    flush(report=False)
    status = 0
    interrupted = type(failure) is KeyboardInterrupt
    if failure is not None:
        failure.__traceback__ = without_us(failure.__traceback__)
        status = exit_status(failure) if issubclass(type(failure), SystemExit) else show(failure)
    failure = None
    if getattr(sys, "unraisablehook", None) is _unraisable:
        sys.unraisablehook = unraisable
    threading: Any = sys.modules.get("threading")
    exits = atexit._ncallbacks()
    # Without threads or exit functions nobody sees that the main thread is marked as stopped.
    if threading is not None and (exits or _thread._count() or threading._threading_atexits):
        try:
            threading._shutdown()
        except BaseException as exc:
            write_unraisable(exc, threading, "on threading shutdown")
        exits = atexit._ncallbacks()
    if exits:
        atexit._run_exitfuncs()
    good = flush()
    try:
        tear_down()
    except Exception:
        pass  # a program that has wrecked ``sys`` so far has no end to be shown
    flush(report=False)
    linux.flush_libc()
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _kill(os.getpid(), signal.SIGINT)
    _exit(status & 0xFF if good else 120)


def exit_status(failure: BaseException) -> int:
    """Status for a SystemExit: by its code None 0, a number itself, anything else is printed and 1."""
    try:
        code: Any = failure.code  # type: ignore[attr-defined]
    except BaseException:
        code = failure
    if code is None:
        return 0
    if issubclass(type(code), int):
        return int(code) if -(1 << 63) <= code < 1 << 63 else -1
    try:
        text = str(code)
    except BaseException:
        text = ""
    write_error(text)
    write_error("\n")
    return 1


def show(failure: BaseException) -> int:
    """The traceback on stderr, through the program's own hook; returns the status to leave with."""
    sys.last_type, sys.last_value, sys.last_traceback = type(failure), failure, failure.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = failure
    hook: Any = getattr(sys, "excepthook", None)
    if hook is None and "excepthook" not in vars(sys):
        write_error("sys.excepthook is missing\n")
        hook = _display
    try:
        hook(type(failure), failure, failure.__traceback__)
    except SystemExit as exc:
        return exit_status(exc)
    except BaseException as exc:
        write_error("Error in sys.excepthook:\n")
        exc.__traceback__ = without_us(exc.__traceback__)
        _display(type(exc), exc, exc.__traceback__)
        write_error("\nOriginal exception was:\n")
        _display(type(failure), failure, failure.__traceback__)
    return 1


def write_error(text: str) -> None:
    """To the program's stderr, or to the descriptor where it has none."""
    stream: Any = getattr(sys, "stderr", None)
    try:
        if stream is None:
            _write(2, text.encode("utf-8", "backslashreplace"))
        else:
            stream.write(text)
    except BaseException:
        pass  # nowhere left to say it


def without_us(trace: Any) -> Any:
    """A traceback from the first frame on that is not ours."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    return trace


def flush(*, report: bool = True) -> bool:
    """Flush the standard streams; False when one could not be. Of stdout that is reported."""
    good = True
    for name in ("stdout", "stderr") if report else ("stderr", "stdout"):
        stream: Any = getattr(sys, name, None)
        try:
            if stream is not None and not (report and getattr(stream, "closed", False)):
                stream.flush()
        except BaseException as exc:
            good = False
            if report and name == "stdout":
                write_unraisable(exc, stream, "on flushing sys.stdout")
    return good


def write_unraisable(exc: BaseException, source: object, when: str) -> None:
    """Report an exception that nobody can catch: it names its source, since Python 3.13 its occasion."""
    about = (f"Exception ignored {when}", None) if sys.version_info >= (3, 13) else (None, source)
    hook: Any = getattr(sys, "unraisablehook", _unraisable)
    try:
        hook(_ARGUMENTS((type(exc), exc, without_us(exc.__traceback__), *about)))
    except BaseException:
        pass  # its report failed too


def unraisable(args: Any) -> None:
    """The interpreter's own hook, without the frames that are ours and that it would not have."""
    _unraisable(_ARGUMENTS((args.exc_type, args.exc_value, without_us(args.exc_traceback), args.err_msg, args.object)))


def _arguments() -> Any:
    """The type of that hook's argument: it has no name, so one is made and looked at."""

    class Failing:
        def __del__(self) -> None:
            raise ValueError

    seen: list[Any] = []
    sys.unraisablehook = lambda args: seen.append(type(args))
    Failing()
    sys.unraisablehook = _unraisable
    return seen[0]


_ARGUMENTS = _arguments()


def tear_down() -> None:
    """Let the program's modules go, so that destructors, generators' ``finally`` and buffered files show what they do.

    Modules that were there before stay, and with them what a program hung on one.
    """
    if gc.isenabled():
        gc.collect()
    if hasattr(sys, "last_value"):
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            setattr(sys, name, None)
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, name, getattr(sys, f"__{name}__", None))
    builtins.print = _print
    sys.meta_path = None  # type: ignore[assignment]  # nothing more can be imported
    for name in ("io", "traceback"):  # nor can source lines be shown
        sys.modules[name] = None  # type: ignore[assignment]
    own = ["__main__"]
    for name in reversed(sys.modules):  # to look at all of them would copy the pages that they lie on
        if name in known:
            break
        own.insert(1, name)
    alive = []
    for name in own:
        module: Any = sys.modules.pop(name, None)
        if isinstance(module, _Module):
            marker = _Marker()
            marker.names = vars(module)
            marker.names["__marker__"] = marker
            alive.append(_weakref.ref(marker))
            del marker
    del module
    gc.collect()
    for reference in reversed(alive):
        if (left := reference()) is not None:  # something else holds one of the module's functions
            clear(left.names)


class _Marker:
    """Put among a module's names, it tells whether those are still there; a dict itself cannot be watched."""

    names: dict[str, Any]


def clear(names: dict[str, Any]) -> None:
    """Set a module's names to None: those with one leading underscore first."""
    for name in list(names):
        if type(name) is str and name[:1] == "_" and name[1:2] != "_":
            names[name] = None
    for name in list(names):
        if name != "__builtins__":
            names[name] = None
