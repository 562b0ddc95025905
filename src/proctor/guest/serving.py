"""The program's side of sealed tests: load the program and do what the other side asks, one request at a time.

Runs in the program's own process and is believed in nothing. A request is
8 bytes with the number of its first container and ``(what, object, name,
arguments, keyword arguments, numbers of handles that are let go, numbers of
containers that are, what the tests changed in containers)``; an answer four
values: new classes and printed texts; hashes of its own objects that are keys;
what came of it; what changed in containers.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from . import copies, derived, library, sealing
from .arguments import arguments_of
from .comparing import OF_TUPLES, ORDERS
from .keeping import Kept, Nans
from .printing import Printed
from .sealing import Broken, Pipe, Reader, Writer

# Special methods that a stand-in has when the class of its object has them.
SPECIAL = tuple(
    f"__{name}__"
    for name in (
        "call len iter next reversed contains getitem setitem delitem bool str repr format hash int float index complex "
        "bytes abs neg pos invert round trunc floor ceil enter exit eq ne lt le gt ge add sub mul truediv floordiv mod "
        "divmod pow matmul and or xor lshift rshift radd rsub rmul rtruediv rfloordiv rmod rdivmod rpow rmatmul rand ror "
        "rxor rlshift rrshift iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift"
    ).split()
)
UNHASHABLE = "__unhashable__"  # of a class that says only that its objects have no hash
_DEFAULT = ("__str__", "__repr__", "__format__", "__hash__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
_UNNAMED: dict[Any, str] = {types.GeneratorType: "builtins:generator"}  # has no name there
_THE_LOADERS = ("__builtins__", "__loader__", "__spec__")  # of a module: nothing that a program has written


class Server:
    """Objects of the program by number, and what is done with them."""

    def __init__(self, pipe: Pipe, module: types.ModuleType) -> None:
        self.pipe, self.module = pipe, module
        self.objects: dict[int, Any] = {0: module}
        self.numbers: dict[int, int] = {id(module): 0}
        self.classes: dict[type, int] = {}
        self.fresh: list[Any] = []
        self.count = 0
        self.printed = Printed()
        self.kept, self.nans = Kept(), Nans(2)
        self.next = 0  # number of the next container
        self.lent: dict[int, BaseException] = {}  # exceptions that the tests made, by their number
        self.lent_numbers: dict[int, int] = {}
        self.told: set[int] = set()  # exceptions of which this answer has told all

    def serve(self) -> None:
        """Until the other side has no more questions."""
        while True:
            try:
                data = self.pipe.receive()
            except Broken:
                return
            first = int.from_bytes(data[:8], "big")
            reader = Reader(data[8:], self.own, first, self.kept)
            what, target, name, arguments, keywords, dropped, let_go, changes = reader.whole()
            for number in dropped:
                self.numbers.pop(id(self.objects.pop(number, None)), None)
            self.kept.change(changes, lambda held: lambda new: new)
            for number in let_go:
                self.kept.drop(number)
            for number, container in enumerate(reader.fresh, first):
                self.kept.add(number, container)
            self.next = first + len(reader.fresh)
            try:
                self.respond(what, target, name, arguments, dict(keywords))
            except Broken:
                return  # ended by a limit, say, which then is what counts

    def respond(self, what: str, target: Any, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Do what one request asks for, and answer; Broken where nobody listens any more."""
        try:
            result = self.act(what, target, name, arguments, keywords)
        except BaseException as exc:
            self.failed(exc)
            return
        try:
            self.answer(b"V", result)
        except Broken:
            raise
        except BaseException as exc:
            self.unsent(exc)

    def act(self, what: str, target: Any, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """What one request asks for."""
        if what == "call":
            return target(*arguments, **keywords)
        if what == "get":
            return getattr(target, name)
        if what == "set":
            return setattr(target, name, arguments[0])
        if what == "delete":
            return delattr(target, name)
        if what == "special":
            return special(target, name, arguments)
        if what == "plain":
            return derived.plain(target)
        if what == "vars":
            return {name: value for name, value in list(vars(target).items()) if name not in _THE_LOADERS}
        if what == "names":  # of the tests' choice
            return [self.named(name) for name in arguments]
        raise ValueError(what)

    def named(self, name: str) -> tuple[str, Any]:
        """What the program means by a name of its module, and how the other side may find it itself."""
        if name not in vars(self.module):
            return "missing", None
        value = vars(self.module)[name]
        if isinstance(value, types.ModuleType):
            return "module", value.__name__
        known = library.library_name(value)
        return ("library", known) if known and known.endswith(f":{name}") else ("own", value)

    # ------------------------------------------------------------ values

    def foreign(self, value: Any) -> tuple[str, Any]:
        """By reference: a class with what is needed to stand in for it, anything else with its class."""
        if type(value) is float:
            return "nan", self.nans.number(value)
        if fields := sealing.record_fields(value):
            return "record_of", (self.class_number(type(value)), type(value).__name__[:100], fields, tuple(value))
        if isinstance(value, type):
            return "class", self.class_number(value)
        if copy := copies.of_program(value) or library.of_object(value):
            return copy
        if isinstance(value, BaseException) and (number := self.lent_numbers.get(id(value))) is not None:
            return "lent", number
        if isinstance(value, BaseException) and library.builtin_exception(type(value).__name__) is type(value):
            return "exception", (type(value).__name__, arguments_of(value))
        if isinstance(value, BaseException) and (known := library.library_name(type(value))):
            return "library_exception", (known, arguments_of(value))
        if isinstance(value, BaseException):
            more = () if id(value) in self.told else told_of(value)[:2]
            self.told.add(id(value))
            return "raised", (self.class_number(type(value)), arguments_of(value), *more)
        return "handle", (self.number(value), self.class_number(type(value)))

    def number(self, value: Any) -> int:
        known = self.numbers.get(id(value))
        if known is not None:
            return known
        self.count += 1
        self.objects[self.count] = value
        self.numbers[id(value)] = self.count
        return self.count

    def class_number(self, kind: type) -> int:
        if kind in self.classes:
            return self.classes[kind]
        number = self.classes[kind] = self.number(kind)
        error = issubclass(kind, BaseException)
        bases: list[Any] = []
        for base in kind.__bases__:
            builtin = getattr(sys.modules["builtins"], base.__name__, None) is base
            if builtin and (error or base is object or base in derived.BASES):
                bases.append(base.__name__)
            elif error and library.library_exception(known := library.library_name(base)) is base:
                bases.append(known)
            elif not builtin:
                bases.append(self.class_number(base))
        tuples = (*OF_TUPLES, "__hash__") if derived.data_base(kind) == "tuple" else ()
        found = [
            name
            for name in SPECIAL
            if _has(kind, name) and not (name in (*ORDERS, "__ne__", *tuples) and derived.is_datas(kind, name))
        ]
        hashed = next(vars(base)["__hash__"] for base in kind.__mro__ if "__hash__" in vars(base))
        found += [UNHASHABLE] if hashed is None and "__eq__" not in found else []
        if error:
            found = [name for base in kind.__mro__ if base.__module__ != "builtins" for name in vars(base)]
        known = "" if error else library.library_name(kind) or _UNNAMED.get(kind, "")
        if not known and type(kind).__instancecheck__ is not type.__instancecheck__:
            found.append("__instancecheck__")  # it says itself what is one of it
        fields = derived.fields(kind) if tuples else ()
        self.fresh.append(
            (number, kind.__name__[:100], error, tuple(bases), tuple(found), derived.data_base(kind), known, fields)
        )
        return number

    def own(self, kind: str, payload: Any) -> Any:
        if kind == "handle":
            return self.objects[payload]
        if kind == "library":
            return library.by_name(payload)
        if kind == "nan":
            return self.nans.of(payload)
        if kind == "lent":
            number, name, values, *more = payload
            if number not in self.lent:
                self.lent[number] = self.lent_as(values, *more) if more else sealing.plain_exception((name, values))
                self.lent_numbers[id(self.lent[number])] = number
            return self.lent[number]
        if kind == "record_of":
            return tuple.__new__(self.objects[payload[0]], payload[1])
        raise ValueError(kind)

    def lent_as(self, values: Any, number: int, keywords: dict[str, Any], has: dict[str, Any]) -> BaseException:
        """An exception of the program's class as the tests made it, or as they were given it."""
        kind: Any = self.objects[number]
        try:
            made = kind(*values, **keywords)
        except BaseException:  # of one that the program made some other way
            made = kind.__new__(kind, *values)
        assert isinstance(made, BaseException)
        vars(made).update(has)
        return made

    # ------------------------------------------------------------ answers

    def answer(self, how: bytes, result: Any, changed: bool = True) -> None:
        """Send an answer; its parts are packed one by one, since packing the later may find new classes."""
        self.told &= {id(result[0])} if how == b"E" else set()
        value = Writer(self.foreign, self.next, self.kept.numbers)
        value.put(result)
        changes = value.go_on()
        rows = tuple(self.kept.changed()) if changed else ()
        changes.put(rows)
        for number, _ in rows:  # whose keys are in pairs
            if isinstance(held := self.kept[number], dict | set):
                changes.keys += held
        for number, container in enumerate((*value.fresh, *changes.fresh), self.next):
            self.kept.add(number, container)
        keys, head = Writer(self.foreign), Writer(self.foreign)
        keys.put(tuple(self.hashes(changes.keys)))
        fresh, self.fresh = tuple(self.fresh), []
        head.put((fresh, self.printed.taken(1), self.printed.taken(2)))
        parts = (bytes(writer.out) for writer in (head, keys, value, changes))
        self.pipe.send(how + b"".join(len(part).to_bytes(4, "big") + part for part in parts))

    def hashes(self, keys: list[Any]) -> list[tuple[int, int, Any]]:
        """Number, hash and data of the program's own objects among keys: nothing is asked while an answer is read."""
        rows: dict[int, tuple[int, int, Any]] = {}
        while keys:
            key = keys.pop()
            number = self.numbers.get(id(key))
            if type(key) in (tuple, frozenset) or sealing.record_fields(key):
                keys += key
            elif number is not None and number not in rows and not isinstance(key, type):
                rows[number] = number, hash(key), derived.plain(key) if derived.data_base(type(key)) else None
        return list(rows.values())

    def failed(self, exc: BaseException) -> None:
        try:
            told = told_of(exc)
            self.told = {id(exc)}
            self.answer(b"E", (exc, *told))
        except Broken:
            raise
        except BaseException as why:
            self.unsent(why)

    def unsent(self, why: BaseException) -> None:
        """Say that there is an answer which cannot be sent: it is no exception of the program's, which tests may expect."""
        self.answer(b"U", type(why).__name__[:100], changed=False)


def _has(kind: type, name: str) -> bool:
    for base in kind.__mro__:
        if name in vars(base):
            return vars(base)[name] is not None and not (base is object and name in _DEFAULT[4:])
    return False


def told_of(exc: BaseException) -> tuple[Any, ...]:
    """What else tests may ask of an exception that was raised: its texts, where its class makes them; attributes; cause."""
    kind = type(exc)
    own = [base for base in kind.__mro__ if base.__module__ != "builtins"]
    texts: list[str | None] = []
    for name, write in (("__str__", str), ("__repr__", repr)):
        try:
            texts.append(str(write(exc))[:2000] if any(name in vars(base) for base in own) else None)
        except BaseException:
            texts.append(None)
    found = {name: value for name, value in list(vars(exc).items())[:20] if type(name) is str}
    for base in own:
        for name, value in list(vars(base).items())[:50]:
            if name[:2] == "__" or name in found:
                continue
            if isinstance(value, property):
                try:
                    found[name] = getattr(exc, name)
                except BaseException:
                    continue
            elif type(value) in sealing.COPIED:
                found[name] = value
    notes = getattr(exc, "__notes__", None)
    if type(notes) is list and all(type(note) is str for note in notes):
        found["__notes__"] = notes
    return tuple(texts), tuple(found.items()), exc.__cause__, exc.__context__, exc.__suppress_context__


def special(target: Any, name: str, arguments: tuple[Any, ...]) -> Any:
    """A special method as its operator calls it: from the class."""
    simple: dict[str, Any] = {
        "__bool__": bool,
        "__str__": str,
        "__repr__": repr,
        "__len__": len,
        "__iter__": iter,
        "__hash__": hash,
    }
    if name in simple:
        return simple[name](target)
    if isinstance(target, type) and name in ("__getitem__", "__contains__"):
        return target[arguments[0]] if name == "__getitem__" else arguments[0] in target  # type: ignore[index,operator]
    if name == "__call__":
        return target(*arguments)
    if name == "__next__":
        return next(target)
    if name == "__exit__" and isinstance(arguments[1], BaseException):
        arguments = (type(arguments[1]), arguments[1], _traceback(arguments[1]))
    for base in type(target).__mro__:
        if name in vars(base):
            method = vars(base)[name]
            return method.__get__(target, type(target))(*arguments)
    raise AttributeError(name)


def _traceback(exc: BaseException) -> types.TracebackType | None:
    """One of this process's own: the tests' frames stay where they are."""
    if exc.__traceback__ is None:
        try:
            raise exc
        except BaseException:
            pass
    return exc.__traceback__


def serve(pipe: Pipe, load: Any) -> None:
    """Load the program, say how that went, and serve."""
    module = types.ModuleType("nothing")
    server = Server(pipe, module)
    try:
        server.module = server.objects[0] = load()
        server.numbers = {id(server.module): 0}
    except BaseException as exc:
        server.failed(exc)
        raise
    server.printed.replace()
    server.answer(b"V", None)
    server.serve()
