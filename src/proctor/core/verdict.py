"""The words in which an outcome is judged."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """An Outcome judged. All but INFRASTRUCTURE_ERROR are about the program.

    POLICY_VIOLATION is for policies and checkers of a caller's own. Proctor gives
    it to nobody: a refused system call fails and the program goes on, and one
    that the filter kills looks like one that sent itself the same signal.
    """

    ACCEPTED = "accepted"
    WRONG_ANSWER = "wrong_answer"
    RUNTIME_ERROR = "runtime_error"
    TIME_LIMIT = "time_limit"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    COMPILE_ERROR = "compile_error"
    NO_CODE = "no_code"
    POLICY_VIOLATION = "policy_violation"
    INFRASTRUCTURE_ERROR = "infrastructure_error"

    @property
    def is_score(self) -> bool:
        """False for the one verdict that says nothing about the program."""
        return self is not Verdict.INFRASTRUCTURE_ERROR
