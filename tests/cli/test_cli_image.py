"""``proctor image``, with a store of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "images"))
from tarmake import archive, docker_save, files, member, tar

PROCTOR = [sys.executable, "-m", "proctor.cli.main", "image"]


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        layer = tar(member("f", b"x" * number), member("su", mode=0o4755))
        (tmp_path / f"{number}.tar").write_bytes(archive(docker_save([layer])))
    return tmp_path


def run(*args: str, code: int = 0, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run([*PROCTOR, *args], input=stdin, capture_output=True, timeout=120, env=os.environ)
    assert done.returncode == code, done.stderr
    return done


def test_from_import_to_collection(box: Path) -> None:
    first = json.loads(
        run("import", "1.tar", "--name", "n", "--label", "a=b=c", "--preimport", "json", "--json").stdout
    )
    assert (first["version"], first["labels"], first["preimport"]) == ("v1", {"a": "b=c"}, ["json"])
    assert first["dropped"] == {"setuid and setgid bits": 1}
    out = run("import", "-", "--name", "n", "--retention-days", "3", stdin=(box / "2.tar").read_bytes()).stdout
    assert b"n@v2" in out
    assert b"1 setuid and setgid bits" in out
    assert [one["version"] for one in json.loads(run("ls", "--json").stdout)] == ["v1", "v2"]
    assert b"v2" in run("ls").stdout
    shown = json.loads(run("inspect", "n", "--json").stdout)
    assert (shown["bytes"], shown["own_bytes"], shown["used_by"]) == (2, 2, [])
    assert b"digest: sha256:" in run("inspect", "n@v1").stdout
    assert b"2 versions (n@v2, n@v1)" in run("rm", "n", code=2).stderr
    assert json.loads(run("rm", "n@v1", "--json").stdout) == [first["id"]]
    assert json.loads(run("gc", "--json").stdout) == {"expired": [], "layers": 1, "bytes": 1, "leftovers": 0}
    run("rm", "n", "--all")
    assert b"1 layers" in run("gc").stdout
    assert json.loads(run("ls", "--json").stdout) == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("import", "missing.tar", "--name", "n"), b"no such file"),
        (("import", ".", "--name", "n"), b"is a directory; give a file"),
        (("import", "1.tar", "--name", "a b"), b"is no name"),
        (("import", "1.tar", "--name", "n", "--label", "x"), b"KEY=VALUE"),
        (("import", "1.tar", "--name", "n", "--preimport", "a b"), b"name of a module"),
        (("import", "bad.tar", "--name", "n"), b"neither"),
        (("inspect", "nothing"), b"there is no image 'nothing'"),
        (("rm", "nothing", "--snapshot"), b"there is no snapshot 'nothing'"),
    ],
)
def test_bad_input_is_one_line(args: tuple[str, ...], words: bytes, box: Path) -> None:
    (box / "bad.tar").write_bytes(files(a=b"x"))
    done = run(*args, code=2)
    assert words in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert b"Traceback" not in done.stderr


def test_hostile_names_reach_no_terminal_unescaped(box: Path) -> None:
    env = {"Env": ["A=\x1b[2J\x07"], "Cmd": ["\x1b]0;x\x07"]}
    (box / "h.tar").write_bytes(archive(docker_save([tar(member("\x1b[31m", b"x"))], config=env)))
    run("import", "h.tar", "--name", "h")
    for args in (("inspect", "h"), ("inspect", "h", "--json"), ("ls",)):
        assert b"\x1b" not in run(*args).stdout
    (box / "up.tar").write_bytes(archive(docker_save([tar(member("\x1b[31m/../x", b"x"))])))
    assert b"\x1b" not in run("import", "up.tar", "--name", "up", code=2).stderr
