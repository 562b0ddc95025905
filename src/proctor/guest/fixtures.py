"""What a pytest test is run with: rows of its parametrizations, fixtures, setup and teardown. Unknown ones are said."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

_PYTEST = (f"{__package__}.testkit", "_pytest.mark.structures")


class Fault(Exception):
    """The test file asks for what is not here; no program is to blame."""


def marks(name: str, *places: Any) -> list[Any]:
    """Marks of that name on a test, on its class, or on its module's ``pytestmark``."""
    found = []
    for place in places:
        whole = isinstance(place, list | tuple) or type(place).__name__ in ("Mark", "MarkDecorator")
        given = place if whole else getattr(place, "pytestmark", None)
        rows = given if isinstance(given, list | tuple) else [given]
        found += [mark for mark in rows if getattr(mark, "name", "") == name]
    return found


def skips(*places: Any) -> bool:
    """The test file itself skips this test."""
    return bool(marks("skip", *places)) or any(map(_holds, marks("skipif", *places)))


def is_expected_to_fail(*places: Any) -> bool:
    """The test file itself says so."""
    return any(
        not (mark.args or "condition" in mark.kwargs) or _holds(mark) for mark in marks("xfail", *places)
    ) or any(getattr(place, "__unittest_expecting_failure__", False) for place in places)


def _holds(mark: Any) -> bool:
    condition = mark.args[0] if mark.args else mark.kwargs.get("condition", False)
    if isinstance(condition, str):
        raise Fault(f"the tests have a condition in a string, {condition[:50]!r}, which is not known here")
    return bool(condition)


def rows_of(*places: Any) -> list[tuple[str, dict[str, Any]]]:
    """Label and arguments of each row of the parametrizations; one without any where there is none."""
    rows: list[tuple[str, dict[str, Any]]] = [("", {})]
    for mark in reversed(marks("parametrize", *places)):
        if mark.kwargs.get("indirect"):
            raise Fault("the tests have indirect parametrizations, which are not known here")
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        values = mark.args[1] if len(mark.args) > 1 else mark.kwargs["argvalues"]
        rows = [
            (f"{before}-{at}" if before else str(at), {**given, **added})
            for before, given in rows
            for at, added in enumerate(_rows(names, values))
        ]
    return rows


def _rows(names: Any, values: Any) -> list[dict[str, Any]]:
    wanted = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)
    many = len(wanted) > 1 or isinstance(names, list | tuple)
    rows = []
    for value in values:
        if type(value).__name__ == "ParameterSet" and type(value).__module__ in _PYTEST:
            if getattr(value, "marks", ()):
                raise Fault("the tests have rows with marks of their own, which are not known here")
            value = value.values if many else value.values[0]
        rows.append(dict(zip(wanted, value if many else (value,), strict=True)))
    return rows


def fixture_of(value: Any) -> tuple[Any, dict[str, Any]] | None:
    """Function and options of a fixture, the testkit's or pytest's; None for anything else."""
    if not isinstance(value, types.FunctionType) and type(value).__module__ != "_pytest.fixtures":
        return None  # and perhaps the program's, which is not to be asked
    options = getattr(value, "__fixture__", None)
    if isinstance(options, dict):
        return value, options
    marker = getattr(value, "_fixture_function_marker", getattr(value, "_pytestfixturefunction", None))
    if type(marker).__name__ != "FixtureFunctionMarker":
        return None
    wrapped = getattr(getattr(value, "__pytest_wrapped__", None), "obj", None)
    function = wrapped or getattr(value, "_fixture_function", value)
    return function, {name: getattr(marker, name, None) for name in ("params", "autouse", "name")}


class Fixtures:
    """The fixtures that a test can see: its class's, then the module's."""

    def __init__(self, space: dict[str, Any], kind: Any = None, instance: Any = None) -> None:
        self.instance = instance
        self.known: dict[str, tuple[Any, dict[str, Any], bool]] = {}
        places = [space] + [vars(base) for base in reversed(kind.__mro__) if base is not object] if kind else [space]
        for place in places:
            for name, value in place.items():
                if found := fixture_of(value):
                    self.known[found[1].get("name") or name] = (*found, place is not space)
        self.made: dict[str, Any] = {}
        self.ends: list[Callable[[], Any]] = []

    def get(self, name: str) -> Any:
        """The fixture's value, made once for a test."""
        if name in self.made:
            return self.made[name]
        if name == "tmp_path":
            return self.made.setdefault(name, new_folder())
        if name not in self.known:
            raise Fault(f"the tests ask for the fixture {name!r}, which is not known here")
        function, options, own = self.known[name]
        if options.get("params") is not None:
            raise Fault(f"the fixture {name!r} has params, which are not known here")
        bound = (self.instance,) if own else ()
        value = function(*bound, **self.arguments(function, {}, len(bound)))
        if type(value) is types.GeneratorType:  # and no stand-in for one
            self.ends.append(lambda: next(value, None))
            self.made[name] = next(value)
        elif isinstance(value, types.CoroutineType | types.AsyncGeneratorType):
            raise Fault(f"the fixture {name!r} is a coroutine, which is not known here")
        else:
            self.made[name] = value
        return self.made[name]

    def arguments(self, function: Any, given: dict[str, Any], bound: int = 0) -> dict[str, Any]:
        """What a function asks for: given values, then fixtures by name; ``bound``: arguments that it has already."""
        code = getattr(function, "__code__", None)
        if code is None:
            return given
        wanted = list(code.co_varnames[bound : code.co_argcount])
        named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        if any(name not in wanted and name not in named for name in given):
            raise Fault("the tests have parametrizations of names that the test does not take")
        del wanted[len(wanted) - len(function.__defaults__ or ()) :]
        wanted += [name for name in named if name not in (function.__kwdefaults__ or {})]
        return given | {name: self.get(name) for name in wanted if name not in given}

    def close(self) -> None:
        """Finish the fixtures, the last first."""
        while self.ends:
            self.ends.pop()()


class Test:
    """One pytest test with one row of arguments.

    Args:
        function: the test's.
        given: arguments of its row.
        space: the module's names.
        kind: its class; None: a function.
    """

    __test__ = False

    def __init__(self, function: Any, given: dict[str, Any], space: dict[str, Any], kind: Any = None) -> None:
        self.function, self.given, self.space, self.kind = function, given, space, kind

    def __call__(self) -> Any:
        instance = self.kind() if self.kind else None
        fixtures = Fixtures(self.space, self.kind, instance)
        holder = instance if self.kind else self.space
        try:
            setup = "setup_method" if self.kind else "setup_function"
            call_if_there(holder, setup, self.function)
            fixtures.ends.append(lambda: call_if_there(holder, setup.replace("setup", "teardown"), self.function))
            for name, (_, options, _) in fixtures.known.items():
                if options.get("autouse"):
                    fixtures.get(name)
            for mark in marks("usefixtures", self.space.get("pytestmark", ()), self.kind, self.function):
                for name in mark.args:
                    fixtures.get(name)
            static = isinstance(_static(self.kind, self.function), staticmethod)
            bound = () if instance is None or static else (instance,)
            return finished(self.function(*bound, **fixtures.arguments(self.function, self.given, len(bound))))
        finally:
            fixtures.close()


def _static(kind: Any, function: Any) -> Any:
    found = [vars(base).values() for base in kind.__mro__] if kind else []
    return next((v for row in found for v in row if isinstance(v, staticmethod) and v.__func__ is function), None)


def finished(result: Any) -> Any:
    """What a test function returned: a coroutine is run, and what only looks like a test is a fault of the file."""
    if isinstance(result, types.CoroutineType):
        import asyncio

        return asyncio.run(result)
    if type(result) in (types.GeneratorType, types.AsyncGeneratorType):
        raise Fault("a test is a generator: nothing in it would be run")
    return result


def call_if_there(holder: Any, name: str, argument: Any) -> None:
    """Call what the tests define by that name; with the argument where it takes one."""
    found = holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)
    if not isinstance(found, types.FunctionType | types.MethodType):
        return
    finished(found(argument) if found.__code__.co_argcount > isinstance(found, types.MethodType) else found())


def new_folder() -> Any:
    """What ``tmp_path`` is."""
    import pathlib
    import tempfile

    return pathlib.Path(tempfile.mkdtemp())
