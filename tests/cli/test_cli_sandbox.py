"""``proctor sandbox``, against a keeper of its own."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "client"))
from client_help import PATIENCE, gone, leavings, until

from proctor import Runtime
from proctor.client import place
from proctor.client.distant import DistantBackend

PROCTOR = [sys.executable, "-m", "proctor.cli.main", "sandbox"]


def answers() -> bool:
    """Whether there is a keeper."""
    sock = place.connect(place.default_place())
    if sock is not None:
        sock.close()
    return sock is not None


@pytest.fixture(scope="module", autouse=True)
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Directories of these tests, and a keeper that stays as long as they do."""
    top = tmp_path_factory.mktemp("places")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_RUNTIME_DIR", "XDG_DATA_HOME"):
            (top / name).mkdir(mode=0o700)
            patch.setenv(name, str(top / name))
        backend = DistantBackend(linger_s=3600)
        Runtime(backend=backend).limits()
        keeper = backend.keeper
        backend.close()
        assert keeper is not None
        yield
        os.kill(keeper, signal.SIGTERM)
        assert until(lambda: not answers())
        assert not gone(lambda: leavings(keeper))


def run(*args: str, code: int = 0, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run([*PROCTOR, *args], input=stdin, capture_output=True, timeout=2 * PATIENCE)
    if b"does not allow namespaces" in done.stderr or b"no sandboxes without namespaces" in done.stderr:
        pytest.skip(done.stderr.decode())
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def box() -> Iterator[str]:
    """The id of a sandbox that is kept."""
    made = run("create", "--memory", "128M", "--name", "one", "--label", "of=test").stdout.decode().strip()
    yield made
    run("rm", made)


# ---------------------------------------------------------------- run


def test_streams_pass_through_as_bytes() -> None:
    data = bytes(range(256)) * 20_000
    done = run("run", "--", "sh", "-c", "cat; printf '\\377e' >&2", stdin=data)
    assert (done.stdout, done.stderr) == (data, b"\xffe")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("--", "sh", "-c", "exit 7"), 7),
        (("--", "sh", "-c", "kill -TERM $$"), 128 + signal.SIGTERM),
        (("--timeout", "500ms", "--", "sleep", "1000"), 124),
        (("--", "no-such-program"), 127),
        (("--image", "nothing", "--", "true"), 125),
        (("--memory", "much", "--", "true"), 125),
        (("--deny", "a.example", "--", "true"), 125),
        (("--",), 125),
    ],
)
def test_exit_codes(args: tuple[str, ...], code: int) -> None:
    done = run("run", *args, code=code)
    assert done.stdout == b""
    if code >= 124 and code < 126:
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith(b"proctor: ")


def test_options_reach_the_sandbox() -> None:
    script = "echo $A; echo $HTTP_PROXY"
    done = run("run", "--env", "A=b=c", "--allow", "x.example", "--trial", "--", "sh", "-c", script)
    assert done.stdout == b"b=c\nhttp://127.0.0.1:3128\n"
    told = json.loads(
        run("run", "--json", "--", "sh", "-c", "cat; printf '\\377' >&2; exit 3", stdin=b"in", code=3).stdout
    )
    assert (told["exit_code"], told["stdout"], told["stderr"], told["stderr_encoding"]) == (3, "in", "/w==", "base64")
    assert told["sandbox_id"].startswith("sbx_")


def test_on_a_terminal_control_characters_are_shown() -> None:
    ours, theirs = pty.openpty()
    script = "printf '\\033]0;owned\\007\\305'; sleep 0.2; printf '\\276\\n'"
    done = subprocess.run(
        [*PROCTOR, "run", "--", "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=theirs, timeout=2 * PATIENCE
    )
    os.close(theirs)
    shown = os.read(ours, 1000)
    os.close(ours)
    assert done.returncode == 0
    assert shown == "\\x1b]0;owned\\x07ž\r\n".encode()


def test_output_comes_while_it_runs_and_input_goes_in() -> None:
    source = "while line := __import__('sys').stdin.readline(): print(int(line) * 2, flush=True)"
    with subprocess.Popen(
        [*PROCTOR, "run", "--", "python3", "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        for number in range(3):
            process.stdin.write(b"%d\n" % number)
            process.stdin.flush()
            assert process.stdout.readline() == b"%d\n" % (2 * number)
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def test_ctrl_c_ends_it_and_leaves_nothing() -> None:
    with subprocess.Popen(
        [*PROCTOR, "run", "--", "sh", "-c", "echo up; sleep 1000"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err.strip()) == (130, b"proctor: error: interrupted")
    assert not gone(lambda: leavings(process.pid))


def test_a_reader_that_goes_away_ends_it() -> None:
    with subprocess.Popen([*PROCTOR, "run", "--", "yes"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.read(4) == b"y\ny\n"
        process.stdout.close()
        assert process.wait(PATIENCE) == 141
    assert not gone(lambda: leavings(process.pid))


# ---------------------------------------------------------------- kept


def test_run_that_keeps() -> None:
    done = run("run", "--keep", "--name", "kept", "--label", "a=b", "--", "sh", "-c", "echo 1 > left; echo out")
    assert done.stdout == b"out\n"
    (row,) = json.loads(run("ls", "--json", "--label", "a=b").stdout)
    assert row["id"].encode() in done.stderr
    assert run("exec", "kept", "cat", "left").stdout == b"1\n"
    assert json.loads(run("rm", "--label", "a=b", "--json").stdout) == {"deleted": [row["id"]]}
    assert run("exec", "kept", "true", code=125).stderr.count(b"\n") == 1


def test_a_lease_that_ends_is_a_timeout() -> None:
    done = run("run", "--keep", "--timeout", "1s", "--", "sleep", "1000", code=124)
    assert len(done.stderr.splitlines()) == 2


def test_exec(box: str) -> None:
    user, number = ("root", 0) if os.geteuid() == 0 else ("sandbox", 1000)  # an ordinary user's has one identity
    script = "echo $A; pwd; id -u"
    done = run("exec", "one", "--env", "A=1", "--cwd", "/tmp", "--user", user, "--", "sh", "-c", script)
    assert done.stdout == b"1\n/tmp\n%d\n" % number
    assert run("exec", "--env", "A=2", box, "sh", "-c", "echo $A $1", "-", "--json").stdout == b"2 --json\n"
    assert run("exec", box, "--timeout", "300ms", "--", "sleep", "1000", code=124).stderr
    data = os.urandom(3_000_000)
    assert run("exec", "one", "--", "cat", stdin=data).stdout == data
    told = json.loads(run("exec", "one", "--json", "--", "cat", stdin=b"x").stdout)
    assert (told["sandbox_id"], told["stdout"], told["exit_code"]) == (box, "x", 0)
    for args, words in (
        ((box,), b"Missing argument"),
        ((box, "--bad", "--", "true"), b"--bad"),
        (("two", "--", "true"), b"there is no sandbox 'two'; running: one"),
        ((box, "--cwd", "/nowhere", "--", "true"), b"no directory"),
    ):
        error = run("exec", *args, code=125).stderr
        assert words in error
        assert error.count(b"\n") == 1


def test_ctrl_c_ends_a_command_and_not_its_sandbox(box: str) -> None:
    with subprocess.Popen(
        [*PROCTOR, "exec", box, "--", "sh", "-c", "echo up; exec sleep 1000"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    run("exec", box, "--", "pgrep", "-x", "sleep", code=1)


def test_list_stop_and_extend(box: str) -> None:
    assert b"one" in run("ls").stdout
    (row,) = json.loads(run("ls", "--json").stdout)
    assert (row["id"], row["memoryMiB"], row["labels"]) == (box, 128, {"of": "test"})
    later = json.loads(run("extend", "one", "1h", "--json").stdout)
    assert later["expiresAt"] > row["expiresAt"]
    assert run("extend", "one", "10m").stdout.startswith(box.encode())
    assert run("create", "--name", "one", code=2).stderr.startswith(b"proctor: error: a running sandbox is named 'one'")
    run("stop", "one")
    assert json.loads(run("ls", "--json").stdout) == []
    assert b"stopped (request)" in run("ls", "--all").stdout
    assert json.loads(run("ls", "--all", "--label", "of=test", "--json").stdout)[0]["state"] == "stopped"
    assert run("rm", code=2).stderr.count(b"\n") == 1


def test_the_other_name_of_the_verb() -> None:
    done = subprocess.run(
        [*PROCTOR[:-1], "sandboxes", "ls", "--trial", "--json"], capture_output=True, timeout=2 * PATIENCE
    )
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


def test_copies(box: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "below").mkdir(parents=True)
    (tree / "below" / "f").write_bytes(b"\x00\xff")
    (tree / "out").symlink_to("/etc/passwd")
    done = run("cp", str(tree), f"{box}:", "--json")
    assert json.loads(done.stdout)["files"] == 1
    assert b"left out out: a link" in done.stderr
    assert run("exec", box, "--", "find", ".", "-type", "f").stdout == b"./tree/below/f\n"
    run("cp", str(tree), "one:other")
    run("cp", str(tree / "below" / "f"), "one:g")
    assert run("exec", box, "--", "sh", "-c", "ls other g; ln -s /etc/passwd other/l").stdout == b"g\n\nother:\nbelow\n"
    (tmp_path / "down").mkdir()
    run("cp", "one:tree/below/f", str(tmp_path / "down"))
    assert b"'l': symlink" in run("cp", "one:/workspace/other", str(tmp_path / "down")).stderr
    found = sorted(str(path.relative_to(tmp_path / "down")) for path in (tmp_path / "down").rglob("*"))
    assert found == ["f", "other", "other/below", "other/below/f"]
    run("cp", "one:g", str(tmp_path / "h"))
    assert (tmp_path / "h").read_bytes() == b"\x00\xff"
    for args in (("a", "b"), ("one:a", "one:b"), ("one:missing", str(tmp_path)), (str(tmp_path / "no"), "one:x")):
        assert run("cp", *args, code=2).stderr.count(b"\n") == 1


def test_snapshots(box: str) -> None:
    run("exec", box, "--", "sh", "-c", "echo 7 > kept")
    made = run("snapshot", box, "--name", "snap", "--retention-days", "2").stdout.decode().strip()
    rows = json.loads(run("snapshots", "ls", "--json").stdout)
    assert [(row["id"], row["name"]) for row in rows] == [(made, "snap")]
    assert b"snap" in run("snapshots", "ls").stdout
    assert run("run", "--snapshot", "snap", "--", "cat", "kept").stdout == b"7\n"
    assert run("snapshots", "rm", "snap").stdout.decode() == f"deleted {made}\n"
    assert b"there is no snapshot 'snap'" in run("snapshots", "rm", "snap", code=2).stderr


def test_network(box: str) -> None:
    assert run("network", "one").stdout == b"offline\n"
    run("network", "one", "--allow", "a.example", "--deny", "b.a.example")
    assert json.loads(run("network", "one", "--json").stdout) == {
        "internet": True, "allow": ["a.example"], "deny": ["b.a.example"],
    }  # fmt: skip
    get = "import urllib.request as u; u.urlopen('http://bad.example')"
    assert b"403" in run("exec", "one", "--", "python3", "-c", get, code=1).stderr
    rows = json.loads(run("network", "one", "--log", "--json").stdout)
    assert {row["host"] for row in rows} == {"bad.example"}
    assert b"bad.example" in run("network", "one", "--log").stdout
    assert run("network", "one", "--offline").stdout == b"offline\n"
    assert run("network", "one", "--allow", "not a name", code=2).stderr.count(b"\n") == 1
    assert run("network", "one", "--deny", "a.example", code=2).stderr.count(b"\n") == 1


def test_where_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert json.loads(run("ls", "--json").stdout) == []
    assert json.loads(run("rm", "--all", "--json").stdout) == {"deleted": []}
    for args in (("stop", "x"), ("extend", "x", "1"), ("cp", "x:a", "b"), ("network", "x"), ("snapshot", "x")):
        error = run(*args, code=2).stderr
        assert b"no sandboxes are kept now" in error
        assert error.count(b"\n") == 1
    assert json.loads(run("snapshots", "ls", "--json").stdout) == []
    assert os.listdir(tmp_path) == []
