"""The tests' side of sealed tests: stand-ins for what the program defines.

A function of the program is an object that can be called; an instance, one
whose attributes and special methods are the program's; a class, a class of our
own made after its description. What comes back from a call is data, or another
stand-in. A stand-in never equals data: whether it does would be for the program
to say. Two of them are compared by the program's own ``__eq__``, as a test of
a class means it. Exceptions arrive as real ones, of built-in classes or of
classes made here below the same built-in class.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from . import sealing
from .changes import change
from .sealing import Broken, Pipe, Reader, Refused, Writer

_ENDS = ("__next__", "send", "throw")  # methods that may end a loop
# Has the name of each method that data has, of every kind that is copied.
_DATA = type("Data", (), {name: 0 for kind in sealing.COPIED for name in dir(kind) if name[:2] != "__"})
_BEYOND_DOUBT = frozenset(f"__{name}__" for name in "call next enter exit str repr format hash bool eq ne del".split())
MADE, OF_ITS_KIND = 1, 2  # the tests made it; or a method of such an object did, and it is of the same class
_MOST_CLASSES = 10_000


class Link:
    """The program at the other end of a pipe."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.kinds: dict[int, Any] = {}
        self.numbers: dict[Any, int] = {}  # a class made here -> its number
        self.alive: dict[int, Any] = {}  # weak references to stand-ins
        self.dropped: list[int] = []
        self.broken = ""
        self.named: frozenset[Any] = frozenset()  # classes that the tests took from the program by name
        self.valued: set[type] = set()  # classes whose objects the tests made from arguments
        self.claim = ""  # where a pass hangs on what an object of such a class says of another
        self.undecided = ""  # why the verdict would be the program's word, by its own choice

    def ask(self, what: str, target: Any, name: str = "", args: tuple[Any, ...] = (), keywords: Any = None) -> Any:
        """One request and its answer; raises what the program raised."""
        with sealing.lock:
            if self.broken:
                raise Broken(self.broken)
            if self.doubtful(what, target, name):
                kind = type(target).__name__ if isinstance(target, Standin) else "a class"
                self.undecided = (
                    f"the tests use {kind[:50]!r} as data, by {name[:50]!r}: an object that they did not make"
                )
            if what == "call" and (args or keywords) and isinstance(target, StandinType):
                self.valued.add(target)
            dropped, self.dropped = self.dropped, []
            writer = Writer(self.foreign)
            writer.put((what, target, name, list(args), keywords or {}, dropped))
            try:
                self.pipe.send(bytes(writer.out))
                value = self.answer(args)
            except Broken as exc:
                self.broken = str(exc)
                raise
            except (StopIteration, StopAsyncIteration) as exc:
                if what == "special" and name == "__next__":
                    object.__setattr__(target, "__ended__", True)
                    raise
                if isinstance(target, Standin) and target.__via__ in _ENDS:
                    raise
                raise RuntimeError(f"the program raised {type(exc).__name__}") from None
            return self.origin(value, what, target, name)

    def doubtful(self, what: str, target: Any, name: str) -> bool:
        """Nobody can say whether this is used as an object, or stands where data was due.

        Then its operators and methods would be the judge, and what they are handed perhaps the answer. Sound are
        objects that the tests made, by calling a class that they name, and what operators make of those. Of others
        they may use what no data has: call them, go through an iterator once, ask for an attribute or for a method
        of another name, print them, compare them with another object.
        """
        if isinstance(target, StandinType):
            return target not in self.named and what == "get" and hasattr(_DATA, name)
        if not isinstance(target, Standin) or target.__sound__ == MADE:
            return False
        if what == "special":
            doubt = name not in _BEYOND_DOUBT and not (name == "__iter__" and hasattr(type(target), "__next__"))
        else:
            doubt = what == "get" and hasattr(_DATA, name)
        if doubt and target.__sound__ == OF_ITS_KIND:
            self.claim = f"the tests use what a method of {type(target).__name__[:50]!r} returned by {name[:50]!r}"
            return False
        return doubt

    def origin(self, value: Any, what: str, target: Any, name: str) -> Any:
        """Note which classes the tests have by name, and which objects they made."""
        if isinstance(value, StandinType):
            # A class has a name in capitals; what the tests call by another is a function to them.
            if what == "get" and name.lstrip("_")[:1].isupper() and not isinstance(target, Standin):
                self.named |= {value}
        elif isinstance(value, Standin):
            if what == "get" and isinstance(target, Standin | StandinType):
                object.__setattr__(value, "__via__", name)
                object.__setattr__(value, "__owner__", target)
            elif what == "call":
                maker = target if isinstance(target, StandinType) else getattr(target, "__owner__", None)
                if isinstance(maker, StandinType) and maker in self.named and type(value) is maker:
                    object.__setattr__(value, "__sound__", MADE)
                    return value
                if value.__sound__:
                    value = alias(value)
                # Complex numbers have methods that give complex numbers; a class that only holds functions has not.
                if (
                    isinstance(maker, Standin)
                    and type(maker) is type(value)
                    and maker.__sound__
                    and type(value) in self.valued
                ):
                    object.__setattr__(value, "__sound__", OF_ITS_KIND)
            elif what == "special" and type(value) is type(target) and target.__sound__:
                object.__setattr__(value, "__sound__", target.__sound__)
        return value

    def answer(self, args: tuple[Any, ...] = ()) -> Any:
        """The answer that is due; changed arguments are changed here too, and printed text is printed."""
        data = self.pipe.receive()
        how, at = data[:1], 1
        parts = []
        for _ in range(2):
            size = int.from_bytes(data[at : at + 4], "big")
            parts.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        fresh, text = Reader(parts[0], self.own).whole()
        try:
            for row in fresh:
                self.learn(*row)
            if text:
                sys.stdout.write(text)
            for index, items in Reader(data[at:], self.own).whole():
                change(args[index], items)
        except (TypeError, ValueError, IndexError, AttributeError) as exc:
            raise Broken(f"the answer cannot be read: {exc}") from None
        value = Reader(parts[1], lambda kind, payload: self.own(kind, payload, args)).whole()
        if how != b"E":
            return value
        if not isinstance(value, BaseException):
            raise Broken("the answer is no exception")
        raise value

    # ------------------------------------------------------------ values

    def foreign(self, value: Any) -> tuple[str, Any]:
        """What the tests pass that is no data: a stand-in, or something of the standard library."""
        if isinstance(value, Standin):
            return "handle", number_of(value)
        if isinstance(value, type) and value in self.numbers:
            return "handle", self.numbers[value]
        if isinstance(value, BaseException):  # one of the program's, handed back
            known = next(base for base in type(value).__mro__ if base.__module__ == "builtins")
            return "exception", (known.__name__, sealing.plain_arguments(value))
        if isinstance(value, types.ModuleType) and getattr(value, "__standin__", None) is not None:
            return "handle", 0
        name = sealing.library_name(value)
        if name is None and self.undecided:
            raise TypeError("a function of the tests cannot be passed to this object")
        if name is None:
            what = "a function" if isinstance(value, types.FunctionType | types.MethodType) else type(value).__name__
            refuse(f"they pass {what} of their own to the program")
        return "library", name

    def own(self, kind: str, payload: Any, args: tuple[Any, ...] = ()) -> Any:
        """What an answer holds that is no data."""
        if kind == "argument":
            return args[payload]
        if kind == "class":
            return self.kinds[payload]
        if kind == "raised":
            number, arguments = payload
            return sealing.made_exception(self.kinds[number], arguments)
        if kind == "library_exception":
            name, arguments = payload
            found = sealing.by_name(name)
            if not isinstance(found, type) or not issubclass(found, BaseException):
                raise ValueError(name)
            return sealing.made_exception(found, arguments)
        if kind != "handle":
            raise ValueError(kind)
        number, class_number = payload
        known = self.alive.get(number)
        if known is not None and (found := known()) is not None:
            return found
        made = object.__new__(self.kinds[class_number])
        blank(made, number)
        self.alive[number] = weak(made)
        return made

    def learn(self, number: int, name: str, error: bool, bases: list[Any], special: list[str]) -> None:
        """Make the class that stands for one of the program's."""
        if type(number) is not int or type(name) is not str or number in self.kinds or len(self.kinds) > _MOST_CLASSES:
            raise ValueError("no class")
        found = [self.kinds[base] if type(base) is int else sealing._builtin(base) for base in bases]
        if error:
            parents = tuple(base for base in found if issubclass(base, BaseException)) or (Exception,)
            made: Any = type(name, parents, {"__module__": "solution"})
        else:
            parents = tuple(base for base in found if isinstance(base, StandinType)) or (Standin,)
            space = {method: _METHODS[method] for method in special if method in _METHODS}
            made = StandinType(name, parents, {"__slots__": (), **space}, link=self)
        self.kinds[number], self.numbers[made] = made, number

    def let_go(self, number: int) -> None:
        self.alive.pop(number, None)
        self.dropped.append(number)


def refuse(reason: str) -> Any:
    """These tests cannot be sealed: said at once, whatever the test would make of an exception."""
    for tell in on_refusal:
        tell(reason)
    raise Refused(reason)


on_refusal: list[Any] = []


class StandinType(type):
    """The type of classes that stand for the program's own."""

    __link__: Link

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any], link: Link | None = None) -> Any:
        if link is None and bases and name != "Standin":
            refuse("they derive a class from one of the program's")
        made = super().__new__(mcs, name, bases, space)
        if link is not None:
            type.__setattr__(made, "__link__", link)
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any], link: Link | None = None) -> None:
        super().__init__(name, bases, space)

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        return cls.__link__.ask("call", cls, "", args, keywords)

    def __getattr__(cls, name: str) -> Any:
        return cls.__link__.ask("get", cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        cls.__link__.ask("set", cls, name, (value,))


class Standin(metaclass=StandinType):
    """An object of the program's. Whatever is not here is asked for over there."""

    __slots__ = ("__ended__", "__keep__", "__number__", "__owner__", "__sound__", "__via__", "__weakref__")

    def __getattr__(self, name: str) -> Any:
        return type(self).__link__.ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        type(self).__link__.ask("set", self, name, (value,))

    def __delattr__(self, name: str) -> None:
        type(self).__link__.ask("delete", self, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Standin) and number_of(self) == number_of(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return number_of(self)

    def __str__(self) -> str:
        return text(type(self).__link__.ask("special", self, "__str__"))

    def __repr__(self) -> str:
        return text(type(self).__link__.ask("special", self, "__repr__"))

    def __format__(self, spec: str) -> str:
        return text(type(self).__link__.ask("special", self, "__format__", (spec,)))

    def __del__(self) -> None:
        try:
            if self.__keep__ is None:
                type(self).__link__.let_go(number_of(self))
        except Exception:
            pass  # at the interpreter's end there may be nothing left to tell


def is_standin(value: Any) -> bool:
    """It is the program's, whatever it looks like."""
    return isinstance(value, Standin | StandinType)


def blank(made: Any, number: int, keep: Any = None) -> None:
    """Fill a new stand-in's slots; ``keep``: what it is another name of."""
    for slot, first in (
        ("number", number),
        ("via", ""),
        ("owner", None),
        ("sound", 0),
        ("ended", False),
        ("keep", keep),
    ):
        object.__setattr__(made, f"__{slot}__", first)


def alias(value: Any) -> Any:
    """Another name of an object that came back from a call, where data may have been due: it is not sound."""
    made = object.__new__(type(value))
    blank(made, number_of(value), value)
    return made


def number_of(value: Any) -> int:
    number = object.__getattribute__(value, "__number__")
    assert type(number) is int
    return number


def weak(value: Any) -> Any:
    import weakref

    return weakref.ref(value)


def text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("no text came back")
    return value


def _special(name: str) -> Any:
    def method(self: Any, *args: Any) -> Any:
        return type(self).__link__.ask("special", self, name, args)

    method.__name__ = name
    return method


def _compared(name: str) -> Any:
    """Equality is for two stand-ins alone, and a plain truth value."""

    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, Standin):
            return name == "__ne__"
        return type(self).__link__.ask("special", self, name, (other,)) is True

    method.__name__ = name
    return method


def _next(self: Any) -> Any:
    if self.__ended__:
        raise StopIteration  # an iterator ends once: what a program gives afterwards is another answer
    return type(self).__link__.ask("special", self, "__next__")


def _exit(self: Any, kind: Any, value: Any, trace: Any) -> bool:
    """A failed assertion is the tests' to raise, and no program's to swallow; nor are their frames for it to see."""
    swallow = type(self).__link__.ask("special", self, "__exit__", (None, value, None))
    return swallow is True and not isinstance(value, AssertionError)


def _call(self: Any, *args: Any, **keywords: Any) -> Any:
    return type(self).__link__.ask("call", self, "", args, keywords)


def _truth(self: Any) -> bool:
    return type(self).__link__.ask("special", self, "__bool__") is True


def _methods() -> dict[str, Any]:
    from .serving import SPECIAL

    found = {name: _special(name) for name in SPECIAL}
    found |= {"__eq__": _compared("__eq__"), "__ne__": _compared("__ne__"), "__call__": _call, "__bool__": _truth}
    found |= {"__next__": _next, "__exit__": _exit}
    for name in ("__str__", "__repr__", "__format__"):
        del found[name]  # every stand-in has these
    return found


_METHODS = _methods()
