"""Sandboxes behind gVisor through the SDK and the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proctor import Runtime
from proctor.client.embedded import EmbeddedBackend
from proctor.client.errors import InvalidRequestError
from proctor.core.errors import IsolationUnavailable
from proctor.isolation.runsc import Runsc

PATIENCE = 240


def test_the_sdk_is_the_same(rooms: Runsc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None) -> None:
    backend = EmbeddedBackend(store=None, ledger=None, spare=1)
    try:
        runtime = Runtime(backend=backend, isolation="gvisor")
        with runtime.sandboxes.create(memory_mib=128) as sbx:
            assert sbx.info.isolation == "gvisor"
            run = sbx.exec("cat; uname -r; exit 3", stdin="in\n")
            assert run.exit_code == 3
            assert run.stdout.splitlines()[0] == "in"
            assert run.stdout.splitlines()[1] != os.uname().release
            kinds = [event.type for event in sbx.exec_stream("echo one; echo two >&2")]
            assert (kinds[0], kinds[-1]) == ("start", "exit")
            process = sbx.spawn(["python3", "-c", "while True: print(int(input()) * 2, flush=True)"], stdin="pipe")
            output = process.output()
            process.write("21\n")
            assert next(output).data == "42\n"
            process.kill("SIGKILL")
            assert process.wait().exit_code == -9
            assert sbx.exec(["sleep", "1000"], timeout_ms=300).timed_out
            (tmp_path / "in").mkdir()
            (tmp_path / "in" / "data").write_bytes(b"x" * 3_000_000)
            sbx.files.upload(str(tmp_path / "in"), "/workspace/in")
            sbx.files.download("/workspace/in", str(tmp_path / "out"))
            assert (tmp_path / "out" / "data").read_bytes() == b"x" * 3_000_000
            sbx.files.remove("in", recursive=True)
            assert not sbx.files.exists("in")
        with runtime.sandboxes.create(isolation="jail", memory_mib=128) as sbx:
            assert sbx.info.isolation == "jail"
            assert sbx.exec(["uname", "-r"]).stdout.strip() == os.uname().release
        monkeypatch.setenv("PROCTOR_ISOLATION", "gvisor")
        with Runtime(backend=backend).sandboxes.create(memory_mib=128) as sbx:
            assert sbx.info.isolation == "gvisor"
        with pytest.raises(IsolationUnavailable, match="degraded"):
            runtime.sandboxes.create(isolation="degraded")
    finally:
        backend.close()


def test_a_level_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequestError, match=r"isolation: 'gvizor' cannot be; give auto, jail, gvisor, microvm$"):
        Runtime(isolation="gvizor")
    monkeypatch.setenv("PROCTOR_ISOLATION", "vm")
    with pytest.raises(InvalidRequestError, match="PROCTOR_ISOLATION: 'vm' cannot be"):
        Runtime()


def test_the_command_line(rooms: Runsc, tmp_path: Path) -> None:
    folders = {name: str(tmp_path / name) for name in ("XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_STATE_HOME")}
    for path in folders.values():
        Path(path).mkdir(mode=0o700)
    environment = {**os.environ, **folders}

    def sandbox(*args: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "proctor.cli.main", "sandbox", *args],
            env=environment, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert sandbox("run", "--isolation", "gvisor", "--", "uname", "-n") == "sandbox\n"
    try:
        name = sandbox("create", "--isolation", "gvisor", "--memory", "128M", "--name", "one").strip()
        assert sandbox("exec", "one", "--", "cat", "/proc/version") != Path("/proc/version").read_text()
        sandbox("rm", name)
    finally:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if b"proctor.client.keeper" in words and folders["XDG_RUNTIME_DIR"].encode() in words:
                    os.kill(int(entry.name), signal.SIGTERM)
