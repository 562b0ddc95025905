"""Whatever of a machine is killed, jobs come out right and nothing is left; what is missing is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_help import any_of, descriptors, job, under_fire

from proctor.core.errors import InputError, IsolationUnavailable
from proctor.core.limits import Limits
from proctor.engine.shared import SyncEngine
from proctor.isolation import qemu


def test_random_kills(host: qemu.Qemu, nothing_left: None) -> None:
    """QEMU, supervisors and the processes that serve disks are hit; every outcome is right."""
    before = descriptors()
    engine = SyncEngine(slots=2, isolation="microvm")
    limits = Limits(cpu_s=5, wall_s=60)
    works = [job(f"import time; time.sleep(0.2); print({i})", b"", limits=limits) for i in range(12)]
    assert under_fire(engine, works, (0.2, 0.6), any_of) >= 3
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
