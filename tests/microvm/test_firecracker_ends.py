"""Whatever goes wrong with Firecracker is said, costs no reward, and leaves nothing; what is missing is named."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fc_help
import pytest
from engine_help import any_of, descriptors, gone, job, leavings, under_fire
from fc_help import COPY, LIMITS, TEMPLATE, Place

from proctor.core.errors import InputError, IsolationUnavailable
from proctor.engine.shared import SyncEngine
from proctor.guest import firecracker as guest_firecracker
from proctor.isolation import firecracker, firsttime, monitors, qemu


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _kept: None) -> Iterator[Place]:
    """One for this test, and nothing of it is left: processes, groups, directories, sockets, descriptors."""
    fc_help.needs_device()
    place = Place(tmp_path, monkeypatch)
    (tmp_path / "tried").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tried"))
    before, open_before = set(leavings()), descriptors()
    yield place
    place.host.close()
    assert not gone(lambda: set(leavings()) - before)
    assert not list((tmp_path / "cache").rglob("new-*"))
    assert not list((tmp_path / "tried").iterdir())
    assert not descriptors() - open_before


def test_random_kills(own: Place) -> None:
    """The program and its supervisors are hit; every outcome is right."""
    engine = SyncEngine(slots=2, isolation="microvm")
    works = [job(f"import time; time.sleep(0.2); print({i})", b"", limits=LIMITS) for i in range(8)]
    assert under_fire(engine, works, (0.2, 0.6), any_of) >= 2
    assert engine.replaced >= 1


@pytest.mark.parametrize("request_", TEMPLATE[2:])
def test_a_refusal_names_the_request_and_the_fault(own: Place, request_: str) -> None:
    """At whatever step of what is done once: no copy is started, nothing is left."""
    own.host.faults(**{request_: "it was said so"})
    with pytest.raises(IsolationUnavailable, match=rf"refuses {request_} \(400\): it was said so") as caught:
        SyncEngine(slots=1, isolation="microvm")
    assert "does not come up" in str(caught.value) or "no machine boots" in str(caught.value)
    assert own.host.requests(len(own.host.processes) - 1)[-1][:2] == tuple(request_.split())


@pytest.mark.parametrize("request_", COPY)
@pytest.mark.parametrize(("fault", "said"), [("it was said so", r"refuses {} \(400\): it was said so"), ("die", "no answer to {}: it has ended")])  # fmt: skip
def test_a_copy_that_does_not_start_is_a_fault_of_the_host(own: Place, request_: str, fault: str, said: str) -> None:
    engine = SyncEngine(slots=1, isolation="microvm", reuse=1)
    try:
        own.host.faults(**{request_: fault})
        outcomes = [engine.run(job("print(1)", limits=LIMITS))[0] for _ in range(2)]
        errors = [outcome.error for outcome in outcomes if outcome.error]
        assert errors
        assert any(re.search(said.format(request_), error) for error in errors), errors
        own.host.faults()
        (outcome,) = engine.run(job("print(1)", limits=LIMITS))
        assert (outcome.stdout, outcome.error) == (b"1\n", None)
    finally:
        engine.close()


def test_nobody_listens_in_the_machine(own: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firsttime, "BOOT_S", 1.0)
    own.host.faults(port="none")
    with pytest.raises(IsolationUnavailable, match="nobody in the machine listens on port 1024"):
        SyncEngine(slots=1, isolation="microvm")


def test_its_socket_never_comes(own: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_firecracker, "_COME_UP_S", 1.0)
    own.host.faults(socket="none")
    with pytest.raises(IsolationUnavailable, match="does not make the socket of its API"):
        SyncEngine(slots=1, isolation="microvm")


def test_what_is_missing_is_named(own: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No program, one that is too old, no KVM or one that is not for everybody's use, a kernel that does not come up."""
    own.host.version("1.15.0")
    with pytest.raises(IsolationUnavailable, match=r"firecracker is 1\.15\.0, and 1\.16\.1 is the first"):
        monitors.find()
    own.host.version("1.17.0")
    (tmp_path / "kvm").chmod(0o600)
    if os.geteuid() == 0:
        with pytest.raises(IsolationUnavailable, match=r"kvm is for root alone.*chmod 660"):
            monitors.find()
    (tmp_path / "kvm").unlink()
    with pytest.raises(IsolationUnavailable, match=r"needs KVM, and .*kvm is not there"):
        monitors.find()
    (tmp_path / "kvm").touch()
    (tmp_path / "kvm").chmod(0o666)
    monkeypatch.setattr(firecracker, "BOOT_S", 0.5)
    own.host.faults(boot="none")
    with pytest.raises(IsolationUnavailable, match=r"no machine boots with .*its kernel is not up after 0 s"):
        monitors.find()
    assert "its kernel is not up" in monitors.state()
    own.host.faults()
    found = monitors.find()
    assert (found.monitor, found.version, found.accelerator) == ("firecracker", "1.17.0", "kvm")
    assert monitors.state().startswith(f"can be had: {own.host.prefix}/bin/firecracker 1.17.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(qemu, "_FOLDERS", (str(tmp_path),))
    with pytest.raises(IsolationUnavailable, match=r"needs `firecracker`, and there is none in .*github\.com/firecracker-microvm"):  # fmt: skip
        monitors.find()


def test_a_machine_that_boots_is_remembered(own: Place) -> None:
    """Once a start of the host, not once an engine."""
    monitors.find()
    monitors.find()
    assert len(own.host.processes) == 1


def test_what_is_asked_for_is_taken_or_refused(own: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else instead of what was named; with no name QEMU with KVM, then Firecracker, then QEMU without."""
    at = dict.fromkeys(("path", "version", "kernel", "modules", "release"), "x")
    slow, fast = qemu.Qemu(**at, accelerator="tcg"), qemu.Qemu(**at, accelerator="kvm")

    def take(found: qemu.Qemu | None) -> Any:
        def find(_: Any) -> qemu.Qemu:
            if found is None:
                raise IsolationUnavailable("no QEMU")
            return found

        return find

    def choose(name: str, found: qemu.Qemu | None) -> str:
        monkeypatch.setattr(qemu, "find", take(found))
        monkeypatch.setitem(monitors._FIND, "qemu", take(found))
        taken = monitors.find({**os.environ, monitors.MONITOR: name})
        return f"{taken.monitor} {taken.accelerator}"

    assert choose("firecracker", fast) == "firecracker kvm"
    assert choose("qemu", slow) == "qemu tcg"
    assert [choose("", found) for found in (fast, slow, None)] == ["qemu kvm", "firecracker kvm", "firecracker kvm"]
    own.host.version("1.0.0")
    assert choose("", slow) == "qemu tcg"
    for name, found, words in (("firecracker", fast, "1.0.0"), ("qemu", None, "no QEMU"), ("", None, "no QEMU")):
        with pytest.raises(IsolationUnavailable, match=words):
            choose(name, found)
    with pytest.raises(InputError, match="'xen' is not one of qemu, firecracker") as caught:
        choose("xen", fast)
    assert caught.value.field == monitors.MONITOR


def test_its_file_of_the_image_is_made_once_and_made_again(own: Place) -> None:
    for _ in range(2):
        SyncEngine(slots=1, isolation="microvm").close()
    (path,) = [path for path in (Path(os.environ["XDG_CACHE_HOME"]) / "proctor/machines/disks").iterdir() if path.name != "lock"]  # fmt: skip
    assert path.stat().st_mode & 0o777 == 0o444
    assert sum(own.methods(number) == TEMPLATE for number in range(len(own.host.processes))) == 1
    path.unlink()
    SyncEngine(slots=1, isolation="microvm").close()
    assert path.is_file()
    assert sum(own.methods(number) == TEMPLATE for number in range(len(own.host.processes))) == 2
