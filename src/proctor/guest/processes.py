"""The commands of one sandbox: started, read, fed, ended in time, and reported."""

from __future__ import annotations

import errno
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from . import case, commands, linux, procfs, protocol, watch
from .commands import Command
from .files import Refused
from .slot import Run, Slot
from .stream import FAILED, high

MOST = 256  # commands at once: each has up to three descriptors here
_TICK_S, _SOON_S = 0.1, 0.02  # between looks at memory where no control group bounds it
_DRAIN = 64  # pieces read from one pipe before others get their turn
_MOST_INPUT = 16 << 20  # bytes that wait for a command to read them
_START_S = 5.0  # for a command's process to begin: it takes a millisecond, and behind gVisor some 20
_LOST = (errno.EAGAIN, errno.EWOULDBLOCK)
_FULL = (errno.EAGAIN, errno.ENOMEM)  # the sandbox has as many processes, or as much memory, as it may have
_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2)  # seconds: what was killed is dying, and is collected here
_NO_FORK = 254  # as of a shell that cannot fork


class Processes:
    """Commands of a sandbox, by the numbers that the host gave them.

    Args:
        send: writes a frame to the host.
        opening: the host's request that opened the sandbox.
        root_uid: identity of the sandbox's root, None where it has none.
        uppers: directories that take what is written where packages lie.
        watched: what exists once something of the interpreter itself was written over: a directory, a path from there.
    """

    def __init__(
        self, slot: Slot, send: Callable[..., None], opening: dict[str, Any], root_uid: int | None, uppers: list[int],
        watched: list[tuple[int, str]],
    ) -> None:  # fmt: skip
        self.slot, self.send, self.root_uid = slot, send, root_uid
        self.commands: dict[int, Command] = {}
        self.draining: dict[int, int] = {}  # pipe of a command that has ended, which others still hold -> its stream
        self.env, self.home = opening["env"], opening["workdir"]
        self.base = opening["base_env"]
        self.memory, self.processes = opening["memory"], opening["processes"]
        self.sites, self.warm = opening["sites"], opening["warm"]
        self.fixed = uppers if opening["preimport"] else []
        self.bounded = opening["bounded"]
        self.watched = watched
        self.next_look = 0.0
        self.others: list[tuple[int, int]] = []  # children that are no commands and have ended: process and status

    def register(self, poller: select.poll) -> dict[int, Command]:
        """Add what is waited for; returns whose each descriptor is."""
        owners: dict[int, Command] = {}
        for command in self.commands.values():
            for fd in command.readable:
                poller.register(fd, select.POLLIN)
                owners[fd] = command
            if command.stdin >= 0 and (command.waiting or command.closing):
                poller.register(command.stdin, select.POLLOUT)
                owners[command.stdin] = command
        for fd in self.draining:
            poller.register(fd, select.POLLIN)
        return owners

    def attend(self, ready: dict[int, int], owners: dict[int, Command]) -> None:
        """Read and write what is ready."""
        for fd in ready:
            if fd in owners and fd in owners[fd].pipes:
                self.drain(owners[fd], fd)
            elif fd in owners and fd == owners[fd].stdin:
                owners[fd].feed()
            elif fd in self.draining:
                self.discard(fd)

    def timeout(self) -> float | None:
        """Milliseconds until something must be looked at."""
        now = time.monotonic()
        times = [c.deadline for c in self.commands.values() if c.deadline is not None and not c.timed_out]
        if self.memory and self.commands:
            times.append(self.next_look)
        return max(0.0, (min(times) - now) * 1000) if times else None

    def start(self, header: dict[str, Any], body: bytes) -> dict[str, Any] | Run:
        """Fork a command; its Run in the child, an answer here."""
        slot = self.slot
        if len(self.commands) >= MOST:
            raise Refused("too_many_processes", f"{MOST} commands run in this sandbox; end one first")
        env = {**self.env, **header["env"]}
        argv, cwd = header["argv"], os.path.join(self.home, header["cwd"] or "")
        uid = slot.uid
        if header["user"] == "root":
            if self.root_uid is None:
                raise Refused("no_root", "this host gives a sandbox one identity, so there is no root in it")
            uid = 0
        if not os.path.isdir(cwd):
            raise Refused("no_such_directory", f"cwd {cwd!r} is no directory in this sandbox")
        run = self.warm_run(argv, cwd, env) or Run(None, argv, None, cwd)
        own = slot.features["own_processes"] if uid is None else 0
        limits = commands.rows(
            None if self.bounded else self.processes + own - slot.uncounted, self.memory or None, slot.unset
        )
        streams, pipes, stdin = commands.make_pipes(header["stdin"], body)
        ours = [*pipes, *([stdin] if stdin >= 0 else ())]
        try:
            mark_read, mark = os.pipe2(os.O_CLOEXEC)
        except OSError:
            close(*streams, *ours)
            raise
        mark = high(mark)
        setup = commands.setup(streams, cwd=cwd, uid=uid, limits=limits, seccomp=slot.seccomp, mark=mark)
        now = time.monotonic()
        try:
            pid = self.fork()
        except OSError as exc:
            close(*streams, *ours, mark_read, mark)
            if exc.errno not in _FULL:
                raise
            return self.unstarted(header, os.strerror(exc.errno), now)
        if pid == 0:
            try:
                case.enter(setup)
            except BaseException as exc:
                full = isinstance(exc, MemoryError) or (isinstance(exc, OSError) and exc.errno in _FULL)
                os.write(mark, f"{'F' if full else '0'}{type(exc).__name__}: {exc}".encode()[:400])
                os._exit(FAILED)
            slot.env = env
            if env.get("PATH") != self.base.get("PATH") or self.changed():
                slot.python = ""  # the first python3 on it may be another
            if run.source is not None:
                become(env, run.source, argv)
            return run
        close(*streams, mark)
        noted = marked(mark_read, pid, _START_S * (1 + slot.sentry))
        os.close(mark_read)
        if noted[:1] == b"F":
            close(*ours)
            return self.unstarted(header, os.strerror(errno.ENOMEM), now)
        if noted[:1] == b"0":
            close(*ours)
            raise Refused("not_started", noted[1:].decode("utf-8", "replace"))
        timeout = header["timeout"]
        self.commands[header["c"]] = Command(
            header["c"], pid, now, now + timeout if timeout is not None else None, header["keep"], pipes, stdin,
            kills=slot.group.oom_kills() if slot.only else 0,
        )  # fmt: skip
        return {"pid": pid}

    def fork(self) -> int:
        """Fork; where the sandbox is full, once what has ended is collected. OSError where it stays full."""
        for pause in _PAUSES:
            try:
                return os.fork()
            except OSError as exc:
                if exc.errno not in _FULL:
                    raise
            self.collect()
            time.sleep(pause)
        return os.fork()

    def unstarted(self, header: dict[str, Any], why: str, began: float) -> dict[str, Any]:
        """Report a command for which the sandbox's own programs left no process: a result as of a shell's, no fault."""
        said = f"fork: {why}\n".encode()
        kept = said[: header["keep"] or 0]
        if header["keep"] is None:
            self.send(protocol.EVENT, {"c": header["c"], "stream": 2}, said)
        late = header["timeout"] is not None and time.monotonic() - began >= header["timeout"]
        end = {
            "c": header["c"], "exit": None if late else _NO_FORK, "signal": None, "timed_out": late, "killed": False,
            "written": [0, len(said)], "kept": [0, len(kept)], "wall_ns": int((time.monotonic() - began) * 1e9),
        }  # fmt: skip
        self.send(protocol.ENDED, end, kept)
        return {"pid": 0}

    def warm_run(self, argv: list[str], cwd: str, env: dict[str, str]) -> Run | None:
        """A run in this interpreter where that is certain to be the same as in a fresh one."""
        if not self.warm or self.changed() or any(os.listdir(upper) for upper in self.fixed):
            return None  # what was imported ahead may not be what lies there now
        run = commands.warm_run(argv, cwd, env, self.base, self.sites)
        if run is None or run.source is None:
            return None
        try:
            folder = os.path.dirname(os.path.realpath(run.source))
            beside = {name.partition(".")[0] for name in os.listdir(folder)}
        except OSError:
            return None
        return None if beside & self.slot.preloaded else run

    def changed(self) -> bool:
        """Something of the interpreter itself was written over in this sandbox."""
        return any(is_there(fd, path) for fd, path in self.watched)

    def drain(self, command: Command, fd: int, pieces: int = _DRAIN) -> None:
        """Read what a pipe has, in turns; its end closes it."""
        for _ in range(pieces):
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

    def reap(self) -> list[tuple[int, int]]:
        """Collect the dead and report commands that have ended; returns the others: (process, status)."""
        self.collect()
        others, self.others = self.others, []
        return others

    def collect(self) -> None:
        """Collect the dead and report commands that have ended; ``others`` gets the rest."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            found = [command for command in self.commands.values() if command.pid == pid]
            for command in found:
                command.status = status
                self.finish(command)
            if not found:
                self.others.append((pid, status))

    def finish(self, command: Command) -> None:
        """Report the end of a command, with what its pipes still had."""
        ended = time.monotonic()
        for fd in list(command.pipes):
            size = 0
            while fd in command.pipes and size < commands.CREDIT:  # others may still write: not for ever
                before = command.seen[command.pipes[fd]]
                stream = command.pipes[fd]
                self.drain(command, fd, 1)
                if command.seen[stream] == before:
                    break
                size += command.seen[stream] - before
        for fd, stream in command.pipes.items():
            self.draining[fd] = stream
        command.pipes.clear()
        command.close()
        del self.commands[command.number]
        status = command.status or 0
        late = command.deadline is not None and ended >= command.deadline
        if late and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            command.timed_out = True  # from outside, where a storm of processes left this one no time to do it
        if self.slot.only and status in (9, 137 << 8) and self.slot.group.oom_kills() > command.kills:
            command.killed = True  # else the host looks
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
            held = self.slot.group.grown(*procfs.resident_sum())
            if self.slot.sentry and held > self.memory // 4:  # sooner, but looks take a quarter of a CPU at most
                self.next_look = now + max(_SOON_S, 4 * (time.monotonic() - now))
            if held > self.memory:
                for command in self.commands.values():
                    command.killed = True
                try:
                    os.kill(-1, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def command(self, header: dict[str, Any]) -> Command:
        try:
            return self.commands[header["c"]]
        except KeyError:
            raise Refused("no_such_process", "the command has ended") from None

    def input(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """More for a command's standard input; ``end`` closes it after that."""
        command = self.command(header)
        if command.stdin < 0:
            raise Refused("stdin_closed", "its standard input is closed")
        if len(command.waiting) + len(body) > _MOST_INPUT:
            raise Refused(
                "stdin_full", f"it has not read {len(command.waiting)} bytes of its input yet; write the rest later"
            )
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


def is_there(folder: int, path: str) -> bool:
    """Something has that path, a link that leads nowhere included."""
    try:
        os.lstat(path, dir_fd=folder)
    except OSError:
        return False
    return True


def close(*fds: int) -> None:
    """Close descriptors."""
    for fd in fds:
        os.close(fd)


def marked(mark: int, pid: int, most_s: float) -> bytes:
    """What a new process says of its set-up: 1, or 0 and why not.

    Nothing where it was killed, or stopped, which a program of the same sandbox may do to it: then it is killed, and
    ends like any other command.
    """
    if not select.select([mark], [], [], most_s)[0]:
        watch.signal_one(pid, signal.SIGKILL)
        return b""
    return os.read(mark, 500)


def become(env: dict[str, str], source: str, argv: list[str]) -> None:
    """Take on a command's environment, arguments and script's directory, in its own process."""
    random.seed()  # as in a fresh interpreter; scored programs all begin alike
    linux.hide_arguments(b"".join(os.fsencode(word) + b"\0" for word in argv))
    for name in [name for name in os.environ if name not in env]:
        del os.environ[name]
    for name, value in env.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    sys.path[0] = os.path.dirname(os.path.realpath(source))
