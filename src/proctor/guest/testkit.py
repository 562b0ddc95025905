"""The part of pytest that test files of data sets use, for images without pytest.

``raises``, ``warns``, ``approx``, ``mark``, ``fixture``, ``param``, ``skip``, ``fail``
and ``importorskip`` mean what they mean there. Anything else is an AttributeError
that says so; with ``pytest`` among the image's packages the real one is used.
"""

from __future__ import annotations

import array
import collections
import fractions
import importlib.machinery
import math
import re
import sys
import types
from typing import Any

from .marking import Fault
from .reading import inside, is_missing, kind_of, parsed


class Skipped(BaseException):
    """A test skipped itself: it did not pass."""


class Failed(BaseException):
    """``pytest.fail``, or an exception that did not come; as in pytest no ``except Exception`` of the tests takes it."""


class RaisesContext:
    """``with raises(...) as info``; ``info.value`` is the exception."""

    value: BaseException
    type: Any

    def __init__(self, expected: Any, match: str | None) -> None:
        for kind in expected if isinstance(expected, tuple) else (expected,):
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise TypeError(f"expected is to be an exception class or a tuple of them, not {type(kind).__name__}")
        self.expected, self.match_text = expected, match

    def __enter__(self) -> RaisesContext:
        return self

    def __exit__(self, kind: Any, value: BaseException | None, trace: Any) -> bool:
        if value is None:
            raise Failed(f"DID NOT RAISE {self.expected}")
        if not isinstance(value, self.expected):
            return False
        self.value, self.type, self.tb = value, kind, trace
        if self.match_text is not None:
            self.match(self.match_text)
        return True

    def match(self, pattern: str) -> bool:
        """The exception's text must hold the pattern."""
        if not re.search(pattern, str(self.value)):
            raise Failed(f"{pattern!r} is not in {str(self.value)!r}")
        return True

    @property
    def typename(self) -> str:
        """Name of the exception's class."""
        return str(self.type.__name__)

    def errisinstance(self, kinds: Any) -> bool:
        """The exception is of a class."""
        return isinstance(self.value, kinds)

    def exconly(self, tryshort: bool = False) -> str:
        """Class and text, as a traceback ends with them."""
        return f"{self.typename}: {self.value}"

    def __getattr__(self, name: str) -> Any:
        if name in ("value", "type", "tb") or name[:1] == "_":
            raise AttributeError(f"{name!r} is known when the exception has come")
        raise Unknown(f"{name!r} of what pytest.raises gives is not known here; give the package pytest to the image")


_FUNCTIONS = ("FunctionDef", "AsyncFunctionDef")
_OF_INFO = frozenset("value type tb match typename errisinstance exconly".split())


def unknown_uses(source: str) -> str:
    """What a source asks of ``pytest.raises`` that is not here; "" where all is."""
    tree = parsed(source) if "raises" in source and is_missing("pytest") else None
    for node in inside(tree):
        if kind_of(node) == "Call" and _is_raises(node.func) and len(node.args) < 2:
            for word in node.keywords:
                if word.arg not in ("match", "expected_exception"):
                    return f"{word.arg!r} of pytest.raises is not known here; give the package pytest to the image"
    functions = [node for node in inside(tree) if kind_of(node) in _FUNCTIONS]
    outside = [node for node in getattr(tree, "body", ()) if kind_of(node) not in (*_FUNCTIONS, "ClassDef")]
    for scope in [*functions, outside]:
        if unknown := _unknown_attribute(scope):
            return f"{unknown!r} of what pytest.raises gives is not known here; give the package pytest to the image"
    return ""


def _unknown_attribute(function: Any) -> str:
    """What a function, or a list of statements, asks of what it named in ``with pytest.raises(...) as``, and that is not there."""
    infos = {
        getattr(node.optional_vars, "id", "")
        for node in inside(function)
        if kind_of(node) == "withitem" and kind_of(node.context_expr) == "Call" and _is_raises(node.context_expr.func)
    }
    for node in inside(function):
        named = getattr(getattr(node, "value", None), "id", "") if kind_of(node) == "Attribute" else ""
        if named and named in infos and node.attr not in _OF_INFO:
            return str(node.attr)
    return ""


def _is_raises(node: Any) -> bool:
    return getattr(node, "id", getattr(node, "attr", "")) == "raises"


def raises(expected_exception: Any, *args: Any, match: str | None = None, **keywords: Any) -> Any:
    """A context, or with a callable the call itself."""
    if not args and keywords:
        raise Unknown(f"{min(keywords)!r} of pytest.raises is not known here; give the package pytest to the image")
    context = RaisesContext(expected_exception, match)
    if not args:
        return context
    with context:
        args[0](*args[1:], **keywords)
    return context


class Approx:
    """A number, or numbers in sequences and dicts, that others are compared with by tolerance; what else is in them, as it is."""

    __array_priority__ = 100

    def __init__(self, expected: Any, rel: float | None, absolute: float | None, nan_ok: bool) -> None:
        self.expected, self.rel, self.abs, self.nan_ok = expected, rel, absolute, nan_ok

    def __eq__(self, actual: object) -> bool:
        return self._same(actual, self.expected)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"approx({self.expected!r})"

    def _same(self, actual: Any, expected: Any) -> bool:
        actual, expected = _plain(actual), _plain(expected)
        if isinstance(expected, dict):
            return (
                isinstance(actual, dict)
                and actual.keys() == expected.keys()
                and all(self._same(actual[key], value) for key, value in expected.items())
            )
        if isinstance(expected, _SEQUENCES):
            return (
                isinstance(actual, _SEQUENCES)
                and len(actual) == len(expected)
                and all(map(self._same, actual, expected))
            )
        if type(expected).__module__ in _EXACT and not isinstance(actual, bool):
            return self._near(actual, expected)
        if isinstance(expected, bool) or not isinstance(expected, int | float | complex):
            return bool(actual == expected)
        if isinstance(actual, bool) or not isinstance(actual, int | float | complex):
            return (
                type(actual).__module__ in _EXACT and not isinstance(expected, complex) and self._near(actual, expected)
            )
        if actual == expected:
            return True
        if actual != actual or expected != expected:
            return self.nan_ok and actual != actual and expected != expected
        if math.inf in (abs(actual), abs(expected)):
            return False
        return bool(abs(actual - expected) <= self._bound(expected))

    def _near(self, actual: Any, expected: Any) -> bool:
        """Of numbers of which one is no float: compared as the fractions that they are, where they are finite."""
        if not isinstance(actual, int | float) and type(actual).__module__ not in _EXACT:
            return False
        try:
            one, other = fractions.Fraction(actual), fractions.Fraction(expected)
        except (ValueError, OverflowError):  # not a number, or infinite
            return bool(actual == expected)
        return abs(one - other) <= self._bound(other)

    def _bound(self, expected: Any) -> float:
        absolute = 1e-12 if self.abs is None else self.abs
        if self.rel is None and self.abs is not None:
            return absolute
        return float(max(absolute, (1e-6 if self.rel is None else self.rel) * abs(expected)))


_SEQUENCES = (list, tuple, array.array, collections.deque)
_EXACT = ("decimal", "fractions")


def _plain(value: Any) -> Any:
    """Of an array or number of numpy's what it is in Python."""
    return value.tolist() if type(value).__module__ == "numpy" and hasattr(value, "tolist") else value


def approx(expected: Any, rel: float | None = None, abs: float | None = None, nan_ok: bool = False) -> Approx:
    """Equal within a relative tolerance of 1e-6 or an absolute one of 1e-12, or those given."""
    return Approx(expected, rel, abs, nan_ok)


class Mark:
    """One mark with its arguments, as it lies on a test."""

    def __init__(self, name: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> None:
        self.name, self.args, self.kwargs = name, args, kwargs or {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType | type):
            args[0].pytestmark = [*getattr(args[0], "pytestmark", ()), self]  # type: ignore[union-attr]
            return args[0]
        return Mark(self.name, args, kwargs)


class Marks:
    """``mark.anything``."""

    def __getattr__(self, name: str) -> Mark:
        return Mark(name)


def fixture(function: Any = None, **options: Any) -> Any:
    """Marks what makes an argument for tests."""
    if function is None:
        return lambda given: fixture(given, **options)
    function.__fixture__ = options
    return function


class ParameterSet:
    """A row of ``parametrize`` with an id, or marks."""

    def __init__(self, values: tuple[Any, ...], marks: Any = ()) -> None:
        self.values, self.marks = values, marks


def param(*values: Any, **options: Any) -> ParameterSet:
    """A row of ``parametrize``."""
    return ParameterSet(values, options.get("marks", ()))


def fail(reason: str = "", **options: Any) -> None:
    """Fail this test."""
    raise Failed(reason)


def skip(reason: str = "", **options: Any) -> None:
    """Skip this test: it did not pass."""
    raise Skipped(reason)


def importorskip(name: str, *args: Any, **options: Any) -> Any:
    """The module; that it is not there is for the image to mend, as where it is imported plainly.

    Raises:
        ImportError: it is not there.
    """
    return __import__(name, fromlist=["x"])


class WarnsContext:
    """``with warns(...) as seen``: the warnings, of which one must be of the class and hold the pattern."""

    def __init__(self, expected: Any, match: str | None) -> None:
        self.expected, self.pattern = expected, match

    def __enter__(self) -> Any:
        import warnings

        self.catching = warnings.catch_warnings(record=True)
        self.seen = self.catching.__enter__()
        warnings.simplefilter("always")
        return self.seen

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.catching.__exit__(kind, value, trace)
        fits = [row for row in self.seen or () if issubclass(row.category, self.expected)]
        if kind is None and not fits:
            raise Failed(f"DID NOT WARN {self.expected}")
        if kind is None and self.pattern and not any(re.search(self.pattern, str(row.message)) for row in fits):
            raise Failed(f"no warning holds {self.pattern!r}")


def warns(expected: Any = Warning, *args: Any, match: str | None = None, **keywords: Any) -> Any:
    """A context, or with a callable the call itself."""
    context = WarnsContext(expected, match)
    if not args:
        return context
    with context:
        return args[0](*args[1:], **keywords)


def deprecated_call(*args: Any, match: str | None = None, **keywords: Any) -> Any:
    """``warns`` of what is deprecated."""
    kinds = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)
    return warns(kinds, *args, match=match, **keywords)


class Unknown(Fault, AttributeError):
    """A part of pytest that is not here."""


def _unknown(name: str) -> Any:
    if name[:2] == "__":
        raise AttributeError(name)
    raise Unknown(f"pytest.{name} is not known here; give the package pytest to the image")


def main(*args: Any, **options: Any) -> int:
    """Tests that start themselves have their tests run anyway."""
    return 0


_PYTEST = {
    "raises": raises, "approx": approx, "mark": Marks(), "fixture": fixture, "param": param, "fail": fail, "skip": skip,
    "importorskip": importorskip, "main": main, "warns": warns, "deprecated_call": deprecated_call,
}  # fmt: skip
KNOWN = frozenset(_PYTEST)


class _Finder:
    """Finds ``pytest`` when nothing else does: the image has none."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name != "pytest":
            return None
        return importlib.machinery.ModuleSpec("pytest", _Finder)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: Any) -> types.ModuleType:
        module = types.ModuleType("pytest")
        vars(module).update(_PYTEST, __getattr__=_unknown)
        return module

    @staticmethod
    def exec_module(module: types.ModuleType) -> None:
        """It is whole already."""


def install_lazily() -> None:
    """Be ``pytest`` for whoever imports it, unless there is a real one."""
    sys.meta_path.append(_Finder)
