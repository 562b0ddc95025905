"""The machine's side over real vsock sockets: in a machine of QEMU's, with a way from its serial port to its own vsock.

Firecracker's vsock device is not here. All that comes behind it is: the kernel's vsock, pid 1 that listens, the
connection that ends as the machine is saved, the one that comes after it, and the agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_help import job, run

from proctor.core.limits import Limits
from proctor.engine.shared import SyncEngine
from proctor.guest import firecracker
from proctor.isolation import initramfs, monitors, qemu, template

LIMITS = Limits(cpu_s=10, wall_s=120)
# A process beside pid 1, older than it: it waits for the port and for who listens, then passes on. When pid 1 has said
# that it is ready, the connection ends and another is made, as when Firecracker saves a machine and loads a copy.
WAY = """
def way():
    import ctypes, os, select, socket, time
    ctypes.CDLL(None).mount(b"dev", b"/sys", b"devtmpfs", ctypes.c_ulong(0), None)
    port = -1
    while port < 0:
        try:
            port = os.open("/sys/" + [name for name in os.listdir("/sys") if name.startswith("vport")][0], os.O_RDWR)
        except (IndexError, OSError):
            time.sleep(0.01)

    def call():
        while True:
            sock = None
            try:
                sock = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
                sock.connect((1, NUMBER))
                return sock
            except OSError:
                if sock:
                    sock.close()
                time.sleep(0.01)

    sock, said, again = call(), b"", False
    while True:
        ready, _, _ = select.select([port, sock], [], [])
        if port in ready:
            sock.sendall(os.read(port, 65536))
        if sock in ready:
            data = sock.recv(65536)
            said = (said + data)[-200:]
            while data:
                data = data[os.write(port, data):]
            if b'"ready"' in said and not again:
                sock.close()
                sock, again = call(), True

import os
if os.fork() == 0:
    way()
"""


@pytest.fixture(scope="module")
def machines(host: qemu.Qemu, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyncEngine]:
    written = initramfs.write

    def write(out: Any, python: str, links: Any, modules: Path, first: dict[str, bytes], wanted: Any) -> None:
        way = WAY.replace("NUMBER", str(firecracker.PORT)).encode()
        first = first | {"/init": first["/init"].replace(b"import first\n", way + b"import first\n")}
        written(out, python, links, modules, first, (*wanted, "vsock_loopback"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("vsock")))
        patch.setenv(monitors.MONITOR, "qemu")
        patch.setattr(initramfs, "write", write)
        patch.setattr(template, "_COMMAND_LINE", f"{template._COMMAND_LINE} proctor.vsock={firecracker.PORT}")
        engine = SyncEngine(slots=1, isolation="microvm")
        yield engine
        engine.close()


def test_an_agent_behind_vsock(machines: SyncEngine) -> None:
    """Cases are scored over the second connection; what is large comes whole both ways."""
    (outcome,) = run(machines, "print(sum(map(int, input().split())))", b"3 4\n", limits=LIMITS)
    assert (outcome.stdout, outcome.error) == (b"7\n", None)
    data = bytes(range(256)) * 2000
    (outcome,) = machines.run(job("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())", data, limits=LIMITS))
    assert outcome.error is None
    assert outcome.stdout == data


def test_a_program_has_no_vsock(machines: SyncEngine) -> None:
    """No network namespace holds vsock back: the system call filter does, so that nobody calls pid 1 or the host."""
    source = "import socket\ntry:\n    socket.socket(socket.AF_VSOCK)\n    print('made')\nexcept OSError as exc:\n    print(exc.errno)"
    (outcome,) = run(machines, source, limits=LIMITS)
    assert (outcome.stdout, outcome.error) == (b"97\n", None)
