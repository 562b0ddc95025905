"""Whatever of a machine is killed, jobs come out right and nothing is left; what is missing is named."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from engine_help import descendants, descriptors, job, kill

from proctor.core.errors import InputError, IsolationUnavailable
from proctor.core.limits import Limits
from proctor.engine.shared import SyncEngine
from proctor.isolation import qemu


def test_random_kills(host: qemu.Qemu, nothing_left: None) -> None:
    """QEMU, supervisors and the processes that serve disks are hit; every outcome is right."""
    before = descriptors()
    engine = SyncEngine(slots=2, isolation="microvm")
    choose, over, hits = random.Random(1), threading.Event(), []
    limits = Limits(cpu_s=5, wall_s=60)
    futures = [engine.submit(job(f"import time; time.sleep(0.2); print({i})", b"", limits=limits)) for i in range(12)]

    def fire() -> None:
        while not over.wait(choose.uniform(0.2, 0.6)):
            done = sum(future.done() for future in futures)
            if done < 2 * len(hits) or done > 10:  # by progress: a slow host is not hit more often
                continue
            pids = engine.agent_pids()
            if pids:
                supervisor = choose.choice(pids)
                victim = choose.choice([supervisor, *descendants([supervisor])])
                if kill(victim):
                    hits.append(victim)

    thread = threading.Thread(target=fire)
    thread.start()
    try:
        for i, future in enumerate(futures):
            (outcome,) = future.result()
            assert (outcome.stdout, outcome.error) == (b"%d\n" % i, None), hits
    finally:
        over.set()
        thread.join()
        engine.close()
    assert len(hits) >= 3
    assert engine.replaced >= 1
    assert descriptors() == before


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(qemu, "_FOLDERS", (str(tmp_path),))
    with pytest.raises(IsolationUnavailable, match=f"qemu-system-x86_64.*{tmp_path}.*apt-get install qemu-system-x86"):
        qemu.find({"PATH": str(tmp_path)})
    (tmp_path / "qemu-system-x86_64").write_text("#!/bin/sh\n")
    (tmp_path / "qemu-system-x86_64").chmod(0o755)
    (tmp_path / "vmlinuz").write_bytes(b"no kernel")
    with pytest.raises(InputError, match="is no kernel that can be read"):
        qemu.find({"PATH": str(tmp_path), qemu.KERNEL: str(tmp_path / "vmlinuz")})
    monkeypatch.setattr(qemu, "_KERNELS", ())
    with pytest.raises(IsolationUnavailable, match=f"needs a kernel.*{qemu.KERNEL}"):
        qemu.find({"PATH": str(tmp_path)})
