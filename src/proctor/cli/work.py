"""What ``score`` has to do: problems and completions read and checked, and the call that grades them."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.cli.messages import say, say_isolation
from proctor.core.errors import InputError
from proctor.grading.api import grade
from proctor.grading.completions import load_completions, pair
from proctor.grading.formats import load_problems
from proctor.grading.grade import Grader
from proctor.grading.grades import Grade
from proctor.grading.place import Place

if TYPE_CHECKING:
    from proctor.grading.cache import Cache
    from proctor.grading.completions import Completion
    from proctor.grading.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What, beside the files, decides what a grade is; all of it is in the journal's header."""

    format: str = "auto"
    checker: str | None = None
    reward: str = "share"
    extract: str = "last-valid-block"
    real_interpreter: bool = False
    isolation: str = "auto"
    packages: tuple[str, ...] = ()
    limit: int | None = None
    repeat: int = 1
    claimed: str = "count"

    def grader(self) -> dict[str, Any]:
        """Those that grading itself takes, by its names."""
        return {
            "checker": self.checker,
            "reward": self.reward,
            "extract": self.extract,
            "warm": not self.real_interpreter,
            "repeat": self.repeat,
            "claimed": self.claimed,
        }


@dataclass(frozen=True, slots=True)
class Work:
    """Completions in input order, each with a problem, known to be gradable here."""

    problems: dict[str, Problem]
    completions: list[Completion]
    options: Options

    def __len__(self) -> int:
        return len(self.completions)

    def grade(
        self,
        numbers: Sequence[int],
        workers: int | None,
        on_grade: Callable[[Grade], None],
        cache: Cache | bool = False,
        reuse: int | None = None,
    ) -> None:
        """Grade some of the completions; ``on_grade`` is called here, as each is done, with its number as ``index``.

        Raises:
            InputError: the reward policy fails.
            IsolationUnavailable: the isolation asked for cannot be had here.
        """
        isolation, packages = self.options.isolation, self.options.packages
        grade(
            [self.completions[number] for number in numbers],
            self.problems,
            **self.options.grader(),
            on_grade=lambda done: on_grade(replace(done, index=numbers[done.index])),
            engine=Place(workers=workers, isolation=isolation, packages=packages, reuse=reuse, on_start=say_isolation),
            cache=cache,
        )


def load_work(problem_files: Sequence[str], completion_files: Sequence[str], options: Options) -> Work:
    """Read everything and check what can be checked before anything is run.

    Raises:
        InputError: a file, a row, an option or a reference that is wrong; it names the place.
    """
    if ":" in options.reward and "" not in sys.path:
        sys.path.insert(0, "")  # a module:function policy may lie in the current directory
    with _named_as_options():
        return _load(problem_files, completion_files, options)


@contextlib.contextmanager
def _named_as_options() -> Iterator[None]:
    """What grading calls by the name of its argument is an option here."""
    try:
        yield
    except InputError as error:
        if error.field not in _OPTIONS or (error.where is not None and error.field != "format"):  # a row's own field
            raise
        raise InputError(error.message, where=error.where, field=_OPTIONS[error.field]) from error


_OPTIONS = {name: f"--{name}" for name in ("format", "checker", "reward", "extract", "repeat", "claimed")}


def _load(problem_files: Sequence[str], completion_files: Sequence[str], options: Options) -> Work:
    grader = Grader(**options.grader())
    problems: dict[str, Problem] = {}
    for name in problem_files:
        for problem in load_problems(name, format=options.format):
            if problem.id in problems:
                first = problems[problem.id].source
                raise InputError(f"{problem.id!r} is there already, in {first}", where=problem.source, field="id")
            problems[problem.id] = problem
    completions: list[Completion] = []
    for name in completion_files:
        completions += load_completions(name, say=lambda text: say(f"warning: {text}"))
    completions = completions[: options.limit]
    pair(problems.values(), completions)
    distinct = {(item.problem_id, item.language): item for item in reversed(completions)}
    for item in reversed(distinct.values()):
        problem = problems[item.problem_id]
        grader.plan_for(problem, item.language or problem.language, item.source)
    return Work(problems, completions, options)


def judges_digest(problems: Mapping[str, Problem]) -> str | None:
    """SHA-256 over the checkers and interactors, whose text may lie in files of their own; None where there are none."""
    digest, found = hashlib.sha256(), False
    for name, problem in sorted(problems.items()):
        for judge in (problem.checker.program, problem.interactor):
            if judge is not None:
                found = True
                parts = [name, judge.source, *(part for row in sorted(judge.extra_files.items()) for part in row)]
                for part in parts:
                    data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
                    digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest() if found else None


def policy_file(reward: str) -> Path | None:
    """The source of a ``module:function`` policy, which decides rewards too; None for a built-in one."""
    module, colon, _ = reward.partition("+")[0].partition(":")
    if not colon:
        return None
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin and Path(spec.origin).is_file() else None
