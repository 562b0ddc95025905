"""Runs samples in the interpreter outside the jail and through an engine, and brings what they show to one form."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from programs_sample import Sample

from proctor.core.image import Image
from proctor.core.limits import Limits
from proctor.engine.job import Case, Job, Program
from proctor.engine.shared import SyncEngine

WALL_S = 60
_LIMITS = Limits(cpu_s=20, wall_s=WALL_S, memory_mib=512, stderr_keep=1 << 20)
_ADDRESS = re.compile(rb"0x[0-9a-f]{6,}")
_BOX = re.compile(rb"/tmp/proctor-[^/]+/workspace")  # a slot's own, where no namespace gives each the same
_DURATION = re.compile(rb"in \d+\.\d{3}s")
_PROCESS = re.compile(rb"\b(pid|ident|native_id)[= ]\d+")


@dataclass(frozen=True)
class Seen:
    """What one run of a program showed; ``status`` is an exit code, or minus a signal."""

    status: int | str
    stdout: bytes
    stderr: bytes


def tidy(text: bytes, folder: str) -> bytes:
    """The same text wherever the program lay: its folder, addresses and process numbers are taken out."""
    text = _BOX.sub(b"/workspace", text.replace(folder.encode(), b"/workspace"))
    return _DURATION.sub(b"in 0s", _PROCESS.sub(rb"\1=N", _ADDRESS.sub(b"0x", text)))


def in_engine(engine: SyncEngine, samples: Mapping[str, Sample], *, warm: bool) -> dict[str, Seen]:
    """Every sample as a job of its own, all queued at once."""

    def job(source: bytes, files: Mapping[str, bytes], stdin: bytes) -> Job:
        program = Program({**files, "solution.py": source}, ("python3", "solution.py"), warm=warm)
        return Job(program, (Case(stdin),), _LIMITS)

    folder = engine.run(job(b"import os; print(os.getcwd(), end='')", {}, b""))[0].stdout.decode()
    waiting = {name: engine.submit(job(s.source, s.files, s.stdin), owner="test") for name, s in samples.items()}
    seen = {}
    for name, future in waiting.items():
        outcome = future.result()[0]
        status: int | str = outcome.error or outcome.ended_by or ""
        if not status:
            status = -outcome.signal if outcome.signal is not None else outcome.exit_code or 0
        seen[name] = Seen(status, tidy(outcome.stdout, folder), tidy(outcome.stderr, folder))
    return seen


def natively(image: Image, samples: Mapping[str, Sample], main: str = "solution.py") -> dict[str, Seen]:
    """Every sample as an ordinary process of this user, with the streams redirected to files as in a jail."""

    def one(sample: Sample) -> Seen:
        with tempfile.TemporaryDirectory() as top:
            folder = Path(top, "w")
            folder.mkdir()
            for name, content in {**sample.files, main: sample.source}.items():
                (folder / name).parent.mkdir(exist_ok=True, parents=True)
                (folder / name).write_bytes(content)
            streams = [Path(top, name) for name in ("in", "out", "err")]
            streams[0].write_bytes(sample.stdin)
            with open(streams[0], "rb") as stdin, open(streams[1], "wb") as stdout, open(streams[2], "wb") as stderr:
                process = subprocess.run(
                    ["python3", main], executable=image.python, env=image.env, cwd=folder, umask=0o022,
                    stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True, timeout=WALL_S, check=False,
                )  # fmt: skip
            return Seen(process.returncode, *(tidy(path.read_bytes(), str(folder)) for path in streams[1:]))

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(samples, pool.map(one, samples.values()), strict=True))
