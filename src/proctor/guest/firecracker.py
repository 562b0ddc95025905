"""What is Firecracker's own about a machine: its API, its walls' extras, and how its streams are reached.

Theory of operation. Firecracker takes no socket from its parent: it binds one
for its API and one for the machine's streams in its current directory, which is
all that it may write to. The supervisor connects to both before anything of the
machine runs, then removes the directory: a machine that took Firecracker over
finds no path there that anybody looks up again, and nothing that it could make.

    engine --(control)--> supervisor --(stream: CONNECT n)--> Firecracker | vsock | pid 1 --(control)--> zygote
       \\--(lifeline)------/     \\--(API: load, resume)--/

Its disk, memory and state are descriptors, as QEMU's are, and named by their
path in /proc. The stream that is reached so is the machine's port (``channels``).
"""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from typing import Any

from . import channels, landlock, tree

# Descriptors of Firecracker's.
DISK, MEMORY, STATE = 3, 4, 5
API, STREAM = "api", "stream"  # sockets, in its current directory
PORT = 1024  # where pid 1 of the machine listens
_CID = 3  # each Firecracker has its own numbers
_INSIDE = "/run/machine"
_WRITTEN = 1 << 20  # bytes of a file, its log: it has no other
_COME_UP_S, _ANSWER_S = 60.0, 120.0
_LONGEST = 1 << 16  # of an answer


def command(machine: dict[str, Any]) -> list[str]:
    """Firecracker's command line; its own system call filter is on unless it is told otherwise."""
    return [machine["firecracker"], "--id", "proctor", "--api-sock", API]


class Api:
    """Firecracker's API: one request at a time, on one connection.

    Args:
        path: its socket.
        alive: raises OSError when the process has ended; asked while the socket is not there yet.

    Raises:
        OSError: no socket comes.
    """

    def __init__(self, path: str, alive: Any) -> None:
        self.sock = connect(path, alive, "its API")
        self.sock.settimeout(_ANSWER_S)
        self.buffer = b""

    def ask(self, method: str, path: str, body: dict[str, Any]) -> None:
        """Send a request; OSError with what Firecracker says where it refuses, or is gone."""
        text = json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        what = f"{method} {path}"
        try:
            self.sock.sendall(head.encode() + text)
            status, answer = self._answer()
        except (ValueError, EOFError, OSError) as exc:
            raise OSError(f"Firecracker gives no answer to {what}: {str(exc) or 'it has ended'}") from exc
        if not 200 <= status < 300:
            raise OSError(f"Firecracker refuses {what} ({status}): {_fault(answer)}")

    def _answer(self) -> tuple[int, bytes]:
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        first, *rows = head.split(b"\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (row.partition(b":") for row in rows)}
        length = int(fields.get(b"content-length", b"0"))
        if not 0 <= length <= _LONGEST:
            raise ValueError(f"an answer of {length} bytes")
        while len(self.buffer) < length:
            self._more()
        answer, self.buffer = self.buffer[:length], self.buffer[length:]
        return int(first.split(b" ")[1]), answer

    def _more(self) -> None:
        piece = self.sock.recv(1 << 14)
        if not piece:
            raise EOFError
        self.buffer += piece
        if len(self.buffer) > 2 * _LONGEST:
            raise ValueError("an answer without an end")

    def close(self) -> None:
        """Let go of the connection."""
        self.sock.close()


def _fault(answer: bytes) -> str:
    try:
        words = json.loads(answer)
    except ValueError:
        words = None
    told = words.get("fault_message") if isinstance(words, dict) else None
    return str(told or answer.decode("utf-8", "replace") or "no reason given")[:1000]


def connect(path: str, alive: Any, what: str) -> socket.socket:
    """Connect to a socket that is about to be bound; OSError when it is not, or the process has ended."""
    deadline = time.monotonic() + _COME_UP_S
    folder = os.open(
        os.path.dirname(path), os.O_PATH | os.O_CLOEXEC
    )  # a socket's path may have 107 bytes, and this few
    try:
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect(f"{_path(folder)}/{os.path.basename(path)}")
                return sock
            except (FileNotFoundError, ConnectionRefusedError):
                sock.close()
                alive()
                if time.monotonic() > deadline:
                    raise OSError(f"Firecracker does not make the socket of {what}") from None
                time.sleep(0.005)
            except OSError as exc:
                sock.close()
                raise OSError(f"Firecracker's socket of {what} cannot be connected to: {exc}") from exc
    finally:
        os.close(folder)


def call(sock: socket.socket, port: int = PORT) -> None:
    """Have a connection to the stream's socket passed on to a port of the machine; OSError where nobody listens."""
    sock.settimeout(_ANSWER_S)
    said = b""
    try:
        sock.sendall(b"CONNECT %d\n" % port)
        while not said.endswith(b"\n"):
            byte = sock.recv(1)  # what follows the line is the machine's
            if not byte or len(said) > 32:
                break
            said += byte
    except OSError as exc:
        raise OSError(f"the machine's port {port} is not reached: {exc}") from exc
    if not (said.startswith(b"OK ") and said[3:-1].isdigit() and said.endswith(b"\n")):
        raise OSError(f"nobody in the machine listens on port {port}")


def boot(api: Api, machine: dict[str, Any]) -> None:
    """Describe a machine and start it: kernel, disk, stream and generator, and no network interface.

    Args:
        machine: ``memory_mib``, ``kernel`` (unpacked), ``first`` (its initial file system), ``command_line``.
    """
    api.ask("PUT", "/machine-config", {"vcpu_count": 1, "mem_size_mib": machine["memory_mib"], "smt": False})
    source = {"kernel_image_path": machine["kernel"], "initrd_path": machine["first"], "boot_args": machine["command_line"]}  # fmt: skip
    api.ask("PUT", "/boot-source", {name: value for name, value in source.items() if value})
    if machine.get("disk") is not None:
        drive = {"drive_id": "root", "path_on_host": _path(DISK), "is_root_device": False, "is_read_only": True}
        api.ask("PUT", "/drives/root", drive)
        api.ask("PUT", "/vsock", {"guest_cid": _CID, "uds_path": STREAM})
        api.ask("PUT", "/entropy", {})
    api.ask("PUT", "/actions", {"action_type": "InstanceStart"})


def save(api: Api, state: str, memory: str) -> None:
    """Pause the machine and write it down, in two files below Firecracker's directory."""
    api.ask("PATCH", "/vm", {"state": "Paused"})
    body = {"snapshot_type": "Full", "snapshot_path": state, "mem_file_path": memory}
    api.ask("PUT", "/snapshot/create", body)


def load(api: Api) -> None:
    """Take a saved machine, from descriptors. It does not run yet."""
    backend = {"backend_type": "File", "backend_path": _path(MEMORY)}
    api.ask("PUT", "/snapshot/load", {"snapshot_path": _path(STATE), "mem_backend": backend, "resume_vm": False})


def resume(api: Api) -> None:
    """Let it run."""
    api.ask("PATCH", "/vm", {"state": "Resumed"})


def _path(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


class Ends:
    """The directory in which Firecracker's sockets will be, below the slot's box, and its disk.

    Args:
        config: the supervisor's: ``box``, ``uid``, ``root``, and of ``machine`` ``disk``, a descriptor.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.box, self.disk = config["box"], os.dup(config["machine"]["disk"])  # a number that none is copied onto
        os.mkdir(self.box, 0o711)
        self.place = f"{self.box}/machine"
        os.mkdir(self.place, 0o700)
        if os.geteuid() == 0:
            os.chown(self.place, config["uid"] + 1, config["uid"] + 1)
        config["root"]["writable"] = [[self.place, _INSIDE]]

    def there(self) -> list[int]:
        """Firecracker's descriptors before the memory and the state."""
        return [self.disk]

    def keep(self) -> None:
        """Close what only Firecracker needs."""
        os.close(self.disk)

    def command(self, machine: dict[str, Any]) -> list[str]:
        """How it is started."""
        return command(machine)

    def enter(self, walled: bool) -> list[tuple[str, int]]:
        """In the process that becomes Firecracker: prepare it; what it may open beyond its root, for Landlock.

        Its standard output is the machine's console, which a program may flood.
        """
        os.chdir(_INSIDE if walled else self.place)
        resource.setrlimit(resource.RLIMIT_FSIZE, (_WRITTEN, _WRITTEN))
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 1)
        os.close(null)
        return [(".", landlock.WRITE), (_path(DISK), landlock.READ)]  # memory files are free

    def wake(self, machine: dict[str, Any], pid: int, control: socket.socket, log: Any) -> channels.Relay:
        """Load the saved machine and let it go on; joined to the engine's control stream."""
        del machine

        def alive() -> None:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                raise OSError("Firecracker has ended")

        api = Api(f"{self.place}/{API}", alive)
        load(api)
        stream = connect(f"{self.place}/{STREAM}", alive, "the machine's streams")
        tree.remove(os.fsencode(self.box))
        resume(api)
        call(stream)
        stream.settimeout(None)
        self.kept = api, stream
        heard: list[bytes] = []
        relay = channels.Relay(stream.fileno(), None, inside=False, told=heard.append)
        deadline = time.monotonic() + _COME_UP_S
        while not heard:  # that it is up
            relay.turn(1000)
            if time.monotonic() > deadline:
                raise OSError("the machine says nothing")
        relay.told = log
        relay.join(control)
        return relay
