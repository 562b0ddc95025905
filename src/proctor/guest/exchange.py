"""What sealed tests and the program send each other that is no data: stand-ins, classes and exceptions."""

from __future__ import annotations

import types
import weakref
from typing import Any

from . import raising, sealing
from .arguments import is_plain, made_exception, plain_arguments
from .claims import Claims
from .comparing import ORDERS
from .contents import is_looked_into, real_class
from .keeping import Nans
from .library import Named, exception_class, library_exception, library_name
from .likedata import data_methods, made_from, parts
from .operators import METHODS
from .reading import iterates_over_a_call
from .serving import UNHASHABLE
from .soundness import MADE, is_operator
from .standins import ASKS, Standin, StandinType, another, blank, called_name, number_of, stop

MOST_CLASSES = 10_000
MOST_LENT = 100


def again(held: list[Any]) -> Any:
    """Gives the tests' own reference to an object that they had put into a container, where it still is in there.

    Only where the container held objects of one class and nothing else: no data was due in any place of it.
    """
    alike = len({type(item) for item in held}) == 1 and isinstance(held[0], Standin)
    known = {number_of(item): item for item in held} if alike else {}
    return lambda new: known.get(number_of(new), new) if known and isinstance(new, Standin) else new


def actor(target: Any) -> int:
    """The number of the object that a request is to, or whose method; 0 where there is none."""
    owner = target.__owner__ if isinstance(target, Standin) else None
    if isinstance(owner, Standin):
        return number_of(owner)
    return number_of(target) if isinstance(target, Standin) else 0


def weak(value: Any) -> Any:
    return weakref.ref(value)


def is_word(method: Any, args: tuple[Any, ...]) -> bool:
    """A method that an operator calls, taken by its name, whose answer is for the object to say, or one that is in doubt."""
    name, owner = method.__via__, method.__owner__
    if owner is None or not is_operator(name):
        return False
    of = (args or (None,))[0] if isinstance(owner, StandinType) else owner
    return name in (*ORDERS, "__eq__", "__ne__") or not (isinstance(of, Standin) and of.__sound__ == MADE)


class Exchange(Claims):
    """The part of a link to the program that makes something of what comes, and says what goes."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: dict[int, Any] = {}
        self.numbers: dict[Any, int] = {}  # a class made here -> its number
        self.alive: dict[int, Any] = {}  # weak references to stand-ins
        self.dropped: list[int] = []
        self.arrived: list[Any] = []  # classes that the last answer held
        self.hashed: dict[int, int] = {}  # the last hash of each object that had one
        self.plain: dict[int, tuple[Any, bool]] = {}  # data in objects, and whether it stays
        self.tests = ""  # their source
        self.chosen: set[str] = set()  # modules of what the program gave of a library's under a name of the tests
        self.nans = Nans(1)
        self.lent: dict[int, BaseException] = {}  # exceptions of the tests' own that the program was given
        self.giving: list[int] = []  # objects that go along with a request

    def foreign(self, value: Any) -> tuple[str, Any]:
        """What the tests pass that is no data: a stand-in, or something of the standard library."""
        if type(value) is float:
            return "nan", self.nans.number(value)
        if isinstance(value, Standin):
            self.giving.append(number_of(value))
            return "handle", number_of(value)
        if isinstance(value, type) and value in self.numbers:
            return "handle", self.numbers[value]
        if fields := sealing.record_fields(value):
            of = vars(type(value)).get(sealing.OF)
            mine = "record", (type(value).__name__, fields, tuple(value))
            return mine if of is None else ("record_of", (self.numbers[of], tuple(value)))
        if isinstance(value, BaseException):
            return self.lend(value, raising.builtin_base(type(value)))
        if isinstance(value, types.ModuleType) and getattr(value, "__standin__", None) is not None:
            return "handle", 0
        if type(value) is Named:
            return "library", str(value)
        name = library_name(value)
        if type(value) is types.GenericAlias and not all(isinstance(part, type) for part in value.__args__):
            raise TypeError(
                "a subscript of a class that a program gave for data"
            )  # its choice, and no code of the tests
        if name is None:
            if self.is_by_program(value):
                stop("undecided", f"the tests pass a {called_name(type(value))} to the program that it may have led to")
            what = "a function" if isinstance(value, types.FunctionType | types.MethodType) else type(value).__name__
            stop("refused", f"they pass {what} of their own to the program")
        return "library", name

    def is_by_program(self, value: Any) -> bool:
        """What cannot be sent may be there by the program's choice, so that it would choose to be judged beside its tests.

        It gave a library's class under a name that the tests call, a pattern whose method they call, or what they make an
        iterator of; or a class has, or has not, an operator that they take by its name.
        """
        kind = type(value)
        if kind is types.MethodType:
            return isinstance(value.__self__, Standin)
        if kind is object:
            return "object(" not in self.tests
        if kind.__module__ == "re":
            return "re." not in self.tests and "import re" not in self.tests
        if kind.__name__.endswith("iterator"):
            return iterates_over_a_call(self.tests)
        return kind.__module__ in self.chosen

    def lend(self, exc: BaseException, kind: type[BaseException]) -> tuple[str, Any]:
        """An exception that the tests made: what comes back is that one, where it is of a class that a program may raise."""
        more = self.class_of(exc)
        whole = more and all(is_plain(part, (Standin,)) for part in exc.args)
        plain = kind.__name__, exc.args if whole else plain_arguments(exc)
        if type(exc) is not kind and not isinstance(type(exc), raising.ErrorType):
            return "exception", plain
        number = next((at for at, known in self.lent.items() if known is exc), len(self.lent))
        if number >= MOST_LENT:
            return "exception", plain
        self.lent[number] = exc
        return "lent", (number, *plain, *more)

    def class_of(self, exc: BaseException) -> tuple[Any, ...]:
        """Of an exception of one of the program's classes: the class, and what more it is made with, or has where it is the program's."""
        number = self.numbers.get(type(exc))
        if number is None or raising.builtin_base(type(exc)) is type(exc):
            return ()
        has = exc.__dict__.items() if raising.is_programs(exc) else ()
        return number, exc.__dict__.get(raising.KEYWORDS, {}), {name: value for name, value in has if name[:2] != "__"}

    def own(self, kind: str, payload: Any) -> Any:
        """What an answer holds that is no data."""
        if kind == "class":
            self.arrived.append(self.kinds[payload])
            return self.kinds[payload]
        if kind == "nan":
            return self.nans.of(payload)
        if kind == "raised":
            number, arguments, *more = payload
            if not issubclass(self.kinds[number], BaseException):
                raise ValueError("no exception")
            exc = made_exception(self.kinds[number], arguments)
            return raising.filled(exc, *more) if more else exc
        if kind == "lent":
            self.returned.add(id(self.lent[payload]))
            return self.lent[payload]
        if kind == "library_exception":
            name, arguments = payload
            return made_exception(library_exception(name), arguments)
        if kind == "record_of":
            made, kind_of = sealing.record(payload[1:]), self.kinds[payload[0]]
            if not (isinstance(kind_of, StandinType) and kind_of.__made_from__ is tuple):
                raise ValueError("no class of named tuples")
            setattr(type(made), sealing.OF, kind_of)
            return made
        if kind != "handle":
            raise ValueError(kind)
        number, class_number = payload
        self.comes(number)
        known = self.alive.get(number)
        if known is not None and (found := known()) is not None:
            # Lists that hold one object are equal without a question, so where it counts each answer's is another.
            return another(found) if number in self.unearned else found
        if number in self.dropped:  # let go as the request went, and here again: it stays over there
            self.dropped.remove(number)
        made = object.__new__(self.kinds[class_number])
        blank(made, number)
        self.alive[number] = weak(made)
        return made

    def learn(
        self, number: int, name: str, error: bool, bases: tuple[Any, ...], special: tuple[str, ...], data: str,
        library: str = "", fields: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """Make the class that stands for one of the program's."""
        if type(number) is not int or type(name) is not str or number in self.kinds or len(self.kinds) > MOST_CLASSES:
            raise ValueError("no class")
        if not all(type(names) is tuple and all(type(part) is str for part in names) for names in (special, fields)):
            raise ValueError("no methods, or no fields")
        found = [self.kinds[base] if type(base) is int else exception_class(base) or object for base in bases]
        if error:
            parents = tuple(base for base in found if issubclass(base, BaseException)) or (Exception,)
            also = tuple(base for base in found if isinstance(base, StandinType))
            space = {"__module__": "solution", raising.ALSO: also, **raising.methods(frozenset(special), stop)}
            made: Any = raising.ErrorType(name, parents, space, link=self)
        else:
            parents = tuple(base for base in found if isinstance(base, StandinType) and not is_looked_into(base)) or (
                Standin,
            )
            space = {method: METHODS[method] for method in special if method in METHODS}
            space["__library__"] = library if type(library) is str else ""
            space |= {ASKS: True} if "__instancecheck__" in special else {}
            space |= {"__hash__": None} if UNHASHABLE in special else {}
            if (real := real_class(space["__library__"])) is not None:
                space["__class__"] = property(lambda of: real)
            as_data = made_from(bases) | data_methods(
                data, name if library == f"builtins:{name}" else "", frozenset(special)
            )
            as_data |= parts(fields if data == "tuple" else ())
            if "__eq__" in special and "__eq__" not in as_data:
                space.setdefault("__ne__", METHODS["__ne__"])  # Python's own, which asks that
            made = StandinType(name, parents, {"__slots__": (), **space, **as_data}, link=self)
        self.kinds[number], self.numbers[made] = made, number

    def let_go(self, number: int) -> None:
        self.alive.pop(number, None)
        self.plain.pop(number, None)
        self.hashed.pop(number, None)
        self.dropped.append(number)
