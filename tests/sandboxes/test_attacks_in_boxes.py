"""The corpora of attacks, each program in a sandbox of its own, and its files brought to the host afterwards.

What scored programs are tried for by ``doctor --attacks``; here the programs may stay, be run again and have their
files collected, which is what some of them wait for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from handed import handed
from proctor import InfrastructureError, Runtime
from proctor.client.embedded import EmbeddedBackend
from proctor.client.errors import RuntimeAPIError
from proctor.core.errors import IsolationUnavailable
from proctor.doctor import audit, manifest
from proctor.doctor.canary import Canary

OWN = Path(__file__).resolve().parent.parent / "attacks"
STDIN = b"3 4\n" * 3
PLACES = ("/workspace", "/tmp")


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    backend = EmbeddedBackend(store=None, ledger=None, memory_mib=4096)
    made = Runtime(backend=backend)
    try:
        made.sandboxes.create(memory_mib=64).delete()
    except (IsolationUnavailable, InfrastructureError, RuntimeAPIError) as exc:
        backend.close()
        pytest.skip(f"this host gives no sandboxes: {exc}")
    yield made
    backend.close()


@pytest.fixture
def canary() -> Iterator[Canary]:
    with Canary() as planted:
        yield planted


def attack(runtime: Runtime, row: manifest.Row, folder: Path, root: bool) -> list[bytes]:
    """Everything that came out of a sandbox in which a program ran twice: its words, and its files on this host."""
    came: list[bytes] = []
    name = Path(row.file).name
    with runtime.sandboxes.create(memory_mib=256, disk_mib=64, timeout_seconds=120) as box:
        box.files.write(f"/workspace/{name}", row.source)
        command = ["python3", name]
        if row.language in ("c", "cpp"):
            built = box.exec(["g++" if row.language == "cpp" else "gcc", "-x", "c++" if row.language == "cpp" else "c",
                              "-o", "program", name], timeout_ms=60_000)  # fmt: skip
            if built.exit_code:
                return came
            command = ["./program"]
        for _ in range(2):
            try:
                out = box.exec(command, stdin=STDIN, timeout_ms=2_000, user="root" if root else "sandbox")
            except RuntimeAPIError as error:
                came.append(str(error).encode())
                break
            came += [out.stdout_bytes, out.stderr_bytes]
        for place in PLACES:
            target = folder / place.strip("/")
            try:
                box.files.download(place, str(target))
            except RuntimeAPIError as error:
                came.append(str(error).encode())  # too much, or too odd: said, and nothing is lost
    for path in folder.rglob("*"):
        assert not path.is_symlink(), f"{row.file} made a link on the host: {path} -> {os.readlink(path)}"
        assert path.is_dir() or path.is_file(), f"{row.file} made {path} on the host, which is no file"
        if path.is_file():
            came.append(path.read_bytes())
    return came


def campaign(
    runtime: Runtime, folder: Path, canary: Canary, tmp_path: Path, root: bool, rows: list[manifest.Row]
) -> None:
    before = audit.quiet()
    visits = canary.visits()
    for number, row in enumerate(rows):
        place = tmp_path / str(number)
        place.mkdir()
        came = attack(runtime, row, place, root)
        assert not canary.leaked(*came), f"{row.file} brought the secret out"
        assert canary.changed() == [], f"{row.file} changed files of the host"
        assert canary.alive(), f"{row.file} ended a process of the host"
    assert canary.visits() == visits, "something of the host was reached"
    assert audit.settled(before, running=True) == []
    with runtime.sandboxes.create(memory_mib=64) as box:  # and the agent that forked them all is well
        assert box.exec("echo alive").stdout == "alive\n"


@pytest.mark.parametrize("root", [False, True], ids=["sandbox", "root"])
def test_own_attacks_leave_nothing_and_bring_nothing_out(
    runtime: Runtime, canary: Canary, tmp_path: Path, root: bool
) -> None:
    if root and os.geteuid():
        pytest.skip("an ordinary user's sandboxes have one identity")
    rows = [row for row in manifest.load(OWN).rows if row.mode == "stdio"]
    campaign(runtime, OWN, canary, tmp_path, root, rows)


def test_handed_attacks_leave_nothing_and_bring_nothing_out(runtime: Runtime, canary: Canary, tmp_path: Path) -> None:
    folder = handed("attacks")
    wanted = ("d_escape", "c_resource_abuse", "b_answer_theft", "f_protocol_abuse")
    rows = [row for row in manifest.load(folder).rows if row.core and row.kind in wanted and row.mode == "stdio"]
    campaign(runtime, folder, canary, tmp_path, bool(not os.geteuid()), rows)
