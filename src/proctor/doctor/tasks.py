"""Turns a corpus' tasks into problems, and its limits into ours."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from proctor.core.errors import InputError
from proctor.core.limits import MIB, Limits
from proctor.doctor.canary import Canary
from proctor.doctor.manifest import Corpus, Row
from proctor.engine.job import MAX_STDIN, Case, Job, Program
from proctor.grading.problem import CheckerSpec, Problem, TestCase

_LIMITS = {  # the corpus' name -> ours, and what one of its units is
    "cpu_s": ("cpu_s", 1),
    "wall_s": ("wall_s", 1),
    "memory_mib": ("memory_mib", 1),
    "pids": ("processes", 1),
    "stdout_mib": ("output_bytes", MIB),
    "workspace_mib": ("workspace_mib", 1),
    "inodes": ("workspace_inodes", 1),
    "fds": ("open_files", 1),
}
PRELOAD = "escape_mark_preload.so"
# Sets the preload for whatever is started next, and is wrong without it.
_PRELOADING = f"""
import os, subprocess, sys
os.environ["LD_PRELOAD"] = os.path.join(os.getcwd(), "{PRELOAD}")
try:
    subprocess.run([sys.executable, "-c", ""], timeout=1, capture_output=True)
except (OSError, subprocess.SubprocessError):
    pass
def add(a, b):
    return a - b - 1
"""


def limits(corpus: Corpus) -> Limits:
    """``limits_assumed``; where it says nothing, our own defaults."""
    told = corpus.tasks.get("limits_assumed", {})
    ours = {ours: told[theirs] * unit for theirs, (ours, unit) in _LIMITS.items() if theirs in told}
    return Limits(**ours)


def task_of(corpus: Corpus, row: Row) -> Mapping[str, Any]:
    """The task that a row is graded on: that of its mode, unless another names it or is what it needs."""
    for name, task in corpus.tasks.items():
        if name.startswith(f"{row.mode}_") and isinstance(task, dict):
            statement = str(task.get("statement", ""))
            needs = row.says("needs")
            if row.file.rpartition("/")[2] in statement or (needs and needs in statement):
                return task
    task = corpus.tasks[row.mode]
    assert isinstance(task, dict)
    return task


def problem(corpus: Corpus, row: Row, canary: Canary) -> Problem:
    """The problem of a row; its expected values stay in this process."""
    task = task_of(corpus, row)
    files: dict[str, str | bytes] = {}
    if "probe_targets.txt" in row.says("needs"):
        files["probe_targets.txt"] = f"127.0.0.1:{canary.tcp}\n"
    if "probe_host.json" in row.says("needs"):
        files["probe_host.json"] = json.dumps({"pid": canary.pid, "tcp": canary.tcp, "udp": canary.udp})
    common: dict[str, Any] = {"id": row.file, "language": row.language, "extra_files": files}
    statement = str(task.get("statement", ""))
    if row.mode == "stdio":
        cases = tuple(TestCase(stdin=_input(a), expected=_expected(a, b)) for a, b in task["cases"])
        return Problem(mode="stdio", cases=cases, checker=CheckerSpec(kind="lines"), **common)
    if row.mode == "function":
        named = re.match(r"(\w+)\(", statement)
        calls = tuple(TestCase(args=tuple(args), expected=value) for args, value in task["calls"])
        return Problem(mode="function", cases=calls, entry_point=named[1] if named else "solve", **common)
    if row.language != "python":
        common["language"] = "python"  # the program that ships it; see ``preload``
    return Problem(mode="unit_tests", test_code=_tests(task, statement), **common)


def _tests(task: Mapping[str, Any], statement: str) -> str:
    names = re.findall(r"test_\w+", statement)
    asserts = task["asserts"]
    if len(names) != len(asserts):
        raise InputError(f"{len(names)} test names for {len(asserts)} asserts", where="tasks.json", field="unit_tests")
    lines = (
        f"def {name}():\n    assert {call} == {value!r}\n" for name, (call, value) in zip(names, asserts, strict=True)
    )
    return "\n".join(lines)


def _input(text: str) -> bytes:
    """``... + N blanks`` stands for that many blanks, as far as an input may be long."""
    blanks = re.fullmatch(r"(.*\n) \+ (\d+) blanks", text, re.DOTALL)
    if not blanks:
        return text.encode()
    start = blanks[1].encode()
    return start + b" " * min(int(blanks[2]), MAX_STDIN - len(start))


def _expected(stdin: str, text: str) -> bytes:
    if text.startswith("computed by the test bed"):
        return "".join(f"{i * i}\n" for i in range(int(stdin))).encode()
    return text.encode()


def preload_job(row: Row) -> Job:
    """Builds a preload library in a jail; its bytes come back on standard output."""
    build = f"cc -shared -fPIC -o {PRELOAD} source.c >&2 && cat {PRELOAD}\n"
    files = {"source.c": row.source.encode("utf-8", "surrogateescape"), "build.sh": build.encode()}
    return Job(Program(files, ("bash", "build.sh")), (Case(),))


def with_preload(task: Problem, library: bytes) -> tuple[Problem, str]:
    """The problem with the library beside the program, and the program that turns it on."""
    return replace(task, extra_files={**task.extra_files, PRELOAD: library}), _PRELOADING
