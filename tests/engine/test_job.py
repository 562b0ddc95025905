"""What a caller asks for: refused when it cannot be run, and run when it is only odd."""

from __future__ import annotations

from typing import Any

import pytest
from engine_help import SMALL, one

from proctor.core.errors import InputError
from proctor.core.limits import Limits
from proctor.engine.job import MAX_FILES_BYTES, MAX_REQUEST, MAX_STDIN, MAX_WORDS, Case, Job, Program
from proctor.engine.shared import SyncEngine


def python(files: dict[str, bytes] | None = None, **options: Any) -> Program:
    return Program({"solution.py": b"", **(files or {})}, options.pop("argv", ("python3", "solution.py")), **options)


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", ".", "a/./b", "x\0y", "n" * 256, "/".join(["d" * 200] * 6), "\ud800", "solution.py/x"]
)  # fmt: skip
def test_names_that_are_no_plain_paths(name: str) -> None:
    with pytest.raises(InputError, match="files"):
        python({name: b""})


@pytest.mark.parametrize("field", ["argv", "compile"])
@pytest.mark.parametrize("word", ["x\0y", "\ud800", "x" * (1 << 17)])
def test_words_that_no_command_can_have(field: str, word: str) -> None:
    with pytest.raises(InputError, match=field):
        python(**{field: ("python3", word)})


def test_too_much() -> None:
    with pytest.raises(InputError, match="files"):
        python({str(i): b"" for i in range(MAX_WORDS + 1)})
    with pytest.raises(InputError, match="files"):
        python({"large": bytes(MAX_FILES_BYTES + 1)})
    with pytest.raises(InputError, match="stdin"):
        Case(bytes(MAX_STDIN + 1))
    with pytest.raises(InputError, match="request"):
        Case(request=bytes(MAX_REQUEST + 1))
    with pytest.raises(InputError, match="steps"):
        Case(steps=0)
    with pytest.raises(InputError, match="argv"):
        python(argv=())
    with pytest.raises(InputError, match="workspace"):
        Job(python({"large": bytes(2 << 20)}), (Case(),), Limits(workspace_mib=1))


def test_odd_names_and_arguments_arrive_as_they_are(engine: SyncEngine) -> None:
    """Bytes that are no UTF-8, blanks, dashes, quotes, hundreds of files, and the widest header that is allowed."""
    odd = [
        "a b",
        "-rf",
        "q'\"",
        "uml\u00e4ut",
        "\U0001f600",
        "by\udcffte",
        "deep/er/and/deep/er",
        "$HOME",
        "new\nline",
        "*",
    ]
    files = {
        **{name: name.encode("utf-8", "surrogateescape") for name in odd},
        **{f"many/{i}": b"x" for i in range(1000)},
    }
    source = b"import os, sys\nprint(all(os.fsencode(n) == open(n, 'rb').read() for n in sys.argv[1:]), len(os.listdir('many')), len(sys.argv))"
    for warm in (True, False):
        program = Program({**files, "solution.py": source}, ("python3", "solution.py", *odd), warm=warm)
        (outcome,) = engine.run(Job(program, (Case(),), SMALL))
        assert (outcome.error, outcome.stdout) == (None, b"True 1000 11\n"), outcome.stderr
    wide = {"\U0001f600" * 60 + str(i): b"" for i in range(380)}
    (outcome,) = engine.run(Job(Program({**wide, "s.py": b"print(1)"}, ("python3", "s.py")), (Case(),), SMALL))
    assert (outcome.error, outcome.stdout) == (None, b"1\n")


@pytest.mark.parametrize(
    ("argv", "status"),
    [(("no-such-command",), 127), (("./solution.py",), 126), (("/etc/hostname",), 126), (("/no/such/file", "x"), 127)],
)
def test_commands_that_cannot_be_run_are_the_programs_fault(
    engine: SyncEngine, argv: tuple[str, ...], status: int
) -> None:
    (outcome,) = engine.run(Job(Program({"solution.py": b"1"}, argv), (Case(),), SMALL))
    assert (outcome.error, outcome.exit_code) == (None, status)
    assert argv[0].encode() in outcome.stderr


def test_the_largest_program(engine: SyncEngine) -> None:
    files = {"solution.py": b"import os; print(os.path.getsize('large'))", "large": bytes(MAX_FILES_BYTES - 10_000)}
    limits = Limits(cpu_s=20, wall_s=60, memory_mib=256, workspace_mib=80)
    (outcome,) = engine.run(Job(Program(files, ("python3", "solution.py"), warm=True), (Case(),), limits))
    assert (outcome.error, outcome.stdout) == (None, b"%d\n" % (MAX_FILES_BYTES - 10_000))


def test_a_program_that_hides_a_module_of_the_warm_start(engine: SyncEngine) -> None:
    program = Program(
        {"solution.py": b"import heapq; print(heapq.mine)", "heapq.py": b"mine = 7"},
        ("python3", "solution.py"),
        warm=True,
    )
    (outcome,) = engine.run(Job(program, (Case(),), SMALL))
    assert outcome.stdout == b"7\n", outcome.stderr
    assert one(engine, "import heapq; print(hasattr(heapq, 'mine'))").stdout == b"False\n"
