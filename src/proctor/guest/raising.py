"""Exceptions between sealed tests and the program: whose they are, and what the program may see of them."""

from __future__ import annotations

import opcode
from typing import Any

from .library import builtin_exception

TESTS_FILE = "<tests>"  # as their source is compiled
_RAISE = opcode.opmap["RAISE_VARARGS"]
_MARK = "__of_the_program__"


def mark(exc: BaseException) -> BaseException:
    """Note that the program raised it."""
    exc.__dict__[_MARK] = True
    return exc


def is_programs(exc: BaseException) -> bool:
    """The program raised it."""
    return exc.__dict__.get(_MARK) is True


def is_raised_by_tests(exc: BaseException) -> bool:
    """A ``raise`` statement of the tests' own source made it; not an assertion, a failed operation or a call."""
    if isinstance(exc, AssertionError) or is_programs(exc):
        return False
    trace = exc.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_code.co_filename != TESTS_FILE:
        return False
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE


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
