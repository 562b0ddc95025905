"""Proctor runs the programs that a language model writes, in sealed sandboxes, and turns their output into a reward.

Names are imported when they are first used: this package is also what runs
inside a sandbox, where nothing of grading belongs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proctor.client.async_files import AsyncFiles as AsyncFiles
    from proctor.client.async_process import AsyncProcess as AsyncProcess
    from proctor.client.async_runtime import AsyncRuntime as AsyncRuntime
    from proctor.client.async_sandbox import AsyncSandbox as AsyncSandbox
    from proctor.client.async_sandbox import AsyncSnapshot as AsyncSnapshot
    from proctor.client.errors import CommandError as CommandError
    from proctor.client.errors import ConflictError as ConflictError
    from proctor.client.errors import InvalidRequestError as InvalidRequestError
    from proctor.client.errors import NotFoundError as NotFoundError
    from proctor.client.errors import RuntimeAPIError as RuntimeAPIError
    from proctor.client.sync_files import Files as Files
    from proctor.client.sync_process import Process as Process
    from proctor.client.sync_runtime import Runtime as Runtime
    from proctor.client.sync_sandbox import Sandbox as Sandbox
    from proctor.client.sync_sandbox import Snapshot as Snapshot
    from proctor.client.values import CommandResult as CommandResult
    from proctor.core.errors import InfrastructureError as InfrastructureError
    from proctor.core.errors import InputError as InputError
    from proctor.core.errors import IsolationUnavailable as IsolationUnavailable
    from proctor.core.errors import ProctorError as ProctorError
    from proctor.core.limits import Limits as Limits
    from proctor.core.outcome import EndedBy as EndedBy
    from proctor.core.outcome import Outcome as Outcome
    from proctor.core.verdict import Verdict as Verdict
    from proctor.engine.job import Case as Case
    from proctor.engine.job import Job as Job
    from proctor.engine.job import Program as Program
    from proctor.grading.api import agrade as agrade
    from proctor.grading.api import ascore as ascore
    from proctor.grading.api import grade as grade
    from proctor.grading.api import pass_at_k as pass_at_k
    from proctor.grading.api import score as score
    from proctor.grading.audit import Audit as Audit
    from proctor.grading.audit import audit as audit
    from proctor.grading.cache import Cache as Cache
    from proctor.grading.checker_names import parse_checker as parse_checker
    from proctor.grading.checkers import Checker as Checker
    from proctor.grading.checkers import CheckResult as CheckResult
    from proctor.grading.checkers import exact as exact
    from proctor.grading.checkers import lines as lines
    from proctor.grading.checkers import numbers as numbers
    from proctor.grading.checkers import tokens as tokens
    from proctor.grading.checkers import unordered_lines as unordered_lines
    from proctor.grading.completions import load_completions as load_completions
    from proctor.grading.extract import extract_code as extract_code
    from proctor.grading.formats import load_problems as load_problems
    from proctor.grading.formats import problems_from_rows as problems_from_rows
    from proctor.grading.grades import CaseGrade as CaseGrade
    from proctor.grading.grades import Grade as Grade
    from proctor.grading.policy import all_or_nothing as all_or_nothing
    from proctor.grading.policy import audit_penalty as audit_penalty
    from proctor.grading.policy import compile_bonus as compile_bonus
    from proctor.grading.policy import crash_penalty as crash_penalty
    from proctor.grading.policy import parse_policy as parse_policy
    from proctor.grading.policy import share as share
    from proctor.grading.policy import slow_penalty as slow_penalty
    from proctor.grading.problem import CaseSpec as CaseSpec
    from proctor.grading.problem import CheckerProgram as CheckerProgram
    from proctor.grading.problem import CheckerSpec as CheckerSpec
    from proctor.grading.problem import Problem as Problem
    from proctor.grading.provenance import Provenance as Provenance

_WHERE = {
    "proctor.client.async_files": ("AsyncFiles",),
    "proctor.client.async_process": ("AsyncProcess",),
    "proctor.client.async_runtime": ("AsyncRuntime",),
    "proctor.client.async_sandbox": ("AsyncSandbox", "AsyncSnapshot"),
    "proctor.client.errors": (
        "CommandError",
        "ConflictError",
        "InvalidRequestError",
        "NotFoundError",
        "RuntimeAPIError",
    ),
    "proctor.client.sync_files": ("Files",),
    "proctor.client.sync_process": ("Process",),
    "proctor.client.sync_runtime": ("Runtime",),
    "proctor.client.sync_sandbox": ("Sandbox", "Snapshot"),
    "proctor.client.values": ("CommandResult",),
    "proctor.core.errors": ("InfrastructureError", "InputError", "IsolationUnavailable", "ProctorError"),
    "proctor.core.limits": ("Limits",),
    "proctor.core.outcome": ("EndedBy", "Outcome"),
    "proctor.core.verdict": ("Verdict",),
    "proctor.engine.job": ("Case", "Job", "Program"),
    "proctor.grading.api": ("agrade", "ascore", "grade", "pass_at_k", "score"),
    "proctor.grading.cache": ("Cache",),
    "proctor.grading.audit": ("Audit", "audit"),
    "proctor.grading.checker_names": ("parse_checker",),
    "proctor.grading.checkers": ("CheckResult", "Checker", "exact", "lines", "numbers", "tokens", "unordered_lines"),
    "proctor.grading.completions": ("load_completions",),
    "proctor.grading.extract": ("extract_code",),
    "proctor.grading.formats": ("load_problems", "problems_from_rows"),
    "proctor.grading.grades": ("CaseGrade", "Grade"),
    "proctor.grading.provenance": ("Provenance",),
    "proctor.grading.policy": (
        "all_or_nothing",
        "audit_penalty",
        "compile_bonus",
        "crash_penalty",
        "parse_policy",
        "share",
        "slow_penalty",
    ),
    "proctor.grading.problem": ("CaseSpec", "CheckerProgram", "CheckerSpec", "Problem"),
}
_HOME = {name: module for module, names in _WHERE.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'proctor' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
