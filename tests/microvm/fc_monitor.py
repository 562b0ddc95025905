#!/usr/bin/python3
"""Stands for the `firecracker` program: its command line, API, files and vsock sockets, and no virtual machine.

What a machine would be is a process outside, with the real pid 1 and agent; a
socket of the test's, beside this program, starts it, and is told every request.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from fc_description import Machine, Refused

PREFIX = Path(__file__).resolve().parent.parent
SAVED_AT = 1 << 20  # in the file of the memory: what the process outside was told to start
REASONS = {204: "No Content", 400: "Bad Request"}


class Monitor:
    """One `firecracker` process."""

    def __init__(self, api: str) -> None:
        self.machine, self.outside = Machine(), Outside()
        self.faults: dict[str, str] = json.loads((PREFIX / "faults").read_text())
        self.selector = selectors.DefaultSelector()
        self.uds: str | None = None
        self.guest = ""
        self.buffer = b""
        if self.faults.get("socket") == "none":
            signal.pause()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(api)
        listener.listen(5)
        self.selector.register(listener, selectors.EVENT_READ, lambda: self.watch(listener.accept()[0], self.asked))
        self.selector.register(self.outside.sock, selectors.EVENT_READ, lambda: sys.exit(0))

    def watch(self, sock: socket.socket, what: Any) -> None:
        self.selector.register(sock, selectors.EVENT_READ, lambda: what(sock))

    def run(self) -> NoReturn:
        while True:
            for key, _ in self.selector.select():
                key.data()

    # ------------------------------------------------------------ the API

    def asked(self, sock: socket.socket) -> None:
        piece = sock.recv(1 << 16)
        if not piece:
            self.selector.unregister(sock)
            sock.close()
            return
        self.buffer += piece
        head, end, rest = self.buffer.partition(b"\r\n\r\n")
        first, *rows = head.decode().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (row.partition(":") for row in rows)}
        length = int(fields.get("content-length", "0"))
        if not end or len(rest) < length:
            return
        self.buffer = rest[length:]
        method, path, version = first.split(" ")
        assert version == "HTTP/1.1"
        assert fields["content-type"] == "application/json"
        status, told = 204, b""
        body: Any = None
        try:
            body = json.loads(rest[:length])
            if (fault := self.faults.get(f"{method} {path}")) == "die":
                os._exit(9)
            if fault:
                raise Refused(fault)
            self.machine.take(method, path, body)
            self.do(path, body)
        except (ValueError, Refused, OSError) as exc:
            status, told = 400, json.dumps({"fault_message": str(exc)}).encode()
        self.outside.tell({"request": [method, path, body, status, told.decode()]})
        more = f"Content-Type: application/json\r\nContent-Length: {len(told)}\r\n" if told else ""
        sock.sendall(f"HTTP/1.1 {status} {REASONS[status]}\r\nServer: Firecracker API\r\nConnection: keep-alive\r\n{more}\r\n".encode() + told)  # fmt: skip
        if status == 400 and path == "/snapshot/load":
            sys.exit(1)  # as the real one: it may be in no state to go on

    def do(self, path: str, body: dict[str, Any]) -> None:
        """What a request that was taken has as its effect."""
        if path == "/boot-source":
            with open(body["kernel_image_path"], "rb") as file:
                if file.read(4) != b"\x7fELF":
                    raise Refused("The kernel file cannot be opened: Invalid Elf magic number")
            if "initrd_path" in body:
                with open(body["initrd_path"], "rb") as file:
                    assert file.read(6) == b"070701"
        elif path.startswith("/drives/"):
            self.drive(body["path_on_host"])
        elif path == "/vsock":
            self.listen(body["uds_path"])
        elif path == "/actions":
            if "/drives/root" in self.machine.known:
                self.guest = self.outside.ask({"start": None})["guest"]
            elif self.faults.get("boot") != "none":
                print("[    1.0] Serial: 8250/16550 driver, 4 ports, IRQ sharing enabled", flush=True)
        elif path == "/snapshot/create":
            known = self.machine.known
            saved = json.dumps(self.outside.ask({"saved": None})["saved"]).encode()
            with open(body["mem_file_path"], "wb") as file:
                file.truncate(known["/machine-config"]["mem_size_mib"] << 20)
                file.seek(SAVED_AT)
                file.write(len(saved).to_bytes(4, "big") + saved)
            state = {"drive": known["/drives/root"]["path_on_host"], "uds": known["/vsock"]["uds_path"]}
            Path(body["snapshot_path"]).write_text(json.dumps(state))
        elif path == "/snapshot/load":
            state = json.loads(Path(body["snapshot_path"]).read_text())
            assert body["mem_backend"]["backend_type"] == "File"
            with open(body["mem_backend"]["backend_path"], "rb") as file:
                file.seek(SAVED_AT)
                saved = json.loads(file.read(int.from_bytes(file.read(4), "big")))
            self.drive(state["drive"])
            self.listen(state["uds"])
            self.guest = self.outside.ask({"start": saved, "around": around()})["guest"]

    def drive(self, path: str) -> None:
        with open(path, "rb") as file:
            file.seek(1024)
            if file.read(4) != bytes.fromhex("e2e1f5e0"):
                raise Refused("Unable to create the block device: no file system of an image")

    # ------------------------------------------------------------ its streams

    def listen(self, path: str) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(5)
        self.selector.register(listener, selectors.EVENT_READ, lambda: self.watch(listener.accept()[0], self.called))

    def called(self, sock: socket.socket) -> None:
        """``CONNECT port``; nobody is called while the machine does not run."""
        line = b""
        while not line.endswith(b"\n"):
            byte = sock.recv(1)
            if not byte:
                break
            line += byte
        self.selector.unregister(sock)
        there = socket.socket(socket.AF_UNIX)
        try:
            if self.machine.state != "Running" or line != b"CONNECT 1024\n" or self.faults.get("port") == "none":
                raise ConnectionRefusedError
            there.connect(self.guest)
        except OSError:
            sock.close()
            there.close()
            return
        sock.sendall(b"OK 1073741824\n")
        self.watch(sock, lambda _: self.passed(sock, there))
        self.watch(there, lambda _: self.passed(there, sock))

    def passed(self, source: socket.socket, target: socket.socket) -> None:
        try:
            data = source.recv(1 << 16)
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        for sock in (source, target):
            self.selector.unregister(sock)
            sock.close()


class Outside:
    """The test."""

    def __init__(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(PREFIX / "outside"))
        self.file = self.sock.makefile("rw")

    def tell(self, words: dict[str, Any]) -> None:
        self.file.write(json.dumps(words) + "\n")
        self.file.flush()

    def ask(self, words: dict[str, Any]) -> dict[str, Any]:
        self.tell(words)
        answer: dict[str, Any] = json.loads(self.file.readline())
        return answer


def around() -> dict[str, Any]:
    """What this process finds around itself."""
    status = dict(row.split(":\t", 1) for row in Path("/proc/self/status").read_text().splitlines() if ":\t" in row)
    return {
        "top": sorted(os.listdir("/")), "here": sorted(os.listdir(".")), "pid": os.getpid(), "uid": os.getuid(),
        "capabilities": status["CapEff"] + status["CapBnd"], "new_privileges": status["NoNewPrivs"],
        "links": sorted(name for _, name in socket.if_nameindex()),
        "net": os.readlink("/proc/self/ns/net"), "descriptors": sorted(map(int, os.listdir("/proc/self/fd"))),
        "written": written(), "console": os.readlink("/proc/self/fd/1"),
    }  # fmt: skip


def written() -> list[str]:
    """Directories in which it can make a file."""
    found = []
    for place in (".", "/", "/tmp", "/usr", "/proc", "/dev"):
        try:
            with open(f"{place}/made", "x"):
                found.append(place)
            os.unlink(f"{place}/made")
        except OSError:
            pass
    return found


def main() -> None:
    words = sys.argv[1:]
    if words == ["--version"]:
        print(f"Firecracker v{(PREFIX / 'version').read_text().strip()}\n")
        return
    assert words[::2] == ["--id", "--api-sock"], words
    assert words[1].replace("-", "").isalnum()
    Monitor(words[3]).run()


main()
