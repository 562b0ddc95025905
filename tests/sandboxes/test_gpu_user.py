"""GPUs in the sandboxes of an ordinary user, on the same made-up host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_help import NAMES, OPEN, SHARED, Tree, a_tree

SOURCES = Path(__file__).resolve().parent.parent.parent / "src"

_AS_A_USER = """
import asyncio, json, sys
from proctor.core.errors import IsolationUnavailable
from proctor.core.sandbox import CommandSpec, SandboxSpec
from proctor.engine.sandboxes import Sandboxes
from proctor.isolation import gpus

async def main(dev, proc, system, library, source):
    found = gpus.find(gpus.Places(dev, proc, system, "", (library,), ()))
    engine = Sandboxes(gpus=found)
    try:
        await engine.start()
    except IsolationUnavailable as exc:
        print("skip", exc)
        return
    for count in (1, 2, 0):
        box = await engine.create(SandboxSpec(memory_mib=64, disk_mib=16, gpu=count))
        done = await engine.run_command(box.id, CommandSpec(argv=("python3", "-c", source)))
        print(json.dumps(done.stdout.decode().split()))
    await engine.close()

asyncio.run(main(*sys.argv[1:]))
"""
_LOAD = """
import ctypes
try:
    print(ctypes.CDLL("libcuda.so.1").cuInit(0))
except OSError:
    print("-")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_an_ordinary_users_sandboxes_have_them_as_well() -> None:
    with a_tree() as tree:
        tree.whole()
        look(tree)


def look(tree: Tree) -> None:
    source = f"{OPEN.format(names=NAMES)}{_LOAD}"
    places = [str(each) for each in (tree.dev, tree.proc, tree.sys, tree.lib)]
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "PYTHONPATH": str(SOURCES), "PYTHONDONTWRITEBYTECODE": "1"}
    other: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/", "env": env, "text": True}
    for python in dict.fromkeys((os.path.realpath(sys.executable), "/usr/bin/python3", "/usr/local/bin/python3")):
        try:
            check = [python, "-c", "import proctor.core.sandbox, tomllib"]
            if subprocess.run(check, capture_output=True, check=False, **other).returncode == 0:
                break
        except OSError:
            continue  # this one may not be run by others
    else:
        pytest.skip("another user has no interpreter, or cannot read these sources")
    command = [python, "-c", _AS_A_USER, *places, source]
    done = subprocess.run(command, capture_output=True, check=False, timeout=300, **other)
    if done.stdout.startswith("skip"):
        pytest.skip(done.stdout)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 3, done.stderr
    for row, own in zip(rows, (["nvidia0"], ["nvidia1", "nvidia2"], []), strict=True):
        given = {*own, *(SHARED if own else [])}
        want = {name: "ENXIO" if name in given else "ENOENT" for name in NAMES}
        assert dict(zip(row[:-1:2], row[1:-1:2], strict=True)) == want
        assert row[-1] == ("4200" if own else "-")
