"""The things that are timed: Proctor's side, and what stands beside it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import proctor
from bench.contest import Times
from proctor.core.image import Image
from proctor.core.outcome import Outcome
from proctor.engine.job import Case, Job, Program
from proctor.engine.languages import program
from proctor.engine.shared import SyncEngine
from proctor.grading.problem import Problem, TestCase

SOURCE = """n = int(input())
numbers = list(map(int, input().split()))
best = {}
for x in numbers:
    best[x] = best.get(x, 0) + 1
print(sum(numbers), max(best.values()))
"""
STDIN = b"8\n3 1 4 1 5 9 2 6\n"
STDOUT = b"31 2\n"
CPP = """#include <iostream>
int main() { int n; std::cin >> n; long long s = 0, x; while (n-- && std::cin >> x) s += x; std::cout << s << " 2" << std::endl; }
"""
_GUEST = Path(proctor.__file__).parent / "guest"


class Workshop:
    """Files, commands and processes that the sides need; a context manager."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.folder = Path(tempfile.mkdtemp(prefix="bench-"))
        (self.folder / "solution.py").write_text(SOURCE)
        (self.folder / "solution.cpp").write_text(CPP)
        self.bare = subprocess.Popen(
            [image.python, "-S", str(Path(__file__).with_name("bare.py")), str(_GUEST)],
            env=image.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> Workshop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.bare.stdin is not None
        self.bare.stdin.close()
        self.bare.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *command: str, stdin: bytes = STDIN, stdout: bytes | None = STDOUT) -> None:
        """A command as trainers run it without a sandbox; its output must be right."""
        done = subprocess.run(
            command, input=stdin, capture_output=True, cwd=self.folder, env=self.image.env, check=False
        )
        if done.returncode != 0 or (stdout is not None and done.stdout != stdout):
            raise RuntimeError(f"{command[0]} failed: {done.stderr.decode(errors='replace')[-500:]}")

    def python(self, times: int = 1) -> None:
        """The program by the interpreter, unsandboxed, once for each case."""
        for _ in range(times):
            self.run(self.image.python, "solution.py")

    def python_alone(self) -> None:
        """The same without the host's site-packages, which a jail does not look at either."""
        self.run(self.image.python, "-S", "solution.py")

    def compile_and_run(self) -> None:
        """The C++ program, unsandboxed."""
        self.run("g++", "-O2", "-std=gnu++17", "-o", "solution", "solution.cpp", stdout=b"")
        self.run("./solution")

    def bubblewrap(self) -> None:
        """The program by the interpreter, in bubblewrap."""
        binds = [word for source, inside in self.image.plan["binds"] for word in ("--ro-bind", source, inside)]
        links = [
            word
            for target, path in self.image.plan["links"]
            if path.count("/") == 1
            for word in ("--symlink", target, path)
        ]
        self.run(
            "bwrap", *binds, *links, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-all", "--die-with-parent",
            "--ro-bind", str(self.folder), "/workspace", "--chdir", "/workspace", self.image.python, "solution.py",
        )  # fmt: skip

    def forks(self, cpu: Times, count: int = 10) -> list[float]:
        """Seconds of bare forks of an equally warm interpreter; the children's CPU seconds are added to ``cpu``."""
        assert self.bare.stdin is not None
        assert self.bare.stdout is not None
        self.bare.stdin.write(f"{count}\n")
        self.bare.stdin.flush()
        answer: list[tuple[float, float]] = json.loads(self.bare.stdout.readline())
        cpu.seconds += [used for _, used in answer]
        return [seconds for seconds, _ in answer]


def job(cases: int, *, warm: bool = True, language: str = "python") -> Job:
    """The same program, as a job."""
    made: Program = program(CPP if language == "cpp" else SOURCE, language, warm=warm)
    return Job(made, (Case(STDIN),) * cases)


def checked(engine: SyncEngine, work: Job, **options: Any) -> list[Outcome]:
    """Run a job; its output must be right."""
    outcomes = engine.run(work, **options)
    for outcome in outcomes:
        if not outcome.ok or outcome.stdout != STDOUT:
            raise RuntimeError(f"a case failed: {outcome}")
    return outcomes


def each_case(engine: SyncEngine, work: Job, cpu: Times | None = None) -> list[float]:
    """Seconds from one outcome to the next: what a case costs in a jail that is open."""
    seen: list[float] = []
    outcomes = checked(engine, work, on_outcome=lambda index, outcome: seen.append(time.perf_counter()))
    if cpu is not None:
        cpu.seconds += [outcome.cpu_s for outcome in outcomes[1:]]
    return [after - before for before, after in pairwise(seen)]


def first_output(engine: SyncEngine, work: Job) -> list[float]:
    """Seconds from submitting a job to its first outcome."""
    seen: list[float] = []
    start = time.perf_counter()
    checked(engine, work, on_outcome=lambda index, outcome: seen.append(time.perf_counter()))
    return [seen[0] - start]


def many(engine: SyncEngine, jobs: int, cases: int) -> list[float]:
    """Seconds a program, when many are queued at once."""
    start = time.perf_counter()
    waiting = [engine.submit(job(cases)) for _ in range(jobs)]
    for future in waiting:
        if not all(outcome.ok for outcome in future.result()):
            raise RuntimeError("a case failed")
    return [(time.perf_counter() - start) / jobs]


def score_twice(engine: SyncEngine, programs: int, cases: int) -> tuple[float, float]:
    """Seconds of scoring completions for the first time, and of scoring them again with what was kept."""
    problem = Problem(id="bench", mode="stdio", cases=(TestCase(stdin=STDIN, expected=STDOUT),) * cases)
    texts = [f"Here it is:\n```python\n{SOURCE}# {number}\n```\n" for number in range(programs)]
    seconds = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for kept in (False, True):
            start = time.perf_counter()
            grades = proctor.grade(texts, problem, engine=engine, cache=f"{folder}/grades.sqlite")
            seconds.append(time.perf_counter() - start)
            if not all(grade.accepted and grade.cached is kept for grade in grades):
                raise RuntimeError("a program was not graded as it should be")
    return seconds[0], seconds[1]


def cold(make: Callable[[], SyncEngine]) -> list[float]:
    """Seconds from nothing to a program's first output."""
    start = time.perf_counter()
    engine = make()
    checked(engine, job(1))
    taken = time.perf_counter() - start
    engine.close()
    return [taken]


def have_bubblewrap() -> str:
    """Empty when bubblewrap works here, else why not; installs it where that is allowed."""
    if shutil.which("bwrap") is None and os.geteuid() == 0 and shutil.which("apt-get") and not os.environ.get("NO_APT"):
        subprocess.run(["apt-get", "install", "-y", "-qq", "bubblewrap"], capture_output=True, check=False)
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    return ""
