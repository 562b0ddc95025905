"""What becomes of the source of sealed tests: what ``is`` means, and what a failed assertion says.

Two stand-ins for one object are that object, though Python has two. Of equal
data that cannot be changed nobody here knows whether the program gave the same
again, so the answer is the one that lets the test pass, and is marked.
"""

from __future__ import annotations

import _ast
import operator
from collections.abc import Collection
from functools import partial, reduce
from typing import Any

from .lineage import ISINSTANCE, ISSUBCLASS, is_instance
from .looking import ATTRIBUTE, DONE, JOINED, NAMED, OF_EVERY, TYPE, attribute, is_looked_up
from .reading import inside, kind_of
from .soundness import is_class_name, is_silent
from .standins import Standin, stop

NAME, NOT, CHAIN, SAID, NOW = "__is__", "__is_not__", "__chain__", "__said__", "__now__"
_SIDES = "__left__", "__right__"
_SIGNS = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "In": "in", "NotIn": "not in"}
_MOST = 60  # characters of a value that is shown


def rewrite(tree: Any, shared: Collection[str] = ()) -> None:
    """All that is done to the tests' tree; ``shared``: names of the program's data in the namespace that is both's."""
    assertions(tree)
    own = _own_names(tree)
    now(tree, set(shared) - own)
    statements(tree)
    calls(tree, own)
    identity(tree)
    classes(tree, own)


def _own_names(tree: Any) -> set[str]:
    """What the tests bind anywhere but by an import."""
    found: set[str] = set()
    for node in inside(tree):
        kind = kind_of(node)
        if kind == "arg":
            found.add(node.arg)
        elif kind == "Name" and kind_of(node.ctx) != "Load":
            found.add(node.id)
        elif type(name := getattr(node, "name", None)) is str and kind != "alias":
            found.add(name)  # definitions, handlers, patterns
        elif kind == "MatchMapping":
            found.add(node.rest or "")
    return found


def now(tree: Any, names: set[str]) -> None:
    """Make each of these names one call of ``__now__``: what the program has by it when it is read, not what it had at first."""
    for node in list(inside(tree)) if names else ():
        for field in node._fields:
            value = getattr(node, field, None)
            parts: list[Any] = value if isinstance(value, list) else [value]
            found = [_now(part) if kind_of(part) == "Name" and part.id in names else part for part in parts]
            if found != parts:
                setattr(node, field, found if isinstance(value, list) else found[0])


def _now(name: Any) -> Any:
    return _call(NOW, [_ast.Constant(value=name.id, **_place(name))], name)


def statements(tree: Any) -> None:
    """Make each method that is called as a statement one of ``__done__``, but where a ``with`` or ``try`` sees it fail."""
    blocks = [node for node in inside(tree) if kind_of(node) in ("With", "AsyncWith", "Try", "TryStar")]
    seen = {id(part) for block in blocks for part in inside(block)}
    for node in inside(tree):
        call: Any = node.value if kind_of(node) == "Expr" and id(node) not in seen else None
        method: Any = call.func if kind_of(call) == "Call" else None
        if (
            kind_of(method) != "Attribute" or method.attr[:2] == "__"
        ):  # of a class's own private names Python makes others
            continue
        if is_silent(method.attr) and not is_looked_up(method.attr):
            call.func = _call(DONE, [method.value, _ast.Constant(value=method.attr, **_place(method))], method)


def calls(tree: Any, own: set[str]) -> None:
    """Make each call by a name, or a module's attribute, that the tests bind nowhere one of ``__named__(name)``."""
    modules = {
        (alias.asname or alias.name).partition(".")[0]
        for node in inside(tree)
        if kind_of(node) == "Import"
        for alias in node.names
    }
    for node in list(inside(tree)):
        called: Any = node.func if kind_of(node) == "Call" else None
        holder: Any = getattr(called, "value", None) if kind_of(called) == "Attribute" else None
        if holder is not None and called.attr == "join":
            node.func = _call(JOINED, [holder], called)
            continue
        if kind_of(holder) == "Name" and holder.id == "object" and "object" not in own:
            node.func = _call(OF_EVERY, [holder, _ast.Constant(value=called.attr, **_place(called))], called)
            continue
        plain = kind_of(called) == "Name" and called.id not in own
        if (plain and is_class_name(called.id)) or (kind_of(holder) == "Name" and holder.id in modules - own):
            node.func = _call(NAMED, [called], called)


_GIVE_ON = ("map", "filter", "partial")


def classes(tree: Any, own: set[str]) -> None:
    """Make each call of ``isinstance``, ``issubclass`` and ``type``, of one value, one of ours; also where ``map`` calls it."""
    ours = {"isinstance": ISINSTANCE, "issubclass": ISSUBCLASS, "type": TYPE}
    for node in inside(tree):
        if kind_of(node) != "Call":
            continue
        given_on: Any = node.func.id if kind_of(node.func) == "Name" and node.func.id in _GIVE_ON else ""
        for name in (node.func, *(node.args[:1] if given_on else ())):
            if kind_of(name) == "Name" and name.id in ours and name.id not in own:
                of_one = len(node.args) == 1 and not node.keywords if name is node.func else given_on == "map"
                name.id = ours[name.id] if of_one or name.id != "type" else name.id


def identity(tree: Any) -> None:
    """Make each ``a is b`` of a tree a call of ``__is__(a, b)``; where a side is a constant nothing is changed.

    ``a is not b`` is a call of ``__is_not__``, a chain with ``is`` in it one of ``__chain__``, and ``a.__name__``, for each name of Python's own, one of ``__attribute__``.
    """
    for node in list(inside(tree)):
        for field in node._fields:
            value = getattr(node, field, None)
            if isinstance(value, list):
                value[:] = [_changed(part) for part in value]
            elif hasattr(value, "_fields"):
                setattr(node, field, _changed(value))


def assertions(tree: Any) -> None:
    """Let each bare assertion of one comparison say what it compared; each side is computed once, as before."""
    done: set[int] = set()
    for node in list(inside(tree)):
        test: Any = getattr(node, "test", None)
        if kind_of(node) != "Assert" or node.msg is not None or kind_of(test) != "Compare" or len(test.ops) != 1:
            continue
        sign = _SIGNS.get(kind_of(test.ops[0]))
        if sign is None:
            continue
        place = _place(test)
        store, load = _ast.Store(), _ast.Load()
        left, right = (
            _ast.NamedExpr(target=_ast.Name(id=name, ctx=store, **place), value=side, **place)
            for name, side in zip(_SIDES, (test.left, test.comparators[0]), strict=True)
        )
        test.left, test.comparators = left, [right]
        shown = [_ast.Name(id=name, ctx=load, **place) for name in _SIDES]
        args = [shown[0], _ast.Constant(value=sign, **place), shown[1]]
        node.msg = _ast.Call(func=_ast.Name(id=SAID, ctx=load, **place), args=args, keywords=[], **place)
        done.add(id(node))
    for node in list(inside(tree)):
        for field in ("body", "orelse", "finalbody"):
            body: Any = getattr(node, field, None)
            if type(body) is list:
                body[:] = [one for part in body for one in ([part, _let_go(part)] if id(part) in done else [part])]


def _let_go(node: Any) -> Any:
    """The tests do not go on holding what they have compared."""
    place = _place(node)
    names: list[Any] = [_ast.Name(id=name, ctx=_ast.Store(), **place) for name in _SIDES]
    return _ast.Assign(targets=names, value=_ast.Constant(value=None, **place), **place)


def said(left: Any, sign: str, right: Any) -> str:
    """What was compared, cut short."""
    return f"{shown(left)} {sign} {shown(right)}"


def shown(value: Any, depth: int = 0) -> str:
    """Data as Python writes it, cut short; of anything else only its class: no code of a program's is run."""
    kind = type(value)
    if kind in (str, bytes):
        text = repr(value[:_MOST])
    elif kind in (int, float, complex, bool, type(None)):
        text = repr(value) if kind is not int or value.bit_length() < 1000 else "a large int"
    elif kind in (list, tuple, set, frozenset, dict) and depth < 3:
        some = list(value.items() if kind is dict else value)[:8]
        if kind is dict:
            parts = [f"{shown(key, depth + 1)}: {shown(part, depth + 1)}" for key, part in some]
        else:
            parts = [shown(part, depth + 1) for part in some]
        inside_it = ", ".join(parts + ["..."] * (len(value) > 8)) + "," * (kind is tuple and len(value) == 1)
        text = f"[{inside_it}]" if kind is list else f"({inside_it})" if kind is tuple else f"{{{inside_it}}}"
    elif kind.__module__ in ("decimal", "fractions", "datetime", "collections", f"{__package__}.testkit"):
        text = repr(value) if kind.__module__ in ("decimal", "fractions", "datetime") else f"<{kind.__name__}>"
    else:
        text = f"<{type.__dict__['__name__'].__get__(kind)}>"
    return text if len(text) <= _MOST or depth else text[: _MOST - 3] + "..."


def _changed(node: Any) -> Any:
    kind = kind_of(node)
    if kind == "Attribute" and kind_of(node.ctx) == "Load" and is_looked_up(node.attr):
        return _call(ATTRIBUTE, [_changed(node.value), _ast.Constant(value=node.attr, **_place(node))], node)
    if kind != "Compare" or not any(kind_of(sign) in ("Is", "IsNot") for sign in node.ops):
        return node
    sides = [node.left, *node.comparators]
    if len(sides) > 2:
        signs = _ast.Constant(value=" ".join(kind_of(sign) for sign in node.ops), **_place(node))
        return _call(CHAIN, [signs, *map(_changed, sides)], node)
    if any(kind_of(side) == "Constant" for side in sides):
        return node
    return _call(NOT if kind_of(node.ops[0]) == "IsNot" else NAME, [_changed(side) for side in sides], node)


def chain(same: Any, other: Any) -> Any:
    """``a is b is c``, and what else is chained with ``is``: every side is computed, and they are compared up to the first No."""
    signs = {**_OPERATORS, "Is": same, "IsNot": other}

    def compare(names: str, *sides: Any) -> Any:
        said: Any = True
        for sign, left, right in zip(names.split(), sides, sides[1:], strict=False):
            if not (said := signs[sign](left, right)):
                break
        return said

    return compare


_OPERATORS: dict[str, Any] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge,
    "In": lambda part, whole: part in whole, "NotIn": lambda part, whole: part not in whole,
}  # fmt: skip


def _call(name: str, args: list[Any], node: Any) -> Any:
    place = _place(node)
    return _ast.Call(func=_ast.Name(id=name, ctx=_ast.Load(), **place), args=args, keywords=[], **place)


def _place(node: Any) -> dict[str, Any]:
    return {name: getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}


def unittest_too(is_same: Any, is_other: Any) -> None:
    """``assertIs`` and ``assertIsNot`` of unittest mean the same, and ``assertSetEqual`` hands no set to the program."""
    import unittest

    plain, plain_not = unittest.TestCase.assertIs, unittest.TestCase.assertIsNot

    def same(self: Any, first: Any, second: Any, msg: Any = None) -> None:
        plain(self, first, first if is_same(first, second) else second, msg)

    def other(self: Any, first: Any, second: Any, msg: Any = None) -> None:
        plain_not(self, first, object() if is_other(first, second) else first, msg)

    plain_sets = unittest.TestCase.assertSetEqual

    def sets(self: Any, first: Any, second: Any, msg: Any = None) -> None:
        for side in (first, second):
            if isinstance(side, Standin) and type(side).__data__ is None:
                stop(
                    "undecided",
                    "the tests use an object of the program's as a set, by 'assertSetEqual', which hands it one that it did not make",
                )
        theirs = isinstance(first, Standin) or isinstance(second, Standin)
        (self.assertEqual if theirs else partial(plain_sets, self))(first, second, msg)

    unittest.TestCase.assertSetEqual = sets  # type: ignore[assignment,method-assign]
    plain_kind, plain_no_kind = unittest.TestCase.assertIsInstance, unittest.TestCase.assertNotIsInstance

    def kind(self: Any, obj: Any, cls: Any, msg: Any = None) -> None:
        if not is_instance(obj, cls):
            plain_kind(self, obj, cls, msg)

    def no_kind(self: Any, obj: Any, cls: Any, msg: Any = None) -> None:
        if is_instance(obj, cls):
            self.fail(self._formatMessage(msg, f"it is an instance of {cls!r}"))
        plain_no_kind(self, obj, cls, msg)

    unittest.TestCase.assertIsInstance = kind  # type: ignore[method-assign]
    unittest.TestCase.assertNotIsInstance = no_kind  # type: ignore[method-assign]
    unittest.TestCase.assertIs, unittest.TestCase.assertIsNot = same, other  # type: ignore[assignment,method-assign]


def operators_too(is_same: Any, is_other: Any) -> None:
    """``operator.is_``, ``is_not`` and ``attrgetter`` mean what the operators mean."""
    plain = operator.attrgetter

    def attrgetter(*names: str) -> Any:
        if not any(is_looked_up(part) for name in names for part in str(name).split(".")):
            return plain(*names)

        def get(of: Any) -> Any:
            found = tuple(reduce(_get, name.split("."), of) for name in names)
            return found if len(names) > 1 else found[0]

        return get

    operator.is_, operator.is_not, operator.attrgetter = is_same, is_other, attrgetter  # type: ignore[assignment,misc]


def _get(of: Any, name: str) -> Any:
    return attribute(of, name) if is_looked_up(name) else getattr(of, name)


def no_main() -> None:
    """``unittest.main()`` does nothing: the tests are run by their names."""
    import unittest

    unittest.main = lambda *args, **options: None  # type: ignore[assignment]
