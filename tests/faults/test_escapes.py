"""Faults of other graders by which a program got at the host's files, or saw what was not for it."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
from fault_help import ADD, SUM, graded, ran, stdio

import proctor
from proctor.core.limits import Limits
from proctor.core.verdict import Verdict
from proctor.engine.job import Case, Program
from proctor.engine.shared import SyncEngine
from proctor.grading.problem import CheckerSpec, Problem, TestCase

pytestmark = pytest.mark.environments

PLANT = """
import os, sys
name = "output.txt"
open("honest.txt", "w").write("honest")
try:
    {act}
except OSError as error:
    print(type(error).__name__)
print("planted" if os.path.lexists(name) else "refused")
"""
PLANTS = {
    "a link": "os.symlink(TARGET, name)",
    "a link upwards": "os.symlink('../..' + TARGET, name)",
    "a link to a link": "os.symlink(TARGET, 'first'); os.symlink('first', name)",
    "a second name": "os.link(TARGET, name)",
    "a second name of a link": "os.symlink(TARGET, 'first'); os.link('first', name, follow_symlinks=False)",
    "a pipe": "os.mkfifo(name)",
    "a device": "os.mknod(name, 0o600 | 0o020000, os.makedev(1, 5))",
    "a directory": "os.mkdir(name)",
    "a socket": "import socket; socket.socket(socket.AF_UNIX).bind(name)",
    "a shared file": "open('first', 'w').write('x'); os.link('first', name)",
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_output_file_is_not_followed(engine: SyncEngine, name: str, tmp_path: Path) -> None:
    """F66: the host opened a result file by its name, and followed a link into its own file system.

    Here the guest's side reads it, once the program is dead, and brings back
    nothing that is not a regular file with one name. What a caller then makes
    of a missing file (an artifact that is refused) is the caller's.
    """
    secret = tmp_path / "secret"
    secret.write_text("CANARY_f66")
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    for target in (str(secret), "/etc/hostname", "/etc/passwd"):
        source = PLANT.format(act=PLANTS[name].replace("TARGET", repr(target)))
        (outcome,) = ran(engine, source, Case(collect=("output.txt", "honest.txt")))
        assert outcome.exit_code == 0, outcome.stderr
        if engine.features["namespaces"] and name in ("a link", "a link upwards", "a link to a link", "a directory"):
            assert outcome.stdout == b"planted\n"
        assert outcome.files == {"honest.txt": b"honest"}


def test_a_directory_that_is_a_link_is_not_entered(engine: SyncEngine) -> None:
    """F66: the last part of a path was checked, and those before it followed."""
    source = """
import os
os.symlink("/etc", "out"), os.mkdir("real"), os.symlink("../..", "real/up"), os.mkdir("good")
open("good/file", "w").write("good")
"""
    names = ("out/hostname", "out/passwd", "real/up/etc/hostname", "good/file")
    (outcome,) = ran(engine, source, Case(collect=names))
    assert (outcome.exit_code, outcome.files) == (0, {"good/file": b"good"})


def test_a_result_that_is_a_link_into_proc(engine: SyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """F67: the server read ``/proc/self/environ`` as itself.

    The links are never read on the host's side. That the workspace is mounted
    without devices and set-user-id: tests/attacks/kernel and ``proctor doctor``.
    """
    monkeypatch.setenv("F67_CANARY", "CANARY_f67")
    source = """
import os
for name, target in {"result.json": "/proc/self/environ", "second": "/proc/1/environ", "third": "/proc/self/mem",
                     "fourth": "/dev/stdin", "fifth": "/proc/self/root/etc/passwd"}.items():
    os.symlink(target, name)
try:
    print(b"CANARY_f67" not in open("result.json", "rb").read())
except OSError:
    print(True)  # no /proc at all
"""
    names = ("result.json", "second", "third", "fourth", "fifth")
    (outcome,) = ran(engine, source, Case(b"input", collect=names))
    assert (outcome.stdout, outcome.files) == (b"True\n", {})


def test_files_are_not_written_through_planted_links(engine: SyncEngine, tmp_path: Path) -> None:
    """F68: the service wrote and chowned files of the box, through links that the program had put there.

    Streams are memory files here; a workspace's files are only read or removed.
    """
    victim = tmp_path / "victim"
    victim.write_text("v")
    victim.chmod(0o600)
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o777)
    before = os.stat(victim)
    names = ("stdout.txt", "stderr.txt", "metadata.txt", "stdout", "solution.pyc", "result.json", "data/in.txt")
    source = f"""
import os, sys
for name in {names!r}:
    try:
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        if os.path.lexists(name): os.unlink(name)
        os.symlink({str(victim)!r}, name)
    except OSError:
        pass
print("written", file=sys.stderr)
print(7)
"""
    program = Program({"a.py": source.encode(), "data/in.txt": b"in"}, ("python3", "a.py"), warm=True)
    build = Program({"a.py": source.encode()}, ("cat", "a.py"), ("python3", "a.py"))
    for made in (program, build):
        for outcome in ran(engine, made, *[Case(collect=names)] * 2, limits=Limits(cpu_s=5)):
            assert outcome.exit_code == 0, outcome.stderr
            assert set(outcome.files) <= {"data/in.txt"}
    after = os.stat(victim)
    assert victim.read_text() == "v"
    assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (before.st_uid, before.st_gid, 0o600)
    assert (after.st_mtime_ns, after.st_ino, after.st_nlink) == (before.st_mtime_ns, before.st_ino, 1)
    graded(engine, ADD)


def test_code_in_any_field_runs_in_the_jail_or_not_at_all(engine: SyncEngine, tmp_path: Path) -> None:
    """F69: one field of a request was run before the filter was on."""
    tmp_path.chmod(0o777)
    mark = tmp_path / "mark"
    code = f"__import__('os').system('touch {mark} /tmp/proctor-test-f69') or 0"
    shell = f"$(touch {mark}); `touch {mark}`; touch {mark}"
    case = TestCase(stdin=code.encode(), expected=code.encode())
    call = TestCase(args=(code, shell), kwargs={"k": code}, expected=code)
    value = CheckerSpec(kind="value")
    files = {f"{code.replace('/', '.')}.py": code, "sitecustomize.py": code, "usercustomize.py": code}
    problems = [
        Problem(id=code, mode="stdio", cases=(case,)),
        Problem(id=shell, mode="stdio", cases=(case,), preamble=f"{code}\n", extra_files=files),
        Problem(id="c", mode="function", entry_point="f", cases=(call,), checker=value, prompt=code, preamble=code),
        Problem(id="e", mode="unit_tests", test_code=f"{code}\ndef test_a():\n    {code}\n    assert f\n"),
        Problem(id="f", mode="unit_tests", test_code=f"import inspect\n{code}\nassert f\n", module="m.py"),
    ]
    completions = [f"{code}\ndef f(*a, **k):\n    {code}\n    return a[0]\n", f"```python\n{code}\n```", shell]
    for problem in problems:
        for text in completions:
            proctor.grade([{"completion": text, "extra_files": files}], problem, engine=engine)
    with pytest.raises(proctor.InputError, match="no name of a function"):
        Problem(id="d", mode="function", entry_point=code, cases=(call,), checker=value)
    rows = [
        {"id": "a", "entry_point": "f", "cases": [{"args_py": f"({code},)", "expected": 1}]},
        {"id": "a", "entry_point": "f", "cases": [{"args": [], "expected_py": code}]},
        {"id": "a", "cases": [{"stdin": "", "expected": "", code: 1}]},
        {"id": "a", "cases": [{"stdin": "", "expected": ""}], "language": code},
        {"id": "a", "cases": [{"stdin": "", "expected": ""}], "checker": code},
        {"id": "a", "cases": [{"stdin": "", "expected": ""}], "time_limit_s": code},
        {"task_id": "a", "prompt": "", "test": code, "entry_point": code},
        {"id": "a", "inputs": code, "outputs": code, "fn_name": code},
    ]
    for row in rows:
        with pytest.raises(proctor.InputError):
            proctor.grade([ADD], row, engine=engine)
    for options in ({"checker": code}, {"reward": code}, {"extract": code}, {"packages": (code,)}, {"isolation": code}):
        with pytest.raises((proctor.InputError, proctor.IsolationUnavailable)):
            proctor.grade([ADD], SUM, **options)
    made = Program({"a.py": code.encode()}, ("python3", "a.py", code, shell), ("true", shell, code))
    ran(engine, made, Case(code.encode(), argv=("echo", shell)), Case(collect=("a.py",)))
    assert not mark.exists()
    assert not Path("/tmp/proctor-test-f69").exists()


def test_the_environment_is_the_documented_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """F70: a program printed the service's environment."""
    monkeypatch.setenv("F70_CANARY", "CANARY_f70")
    source = """
import glob, os
print(sorted(os.environ))
for path in ["/proc/self/environ", "/proc/1/environ", *glob.glob("/proc/[0-9]*/environ"), *glob.glob("/proc/[0-9]*/cmdline")]:
    try:
        print(path, open(path, "rb").read())
    except OSError:
        pass
"""
    design = (Path(__file__).resolve().parent.parent.parent / "docs" / "design.md").read_text()
    (paragraph,) = re.findall(r"^A program's environment is .*?\n\n", design, re.S | re.M)
    documented = set(re.findall(r"`(\w+)`", paragraph))
    fresh = SyncEngine(slots=1)  # its agent starts with the canary in this process's environment
    try:
        for warm in (True, False):
            found = graded(fresh, source, stdio(("", "CANARY_f70")), warm=warm)
            printed = found.cases[0].outcome.stdout
            assert found.verdict is Verdict.WRONG_ANSWER
            assert b"CANARY_f70" not in printed
            assert b"F70_CANARY" not in printed
            names = {name.strip("' ") for name in printed.split(b"\n")[0].decode().strip("[]").split(",")}
            assert documented - {"TMPDIR"} <= names <= documented
    finally:
        fresh.close()


def test_the_expected_output_is_not_beside_the_program(engine: SyncEngine) -> None:
    """F71: the program's own folder held the template with the test cases."""
    source = """
import glob, os, sys
for name in sorted({*glob.glob("*"), *glob.glob(".*"), *glob.glob("../*"), *glob.glob("/tmp/**", recursive=True)}):
    text = open(name, errors="replace").read() if os.path.isfile(name) else ""
    print(name, "solution" if "sorted({*glob" in text else text)
print(sys.argv, sys.path, __file__, sorted(vars(sys.modules["__main__"])))
"""
    for warm in (True, False):
        found = graded(engine, source, stdio(("", "CANARY_f71"), ("x", "CANARY_f71")), warm=warm)
        assert found.verdict is Verdict.WRONG_ANSWER
        for case in found.cases:
            assert b"CANARY_f71" not in case.outcome.stdout
            assert b"solution.py solution\n" in case.outcome.stdout
        (outcome,) = ran(engine, "import os\nprint(sorted(os.listdir()))\n")
        assert outcome.stdout == b"['solution.py']\n"
