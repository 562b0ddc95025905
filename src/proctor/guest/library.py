"""What of the standard library may be named across the pipe of sealed tests.

The tests may name anything to the program's side. What the program names is
looked up where the tests run, so only among modules and exceptions that cannot
end, skip or judge a test: nothing of unittest, nothing that a module does when
it is imported.
"""

from __future__ import annotations

import builtins
import sys
import types
from typing import Any

# Modules whose functions and values tests may get by a name that the program imported.
PUBLIC = frozenset(
    "array base64 binascii bisect calendar cmath collections collections.abc copy dataclasses datetime decimal enum "
    "fractions functools hashlib heapq html itertools json math numbers operator pprint random re statistics string "
    "struct textwrap time typing unicodedata uuid zlib".split()
)
# Types that tests compare with: module by name.
TYPES = {"Decimal": "decimal", "Fraction": "fractions", "timedelta": "datetime"} | dict.fromkeys(
    ("Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"), "collections"
)
_IN_C = {"_bisect", "_collections", "_datetime", "_decimal", "_functools", "_heapq", "_json", "_operator", "_random",
         "_statistics", "_struct", "_hashlib", "_string", "_collections_abc", "_pydatetime", "_pydecimal", "_csv",
         "_queue", "_sqlite3"}  # fmt: skip
# Modules whose exceptions arrive as themselves.
_RAISING = PUBLIC | frozenset(
    "_csv _queue _struct argparse configparser csv getopt graphlib http.client ipaddress json.decoder locale pickle "
    "_pickle queue re._constants shutil sqlite3 subprocess tarfile tokenize tomllib urllib.error "
    "xml.etree.ElementTree zipfile zoneinfo zoneinfo._common".split()
)
# Classes that are data: what calling them or an operator of theirs gives is data again, or an error.
_CLASSES = frozenset("bool int float complex str bytes bytearray list tuple set frozenset dict range".split())
# What a program may raise that is no Exception; tests of a command line ask for it.
_ENDS = frozenset(("SystemExit", "KeyboardInterrupt"))
# Would catch a failed assertion where the program gives one under a name of its own.
_CATCH_ALL = frozenset(("AssertionError", "Exception", "BaseException", "BaseExceptionGroup"))


def data_class(name: Any) -> Any:
    """A built-in class that may stand in data, or None."""
    found = getattr(builtins, name, None) if type(name) is str else None
    if not isinstance(found, type) or found.__name__ != name:
        return None
    if name in _CLASSES or (issubclass(found, Exception) and name not in _CATCH_ALL):
        return found
    return None


def builtin_exception(name: Any) -> Any:
    """A built-in exception class that a program may raise where tests run, or None."""
    found = getattr(builtins, name, None) if type(name) is str else None
    if not isinstance(found, type) or not issubclass(found, BaseException):
        return None
    if name in _ENDS or issubclass(found, Exception):
        return found
    return None


def library_exception(name: Any) -> Any:
    """An exception class of the standard library that a program may raise where tests run; else Exception.

    BaseException for a built-in one that is no Exception.
    """
    if type(name) is str and name.startswith("builtins:"):
        return exception_class(name.partition(":")[2]) or Exception
    found = by_name(name, _RAISING) if type(name) is str else None
    return found if isinstance(found, type) and issubclass(found, Exception) else Exception


def exception_class(name: Any) -> Any:
    """A built-in exception class, or one of the standard library by ``module:name``, that a class may be made from; or None.

    For a built-in one that is no Exception, and that no program may raise here, BaseException: what expects an
    Exception must not meet it.
    """
    if type(name) is str and ":" in name:
        return library_exception(name)
    found = getattr(builtins, name, None) if type(name) is str else None
    if not isinstance(found, type) or not issubclass(found, BaseException):
        return None
    return builtin_exception(name) or BaseException


class Named(str):
    """``module:name`` of something that the tests' side has another of by now."""

    __slots__ = ()


def library_name(value: Any) -> str | None:
    """``module:name`` of a function or class of the standard library; None for anything else."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(value, types.BuiltinMethodType) and isinstance(value.__self__, types.ModuleType):
        module = value.__self__.__name__
    elif isinstance(value, types.MethodDescriptorType):  # str.upper
        module = value.__objclass__.__module__
    if type(module) is not str or type(name) is not str:
        return None
    return f"{module}:{name}" if by_name(f"{module}:{name}") is value else None


def by_name(name: str, among: frozenset[str] | None = None) -> Any:
    """What ``library_name`` names, imported where it must be; None where there is none.

    Args:
        name: ``module:name``.
        among: modules that may be imported for it; None: any of the standard library.
    """
    module, _, path = name.partition(":")
    if among is None:
        known = module.partition(".")[0] in sys.stdlib_module_names
    else:
        known = module in among or module in _IN_C
    if not known:
        return None
    try:
        found: Any = __import__(module, fromlist=["x"])
        for part in path.split("."):
            found = vars(found)[part] if among is not None else getattr(found, part)
    except (ImportError, AttributeError, ValueError, KeyError, TypeError):
        return None
    return found


def of_object(value: Any) -> tuple[str, Any] | None:
    """How a method that every object has goes along, so that ``A.__repr__ is object.__repr__`` is what it is; else None."""
    if not isinstance(value, types.WrapperDescriptorType | types.MethodDescriptorType):
        return None
    name = value.__name__
    return ("of_object", name) if value.__objclass__ is object and vars(object).get(name) is value else None


def read_of_object(name: Any) -> Any:
    """And back."""
    found = vars(object).get(name) if type(name) is str else None
    if not isinstance(found, types.WrapperDescriptorType | types.MethodDescriptorType):
        raise ValueError("no method of every object")
    return found
