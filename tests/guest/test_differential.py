"""Warm is not fresh, but it must not show: programs run by the real interpreter and by forks of the warm one.

Each program runs natively, in a jail by the real interpreter, and in a jail
warm, and what it shows must be the same: exit code or signal, stdout, stderr.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from programs_calls import CALLS, DRIVER, FILES
from programs_endings import ENDINGS
from programs_host import HOST
from programs_language import LANGUAGE
from programs_run import Seen, in_engine, natively, tidy
from programs_sample import Sample, sample
from programs_streams import STREAMS

from proctor.engine.job import Case, Job, Program
from proctor.engine.shared import SyncEngine
from proctor.guest.protocol import Call, call_request, parse_call_results
from proctor.images.host import host_image

SAMPLES: dict[str, Sample] = {**STREAMS, **ENDINGS, **LANGUAGE, **HOST}

# Where a warm case differs, and always will: name of the program -> why.
KNOWN = {
    "frames": "under the program's frames lies one of the runner: inspect.stack() and sys._getframe() show it",
    "print_stack": "the same frame is in a printed stack (not in the traceback of an exception)",
    "warning_beyond_the_top": "a warning whose stacklevel reaches beyond the program names that frame, not sys:1",
    "profiling_to_the_end": "a profile function that is never taken out sees one more call, of sys.setprofile",
    "modules": "modules of the standard library that most programs import are in sys.modules already",
    "submodule_not_imported": "so their submodules can be used without an import of their own",
    "garbage_frozen": "gc.get_freeze_count() counts what was there before the program",
    "command_line_length": "/proc/self/cmdline is padded with zero bytes",
    "coroutine_not_awaited": "a warning that comes when the last objects die names the runner, not sys:1",
    "del_on_builtin": "what hangs on a module of the standard library alone is not destroyed at the end",
    "del_with_hook": "what a hook of sys keeps alive is destroyed before stdout is closed, not after",
}
if sys.version_info >= (3, 12):
    _SLIP = "the interpreter leaves an exception set that its own shutdown then reports"
    KNOWN |= dict.fromkeys(("exit_2_to_70", "exit_minus_2_to_70", "system_exit_bad_str"), _SLIP)


# A mount namespace in a user namespace, as a jail needs at least.
NAMESPACES = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10020000) != 0)"


@pytest.fixture(scope="module")
def engine() -> Iterator[SyncEngine]:
    if subprocess.run([sys.executable, "-c", NAMESPACES], check=False).returncode:
        pytest.skip("namespaces cannot be had here, and without them programs see another environment")
    engine = SyncEngine(isolation="jail")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def warm(engine: SyncEngine) -> dict[str, Seen]:
    return in_engine(engine, SAMPLES, warm=True)


@pytest.fixture(scope="module")
def fresh(engine: SyncEngine) -> dict[str, Seen]:
    return in_engine(engine, {name: s for name, s in SAMPLES.items() if s.fresh}, warm=False)


@pytest.fixture(scope="module")
def native() -> dict[str, Seen]:
    return natively(host_image(), {name: s for name, s in SAMPLES.items() if s.native})


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in KNOWN])
def test_warm_shows_what_the_interpreter_shows(
    name: str, warm: dict[str, Seen], fresh: dict[str, Seen], native: dict[str, Seen]
) -> None:
    assert warm[name] == fresh.get(name, warm[name])
    assert warm[name] == native.get(name, warm[name])


@pytest.mark.parametrize("name", KNOWN)
def test_known_differences_are_still_there(name: str, warm: dict[str, Seen], fresh: dict[str, Seen]) -> None:
    assert warm[name] != fresh[name], "no longer different: take it out of KNOWN and the documentation"
    if name not in ("submodule_not_imported",):
        assert warm[name].status == fresh[name].status


@pytest.mark.environments
def test_unseeded_random_is_the_same_in_every_warm_case(engine: SyncEngine) -> None:
    program = SAMPLES["random_unseeded"]
    seen = in_engine(engine, {"one": program, "two": program}, warm=True)
    assert seen["one"] == seen["two"]
    assert seen["one"].stdout


@pytest.mark.environments
def test_a_warning_is_not_repeated_when_the_source_is_broken(engine: SyncEngine) -> None:
    """A source that does not compile is given to the interpreter, which warns again."""
    program = {"broken": sample("print(1 is 1)\nx = = 1\n")}
    assert in_engine(engine, program, warm=True) == in_engine(engine, program, warm=False)


# Each says how it finds the place, then does one thing to it that a later case could see.
LEAVINGS = """
import os, random, sys
def about(path):
    info = os.lstat(path)
    return path, oct(info.st_mode), info.st_nlink, info.st_ino, info.st_size, os.listxattr(path), info.st_atime <= info.st_mtime
print(sorted(os.listdir(".")), os.listdir("/tmp"), *map(about, [".", "/tmp", "solution.py", "sub", "sub/data"]))
print(open("solution.py").read() == open(sys.argv[0]).read(), random.random(), len(sys.modules), os.environ.get("X"), sys.path)
os.environ["X"] = "changed"
sys.path.append("x")
free = os.statvfs(".")
print(free.f_bfree, free.f_ffree)
try:
    exec(input())
except OSError as error:  # what it may not do leaves nothing either
    pass
"""
DEEDS = (
    "pass", "pass", "open('left', 'w').write('x')", "open('/tmp/left', 'w')", "os.mkdir('d'); os.rmdir('d')", "os.chmod('.', 0o700)",
    "os.chmod('.', 0o700); os.chmod('.', 0o755)", "os.utime('.', (1, 1))", "os.utime('/tmp', (1, 1))",
    "text = open('solution.py').read(); os.unlink('solution.py'); open('solution.py', 'w').write(text); os.chmod('solution.py', 0o444)",
    "os.link('solution.py', 'l'); os.unlink('l')", "os.rename('solution.py', 's'); os.rename('s', 'solution.py')", "os.symlink('x', 'y')",
    "os.unlink('sub/data')", "os.unlink('solution.py')", "os.rename('sub', 'x')", "open('sub/new', 'w'); os.unlink('sub/new')", "os.setxattr('.', 'user.x', b'1')", "os.mkfifo('/tmp/p')",
    "f = os.open('/tmp', os.O_TMPFILE | os.O_RDWR); os.write(f, b'x' * 9999)", "os.truncate('solution.py', 3)", "os.chmod('sub', 0o000)",
    "[os.unlink(f'/tmp/{n}') for n in range(9) if not open(f'/tmp/{n}', 'w').close()]", "pass", "pass",
)  # fmt: skip


@pytest.mark.environments
def test_cases_of_one_program_do_not_show_each_other(engine: SyncEngine) -> None:
    files = {"solution.py": LEAVINGS.encode(), "sub/data": b"1"}
    cases = tuple(Case(f"{deed}\n".encode()) for deed in DEEDS)
    replaced = engine.replaced
    outcomes = engine.run(Job(Program(files, ("python3", "solution.py"), warm=True), cases))
    assert all(outcome.ok for outcome in outcomes), outcomes
    assert engine.replaced == replaced  # nor does a program that takes away its own files break anything
    first = outcomes[0].stdout
    assert [deed for deed, outcome in zip(DEEDS, outcomes, strict=True) if outcome.stdout != first] == []


@pytest.mark.parametrize("name", CALLS)
def test_calls_give_what_a_script_gets(name: str, engine: SyncEngine) -> None:
    source, calls = CALLS[name]
    files = {"solution.py": source, **FILES}
    driver = Sample(DRIVER.replace("CALLS", repr(calls)).encode(), files={k: v.encode() for k, v in files.items()})
    (expected,) = natively(host_image(), {name: driver}, main="driver.py").values()
    wanted = [Call(target, args) for target, args in calls]
    request = call_request(source_file="solution.py", module="solution", calls=wanted)
    program = Program({k: v.encode() for k, v in files.items()}, ("python3", "solution.py"), warm=True)
    (outcome,) = engine.run(Job(program, (Case(request=request, steps=len(calls)),)))
    lines = [f"{r.error} {r.message}" if r.error else repr(r.value) for r in parse_call_results(outcome.result)]
    assert (outcome.exit_code, expected.status) == (0, 0)
    assert tidy("\n".join(lines).encode() + b"\n", "/workspace") == expected.stdout.replace(b"'driver.py', ", b"")
