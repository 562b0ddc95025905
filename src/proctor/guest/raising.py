"""Exceptions between sealed tests and the program: whose they are, and what the program may see of them."""

from __future__ import annotations

import opcode
import types
from typing import Any

from .arguments import MOST_TEXT
from .library import builtin_exception
from .sealing import Broken
from .serving import SPECIAL

TESTS_FILE = "<tests>"  # as their source is compiled
_RAISE = opcode.opmap["RAISE_VARARGS"]
_MARK = "__of_the_program__"
KEYWORDS = "__keywords__"  # with which the tests made one of the program's class
ALSO = "__also__"  # of a class of the program's: those that it is made from and that are no exceptions


class ErrorType(type):
    """A class of exceptions that stands for one of the program's, which is asked for what it has."""

    def __new__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any], link: Any) -> Any:
        return super().__new__(cls, name, bases, {**space, "__link__": link})

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any], link: Any) -> None:
        super().__init__(name, bases, space)

    def __getattr__(cls, name: str) -> Any:
        if name[:2] == "__":
            raise AttributeError(name)
        return cls.__link__.ask("get", cls, name)


class Ended(Exception):
    """A StopIteration of the program's, which would end a loop of the tests instead of their test."""


def mark(exc: BaseException) -> BaseException:
    """Note that the program raised it."""
    exc.__dict__[_MARK] = True
    return exc


def raised(answer: Any) -> BaseException:
    """The exception that an answer tells of: itself, its text, its attributes, its cause and its context."""
    exc, text, attributes, cause, context, suppressed = answer
    if not isinstance(exc, BaseException):
        raise Broken("the answer is no exception")
    filled(exc, text, attributes)
    if isinstance(cause, BaseException):
        exc.__cause__ = mark(cause)
    if isinstance(context, BaseException) and context is not exc:
        exc.__context__ = mark(context)
    exc.__suppress_context__ = suppressed is True
    return exc


def filled(exc: BaseException, text: Any, attributes: Any) -> BaseException:
    """An exception with what the program tells of it: its texts (``str`` and ``repr``) and its attributes."""
    for name, value in attributes:
        notes = name == "__notes__" and type(value) is list and all(type(note) is str for note in value)
        if type(name) is str and (notes or (name[:2] != "__" and not hasattr(BaseException, name))):
            exc.__dict__[name] = value
    for name, said in zip(("__text__", "__shown__"), text, strict=True):
        if type(said) is str:
            exc.__dict__[name] = said[:MOST_TEXT]
    return mark(exc)


def methods(names: frozenset[str], stop: Any) -> dict[str, Any]:
    """What a class has that stands for an exception class of the program's.

    Its code is not here: what it computes is not known of an exception that the tests made, nor by a method.

    Args:
        names: all that the program's class has, and those that it is made from.
        stop: ``standins.stop``.
    """
    computed = bool(names & {"__init__", "__new__", "__str__"})

    def missing(self: Any, name: str) -> Any:
        if (name in names or (computed and not is_programs(self))) and name[:2] != "__":
            stop("undecided", f"the tests ask an exception of the program's for {name[:50]!r}, which is not here")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def text(self: Any) -> str:
        if "__text__" in self.__dict__:
            return str(self.__dict__["__text__"])
        if computed and not is_programs(self):
            stop("undecided", "the tests ask for the text of an exception of the program's that they made")
        return str(builtin_base(type(self)).__str__(self))

    def shown(self: Any) -> str:
        if "__repr__" in names and "__shown__" not in self.__dict__:
            stop("undecided", "the tests ask for the repr of an exception of the program's that they made")
        return str(self.__dict__.get("__shown__", "")) or str(builtin_base(type(self)).__repr__(self))

    def unknown(name: str) -> Any:
        def method(self: Any, *args: Any) -> Any:
            stop("undecided", f"the tests use {name} of an exception of the program's, which is not here")

        return method

    def made(self: Any, *args: Any, **keywords: Any) -> None:
        super(BaseException, self).__init__()
        if keywords:
            self.__dict__[KEYWORDS] = keywords

    found = {name: unknown(name) for name in SPECIAL if name in names and name not in ("__str__", "__call__")}
    found |= {"__init__": made} if computed else {}
    return found | {"__getattr__": missing, "__str__": text, "__repr__": shown}


def is_programs(exc: BaseException) -> bool:
    """The program raised it."""
    return exc.__dict__.get(_MARK) is True


def innermost(exc: BaseException) -> types.TracebackType | None:
    """Where it was raised; None for one that never was."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def is_raised_by_tests(exc: BaseException) -> bool:
    """A ``raise`` statement of the tests' own source made it; not an assertion, a failed operation or a call."""
    if isinstance(exc, AssertionError) or is_programs(exc):
        return False
    trace = innermost(exc)
    if trace is None or trace.tb_frame.f_code.co_filename != TESTS_FILE:
        return False
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE


def is_good_end(exc: BaseException) -> bool:
    """A script of the tests has left with status 0, by a call of its own."""
    trace = innermost(exc)
    own = trace is not None and trace.tb_frame.f_code.co_filename == TESTS_FILE
    return own and type(exc) is SystemExit and exc.code in (None, 0, False)


def bare(exc: BaseException | None) -> BaseException | None:
    """What a program's ``__exit__`` is told: of an exception that is neither its own nor raised by the tests' own
    statement only the class, since a text may hold what was expected.
    """
    if exc is None or is_programs(exc) or is_raised_by_tests(exc):
        return exc
    kind = builtin_base(type(exc))
    empty = kind.__new__(kind)
    assert isinstance(empty, BaseException)
    return empty


def builtin_base(kind: type) -> Any:
    """The nearest built-in exception class that can be told to the program."""
    return next((base for base in kind.__mro__ if builtin_exception(base.__name__) is base), Exception)
