"""Slots inside gVisor go on from a container that was saved when it was ready, where that is faster."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from engine_help import descendants, job

from proctor.engine.shared import SyncEngine
from proctor.isolation import checkpoints
from proctor.isolation.runsc import Runsc

PROGRAM = """
import os, random, sys, time
print(os.getpid(), random.random(), hash("a"), sorted(sys.modules), sys.path, list(os.environ.items()), os.listdir("/"), abs(time.time() - float(input())) < 60)
"""


@pytest.fixture
def cache(build: Runsc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory with nothing in it, where saved containers will lie; skips where this build saves none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if "--rootless" in build.flags:
        pytest.skip(f"{build.path} {build.version} saves no containers of an ordinary user's")
    return tmp_path / "proctor" / "containers"


def always(patch: pytest.MonkeyPatch) -> None:
    """Use what was saved, however long it took on this busy host."""
    make = checkpoints._make

    def made(*given: object) -> dict[str, object]:
        told = make(*given)  # type: ignore[arg-type]
        assert "why" not in told, told
        assert told["cold_s"] > 0 < told["saved_s"]
        return {**told, "faster": True}

    patch.setattr(checkpoints, "_make", made)


def started_by(engine: SyncEngine) -> set[str]:
    """Subcommands of ``runsc`` by which its slots were started."""
    found = set()
    for pid in descendants(engine.agent_pids()):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        found |= {word for word in words if word in ("run", "restore") and words[0].endswith("/runsc")}
    return found


def output(engine: SyncEngine) -> bytes:
    (outcome,) = engine.submit(job(PROGRAM, f"{time.time()}\n".encode())).result()
    assert outcome.error is None
    return outcome.stdout


def test_a_saved_one_is_what_it_was_saved_from(
    cache: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    """What programs see, on first and second use, and the host's own meters; cold starts are what they were."""
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_make", lambda *given: {"faster": False})
        with closing(SyncEngine(slots=1, isolation="gvisor")) as engine:
            assert started_by(engine) == {"run"}
            cold, features = [output(engine), output(engine)], engine.features
    for folder in cache.iterdir():
        if folder.is_dir():
            (folder / "told").unlink()
    always(monkeypatch)
    for _ in range(2):  # saved, and found
        with closing(SyncEngine(slots=1, isolation="gvisor")) as engine:
            assert started_by(engine) == {"restore"}
            assert [output(engine), output(engine)] == cold
            assert engine.features == features
    (folder,) = [path for path in cache.iterdir() if path.is_dir()]
    assert json.loads((folder / "told").read_text())["faster"] is True
    assert not os.stat(cache).st_mode & 0o077


def test_one_is_saved_for_all_who_start_at_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    always(monkeypatch)
    made, make = [], checkpoints._make
    monkeypatch.setattr(checkpoints, "_make", lambda *given: made.append(1) or make(*given))
    found: list[set[str]] = []

    def use() -> None:
        with closing(SyncEngine(slots=2, isolation="gvisor")) as engine:
            assert {output(engine) for _ in range(2)}
            found.append(started_by(engine))

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), found) == (1, [{"restore"}, {"restore"}])


def test_one_that_no_slot_comes_up_from_is_made_anew(
    cache: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    """A file that was cut short: jobs run in cold slots, and the next engine saves another."""
    always(monkeypatch)
    SyncEngine(slots=1, isolation="gvisor").close()
    (image,) = cache.glob("*/saved/checkpoint.img")
    os.truncate(image, 1000)
    for start in ("run", "restore"):
        with closing(SyncEngine(slots=1, isolation="gvisor")) as engine:
            assert output(engine)
            assert started_by(engine) == {start}


def test_where_saving_is_no_gain_or_no_place_slots_start_cold(
    cache: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    asked = []
    monkeypatch.setattr(checkpoints, "_make", lambda *given: asked.append(1) or {"faster": False, "why": "it cannot"})
    for _ in range(2):  # asked once, and remembered
        with closing(SyncEngine(slots=1, isolation="gvisor")) as engine:
            assert started_by(engine) == {"run"}
    assert asked == [1]
    (cache.parent.parent / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent.parent / "file"))
    with closing(SyncEngine(slots=1, isolation="gvisor")) as engine:
        assert started_by(engine) == {"run"}
        assert output(engine)
    assert asked == [1]
