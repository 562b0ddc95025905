"""Inside gVisor every kind of program gets the verdict that it gets in the jail."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from engine_help import job, run

import proctor
from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy
from proctor.engine.job import Case, Job
from proctor.engine.languages import program
from proctor.engine.shared import SyncEngine
from proctor.grading.problem import CheckerSpec, Problem, TestCase

pytestmark = pytest.mark.environments

SUM: dict[str, Any] = {
    "mode": "stdio",
    "cases": (TestCase(stdin=b"3 4\n", expected=b"7\n"), TestCase(stdin=b"10 -2\n", expected=b"8\n")),
    "time_limit_s": 1,
    "memory_limit_mib": 96,
}
CALL: dict[str, Any] = {
    "mode": "function",
    "entry_point": "solve",
    "cases": (TestCase(args=(2,), expected=[2, 4]), TestCase(args=(3,), expected=[3, 9])),
    "checker": CheckerSpec(kind="value"),
    "time_limit_s": 1,
}
UNIT: dict[str, Any] = {
    "mode": "unit_tests",
    "test_code": "import unittest\nclass T(unittest.TestCase):\n"
    "    def test_a(self): self.assertEqual(solve(2), [2, 4])\n"
    "    def test_b(self):\n        with self.assertRaises(ValueError): solve(-1)\n",
    "time_limit_s": 2,
}
ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
SQUARE = "def solve(n):\n    if n < 0:\n        raise ValueError(n)\n    return [n, n * n]\n"
C_SUM = '#include <stdio.h>\nint main(void) { int a, b; scanf("%d %d", &a, &b); printf("%d\\n", a + b); return 0; }\n'
TABLE: dict[str, tuple[dict[str, Any], str]] = {
    "right": (SUM, ADD),
    "right in its last case": (SUM, "print(8)"),
    "wrong": (SUM, "print(0)"),
    "silent": (SUM, "pass"),
    "exception": (SUM, "1 / 0"),
    "syntax": (SUM, "def"),
    "exit code": (SUM, "import sys; sys.exit(3)"),
    "exit code 0 with a message": (SUM, ADD + "import sys; sys.stderr.write('e' * 100_000); sys.exit(0)"),
    "abort": (SUM, "import os; os.abort()"),
    "kills its own group": (SUM, "import os; os.kill(0, 9)"),
    "loop": (SUM, "while True: pass"),
    "loop in a child": (SUM, "import os\nif os.fork(): os.wait()\nwhile True: pass"),
    "sleep": (SUM, "import time; time.sleep(1000)"),
    "memory": (SUM, "x = []\nwhile True: x.append(bytearray(1 << 20))"),
    "memory of children": (
        SUM, "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        x = bytearray(40 << 20)\n"
        "        for i in range(0, len(x), 4096): x[i] = 1\n        time.sleep(60)\nos.wait()",
    ),
    "flood": (SUM, "while True: print('x' * 100_000)"),
    "many forks": ({**SUM, "memory_limit_mib": 1024}, "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"),
    "leaves a child": (SUM, ADD + "import os, time\nif os.fork() == 0: time.sleep(1000)"),
    "threads": (SUM, f"import threading\nt = threading.Thread(target=lambda: exec({ADD!r}))\nt.start(); t.join()"),
    "subprocess": (SUM, f"import subprocess, sys\nprint(subprocess.check_output([sys.executable, '-c', {ADD!r}]).decode())"),
    "files": (SUM, "a, b = map(int, input().split())\nopen('x', 'w').write(str(a + b))\nprint(open('/workspace/x').read())"),
    "call": (CALL, SQUARE),
    "call, wrong": (CALL, "def solve(n): return [n, n + n]"),
    "call, raises": (CALL, "def solve(n): return [n][5]"),
    "call, leaves": (CALL, "import os\ndef solve(n): os._exit(0)"),
    "call, equal to all": (CALL, "class E:\n    def __eq__(self, other): return True\ndef solve(n): return E()"),
    "unit tests": (UNIT, SQUARE),
    "unit tests, wrong": (UNIT, "def solve(n): return [n, n * n]"),
    "unit tests, forged": (UNIT, "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\ndef solve(n): return 5"),
    "c": ({**SUM, "language": "c"}, C_SUM),
    "c, broken": ({**SUM, "language": "c"}, "int main(void) { return x; }"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_the_same_verdicts_as_in_the_jail(boxed: SyncEngine, jailed: SyncEngine, name: str) -> None:
    known, source = TABLE[name]
    if known.get("language") == "c" and not shutil.which("gcc"):
        pytest.skip("no gcc here")
    problem = Problem(id=name, **known)
    grades = [
        proctor.grade([source], problem, engine=engine, extract="whole", cache=False)[0] for engine in (boxed, jailed)
    ]
    inside, outside = ([case.verdict for case in grade.cases] for grade in grades)
    assert inside == outside, grades[0]
    assert grades[0].reward == grades[1].reward is not None
    assert boxed.isolation == "gvisor"


@pytest.mark.parametrize("warm", [True, False])
def test_streams_status_and_clocks(boxed: SyncEngine, warm: bool) -> None:
    source = "import sys\nx = sys.stdin.buffer.read()\nfor _ in range(3_000_000): pass\nsys.stdout.buffer.write(x)\nsys.stderr.write('e')\nsys.exit(len(x) % 256)"
    given = bytes(range(256)) * 4000
    (outcome,) = run(boxed, source, given, warm=warm)
    assert (outcome.error, outcome.ended_by, outcome.exit_code) == (None, None, len(given) % 256)
    assert (outcome.stdout, outcome.stderr, outcome.stdin_read) == (given, b"e", len(given))
    assert 0 < outcome.cpu_s <= 2 * outcome.wall_s + 1  # a tree of one thread


def test_a_case_leaves_nothing_for_the_next(boxed: SyncEngine) -> None:
    source = (
        "import os, socket\n"
        "print(sorted(os.listdir('.')), os.listdir('/tmp'), os.listdir('/dev/shm'), len([p for p in os.listdir('/proc') if p.isdigit()]))\n"
        "open('/tmp/x', 'w').write('x'); open('/workspace/y', 'w').write('y'); open('/dev/shm/z', 'w').write('z')\n"
        "s = socket.socket(); s.bind(('127.0.0.1', 4444)); s.listen(); c = socket.create_connection(('127.0.0.1', 4444)); s.accept()[0].close()\n"
        "if os.fork() == 0:\n    import time; time.sleep(1000)\n"
    )
    outcomes = boxed.run(job(source, b"", b"", b""))
    assert {outcome.error for outcome in outcomes} == {None}
    assert len({outcome.stdout for outcome in outcomes}) == 1, [outcome.stdout for outcome in outcomes]
    assert outcomes[0].stdout.startswith(b"['solution.py'] [] [] 2")
    assert not outcomes[0].stderr
    assert all(outcome.left_processes == 1 for outcome in outcomes)


def test_what_a_program_sees(boxed: SyncEngine) -> None:
    """Neither the guest's files nor its settings, nor anything of the process that watches it."""
    source = """
import os, glob
def tried(f):
    try: return f()
    except OSError as exc: return type(exc).__name__
print(os.listdir('/.proctor') if os.access('/.proctor', os.R_OK) else [])
print([tried(lambda: open(f'/proc/{os.getppid()}/{name}', 'rb').read()) for name in ('environ', 'maps', 'mem', 'cmdline')])
print(os.getuid(), sorted(os.listdir('/dev')), [os.access(p, os.W_OK) for p in ('/', '/dev', '/usr', '/etc', '/.proctor')])
print(open('/proc/self/cmdline', 'rb').read().split(b'\\0')[0].rsplit(b'/', 1)[-1][:6])
"""
    for warm in (True, False):
        (outcome,) = boxed.run(job(source, warm=warm))
        lines = outcome.stdout.decode().splitlines()
        assert lines[0] == "[]", outcome
        assert set(eval(lines[1])) <= {"PermissionError", "FileNotFoundError", "NotADirectoryError"}
        assert lines[2] == (
            "1000 ['fd', 'full', 'null', 'pts', 'random', 'shm', 'stderr', 'stdin', 'stdout', 'urandom', 'zero'] "
            "[False, False, False, False, False]"
        )
        assert lines[3] == "b'python'"


def test_the_number_of_processes_is_exact(boxed: SyncEngine) -> None:
    source = "import os, signal\nn = 1\ntry:\n    while True:\n        if os.fork() == 0: signal.pause()\n        n += 1\nexcept OSError: print(n)"
    for warm in (True, False):
        outcomes = boxed.run(job(source, b"", b"", limits=Limits(cpu_s=20, processes=12), warm=warm))
        assert [outcome.stdout for outcome in outcomes] == [b"12\n"] * 2


def test_memory_that_processes_share_is_counted_once(boxed: SyncEngine) -> None:
    """As far as the host tells: its group counts each page once, and gVisor for everybody who has it."""
    if "memory" not in boxed.features["outside"]:
        pytest.skip("no control group tells here what is used")
    source = (
        "import os, time\nx = bytearray(40 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\n"
        "for _ in range(6):\n    if os.fork() == 0:\n        time.sleep(0.5); os._exit(0)\n"
        "for _ in range(6): os.wait()\nprint(len(x))"
    )
    (outcome,) = boxed.run(job(source, limits=Limits(cpu_s=10, memory_mib=160)))
    assert (outcome.ended_by, outcome.stdout) == (None, b"41943040\n")
    (outcome,) = boxed.run(
        job(
            "x = bytearray(200 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nimport time; time.sleep(5)",
            limits=Limits(cpu_s=10, memory_mib=160),
        )
    )
    assert outcome.ended_by is EndedBy.MEMORY


def test_a_compiled_program_and_a_file_of_its_own(boxed: SyncEngine) -> None:
    if not shutil.which("gcc"):
        pytest.skip("no gcc here")
    work = Job(program(C_SUM, "c"), (Case(b"20 22"), Case(b"1 2")), Limits(memory_mib=128))
    assert [(o.stdout, o.error) for o in boxed.run(work)] == [(b"42\n", None), (b"3\n", None)]
