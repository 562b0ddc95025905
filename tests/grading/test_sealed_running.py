"""Which tests of a file run, in which order, with what in common, and that none that failed is taken for one that did not run."""

from __future__ import annotations

import pytest
from sealed_help import passes, run

from proctor.engine.shared import SyncEngine

BANK = "class Bank:\n    def __init__(s): s.held = 0\n    def put(s, n): s.held += n\n"
# Tests that only pass where they share what pytest or unittest has them share.
SHARED = [
    "import pytest\n@pytest.fixture(scope='module')\ndef bank(): return Bank()\ndef test_a(bank): bank.put(1)\ndef test_b(bank): assert bank.held == 1",
    "import pytest\n@pytest.fixture(scope='session')\ndef bank():\n    yield Bank()\n@pytest.fixture\ndef full(bank):\n    bank.put(1)\n    return bank\ndef test_a(full): assert full.held == 1\ndef test_b(full): assert full.held == 2",
    "import pytest\n@pytest.fixture(scope='class')\ndef bank(): return Bank()\nclass TestA:\n    def test_b(self, bank):\n        bank.put(1)\n        assert bank.held == 1\n    def test_a(self, bank): assert bank.held == 1\nclass TestB:\n    def test_a(self, bank): assert bank.held == 0",
    "import pytest\nends = []\n@pytest.fixture(scope='module', params=[1, 2])\ndef bank(request):\n    made = Bank()\n    made.put(request.param)\n    yield made\n    ends.append(request.param)\ndef test_a(bank): assert bank.held == (2 if ends else 1)\ndef test_end(): assert ends[0] == 1",
    "import unittest\nclass T(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls): cls.bank = Bank()\n    def test_1(self): self.bank.put(1)\n    def test_2(self): self.assertEqual(self.bank.held, 1)",
    "bank = Bank()\nclass TestA:\n    def test_put(self): bank.put(1)\n    def test_held(self): assert bank.held == 1",
]


@pytest.mark.parametrize("tests", SHARED)
def test_what_tests_have_in_common_is_shared(engine: SyncEngine, tests: str) -> None:
    passes(engine, BANK, tests)


def test_the_end_of_what_is_shared_is_run_and_counts(engine: SyncEngine) -> None:
    fixture = "import pytest\n@pytest.fixture(scope='module')\ndef bank():\n    yield Bank()\n    assert False, 'at its end'\ndef test_a(bank): assert bank.held == 0"
    found = run(engine, BANK, fixture)
    assert [(case.name, case.verdict) for case in found.cases] == [
        ("test_a", "accepted"), ("fixtures of module", "wrong_answer"),
    ]  # fmt: skip
    group = "import unittest\nclass T(unittest.TestCase):\n    @classmethod\n    def {0}(cls): assert Bank().held == 1\n    def test_a(self): self.assertEqual(Bank().held, 0)\n    def test_b(self): self.assertEqual(Bank().held, 0)"
    assert run(engine, BANK, group.format("setUpClass")).reward == 0
    ended = run(engine, BANK, group.format("tearDownClass"))
    assert {case.name: case.verdict for case in ended.cases} == {
        "T.test_a": "accepted", "T.test_b": "accepted", "tearDownClass": "wrong_answer",
    }  # fmt: skip


def test_a_scope_that_is_computed_is_no_fault_of_the_programs(engine: SyncEngine) -> None:
    tests = "import pytest\n@pytest.fixture(scope=lambda fixture_name, config: 'module')\ndef bank(): return Bank()\ndef test_a(bank): assert bank.held == 0"
    found = run(engine, BANK, tests)
    assert found.reward is None
    assert "scope" in str(found.error)


# Exceptions that leave the tests' side without a word to say of a test that failed.
SILENT = "E = type('', (ValueError,), {})\ndef bad(*a): raise E(10 ** 5000)\nmiddle = bad\ndef none(xs): return True\n"
SKIPPING = [
    "import sys, pytest\npytestmark = pytest.mark.skipif(sys.version_info < (3, 8), reason='old')\ndef test_a(): assert middle([1]) == 1\ndef test_b(): assert none([])",
    "import sys, pytest\n@pytest.mark.skipif(sys.platform == 'win32', reason='w')\nclass TestA:\n    def test_a(self): assert middle([1]) == 1\n    def test_b(self): assert none([])",
    "import pytest\n@pytest.mark.parametrize('n', [1, 2, pytest.param(3, marks=pytest.mark.skip)])\ndef test_a(n): assert middle([n]) == n\ndef test_b(): assert none([])",
]


@pytest.mark.parametrize("tests", SKIPPING)
def test_a_test_that_failed_without_a_word_is_not_taken_for_one_that_was_skipped(
    engine: SyncEngine, tests: str
) -> None:
    found = run(engine, SILENT, tests)
    assert 0 < found.reward <= 0.5
    passed = run(engine, "def middle(xs): return xs[0]\ndef none(xs): return True\n", tests)
    assert (passed.reward, passed.claimed) == (1.0, False)


def test_what_is_skipped_beside_a_test_that_is_left_open_is_no_failure(engine: SyncEngine) -> None:
    program = "class P:\n    def __len__(s): return 2\ndef f(): return P()\n"
    tests = "import pytest\n@pytest.mark.skip\ndef test_a(): assert f() == 3\ndef test_b(): assert len(f()) == 2"
    assert run(engine, program, tests).reward is None


# Whether a test runs is the program's doing, by way of a name that looks like the tests' own.
OPTIONAL = [
    "import pytest\ntry:\n    from solution import fast\n    HAS = True\nexcept ImportError:\n    HAS = False\ndef test_a(): assert solution.slow(0) == 0\n@pytest.mark.skipif(not HAS, reason='x')\ndef test_b(): assert fast(3) == 9",
    "import pytest\nok = False\nif solution.slow(3) == 9:\n    ok = True\ndef test_a(): assert solution.slow(0) == 0\n@pytest.mark.skipif(not ok, reason='x')\ndef test_b(): assert solution.slow(3) == 9",
    "import unittest\ntry:\n    from solution import fast\nexcept ImportError:\n    fast = None\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(solution.slow(0), 0)\n    @unittest.skipIf(fast is None, 'x')\n    def test_b(self): self.assertEqual(fast(3), 9)",
    "import pytest, sys\ndef test_a(): assert solution.slow(0) == 0\n@pytest.mark.skipif(not hasattr(sys.modules['solution'], 'fast'), reason='x')\ndef test_b(): assert solution.fast(3) == 9",
]


@pytest.mark.parametrize("tests", OPTIONAL)
def test_a_skip_that_hangs_on_the_program_is_marked(engine: SyncEngine, tests: str) -> None:
    found = run(engine, "def slow(x): return 0\n", f"import solution\n{tests}", module=True)
    assert found.claimed or found.reward < 1


def test_expected_failures_by_exception_and_strictly(engine: SyncEngine) -> None:
    other = "import pytest\n@pytest.mark.xfail(raises=ValueError)\ndef test_a(): assert f(3) == 9\ndef test_b(): assert f(0) == 0"
    assert run(engine, "def f(x): return 0", other).reward == 0.5
    passes(engine, "def f(x):\n    if x: raise ValueError\n    return 0", other)
    strict = (
        "import pytest\n@pytest.mark.xfail(strict=True)\ndef test_a(): assert f(3) == 0\ndef test_b(): assert f(0) == 0"
    )
    assert run(engine, "def f(x): return 0", strict).reward == 0.5
    passes(engine, "def f(x): return x", strict)
