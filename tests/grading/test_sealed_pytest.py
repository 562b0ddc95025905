"""More of pytest in test files: fixtures with params, ``request``, rows with marks, captured output; sealed and beside."""

from __future__ import annotations

import textwrap

import pytest
from sealed_help import passes, run

from proctor.core.verdict import Verdict
from proctor.engine.shared import SyncEngine
from proctor.grading.named import named_tests

pytestmark = pytest.mark.environments
OK, WRONG = Verdict.ACCEPTED, Verdict.WRONG_ANSWER

PROGRAM = """
import sys
class Failure(ValueError): pass
def f(x): return x
def fail(x): raise Failure(f"bad {x}")
def say(*words): print(*words)
def binary(data): sys.stdout.buffer.write(data)
def warn(*words): print(*words, file=sys.stderr)
def loud(n): print("x" * n)
def raw(text):
    import os
    sys.stdout.flush()
    os.write(1, text.encode())
def some():
    print("first")
    yield 1
    print("second")
"""
# Tests that pass, the names of their runs, and what makes the program fail one of them.
BROKEN = ("return x", "return 77")
FILES = {
    "params of a fixture": (
        "@pytest.fixture(params=[1, 2], ids=['one', 'two'])\ndef n(request): return request.param\ndef test_a(n): assert f(n) == n",
        ["test_a[0]", "test_a[1]"],
        BROKEN,
    ),
    "params of a fixture that a fixture asks for": (
        "@pytest.fixture(params=[1, pytest.param(2, id='two')])\ndef n(request): return request.param\n@pytest.fixture\ndef twice(n): return [n, n]\ndef test_a(twice): assert f(twice) == twice\ndef test_b(): assert f(1) == 1",
        ["test_a[0]", "test_a[1]", "test_b"],
        BROKEN,
    ),
    "params of two fixtures and a parametrization": (
        "@pytest.fixture(params=[1, 2])\ndef n(request): return request.param\n@pytest.fixture(params='ab')\ndef c(request):\n    yield request.param\n@pytest.mark.parametrize('k', [5])\ndef test_a(n, c, k): assert f((n, c)) == (n, c) and k == 5",
        ["test_a[0-0-0]", "test_a[0-0-1]", "test_a[0-1-0]", "test_a[0-1-1]"],
        BROKEN,
    ),
    "params of an automatic fixture": (
        "seen = []\n@pytest.fixture(autouse=True, params=[1, 2])\ndef n(request): seen.append(request.param)\ndef test_a(): assert f(seen[-1]) == seen[-1]\nclass TestB:\n    def test_b(self): assert f(1) == 1",
        ["test_a[0]", "test_a[1]", "TestB.test_b[0]", "TestB.test_b[1]"],
        BROKEN,
    ),
    "params of a fixture of a class": (
        "class TestA:\n    @pytest.fixture(params=[1, 2])\n    def n(self, request): return request.param + self.add()\n    def add(self): return 0\n    def test_a(self, n): assert f(n) in (1, 2)",
        ["TestA.test_a[0]", "TestA.test_a[1]"],
        BROKEN,
    ),
    "indirect": (
        "@pytest.fixture\ndef n(request): return request.param * 10\n@pytest.mark.parametrize('n', [1, 2], indirect=True)\ndef test_a(n): assert f(n) in (10, 20)\n@pytest.mark.parametrize('n, m', [(1, 2)], indirect=['n'])\ndef test_b(n, m): assert f((n, m)) == (10, 2)",
        ["test_a[0]", "test_a[1]", "test_b[0]"],
        BROKEN,
    ),
    "a parametrization is seen by fixtures": (
        "@pytest.fixture\ndef row(size): return [0] * size\n@pytest.mark.parametrize('size', [1, 3])\ndef test_a(row, size): assert len(f(row)) == size",
        ["test_a[0]", "test_a[1]"],
        ("return x", "return []"),
    ),
    "request": (
        "ends = []\n@pytest.fixture\ndef five(): return 5\n@pytest.fixture\ndef n(request):\n    request.addfinalizer(lambda: ends.append(1))\n    return request.getfixturevalue('five') + getattr(request, 'param', 0)\ndef test_a(n, request):\n    assert f(n) == 5 and ends == [] and request.function.__name__ == 'test_a'\ndef test_b(): assert f(ends) == [1]",
        ["test_a", "test_b"],
        BROKEN,
    ),
    "rows with marks": (
        "import sys\nlater = pytest.mark.skip(reason='later')\n@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.skip), pytest.param(3, marks=[pytest.mark.xfail]), pytest.param(4, marks=pytest.mark.skipif(sys.version_info > (3,), reason='x'), id='four'), pytest.param(5, marks=later)])\ndef test_a(n): assert f(n) == 1\ndef test_b(): assert f(2) == 2",
        ["test_a[0]", "test_b"],
        BROKEN,
    ),
    "a mark by another name": (
        "later = pytest.mark.skip(reason='later')\n@later\ndef test_a(): assert f(1) == 2\ndef test_b(): assert f(2) == 2",
        ["test_b"],
        BROKEN,
    ),
    "capsys": (
        "def test_a(capsys):\n    say('a', 1)\n    assert capsys.readouterr().out == 'a 1\\n'\n    warn('b')\n    out, err = capsys.readouterr()\n    assert (out, err) == ('', 'b\\n')\n    with capsys.disabled(): say('unseen')\n    print('own')\n    assert capsys.readouterr() == ('own\\n', '')\n    binary(b'bin')\n    assert capsys.readouterr().out == 'bin'\ndef test_b(capsys):\n    assert list(some()) == [1]\n    assert capsys.readouterr().out.splitlines() == ['first', 'second']\ndef test_c(capsys):\n    loud(200_000)\n    assert len(capsys.readouterr().out) == 200_001",
        ["test_a", "test_b", "test_c"],
        ("print(*words)", "print(*words[:1])"),
    ),
    "capsys in a class and with a failure": (
        "class TestA:\n    def test_a(self, capsys):\n        with pytest.raises(ValueError): fail(1)\n        say('x')\n        assert 'x' in capsys.readouterr().out",
        ["TestA.test_a"],
        ("print(*words)", "return print"),
    ),
    "capfd": (
        "def test_a(capfd):\n    raw('deep')\n    warn('b')\n    assert capfd.readouterr() == ('deep', 'b\\n')\n    say('more')\n    assert capfd.readouterr().out == 'more\\n'",
        ["test_a"],
        ("os.write(1, text.encode())", "os.write(1, b'x')"),
    ),
    "what raises gives": (
        "def test_a():\n    with pytest.raises(ValueError) as e: fail(3)\n    assert e.match('bad 3') and e.typename == 'Failure' and e.type is Failure and e.errisinstance(ValueError)\n    assert e.exconly() == 'Failure: bad 3'\n    with pytest.raises((KeyError, ValueError), match=r'^bad \\d$'): fail(4)",
        ["test_a"],
        ("bad {x}", "worse"),
    ),
    "approx": (
        "from decimal import Decimal\ndef test_a():\n    assert f([[0.1 + 0.2], (1, None)]) == pytest.approx([[0.3], (1, None)])\n    assert f({'a': [1.0], 'b': None, 'c': 'x'}) == pytest.approx({'a': [1.0000001], 'b': None, 'c': 'x'})\n    assert f(Decimal('1.0000001')) == pytest.approx(Decimal(1)) and f(1.0) == pytest.approx(Decimal('1.0000001'))\n    assert f(None) != pytest.approx(1.0) and f(1.1) != pytest.approx(Decimal(1)) and f([1, 2]) != pytest.approx([1]) and f(Decimal('nan')) != pytest.approx(1.0)",
        ["test_a"],
        BROKEN,
    ),
}  # fmt: skip


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_more_of_pytest_is_known(engine: SyncEngine, name: str, beside: bool) -> None:
    tests, names, (right, wrong) = FILES[name]
    tests = f"import pytest{', gc' * beside}\n{tests}\n"
    found = run(engine, PROGRAM, tests)
    assert [case.name for case in found.cases] == names, found
    assert (found.reward, found.claimed) == (1.0, beside), found.cases
    assert PROGRAM.count(right) == 1
    failed = run(engine, PROGRAM.replace(right, wrong), tests, policy="all_or_nothing")
    assert failed.reward == 0.0
    assert run(engine, "x = 1", tests).reward == 0.0


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ("def test_a(request): assert request.node.name and f(1) == 1", "request.node"),
        ("@pytest.fixture\ndef n(request): return request.config.rootdir\ndef test_a(n): assert f(1) == 1", "request.config"),
        ("@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.skip)])\ndef n(request): return request.param\ndef test_a(n): assert f(n) == n", "marks"),
        ("with pytest.raises(ValueError) as e: fail(1)\nassert e.getrepr()", "getrepr"),
        ("with pytest.raises(ValueError, check=bool): fail(1)", "check"),
        ("import unittest\nclass T(unittest.TestCase):\n    @pytest.fixture(autouse=True)\n    def take(self, capsys): self.capsys = capsys\n    def test_a(self): assert self.capsys", "take"),
        ("def test_a(capsysbinary): assert f(1) == 1", "capsysbinary"),
        ("def test_a(tmpdir): assert f(1) == 1", "tmpdir"),
    ],
)  # fmt: skip
def test_more_of_pytest_that_is_not_known_is_said(engine: SyncEngine, tests: str, said: str, beside: bool) -> None:
    for program in (PROGRAM, "x = 1"):
        found = run(engine, program, f"import pytest{', gc' * beside}\n{tests}\n")
        assert found.reward is None, found.cases
        assert said in (found.error or "")


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ("e = pytest.raises(ValueError, fail, 1)\nassert e.getrepr()", "getrepr"),
        ("@pytest.fixture(params=[1])\ndef n(request): return request.param\ndef test_a(request): assert f(request.getfixturevalue('n')) == 1", "'n' has params"),
        ("@pytest.fixture\ndef n(n): return n\ndef test_a(n): assert f(n) == 1", "asks for itself"),
    ],
)  # fmt: skip
def test_what_only_running_shows_is_said_by_sealed_tests(engine: SyncEngine, tests: str, said: str) -> None:
    found = run(engine, PROGRAM, f"import pytest\n{tests}\n")
    assert found.reward is None, found.cases
    assert said in (found.error or "")


def test_a_program_does_not_skip_rows(engine: SyncEngine) -> None:
    tests = "import pytest\nfrom solution import f, LATER\n@pytest.mark.parametrize('n', [pytest.param(1, marks=pytest.mark.skipif(LATER, reason='x')), 2])\ndef test_a(n): assert f(n) == n\n"
    found = run(engine, "LATER = True\ndef f(x): return 2\n", tests, module=True)
    assert {case.name: case.verdict for case in found.cases} == {"test_a[0]": WRONG, "test_a[1]": OK}
    assert run(engine, "LATER = False\ndef f(x): return x\n", tests, module=True).reward == 1.0


def test_names_that_a_reader_can_be_sure_of() -> None:
    fixture = "import pytest\n@pytest.fixture({})\ndef n(request): return 1\ndef test_a(): assert f(1) == 1\n"
    assert named_tests(fixture.format("params=[1, 2]")).wanted == ("test_a",)
    assert named_tests(fixture.format("autouse=True, params=[1, 2]")).wanted == ()
    assert named_tests(fixture.format("autouse=True")).wanted == ("test_a",)


def test_folders_of_tests_are_made_beside_the_program(engine: SyncEngine) -> None:
    tests = "def test_a(tmp_path_factory):\n    one, two = (tmp_path_factory.mktemp('x') for _ in range(2))\n    (one / 'a').write_text('hello')\n    assert read(one / 'a') == 'hello' and one != two and two.is_dir()"
    found = run(engine, "def read(path): return open(path).read()", tests)
    assert (found.reward, found.claimed) == (1.0, True)
    assert run(engine, "def read(path): return ''", tests).reward == 0.0


def test_what_a_program_prints_is_no_more_than_text(engine: SyncEngine) -> None:
    """It says nothing of the tests, however much it is, and what is not captured is not compared."""
    program = "import sys\nprint('before')\ndef f(x):\n    print('\\udcff'.encode('utf-8', 'surrogatepass'), 'ok', file=sys.stderr)\n    return x\n"
    passes(engine, program, "def test_a(capsys):\n    assert f(1) == 1\n    assert capsys.readouterr().out == ''")
    forged = "import sys\nclass S:\n    def write(s, t): pass\n    def flush(s): raise SystemExit\ndef f(x):\n    sys.stdout = S()\n    return 2\n"
    assert run(engine, forged, "def test_a(capsys):\n    assert f(1) == 1").reward == 0.0


def test_nested_classes_see_what_is_around_them(engine: SyncEngine) -> None:
    tests = """
        import pytest
        from solution import Stack
        @pytest.mark.parametrize("n", [1, 2])
        class TestStack:
            kept = []
            @pytest.fixture
            def stack(self): return Stack()
            @pytest.fixture(autouse=True)
            def around(self): self.kept.append(1)
            def test_new(self, stack, n): assert stack.size() == 0
            class TestPush:
                def test_some(self, stack, n):
                    for i in range(n): stack.push(i)
                    assert stack.size() == n and TestStack.kept
                class TestDeep:
                    @pytest.fixture
                    def stack(self): return [Stack()]
                    def test_own(self, stack, n): assert stack[0].size() == 0
        @pytest.mark.skip
        class TestLater:
            class TestInner:
                def test_never(self): assert Stack().size() == 1
    """
    program = "class Stack:\n    def __init__(self): self.i = []\n    def push(self, x): self.i.append(x)\n    def size(self): return len(self.i)\n"
    found = passes(engine, program, textwrap.dedent(tests), module=True)
    assert [case.name for case in found.cases] == [
        f"TestStack.{name}[{row}]" for name in ("test_new", "TestPush.test_some", "TestPush.TestDeep.test_own") for row in (0, 1)
    ]  # fmt: skip
    assert run(engine, program.replace("len(self.i)", "0"), textwrap.dedent(tests), module=True).reward < 1.0


def test_monkeypatch_changes_and_puts_back(engine: SyncEngine) -> None:
    program = "import os, time\nLIMIT = 3\nclass A:\n    size = 1\n    @staticmethod\n    def make(): return 1\ndef now(): return time.time()\ndef home(): return os.environ.get('PLACE', 'none')\ndef limit(): return LIMIT\nCONFIG = {'a': 1}\n"
    tests = """
        import os, pytest, solution
        HERE = os.getcwd()
        def test_set(monkeypatch, tmp_path):
            monkeypatch.setattr("time.time", lambda: 5.0)
            monkeypatch.setattr(solution, "LIMIT", 7)
            monkeypatch.setattr(solution.A, "make", staticmethod(lambda: 2))
            monkeypatch.setattr(solution.A, "other", 2, raising=False)
            monkeypatch.delattr("solution.A.size")
            monkeypatch.setenv("PLACE", "here")
            monkeypatch.setitem(solution.CONFIG, "b", 2)
            monkeypatch.delitem(solution.CONFIG, "a")
            monkeypatch.chdir(tmp_path)
            monkeypatch.syspath_prepend(tmp_path)
            assert (solution.now(), solution.limit(), solution.A.make(), solution.home()) == (5.0, 7, 2, "here")
            assert solution.CONFIG == {"b": 2} and not hasattr(solution.A, "size") and os.getcwd() == str(tmp_path)
            with pytest.raises(AttributeError): monkeypatch.setattr(solution, "NOSUCH", 1)
            with pytest.raises(KeyError): monkeypatch.delenv("NOSUCH")
            monkeypatch.delenv("NOSUCH", raising=False)
        def test_back():
            assert solution.now() > 5 and solution.limit() == 3 and solution.home() == "none"
            assert solution.CONFIG == {"a": 1} and solution.A.size == 1 and solution.A().make() == 1
            assert not hasattr(solution.A, "other") and os.getcwd() == HERE
    """
    found = run(engine, program, textwrap.dedent(tests), module=True)
    assert (found.reward, found.claimed) == (1.0, True), [case.detail for case in found.cases]
    wrong = run(engine, program.replace("return LIMIT", "return 3"), textwrap.dedent(tests), module=True)
    assert wrong.reward == 0.5


def test_a_test_file_knows_where_it_is(engine: SyncEngine) -> None:
    lines = "import os, sys\nfrom pathlib import Path\nsys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))\nsys.path.insert(0, str(Path(__file__).resolve().parent.parent))\n"
    passes(engine, "def f(x): return x", f"{lines}from solution import f\ndef test_a(): assert f(1) == 1", module=True)
    passes(engine, "def f(x): return x", f"{lines}def test_a(): assert f(1) == 1")
    beside = f"{lines}import gc\nfrom solution import f\ndef test_a(): assert f(1) == 1"
    assert run(engine, "def f(x): return x", beside, module=True).reward == 1.0


def test_a_wrapped_test_has_the_arguments_of_what_it_wraps(engine: SyncEngine) -> None:
    start = "import functools, pytest\ndef twice(test):\n    @functools.wraps(test)\n    def both(*args, **given):\n        test(*args, **given)\n        return test(*args, **given)\n    return both\n@pytest.fixture\ndef one(): return 1\n"
    tests = f"{start}@twice\ndef test_a(one): assert f(one) == 1\n@pytest.mark.parametrize('n', [1, 2])\n@twice\ndef test_b(n, one): assert f(n) == n * one\nclass TestC:\n    @twice\n    def test_c(self, one): assert f(one) == 1\n"
    assert len(passes(engine, "def f(x): return x", tests).cases) == 4
    assert run(engine, "def f(x): return 1", tests).reward == 0.75


def test_rows_by_a_comprehension_of_the_tests_are_theirs(engine: SyncEngine) -> None:
    tests = "import pytest\nfrom solution import f\n@pytest.mark.parametrize('n, want', [(n, n * n) for n in range(3)])\ndef test_a(n, want): assert f(n) == want\n"
    passes(engine, "def f(x): return x * x", tests, module=True)
    own = tests.replace("range(3)", "solution.ROWS").replace(
        "from solution import f", "import solution\nf = solution.f"
    )
    assert run(engine, "ROWS = [0]\ndef f(x): return 0", own, module=True).claimed
    inside = "import pytest, solution\nclass TestA:\n    rows = solution.ROWS\n    @pytest.mark.parametrize('n', rows)\n    def test_a(self, n): assert solution.f(n) == n\ndef test_b(): assert solution.f(0) == 0"
    assert run(engine, "ROWS = [0]\ndef f(x): return 0", inside, module=True).claimed


def test_skips_by_what_no_program_has_a_part_in(engine: SyncEngine) -> None:
    plain = "import pytest, sys, unittest\ndef test_a(): assert f(1) == 1\ndef test_b():\n    if sys.platform != 'win32':\n        pytest.skip('not here')\n    assert f(1) == 2\nclass T(unittest.TestCase):\n    def test_c(self):\n        if sys.version_info > (3,): self.skipTest('old ones')\n        self.assertEqual(f(1), 2)\n"
    assert [case.name for case in passes(engine, "def f(x): return x", plain).cases] == ["test_a"]
    assert run(engine, "def f(x): return 2", plain).reward == 0.0
    own = "import pytest\nimport solution\ndef test_a(): assert solution.f(1) == 1\ndef test_b():\n    if not hasattr(solution, 'fast'):\n        pytest.skip('optional')\n    assert solution.fast(3) == 9\n"
    assert run(engine, "def f(x): return x", own, module=True).reward == 0.5
    helper = (
        f"{plain}def need():\n    if f(1) == 1: pytest.skip('no')\ndef test_d():\n    need()\n    assert f(1) == 3\n"
    )
    assert run(engine, "def f(x): return x", helper).reward < 1.0
    thrown = "import unittest\ndef f(x):\n    raise unittest.SkipTest('no')\n"
    assert run(engine, thrown, plain).reward == 0.0


@pytest.mark.parametrize("beside", ["", "import gc\n"])
def test_a_library_that_tests_would_skip_without_is_for_the_image(engine: SyncEngine, beside: str) -> None:
    top = f"{beside}import pytest\nlib = pytest.importorskip('nosuchlib')\ndef test_a(): assert f(1) == 1"
    for program in ("def f(x): return x", "def f(x): return 0"):
        found = run(engine, program, top)
        assert found.reward is None
        assert "nosuchlib" in (found.error or "")
    passes(engine, "def f(x): return x", top.replace("nosuchlib", "json").replace("import gc\n", ""))


def test_what_a_patch_gives_to_a_test_is_no_fixture(engine: SyncEngine) -> None:
    program = "import random\ndef roll(): return random.randint(1, 6)\ndef name(): return 'x'\n"
    tests = """
import pytest
from unittest import mock
import solution
@pytest.fixture
def four(): return 4
@mock.patch('random.randint', return_value=4)
def test_roll(randint, four):
    assert solution.roll() == four
    randint.assert_called_once_with(1, 6)
class TestMore:
    @mock.patch.object(solution, 'roll')
    @mock.patch('solution.name', return_value=5)
    def test_two(self, name, roll, four):
        roll.return_value = 3
        assert solution.name() == 5 and solution.roll() == 3 and four == 4
    @mock.patch('solution.name', new=lambda: 7)
    def test_new(self, four): assert solution.name() == 7
"""
    found = run(engine, program, tests, module=True)
    assert found.reward == 1.0, found.cases
    assert run(engine, program.replace("1, 6", "0, 6"), tests, module=True).reward == pytest.approx(2 / 3)


def test_only_the_stream_of_now_is_replaced(engine: SyncEngine) -> None:
    program = """
import io, os, sys
print('at first')
def greet(name): print('hé', name)
def warn(name, err=None): print(name, file=err or sys.stderr)
def both(name):
    sys.stdout.write(name + '1 ')
    sys.stdout.flush()
    os.write(1, b'raw ')
    sys.stdout.buffer.write(b'bin ')
    sys.__stdout__.write('kept ')
    print(name + '2')
"""
    tests = """
import contextlib, io
from solution import greet, warn, both
def test_capsys(capsys):
    greet('bo')
    assert capsys.readouterr() == ('h\\u00e9 bo\\n', '')
    warn('w')
    assert capsys.readouterr().err == 'w\\n'
def test_redirect():
    out = io.StringIO()
    with contextlib.redirect_stdout(out): greet('al')
    assert out.getvalue() == 'h\\u00e9 al\\n'
"""
    passes(engine, program, tests, module=True)
    wrapped = program + "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='latin-1', write_through=True)\n"
    passes(engine, wrapped, tests, module=True)
    kept = program.replace("name): print('hé', name)", "name, out=sys.stdout): print('hé', name, file=out)")
    assert run(engine, kept, tests, module=True).reward == 0.0
    assert run(engine, program.replace("err=None", "err=sys.stderr"), tests, module=True).reward == 0.5
    descriptor = program.replace("print('hé', name)", "os.write(1, f'hé {name}\\n'.encode())")
    assert run(engine, descriptor, tests, module=True).reward == 0.0
    seen = """
from solution import both, greet
def test_capsys(capsys):
    both('a')
    assert capsys.readouterr().out == 'a1 bin a2\\n'
def test_capfd(capfd):
    greet('bo')
    assert capfd.readouterr().out == 'h\\u00e9 bo\\n'
def test_order(capfd):
    both('b')
    out = capfd.readouterr().out
    assert out.startswith('b1 raw ') and sorted(out.split()) == ['b1', 'b2', 'bin', 'kept', 'raw']
"""
    passes(engine, program, seen, module=True)
    assert run(engine, kept, seen.replace("def test_capsys(capsys):\n    both('a')\n    assert", "def test_capsys(capsys):\n    greet('a')\n    assert not"), module=True).reward == 1.0  # fmt: skip
