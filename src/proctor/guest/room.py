"""A sandbox from inside: pid 1 of its namespaces, which runs its owner's commands and answers for its files.

Theory of operation. The zygote of a lobby forks rooms ahead of time, each with
a control socket of its own to the host, so that an open sandbox is some 3 ms
away. A room makes its namespaces, its loopback and the sockets that lead to the
host's network gate, and says READY. The first request, ``open``, tells it what
it is: then it builds its root. From there on it is one loop over the control
socket, the ends of children, and the pipes of commands.

It trusts the host, whose frames it reads, and nothing else: no program of the
sandbox can signal it (it is pid 1), read it (not dumpable), or make it wait.
"""

from __future__ import annotations

import _socket
import array
import errno
import os
import select
import signal
from typing import Any

from . import doors, files, floor, linux, merged, packing, procfs, protocol, seccomp, watch
from .processes import Processes
from .slot import Run, Slot
from .stream import FAILED, high, read_exact, take_fds, write_all

PORTS = (3128, 80, 443)  # TCP: what a program asks for by proxy, by HTTP, by TLS
DNS_PORT = 53
_TOO_LARGE, _TOO_DEEP = 71, 72


class Room:
    """One sandbox; ``serve`` returns a Run in a command's process and never otherwise."""

    def __init__(self, slot: Slot, control: int) -> None:
        self.slot, self.control = slot, control
        self.processes: Processes | None = None
        self.floor = floor.Floor()
        self.files = files.Files(0)
        self.packers: dict[int, int] = {}  # children that write snapshots -> the request that asked
        self.doors: tuple[int, list[int]] | None = None  # where the host cannot have its sockets: who has them instead

    def serve(self) -> Run:
        """Prepare, wait to be opened, then answer until the host goes away."""
        self.prepare()
        while True:
            run = self.step()
            if run is not None:
                return run

    # ------------------------------------------------------------ set-up

    def prepare(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.set_filter()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        self.signals = high(linux.signalfd({signal.SIGCHLD}))
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        if not self.slot.sentry:  # a container has all of them, and a loopback that is up
            linux.unshare(linux.NEWNS | linux.NEWNET | linux.NEWIPC | linux.NEWUTS)
            linux.loopback_up()
        write_all(self.control, protocol.pack(protocol.READY, {}))

    def set_filter(self, *, gpu: bool = False) -> None:
        """The system call filter of all commands from now on."""
        if gpu:  # CUDA does not start without memory files, whether something counts them or not
            self.slot.seccomp = seccomp.build(gpu=True)
        if not self.slot.group.cpu:
            self.slot.seccomp = seccomp.counting(self.slot.seccomp or b"")
        linux.seccomp_prepare(self.slot.seccomp or b"")

    def open(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """Become the sandbox that is asked for: its root, its environment, its bounds."""
        root = self.slot.features["root"] and (self.slot.features["user_namespace"] or self.slot.only)
        uid = self.slot.uid if self.slot.uid is not None else os.getuid()
        root_uid = 0 if root else uid
        if self.slot.sentry:
            self.floor = merged.inside(header["floor"], uid=uid, root_uid=root_uid)
        else:
            self.floor = floor.build(header["floor"], uid=uid, root_uid=root_uid, trusted=self.slot.only)
        if header["floor"].get("gpu"):
            self.set_filter(gpu=True)
        home = header["workdir"] if os.path.isdir(header["workdir"]) else "/workspace"
        self.files = files.Files(uid, home)
        if self.slot.only and not self.slot.sentry:  # else its group is the host's to bound
            self.slot.group.set_memory(self.slot.group.usage() + header["bound"])
            self.slot.group.set_pids(header["processes"] + 2)
        if not header["host"]:
            self.slot.python = ""  # not in this root
        self.processes = Processes(
            self.slot, self.send, {**header, "workdir": home}, 0 if root else None,
            [fd for place, fd in self.floor.uppers if place in header["sites"]],
            [found for path in header["watched"] if (found := self.upper_of(path))],
        )  # fmt: skip
        linux.set_hostname(header["hostname"])
        return {"root": root}

    def upper_of(self, path: str) -> tuple[int, str] | None:
        """Where what is written over a path of the root lies: a directory's descriptor and the path from there."""
        rows = [(place, fd) for place, fd in self.floor.uppers if path.startswith(f"{place}/")]
        if not rows:
            return None
        place, fd = max(rows, key=lambda row: len(row[0]))
        return fd, path[len(place) + 1 :]

    # ------------------------------------------------------------ the loop

    def step(self) -> Run | None:
        """Wait for something to do and do it."""
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        poller.register(self.signals, select.POLLIN)
        owners = self.processes.register(poller) if self.processes else {}
        ready = dict(poller.poll(self.processes.timeout() if self.processes else None))
        if self.processes:
            self.processes.attend(ready, owners)
        if self.signals in ready:
            watch.drain(self.signals)
        if self.processes:
            for pid, status in self.processes.reap():
                if pid in self.packers:
                    self.packed(self.packers.pop(pid), status)
                elif (
                    self.doors is not None and pid == self.doors[0]
                ):  # killed with all else, or by a root of the sandbox
                    fds, self.doors = self.doors[1], None
                    try:
                        self.open_doors(fds)
                    except OSError:
                        pass  # a program holds a port, or all processes: then nothing is to be reached
            self.processes.enforce()
        return self.request() if self.control in ready else None

    def request(self) -> Run | None:
        """Read one request and answer it."""
        try:
            kind, header_size, body_size = protocol.unpack_head(read_exact(self.control, protocol.HEAD.size))
            header = protocol.unpack_header(read_exact(self.control, header_size))
            body = read_exact(self.control, body_size)
        except EOFError:
            os._exit(0)  # the kernel ends all that is left in this namespace
        if kind != protocol.REQUEST:
            os._exit(FAILED)
        answer: dict[str, Any] | None
        content = b""
        try:
            name = header["do"]
            if name.startswith("files."):
                result = getattr(self.files, name[6:])(header, body)
                answer, content = result if isinstance(result, tuple) else (result, b"")
            elif name in ("start", "input", "kill", "more") and self.processes:
                found = getattr(self.processes, name)(header, body)
                if isinstance(found, Run):
                    return found
                answer = found
            else:
                answer = {
                    "open": self.open, "usage": self.usage, "listen": self.listen, "unlisten": self.unlisten,
                    "snapshot": self.snapshot,
                }[name](header, body)  # fmt: skip
        except files.Refused as exc:
            answer = {"error": exc.code, "message": str(exc)}
        except OSError as exc:
            said = os.strerror(exc.errno) if exc.errno else f"{exc}"
            paths = [repr(header[key]) for key in ("path", "to") if isinstance(header.get(key), str)]
            answer = {
                "error": errno.errorcode.get(exc.errno or 0, "EIO"),
                "message": f"{' to '.join(paths)}: {said}" if paths else said,
            }
        except (RecursionError, MemoryError, ValueError) as exc:
            answer = {"error": "invalid_request", "message": f"{type(exc).__name__}: {exc}"[:500]}
        if answer is not None:
            self.send(protocol.ANSWER, {"n": header["n"], **answer}, content)
        return None

    def send(self, kind: int, header: dict[str, Any], *blobs: bytes) -> None:
        write_all(self.control, protocol.pack(kind, header, *blobs))

    # ------------------------------------------------------------ the whole

    def usage(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """What its processes have used, for hosts without control groups."""
        return {"cpu_ns": procfs.cpu_of_all(), "memory": procfs.resident_sum()[0]}

    def listen(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """Hand the host sockets that listen on this namespace's loopback, over one that it has sent."""
        if self.slot.only:
            self.close_doors()
            self.open_doors(take_fds(self.control, len(PORTS) + 1))
            return {}
        (to,) = take_fds(self.control, 1)
        made = [_socket.socket(fileno=to)]
        try:
            listeners(made)
            fds = array.array("i", [sock.fileno() for sock in made[1:]])
            made[0].sendmsg([b"p"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
        finally:  # a program may hold one of the ports
            for sock in made:
                sock.close()
        return {}

    def open_doors(self, fds: list[int]) -> None:
        """Listen, and let a process pass on what comes over the host's sockets."""
        made: list[_socket.socket] = []
        try:
            listeners(made)
            pid = os.fork()
            if pid == 0:
                status = FAILED
                try:
                    status = doors.serve(made, fds)
                finally:
                    os._exit(status)
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        finally:
            for sock in made:
                sock.close()
        self.doors = pid, fds

    def close_doors(self) -> None:
        """End that process, and with it every connection."""
        if self.doors is not None:
            (pid, fds), self.doors = self.doors, None
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            for fd in fds:
                os.close(fd)

    def unlisten(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """Listen no more."""
        self.close_doors()
        return {}

    def snapshot(self, header: dict[str, Any], body: bytes) -> dict[str, Any] | None:
        """Stop everything, and let a child write all files to a socket that the host has sent; answered at its end."""
        (sink,) = take_fds(self.control, 1)
        if self.packers:  # it would be stopped with all else, and never end
            os.close(sink)
            raise files.Refused("busy", "a snapshot of this sandbox is being written")
        try:
            os.kill(-1, signal.SIGSTOP)
        except ProcessLookupError:
            pass
        try:
            pid = os.fork()
        except OSError:  # its programs have all the processes that it may have: then here, where nothing else is to do
            self.packed(header["n"], self.pack(sink, header["most"]) << 8)
            return None
        if pid == 0:
            status = FAILED
            try:
                status = self.pack(sink, header["most"])
            finally:
                os._exit(status)
        self.packers[pid] = header["n"]
        os.close(sink)
        return None

    def pack(self, sink: int, most: int) -> int:
        """Write all files to a socket and close it; gives an exit status."""
        try:
            packing.pack(self.floor, sink, most)
        except packing.TooLarge:
            return _TOO_LARGE
        except packing.TooDeep:
            return _TOO_DEEP
        except Exception:
            return FAILED
        return 0

    def packed(self, number: int, status: int) -> None:
        """A snapshot is written, or not: let the processes go on, and answer the request."""
        answer: dict[str, Any] = {"n": number}
        if not self.packers:
            try:
                os.kill(-1, signal.SIGCONT)
            except ProcessLookupError:
                pass
        if status == _TOO_LARGE << 8:
            answer |= {"error": "too_large", "message": "the files are longer than the disk: some are sparse"}
        elif status == _TOO_DEEP << 8:
            said = f"a path is longer than {packing.MOST_BYTES} bytes, or deeper than {packing.MOST_DEEP} directories: remove it"
            answer |= {"error": "path_too_long", "message": f"{said}, or move it up"}
        elif status:
            answer |= {"error": "not_packed", "message": "the files could not be read"}
        self.send(protocol.ANSWER, answer)


def listeners(made: list[_socket.socket]) -> None:
    """Add sockets on this namespace's loopback, for the host to answer on: TCP on PORTS, then UDP for names."""
    for port in (*PORTS, DNS_PORT):
        kind = _socket.SOCK_DGRAM if port == DNS_PORT else _socket.SOCK_STREAM
        sock = _socket.socket(_socket.AF_INET, kind | _socket.SOCK_CLOEXEC)
        made.append(sock)
        if port != DNS_PORT:
            sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        if port != DNS_PORT:
            sock.listen(128)
