"""The languages that a program may be written in, and how each is run.

An entry is usable when its toolchain is on the host's system directories,
which the default image binds read-only.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace

from proctor.core.errors import InputError
from proctor.core.limits import Limits
from proctor.engine import java
from proctor.engine.job import Program

_MEMORY_MIB = Limits().memory_mib
_HEAP = "{heap}"
# Of a JVM beside its heap: 45 MiB measured, and stacks. Without a bound it would take as its measure the host's memory:
# a queue of 32 MiB grew to 336 MiB where that is 23 GiB, and to 990 where it is 256.
_BESIDE_MIB = 64


@dataclass(frozen=True, slots=True)
class Language:
    """One row: file name of the source, commands, and the tools that must exist.

    ``run`` as it is written here; ``command`` gives it for a limit on memory.
    """

    name: str
    source: str
    run: tuple[str, ...]
    compile: tuple[str, ...] | None = None
    needs: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    warm: bool = False

    def available(self) -> bool:
        """Its tools are in the system directories, so they are in the image too."""
        return all(shutil.which(tool, path="/usr/bin:/bin:/usr/local/bin") for tool in self.needs)

    def command(self, memory_mib: int) -> tuple[str, ...]:
        """What runs a program that may hold so much memory."""
        heap = max(memory_mib - _BESIDE_MIB, memory_mib // 2)
        return tuple(word.replace(_HEAP, str(heap)) for word in self.run)


LANGUAGES: tuple[Language, ...] = (
    Language("python", "solution.py", ("python3", "solution.py"), aliases=("python3", "py"), warm=True),
    Language(
        "cpp",
        "solution.cpp",
        ("./solution",),
        ("g++", "-O2", "-std=gnu++17", "-o", "solution", "solution.cpp"),
        ("g++",),
        ("c++", "cxx"),
    ),
    Language(
        "c",
        "solution.c",
        ("./solution",),
        ("gcc", "-O2", "-std=gnu11", "-o", "solution", "solution.c", "-lm"),
        ("gcc",),
    ),
    Language(
        "java",
        "Main.java",
        ("java", "-XX:+UseSerialGC", "-Xms16m", f"-Xmx{_HEAP}m", "-Xss64m", "Main"),
        ("javac", "-J-XX:+UseSerialGC", "-d", ".", "Main.java"),
        ("java", "javac"),
    ),
    Language("javascript", "solution.js", ("node", "solution.js"), needs=("node",), aliases=("js", "nodejs", "node")),
    Language(
        "go", "solution.go", ("./solution",), ("go", "build", "-o", "solution", "solution.go"), ("go",), ("golang",)
    ),
    Language(
        "rust", "solution.rs", ("./solution",), ("rustc", "-O", "-o", "solution", "solution.rs"), ("rustc",), ("rs",)
    ),
    Language("bash", "solution.sh", ("bash", "solution.sh"), needs=("bash",), aliases=("sh", "shell")),
)
_PACKAGES = {
    "java": "default-jdk",
    "javac": "default-jdk",
    "node": "nodejs",
    "go": "golang-go",
}  # where named otherwise
_BY_NAME = {name: row for row in LANGUAGES for name in (row.name, *row.aliases)}


def language(name: str) -> Language:
    """The row for a name or alias; an unknown one, or one without its tools, is an InputError."""
    row = _BY_NAME.get(name.lower())
    if row is None:
        raise InputError(f"{name!r} is not one of {', '.join(sorted(row.name for row in LANGUAGES))}", field="language")
    if not row.available():
        packages = " ".join(dict.fromkeys(_PACKAGES.get(need, need) for need in row.needs))
        raise InputError(
            f"{name!r} needs {' and '.join(row.needs)} in /usr/bin on this host; install it (Debian: apt-get install "
            f"{packages}), or leave its problems out",
            field="language",
        )
    return row


def program(
    source: str,
    name: str = "python",
    *,
    warm: bool | None = None,
    files: dict[str, bytes] | None = None,
    own_class: bool = True,
    memory_mib: int = _MEMORY_MIB,
) -> Program:
    """A Program of one source text in a named language, with further files beside it.

    ``own_class``: Java runs the class that the source names, see ``java.names``; else always ``Main``. ``memory_mib``: that it may
    hold.
    """
    row = language(name)
    if row.name == "java" and own_class:
        row = _by_class(row, *java.names(source))
    body = source.encode("utf-8", "surrogatepass")
    return Program(
        {**(files or {}), row.source: body},
        row.command(memory_mib),
        row.compile,
        row.warm if warm is None else warm and row.warm,
    )


def _by_class(row: Language, file: str, run: str) -> Language:
    assert row.compile is not None
    source = f"{file}.java"
    return replace(row, source=source, run=(*row.run[:-1], run), compile=(*row.compile[:-1], source))
