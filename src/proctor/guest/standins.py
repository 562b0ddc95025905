"""The tests' side of sealed tests: stand-ins for what the program defines.

A function of the program is an object that can be called; an instance, one
whose attributes and special methods are the program's; a class, a class of our
own made after its description. What comes back from a call is data, or another
stand-in. Where data was due a stand-in equals none: whether it does would be for
the program to say. What the tests made themselves is compared by the program's
own ``__eq__``, and by number while an answer is read. Exceptions arrive as real ones.
"""

from __future__ import annotations

import sys
from typing import Any

from . import contents, copies, sealing
from .library import Named, library_name
from .sealing import Refused
from .soundness import OF_ITS_KIND


def stop(word: str, reason: str) -> Any:
    """These tests cannot be sealed ("refused"), or their verdict would be the program's word ("undecided").

    Said at once, whatever the test would make of an exception; nothing more is sent to the program.
    """
    for tell in on_stop:
        tell(word, reason)
    raise Refused(reason)


def refuse(reason: str) -> Any:
    """These tests cannot be sealed."""
    stop("refused", reason)


on_stop: list[Any] = []
# What tests may ask an object for of all that is named like this.
_RELAYED = frozenset(
    "name qualname doc module dict annotations dataclass_fields dataclass_params match_args members abstractmethods "
    "isabstractmethod slots version author wrapped self func defaults kwdefaults cause context notes args origin".split()
)


def no_protocol(name: str) -> None:
    """Libraries look for these by themselves, and take the answer for their own memory, or for a file's name."""
    if name.startswith(("__array", "__cuda", "__dlpack", "__reduce", "__getstate", "__fspath", "__buffer")):
        raise AttributeError(name)


class StandinType(type):
    """The type of classes that stand for the program's own."""

    __link__: Any  # to the program

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any], link: Any = None) -> Any:
        if link is None and bases and name != "Standin":
            refuse("they derive a class from one of the program's")
        made = super().__new__(mcs, name, bases, {"__doc__": _doc, **space})
        if link is not None:
            type.__setattr__(made, "__link__", link)
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any], link: Any = None) -> None:
        super().__init__(name, bases, space)

    def __call__(cls, /, *args: Any, **keywords: Any) -> Any:
        return cls.__link__.ask("call", cls, "", args, keywords)

    def __getattr__(cls, name: str) -> Any:
        no_protocol(name)
        return cls.__link__.ask("get", cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        cls.__link__.ask("set", cls, name, (value,))

    def __delattr__(cls, name: str) -> None:
        cls.__link__.ask("delete", cls, name)

    def __bool__(cls) -> bool:
        return True

    # Classes that hold something: of an Enum its members.
    def __iter__(cls) -> Any:
        return cls.__link__.ask("special", cls, "__iter__")

    def __len__(cls) -> int:
        found = cls.__link__.ask("special", cls, "__len__")
        return found if type(found) is int else -1

    def __contains__(cls, item: Any) -> bool:
        return cls.__link__.ask("special", cls, "__contains__", (item,)) is True

    def __getitem__(cls, key: Any) -> Any:
        found = cls.__link__.ask("special", cls, "__getitem__", (key,))
        return of_types(cls, key, found)

    def __repr__(cls) -> str:
        here = cls is Standin or cls.__link__.reading
        return type.__repr__(cls) if here else text(cls.__link__.ask("call", Named("builtins:repr"), "", (cls,)))

    def __instancecheck__(cls, value: Any) -> bool:
        if type.__instancecheck__(cls, value):
            return True
        return cls is not Standin and (is_record_of(value, cls) or says(cls, "isinstance", value))


def is_record_of(value: Any, cls: Any) -> bool:
    """A named tuple, which is made here again, of a class of the program's."""
    return vars(type(value)).get(sealing.OF) is cls


def says(cls: Any, how: str, value: Any) -> bool:
    """A class that says itself what is an instance, or a subclass, of it: a Protocol, or an abstract class."""
    link = cls.__link__
    may_be_asked = ASKS in type.__dict__["__dict__"].__get__(cls) and not link.reading
    if not may_be_asked or not (is_standin(value) or type(value) in sealing.COPIED):
        return False
    said = link.ask("call", Named(f"builtins:{how}"), "", (value, cls)) is True
    if said or not is_standin(value):  # data that it has seen may serve a later answer
        link.mark(f"{called_name(cls)} says itself what is an instance or a subclass of it")
    return said


def of_types(cls: Any, key: Any, found: Any) -> Any:
    """``Stack[int]``, whose call is one of ``Stack``: where there are only classes in the brackets."""
    only = all(isinstance(part, type) for part in (key if type(key) is tuple else (key,)))
    return reference(found, via=SUBSCRIPT, owner=cls) if only and isinstance(found, Standin) else found


SUBSCRIPT = "[]"
BY_NAME = "by name"  # a class is called by what is the tests' name for it and nothing else
ASKS = "__asks__"  # has a class made here whose own says what belongs to it


class _Doc:
    """``__doc__`` of a class and of its objects, which is the program's."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        target = owner if instance is None else instance
        return None if owner is Standin else owner.__link__.ask("get", target, "__doc__")


_doc = _Doc()


class Standin(metaclass=StandinType):
    # An object of the program's. Whatever is not here is asked for over there.
    __data__: Any = None  # the kind of data that its class compares as
    __made_from__: Any = None  # the kind of data that its class is made from, whatever it compares as
    __library__ = ""  # the library's name of its class, by the program's word
    __slots__ = ("__ended__", "__keep__", "__life__", "__number__", "__owner__", "__sound__", "__via__", "__weakref__")

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__" == name[-2:] and name[2:-2] not in _RELAYED:
            raise AttributeError(name)  # the interpreter and libraries look for many: __mro_entries__, __bases__
        if sys._getframe(1).f_globals.get("__name__") == "ipaddress":
            raise AttributeError(name)  # its operators take anything for an address that has what an address has
        return type(self).__link__.ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        type(self).__link__.ask("set", self, name, (value,))

    def __delattr__(self, name: str) -> None:
        type(self).__link__.ask("delete", self, name)

    def __copy__(self) -> Any:
        return _copied(self, "copy:copy")

    def __deepcopy__(self, memo: Any) -> Any:
        return _copied(self, "copy:deepcopy")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return stop("undecided", "the tests pickle an object of the program's")

    def __dir__(self) -> Any:
        return type(self).__link__.ask("call", Named("builtins:dir"), "", (self,))

    # As ``object`` has it: what is no data of ours, or of another class of the program's, may say itself that they are equal.
    def __eq__(self, other: object) -> Any:
        if isinstance(other, Standin):
            same = number_of(self) == number_of(other)
            return bool(type(self).__link__.identical(self, other)) if same else NotImplemented
        return unlike(self, other)

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


def _copied(value: Any, how: str) -> Any:
    """A copy, made by the program's side: of the kind of what was copied, by the program's word."""
    made = type(value).__link__.ask("call", Named(how), "", (value,))
    return reference(made, sound=OF_ITS_KIND) if type(made) is type(value) and value.__sound__ else made


def unlike(one: Any, other: Any) -> Any:
    """``one == other`` where the tests' side is no stand-in: of data No, else for the other to say.

    Of two of one class of a library's it is not known here what the library's own operator would say. That leaves a
    test open only where the tests compare with what no program can send. Of data the answer is No, so that no program
    leaves open what it would fail.
    """
    known, kind = type(one).__library__, type(other)
    if known and not type(one).__link__.reading and vars(object)["__eq__"] is not getattr(kind, "__eq__", None):
        known_here = copies.is_copied(kind) or kind in sealing.COPIED or contents.of_class(kind)
        if not known_here and library_name(kind) == known:
            stop("undecided", f"the tests compare objects of {known[:100]}, which are not copied")
    return False if kind in sealing.COPIED else NotImplemented


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
        ("life", None),
        ("keep", keep),
    ):
        object.__setattr__(made, f"__{slot}__", first)


def reference(value: Any, via: str = "", owner: Any = None, sound: int = 0) -> Any:
    """Another name of an object, with what the tests' way to it says."""
    if not (via or sound):
        return value
    made = object.__new__(type(value))
    blank(made, number_of(value), value)
    for slot, given in (("via", via), ("owner", owner), ("sound", sound)):
        object.__setattr__(made, f"__{slot}__", given)
    return made


def another(value: Any) -> Any:
    """One more name of an object, with nothing said of the tests' way to it."""
    made = object.__new__(type(value))
    blank(made, number_of(value), value)
    return made


def is_same(one: Any, other: Any) -> bool:
    """``one is other``, for whom two references to an object are the object."""
    if isinstance(one, Standin) and isinstance(other, Standin):
        return number_of(one) == number_of(other)
    return one is other


def called_name(kind: Any) -> str:
    """A class's name for a reason, escaped and cut short."""
    return repr(type.__dict__["__name__"].__get__(kind)[:50])


def number_of(value: Any) -> int:
    number = object.__getattribute__(value, "__number__")
    assert type(number) is int
    return number


def text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("no text came back")
    return value


sealing.on_missing.append(lambda reason: stop("undecided", reason))
