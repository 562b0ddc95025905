"""What the names in sealed tests mean: the tests' own, the libraries', and only then the program's."""

from __future__ import annotations

import importlib
import sys
import types
from dataclasses import dataclass
from typing import Any

from .library import PUBLIC, TYPES, by_name
from .link import Link
from .sealing import FIXED
from .standins import StandinType, refuse

_MODULE_ALIASES = {"np": "numpy", "pd": "pandas", "dt": "datetime", "plt": "matplotlib.pyplot", "nx": "networkx"}
# What tests compare with: never the program's, wherever it may have it from. A longer list would take functions from
# programs that are asked for them (a ``median`` beside the ``mean`` that the problem names).
_COMPARE = {"isclose": "math", "fabs": "math", "deepcopy": "copy", "allclose": "numpy", "array_equal": "numpy",
            "approx": "pytest", "raises": "pytest", "TestCase": "unittest"}  # fmt: skip
_COMPARE |= TYPES
_TOLD = frozenset(("__version__", "__author__", "__license__"))  # what a module says of itself
_NO_VALUES = frozenset(("typing", "collections.abc", "numbers"))  # nothing in them is compared with


@dataclass(frozen=True, slots=True)
class Uses:
    """What the problem and its tests say of names.

    Attributes:
        entry: names that the problem asks the program for.
        attributes: what the tests use by each name.
        called: names that the tests call.
    """

    entry: frozenset[str]
    attributes: dict[str, set[str]]
    called: frozenset[str]


def stand_in_module(
    link: Link,
    name: str,
    space: dict[str, Any],
    starred: list[str],
    uses: Uses,
) -> types.ModuleType:
    """The program's module, as tests import it; ``starred``: names that the tests use and neither have nor define."""

    class Module(types.ModuleType):
        __standin__ = link

        def __getattr__(self, attribute: str) -> Any:
            if attribute == "__all__":
                # A star gives the tests what they use and do not have; not whatever the program would like them to.
                found: dict[str, Any] = {}
                fill(found, link, self, [name for name in starred if name not in space], uses)
                vars(self).update(found)
                return list(found)
            if attribute[:2] == "__" and attribute not in _TOLD:
                raise AttributeError(attribute)
            return link.ask("get", self, attribute)

        def __setattr__(self, attribute: str, value: Any) -> None:
            if attribute[:2] != "__":
                refuse("they set names of the program's module")
            super().__setattr__(attribute, value)

    return Module(name)


def fill(
    space: dict[str, Any],
    link: Link,
    module: Any,
    names: list[str],
    uses: Uses,
) -> set[str]:
    """Give the tests' namespace what ``names`` mean: the libraries' own things first, then the program's.

    Otherwise a program could replace what tests check with. A module's name is the program's where the tests use
    nothing by it that the module has: they call it, say.

    Returns:
        Names of the program's own data that cannot be changed: what it has by them later may be other data.
    """
    data: set[str] = set()
    asked, entry, owned = [], uses.entry, []
    for name in names:
        own = name in TYPES and name in link.names.shown  # a Counter with methods that the library's has not
        if name in entry or own or not (is_library(name, uses.attributes.get(name, set())) and library(space, name)):
            asked.append(name)
    for name, row in zip(asked, link.ask("names", module, "", tuple(asked)), strict=True):
        what, value = row
        if what == "library":
            found = by_name(value, PUBLIC) if type(value) is str and value.rpartition(":")[2] == name else None
            if found is not None:
                space[name] = found
                link.chosen.add(str(value).partition(":")[0])
        elif what == "module" or what == "missing":
            library(space, name)
        elif what == "own":
            space[name] = value
            link.asked += 1
            link.fetched(name, value)
            data |= {name} if value is None or type(value) is bool or type(value) in FIXED else set()
            if isinstance(value, StandinType):
                link.names.took(value, name)
            owned.append((name, isinstance(value, StandinType)))
    callees = sum(name in uses.called for name, _ in owned)
    for name, is_class in owned:
        # The only function that is asked for, by tests that call it, is what they test, whatever library has one too.
        tested = name in entry or not (entry or is_class or name not in uses.called or callees > 1)
        library_name = "" if tested else namesake(name) or (name if entry and is_module(name) else "")
        if library_name:
            link.mark(f"the tests take {name!r} from the program, and {library_name} has one too")
    return data


def namesake(name: str) -> str:
    """A library that has something of that name; "" where none does."""
    for library_name in sorted(PUBLIC - _NO_VALUES):
        flag = library_name == "re" and len(name) == 1
        if not flag and name in vars(importlib.import_module(library_name)):
            return library_name
    return ""


def install(module: types.ModuleType) -> None:
    """Make the program's module one that can be imported, and the packages that its name has before it."""
    parts = module.__name__.split(".")
    sys.modules[module.__name__] = child = module
    for count in range(len(parts) - 1, 0, -1):
        package = types.ModuleType(".".join(parts[:count]))
        package.__path__ = []
        setattr(package, parts[count], child)
        sys.modules[package.__name__] = child = package


def is_module(name: str) -> bool:
    """A module is known by that name."""
    return name in _MODULE_ALIASES or name in sys.stdlib_module_names


def is_library(name: str, used: set[str]) -> bool:
    """The name is the library's, as the tests use it; ``used``: what they use by it."""
    if name in _COMPARE or not is_module(name):
        return True  # for ``library`` to say
    if not used:
        return False
    try:
        return any(hasattr(importlib.import_module(_MODULE_ALIASES.get(name, name)), attribute) for attribute in used)
    except ImportError:
        return True


def library(space: dict[str, Any], name: str) -> bool:
    """The name is a module's, or that of what tests compare with; whether or not it is on this host."""
    whole = _MODULE_ALIASES.get(name, name)
    try:
        if name in _COMPARE:
            space[name] = getattr(importlib.import_module(_COMPARE[name]), name)
        elif whole != name or whole in sys.stdlib_module_names or whole in ("numpy", "pytest"):
            space[name] = importlib.import_module(whole)
        else:
            return False
    except (ImportError, AttributeError):
        pass  # then the tests do without: the program's word for it is no library
    return True
