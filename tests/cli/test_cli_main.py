"""The entry point: help, version, and errors in one line."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from proctor.cli.main import VERBS, cli

PROCTOR = [sys.executable, "-m", "proctor.cli.main"]


def test_help_names_every_verb_and_is_quick() -> None:
    best = 9.0
    for _ in range(3):
        start = time.monotonic()
        done = subprocess.run([*PROCTOR, "--help"], capture_output=True, text=True, check=True)
        best = min(best, time.monotonic() - start)
        assert all(verb in done.stdout for verb in VERBS)
    assert best < 1.0


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom proctor.cli.main import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('rich', 'asyncio') or m.startswith(('proctor.engine', 'proctor.grading'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "doctor"])
def test_every_verb_has_help(verb: str) -> None:
    result = CliRunner().invoke(cli, [verb, "--help"])
    assert result.exit_code == 0
    assert "Exit code" in result.output


def test_version() -> None:
    result = CliRunner().invoke(cli, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("proctor ")


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["--nonsense"], 2, "No such option"),
        (["score"], 2, "Missing option"),
        (["score", "--workers", "0"], 2, "is not in the range"),
        (["run"], 125, "Missing argument"),
        (["run", "--cpu", "soon", "--", "true"], 125, "'soon' is not a time"),
        (["run", "--memory", "1X", "--", "true"], 125, "'1X' is not a size"),
        (["run", "--cpu", "0", "--", "true"], 125, "cpu_s"),
        (["run", "--file", "/nonexistent", "--", "true"], 125, "no such file"),
    ],
)
def test_bad_usage_is_one_line(args: list[str], code: int, said: str) -> None:
    result = CliRunner().invoke(cli, args)
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith("proctor: error: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ZeroDivisionError("x\x1b[2J"), 1, "internal error: ZeroDivisionError: x\\x1b[2J"),
        (OSError(28, "No space left on device", "a.txt"), 1, "a.txt: no space left on the device; free some"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 1, "out of memory"),
    ],
)
def test_any_error_is_one_line(error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def broken() -> None:
        raise error

    monkeypatch.setitem(VERBS, "broken", (f"{__name__}:broken", ""))
    monkeypatch.setattr(sys.modules[__name__], "broken", broken, raising=False)
    result = CliRunner().invoke(cli, ["broken"])
    assert result.exit_code == code
    assert result.stderr.lstrip().startswith("proctor: error: ")
    assert said in result.stderr


def test_help_to_a_full_disk_says_so() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*PROCTOR, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "proctor: error: no space left on the device; free some and run the same command again\n"


INTERRUPTED = """
import importlib.abc, os, signal, sys

class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

wanted = sys.argv.pop(1)
sys.modules.pop(wanted, None)
sys.meta_path.insert(0, Interrupt())
from proctor.cli.entry import main
main()
"""


@pytest.mark.parametrize(
    "module", ["proctor.cli.main", "click", "logging", "proctor.cli.messages", "proctor.cli.score"]
)
def test_interrupted_while_it_is_being_imported_it_shows_no_traceback(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module, "score", "--help"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == "proctor: error: interrupted"


def test_ctrl_c_is_pythons_own_again_when_all_is_imported() -> None:
    code = (
        "import signal, sys\nfrom proctor.cli import entry, main\n"
        "main.main = lambda: print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\nentry.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
