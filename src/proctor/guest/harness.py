"""Calls and tests inside a case: runs beside the program, believed in nothing.

Results are written one record at a time, so a crash loses only the call that
it came from. A program may forge records; it does not know what is expected.
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
import types
from typing import Any

from . import finish, linux, protocol

ONLY_AST = 0x400  # ast.PyCF_ONLY_AST, without the module


def run(request: bytes, fd: int) -> None:
    """Serve one request and leave the process; status 0 when its end was reached."""
    wanted = protocol.decode_value(request)
    sys.argv[:] = [wanted["file"]]
    linux.lower_depth(depth() + 1 - linux.OUR_DEPTH)  # one frame of ours stands for the calling script's
    try:
        if wanted["kind"] == "calls":
            calls(wanted, fd)
        else:
            tests(wanted, fd)
    finally:
        error = sys.exc_info()[1]
        if error is not None:
            finish.finish(error)
        finish.flush()
        os._exit(0)


def depth() -> int:
    """Frames of ours under a call: with them gone it may recurse as deep as from a script's own line."""
    frame, count = sys._getframe(1), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


def emit(fd: int, value: Any) -> None:
    """Write one record in full."""
    send(fd, protocol.record(value))


def send(fd: int, data: bytes) -> None:
    """Write all of ``data``."""
    while data:
        data = data[os.write(fd, data) :]


def load(path: str, name: str) -> types.ModuleType:
    """The program's file as a module of its own, importable under its name."""
    whole = os.path.join(os.getcwd(), path)
    spec = importlib.util.spec_from_file_location(name, whole)
    assert spec is not None  # it is a .py file
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with open(path, "rb") as file:
        code = compile(file.read(), whole, "exec", dont_inherit=True)
    exec(code, module.__dict__)
    return module


def find(module: types.ModuleType, target: str) -> Any:
    """The callable that ``f``, ``Class.method`` or ``Class`` names; a class on the way is instantiated."""
    value: Any = module
    for name in target.split("."):
        if isinstance(value, type):
            value = value()
        value = getattr(value, name)
    return value


def calls(wanted: dict[str, Any], fd: int) -> None:
    """Load the program, make each call, and send what it gives or raises."""
    try:
        module = load(wanted["file"], wanted["module"])
    except BaseException as exc:  # then it is every call's answer: one process is enough to learn it
        for _ in wanted["calls"]:
            emit(fd, ("raised", type(exc).__name__[:100], f"while loading: {describe(exc)}"))
        finish.show(exc)
        return
    for target, args, kwargs in wanted["calls"]:
        random.seed(0)
        try:
            answer: Any = ("value", find(module, target)(*args, **kwargs))
            data = protocol.record(answer)
        except SystemExit as exc:
            data = protocol.record(("raised", "SystemExit", str(exc.code)[:500]))
        except BaseException as exc:
            data = protocol.record(("raised", type(exc).__name__[:100], describe(exc)))
        send(fd, data)


def describe(exc: BaseException) -> str:
    """A short text of an exception, whatever its ``__str__`` does."""
    try:
        return str(exc)[:500]
    except BaseException:
        return ""


def tests(wanted: dict[str, Any], fd: int) -> None:
    """Run named tests against the program and report each."""
    module = load(wanted["file"], wanted["module"])
    if wanted["appended"]:
        space = module.__dict__
        before = dict(space)
    else:
        test_module = types.ModuleType(wanted["test_module"])
        sys.modules[wanted["test_module"]] = test_module
        space, before = test_module.__dict__, {}
    name = "module"
    called: set[str] = set()
    try:
        tree = compile(wanted["tests"], "<tests>", "exec", ONLY_AST, dont_inherit=True)
        called = called_at_top(tree)
        exec(compile(tree, "<tests>", "exec", dont_inherit=True), space)
        emit(fd, ("test", name, True, ""))
    except BaseException as exc:
        emit(fd, ("test", name, False, f"{type(exc).__name__}: {describe(exc)}"[:500]))
    added = {k: v for k, v in space.items() if k not in before or before[k] is not v}
    for key, value in added.items():
        if key.startswith("test") and key not in called and callable(value) and not isinstance(value, type):
            one(fd, key, value)
    cases(fd, added)
    emit(fd, ("finished", wanted["nonce"]))


def called_at_top(tree: Any) -> set[str]:
    """Functions that the tests' own top level calls: they are not to be run a second time."""
    names = set()
    for statement in tree.body:
        call = getattr(statement, "value", None)
        if type(statement).__name__ == "Expr" and type(call).__name__ == "Call":
            names.add(getattr(getattr(call, "func", None), "id", ""))
    return names


def one(fd: int, name: str, function: Any) -> None:
    """Run a single test; any exception, a skip included, is a failure."""
    try:
        function()
        emit(fd, ("test", name, True, ""))
    except BaseException as exc:
        emit(fd, ("test", name, False, f"{type(exc).__name__}: {describe(exc)}"[:500]))


def cases(fd: int, space: dict[str, Any]) -> None:
    """Run the unittest classes among the tests' names, each method by itself."""
    import unittest

    loader = unittest.TestLoader()
    for key, value in space.items():
        if not (isinstance(value, type) and issubclass(value, unittest.TestCase)) or value is unittest.TestCase:
            continue
        for method in loader.getTestCaseNames(value):
            result = unittest.TestResult()
            try:
                unittest.TestSuite([value(method)]).run(result)
            except BaseException as exc:
                emit(fd, ("test", f"{key}.{method}", False, type(exc).__name__))
                continue
            bad = [*result.errors, *result.failures]
            good = result.testsRun == 1 and not bad and not result.skipped and not result.unexpectedSuccesses
            emit(fd, ("test", f"{key}.{method}", good, bad[0][1][-500:] if bad else ""))
