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
import sys
import time
from typing import Any

from . import case, commands, files, floor, linux, protocol, seccomp, watch
from .jail import Run, Slot
from .stream import FAILED, high, read_exact, write_all

PORTS = (3128, 80, 443)  # TCP: what a program asks for by proxy, by HTTP, by TLS
DNS_PORT = 53
_TICK_S = 0.1  # between looks at memory where no control group bounds it
_DRAIN = 64  # pieces read from one pipe before others get their turn
_LOST = (errno.EAGAIN, errno.EWOULDBLOCK)


class Room:
    """One sandbox; ``serve`` returns a Run in a command's process and never otherwise."""

    def __init__(self, slot: Slot, control: int) -> None:
        self.slot, self.control = slot, control
        self.commands: dict[int, commands.Command] = {}
        self.draining: dict[int, int] = {}  # pipe of a command that has ended, which others still hold -> its stream
        self.floor = floor.Floor()
        self.files = files.Files(0)
        self.env = dict(slot.env)
        self.memory = 0
        self.processes = 512
        self.next_look = 0.0

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
        if not self.slot.group.cpu:
            self.slot.seccomp = seccomp.counting(self.slot.seccomp or b"")
        linux.seccomp_prepare(self.slot.seccomp or b"")
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        self.signals = high(linux.signalfd({signal.SIGCHLD}))
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        linux.unshare(linux.NEWNS | linux.NEWNET | linux.NEWIPC | linux.NEWUTS)
        linux.loopback_up()
        fds = listeners()
        sock = _socket.socket(fileno=os.dup(self.control))
        ready = protocol.pack(protocol.READY, {"listeners": len(fds)})
        sock.sendmsg([ready], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", fds))])
        sock.close()
        for fd in fds:
            os.close(fd)

    def open(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """Become the sandbox that is asked for: its root, its environment, its bounds."""
        root = self.slot.features["root"] and self.slot.features["user_namespace"]
        uid = self.slot.uid if self.slot.uid is not None else os.getuid()
        self.root_uid = 0 if root else None
        self.floor = floor.build(header["floor"], uid=uid, root_uid=0 if root else uid)
        self.files = files.Files(uid)
        self.env = {**self.slot.env, **header["env"]}
        self.base = header["base_env"]
        self.memory, self.processes = header["memory"], header["processes"]
        self.sites, self.warm = header["sites"], header["warm"]
        linux.set_hostname(header["hostname"])
        return {"root": root}

    # ------------------------------------------------------------ the loop

    def step(self) -> Run | None:
        """Wait for something to do and do it."""
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        poller.register(self.signals, select.POLLIN)
        owners: dict[int, commands.Command] = {}
        for command in self.commands.values():
            for fd in command.readable:
                poller.register(fd, select.POLLIN)
                owners[fd] = command
            if command.stdin >= 0 and (command.waiting or command.closing):
                poller.register(command.stdin, select.POLLOUT)
                owners[command.stdin] = command
        for fd in self.draining:
            poller.register(fd, select.POLLIN)
        ready = dict(poller.poll(self.timeout()))
        for fd in ready:
            if fd in owners and fd in owners[fd].pipes:
                self.drain(owners[fd], fd)
            elif fd in owners and fd == owners[fd].stdin:
                owners[fd].feed()
            elif fd in self.draining:
                self.discard(fd)
        if self.signals in ready:
            watch.drain(self.signals)
        self.reap()
        self.enforce()
        return self.request() if self.control in ready else None

    def timeout(self) -> float | None:
        """Milliseconds until something must be looked at."""
        now = time.monotonic()
        times = [c.deadline for c in self.commands.values() if c.deadline is not None and not c.timed_out]
        if self.memory and self.commands:
            times.append(self.next_look)
        return max(0.0, (min(times) - now) * 1000) if times else None

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
        answer: dict[str, Any] = {}
        content = b""
        try:
            name = header["do"]
            if name == "start":
                found = self.start(header, body)
                if isinstance(found, Run):
                    return found
                answer = found
            elif name.startswith("files."):
                result = getattr(self.files, name[6:])(header, body)
                answer, content = result if isinstance(result, tuple) else (result, b"")
            else:
                answer = {"open": self.open, "input": self.input, "kill": self.kill, "more": self.more,
                          "usage": self.usage, "snapshot": self.snapshot}[name](header, body)  # fmt: skip
        except files.Refused as exc:
            answer = {"error": exc.code, "message": str(exc)}
        except OSError as exc:
            answer = {"error": errno.errorcode.get(exc.errno or 0, "EIO"), "message": f"{exc.strerror or exc}"}
        self.send(protocol.ANSWER, {"n": header["n"], **answer}, content)
        return None

    def send(self, kind: int, header: dict[str, Any], *blobs: bytes) -> None:
        write_all(self.control, protocol.pack(kind, header, *blobs))

    # ------------------------------------------------------------ commands

    def start(self, header: dict[str, Any], body: bytes) -> dict[str, Any] | Run:
        """Fork a command; its Run in the child, an answer here."""
        slot = self.slot
        env = {**self.env, **header["env"]}
        argv, cwd = header["argv"], os.path.join("/workspace", header["cwd"] or "")
        uid = slot.uid
        if header["user"] == "root":
            if self.root_uid is None:
                raise files.Refused("no_root", "this host gives a sandbox one identity, so there is no root in it")
            uid = 0
        if not os.path.isdir(cwd):
            raise files.Refused("no_such_directory", f"cwd {cwd!r} is no directory in this sandbox")
        run = self.warm_run(argv, cwd, env) or Run(None, argv, None, cwd)
        streams, pipes, stdin = commands.make_pipes(header["stdin"], body)
        own = slot.features["own_processes"] if uid is None else 0
        limits = commands.rows(self.processes + own, self.memory or None)
        mark_read, mark = os.pipe2(os.O_CLOEXEC)
        mark = high(mark)
        setup = commands.setup(streams, cwd=cwd, uid=uid, limits=limits, seccomp=slot.seccomp, mark=mark)
        now = time.monotonic()
        pid = os.fork()
        if pid == 0:
            try:
                case.enter(setup)
            except BaseException as exc:
                os.write(mark, f"0{type(exc).__name__}: {exc}".encode()[:400])
                os._exit(FAILED)
            slot.env = env
            if run.source is not None:
                become(env, run.source)
            return run
        for fd in (*streams, mark):
            os.close(fd)
        noted = os.read(mark_read, 500)
        os.close(mark_read)
        if noted[:1] != b"1":
            for fd in (*pipes, *([stdin] if stdin >= 0 else ())):
                os.close(fd)
            raise files.Refused("not_started", noted[1:].decode("utf-8", "replace") or "it was killed before it began")
        timeout = header["timeout"]
        self.commands[header["c"]] = commands.Command(
            header["c"], pid, now, now + timeout if timeout is not None else None, header["keep"], pipes, stdin
        )
        return {"pid": pid}

    def warm_run(self, argv: list[str], cwd: str, env: dict[str, str]) -> Run | None:
        """A run in this interpreter where that is certain to be the same as in a fresh one."""
        if not self.warm:
            return None
        run = commands.warm_run(argv, cwd, env, self.base, self.sites)
        if run is None or run.source is None:
            return None
        try:
            beside = {name.partition(".")[0] for name in os.listdir(os.path.dirname(run.source))}
        except OSError:
            return None
        return None if beside & self.slot.preloaded else run

    def drain(self, command: commands.Command, fd: int) -> None:
        """Read what a pipe has, in turns; its end closes it."""
        for _ in range(_DRAIN):
            try:
                data = os.read(fd, commands.PIECE)
            except OSError as exc:
                if exc.errno in _LOST:
                    return
                data = b""
            if not data:
                os.close(fd)
                del command.pipes[fd]
                return
            streamed = command.take(fd, data)
            if streamed:
                self.send(protocol.EVENT, {"c": command.number, "stream": command.pipes[fd]}, streamed)
                if command.credit <= 0 and command.status is None:
                    return

    def discard(self, fd: int) -> None:
        try:
            for _ in range(_DRAIN):
                if not os.read(fd, commands.PIECE):
                    break
            else:
                return
        except OSError as exc:
            if exc.errno in _LOST:
                return
        os.close(fd)
        del self.draining[fd]

    def reap(self) -> None:
        """Collect the dead; report commands that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for command in list(self.commands.values()):
                if command.pid == pid:
                    command.status = status
                    self.finish(command)

    def finish(self, command: commands.Command) -> None:
        """Report the end of a command, with what its pipes still had."""
        ended = time.monotonic()
        for fd in list(command.pipes):
            size = 0
            while fd in command.pipes and size < commands.CREDIT:  # others may still write: not for ever
                before = command.seen[command.pipes[fd]]
                stream = command.pipes[fd]
                self.drain(command, fd)
                if command.seen[stream] == before:
                    break
                size += command.seen[stream] - before
        for fd, stream in command.pipes.items():
            self.draining[fd] = stream
        command.pipes.clear()
        command.close()
        del self.commands[command.number]
        status = command.status or 0
        stdout, stderr = bytes(command.kept[1]), bytes(command.kept[2])
        header = {
            "c": command.number,
            "exit": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            "timed_out": command.timed_out,
            "killed": command.killed,
            "written": [command.seen[1], command.seen[2]],
            "kept": [len(stdout), len(stderr)],
            "wall_ns": int((ended - command.started) * 1e9),
        }
        self.send(protocol.ENDED, header, stdout, stderr)

    def enforce(self) -> None:
        """End what is over its time, and where no control group does it what is over its memory."""
        now = time.monotonic()
        for command in self.commands.values():
            if command.deadline is not None and now >= command.deadline and not command.timed_out:
                command.timed_out = True
                commands.kill_tree(command.pid)
        if self.memory and self.commands and now >= self.next_look:
            self.next_look = now + _TICK_S
            if watch.resident_sum() > self.memory:
                for command in self.commands.values():
                    command.killed = True
                try:
                    os.kill(-1, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def command(self, header: dict[str, Any]) -> commands.Command:
        try:
            return self.commands[header["c"]]
        except KeyError:
            raise files.Refused("no_such_process", "the command has ended") from None

    def input(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """More for a command's standard input; ``end`` closes it after that."""
        command = self.command(header)
        if command.stdin < 0:
            raise files.Refused("stdin_closed", "its standard input is closed")
        command.waiting += body
        command.closing = command.closing or header["end"]
        return {"waiting": len(command.waiting)}

    def more(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """The reader of a streamed command has taken so many bytes."""
        command = self.commands.get(header["c"])
        if command is not None:
            command.credit += header["bytes"]
        return {}

    def kill(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """Send a signal to a command's process group; SIGKILL ends all that came from it."""
        command = self.command(header)
        if header["signal"] == signal.SIGKILL:
            commands.kill_tree(command.pid)
        else:
            os.killpg(command.pid, header["signal"])
        return {}

    # ------------------------------------------------------------ the whole

    def usage(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """What its processes have used, for hosts without control groups."""
        return {"cpu_ns": watch.cpu_of_all(), "memory": watch.resident_sum()}

    def snapshot(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """Placeholder for the stream of files."""
        raise files.Refused("no_snapshot", "snapshots are not built yet")


def become(env: dict[str, str], source: str) -> None:
    """Take on a command's environment and its script's directory, in its own process."""
    for name in [name for name in os.environ if name not in env]:
        del os.environ[name]
    for name, value in env.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    sys.path[0] = os.path.dirname(os.path.realpath(source))


def listeners() -> list[int]:
    """Sockets on this namespace's loopback, for the host to answer on: TCP on PORTS, then UDP for names."""
    fds = []
    for port in PORTS:
        sock = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen(128)
        fds.append(sock.detach())
    sock = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC)
    sock.bind(("127.0.0.1", DNS_PORT))
    fds.append(sock.detach())
    return fds
