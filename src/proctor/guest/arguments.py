"""What an exception was made with, as it is told to the other side of sealed tests, and made again there."""

from __future__ import annotations

from typing import Any

MOST_TEXT = 2000  # characters of an exception's text
_SCALARS = (str, int, float, bool, bytes, type(None))


def is_plain(value: Any, also: tuple[type, ...] = (), depth: int = 0) -> bool:
    """It is data, and so is all in it, but for objects of ``also``."""
    if type(value) is dict:
        value = (*value, *value.values())
    parts = value if type(value) in (tuple, list, set, frozenset) and depth < 8 else None
    if parts is None:
        return type(value) in _SCALARS or isinstance(value, also)
    return all(is_plain(part, also, depth + 1) for part in parts)


def _holds_class(value: Any, depth: int = 0) -> bool:
    """What is called would judge itself."""
    if type(value) is dict:
        value = (*value, *value.values())
    parts = value if type(value) in (tuple, list, set, frozenset) and depth < 8 else ()
    return isinstance(value, type) or any(_holds_class(part, depth + 1) for part in parts)


def arguments_of(exc: BaseException) -> tuple[Any, ...]:
    """An exception's arguments, or a group's text and members; its text where there is a class among them."""
    if isinstance(exc, BaseExceptionGroup):
        return exc.message, tuple(exc.exceptions)
    if isinstance(exc, OSError) and exc.filename is not None:  # the constructor takes it out of the arguments
        return exc.errno, exc.strerror, exc.filename
    arguments = exc.args if type(exc.args) is tuple else ()
    return _text(exc) if _holds_class(arguments) else arguments


def plain_arguments(exc: BaseException) -> tuple[Any, ...]:
    """The same where they are plain, else its text: what the tests hold is not for the program."""
    arguments = arguments_of(exc)
    return arguments if isinstance(exc, BaseExceptionGroup) or all(map(is_plain, arguments)) else _text(exc)


def _text(exc: BaseException) -> tuple[Any, ...]:
    try:
        return (str(exc)[:MOST_TEXT],)
    except BaseException:
        return ()


def made_exception(kind: Any, arguments: tuple[Any, ...]) -> BaseException:
    """An instance of an exception class; one that wants other arguments gets its text."""
    if type(arguments) is not tuple:
        raise ValueError("arguments are not plain")
    if issubclass(kind, BaseExceptionGroup):
        text, members = arguments
        if type(text) is not str or type(members) is not tuple:
            raise ValueError("no group of exceptions")
        group: BaseException = BaseExceptionGroup.__new__(kind, text, members)
        return group
    if _holds_class(arguments):
        raise ValueError("a class among the arguments")
    try:
        made = kind(*arguments)
    except Exception:
        made = kind.__new__(kind)
        made.args = arguments
    assert isinstance(made, BaseException)
    return made
