"""The tests' side of the pipe: asks the program, and says what the tests may make of the answers."""

from __future__ import annotations

from typing import Any

from . import printing, raising, sealing
from .comparing import ORDERS
from .exchange import MOST_CLASSES, Exchange, actor, again, is_word
from .keeping import Kept
from .library import Named
from .sealing import Broken, Pipe, Reader, Writer
from .soundness import (
    MADE,
    OF_ITS_KIND,
    UNSURE,
    Names,
    data_has,
    is_arithmetic,
    is_class_name,
    is_small,
    may_be_data,
    of_special,
    only_method,
)
from .standins import (
    BY_NAME,
    SUBSCRIPT,
    Standin,
    StandinType,
    another,
    called_name,
    is_record_of,
    number_of,
    reference,
    stop,
)

_ENDS = ("send", "throw")  # methods of generators that may end a loop
_DIFFERENCES = ("__sub__", "__rsub__", "__isub__")
_ONLY_LOOKS = frozenset(("__eq__", "__hash__", "__str__", "__repr__", "__format__", "__bool__", *ORDERS))


class Link(Exchange):
    """The program at the other end of a pipe; ``names``: what the tests show to be classes."""

    def __init__(self, pipe: Pipe, names: Names | None = None) -> None:
        super().__init__()
        self.pipe, self.names = pipe, names or Names()
        self.hashes: dict[int, int] = {}  # of objects in it that are keys
        self.looking = False  # at containers, for what the tests changed
        self.broken = ""
        self.doubt = ""  # why this test's verdict would be the program's word: it is asked nothing more
        self.kept = Kept()
        self.came: set[int] = set()  # containers that the last answer held
        self.owners: dict[int, set[int]] = {}  # a container -> objects that it was passed to, or came from
        self.data_members: dict[Any, dict[str, Any]] = {}  # a class -> what it has by such names that is no object
        self.unsent = ""  # an answer of this test could not be sent, so it fails whatever it makes of that
        self.complained = False  # the program raised a TypeError in the test that runs
        self.silent = False  # what is asked for is called as a statement
        self.asked = 0  # what the tests asked of the program
        self.called: set[type] = set()  # classes whose objects the tests made
        self.valued: set[type] = set()  # and those that they made from arguments

    def ask(self, what: str, target: Any, name: str = "", args: tuple[Any, ...] = (), keywords: Any = None) -> Any:
        """One request and its answer; raises what the program raised."""
        with sealing.lock:
            if self.broken:
                raise Broken(self.broken)
            if self.reading:
                raise Broken("the answer cannot be read without asking the program more")
            if self.doubt:
                raise sealing.Refused(self.doubt)
            mark, doubt = ("", "") if self.silent and what == "get" else self.doubtful(what, target, name)
            if doubt and what != "get":
                stop("undecided", doubt)  # before the operand is sent: it may be the answer
            if what == "call" and isinstance(target, Standin) and is_word(target, args):
                self.mark(
                    f"the tests call {target.__via__[:50]!r} of the program's by its name: what it gives is its word"
                )
            if what == "call" and isinstance(target, StandinType):
                self.called.add(target)
                self.valued |= {target} if args or keywords else set()
            self.asked += what != "names"
            if what != "plain":
                self.plain = {number: row for number, row in self.plain.items() if row[1]}
            dropped, self.dropped = self.dropped, []
            first = self.kept.next
            self.looking = True
            try:
                changes = self.kept.changed()
                let_go = self.kept.unneeded()
                self.giving, self.given = [], set()
                writer = Writer(self.foreign, first, self.kept.numbers)
                pairs = tuple((keywords or {}).items())
                self.put(writer, (what, target, name, args, pairs, tuple(dropped), tuple(let_go), tuple(changes)))
            except BaseException:
                self.looking = False
                raise
            if isinstance(target, Standin) and number_of(target) in self.giving:
                self.giving.remove(number_of(target))  # what tests look at, or build, may be what they expect
            try:
                self.pipe.send(first.to_bytes(8, "big") + bytes(writer.out))
                for number, container in enumerate(writer.fresh, first):
                    self.kept.add(number, container)
                self.looking = False
                passed = self.kept.within(writer.named | set(range(first, self.kept.next)))
                if not (what == "special" and name in _ONLY_LOOKS):  # tests ask those of what they expect
                    self.given = set(self.giving)
                self.acting = actor(target)
                error, value = self.receive(passed, self.acting)
                made = number_of(value) if isinstance(value, Standin) else 0
                for holder in {self.acting or made, made}:
                    self.own_by(passed | self.came, holder)
            except BaseException as exc:  # whatever it was: the next answer would be this one
                self.broken = str(exc) if isinstance(exc, Broken) else f"{type(exc).__name__} as the program answered"
                raise
            if error is _UNSENT:
                self.unsent = "an answer of the program's is too large or too deep to be sent"
                raise sealing.Unsent(self.unsent)
            try:
                if error is not None:
                    self.claim = mark or self.claim
                    self.complained = self.complained or isinstance(error, TypeError)
                    raise error
            except (StopIteration, StopAsyncIteration) as exc:
                if what == "special" and name == "__next__":
                    object.__setattr__(target, "__ended__", True)
                    raise
                if isinstance(target, Standin) and target.__via__ in _ENDS:
                    stop("undecided", f"{target.__via__}() of the program's ended: whether it ends a loop is its word")
                if self.names.stops and type(exc) is StopIteration:
                    self.mark("the tests expect a StopIteration of the program's, which may also end a loop of theirs")
                    raise
                raise raising.Ended(*exc.args) from None
            self.came_of(what, name, value, mark, doubt)
            if what == "special" and isinstance(target, Standin) and self.is_nearness(name, value):
                self.mark(
                    f"the tests ask {called_name(type(target))} by an operator how near it is, and that is its own word"
                )
            if what == "names":
                return value
            return self.origin(value, what, target, name)

    def not_text(self, message: str) -> str:
        """Why a test that ended by this is open: a string of the program's own class is none for the methods of strings."""
        complained, self.complained = self.complained, False
        if message.startswith("TypeError") and not complained:
            for kind in self.numbers:
                if isinstance(kind, StandinType) and kind.__made_from__ is str and called_name(kind)[1:-1] in message:
                    return f"the tests use an object of {called_name(kind)} where only a string will do, and it is not here"
        return ""

    def is_nearness(self, name: str, value: Any) -> bool:
        """An operator's answer may be what tests hold near to something, which takes no knowledge of it."""
        if isinstance(value, Standin | StandinType) or value is NotImplemented:
            return False
        return is_arithmetic(name) if self.names.near else name in _DIFFERENCES and is_small(value)

    def found(self, holder: Any, name: str, value: Any) -> None:
        """The data in an object has this under a name: as ``ask`` for an attribute."""
        self.came_of("get", name, value, *self.doubtful("get", holder, name))

    def came_of(self, what: str, name: str, value: Any, mark: str, doubt: str) -> None:
        """A doubtful use gave this: mark a pass for it, or leave the test open."""
        is_data = what == "get" and type(value) in sealing.COPIED
        if is_data and only_method(name):
            return  # of data it would be a method, which equals no value
        if doubt and not is_data:
            stop("undecided", doubt)
        self.claim = mark or doubt or self.claim

    def doubtful(self, what: str, target: Any, name: str) -> tuple[str, str]:
        """Why this use of the program's has its word stand where data may be due: so that a pass is marked, or none is had."""
        if isinstance(target, StandinType):
            level, kind = self.names.level(target), target
            use = what == "special" or (what == "get" and data_has(name))
        elif isinstance(target, Standin):
            level, kind = target.__sound__, type(target)
            use = level != MADE and may_be_data(what, kind, name)
        else:
            return "", ""
        called = called_name(kind)
        if use and level == UNSURE:
            return f"the tests use {called} by {name[:50]!r}, and nothing in them shows that it is a class", ""
        if use and level == OF_ITS_KIND:
            return f"the tests use what {called} gave of its own kind by {name[:50]!r}", ""
        if use and level != MADE:
            return "", f"the tests use {called} as data, by {name[:50]!r}: an object that they did not make"
        return "", ""

    def origin(self, value: Any, what: str, target: Any, name: str) -> Any:
        """What the tests get: an object as a reference of its own, by how they got it."""
        if what == "call" and isinstance(target, Standin) and target.__via__ == SUBSCRIPT:
            target = target.__owner__
        owned = isinstance(target, Standin | StandinType | raising.ErrorType)
        for kind in self.arrived:
            inner = isinstance(target, StandinType) and self.names.level(target)
            if kind is value and what == "get" and (inner or not owned):
                self.names.took(kind, name)
            else:
                self.names.came(kind)
        if what == "get" and not owned:
            self.fetched(name, value)
        if (
            what == "call"
            and isinstance(target, StandinType)
            and not (isinstance(value, Standin) or is_record_of(value, target))
        ):
            self.mark(f"{called_name(target)} of the program is a class, and calling it gave {type(value).__name__}")
        if what == "call" and isinstance(target, StandinType):
            sealing.made_by_class(value)
        if what == "get" and isinstance(target, StandinType) and name in (first := self.data_members.get(target, {})):
            if not _alike(first[name], value):
                self.mark(f"{name[:50]!r} of {called_name(target)} is not always the same")
        if not isinstance(value, Standin):
            return value
        if what == "call" and isinstance(target, StandinType):
            value = self.of_class(value)
            self.called.add(type(value))
            self.valued |= {type(value)} if target in self.valued else set()
        before = self.members.get((target, name)) if what == "get" and isinstance(target, StandinType) else None
        if before is not None and number_of(before) != number_of(value):
            self.mark(f"{name[:50]!r} of {called_name(target)} is not always the same")
        if _is_of_class(what, target) and (target, name) not in self.members:
            value = self.of_class(value)
        if what == "get" and owned:
            member = isinstance(target, StandinType) and type(value) is target and self.names.level(target)
            return reference(value, via=name, owner=target, sound=OF_ITS_KIND if member else 0)
        if what == "special" and type(value) is type(target):
            sound = of_special(name, target.__sound__)
            return reference(value, via=name if sound else "", sound=sound)
        if what == "call":
            return reference(value, sound=self.of_call(type(value), target, name == BY_NAME))
        return value

    def of_class(self, value: Any) -> Any:
        """What a class gave: where it gave that before, which one it is is its word, and lists are to ask for it."""
        self.constructed(value)
        return another(value) if number_of(value) in self.unearned else value

    def of_call(self, kind: type, target: Any, by_name: bool) -> int:
        """What a call's result of a class is."""
        if isinstance(target, StandinType):
            return self.names.level(target, by_name) if kind is target else 0
        owner = target.__owner__ if isinstance(target, Standin) else None
        if isinstance(owner, StandinType):
            return OF_ITS_KIND if kind is owner and self.names.level(owner) else 0
        # Complex numbers have methods that give complex numbers; a class that only holds functions has not.
        own = isinstance(owner, Standin) and type(owner) is kind and owner.__sound__ and kind in self.valued
        return OF_ITS_KIND if own else 0

    def ask_of_file(self, name: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """What a method of a path of the program's says: its file is over there. ``name`` "": here it is opened."""
        if not name:
            stop("undecided", "the tests give a path of the program's to what opens files here: its file is not here")
        if name == "samefile":
            stop("undecided", "the tests ask a path of the program's whether it is the same file as another")
        return self.ask("call", Named(f"pathlib:Path.{name}"), "", args, keywords)

    def content(self, target: Any) -> Any:
        """The data in an object of a class that is made from a kind of data; the same for all that ask at once."""
        number = number_of(target)
        if number not in self.plain:
            value = self.ask("plain", target)
            self.plain[number] = value, type(value) in sealing.FIXED
        value = self.plain[number][0]
        if type(value) is not (type(target).__data__ or type(target).__made_from__):
            raise TypeError("the object has no data")
        return value

    def fetched(self, name: str, value: Any) -> None:
        """The tests took this from the program's module: what their source says of the name, it must be."""
        if name in self.names.derived:
            stop("refused", "they derive a class from one of the program's")
        if isinstance(value, StandinType):
            self.take_members(value, sorted(self.names.members.get(name, ())))
        error = isinstance(value, type) and issubclass(value, BaseException)
        several = type(value) is tuple and is_class_name(name) and any(isinstance(one, type) for one in value)
        if several or (error and not isinstance(value, raising.ErrorType) and value.__name__ != name):
            self.mark(
                f"the tests use {name[:50]!r} as a class, and in the program it is another name for what is raised anyway"
            )
        if name in self.names.classes and not (isinstance(value, StandinType) or error):
            self.mark(f"the tests use {name[:50]!r} as a class, and in the program it is none")

    def leave_open(self, reason: str) -> None:
        """The verdict of the test that runs would be the program's word, whatever the test makes of it."""
        self.doubt = self.doubt or reason

    def put(self, writer: Writer, request: tuple[Any, ...]) -> None:
        """Write a request; one that cannot be written says nothing of the program."""
        try:
            writer.put(request)
        except (ValueError, RecursionError) as exc:
            stop("undecided", f"what the tests pass to the program cannot be sent: {exc}")

    def own_by(self, passed: set[int], number: int) -> None:
        """An object may go on holding what was passed to it; ``number`` 0: none."""
        if number and len(self.owners) < MOST_CLASSES:
            for container in passed:
                self.owners.setdefault(container, set()).add(number)

    def take_members(self, kind: Any, names: list[str]) -> None:
        """Which objects a class has by names, before the program knows what is asked for: one of them is an answer."""
        for name in names:
            if (kind, name) in self.members:
                continue
            asked = self.asked
            try:
                value = self.ask("get", kind, name)
            except Exception:  # the test that uses it will see it
                value = _MISSING
            finally:
                self.asked = asked
            if not name.isupper() and type(value) is not kind:
                continue  # only what is of the class itself: other attributes may change
            if not isinstance(value, Standin):
                found = self.data_members.setdefault(kind, {})
                if value is not _MISSING and any(_alike(value, known) for at, known in found.items() if at != name):
                    self.mark(f"{name[:50]!r} of {called_name(kind)} is another of its members too")
                found.setdefault(name, value)
            else:
                if number_of(value) in map(number_of, self.members.values()):
                    self.mark(f"{name[:50]!r} of {called_name(kind)} is another of its members too")
                self.members[kind, name] = value  # kept: let go, it would come again under another number
                self.known.add(number_of(value))

    def receive(self, passed: set[int] | None = None, actor: int = 0) -> tuple[BaseException | None, Any]:
        """What the program raised, and the answer that is due; Broken where it cannot be read.

        What changed in containers is changed here too, and printed text is printed.

        Args:
            passed: numbers of the containers that went along with the request.
            actor: number of the object that it was to; 0: none.
        """
        data = self.pipe.receive()
        self.reading, self.arrived, self.hashes, self.first = True, [], {}, set()
        try:
            value, *texts = self.read(data[1:], passed or set(), actor)
            error = raising.raised(value) if data[:1] == b"E" else None
        except (Broken, sealing.Refused):
            raise
        except Exception as exc:
            raise Broken(f"the answer cannot be read: {exc}") from None
        finally:
            self.reading = False
        printing.show(texts)
        if data[:1] == b"U":
            error = _UNSENT
        return error, None if error is not None else value

    def read(self, data: bytes, passed: set[int], actor: int) -> tuple[Any, Any, Any]:
        """The answer's value and the printed texts."""
        at = 0
        parts = []
        for _ in range(4):
            size = int.from_bytes(data[at : at + 4], "big")
            parts.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        fresh, text, errors = Reader(parts[0], self.own).whole()
        for row in fresh:
            self.learn(*row)
        for number, hashed, content in Reader(parts[1], self.own).whole():
            self.hashes[int(number)] = self.hashed[int(number)] = int(hashed)
            if type(content) in sealing.FIXED:
                self.plain.setdefault(number, (content, True))
        reader = Reader(parts[2], self.own, self.kept.next, self.kept)
        value = reader.whole()
        self.came = set(range(self.kept.next, self.kept.next + len(reader.fresh)))
        for number, container in enumerate(reader.fresh, self.kept.next):
            self.kept.add(number, container)
        more = Reader(parts[3], self.own, self.kept.next, self.kept)
        rows = more.whole()
        for number, container in enumerate(more.fresh, self.kept.next):
            self.kept.add(number, container)
        for number in self.kept.change(rows, again):
            if number not in passed and actor not in self.owners.get(number, ()):
                self.mark("the program changed data that the tests held, in a call that they did not pass it to")
        if not (printing.is_printed(text) and printing.is_printed(errors)):
            raise ValueError("no text")
        return value, text, errors


_MISSING = object()
_UNSENT = Exception()


def _alike(one: Any, other: Any) -> bool:
    """The same data."""
    return one is other or (type(one) is type(other) and not isinstance(one, Standin) and bool(one == other))


def _is_of_class(what: str, target: Any) -> bool:
    """The answer is what a class has by a name or a subscript, or what a method of it gave; not an object of a call of it."""
    if isinstance(target, StandinType):
        return what in ("get", "special")
    return what == "call" and isinstance(target, Standin) and isinstance(target.__owner__, StandinType)
