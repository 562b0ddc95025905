"""Calls and tests inside a case: runs beside the program, believed in nothing.

Results are written one record at a time, so a crash loses only the call that
it came from. A program may forge records; it does not know what is expected.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import random
import sys
import types
from functools import partial
from typing import Any

from . import (
    copies,
    counting,
    finish,
    lineage,
    linux,
    looking,
    names,
    protocol,
    raising,
    reading,
    rewriting,
    runner,
    sealing,
    serving,
    soundness,
    standins,
    testkit,
)
from .link import Link


def run(request: bytes, fd: int) -> None:
    """Serve one request and leave the process; status 0 when its end was reached."""
    wanted = protocol.decode_value(request)
    sys.argv[:] = [wanted["file"]]
    linux.lower_depth(depth() + 1 - linux.OUR_DEPTH)  # one frame of ours stands for the calling script's
    try:
        kind = wanted["kind"]
        if kind == "calls":
            calls(wanted, fd)
        elif kind == "tests":
            tests(wanted, fd)
        elif kind == "serve":
            serve(wanted)
        else:
            sealed(wanted, fd)
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
    """Run named tests in the program's own process, and report each."""
    # The first record is ours: no code of the program has run yet.
    lacks = reading.lacks(wanted["tests"], (wanted["module"], wanted["test_module"]), testkit.KNOWN)
    lacks = lacks or testkit.unknown_uses(wanted["tests"])
    emit(fd, ("lacks" if lacks else "starts", lacks))
    module = load(wanted["file"], wanted["module"])
    if wanted["appended"]:
        space = module.__dict__
    else:
        space = new_module(wanted["test_module"])
    testkit.install_lazily()
    before = dict(space)

    def report(name: str, passed: bool | None, message: str) -> None:
        emit(fd, ("test", name, passed, message[:500]))

    runner.run(wanted["tests"], space, before, runner.Report(report))
    emit(fd, ("finished", wanted["nonce"]))


def new_module(name: str) -> dict[str, Any]:
    """The names of a new module that can be imported, and says where its file would be."""
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = file_of(name)
    return module.__dict__


def file_of(module: str) -> str:
    return os.path.join(os.getcwd(), f"{module.replace('.', '/')}.py")


def serve(wanted: dict[str, Any]) -> None:
    """Be the program of sealed tests."""
    pipe = sealing.Pipe(*talk())
    serving.serve(pipe, lambda: load(wanted["file"], wanted["module"]))


# What tests say that hold something not exactly.
_NEAR = ("AlmostEqual", "approx", "isclose", "abs(", "delta", "assertLess", "assertGreater", "round(")


def sealed(wanted: dict[str, Any], fd: int) -> None:
    """Be the tests: run them against stand-ins for the program, and report each.

    The preamble is the problem's, so what it defines is the tests' own here.
    """

    failed: list[str] = []
    written = reading.names_written(wanted["tests"])

    def told(name: str, passed: bool | None, message: str) -> None:
        doubt, link.doubt = link.doubt, ""
        if not doubt:
            doubt = link.not_text("" if passed else message)
        unsent, link.unsent = link.unsent, ""
        if unsent and passed:  # a test that catches everything
            passed, message = False, unsent
        if doubt:  # whatever the test made of it
            emit(fd, ("open", name, doubt[:500]))
            return
        if passed is False:
            failed.append(name)
        base = name.partition("[")[0].rpartition(".")[2]
        if base.startswith("test") and base not in written:
            link.mark(
                f"{base[:50]!r} is a test that their source does not name: how many there are may be the program's word"
            )
        emit(fd, ("test", name, passed, message[:500]))

    def stopped(word: str, reason: str) -> None:
        if word == "undecided" and report.has_begun:
            link.leave_open(reason)  # of this test; the others are run
            return
        emit(fd, (word, reason[:500]))
        if word != "refused":
            emit(fd, ("finished", wanted["nonce"]))
        finish.flush()
        os._exit(0)

    entry = frozenset(wanted["entry"])
    said, prompted = reading.classes_in(wanted["tests"]), frozenset(wanted["classes"])
    named = said.built | {name for name in reading.called(wanted["tests"]) if soundness.is_class_name(name)}
    expected = {name for name in said.shown if soundness.is_class_name(name)} | (named - entry) | prompted
    known = soundness.Names(
        said.shown | prompted,
        entry,
        frozenset(expected),
        said.derived,
        reading.members(wanted["tests"]),
        any(word in wanted["tests"] for word in _NEAR),
        "StopIteration" in wanted["tests"],
    )
    link = Link(sealing.Pipe(*talk()), known)
    link.tests = wanted["tests"]
    try:
        error, _ = link.receive()
    except BaseException:  # the program's own end tells
        return
    if error is not None:
        return
    lacks = list(filter(None, [testkit.unknown_uses(wanted["tests"])]))
    testkit.install_lazily()
    space = new_module(wanted["test_module"])
    own_names = reading.bound_names(wanted["tests"])
    used = [name for name in reading.free_names(wanted["tests"]) if name not in own_names]
    uses = names.Uses(entry, reading.attributes(wanted["tests"]), reading.called(wanted["tests"]))
    if counting.rows_by_program(wanted["tests"], wanted["module"], wanted["appended"]):
        link.mark(
            "how many rows of tests there are, or whether one runs, or counts where it fails, is for the program to say"
        )
    module = names.stand_in_module(link, wanted["module"], space, used, uses)
    names.install(module)
    own = (wanted["module"], wanted["test_module"])
    report = runner.Report(told, lacks.append, own, is_programs, rewriting.rewrite)
    report.leave_open, report.is_open = link.leave_open, lambda: bool(link.doubt)
    standins.on_stop.append(stopped)
    if wanted["appended"]:
        space |= {"__name__": wanted["module"], "__file__": file_of(wanted["module"])}
        try:
            exec(compile(wanted["preamble"], "<preamble>", "exec", dont_inherit=True), space)
        except Exception as exc:
            lacks.append(f"what the problem puts before a program fails: {runner.described(exc)}")
        data = names.fill(space, link, module, [name for name in used if name not in space], uses)
        report.rewrite = partial(rewriting.rewrite, shared=data)
        space[rewriting.NOW] = partial(link.ask, "get", module)
    space |= {rewriting.NAME: link.same, rewriting.NOT: link.other, rewriting.SAID: rewriting.said}
    space |= {rewriting.CHAIN: rewriting.chain(link.same, link.other)}
    space |= {lineage.ISINSTANCE: lineage.is_instance, lineage.ISSUBCLASS: lineage.is_subclass}
    looking.prepare(wanted["tests"], space)
    copies.on_files.append(link.ask_of_file)
    if "operator" in wanted["tests"]:
        rewriting.operators_too(link.same, link.other)
    if "unittest" in wanted["tests"]:
        rewriting.unittest_too(link.same, link.other)
    runner.run(wanted["tests"], space, dict(space), report)
    if not (link.asked or failed or link.doubt):
        lacks.append("the tests ask nothing of the program: what they name is theirs or a library's")
    for word, text in (("lacks", "".join(lacks[:1])), ("broken", link.broken), ("claim", link.claim)):
        if text:
            emit(fd, (word, text[:500]))
    emit(fd, ("finished", wanted["nonce"]))


def is_programs(value: Any) -> bool:
    """It is the program's, or a class of its exceptions: no test is."""
    return standins.is_standin(value) or isinstance(value, raising.ErrorType)


def talk() -> tuple[int, int]:
    """The two descriptors to the other side; stdin and they are out of a program's way from now on."""
    source, sink = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 64), fcntl.fcntl(5, fcntl.F_DUPFD_CLOEXEC, 64)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.close(5)
    return source, sink
