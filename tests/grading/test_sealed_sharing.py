"""One container under two names stays one, also where one name is the program's and the other the sealed tests'."""

from __future__ import annotations

import pytest
from sealed_help import decided, passes, run

from proctor.core.verdict import Verdict
from proctor.engine.shared import SyncEngine

pytestmark = pytest.mark.environments

GAUGE = "class Gauge:\n    def __init__(s, given=(1,)): s.own = {}\n    def read(s): return {}\n"
ITEM = "from enum import Enum\nclass Item(Enum):\n    A = 1\n    B = 2\n"
SHOP = "class Shop:\n    def __init__(s): s.stock = {{}}\n    def put(s, i): s.stock[i] = 1\n    def drop(s, i): {}\n"
KEY = "class Key:\n    def __init__(s, n): s.n = n\n    def __hash__(s): return hash(s.n)\n    def __eq__(s, o): return s.n == o.n\n"
ORDERED = "import collections\nclass Shop:\n    def __init__(s): s.o, s.q = collections.OrderedDict(a=1, b=2), collections.deque([7, 8])\n"
# Tests, a right program, and a wrong one that only shares too much, or too little.
PAIRS = {
    "rows of one list": (
        "m = f(2)\nm[0][0] = 1\nassert m == [[1, 0], [0, 0]]",
        "def f(n): return [[0] * n for _ in range(n)]",
        "def f(n): return [[0] * n] * n",
    ),
    "values of one dict": (
        "m = f('ab')\nm['a'].append(1)\nassert m == {'a': [1], 'b': []}",
        "def f(names): return {name: [] for name in names}",
        "def f(names): return dict.fromkeys(names, [])",
    ),
    "a list given out": (
        "g = Gauge()\nx = g.read()\nx.append(2)\nassert g.read() == [1]",
        GAUGE.format("list(given)", "list(s.own)"),
        GAUGE.format("list(given)", "s.own"),
    ),
    "a list taken in": (
        "x = [1]\ng = Gauge(x)\nx.append(2)\nassert g.read() == [1]",
        GAUGE.format("list(given)", "list(s.own)"),
        GAUGE.format("given", "list(s.own)"),
    ),
    "a list that is to be shared": (
        "x = [1]\ng = Gauge(x)\nx.append(2)\nassert g.read() == [1, 2]",
        GAUGE.format("given", "list(s.own)"),
        GAUGE.format("list(given)", "list(s.own)"),
    ),
    "an attribute": (
        "g = Gauge()\ng.own.append(2)\nassert g.read() == [1, 2]",
        GAUGE.format("list(given)", "list(s.own)"),
        GAUGE.format("list(given)", "[1]"),
    ),
    "rows of what was given": (
        "x = [[0]]\nr = f(x)\nr[0].append(1)\nassert x == [[0]] and r[0] is not x[0]",
        "def f(x): return [list(row) for row in x]",
        "def f(x): return list(x)",
    ),
    "the very rows": (
        "x = [[0], [1]]\na, b = x\nf(x)\nassert x[0] is b and x[1] is a and a == [0, 2]",
        "def f(x): x.reverse(); x[1].append(2)",
        "def f(x): x[:] = [list(x[1]), [*x[0], 2]]",
    ),
    "a default": (
        "a = f(1)\nb = f(2)\nassert a is not b and a == [1]",
        "def f(x, into=None):\n    into = [] if into is None else into\n    into.append(x)\n    return into",
        "def f(x, into=[]):\n    into.append(x)\n    return into",
    ),
    "one argument twice": (
        "x = []\nassert f(x, x) and not f([], [])",
        "def f(a, b): return a is b",
        "def f(a, b): return False",
    ),
    "a copy of an object": (
        "g = Gauge()\nassert copied(g) is not g",
        GAUGE.format("given", "1") + "def copied(g): return Gauge(g.own)",
        GAUGE.format("given", "1") + "def copied(g): return g",
    ),
    "what fails half way": (
        "x = [1]\ntry: f(x)\nexcept ValueError: pass\nassert x == [1]",
        "def f(x): raise ValueError",
        "def f(x): x.clear(); raise ValueError",
    ),
    "other containers": (
        "from collections import deque\nd, s, b = deque([1]), {1}, bytearray(b'a')\nk = Keeper(d, s, b)\n"
        "d.append(2)\ns.add(2)\nb.append(98)\nassert k.all() == [[1, 2], [1, 2], b'ab']",
        "class Keeper:\n    def __init__(s, *a): s.a = a\n    def all(s): return [list(s.a[0]), sorted(s.a[1]), bytes(s.a[2])]",
        "import copy\nclass Keeper:\n    def __init__(s, *a): s.a = copy.copy(a[0]), copy.copy(a[1]), a[2][:]\n"
        "    def all(s): return [list(s.a[0]), sorted(s.a[1]), bytes(s.a[2])]",
    ),
    "members of what is passed": (
        "d, s = {}, set()\nput(d, s)\nassert d[Item.A] == 3 and Item.A in s and Item.B not in s and Item.B not in d",
        ITEM + "def put(d, s): d[Item.A] = 3; s.add(Item.A)",
        ITEM + "def put(d, s): d[Item.A] = d[Item.B] = 3; s.update(Item)",
    ),
    "members of what is held": (
        "s = Shop()\nstock = s.stock\ns.put(Item.A)\ns.put(Item.B)\ns.drop(Item.A)\nassert Item.A not in stock and stock[Item.B] == 1",
        ITEM + SHOP.format("del s.stock[i]"),
        ITEM + SHOP.format("pass"),
    ),
    "members of a view": (
        "assert Item.A in f().keys() and (Item.A, 1) in f().items() and Item.B not in f().keys()",
        ITEM + "def f(): return {Item.A: 1}",
        ITEM + "def f(): return {i: 1 for i in Item}",
    ),
    "members in named tuples": (
        "assert (Item.A, 1) in f() and (Item.B, 1) not in f()",
        ITEM
        + "from collections import namedtuple\nCard = namedtuple('Card', 'i n')\ndef f(): return {Card(Item.A, 1)}",
        ITEM
        + "from collections import namedtuple\nCard = namedtuple('Card', 'i n')\ndef f(): return {Card(i, 1) for i in Item}",
    ),
    "NaNs, which are what object they are": (
        "import math\nn = float('nan')\nassert f([1, n]) == [1, n] and n in f([n]) and g() is math.nan and f([n]) != [math.nan]",
        "import math\ndef f(x): return list(x)\ndef g(): return math.nan",
        "import math\ndef f(x): return [v if v == v else float('nan') for v in x]\ndef g(): return math.nan",
    ),
    "values that change while keys are iterated over": (
        "s = Shop()\nfor k in s.o: s.inc(k)\nfor n, _ in enumerate(s.q): s.inc(n)\nassert dict(s.o) == {'a': 2, 'b': 3} and list(s.q) == [8, 9]",
        ORDERED + "    def inc(s, k):\n        if k in s.o: s.o[k] += 1\n        else: s.q[k] += 1",
        ORDERED + "    def inc(s, k): pass",
    ),
    "rows of more lists than are remembered": (
        "g = [[0] * 3 for _ in range(130)]\nfor step in range(1, 6):\n    g[step][0] = 1\n    assert total(g) == step and g[129][2] == step",
        "def total(g):\n    g[129][2] += 1\n    return sum(row[0] for row in g)",
        "def total(g):\n    g[129][2] += 1\n    return 1",
    ),
    "ordered dicts by objects": (
        "from collections import OrderedDict\nd = OrderedDict()\nput(d, 1)\nput(d, 2)\nassert [k.n for k in d] == [1, 2] and size(d) == 2",
        KEY + "def put(d, n): d[Key(n)] = n\ndef size(d): return len(d)",
        KEY + "def put(d, n): d[Key(1)] = n\ndef size(d): return len(d)",
    ),
    "a number of the namespace that is both's": (
        "hit()\nhit()\nassert total == 2\nclear()\nassert total == 0",
        "total = 0\ndef hit():\n    global total\n    total += 1\ndef clear():\n    global total\n    total = 0",
        "total = 0\ndef hit(): pass\ndef clear(): pass",
    ),
    "what an assertion looked at": (
        "s = Shop()\nassert s.all() == {}\ns.put('a')\nassert s.all() == {'a': 1}\ns.put('b')\nassert s.all() == {'a': 1, 'b': 1}",
        "stock = {}\nclass Shop:\n    def all(s): return stock\n    def put(s, i): stock[i] = 1",
        "stock = {}\nclass Shop:\n    def all(s): return stock\n    def put(s, i): stock['a'] = 1",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_sharing_is_seen_across_the_pipe(engine: SyncEngine, name: str) -> None:
    tests, right, wrong = PAIRS[name]
    decided(engine, right, wrong, tests)


def test_what_holds_itself_passes_and_is_no_end(engine: SyncEngine) -> None:
    program = "def f(x):\n    y = {'x': x}\n    y['y'] = y\n    return y\ndef size(x): return len(x)\n"
    tests = "x = [1]\nx.append(x)\ny = f(x)\nassert y['y'] is y and y['x'] is x and size(x) == 2 and x[1] is x"
    passes(engine, program, tests)
    deep = "import collections\ndef f():\n    d = collections.deque()\n    d.append(d)\n    return d\n"
    assert run(engine, deep, "assert f()").reward == 0.0


def test_data_changed_behind_the_tests_back_is_said_to_decide(engine: SyncEngine) -> None:
    program = (
        "held = []\ndef sieve(n): held.append([2, 9]); return held[0]\ndef is_prime(n): held[0].clear(); return True\n"
    )
    tests = "import math\nfor p in sieve(10):\n    assert is_prime(p)\n    assert p < 9"
    found = run(engine, program, tests)
    assert (found.reward, found.claimed) == (1.0, True)
    assert "held" in found.claim
    given = "held = []\ndef keep(x): held.append(x)\ndef f(n): held[0].clear(); return 0\n"
    found = run(engine, given, "rows = [1, 2]\nkeep(rows)\nfor n in rows: assert f(n) == n - 1")
    assert (found.reward, found.claimed) == (1.0, True)


def test_an_object_may_hold_what_it_was_given(engine: SyncEngine) -> None:
    program = "class Table:\n    def __init__(s, rows): s.rows = rows\n    def put(s, n): s.rows['n'].append(n)\n    def size(s): return len(s.rows['n'])\n"
    passes(
        engine, program, "data = {'n': [1]}\nt = Table(data)\nt.put(2)\nassert t.size() == 2 and data == {'n': [1, 2]}"
    )


def test_large_data_is_sent_and_forgotten(engine: SyncEngine) -> None:
    program = "def f(x): x.sort(); return x\ndef many(n): return [[i] for i in range(n)]\n"
    tests = """
x = list(range(5000, 0, -1))
assert f(x) is x and x[0] == 1
rows = many(3000)
assert len(rows) == 3000 and rows[7] == [7]
rows[7].append(1)
for i in range(300): assert f([2, i % 2]) == sorted([2, i % 2])
"""
    passes(engine, program, tests)


def test_what_cannot_be_sent_is_no_wrong_answer(engine: SyncEngine) -> None:
    tests = "x = ()\nfor _ in range(500): x = (x,)\nassert f(x) == 1"
    found = run(engine, "def f(x): return 1\n", tests)
    assert (found.reward, found.verdict) == (None, Verdict.INFRASTRUCTURE_ERROR)
    assert "cannot be sent" in (found.error or "")


def test_whether_equal_data_is_the_same_object_is_said_to_decide(engine: SyncEngine) -> None:
    program = "def same(x): return x\ndef copied(x): return (*x,)\n"
    for tests in (
        "t = (1000, 'ab')\nassert same(t) is t",
        "t = (1000, 'ab')\nassert copied(t) is not t",
        "import unittest\nT = (1000,)\nclass A(unittest.TestCase):\n    def test_a(self):\n"
        "        self.assertIs(same(T), T)\n        self.assertIsNot(copied(T), T)",
    ):
        found = run(engine, program, tests)
        assert (found.reward, found.claimed) == (1.0, True), tests
        assert "same object" in found.claim
    passes(engine, program, "want = True\nassert same(True) is want and same(1) is not want and same((1,)) is not (2,)")


DECK = """
class Card:
    def __init__(s, n): s.n, s.suit = n, "S"
class Deck:
    def __init__(s): s.cards = [Card(n) for n in range(4)]
    def add(s, n):
        s.cards.append(Card(n))
        return s.cards[-1]
"""


@pytest.mark.parametrize(
    "tests",
    [
        "d = Deck()\nassert len(d.cards) == 4\nfor card in d.cards:\n    assert card.suit == 'S'\n    assert card.n >= 0",
        "d = Deck()\nassert len(d.cards) == 4\nfirst = d.cards[0]\nassert first.n == 0\nassert first.suit == 'S'",
        "d = Deck()\nd.add(5)\nd.add(6)\nassert len(d.cards) == 6\nlast = d.cards[-1]\nassert last.n == 6\nassert last.suit == 'S'",
    ],
)
def test_an_object_that_comes_again_as_its_list_is_let_go_is_still_there(engine: SyncEngine, tests: str) -> None:
    passes(engine, DECK, tests)


NODES = "class Node:\n    def __init__(s, n): s.n, s.next = n, None\n    def __eq__(s, o): return s.n == o.n\n    def link(s, o): s.next = o\n"


def test_what_an_object_without_a_hash_holds_is_the_same(engine: SyncEngine) -> None:
    assert run(engine, NODES, "a, b = Node(1), Node(2)\na.link(b)\nassert a.next is b and a.next.n == 2").reward == 1.0
    kept = "from collections.abc import Mapping\nclass Frozen(Mapping):\n    def __init__(s, d): s.d = d\n    def __getitem__(s, k): return s.d[k]\n    def __iter__(s): return iter(s.d)\n    def __len__(s): return len(s.d)\n    def __hash__(s): return hash(frozenset(s.d.items()))\n"
    found = run(
        engine, kept, "assert hash(Frozen({1: 2})) == hash(Frozen({1: 2})) and {Frozen({1: 2}): 5}[Frozen({1: 2})] == 5"
    )
    assert found.reward == 1.0


def test_a_board_that_an_object_goes_on_changing_is_seen(engine: SyncEngine) -> None:
    program = "class Game:\n    def __init__(self, board): self.board = board\n    def set(self, x, y): self.board[y][x] = 1\n"
    tests = "board = [[0] * 100 for _ in range(100)]\ngame = Game(board)\ngame.set(3, 97)\ngame.set(99, 99)\nassert board[97][3] == 1 and board[99][99] == 1 and sum(map(sum, board)) == 2"
    passes(engine, program, tests)
