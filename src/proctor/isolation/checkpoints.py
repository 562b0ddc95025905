"""Containers of gVisor that were saved when they were ready, for slots to go on from instead of starting cold.

A container is started for an image and stops where it has imported everything
and has been told nothing yet; ``runsc checkpoint`` writes it into the cache
directory. Then one is started from that. It is kept if that was faster: a
build or a host on which it is not, or which cannot do it, starts cold.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proctor.core.image import Image
from proctor.core.runner import RUNNER
from proctor.guest import protocol
from proctor.isolation import kept, sweep
from proctor.isolation.base import AgentProcess
from proctor.isolation.runsc import Runsc

_MOST_KEPT, _MOST_BYTES = 16, 1 << 30  # 4 MB for an interpreter with what is always imported
_WAIT_S = 60.0  # a container is up in 0.8 s here; a loaded host may take many times that

Begin = Callable[[dict[str, Any]], AgentProcess]


def get(image: Image, runsc: Runsc, meters: list[str], begin: Begin, end: Callable[[AgentProcess], None]) -> str | None:
    """Directory of an image's saved container, made now where there is none; None where starting cold is as good.

    Args:
        meters: that containers are given.
        begin: starts a container with further settings: ``pause``, it stops when it is ready and says PAUSED;
            ``restore``, it goes on from this directory.
        end: ends one and waits for it.

    Raises:
        OSError: the cache directory cannot be used, or a container does not come up, or not in time.
    """
    top = kept.folder("containers")
    top.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = _key(image, runsc, meters)
    folder = top / key
    with kept.locked(top / f"{key}.lock"):
        if not (folder / "told").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            kept.prune(top, _MOST_KEPT, _MOST_BYTES, 4 * _WAIT_S)
            made = Path(tempfile.mkdtemp(prefix="new-", dir=top))
            try:
                told = _make(made, runsc, begin, end)
                if not told["faster"]:
                    shutil.rmtree(made / "saved", ignore_errors=True)
                (made / "told").write_text(json.dumps(told))
                os.rename(made, folder)
            except BaseException:
                shutil.rmtree(made, ignore_errors=True)
                raise
        os.utime(folder)
        return str(folder / "saved") if json.loads((folder / "told").read_text())["faster"] else None


def forget(saved: str) -> None:
    """Remove one from which no container came up; another is made in its place."""
    folder = Path(saved).parent
    with contextlib.suppress(OSError), kept.locked(folder.parent / f"{folder.name}.lock"):
        shutil.rmtree(folder, ignore_errors=True)


def _key(image: Image, runsc: Runsc, meters: list[str]) -> str:
    files = [[path, os.stat(path).st_mtime_ns, os.stat(path).st_size] for path in (runsc.path, image.python)]
    about: list[Any] = [
        RUNNER, image.digest, image.plan, image.env, image.preload, files, runsc.version, runsc.flags, meters,
        kept.guest_files(), kept.cpu(), os.uname().release, len(os.sched_getaffinity(0)), os.geteuid(),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]


def _make(folder: Path, runsc: Runsc, begin: Begin, end: Callable[[AgentProcess], None]) -> dict[str, Any]:
    """Save a container and try it: what is to be known of it."""
    cold = time.monotonic()
    agent = begin({"pause": True})
    try:
        if _first_word(agent) != protocol.PAUSED:
            raise OSError(f"no container comes up to be saved: {agent.last_words(300)}")
        cold = time.monotonic() - cold
        saved = folder / "saved"
        where = ["--root", f"{sweep.BOXES / agent.name}/state", "checkpoint", "--image-path", str(saved), agent.name]
        try:
            done = subprocess.run(
                [runsc.path, *runsc.flags, *where], capture_output=True, text=True, timeout=_WAIT_S, check=False
            )
        except subprocess.SubprocessError as exc:
            raise OSError(f"a container cannot be saved: {exc}") from exc
    finally:
        end(agent)
    if done.returncode != 0:
        return {"faster": False, "why": done.stderr.strip()[-300:]}
    warm = time.monotonic()
    agent = begin({"pause": True, "restore": str(saved)})
    try:
        if _first_word(agent) != protocol.READY:
            return {"faster": False, "why": f"a saved container does not go on: {agent.last_words(300)}"}
        warm = time.monotonic() - warm
    finally:
        end(agent)
    return {"faster": warm < cold, "cold_s": round(cold, 3), "saved_s": round(warm, 3)}


def _first_word(agent: AgentProcess) -> int:
    """The kind of the first frame that an agent sends, 0 where it ends without one; TimeoutError where it is late."""
    agent.control.settimeout(_WAIT_S)
    try:
        return int(agent.control.recv(1, socket.MSG_PEEK)[0])
    except (ConnectionError, IndexError):
        return 0
