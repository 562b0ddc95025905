"""Machines of Firecracker's, against its published API: the program here stands for the real one, the agents are real."""

from __future__ import annotations

import json
import os
import random
import re
import struct
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fc_help
import pytest
from engine_help import descendants, descriptors, gone, job, kill, leavings, run

import proctor
from proctor.core.errors import InputError, IsolationUnavailable
from proctor.core.limits import Limits
from proctor.core.verdict import Verdict
from proctor.engine.shared import SyncEngine
from proctor.grading.problem import CheckerSpec, Problem, TestCase
from proctor.guest import firecracker as guest_firecracker
from proctor.images.host import host_image
from proctor.isolation import erofs, firecracker, firsttime, initramfs, monitors, qemu, sweep, template

LIMITS = Limits(cpu_s=20, wall_s=120, memory_mib=128)
TEMPLATE = ["PUT /machine-config", "PUT /boot-source", "PUT /drives/root", "PUT /vsock", "PUT /entropy", "PUT /actions", "PATCH /vm", "PUT /snapshot/create"]  # fmt: skip
COPY = ["PUT /snapshot/load", "PATCH /vm"]

if not Path("/usr/bin/python3").exists():
    pytest.skip("what stands for Firecracker runs by /usr/bin/python3", allow_module_level=True)


def kernel(folder: Path) -> Path:
    """A kernel's file and its modules, in form only: nothing boots them here."""
    packed = zlib.compressobj(wbits=31)
    payload = packed.compress(b"\x7fELF" + bytes(1000)) + packed.flush()
    head = bytearray(0x1000)
    head[0x1F1] = 4
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", head, 0x20E, 0x100)
    head[0x300 : 0x300 + 8] = b"6.1.0-9\0"
    struct.pack_into("<II", head, 0x248, 0x1000 - 5 * 512, len(payload))
    (folder / "boot").mkdir(parents=True)
    (folder / "boot/vmlinuz-6.1.0-9").write_bytes(bytes(head) + payload)
    modules = folder / "lib/modules/6.1.0-9/kernel"
    modules.mkdir(parents=True)
    for name in initramfs.MODULES["firecracker"]:
        (modules / f"{name}.ko").write_bytes(b"\0depends=\0")
    return folder / "boot/vmlinuz-6.1.0-9"


class Place:
    """A host that seems to have Firecracker, KVM and a kernel, and a small image to copy."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.host = fc_help.Host(folder / "opt", host_image())
        small = folder / "small"
        small.mkdir()
        (small / "file").write_bytes(os.urandom(10_000))
        plan = {"binds": [[str(small), "/small"]], "links": [], "files": {}, "dirs": [], "covers": {}}
        whole = erofs.save
        patch.setattr(erofs, "save", lambda _, extra, place: whole(plan, extra, place))
        patch.setattr(template, "MEMORY_MIB", 1024)
        (folder / "kvm").touch()
        (folder / "kvm").chmod(0o666)
        patch.setattr(firecracker, "KVM", str(folder / "kvm"))
        patch.setattr(firecracker, "_tried", firecracker._tried.__wrapped__)
        patch.setattr(qemu, "version", qemu.version.__wrapped__)
        patch.setenv("PATH", f"{folder}/opt/bin:{os.environ['PATH']}")
        patch.setenv(qemu.KERNEL, str(kernel(folder / "kernel")))
        patch.setenv("PROCTOR_MICROVM_MONITOR", "firecracker")
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))

    def methods(self, number: int) -> list[str]:
        return [f"{method} {path}" for method, path, _ in self.host.requests(number)]


def needs_device() -> None:
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        pytest.skip("the walls around Firecracker hold the device /dev/kvm, which this user has not; it need not work")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    needs_device()
    with pytest.MonkeyPatch.context() as patch:
        made = Place(tmp_path_factory.mktemp("fc"), patch)
        yield made
        made.host.close()


@pytest.fixture(scope="module")
def machines(place: Place) -> Iterator[SyncEngine]:
    engine = SyncEngine(slots=2, isolation="microvm")
    yield engine
    engine.close()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _kept: None) -> Iterator[Place]:
    """One for this test, and nothing of it is left: processes, groups, directories, sockets, descriptors."""
    needs_device()
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


# ---------------------------------------------------------------- as it should be


def test_a_case_is_scored_through_it(place: Place, machines: SyncEngine) -> None:
    """The machine is described, started, paused and saved; a copy is loaded, called and goes on; its agent is real."""
    (outcome,) = run(machines, "print(sum(map(int, input().split())))", b"3 4\n", limits=LIMITS)
    assert (outcome.stdout, outcome.error) == (b"7\n", None)
    assert machines.features["firecracker"] == "1.16.1"
    assert machines.features["level"] == "microvm"
    assert [place.methods(number) for number in range(3)] == [[*TEMPLATE[:2], "PUT /actions"], TEMPLATE, COPY]
    config, boot, drive, vsock, entropy, start, pause, create = (body for _, _, body in place.host.requests(1))
    assert config == {"vcpu_count": 1, "mem_size_mib": 1024, "smt": False}
    assert "proctor.vsock=1024" in boot["boot_args"].split()
    assert "rdinit=/init" in boot["boot_args"].split()
    assert set(boot) == {"kernel_image_path", "initrd_path", "boot_args"}
    assert drive == {"drive_id": "root", "path_on_host": "/proc/self/fd/3", "is_root_device": False, "is_read_only": True}  # fmt: skip
    assert (vsock["guest_cid"], entropy, start) == (3, {}, {"action_type": "InstanceStart"})
    assert (pause, create["snapshot_type"]) == ({"state": "Paused"}, "Full")
    load, resume = (body for _, _, body in place.host.requests(2))
    assert load == {
        "snapshot_path": "/proc/self/fd/5", "mem_backend": {"backend_type": "File", "backend_path": "/proc/self/fd/4"},
        "resume_vm": False,
    }  # fmt: skip
    assert resume == {"state": "Resumed"}


SUM: dict[str, Any] = {"mode": "stdio", "cases": (TestCase(stdin=b"3 4\n", expected=b"7\n"),), "time_limit_s": 10}
CALL: dict[str, Any] = {
    "mode": "function", "entry_point": "solve", "checker": CheckerSpec(kind="value"),
    "cases": (TestCase(args=(2,), expected=[2, 4]),), "time_limit_s": 10,
}  # fmt: skip
TABLE: dict[str, tuple[dict[str, Any], str, Verdict]] = {
    "right": (SUM, "print(7)", Verdict.ACCEPTED),
    "wrong": (SUM, "print(0)", Verdict.WRONG_ANSWER),
    "exception": (SUM, "1 / 0", Verdict.RUNTIME_ERROR),
    "flood": (SUM, "while True: print('x' * 100_000)", Verdict.OUTPUT_LIMIT),
    "call": (CALL, "def solve(n): return [n, n * n]", Verdict.ACCEPTED),
    "call, wrong": (CALL, "def solve(n): return [n]", Verdict.WRONG_ANSWER),
}


def test_verdicts_come_through(place: Place, machines: SyncEngine) -> None:
    problems = [Problem(id=name, **known) for name, (known, _, _) in TABLE.items()]
    sources = [source for _, source, _ in TABLE.values()]
    grades = proctor.grade(sources, problems, engine=machines, extract="whole", cache=False)
    found = {name: grade.cases[0].verdict for name, grade in zip(TABLE, grades, strict=True)}
    assert found == {name: due for name, (_, _, due) in TABLE.items()}, [grade.error for grade in grades]


def test_each_copy_is_given_entropy_and_the_time(place: Place, machines: SyncEngine) -> None:
    for future in [machines.submit(job("import time; time.sleep(0.5)", limits=LIMITS)) for _ in range(4)]:
        assert future.result()[0].error is None
    told = [known["woken"].read_text().splitlines() for known in place.host.processes[2:] if known["woken"].exists()]
    first = [[json.loads(row) for row in rows[:2]] for rows in told]
    assert len(first) >= 2
    assert len({entropy["entropy"] for entropy, _ in first}) == len(first)
    assert all(len(bytes.fromhex(entropy["entropy"])) == 64 for entropy, _ in first)
    assert all(abs(clock["time"] / 1e9 - time.time()) < 3600 for _, clock in first)
    assert all(clock["clock"] == time.CLOCK_REALTIME for _, clock in first)


def test_it_is_behind_the_walls_of_a_jail(place: Place, machines: SyncEngine) -> None:
    """What stands for Firecracker looks around as it loads: the walls are those that the real one gets."""
    around = place.host.processes[2]["around"]
    assert "home" not in around["top"]
    assert "root" not in around["top"]
    assert set(around["here"]) <= {"api", "stream"}
    assert around["pid"] == 1
    assert around["uid"] != 0
    assert set(around["capabilities"]) == {"0"}
    assert around["new_privileges"] == "1"
    assert around["links"] == ["lo"]
    assert around["net"] != os.readlink("/proc/self/ns/net")
    assert around["written"] == ["."]
    assert around["console"] == "/dev/null"
    assert around["descriptors"][:6] == [0, 1, 2, 3, 4, 5]


def test_nothing_of_it_stays_in_the_file_system(place: Place, machines: SyncEngine) -> None:
    """Its directory is gone as soon as both sockets are connected, while the machine runs."""
    assert run(machines, "print(1)", limits=LIMITS)[0].error is None
    boxes = f"proctor-{os.getpid()}-*"
    assert not gone(lambda: [path for path in sweep.BOXES.glob(boxes) if (path / "machine").exists()])


def test_random_kills(own: Place) -> None:
    """The program and its supervisors are hit; every outcome is right."""
    engine = SyncEngine(slots=2, isolation="microvm")
    choose, over, hits = random.Random(2), threading.Event(), []
    futures = [engine.submit(job(f"import time; time.sleep(0.2); print({i})", b"", limits=LIMITS)) for i in range(8)]

    def fire() -> None:
        while not over.wait(choose.uniform(0.2, 0.6)):
            done = sum(future.done() for future in futures)
            if done < 2 * len(hits) or done > 6:  # by progress: a slow host is not hit more often
                continue
            if pids := engine.agent_pids():
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
    assert len(hits) >= 2
    assert engine.replaced >= 1


# ---------------------------------------------------------------- as it should not be


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
