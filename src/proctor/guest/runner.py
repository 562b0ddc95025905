"""Named tests: run each, report each; the same for sealed tests and for those in the program's own process."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from . import rewriting
from .fixtures import Fixtures, Test, call_if_there, finished, fixture_of, rows_of
from .library import library_name
from .marking import Fault, collect, is_expected_to_fail, is_skip, marks, skips
from .protocol import LEFT
from .raising import TESTS_FILE, is_good_end
from .reading import ONLY_AST, is_script
from .scopes import Scope
from .sealing import Refused

_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    functools.partial,
)  # that may be tests; a class's alias can be called too

# Bound before a program runs.
_compile, _exec = compile, exec


class Report:
    """Takes the tests' results.

    Args:
        tell: called with a test's name, whether it passed (None: a decorator of it skips), and what it said.
        fault: called with what the test file itself lacks here; None: nobody can tell that from the program's doing.
        own: names of the program's modules.
        foreign: tells what is the program's and therefore no test.
        rewrite: changes the tests' tree before it is compiled.
    """

    def __init__(
        self,
        tell: Callable[[str, bool | None, str], Any],
        fault: Callable[[str], Any] | None = None,
        own: tuple[str, ...] = (),
        foreign: Callable[[Any], bool] = lambda value: False,
        rewrite: Callable[[Any], Any] = lambda tree: None,
    ) -> None:
        self.tell, self.fault, self.foreign, self.rewrite = tell, fault, foreign, rewrite
        self.has_begun = False  # with the tests by name; before that, whatever is left open leaves all open
        self.leave_open: Callable[[str], Any] = lambda reason: None
        self.is_open: Callable[[], bool] = lambda: False  # the test that runs
        self.own = {name.partition(".")[0] for name in own}

    def __call__(self, name: str, passed: bool, message: str = "") -> None:
        self.tell(name, passed, message)

    def skipped(self, name: str) -> None:
        """Or expected to fail, and failed: a decorator's doing. Who reads the source knows whether it may."""
        self.tell(name, None, "")

    def left(self, name: str) -> None:
        """It skipped itself as it ran. Who reads the source knows whether it may."""
        self.tell(name, None, LEFT)

    def failed(self, name: str, exc: BaseException) -> None:
        """A test that raised.

        An import that failed names the module only where this process tried it: what a program raised comes
        without.
        """
        if isinstance(exc, Refused):
            self.leave_open(str(exc))
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
        tree = _compile(source, TESTS_FILE, "exec", ONLY_AST, dont_inherit=True)
        called = called_at_top(tree)
        report.rewrite(tree)
        if "unittest" in source:
            rewriting.no_main()
        if is_script(tree):
            space["__name__"] = "__main__"
        _exec(_compile(tree, TESTS_FILE, "exec", dont_inherit=True), space)
        report("module", True, "")
    except BaseException as exc:
        if is_good_end(exc):
            report("module", True, "")
        else:
            report.failed("module", exc)
    report.has_begun = True
    added = {k: v for k, v in space.items() if (k not in before or before[k] is not v) and not report.foreign(v)}
    if "pytest_generate_tests" in added and report.fault is not None:
        report.fault("the tests define pytest_generate_tests, which is not known here")
    collect(added, report.foreign)
    set_up, tear_down = (
        ("setUpModule", "tearDownModule") if "setUpModule" in added else ("setup_module", "teardown_module")
    )
    unset = _set_up(added, set_up, _Module(space))
    shared = Scope()
    for key, value in added.items():
        if isinstance(value, type):
            if _is_test_case(value):
                case(key, value, added, report, unset)
            elif key.startswith("Test") and _is_made(value):
                methods(key, (value,), added, report, unset, shared)
        elif key.startswith("test") and key not in called and isinstance(value, _FUNCTIONS) and not library_name(value):
            if fixture_of(value) is None:
                variants(key, value, added, (), report, unset, {"module": shared})
    _close(shared, "module", report)
    _tear_down(added, tear_down, _Module(space), report)


class _Module:
    """The tests' names as the module that ``setup_module`` is given."""

    def __init__(self, space: dict[str, Any]) -> None:
        self.__dict__ = space


def _set_up(holder: Any, name: str, argument: Any) -> BaseException | None:
    """Call what comes before several tests; what it raised is what they all say."""
    try:
        call_if_there(holder, name, argument)
    except BaseException as exc:
        return exc
    return None


def _tear_down(holder: Any, name: str, argument: Any, report: Report) -> None:
    if exc := _set_up(holder, name, argument):
        report.failed(name, exc)


def _close(scope: Scope, of: str, report: Report) -> None:
    try:
        scope.close()
    except BaseException as exc:
        report.failed(f"fixtures of {of}", exc)


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
        return type(exc).__name__[:100] or "an exception without a name"


def one(name: str, call: Callable[[], Any], report: Report) -> None:
    """Run a single test; any exception but a skip is a failure."""
    try:
        call()
        report(name, True, "")
    except BaseException as exc:
        if is_skip(exc):
            report.left(name)
        else:
            report.failed(name, exc)


class _Expected(Report):
    """For what is expected to fail: that it does is not told, unless by another exception than was said."""

    def __init__(self, report: Report, raises: Any, strict: bool) -> None:
        super().__init__(report.tell, report.fault, tuple(report.own), report.foreign)
        self.leave_open, self.is_open, self.report = report.leave_open, report.is_open, report
        self.raises, self.strict = raises, strict

    def __call__(self, name: str, passed: bool, message: str = "") -> None:
        if passed and self.strict:
            self.report(name, False, "it was expected to fail, strictly")
        elif passed or self.is_open():
            self.report(name, passed, message)
        else:
            self.report.skipped(name)

    def failed(self, name: str, exc: BaseException) -> None:
        try:
            other = self.raises is not None and not isinstance(exc, self.raises)
        except TypeError:  # it is no class of exceptions
            other = True
        if other:
            self.report.failed(name, exc)
        else:
            super().failed(name, exc)


def _reporter(report: Report, *places: Any) -> Report:
    """By how a test is marked."""
    if not is_expected_to_fail(*places):
        return report
    options = [mark.kwargs for mark in marks("xfail", *places)]
    raises = next((given["raises"] for given in options if given.get("raises") is not None), None)
    return _Expected(report, raises, any(given.get("strict") for given in options))


def variants(
    name: str, function: Any, space: dict[str, Any], kinds: tuple[Any, ...], report: Report,
    unset: BaseException | None, scopes: dict[str, Scope],
) -> None:  # fmt: skip
    """Run a pytest test once, or once for each row of its parametrizations."""
    places = (space.get("pytestmark", ()), *kinds, function)
    try:
        if skips(*places):
            report.skipped(name)
            return
        rows = rows_of(function, Fixtures(space, kinds), *places)
        report = _reporter(report, *places)
    except BaseException as exc:  # rows that do not fit, say
        report.failed(name, exc)
        return
    for row in rows:
        whole = f"{name}[{row.label}]" if row.label else name
        if unset is not None:
            report.failed(whole, unset)
            continue
        try:
            if skips(row.marks):
                report.skipped(whole)
                continue
            tell = _reporter(report, row.marks)
        except BaseException as exc:
            report.failed(whole, exc)
            continue
        one(whole, Test(function, row, space, kinds, scopes), tell)


def methods(
    name: str, kinds: tuple[Any, ...], space: dict[str, Any], report: Report, unset: BaseException | None, shared: Scope
) -> None:
    """The test methods of a plain class, each on an instance of its own, as pytest runs them: in their order.

    Args:
        name: of the class, after those around it.
        kinds: the class, after those around it.
        space: the tests' names.
        report: takes each method's result.
        unset: what the set-up around them raised.
        shared: fixtures of the module.
    """
    kind = kinds[-1]
    unset = unset or _set_up(kind, "setup_class", kind)
    scope = Scope()
    for key in dict.fromkeys(key for base in reversed(kind.__mro__[:-1]) for key in vars(base)):
        value = getattr(kind, key)
        if report.foreign(value):
            continue
        if key.startswith("Test") and isinstance(value, type) and not _is_test_case(value):
            methods(f"{name}.{key}", (*kinds, value), space, report, unset, shared)
        elif key.startswith("test") and callable(value):
            if fixture_of(value) is None:
                function = value.__func__ if isinstance(value, types.MethodType) else value
                variants(f"{name}.{key}", function, space, kinds, report, unset, {"module": shared, "class": scope})
    _close(scope, name, report)
    _tear_down(kind, "teardown_class", kind, report)


def _is_made(value: type) -> bool:
    """pytest runs it: no class with a constructor, and none that says of itself that it is no test."""
    own = [vars(base) for base in value.__mro__[:-1]]
    return not any("__init__" in space for space in own) and getattr(value, "__test__", True) is not False


def _is_test_case(value: type) -> bool:
    return any(base.__name__ == "TestCase" for base in value.__mro__)


def case(key: str, value: Any, space: dict[str, Any], report: Report, unset: BaseException | None) -> None:
    """Run a unittest class, each method by itself.

    That a method passed is known by its own end, not by what unittest makes of an exception.

    Args:
        key: the class's name.
        value: the class.
        space: the tests' names.
        report: takes each method's result.
        unset: what the set-up of the module raised.
    """
    import unittest

    if not issubclass(value, unittest.TestCase) or getattr(value, "__test__", True) is False:
        return
    automatic = any(row is not None and row[1].get("autouse") for row in map(fixture_of, space.values()))
    own = any(fixture_of(part) for base in value.__mro__ for part in vars(base).values())
    if report.fault is not None and (automatic or own or marks("usefixtures", value)):
        report.fault(f"{key} is a TestCase with fixtures of pytest's, which are not known here")
    begun = False
    broken: BaseException | None = None  # what the class's set-up raised
    found = unittest.TestLoader().getTestCaseNames(value)
    for method in found or (["runTest"] if callable(getattr(value, "runTest", None)) else []):
        name, function = f"{key}.{method}", getattr(value, method)
        if report.foreign(function):
            continue
        tell = report
        try:
            flagged = getattr(value, "__unittest_skip__", False) or getattr(function, "__unittest_skip__", False)
            places = (space.get("pytestmark", ()), value, function)
            if flagged or skips(*places):
                report.skipped(name)
                continue
            if unset is not None:
                raise unset
            tell = _reporter(report, *places)
            if not begun:
                begun, broken = True, _set_up(value, "setUpClass", None)
            if broken is not None:
                raise broken
        except BaseException as exc:
            report.failed(name, exc)
            continue
        result = unittest.TestResult()
        ends: list[Any] = []
        try:
            test = value(method)
            setattr(test, method, _to_its_end(getattr(test, method), ends))
            test.run(result)
        except BaseException as exc:
            report(name, False, type(exc).__name__)
            continue
        unexpected = bool(result.unexpectedSuccesses)
        by_unittest = any(getattr(place, "__unittest_expecting_failure__", False) for place in (value, function))
        if by_unittest and not unexpected and not report.is_open():
            report.skipped(name)
            continue
        bad = [*result.errors, *result.failures]
        good = ends == [True] and not bad and not result.skipped and not unexpected
        said = bad[0][1].strip().rpartition("\n")[2][-500:] if bad else "it did not run to its end"
        raised = ends[0] if ends and ends[0] is not True else None
        if raised is not None and is_skip(raised):
            report.left(name)
        elif raised is not None and not unexpected and (tell is not report or isinstance(raised, Fault)):
            tell.failed(name, raised)
        else:
            (report if unexpected else tell)(name, good, "" if good else said)
    if begun and broken is None:
        _tear_down(value, "tearDownClass", None, report)
    if begun and (errors := _class_cleanups(value)):
        report.failed(f"{key}.doClassCleanups", errors[0])


def _class_cleanups(kind: Any) -> list[BaseException]:
    kind.doClassCleanups()
    return [error[1] for error in kind.tearDown_exceptions]


def _to_its_end(method: Any, ends: list[Any]) -> Any:
    """A test method that notes in ``ends`` that its last line was passed, or what it raised."""

    def call(*args: Any) -> None:
        try:
            finished(method(*args))
        except BaseException as exc:
            ends.append(exc)
            raise
        ends.append(True)

    async def wait(*args: Any) -> None:
        try:
            await method(*args)
        except BaseException as exc:
            ends.append(exc)
            raise
        ends.append(True)

    function = getattr(method, "__func__", method)
    code = getattr(function, "__code__", None)
    made = wait if code is not None and code.co_flags & 0x80 else call  # inspect.CO_COROUTINE
    made.__dict__.update(getattr(function, "__dict__", {}))
    return made
