"""Runs the tests marked `environments` again in the other kinds of place that users have.

    python tests/environments.py [PYTEST ARGUMENTS ...]

As root: as an ordinary user, in a locked-down container, and as an ordinary
user in one. As an ordinary user: in a locked-down container. The tests run in
a copy of the checkout that belongs to that user, since theirs may not be
readable. What cannot be run is said, and is no failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

NOBODY = 65534
CHECKOUT = Path(__file__).resolve().parent.parent
COPIED = ("src", "tests", "bench", "docs", "pyproject.toml", "README.md", "CHANGELOG.md", "Makefile")
# Large, and of no use for running tests.
LEFT_OUT = shutil.ignore_patterns("__pycache__", "mypy*", "ruff*", "pip*", "*.mypyc*", "proctor*")


def copy_checkout(target: Path, user: int | None) -> None:
    """The sources and the installed packages, owned by the user who shall run them."""
    for name in COPIED:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, target / name)
    shutil.copytree(sysconfig.get_path("purelib"), target / "packages", ignore=LEFT_OUT)
    (target / "home").mkdir()
    if user is not None:
        for folder, folders, files in os.walk(target):
            for name in (".", *folders, *files):
                os.chown(Path(folder, name), user, user, follow_symlinks=False)


def environment(target: Path) -> dict[str, str]:
    """A plain environment with the copy's packages first."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "CI") if name in os.environ}
    handed = Path(os.environ.get("PROCTOR_HANDED", CHECKOUT.parent / "shared"))
    return kept | {
        "HOME": str(target / "home"),
        "PYTHONPATH": f"{target / 'src'}{os.pathsep}{target / 'packages'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PROCTOR_HANDED": str(handed),
    }


def usable_python(target: Path, user: int | None) -> str | None:
    """An interpreter that the user may run: a version manager may keep this one under root's home."""
    check = "import sys, pytest, hypothesis; assert sys.version_info >= (3, 11)"
    for python in (os.path.realpath(sys.executable), "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            done = subprocess.run(
                [python, "-c", check],
                env=environment(target),
                cwd=target,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                capture_output=True,
                check=False,
            )
        except OSError:
            continue
        if done.returncode == 0:
            return python
    return None


def run(title: str, user: int | None, locked: bool, arguments: list[str]) -> bool:
    """One environment; True unless its tests failed."""
    print(f"\n== {title} ==", flush=True)
    with tempfile.TemporaryDirectory(prefix="checkout-") as folder:
        target = Path(folder)
        target.chmod(0o755)
        copy_checkout(target, user)
        python = usable_python(target, user)
        if python is None:
            print(f"not run: no Python 3.11+ that user {user} may execute (this one is {sys.executable})")
            return True
        script = [python, "tests/locked_down.py", "--"] if locked else []
        command = [*script, python, "-m", "pytest", "-m", "environments", *arguments]
        for again in ([], ["--last-failed"]):  # as in the Makefile: what fails twice is red
            done = subprocess.run(
                [*command, *again],
                cwd=target,
                env=environment(target),
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                check=False,
            )
            if done.returncode == 0:
                break
        return done.returncode == 0


def main(arguments: list[str]) -> int:
    """Every environment that this user can stand in for; 1 when tests failed in one."""
    as_root = os.geteuid() == 0
    places: list[tuple[str, int | None, bool]] = [("in a locked-down container", None, True)]
    if as_root:
        places.insert(0, ("as an ordinary user", NOBODY, False))
        places.append(("as an ordinary user in a locked-down container", NOBODY, True))
    failed = [title for title, user, locked in places if not run(title, user, locked, arguments)]
    for title in failed:
        print(f"FAILED {title}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
