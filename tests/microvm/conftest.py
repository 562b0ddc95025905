"""Engines inside virtual machines, for the tests of this folder; without QEMU and a kernel they skip and say so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "engine"))
sys.path.append(str(Path(__file__).parent.parent / "sandboxes"))

from box_help import Boxes
from engine_help import gone, leavings

from proctor.core.errors import InputError, IsolationUnavailable
from proctor.engine.shared import SyncEngine
from proctor.isolation import qemu

_KERNEL_PACKAGE = "linux-image-cloud-amd64"


def _install() -> None:
    """As root on Debian: QEMU by apt, and a kernel that is only unpacked."""
    if os.geteuid() != 0 or not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return
    if not shutil.which("qemu-system-x86_64"):
        for command in ("apt-get update", "apt-get install -y --no-install-recommends qemu-system-x86"):
            subprocess.run(command.split(), capture_output=True, timeout=600, check=False)
    if qemu.KERNEL in os.environ:
        return
    folder = Path(tempfile.gettempdir()) / "proctor-test-kernel"
    if not list(folder.glob("boot/vmlinuz-*")):
        told = subprocess.run(["apt-cache", "depends", _KERNEL_PACKAGE], capture_output=True, text=True, check=False)
        names = [row.split()[-1] for row in told.stdout.splitlines() if "Depends: linux-image-" in row]
        if not names:
            return
        folder.mkdir(exist_ok=True, mode=0o755)
        subprocess.run(["apt-get", "download", names[0]], capture_output=True, timeout=600, check=False, cwd=folder)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], capture_output=True, timeout=600, check=False)
            package.unlink()
    for path in folder.glob("boot/vmlinuz-*"):
        os.environ[qemu.KERNEL] = str(path)


@pytest.fixture(scope="session")
def host() -> qemu.Qemu:
    try:
        return qemu.find()
    except (IsolationUnavailable, InputError):
        _install()
    try:
        return qemu.find()
    except (IsolationUnavailable, InputError) as exc:
        pytest.skip(str(exc))


@pytest.fixture(scope="session")
def rooms(host: qemu.Qemu) -> qemu.Qemu:
    """The same where this host gives sandboxes at all, which no level does without namespaces."""
    try:
        Boxes(spare=0).close()
    except IsolationUnavailable as exc:
        pytest.skip(f"this host gives no sandboxes: {exc}")
    return host


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where machines are saved, for all tests of this folder: to boot one takes a while."""
    return tmp_path_factory.mktemp("machines")


@pytest.fixture(autouse=True)
def _kept(saved: Path, monkeypatch: pytest.MonkeyPatch, _own_cache: None) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(saved))


@pytest.fixture(scope="session")
def machines(host: qemu.Qemu, saved: Path) -> Iterator[SyncEngine]:
    """Two machines, for tests that leave them as they were."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(saved))
        engine = SyncEngine(slots=2, isolation="microvm")
    yield engine
    engine.close()


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """What was made in the test is gone after it: processes, control groups, directories."""
    before = set(leavings())
    yield
    assert not gone(lambda: set(leavings()) - before)
