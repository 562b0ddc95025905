"""What a pytest test is run with: rows of its parametrizations, fixtures, setup and teardown. Unknown ones are said."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from .capturing import Capture, CaptureDescriptors
from .marking import Fault, marks, noted
from .patching import MonkeyPatch
from .scopes import Scope, nothing

_PYTEST = (f"{__package__}.testkit", "_pytest.mark.structures")


class Row(NamedTuple):
    """One run of a test.

    Attributes:
        label: numbers of its rows, joined; "" where there are no rows.
        given: arguments.
        params: by fixture, what its ``request.param`` is.
        marks: of the row alone.
    """

    label: str = ""
    given: dict[str, Any] = {}  # noqa: RUF012  # never changed
    params: dict[str, Any] = {}  # noqa: RUF012
    marks: tuple[Any, ...] = ()

    def and_also(self, at: int, given: dict[str, Any], params: dict[str, Any], marks: Iterable[Any]) -> Row:
        label = f"{self.label}-{at}" if self.label else str(at)
        return Row(label, self.given | given, self.params | params, (*self.marks, *marks))


ONE = Row()


def rows_of(function: Any, fixtures: Fixtures, *places: Any) -> list[Row]:
    """Each row of a test's parametrizations and of its fixtures' params; one without any where there is none."""
    rows = [ONE]
    for mark in reversed(marks("parametrize", *places)):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        values = list(noted(mark, mark.args[1] if len(mark.args) > 1 else mark.kwargs["argvalues"]))
        wanted = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)
        many = len(wanted) > 1 or isinstance(names, list | tuple)
        indirect = mark.kwargs.get("indirect", mark.args[2] if len(mark.args) > 2 else False)
        through = set(wanted) if indirect is True else set(indirect or ())
        parsed = []
        for value in values:
            value, own = _unpacked(value, many)
            parsed.append((dict(zip(wanted, value if many else (value,), strict=True)), own))
        rows = [
            row.and_also(
                at,
                {name: value for name, value in added.items() if name not in through},
                {name: value for name, value in added.items() if name in through},
                own,
            )
            for row in rows
            for at, (added, own) in enumerate(parsed)
        ]
    for name in fixtures.needed(function, *places):
        params = fixtures.params(name)
        if params is not None and not any(name in row.given or name in row.params for row in rows):
            rows = [row.and_also(at, {}, {name: value}, ()) for row in rows for at, value in enumerate(params)]
    return rows


def _unpacked(value: Any, many: bool) -> tuple[Any, tuple[Any, ...]]:
    """A row's value, or values, and its own marks."""
    if type(value).__name__ != "ParameterSet" or type(value).__module__ not in _PYTEST:
        return value, ()
    own = value.marks if isinstance(value.marks, list | tuple) else (value.marks,)
    return value.values if many else value.values[0], tuple(own)


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
    return function, {name: getattr(marker, name, None) for name in ("params", "autouse", "name", "scope")}


class Fixtures:
    """The fixtures that a test can see: its class's, those of the classes around that one, then the module's."""

    def __init__(
        self,
        space: dict[str, Any],
        kinds: tuple[Any, ...] = (),
        instance: Any = None,
        row: Row = ONE,
        function: Any = None,
        scopes: dict[str, Scope] | None = None,
    ) -> None:
        self.instance, self.row, self.function = instance, row, function
        self.scopes = scopes or {}
        self.known: dict[str, tuple[Any, dict[str, Any], Any]] = {}  # function, options, and its class or None
        places = [(None, space)]
        places += [(kind, vars(base)) for kind in kinds for base in reversed(kind.__mro__) if base is not object]
        for owner, place in places:
            for name, value in place.items():
                if found := fixture_of(value):
                    self.known[found[1].get("name") or name] = (*found, owner)
        self.made: dict[str, Any] = dict(row.given)  # also for fixtures that ask for it
        self.making: list[str] = []
        self.ends: list[Callable[[], Any]] = []

    def params(self, name: str) -> list[Any] | None:
        """What a fixture is made with, one after the other; None: it is made once."""
        _, options, _ = self.known.get(name, (None, {}, None))
        if options.get("params") is None:
            return None
        found = []
        for value in options["params"]:
            value, own = _unpacked(value, False)
            if own:
                raise Fault(f"the fixture {name!r} has params with marks of their own, which are not known here")
            found.append(value)
        return found

    def needed(self, function: Any, *places: Any) -> list[str]:
        """Names of the file's fixtures that a test is made with: automatic, named by marks, asked for, and theirs."""
        waiting = [name for name, (_, options, _) in self.known.items() if options.get("autouse")]
        waiting += [name for mark in marks("usefixtures", *places) for name in mark.args]
        waiting += asked_for(function)
        found: dict[str, None] = {}
        while waiting:
            name = waiting.pop(0)
            if name in self.known and name not in found:
                found[name] = None
                waiting += asked_for(self.known[name][0])
        return list(found)

    def get(self, name: str) -> Any:
        """The fixture's value, made once for a test."""
        if name in self.made:
            return self.made[name]
        if name in self.making:
            raise Fault(f"the fixture {name!r} asks for itself, or for another of its name, which is not known here")
        if name not in self.known:
            return self.made.setdefault(name, self.built_in(name))
        function, options, owner = self.known[name]
        if options.get("params") is not None and name not in self.row.params:
            raise Fault(f"the fixture {name!r} has params, and is asked for while a test runs: not known here")
        scope = self.scope_of(name, options)
        param = self.row.params.get(name)
        if scope is not None and name in scope.made:
            if scope.made[name][1] is param:
                return scope.made[name][0]
            scope.close(name)
        bound = () if owner is None else (self.instance if isinstance(self.instance, owner) else owner(),)
        self.making.append(name)
        outer, self.ends = self.ends, []
        try:
            value = function(*bound, **self.arguments(function, {}, len(bound), name))
            if type(value) is types.GeneratorType:  # and no stand-in for one
                running = value
                self.ends.append(lambda: next(running, None))
                value = next(running)
            elif isinstance(value, types.CoroutineType | types.AsyncGeneratorType):
                raise Fault(f"the fixture {name!r} is a coroutine, which is not known here")
        finally:
            self.making.pop()
            own_ends, self.ends = self.ends, outer
            if scope is None:
                self.ends += own_ends
            else:
                scope.ends += [(name, end) for end in own_ends or [nothing]]
        if scope is None:
            return self.made.setdefault(name, value)
        scope.made[name] = value, param
        return value

    def scope_of(self, name: str, options: dict[str, Any]) -> Scope | None:
        """Where a fixture lives that tests share; None: it is each test's own."""
        word = options.get("scope") or "function"
        if not isinstance(word, str):
            raise Fault(f"the fixture {name!r} has a scope that is computed, which is not known here")
        return self.scopes.get("class" if word == "class" else "module") if word != "function" else None

    def built_in(self, name: str) -> Any:
        """What pytest itself gives by that name."""
        if name == "tmp_path":
            return new_folder()
        if name == "tmp_path_factory":
            return Folders()
        if name in ("capsys", "capfd"):
            capture = Capture() if name == "capsys" else CaptureDescriptors()
            self.ends.append(capture.close)
            return capture
        if name == "monkeypatch":
            patch = MonkeyPatch()
            self.ends.append(patch.undo)
            return patch
        raise Fault(f"the tests ask for the fixture {name!r}, which is not known here")

    def arguments(self, function: Any, given: dict[str, Any], bound: int = 0, of: str = "") -> dict[str, Any]:
        """What a function asks for: given values, then fixtures by name.

        Args:
            function: a test's or a fixture's.
            given: values by name.
            bound: arguments that it has already.
            of: the fixture whose function it is; "": a test's.
        """
        if getattr(function, "__code__", None) is None:
            return given
        wanted = asked_for(function, bound)
        if any(name not in all_arguments(function)[bound:] for name in given):
            raise Fault("the tests have parametrizations of names that the test does not take")
        made = {
            name: Request(self, of, function) if name == "request" else self.get(name)
            for name in wanted
            if name not in given
        }
        return given | made

    def close(self) -> None:
        """Finish the fixtures, the last first."""
        while self.ends:
            self.ends.pop()()


class Request:
    """``request`` of pytest, as a fixture or a test sees it; what else it has there is a fault of the file's here."""

    def __init__(self, fixtures: Fixtures, of: str, function: Any) -> None:
        self._fixtures, self.fixturename = fixtures, of or None
        self.function, self.instance = fixtures.function, fixtures.instance
        self.cls = type(fixtures.instance) if fixtures.instance is not None else None
        if of in fixtures.row.params:
            self.param = fixtures.row.params[of]

    def getfixturevalue(self, name: str) -> Any:
        return self._fixtures.get(name)

    def addfinalizer(self, end: Callable[[], Any]) -> None:
        self._fixtures.ends.append(end)

    def __getattr__(self, name: str) -> Any:
        if name == "param" or name[:1] == "_":
            raise AttributeError(f"'request' has no attribute {name!r}")
        raise Fault(f"request.{name} is not known here")


def unwrapped(function: Any) -> Any:
    """The tests' own function behind those that ``functools.wraps`` made: its arguments are theirs."""
    while type(function) is types.FunctionType and type(vars(function).get("__wrapped__")) is types.FunctionType:
        function = vars(function)["__wrapped__"]
    return function


def all_arguments(function: Any) -> list[str]:
    """Names of the arguments of a function, positional ones first."""
    code = unwrapped(function).__code__
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def asked_for(function: Any, bound: int = 0) -> list[str]:
    """Names of the arguments that have no default, without the first ``bound`` and those that ``mock.patch`` gives."""
    bound += _given_by_patches(function)
    function = unwrapped(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return []
    wanted, named = list(code.co_varnames[bound : code.co_argcount]), all_arguments(function)[code.co_argcount :]
    del wanted[len(wanted) - len(function.__defaults__ or ()) :]
    return wanted + [name for name in named if name not in (function.__kwdefaults__ or {})]


def _given_by_patches(function: Any) -> int:
    """How many of a function's arguments its decorators of ``unittest.mock`` give, behind the bound ones."""
    patches = vars(function).get("patchings", ()) if type(function) is types.FunctionType else ()
    default = getattr(sys.modules.get("unittest.mock"), "DEFAULT", None)
    return sum(patch.new is default and not patch.attribute_name for patch in patches) if default is not None else 0


class Test:
    """One pytest test with one row of arguments.

    Args:
        function: the test's.
        row: what it is run with.
        space: the module's names.
        kinds: its class, after those around it; none: a function.
        scopes: of the fixtures that it shares with others.
    """

    __test__ = False

    def __init__(
        self, function: Any, row: Row, space: dict[str, Any], kinds: tuple[Any, ...], scopes: dict[str, Scope]
    ) -> None:
        self.function, self.row, self.space, self.kinds, self.scopes = function, row, space, kinds, scopes

    def __call__(self) -> Any:
        kind = self.kinds[-1] if self.kinds else None
        instance = kind() if kind else None
        fixtures = Fixtures(self.space, self.kinds, instance, self.row, self.function, self.scopes)
        holder = instance if kind else self.space
        try:
            setup = "setup_method" if kind else "setup_function"
            places = (self.space.get("pytestmark", ()), *self.kinds, self.function)
            for name in fixtures.needed(self.function, *places):
                if fixtures.scope_of(name, fixtures.known[name][1]) is not None:
                    fixtures.get(name)
            automatic = [(name, own) for name, (_, options, own) in fixtures.known.items() if options.get("autouse")]
            for name in [name for name, own in automatic if kind and own is not kind]:
                fixtures.get(name)  # the module's, before what its class sets up
            call_if_there(holder, setup, self.function)
            fixtures.ends.append(lambda: call_if_there(holder, setup.replace("setup", "teardown"), self.function))
            for name, _ in automatic:
                fixtures.get(name)
            for mark in marks("usefixtures", *places):
                for name in mark.args:
                    fixtures.get(name)
            static = isinstance(_static(kind, self.function), staticmethod)
            bound = () if instance is None or static else (instance,)
            return finished(self.function(*bound, **fixtures.arguments(self.function, self.row.given, len(bound))))
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


class Folders:
    """``tmp_path_factory``: folders in one of its own."""

    def __init__(self) -> None:
        self.base = new_folder()

    def getbasetemp(self) -> Any:
        return self.base

    def mktemp(self, basename: str, numbered: bool = True) -> Any:
        names = (f"{basename}{at}" for at in range(10_000)) if numbered else iter((basename,))
        made = next(path for path in (self.base / name for name in names) if not (numbered and path.exists()))
        made.mkdir()
        return made
