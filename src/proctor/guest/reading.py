"""What the source of sealed tests says by itself: the names that it binds and reads, and which it uses as classes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .library import TYPES
from .soundness import data_has, is_class_name

_LOOKS_AT_A_CLASS = frozenset("isinstance issubclass assertIsInstance assertNotIsInstance assertIsSubclass".split())
_COMPARES = frozenset(("assertEqual", "assertNotEqual", "assertLess", "assertGreater"))
_SCOPES = ("FunctionDef", "AsyncFunctionDef", "Lambda")

ONLY_AST = 0x400  # ast.PyCF_ONLY_AST, without the module


def parsed(source: str) -> Any:
    """The tree; None where the source is not Python."""
    try:
        return compile(source, "<tests>", "exec", ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError):
        return None


def kind_of(node: Any) -> str:
    return type(node).__name__


def inside(node: Any) -> Iterator[Any]:
    """A node and all below it, in the order of the source."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += reversed(node)
        elif hasattr(node, "_fields"):
            yield node
            waiting += [getattr(node, field, None) for field in reversed(node._fields)]


def bound_names(source: str) -> set[str]:
    """Names that the source's own top level imports or defines."""
    found: set[str] = set()
    tree = parsed(source)
    for node in tree.body if tree is not None else ():
        kind = kind_of(node)
        if kind in ("Import", "ImportFrom"):
            found.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif kind in ("FunctionDef", "AsyncFunctionDef", "ClassDef"):
            found.add(node.name)
        elif kind == "Assign":
            found.update(target.id for target in node.targets if kind_of(target) == "Name")
    return found


def lacks(source: str, own: tuple[str, ...], known: frozenset[str]) -> str:
    """What the source's top level imports, or uses of pytest, that is not here; "" where all is.

    Args:
        own: names of the program's module and the tests'.
        known: what there is of pytest where the image has none.
    """
    tree = parsed(source)
    tops = {name.partition(".")[0] for name in own}
    for node in tree.body if tree is not None else ():
        found: list[str] = []
        if kind_of(node) == "Import":
            found = [alias.name for alias in node.names]
        elif kind_of(node) == "ImportFrom" and not node.level:
            found = [node.module]
        for name in (*found, *_skipped_without(node)):
            top = name.partition(".")[0]
            if top not in tops and top != "pytest" and is_missing(top):
                return f"the tests import {top}, which is not in the image"
    if tree is not None and "pytest" in source and is_missing("pytest"):
        for node in inside(tree):
            if kind_of(node) == "Attribute" and getattr(node.value, "id", "") == "pytest" and node.attr not in known:
                return f"pytest.{node.attr} is not known here; give the package pytest to the image"
    return ""


def _skipped_without(statement: Any) -> list[str]:
    """Modules without which pytest would skip tests in it."""
    calls = [node for node in inside(statement) if kind_of(node) == "Call" and node.args]
    calls = [node for node in calls if getattr(node.func, "attr", getattr(node.func, "id", "")) == "importorskip"]
    return [text for node in calls if type(text := getattr(node.args[0], "value", None)) is str]


def is_script(tree: Any) -> bool:
    """A file that does its tests when it is run by itself: it has no tests by name, and an ``if __name__ == "__main__"``."""
    names = [node.name for node in tree.body if kind_of(node) in ("FunctionDef", "AsyncFunctionDef", "ClassDef")]
    if any(name.startswith(("test", "Test")) for name in names):
        return False
    return any(map(is_main, tree.body)) and not any("TestCase" in _written(node) for node in inside(tree))


def is_main(node: Any) -> bool:
    """``if __name__ == "__main__"``."""
    test: Any = getattr(node, "test", None)
    return kind_of(node) == "If" and kind_of(test) == "Compare" and getattr(test.left, "id", "") == "__name__"


def _written(node: Any) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


def is_missing(top: str) -> bool:
    """No such module is in the image."""
    import importlib.util

    try:
        return importlib.util.find_spec(top) is None
    except (ImportError, ValueError):
        return False


def free_names(source: str) -> list[str]:
    """Names that the source reads and the interpreter has not."""
    tree = parsed(source)
    found = dict.fromkeys(node.id for node in inside(tree) if kind_of(node) == "Name") if tree is not None else {}
    return [name for name in found if name not in vars(sys.modules["builtins"])]


def attributes(source: str) -> dict[str, set[str]]:
    """What the source uses by each plain name."""
    found: dict[str, set[str]] = {}
    tree = parsed(source)
    for node in inside(tree) if tree is not None else ():
        if kind_of(node) == "Attribute" and kind_of(node.value) == "Name":
            found.setdefault(node.value.id, set()).add(node.attr)
    return found


def called(source: str) -> frozenset[str]:
    """Names that the source calls, or gives to a function of its own to call: ``check(name)``."""
    nodes = list(inside(parsed(source)))
    own = {node.name for node in nodes if kind_of(node) == "FunctionDef"}
    calls = [node for node in nodes if kind_of(node) == "Call" and kind_of(node.func) == "Name"]
    given = [part for call in calls if call.func.id in own for part in call.args if kind_of(part) == "Name"]
    return frozenset(str(node.id) for node in (*(call.func for call in calls), *given))


def iterates_over_a_call(source: str) -> bool:
    """The source makes an iterator of what a call gave."""
    makes = [
        node for node in inside(parsed(source)) if kind_of(node) == "Call" and getattr(node.func, "id", "") == "iter"
    ]
    return any(kind_of(part) == "Call" for node in makes for part in inside(node.args))


def names_written(source: str) -> frozenset[str]:
    """Names that the source gives to functions and values, word for word."""
    found = set()
    for node in inside(parsed(source)):
        if kind_of(node) in ("FunctionDef", "AsyncFunctionDef"):
            found.add(str(node.name))
        elif kind_of(node) == "Name" and kind_of(node.ctx) == "Store":
            found.add(str(node.id))
    return frozenset(found)


def members(source: str) -> dict[str, set[str]]:
    """By the program's name of a class what the source takes from it as of an enumeration.

    By names in capitals; of what is written as a class also by any other that it does not call.
    """
    tree, found = parsed(source), dict[str, set[str]]()
    real = {alias.asname: alias.name for node in inside(tree) if kind_of(node) == "ImportFrom"
            for alias in node.names if alias.asname}  # fmt: skip
    calls = {id(node.func) for node in inside(tree) if kind_of(node) == "Call"}
    for node in inside(tree):
        if kind_of(node) == "Attribute" and node.attr[0] != "_":
            name = getattr(node.value, "attr", getattr(node.value, "id", ""))
            if not (
                node.attr.isupper() or (is_class_name(name) and kind_of(node.ctx) == "Load" and id(node) not in calls)
            ):
                continue
            found.setdefault(real.get(name, name), set()).add(node.attr)
    return found


@dataclass(frozen=True, slots=True)
class Classes:
    """What a source says of the program's classes.

    Attributes:
        shown: names that it shows to be classes, as ``classes_in`` tells.
        built: names written as classes are, whose objects it compares with what a call gave.
        derived: names that it derives classes from.
    """

    shown: frozenset[str] = frozenset()
    built: frozenset[str] = frozenset()
    derived: frozenset[str] = frozenset()


def classes_in(source: str) -> Classes:
    """Names of the program's that the source shows to be classes.

    It asks ``isinstance`` of one, compares two objects made by the same name, or makes an object by it and uses what no data has: an attribute or method of a
    name that data does not know. Of a name that is written as classes are, also a method that is called for what it
    does, or any of an object that was made from nothing.
    """
    tree = parsed(source)
    try:
        found = _Classes(tree) if tree is not None else None
    except RecursionError:
        found = None
    return Classes(frozenset(found.found), frozenset(found.built), frozenset(found.derived)) if found else Classes()


class _Classes:
    """Finds them; a variable counts where all that its scope assigns to it is made by the same name."""

    def __init__(self, tree: Any) -> None:
        self.real: dict[str, str] = {}  # a name here -> the program's name for it
        also: dict[str, set[str]] = {}  # a variable -> what it is another name for, or an attribute of
        for node in inside(tree):
            if kind_of(node) == "ImportFrom":
                self.real.update({alias.asname: alias.name for alias in node.names if alias.asname})
            elif kind_of(node) == "Assign" and (of := self.named(node.value)):
                for target in node.targets:
                    if kind_of(target) == "Name":
                        also.setdefault(target.id, set()).add(of)
        self.made: dict[tuple[int, str], set[tuple[str, bool]]] = {}  # scope and variable -> class and "from nothing"
        self.uses: list[tuple[tuple[int, ...], Any, str, bool]] = []
        self.given: dict[str, list[tuple[Any, tuple[int, ...]]]] = {}  # a fixture -> what it gives, and where
        self.asked: set[tuple[int, str]] = set()  # scopes and their arguments
        self.shared: set[tuple[int, str]] = set()  # scopes and what they say is the module's
        self.found: set[str] = set()
        self.built: set[str] = set()
        self.derived: set[str] = set()
        self.classes: set[int] = set()  # scopes that are classes
        self.walk(tree, (id(tree),))
        waiting = list(self.derived)
        while waiting:
            more = {self.real.get(name, name) for name in also.get(waiting.pop(), ())} - self.derived
            self.derived |= more
            waiting += more
        for scopes, holder, attribute, acts in self.uses:
            for name, empty in self.makers(holder, scopes):
                shows = not data_has(attribute) or (is_class_name(name) and (acts or empty))
                if name and shows:
                    self.found.add(name)

    def walk(self, node: Any, scopes: tuple[int, ...], acts: bool = False) -> None:
        kind = kind_of(node)
        if isinstance(node, list):
            for part in node:
                self.walk(part, scopes)
            return
        if not hasattr(node, "_fields"):
            return
        if kind in _SCOPES or kind == "ClassDef":
            scopes = (*scopes, id(node))
            self.shared |= {
                (id(node), name) for part in inside(node) if kind_of(part) == "Global" for name in part.names
            }
            if kind != "ClassDef":
                self.asked |= {(id(node), part.arg) for part in (*node.args.args, *node.args.kwonlyargs)}
                self.fixture(node, scopes)
            if kind == "ClassDef":
                self.classes.add(id(node))
                self.derived.update(self.named(base) for base in (*node.bases, *(word.value for word in node.keywords)))
        elif kind in ("Assign", "AnnAssign", "NamedExpr"):
            for target in node.targets if kind == "Assign" else [node.target]:
                self.assigned(target, node.value, scopes)
        elif kind == "withitem" and node.optional_vars is not None:
            self.assigned(node.optional_vars, node.context_expr, scopes)
        elif kind in ("For", "comprehension"):
            for value in node.iter.elts if kind_of(node.iter) in ("List", "Tuple") and node.iter.elts else [None]:
                self.assigned(node.target, value, scopes)
        elif kind == "Attribute":
            self.uses.append((scopes, node.value, node.attr, acts or kind_of(node.ctx) == "Store"))
            if (name := self.named(node.value)) and is_class_name(name) and not data_has(node.attr):
                self.found.add(name)
        elif kind == "Call" and getattr(node.func, "id", getattr(node.func, "attr", "")) in _LOOKS_AT_A_CLASS:
            for argument in node.args[1:2]:
                for part in argument.elts if kind_of(argument) == "Tuple" else [argument]:
                    self.found.update(filter(None, [self.named(part)]))
        elif kind == "Call" and getattr(node.func, "attr", "") in _COMPARES:
            self.compared(node.args[:2])
        elif kind == "Compare" and len(node.comparators) == 1:
            self.compared([node.left, node.comparators[0]])
        elif kind == "Expr" and kind_of(node.value) == "Call" and kind_of(node.value.func) == "Attribute":
            self.walk(node.value.func, scopes, acts=True)  # a method called for what it does
        for field in node._fields:
            self.walk(getattr(node, field, None), scopes)

    def fixture(self, node: Any, scopes: tuple[int, ...]) -> None:
        """What a fixture gives to who takes an argument of its name."""
        marks = getattr(node, "decorator_list", ())
        words = [word for mark in marks if kind_of(mark) == "Call" for word in mark.keywords if word.arg == "name"]
        if any(_written(getattr(mark, "func", mark)) == "fixture" for mark in marks):
            name = next((str(getattr(word.value, "value", "")) for word in words), node.name)
            gives = [part.value for part in inside(node.body) if kind_of(part) in ("Return", "Yield") and part.value]
            self.given.setdefault(name, []).extend((value, scopes) for value in gives)

    def compared(self, sides: list[Any]) -> None:
        """What is made by a name like a class's, compared with what is made by a call: no answer is compared with an answer."""
        if len(sides) == 2:
            left, right = ({self.maker(node)[0] for node in inside(side)} - {""} for side in sides)
            made = left | right if left and right else set()
            self.built |= {name for name in made if is_class_name(name) and name not in TYPES}
        names = {self.maker(side)[0] for side in sides}
        if len(sides) == 2 and len(names) == 1 and is_class_name(name := names.pop()) and name not in TYPES:
            self.found.add(name)

    def named(self, node: Any) -> str:
        """The program's name that a plain name, or an attribute of a plain name, may stand for."""
        if kind_of(node) == "Name":
            return self.real.get(str(node.id), str(node.id))
        return str(node.attr) if kind_of(node) == "Attribute" and kind_of(node.value) == "Name" else ""

    def maker(self, node: Any) -> tuple[str, bool]:
        """Which name makes an object by a call, and whether from nothing; "" where none does."""
        if kind_of(node) != "Call":
            return "", False
        called = node.func.value if kind_of(node.func) == "Subscript" else node.func
        return self.named(called), not (node.args or node.keywords)

    def variable(self, node: Any, scopes: tuple[int, ...]) -> tuple[int, str] | None:
        """A name, or an attribute of ``self``, which is the class's."""
        if kind_of(node) == "Name":
            return scopes[0] if (scopes[-1], node.id) in self.shared else scopes[-1], node.id
        if kind_of(node) == "Attribute" and getattr(node.value, "id", "") in ("self", "cls") and len(scopes) > 2:
            return scopes[1], "self." + node.attr
        return None

    def assigned(self, target: Any, value: Any, scopes: tuple[int, ...]) -> None:
        if kind_of(target) in ("Tuple", "List"):
            values = value.elts if kind_of(value) in ("Tuple", "List") and len(value.elts) == len(target.elts) else None
            for at, part in enumerate(target.elts):
                self.assigned(part, values[at] if values else None, scopes)
        elif kind_of(value) == "Constant" and value.value is None:
            return  # as before it is made, and when it is done with
        elif (key := self.variable(target, scopes)) is not None:
            self.made.setdefault(key, set()).add(self.maker(value))
            if key[0] in self.classes:
                self.made.setdefault((key[0], f"self.{key[1]}"), set()).add(self.maker(value))

    def makers(self, holder: Any, scopes: tuple[int, ...], depth: int = 0) -> set[tuple[str, bool]]:
        """What makes the object that a use is of."""
        if kind_of(holder) == "Call":
            return {self.maker(holder)}
        if (key := self.variable(holder, scopes)) is None:
            return set()
        for scope in (key[0], *reversed(scopes)):
            if made := self.made.get((scope, key[1])):
                return made if len({name for name, _ in made}) == 1 else set()
            if (scope, key[1]) in self.asked and depth < 5:
                given = [self.makers(value, where, depth + 1) for value, where in self.given.get(key[1], ())]
                return (
                    set().union(*given)
                    if all(given) and len({name for row in given for name, _ in row}) == 1
                    else set()
                )
        return set()
