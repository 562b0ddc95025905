"""Named tests: run each, report each; the same for sealed tests and for those in the program's own process."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

ONLY_AST = 0x400  # ast.PyCF_ONLY_AST, without the module

# Bound before a program runs.
_compile, _exec = compile, exec


class Fault(Exception):
    """The test file asks for what is not here; no program is to blame."""


class Report:
    """Takes the tests' results.

    Args:
        tell: called with a test's name, whether it passed, and what it said.
        fault: called with what the test file itself lacks here; None: nobody can tell that from the program's doing.
        own: names of the program's modules.
        foreign: tells what is the program's and therefore no test.
    """

    def __init__(
        self,
        tell: Callable[[str, bool, str], Any],
        fault: Callable[[str], Any] | None = None,
        own: tuple[str, ...] = (),
        foreign: Callable[[Any], bool] = lambda value: False,
    ) -> None:
        self.tell, self.fault, self.own, self.foreign = tell, fault, own, foreign

    def __call__(self, name: str, passed: bool, message: str = "") -> None:
        self.tell(name, passed, message)

    def failed(self, name: str, exc: BaseException) -> None:
        """A test that raised.

        An import that failed names the module only where this process tried it: what a program raised comes
        without.
        """
        if self.fault is not None and isinstance(exc, Fault):
            self.fault(str(exc))
        elif self.fault is not None and isinstance(exc, ImportError):
            missing = exc.name.partition(".")[0] if type(exc.name) is str else ""
            if missing and missing not in self.own:
                self.fault(f"the tests import {missing}, which is not in the image")
        self(name, False, described(exc))


def run(source: str, space: dict[str, Any], before: dict[str, Any], report: Report) -> None:
    """Run test source in a namespace, then the test functions and TestCases that it added to it."""
    called: set[str] = set()
    try:
        tree = _compile(source, "<tests>", "exec", ONLY_AST, dont_inherit=True)
        called = called_at_top(tree)
        _exec(_compile(tree, "<tests>", "exec", dont_inherit=True), space)
        report("module", True, "")
    except BaseException as exc:
        report.failed("module", exc)
    added = {k: v for k, v in space.items() if (k not in before or before[k] is not v) and not report.foreign(v)}
    for key, value in added.items():
        if isinstance(value, type):
            if key.startswith("Test") and not _is_test_case(value):
                methods(key, value, report)
        elif key.startswith("test") and key not in called and callable(value) and not getattr(value, "__fixture__", 0):
            if skips(value):
                continue
            try:
                calls = list(variants(key, value, added))
            except Exception as exc:  # rows that do not fit, say
                report.failed(key, exc)
                continue
            for name, call in calls:
                one(name, call, _if_passed(report) if marked(value, "xfail") else report)
    cases(added, report)


def called_at_top(tree: Any) -> set[str]:
    """Functions that the tests' own top level calls: they are not to be run a second time."""
    names = set()
    for statement in tree.body:
        call = getattr(statement, "value", None)
        if type(statement).__name__ == "Expr" and type(call).__name__ == "Call":
            names.add(getattr(getattr(call, "func", None), "id", ""))
    return names


def described(exc: BaseException) -> str:
    """Class and text of an exception, whatever its ``__str__`` does."""
    try:
        return f"{type(exc).__name__}: {exc}"[:500]
    except BaseException:
        return type(exc).__name__[:100]


def one(name: str, call: Callable[[], Any], report: Report) -> None:
    """Run a single test; any exception, a skip included, is a failure."""
    try:
        call()
        report(name, True, "")
    except BaseException as exc:
        report.failed(name, exc)


def _if_passed(report: Report) -> Report:
    """For what is expected to fail."""
    return Report(lambda name, passed, message: report(name, passed, message) if passed else None)


def marked(value: Any, name: str) -> list[Any]:
    """Marks of that name on a test."""
    return [mark for mark in getattr(value, "pytestmark", ()) if getattr(mark, "name", "") == name]


def skips(value: Any) -> bool:
    """The test file itself skips this test."""
    return bool(marked(value, "skip")) or any(mark.args and mark.args[0] for mark in marked(value, "skipif"))


def variants(name: str, function: Any, space: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A test function once, or once for each row of its ``pytest.mark.parametrize``, its fixtures made for each."""
    rows: list[tuple[str, dict[str, Any]]] = [("", {})]
    for mark in reversed(getattr(function, "pytestmark", ())):
        if getattr(mark, "name", "") == "parametrize":
            rows = [
                (f"{before}-{at}" if before else str(at), {**given, **added})
                for before, given in rows
                for at, added in enumerate(_rows(*mark.args[:2]))
            ]
    for label, given in rows:
        yield (f"{name}[{label}]" if label else name), _Bound(function, given, space)


def _rows(names: Any, values: Any) -> list[dict[str, Any]]:
    wanted = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)
    rows = []
    for value in values:
        value = getattr(value, "values", value) if type(value).__name__ == "ParameterSet" else value
        rows.append(
            dict(zip(wanted, value if len(wanted) > 1 or isinstance(names, list | tuple) else (value,), strict=True))
        )
    return rows


class _Bound:
    """A test with its arguments: given ones, then fixtures by name."""

    def __init__(self, function: Any, given: dict[str, Any], space: dict[str, Any]) -> None:
        self.function, self.given, self.space = function, given, space

    def __call__(self) -> None:
        ends: list[Iterator[Any]] = []
        try:
            self.function(**self.arguments(self.function, self.given, ends))
        finally:
            for end in reversed(ends):
                next(end, None)

    def arguments(self, function: Any, given: dict[str, Any], ends: list[Iterator[Any]]) -> dict[str, Any]:
        code = getattr(function, "__code__", None)
        wanted = code.co_varnames[: code.co_argcount] if code is not None else ()
        defaults = len(getattr(function, "__defaults__", None) or ())
        found = dict(given)
        for name in wanted[: len(wanted) - defaults]:
            if name in found or name == "self":
                continue
            if name == "tmp_path":
                found[name] = new_folder()
                continue
            fixture = self.space.get(name)
            if not getattr(fixture, "__fixture__", False):
                raise Fault(f"the tests ask for the fixture {name!r}, which is not known here")
            value = fixture(**self.arguments(fixture, {}, ends))  # type: ignore[misc]
            if isinstance(value, types.GeneratorType):
                ends.append(value)
                value = next(value)
            found[name] = value
        return found


def new_folder() -> Any:
    """What ``tmp_path`` is."""
    import pathlib
    import tempfile

    return pathlib.Path(tempfile.mkdtemp())


def methods(name: str, kind: Any, report: Report) -> None:
    """The test methods of a plain class, each on an instance of its own, as pytest runs them."""
    for key in dir(kind):
        if key.startswith("test") and callable(getattr(kind, key)) and not skips(getattr(kind, key)):

            def call(key: str = key) -> None:
                instance = kind()
                if hasattr(instance, "setup_method"):
                    instance.setup_method()
                getattr(instance, key)()

            one(f"{name}.{key}", call, report)


def _is_test_case(value: type) -> bool:
    return any(base.__name__ == "TestCase" for base in value.__mro__)


def cases(space: dict[str, Any], report: Report) -> None:
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
                report(f"{key}.{method}", False, type(exc).__name__)
                continue
            bad = [*result.errors, *result.failures]
            good = result.testsRun == 1 and not bad and not result.skipped and not result.unexpectedSuccesses
            report(f"{key}.{method}", good, bad[0][1].strip().rpartition("\n")[2][-500:] if bad else "")
