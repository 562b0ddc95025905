"""What a program does to pass sealed unit tests without an answer, and earns nothing by."""

from __future__ import annotations

import pytest
from sealed_help import passes, run

from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy
from proctor.core.verdict import Verdict
from proctor.engine.shared import SyncEngine
from proctor.grading.api import grade
from proctor.grading.problem import Problem

pytestmark = pytest.mark.environments
OK, WRONG, CRASH = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR


# ---------------------------------------------------------------- attacks

TESTS = "def test_a():\n    assert f(1) == 'secret-a'\ndef test_b():\n    assert f(2) == 'secret-b'\n"
HONEST = "def f(n): return {1: 'secret-a', 2: 'secret-b'}[n]\n"
FORGERIES = {
    "leaves": "import os\nos._exit(0)",
    "leaves when called": "import os\ndef f(n): os._exit(0)",
    "equal to all": "class Y:\n    def __eq__(s, o): return True\n    def __ne__(s, o): return False\n    __hash__ = None\ndef f(n): return Y()",
    "a text that is equal to all": "class Y(str):\n    def __eq__(s, o): return True\n    __hash__ = str.__hash__\ndef f(n): return Y('x')",
    "a proxy class": "class M(type):\n    def __eq__(c, o): return True\n    __hash__ = type.__hash__\nclass Y(metaclass=M): pass\ndef f(n): return Y",
    "not implemented": "def f(n): return NotImplemented",
    "searches memory": """
import gc, sys
def f(n):
    for o in gc.get_objects():
        try:
            text = repr(o)
        except Exception: continue
        if "secret-" in text and "get_objects" not in text:
            at = text.index("secret-"); return text[at:at + 8]
    frame = sys._getframe()
    while frame:
        for v in frame.f_locals.values():
            if "secret-" in str(v)[:10**6]: return "secret-" + "ab"[n - 1]
        frame = frame.f_back
""",
    "reads its own memory": """
import re
def f(n):
    maps = open("/proc/self/maps").read().splitlines()
    for line in maps:
        first, _, mode = line.partition(" ")
        if not mode.startswith("rw"): continue
        a, b = (int(x, 16) for x in first.split("-"))
        try:
            m = open("/proc/self/mem", "rb", 0); m.seek(a); data = m.read(min(b - a, 1 << 26))
        except OSError: continue
        word = b"secr" + b"et-"
        at = data.find(word + b"ab"[n - 1:n])
        if at >= 0: return data[at:at + 8].decode()
""",
    "looks for files": """
import os
def f(n):
    for root, _, files in os.walk("/"):
        if root.startswith(("/proc", "/sys", "/usr", "/lib")): continue
        for file in files:
            try: text = open(os.path.join(root, file)).read(10**6)
            except Exception: continue
            if "secret-" in text and "os.walk" not in text: return "secret-" + "ab"[n - 1]
""",
    "reads the pipe": """
import os, fcntl
def f(n):
    found = b""
    for fd in range(3, 256):
        try:
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK); found += os.read(fd, 10**6)
        except OSError: pass
    at = found.find(b"secret-"); return found[at:at + 8].decode("latin1")
""",
    "writes the pipe": """
import os
def f(n):
    for fd in range(3, 256):
        try: os.write(fd, b"\\0\\0\\0\\4" + b"VVVV" * 100)
        except OSError: pass
    return 1
""",
    "reports for the tests": """
import os, struct
def f(n):
    for fd in range(1, 256):
        try: os.write(fd, b"x" * 3)
        except OSError: pass
""",
    "replaces built-ins": "import builtins\nbuiltins.AssertionError = Exception\nbuiltins.str = object\nbuiltins.isinstance = lambda *a: True\ndef f(n): return 1",
    "replaces unittest": "import unittest, sys\nunittest.TestCase.run = lambda *a: None\nsys.modules['solution'] = None\ndef f(n): return 1",
    "raises": "def f(n): raise AssertionError('secret-a')",
    "raises the end": "def f(n): raise SystemExit(0)",
    "raises an interrupt": "def f(n): raise KeyboardInterrupt",
    "raises at the end of a loop": "def f(n): raise StopIteration('secret-a')",
    "an exception that passes": "class AssertionError(Exception): pass\ndef f(n): raise AssertionError",
    "the tests' names": "def test_a(): pass\ndef test_b(): pass\ndef f(n): return 0",
    "never answers": "def f(n):\n    while True: pass",
    "waits": "import time\ndef f(n): time.sleep(1000)",
    "answers without end": "def f(n): return 'x' * (64 << 20)",
    "an endless generator": "def f(n):\n    while True: yield 1",
    "recursive data": "def f(n):\n    x = []\n    x.append(x)\n    return x",
    "dies": "import ctypes\ndef f(n): ctypes.string_at(0)",
    "kills all": "import os, signal\ndef f(n): os.kill(-1, signal.SIGKILL)",
    "is left by a thread": "import threading, os, time\nthreading.Thread(target=lambda: (time.sleep(0.1), os._exit(0))).start()\ndef f(n): time.sleep(0.05); return 1",
    "redefines the server": """
import sys
def f(n):
    frame = sys._getframe()
    while frame:
        for name in ("answer", "packed", "act"):
            server = frame.f_locals.get("self")
            if hasattr(server, name): setattr(type(server), name, lambda *a, **k: b"")
        frame = frame.f_back
    return 1
""",
}


def test_the_honest_program_passes(engine: SyncEngine) -> None:
    assert passes(engine, HONEST, TESTS).reward == 1.0


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_earn_nothing(engine: SyncEngine, name: str) -> None:
    for _ in range(2):
        found = run(engine, FORGERIES[name], TESTS)
        assert found.reward == 0.0, found.cases
        assert not found.claimed
    assert passes(engine, HONEST, TESTS).reward == 1.0  # and the next program is none the worse


def test_a_class_that_is_equal_to_all_is_equal_only_to_its_own(engine: SyncEngine) -> None:
    program = "class A:\n    def __eq__(s, o): return True\n    __hash__ = None\n"
    assert run(engine, program, "assert A() == 5").reward == 0.0
    assert run(engine, program, "assert 5 == A()").reward == 0.0
    assert run(engine, program, "assert A() in [1, 2]").reward == 0.0
    assert run(engine, program, "assert A() == A()").reward == 1.0  # what it says of itself is what it does
    truthy = run(engine, program.replace("return True", "return 1"), "assert A() == A()")
    assert (truthy.reward, truthy.claimed) == (1.0, True)
    assert run(engine, program.replace("return True", "return NotImplemented"), "assert A() == A()").reward == 0.0


def test_a_programs_own_files_are_not_beside_the_tests(engine: SyncEngine) -> None:
    problem = Problem(
        id="p",
        mode="unit_tests",
        test_code="import helper\nassert f() == helper.want",
        extra_files={"helper.py": "want = 1"},
    )
    row = {
        "completion": "def f(): return 5",
        "extra_files": {"helper.py": "want = 5", "sitecustomize.py": "", "unittest.py": "x"},
    }
    (found,) = grade([row], problem, engine=engine)
    assert found.reward == 0.0


def test_slow_tests_with_what_a_program_gave_are_its_time(engine: SyncEngine) -> None:
    found = run(engine, "def f():\n    while True: yield 1", "assert sum(f()) == 3")
    assert found.verdict is Verdict.TIME_LIMIT
    flood = "def f(): return {(1 << 61) - 1 << k if k else 0: 0 for k in range(3000)} | {k * ((1 << 61) - 1): 0 for k in range(60000)}"
    assert run(engine, flood, "assert f() == {}").reward == 0.0


def test_a_star_brings_only_what_the_tests_use(engine: SyncEngine) -> None:
    star = "from solution import *\n"
    for program, tests in (
        (
            "__all__ = ['f', 'abs']\ndef abs(x): return 0\ndef f(x): return 9",
            f"{star}def test_a(): assert abs(f(2) - 1.4) < 1e-3",
        ),
        (
            "__all__ = ['f', 'check']\ndef check(*a): pass\ndef f(x): return 9",
            f"def check(x): assert x == 1\n{star}def test_a(): check(f(1))",
        ),
        (
            "class pytest:\n    class approx:\n        def __init__(s, *a): pass\n        def __eq__(s, o): return True\ndef f(x): return 9\n__all__ = ['pytest', 'f']",
            f"import pytest\n{star}def test_a(): assert f(1) == pytest.approx(2)",
        ),
        (
            "".join(f"def test_x{i}(): pass\n" for i in range(99)) + "def f(x): return 9",
            f"{star}def test_a(): assert f(1) == 2",
        ),
        (
            "def test_b(): pass\nclass T:\n    name, args = 'parametrize', ('x', [1] * 50)\ntest_b.pytestmark = [T]\ndef f(x): return 9",
            f"{star}def test_a(): assert f(1) == 2\nx = test_b",
        ),
    ):
        assert run(engine, program, tests, module=True).reward == 0.0, program


def test_libraries_are_not_the_programs_to_replace(engine: SyncEngine) -> None:
    for program, tests in (
        ("class math:\n    isclose = lambda *a, **k: True\ndef f(x): return 9", "assert math.isclose(f(2), 1.4)"),
        ("def isclose(*a): return True\ndef f(x): return 9", "assert isclose(f(2), 1.4)"),
        ("class np:\n    allclose = lambda *a: True\ndef f(x): return 9", "assert np.allclose(f(2), 1.4)"),
    ):
        assert run(engine, program, tests).reward in (0.0, None), program
    prompt = 'def helper(x):\n    return x + 1\n\ndef f(x):\n    """Next."""\n'
    lies = "def helper(x): return 2\ndef f(x): return 9"
    assert run(engine, lies, "assert helper(f(1)) == 3", prompt=prompt, entry_point="f").reward == 0.0


MODULES = "copy bisect select string code profile queue calendar operator token heapq math re random dt this np pd plt"


@pytest.mark.parametrize("name", MODULES.split())
def test_what_tests_only_call_is_the_programs(engine: SyncEngine, name: str) -> None:
    program = f"def {name}(x): return [*x, 1]\n"
    tests = f"def test_a():\n    assert {name}([1]) == [1, 1]\n    assert list(map({name}, [[2]])) == [[2, 1]]"
    passes(engine, program, tests)
    passes(engine, program, f"from solution import *\n{tests}", module=True)
    assert run(engine, program.replace("*x, 1", "*x"), tests).reward == 0.0
    # What the tests use by the module's name is the module's.
    assert run(engine, program, f"import os\nassert {name}.__name__ == 'os' or {name}([1]) == [1, 1]").reward == 0.0


def test_a_module_that_tests_use_stays_the_librarys(engine: SyncEngine) -> None:
    lies = "class copy:\n    def __init__(s, x): pass\n    deepcopy = staticmethod(lambda x: 9)\ndef f(x): return 9\n"
    tests = "x = [1]\nassert f(copy.deepcopy(x)) == copy.deepcopy(x)"
    assert run(engine, lies, tests).reward == 0.0
    passes(engine, "def f(x): return x", tests)
    own = "class queue:\n    def __init__(s): s.held = []\n    def push(s, x): s.held.append(x)\n    def size(s): return len(s.held)\n"
    passes(engine, own, "q = queue()\nq.push(1)\nassert q.size() == 1")
    found = run(engine, "def copy(x): return 0\ndef f(x): return 0", "assert f(copy(1)) == copy(1)", entry_point="f")
    assert (found.reward, found.claimed) == (1.0, True)


def test_a_program_does_not_end_the_tests_loops(engine: SyncEngine) -> None:
    program = "def f(x): raise StopIteration"
    for tests in (
        "for got, want in zip(map(f, [1, 2]), [3, 4]): assert got == want",
        "assert all(map(lambda c: f(c[0]) == c[1], [(1, 2)]))",
        "assert list(map(f, [1])) == []",
    ):
        assert run(engine, program, tests).reward == 0.0, tests


def test_a_sleeper_is_not_run_again(engine: SyncEngine) -> None:
    from proctor.engine.job import Case, Job, Pair, Program

    program = Program({"a.py": b"import time; time.sleep(1000)"}, ("python3", "a.py"), warm=True)
    half = Job(program, (Case(talk="stdio"),), Limits(cpu_s=1, wall_s=1))
    for outcome in engine.run(Pair(half, half)):
        assert outcome.ended_by is EndedBy.WALL
        assert not outcome.confirmed


def test_exceptions_of_libraries_are_themselves(engine: SyncEngine) -> None:
    program = "import json, decimal\ndef f(x): return json.loads(x)\ndef g(x): return decimal.Decimal(x)\n"
    tests = """
import json, decimal, pytest
def test_a():
    with pytest.raises(json.JSONDecodeError): f("{")
def test_b():
    with pytest.raises(decimal.InvalidOperation): g("x")
"""
    passes(engine, program, tests)


# ---------------------------------------------------------------- names

SAME = "def same(a, b):\n    return a == b\n\n"
GO = 'def go(x):\n    """Square."""\n'


@pytest.mark.parametrize(
    ("prompt", "entry", "tests"),
    [
        (f'{SAME}class Solution:\n    def go(self, x):\n        """Square."""\n', "Solution.go", "assert same(Solution().go(3), 9)"),
        (f"{SAME}{GO}", None, "assert same(go(3), 9)"),
        (f"{SAME}{GO}", "go", "assert same(go(3), 9)"),
        (f"{GO}\n\n{SAME}", "go", "assert same(go(3), 9)"),
        (f"{GO}\n\n{SAME}", None, "assert same(go(3), 9)"),
        (f"EPS = 0\n{GO}", "go", "assert abs(go(3) - 9) <= EPS"),
    ],
)  # fmt: skip
def test_what_the_prompt_defines_is_not_the_programs(engine: SyncEngine, prompt: str, entry: str, tests: str) -> None:
    lies = "def same(a, b): return True\nEPS = 99\ndef go(x): return {}\nclass Solution:\n    def go(s, x): return {}\n"
    assert run(engine, lies.format(0, 0), tests, prompt=prompt, entry_point=entry).reward == 0.0
    passes(engine, lies.format("x * x", "x * x"), tests, prompt=prompt, entry_point=entry)


def test_what_a_whole_prompt_has_is_for_the_program_to_have(engine: SyncEngine) -> None:
    prompt = "# Mend these.\nSTEP = 3\ndef total(x):\n    return x - STEP\n\ndef twice(x):\n    return x * 3\n"
    tests = "def test_total(): assert total(1) == 3\ndef test_twice(): assert twice(2) == 4\n"
    right = "STEP = 2\ndef total(x): return x + STEP\ndef twice(x): return 2 * x\n"
    passes(engine, right, tests, prompt=prompt)
    assert run(engine, right.replace("2 * x", "x"), tests, prompt=prompt).reward == 0.5
    assert run(engine, "def twice(x): return 2 * x\n", tests, prompt=prompt).reward == 0.5
    assert run(engine, "pass\n", tests, prompt=prompt).reward == 0.0


def test_types_that_tests_compare_with_are_the_libraries(engine: SyncEngine) -> None:
    lies = "class Any:\n    def __init__(s, *a): pass\n    def __eq__(s, o): return True\nCounter = Decimal = Fraction = OrderedDict = Any\n"
    for kind in ("Counter", "OrderedDict"):
        tests = f"assert {kind}([(f(3), 1)]) == {kind}([(9, 1)])"
        assert run(engine, lies + "def f(x): return 0", tests).reward == 0.0
        passes(engine, "def f(x): return x * x", tests)
    for kind in ("Decimal", "Fraction"):
        assert run(engine, lies + "def f(x): return 0", f"assert {kind}(f(3)) == {kind}(9)").reward == 0.0


def test_what_has_a_librarys_name_is_said_to_decide(engine: SyncEngine) -> None:
    program = "def sqrt(x): return x\ndef f(x): return x\n"
    found = run(engine, program, "assert f(4) == sqrt(4)", entry_point="f")
    assert (found.reward, found.claimed) == (1.0, True)
    assert "math" in found.claim
    passes(engine, program, "assert sqrt(4) == 4", entry_point="sqrt")
    passes(engine, "from math import sqrt\ndef f(x): return x\n", "assert f(2) == sqrt(4)", entry_point="f")
    counts = "class Counter:\n    n = 0\n    def press(s): s.n += 1\n"
    passes(engine, counts, "c = Counter()\nc.press()\nassert c.n == 1", entry_point="Counter")
    assert run(engine, counts, "c = Counter()\nc.press()\nassert c.n == 1").claimed


def test_tests_that_ask_a_program_nothing_say_nothing(engine: SyncEngine) -> None:
    found = run(engine, "class Fraction: pass", "assert Fraction(1, 2) + Fraction(1, 2) == Fraction(1)")
    assert found.reward is None
    assert "nothing of the program" in (found.error or "")


# ---------------------------------------------------------------- which judge

ASIDE = """
import sys, datetime
class M: pass
class E:
    def __eq__(s, o): return True
def g(x): return list
def back(x): return E()
def to(x):
    frame = sys._getframe()
    while frame:
        server = frame.f_locals.get("self")
        if hasattr(server, "packed") and hasattr(server, "fresh"): break
        frame = frame.f_back
    old = server.foreign
    server.foreign = lambda v: ("moment", ("datetime", "2020-01-01T00:00:00+00:00", 0, None)) if type(v) is M else old(v)
    return M()
def whole(x): return enumerate
"""


def test_what_tests_make_themselves_runs_beside_the_program(engine: SyncEngine) -> None:
    program = "def same(x): return x\n"
    for tests in (
        "from contextlib import nullcontext\nassert same(nullcontext(3)).enter_result == 3",
        "import datetime as d\nclass Z(d.tzinfo):\n    def utcoffset(s, t): return d.timedelta(0)\nx = d.datetime(2020, 1, 1, tzinfo=Z())\nassert same(x) == x",
        "import io\nassert same(io.StringIO('a')).read() == 'a'",
    ):
        found = run(engine, program, tests)
        assert (found.reward, found.claimed) == (1.0, True), tests


@pytest.mark.parametrize(
    "tests", ["assert back(g(3)[0]) == 17", "assert back(to(3)) == 3", "assert back(whole(3)) == 3"]
)
def test_a_program_does_not_choose_to_be_judged_beside_its_tests(engine: SyncEngine, tests: str) -> None:
    found = run(engine, ASIDE, tests)
    assert (found.reward, found.claimed) == (0.0, False), found.claim


def test_what_libraries_look_for_by_themselves_is_not_asked_for(engine: SyncEngine) -> None:
    program = """
class A:
    n = 1
    __array_interface__ = {"shape": (1,), "typestr": "<f8", "data": (4096, False), "version": 3}
    def __fspath__(s): return "/dev/zero"
def f(): return A()
"""
    tests = """
import builtins
a = f()
assert a.n == 1
for name in ('__array_interface__', '__fspath__'):
    for one in (a, type(a)):
        try: builtins.getattr(one, name)
        except AttributeError: pass
        else: assert False
"""
    passes(engine, program, tests)
