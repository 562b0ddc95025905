"""What Firecracker needs, one by one: requests held against the description, answers, the stream's call, kernel and disk."""

from __future__ import annotations

import bz2
import contextlib
import lzma
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fc_description
import pytest

import proctor
from proctor.core.errors import IsolationUnavailable
from proctor.guest import firecracker as guest
from proctor.guest import landlock
from proctor.isolation import erofs, firecracker, saving

BOOT = {"kernel_image_path": "k", "initrd_path": "i", "boot_args": "a"}
CONFIG = {"vcpu_count": 1, "mem_size_mib": 128}
DRIVE = {"drive_id": "root", "is_root_device": False, "is_read_only": True, "path_on_host": "d"}
FILE = {"snapshot_path": "s", "mem_backend": {"backend_type": "File", "backend_path": "m"}}
START = ("PUT", "/actions", {"action_type": "InstanceStart"})
PAUSE = ("PATCH", "/vm", {"state": "Paused"})
SAVE = ("PUT", "/snapshot/create", {"snapshot_path": "s", "mem_file_path": "m"})
RUNNING = [("PUT", "/boot-source", BOOT), START]


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ([("PUT", "/boot-source", {"initrd_path": "i"})], "missing field `kernel_image_path`"),
        ([("PUT", "/boot-source", BOOT | {"args": ""})], "unknown field `args`"),
        ([("PUT", "/boot-source", BOOT | {"initrd_path": None})], "invalid type of `initrd_path`"),
        ([("PUT", "/machine-config", CONFIG | {"vcpu_count": "1"})], "invalid type of `vcpu_count`"),
        ([("PUT", "/machine-config", CONFIG | {"vcpu_count": True})], "invalid type of `vcpu_count`"),
        ([("PUT", "/machine-config", CONFIG | {"vcpu_count": 33})], "vCPU number is invalid"),
        ([("PUT", "/drives/other", DRIVE)], "does not match"),
        ([("PUT", "/drives/root", DRIVE | {"socket": "s"})], "Exactly one"),
        ([("PUT", "/vsock", {"guest_cid": 2, "uds_path": "v"})], "CID"),
        ([START], "without kernel"),
        ([("PUT", "/drives/root", DRIVE | {"is_root_device": True}), *RUNNING], "initrd and a root device"),
        ([*RUNNING, START], "after starting"),
        ([*RUNNING, ("PUT", "/entropy", {})], "after starting"),
        ([PAUSE], "before starting"),
        ([*RUNNING, SAVE], "not paused"),
        ([*RUNNING, PAUSE, ("PUT", "/snapshot/create", {"snapshot_path": "s"})], "missing field `mem_file_path`"),
        ([("PUT", "/boot-source", BOOT), ("PUT", "/snapshot/load", FILE)], "after configuring"),
        ([("PUT", "/snapshot/load", FILE | {"mem_file_path": "m"})], "Exactly one"),
        ([("PUT", "/snapshot/load", {"snapshot_path": "s", "mem_backend": {"backend_type": "File"}})], "missing field `backend_path`"),
        ([("PUT", "/snapshot/load", FILE | {"mem_backend": {"backend_type": "Disk", "backend_path": "m"}})], "unknown variant"),
        ([("GET", "/drives/root", {})], "Invalid request"),
        ([("PUT", "/nothing", {})], "Invalid request"),
    ],
)  # fmt: skip
def test_the_description_is_held_to(asked: list[tuple[str, str, Any]], fault: str) -> None:
    """What stands for Firecracker in these tests refuses what the real one refuses, so that a wrong request is seen."""
    machine = fc_description.Machine()
    for request in asked[:-1]:
        machine.take(*request)
    with pytest.raises(fc_description.Refused, match=fault):
        machine.take(*asked[-1])


class Server:
    """A socket that gives the given pieces, one whenever something comes."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "s")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(1)
        self.got = b""
        self.threads: list[threading.Thread] = []

    def give(self, *pieces: bytes) -> None:
        def serve() -> None:
            sock = self.listener.accept()[0]
            with sock, contextlib.suppress(OSError):
                for piece in pieces:
                    self.got += sock.recv(1 << 16)
                    for at in range(0, len(piece), 1000):
                        sock.sendall(piece[at : at + 1000])

        thread = threading.Thread(target=serve)
        thread.start()
        self.threads.append(thread)

    def close(self) -> None:
        for thread in self.threads:
            thread.join()
        self.listener.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.close()


def _alive() -> None:
    pass


GONE = b"HTTP/1.1 204 \r\nServer: Firecracker API\r\nConnection: keep-alive\r\n\r\n"


def test_requests_follow_one_another_on_one_connection(server: Server) -> None:
    server.give(GONE, b"HTTP/1.1 200 \r\ncontent-length: 2\r\n\r\n{}", GONE)
    api = guest.Api(server.path, _alive)
    for _ in range(3):
        api.ask("PATCH", "/vm", {"state": "Paused"})
    api.close()
    one = b"PATCH /vm HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n"
    assert server.got == (one + b'{"state": "Paused"}') * 3


def _answer(body: bytes, status: int = 400) -> bytes:
    return b"HTTP/1.1 %d Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (_answer(b'{"fault_message": "no such thing"}'), r"refuses PUT /vsock \(400\): no such thing"),
        (_answer(b"<html>", 500), r"refuses PUT /vsock \(500\): <html>"),
        (_answer(b"[1]"), r"refuses PUT /vsock \(400\): \[1\]"),
        (_answer(b""), r"refuses PUT /vsock \(400\): no reason given"),
        (_answer(b'{"fault_message": "' + b"x" * 9000 + b'"}'), r"refuses PUT /vsock \(400\): x{1000}$"),
        (b"", "no answer to PUT /vsock: it has ended"),
        (b"HTTP/1.1 204 \r\n", "no answer to PUT /vsock: it has ended"),
        (b"HTTP/1.1 200 \r\nContent-Length: 99999999\r\n\r\n", "no answer to PUT /vsock: an answer of 99999999 bytes"),
        (b"HTTP/1.1 200 \r\nContent-Length: -1\r\n\r\n", "no answer to PUT /vsock: an answer of -1 bytes"),
        (b"HTTP/1.1 two \r\n\r\n", "no answer to PUT /vsock: invalid literal"),
        (b"x" * 200_000, "no answer to PUT /vsock: an answer without an end"),
    ],
    ids=["fault", "no json", "no object", "empty", "long", "end", "cut", "large", "negative", "no number", "endless"],
)
def test_an_answer_that_is_none(server: Server, answer: bytes, said: str) -> None:
    server.give(answer)
    api = guest.Api(server.path, _alive)
    with pytest.raises(OSError, match=said):
        api.ask("PUT", "/vsock", {})
    api.close()


@pytest.mark.parametrize(
    ("answer", "reached"),
    [(b"OK 1073741824\nREST", True), (b"", False), (b"OK \n", False), (b"NO 1\n", False), (b"OK 1", False), (b"O" * 100, False)],
)  # fmt: skip
def test_the_stream_is_called(server: Server, answer: bytes, reached: bool) -> None:
    """What follows the line is the machine's, and stays to be read."""
    server.give(answer)
    sock = guest.connect(server.path, _alive, "it")
    if reached:
        guest.call(sock)
        assert sock.recv(10) == b"REST"
    else:
        with pytest.raises(OSError, match="nobody in the machine listens on port 1024"):
            guest.call(sock)
    sock.close()
    assert server.got == b"CONNECT 1024\n"


def test_a_process_that_ends_before_its_socket(tmp_path: Path) -> None:
    def ended() -> None:
        raise OSError("Firecracker has ended with 1")

    with pytest.raises(OSError, match="has ended with 1"):
        guest.connect(str(tmp_path / "none"), ended, "its API")


def test_a_directory_with_a_long_name(tmp_path: Path) -> None:
    """A path of a socket's own may have no more than 107 bytes."""
    folder = tmp_path / ("x" * 200)
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(folder, os.O_PATH)
        listener.bind(f"/proc/self/fd/{here}/s")
        os.close(here)
        listener.listen(1)
        guest.connect(str(folder / "s"), _alive, "it").close()


_ASK_KVM = """
import fcntl, os, sys
sys.path.insert(0, sys.argv[1])
from guest import landlock, linux
rules = landlock.ruleset(landlock.abi(), [("/dev/kvm", getattr(landlock, sys.argv[2]))], network=False)
linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
linux.landlock_restrict(rules)
kvm = os.open("/dev/kvm", os.O_RDWR)
try:
    print(fcntl.ioctl(kvm, 0xAE00))
except PermissionError:
    print("refused")
"""


def test_landlock_leaves_kvm_usable() -> None:
    """From version 5 on Landlock holds back what a device is told, unless that is allowed by itself; 12 is KVM's version."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        pytest.skip("needs the device /dev/kvm")
    if landlock.abi() < 1:
        pytest.skip("no Landlock in this kernel")
    found = {}
    for right in ("CONTROL", "DEVICE"):
        command = [sys.executable, "-c", _ASK_KVM, str(Path(proctor.__file__).parent), right]
        found[right] = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert found == {"CONTROL": "12", "DEVICE": "refused" if landlock.abi() >= 5 else "12"}


# ---------------------------------------------------------------- the kernel


KERNEL = b"\x7fELF" + os.urandom(20_000)


def _lz4(data: bytes) -> bytes:
    return _by("lz4", "-lc", data=data) + struct.pack("<I", len(data))


def _zstd(data: bytes) -> bytes:
    return _by("zstd", "-c", data=data) + struct.pack("<I", len(data))


def _by(*command: str, data: bytes) -> bytes:
    if not shutil.which(command[0]):
        pytest.skip(f"there is no {command[0]} here")
    return subprocess.run(command, input=data, capture_output=True, check=True).stdout


def _gzip(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=31)
    return packing.compress(data) + packing.flush()


def _image(folder: Path, packed: bytes) -> str:
    head = bytearray(0x1000)
    head[0x1F1] = 3
    struct.pack_into("<II", head, 0x248, 0x1000 - 4 * 512, len(packed))
    (folder / "vmlinuz").write_bytes(bytes(head) + packed + b"more")
    return str(folder / "vmlinuz")


@pytest.mark.parametrize(
    "pack",
    [
        _gzip, bz2.compress, _lz4, _zstd, bytes,
        lambda data: lzma.compress(data) + struct.pack("<I", len(data)),
        lambda data: lzma.compress(data, lzma.FORMAT_ALONE) + struct.pack("<I", len(data)),
    ],
    ids=["gzip", "bzip2", "lz4", "zstd", "plain", "xz", "lzma"],
)  # fmt: skip
def test_a_kernel_is_unpacked(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    assert firecracker.unpacked(_image(tmp_path, pack(KERNEL))) == KERNEL


def test_a_kernel_that_cannot_be_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for packed, said in (
        (b"unknown", "packed in an unknown way"),
        (_gzip(KERNEL)[:8] + bytes(100), "cannot be unpacked"),
        (b"\x02\x21\x4c\x18" + bytes(100), "cannot be unpacked with lz4|apt-get install lz4"),
    ):
        with pytest.raises(IsolationUnavailable, match=said):
            firecracker.unpacked(_image(tmp_path, packed))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(IsolationUnavailable, match="packed with zstd; apt-get install zstd"):
        firecracker.unpacked(_image(tmp_path, b"\x28\xb5\x2f\xfd" + bytes(100)))


# ---------------------------------------------------------------- disk and memory


class Root:
    """A small root, laid out."""

    def __init__(self, folder: Path) -> None:
        self.top, self.laid, self.disks = folder / "top", folder / "laid", folder / "disks"
        self.top.mkdir()
        self.laid.mkdir()
        self.content = os.urandom(3 * 4096 + 5)
        (self.top / "a").write_bytes(self.content)
        (self.top / "zeros").write_bytes(bytes(20_000_000))
        plan = {"binds": [[str(self.top), "/top"]], "links": [], "files": {}, "dirs": [], "covers": {}}
        self.size = erofs.save(plan, {}, self.laid)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.disks.iterdir() if path.name != "lock")


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_the_disk_is_a_file_with_the_content(root: Root) -> None:
    """One for one content; zeros are holes; it may be read by whoever runs the machine and written by nobody."""
    name = saving.disk(root.laid, root.size, root.disks)
    path = root.disks / name
    assert path.stat().st_size == root.size
    assert root.content in path.read_bytes()
    assert path.stat().st_blocks * 512 < 1_000_000
    assert path.stat().st_mode & 0o777 == 0o444
    assert saving.disk(root.laid, root.size, root.disks) == name
    assert root.files() == [name]
    saving.tidy(root.disks, {name}, -1)
    assert root.files() == [name]
    saving.tidy(root.disks, set(), 3600)
    assert root.files() == [name]
    saving.tidy(root.disks, set(), -1)
    assert root.files() == []


def test_a_disk_that_there_is_no_room_for(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "_MOST_DISK", 1 << 20)
    with pytest.raises(IsolationUnavailable, match=r"Firecracker needs a copy of the image's files, 19 MiB.*QEMU, which needs no copy"):  # fmt: skip
        saving.disk(root.laid, root.size, root.disks)
    assert root.files() == []


def test_a_file_that_changes_while_it_is_copied(root: Root) -> None:
    (root.top / "a").write_bytes(b"other")
    with pytest.raises(OSError, match="has changed since"):
        saving.disk(root.laid, root.size, root.disks)
    assert root.files() == []


def test_memory_that_was_never_used_becomes_holes(tmp_path: Path) -> None:
    dense = bytearray(30_000_000)
    dense[5000:5003], dense[12_000_000:12_100_000], dense[-1:] = b"one", os.urandom(100_000), b"z"
    (tmp_path / "dense").write_bytes(dense)
    saving._thin(tmp_path / "dense", tmp_path / "thin")
    assert (tmp_path / "thin").read_bytes() == dense
    assert (tmp_path / "thin").stat().st_blocks * 512 < 1_000_000
