"""Root of a container that is a user namespace: it has only the identities that are mapped there."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from proctor.guest import linux
from proctor.isolation.identities import PER_PROCESS, usable

ALL, MANY = "0 0 4294967295\n", "0 100000 65536\n"


def test_numbers_are_high_where_all_are_there() -> None:
    assert usable(ALL, ALL) == (0x7000_0000, 0x8000_0000)


def test_numbers_are_of_what_is_mapped_and_of_none_of_its_users() -> None:
    for maps in ((MANY, MANY), (ALL, MANY), (MANY, "0 0 1\n1 100000 65535\n")):
        low, high = usable(*maps)
        assert 10_000 < low < high <= 65_534
        assert high - low > 8 * PER_PROCESS
    assert usable("0 1000 1\n", ALL) == usable(ALL, "0 0 1000\n") == (0, 0)
    assert usable("0 0 1\n30000 100000 4096\n", ALL) == (30_000 + PER_PROCESS, 34_096)


# A process that waits in new user, mount and PID namespaces until its maps are written, then is root there.
ENTER = f"""
import os, sys
from proctor.guest import linux
linux.unshare(linux.NEWUSER | linux.NEWNS | {linux.NEWPID})
os.write(1, b"x")
os.read(0, 1)
if os.fork() == 0:
    os.setgroups([]); os.setresgid(0, 0, 0); os.setresuid(0, 0, 0)
    linux.mount("proc", "/proc", "proc", 0)
    from proctor.engine.job import Case, Job
    from proctor.engine.languages import program
    from proctor.engine.shared import SyncEngine
    try:
        engine = SyncEngine(slots=2, isolation=sys.argv[1])
        for _ in range(3):
            (outcome,) = engine.run(Job(program("import os; print(os.getuid() > 0, input())"), (Case(b"7"),)))
            print(outcome.error or outcome.stdout.decode().strip(), engine.isolation, flush=True)
        engine.close()
    except Exception as exc:
        print(type(exc).__name__, exc, flush=True)
    os._exit(0)
os.wait()
"""


def run_as_mapped_root(tmp_path: Path, text: str, level: str) -> list[str]:
    """What the program says; skips where it cannot be tried."""
    if os.geteuid() != 0:
        pytest.skip("needs root, who may write such maps")
    source = Path(linux.__file__).parents[2]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": f"{source}:{sysconfig.get_path('purelib')}"}
    python = next((path for path in ("/usr/bin/python3", sys.executable) if _opens(path, env)), None)
    if python is None:
        pytest.skip("no interpreter of 3.11 or newer that others may run")
    tmp_path.chmod(0o777)
    for above in tmp_path.parents[:3]:
        above.chmod(above.stat().st_mode | 0o055)
    process = subprocess.Popen(
        [python, "-c", ENTER, level], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=env, cwd="/", text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        if process.stdout.read(1) != "x":
            pytest.skip("this host allows no user namespaces")
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{process.pid}/{name}").write_text(text)
        return process.communicate("x", timeout=120)[0].splitlines()
    finally:
        process.kill()
        process.wait()


def _opens(python: str, env: dict[str, str]) -> bool:
    """Somebody else may run it, and it is new enough and has what the engine imports."""
    check = "import sys; assert sys.version_info >= (3, 11); import proctor.engine.shared"
    try:
        done = subprocess.run(
            [python, "-c", check],
            user=65534,
            group=65534,
            extra_groups=[],
            env=env,
            cwd="/",
            capture_output=True,
            check=False,
        )
        return done.returncode == 0
    except OSError:
        return False


def test_programs_run_as_root_of_a_container_that_is_a_user_namespace(tmp_path: Path) -> None:
    assert run_as_mapped_root(tmp_path, MANY, "jail") == ["True 7 jail"] * 3


def test_root_with_one_identity_is_told_what_to_do(tmp_path: Path) -> None:
    (said,) = run_as_mapped_root(tmp_path, "0 100000 1\n", "jail")
    assert "IsolationUnavailable" in said
    assert "too few identities" in said
    assert "setpriv" in said
