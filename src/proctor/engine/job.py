"""What a caller asks the engine to run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from proctor.core.errors import InputError
from proctor.core.limits import Limits

MAX_STDIN = 64 << 20
MAX_FILES_BYTES = 64 << 20
MAX_REQUEST = 64 << 20
MAX_WORDS, MAX_WORDS_LENGTH = 4096, 24 << 10  # names of files, arguments: what fits into a frame's header and an exec
STOP_AFTER = 3
_PAGE = 4096  # what a file in memory is rounded up to


@dataclass(frozen=True, slots=True)
class Program:
    """The files and the command that the policy wrote.

    Attributes:
        files: relative path -> content; they lie in /workspace, read-only.
        argv: the command, run in /workspace without a shell. The interpreter
            of the image is written ``python3``.
        compile: a command run once per job before the cases, in the same
            jail; what it leaves in /workspace is added to the files.
        warm: run ``python3 FILE ...`` in a fork of the warm interpreter; the
            engine falls back to a real one when a file of the program shadows
            a module that the warm one holds.
    """

    files: Mapping[str, bytes]
    argv: tuple[str, ...]
    compile: tuple[str, ...] | None = None
    warm: bool = False

    def __post_init__(self) -> None:
        for field_name, words in (("argv", self.argv), ("compile", self.compile)):
            if words is not None:
                _check_words(words, field_name)
        if not self.argv:
            raise InputError("the command is empty; give at least the program's name", field="argv")
        _check_names(tuple(self.files))
        if sum(map(len, self.files.values())) > MAX_FILES_BYTES:
            raise InputError(f"more than {MAX_FILES_BYTES} bytes of files", field="files")


def _check_names(names: tuple[str, ...]) -> None:
    """Paths of files that can lie in one workspace together."""
    _check_words(names, "files")
    for name in names:
        parts = name.split("/")
        long = len(os.fsencode(name)) > 1024 or any(len(os.fsencode(part)) > 255 for part in parts)
        if not name or "\0" in name or long or any(part in ("", ".", "..") for part in parts):
            raise InputError(f"{name[:100]!r} is not a plain relative path", field="files")
        for depth in range(1, len(parts)):
            if "/".join(parts[:depth]) in names:
                raise InputError(f"{name[:100]!r} lies below a file", field="files")


def _check_words(words: tuple[str, ...], name: str) -> None:
    """Texts that the kernel takes as names or arguments, and that fit into one header together."""
    for word in words:
        try:
            bad = b"\0" in os.fsencode(word)
        except UnicodeEncodeError:
            bad = True
        if bad:
            raise InputError(f"{word[:100]!r} has a character that no file or argument may have", field=name)
    if len(words) > MAX_WORDS or sum(map(len, words)) > MAX_WORDS_LENGTH:
        raise InputError(f"more than {MAX_WORDS} words, or {MAX_WORDS_LENGTH} characters of them", field=name)


@dataclass(frozen=True, slots=True)
class Case:
    """One input: standard input, or a request to the call or test harness.

    Attributes:
        stdin: bytes on standard input, as they are; at most 64 MiB.
        request: for a harness: see ``proctor.guest.protocol``.
        steps: calls that the request holds. The CPU and wall limits are per
            call, so the process as a whole gets them ``steps`` times.
        keep: bytes of stdout to hold on to here, None for all; what is more is
            dropped as it comes and ``stdout_truncated`` set. Never told to the
            guest, since it may say something about the answer.
        files: relative path -> content, beside the program's, for this case alone.
        argv: the command of this case, None for the program's.
        collect: relative paths of files to bring back when it has ended
            (``Outcome.files``): regular ones, all together at most ``collect_bytes``.
        talk: it is one half of a ``Pair``: ``stdio``: its stdin and stdout are
            pipes to the other half; ``request``: its harness talks to the other's.
    """

    stdin: bytes = b""
    request: bytes | None = None
    steps: int = 1
    keep: int | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    argv: tuple[str, ...] | None = None
    collect: tuple[str, ...] = ()
    collect_bytes: int = 1 << 20
    talk: Literal["stdio", "request"] | None = None

    def __post_init__(self) -> None:
        if len(self.stdin) > MAX_STDIN:
            raise InputError(f"{len(self.stdin)} bytes, more than {MAX_STDIN}", field="stdin")
        if self.request is not None and len(self.request) > MAX_REQUEST:
            raise InputError(f"{len(self.request)} bytes, more than {MAX_REQUEST}", field="request")
        if self.steps < 1:
            raise InputError(f"{self.steps} is not 1 or more", field="steps")
        if self.argv is not None:
            _check_words(self.argv, "argv")
        _check_names((*self.files, *self.collect))
        if sum(map(len, self.files.values())) > MAX_FILES_BYTES or self.collect_bytes > MAX_FILES_BYTES:
            raise InputError(f"more than {MAX_FILES_BYTES} bytes of files", field="files")


@dataclass(frozen=True, slots=True)
class Job:
    """A program, its cases' inputs, and the bounds of each case.

    Attributes:
        stop_after: time limits exceeded after which the cases that are left
            are not run (``EndedBy.NOT_RUN``): a right program exceeds none, and
            an endless loop must not cost its limit in each of a hundred cases.
            None runs them all.
    """

    program: Program
    cases: tuple[Case, ...]
    limits: Limits = field(default_factory=Limits)
    stop_after: int | None = STOP_AFTER
    compile_limits: Limits = field(
        default_factory=lambda: Limits(cpu_s=30, wall_s=60, memory_mib=1024, processes=128, workspace_mib=256)
    )

    def __post_init__(self) -> None:
        size = _stored(self.program.files) + max((_stored(case.files) for case in self.cases), default=0)
        if size > self.limits.workspace_mib << 20:
            message = f"{size} bytes do not fit into a workspace of {self.limits.workspace_mib} MiB"
            raise InputError(message, field="files")


def _stored(files: Mapping[str, bytes]) -> int:
    """Bytes that files take up in memory."""
    return sum(-(-len(data) // _PAGE) * _PAGE for data in files.values())


@dataclass(frozen=True, slots=True)
class Pair:
    """Two jobs of one case each, whose processes talk through two pipes: the program's, and its counterpart's.

    Each is in a jail of its own, on an agent of its own. All that they share
    are the pipes' bytes. Both outcomes come back, the program's first. Time
    that one waits for the other counts as its wall time, so the counterpart's
    wall limit should be the longer one.

    Attributes:
        program: what the policy wrote.
        counterpart: what talks to it: an interactor, or sealed tests.
        stop_on: statuses of the counterpart at which the program is ended at once (``EndedBy.CANCELLED``); -9 where
            signal 9 ended it, or a limit.
    """

    program: Job
    counterpart: Job
    stop_on: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for name, job in (("program", self.program), ("counterpart", self.counterpart)):
            if len(job.cases) != 1 or job.cases[0].talk is None:
                raise InputError("half of a pair has one case, and that one talks", field=name)

    @property
    def cases(self) -> tuple[Case, ...]:
        """Both cases, in the order of the outcomes."""
        return (*self.program.cases, *self.counterpart.cases)
