"""The jail: pid 1 of one job's PID namespace.

Theory of operation. The zygote forks a jail before it knows the job, and never
reads a job itself: so no later program finds an earlier one's text in its
memory. The jail reads the JOB frame, then CASE frames one at a time, straight
from the control stream, and answers each with an OUTCOME frame. It ends at END
with DONE and status 0; the zygote forks the next. Any other end of it makes the
zygote give up, and the engine replaces the whole agent.

A case is one forked process. Its streams are memory files, so there is no pipe
that could fill and nothing that must be pumped: a flood is seen by the file's
size. When it ends, everything else in the PID namespace is killed and reaped,
and the workspace is replaced by a new one: a case leaves nothing for the next.
Only a case that talks to one in another jail has pipes: the host made both ends
and sends them behind the CASE frame.

Without namespaces (a locked-down container) the jail is a subreaper, finds the
processes to kill by their parents, and empties its directory by hand.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from . import case, inherited, landlock, linux, protocol, root, seccomp, tree, watch
from .slot import Run, Slot
from .stream import FAILED, high, peek, read_exact, take_pipes, write_all

_COLLECT_FILES = 4096
_PAGE = os.sysconf("SC_PAGE_SIZE")  # what a file in memory is rounded up to
# Where every instruction is emulated. CPU time is corrected; what a page that is read takes, or a process that starts, is not.
_SLOW_WALL_NS = 10 * 10**9
# Times the CPU limit at which the kernel itself ends a process, should we not. It counts ticks: beside a process in
# step with them 2.1 times the time, and in gVisor or a machine those in which the host ran something else as well.
_BACKSTOP = 10


class Jail:
    """One job; ``serve`` returns a Run in the process of a case and never otherwise."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.cwd = "/workspace" if slot.namespaces else f"{slot.box}/workspace"
        self.temp = "/tmp" if slot.namespaces else f"{slot.box}/tmp"
        self.files: dict[str, tuple[bytes, bool]] = {}
        self.used = False
        self.places: list[str] = []
        self.traces: list[object] = []  # of the workspace as it was made; empty when that would not tell
        self.rules = -1
        self.broken = False
        self.own = -1  # this process's sizes, where its directory is covered
        self.late = 0  # cases that were ended for their time

    def serve(self) -> Run:
        """Read one job and run its cases."""
        self.prepare()
        kind, header, body = self.read()
        if kind != protocol.JOB:
            self.fail(f"expected a job, got frame {kind}")
        self.job = header
        at = 0
        target = header["argv"][0].removeprefix("./")
        for name, size in header["files"]:
            self.files[name] = (body[at : at + size], name == target)
            at += size
        self.limits = header["limits"]
        if shortage := inherited.shortage(self.limits):
            self.fail(shortage)
        if header.get("compile"):
            run = self.compile(header["compile"])
            if run:
                return run
        while True:
            kind, header, body = self.read()
            if kind == protocol.END:
                break
            if self.broken:  # it did not compile: the host knows what that means for its cases
                for pipe in take_pipes(self.slot.control) if header.get("talk") else ():
                    os.close(pipe)
                continue
            if kind != protocol.CASE:
                if kind == protocol.CANCEL:
                    continue  # it came when its case was already over
                self.fail(f"expected a case, got frame {kind}")
            if self.late >= self.job.get("stop_after", 1 << 30):
                self.skip(header["case"])
                continue
            run = self.one(header, body[: header["stdin"]], body[header["stdin"] :])
            if run:
                return run
        self.clean()
        self.send(protocol.DONE, {})
        os._exit(0)

    # ------------------------------------------------------------ set-up

    def prepare(self) -> None:
        # A program of the same user may send it, and pid 1 is spared only the default.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self.slot.seccomp is not None and not self.slot.group.cpu:
            self.slot.seccomp = seccomp.counting(self.slot.seccomp)
            linux.seccomp_prepare(self.slot.seccomp)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        self.signals = high(linux.signalfd({signal.SIGCHLD}))
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        if self.slot.namespaces:
            linux.unshare(linux.NEWNS)
            self.slot.features["proc"] = root.mount_proc()
            if self.slot.sentry:  # which shows everybody's environment and maps
                self.own = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
                linux.mount("none", "/proc/1", "tmpfs", linux.MS_RDONLY, "size=4096,mode=700")
        else:
            linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)

    def workspace(self, limits: dict[str, Any], extra: dict[str, tuple[bytes, bool]]) -> None:
        """A fresh workspace with the program's files and the case's in it, owned by the jail and read-only.

        One in which the case before has demonstrably changed nothing is as good as new: most are, and that
        saves a tenth of a case.
        """
        if not extra and self.traces and self.traces == root.traces(self.places):
            return
        self.traces = []
        files = self.files | extra
        if self.rules >= 0 and self.slot.namespaces:
            os.close(self.rules)  # they name the old workspace's file system
            self.rules = -1
        uid = self.slot.uid
        owner = os.getuid() if uid is None else uid
        if self.slot.namespaces:
            root.fresh_workspace(limits["workspace"], limits["inodes"] + len(files), owner, not self.used)
        else:
            for path, mode in ((self.cwd, 0o755), (self.temp, 0o700)):
                if os.path.lexists(path):
                    tree.remove(os.fsencode(path), keep=True)
                else:
                    os.mkdir(path)
                os.chmod(path, mode)
                os.chown(path, owner, -1)
        self.used = True
        folders: set[str] = set()
        for name, (content, executable) in files.items():
            parts = name.split("/")[:-1]
            for depth in range(len(parts)):
                folder = "/".join([self.cwd, *parts[: depth + 1]])
                if folder not in folders:
                    folders.add(folder)
                    os.mkdir(folder)
                    os.chown(folder, owner, -1)
            mode = 0o555 if executable else 0o444
            fd = os.open(f"{self.cwd}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            write_all(fd, content)
            os.close(fd)
            if executable:
                os.chmod(f"{self.cwd}/{name}", mode)
        if self.slot.namespaces and self.slot.features["exact_times"] and not extra:
            self.places = [self.cwd, self.temp, *folders, *(f"{self.cwd}/{name}" for name in self.files)]
            self.traces = root.traces(self.places)

    def clean(self) -> None:
        if not self.slot.namespaces and self.used:
            for path in (self.cwd, self.temp):
                tree.remove(os.fsencode(path))
        if self.slot.sentry:
            root.leave()

    # ------------------------------------------------------------ running

    def compile(self, plan: dict[str, Any]) -> Run | None:
        """Run the compiler as a case of its own and keep what it leaves."""
        header = {"case": -1, "cpu_kill": plan["limits"]["cpu"], "steps": 1, "request": False}
        self.program_argv = self.job["argv"]
        self.case_workspace = self.limits["workspace"]
        job, self.job = self.job, {**self.job, "argv": plan["argv"], "warm": False, "network": False}
        limits, self.limits = self.limits, plan["limits"]
        run = self.one(header, b"", b"", compiling=True)
        self.job, self.limits = job, limits
        self.traces = []  # the compiler's workspace is no case's
        return run

    def one(self, header: dict[str, Any], stdin: bytes, rest: bytes, compiling: bool = False) -> Run | None:
        """One case from its workspace to its OUTCOME; returns a Run in the child only.

        ``rest``: what follows the standard input in the frame: the case's files, then the request.
        """
        slot, limits, group = self.slot, self.limits, self.slot.group
        cpu_kill = int(header["cpu_kill"] * slot.pace)
        if slot.pace != 1.0:
            limits = limits | {"cpu": int(limits["cpu"] * slot.pace), "wall": limits["wall"] + _SLOW_WALL_NS}
        talk, pipes = header.get("talk"), (-1, -1)
        if talk:
            pipes = take_pipes(slot.control)
        extra, at = {}, 0
        for name, size in header.get("files", ()):
            extra[name] = rest[at : at + size], False
            at += size
        request = rest[at:] if header["request"] else None
        self.workspace(limits, extra)
        del rest, extra
        streams = [high(os.memfd_create("io", os.MFD_CLOEXEC)) for _ in range(4 if request is not None else 3)]
        write_all(streams[0], stdin)
        os.lseek(streams[0], 0, os.SEEK_SET)
        result = streams[3] if request is not None else -1
        count = limits["processes"] + (0 if slot.uid is not None else slot.features["own_processes"]) - slot.uncounted
        seconds = _BACKSTOP * int(cpu_kill * header["steps"] / 1e9) + 2
        del stdin
        mark_read, mark = os.pipe2(os.O_CLOEXEC)
        mark = high(mark)
        if slot.landlock_abi and self.rules < 0:
            self.rules = high(self.ruleset())
        setup = case.Setup(
            pipes[0] if talk else streams[0], pipes[1] if talk == "stdio" else streams[1], streams[2], result, self.cwd,
            [row for row in case.rlimits(limits, seconds, group_memory=group.memory, group_cpu=group.cpu, processes=count) if row[0] not in slot.unset],
            slot.uid, self.rules if self.rules >= 0 else None, slot.seccomp, mark,
            pipes[1] if talk == "request" else -1,
        )  # fmt: skip
        group.set_pids(limits["processes"] + slot.features["own_pids"])
        group.set_memory(group.usage() + limits["memory"])
        if slot.sentry:
            linux.unshare(linux.NEWNET)  # its loopback works, so that connections would show in the next case
        readings = watch.meters(group)
        start = time.monotonic_ns()
        pid = os.fork()
        if pid == 0:
            argv = header.get("argv") or self.job["argv"]
            run = Run(None, argv, request, self.cwd)
            if self.job["warm"] and argv is self.job["argv"]:
                run.source = self.job["argv"][1]
            try:
                if not slot.namespaces:
                    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
                case.enter(setup)
            except BaseException as exc:
                os.write(mark, f"0{type(exc).__name__}: {exc}".encode()[:400])
                os._exit(FAILED)
            return run
        os.close(mark)
        for pipe in pipes if talk else ():
            os.close(pipe)  # no end of them but the program's, so that the other half sees that one close
        watcher = watch.Watch(
            pid, group=group, in_pid_namespace=slot.namespaces, signals=self.signals, control=slot.control,
            own=self.own, pace=slot.pace,
        )  # fmt: skip
        try:
            ended, waited = watcher.run(
                limits, cpu_kill=cpu_kill, steps=header["steps"], streams=(streams[1], streams[2], result),
                meters=readings, beat=self.beat, stopped=self.stopped, beat_s=watch.TALK_BEAT_S if talk else watch.BEAT_S,
            )  # fmt: skip
        except TimeoutError as exc:
            self.fail(str(exc))
        wall = time.monotonic_ns() - start
        group.set_memory(None)  # the next case's input must fit before its own bound is known
        if ended == watch.HOST_MEMORY:
            self.fail("this host ran out of memory and killed a program that was within its limit")
        noted = os.read(mark_read, 500)
        os.close(mark_read)
        if noted[:1] != b"1" and (noted or ended not in ("memory", "cancelled")):
            self.fail(
                "a case could not be set up: " + (noted[1:].decode("utf-8", "replace") or f"status {watcher.status}")
            )
        out = {
            "job": self.job["token"],
            "case": header["case"],
            "ended": ended,
            "waited_ns": waited,
            "left": watcher.left,
            "read": min(os.lseek(streams[0], 0, os.SEEK_CUR), 1 << 40),  # wherever the program moved it
        }
        cpu = watch.cpu_total(group, readings)
        out["cpu_ns"] = int(cpu / slot.pace)
        out["wall_ns"] = wall if slot.pace == 1.0 else max(wall - watcher.slowed(cpu), out["cpu_ns"])
        out["step_ns"] = min(int(watcher.busiest / slot.pace), out["cpu_ns"])
        peak = (
            (group.peak() if readings["reset"] else group.usage()) - readings["usage"] if group.memory else watcher.peak
        )
        out["peak"] = max(peak, 0)
        out["steady"] = 0 <= watcher.at_half < (os.fstat(result).st_size if result >= 0 else 0)
        status = watcher.status or 0
        out["exit"] = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        out["signal"] = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        if compiling and status == 0 and ended is None:
            self.compiled(out)
        self.late += ended in ("cpu_time", "wall_time")
        self.broken = compiling and (out["exit"] != 0 or ended is not None)
        self.answer(out, streams, limits, result, self.left(header))
        for fd in streams:
            os.close(fd)
        return None

    def compiled(self, out: dict[str, Any]) -> None:
        """What the compiler left is from now on the program's files."""
        try:
            self.files = tree.collect(self.cwd, protocol.MAX_BODY, _COLLECT_FILES)
        except OSError as exc:
            out["exit"], out["note"] = 1, f"compilation: {exc.strerror}"
            return
        if sum(-(-len(content) // _PAGE) * _PAGE for content, _ in self.files.values()) > self.case_workspace:
            out["exit"], out["note"] = 1, f"compilation: what it left does not fit into {self.case_workspace >> 20} MiB"
            return
        target = self.program_argv[0].removeprefix("./")
        if target in self.files:  # where chmod is refused the linker cannot mark it
            self.files[target] = (self.files[target][0], True)

    def left(self, header: dict[str, Any]) -> dict[str, bytes]:
        """The files that the host asked for; none where they are too large."""
        names = frozenset(header.get("collect", ()))
        if not names:
            return {}
        try:
            found = tree.collect(self.cwd, header["collect_bytes"], len(names), names)
        except OSError:
            return {}
        return {name: content for name, (content, _) in found.items()}

    def skip(self, number: int) -> None:
        """Answer for a case that is not run, because too many before it took too long."""
        nothing = {"kept": [0] * 3, "written": [0] * 3, "steady": False}
        nothing |= dict.fromkeys(("cpu_ns", "step_ns", "wall_ns", "waited_ns", "peak", "left", "read"), 0)
        self.send(
            protocol.OUTCOME,
            {"job": self.job["token"], "case": number, "ended": "not_run", "exit": None, "signal": 9, **nothing},
        )

    def ruleset(self) -> int:
        rules = [(path, landlock.READ) for path in self.slot.readable]
        rules += [(f"/dev/{name}", landlock.DEVICE) for name in root.DEVICES]
        rules += [(self.cwd, landlock.READ | landlock.WRITE), (self.temp, landlock.READ | landlock.WRITE)]
        if self.slot.namespaces:  # only this jail's processes are there
            rules.append(("/proc", landlock.READ | landlock.DEVICE))
        return landlock.ruleset(self.slot.landlock_abi, rules, network=not self.slot.namespaces)

    # ------------------------------------------------------------ the stream

    def stopped(self) -> bool:
        """Something came while a case runs: only CANCEL may (or the end of the host)."""
        head = peek(self.slot.control)
        if not head:
            os._exit(FAILED)  # the host is gone
        return head[0] == protocol.CANCEL

    def read(self) -> tuple[int, dict[str, Any], bytes]:
        """The next frame; ends this process when the host has gone."""
        try:
            kind, header, body = protocol.unpack_head(read_exact(self.slot.control, protocol.HEAD.size))
            return (
                kind,
                protocol.unpack_header(read_exact(self.slot.control, header)),
                read_exact(self.slot.control, body),
            )
        except EOFError:
            os._exit(FAILED)

    def beat(self, wall: int, waited: int) -> None:
        self.send(protocol.BEAT, {"wall_ns": wall, "waited_ns": waited})

    def send(self, kind: int, header: dict[str, Any]) -> None:
        write_all(self.slot.control, protocol.pack(kind, header))

    def answer(
        self, out: dict[str, Any], streams: list[int], limits: dict[str, Any], result: int, files: dict[str, bytes]
    ) -> None:
        """An OUTCOME frame whose body is sent from the memory files without a copy here; collected files follow."""
        caps = [min(limits["output"], limits["stdout_keep"]), limits["stderr_keep"], protocol.MAX_RESULT]
        sizes = [os.fstat(fd).st_size for fd in streams[1:3]] + ([os.fstat(result).st_size] if result >= 0 else [0])
        kept = [min(size, cap) for size, cap in zip(sizes, caps, strict=True)]
        out["kept"], out["written"] = kept, sizes
        if files:
            out["files"] = [[name, len(content)] for name, content in files.items()]
        head = protocol.pack(protocol.OUTCOME, out)
        write_all(
            self.slot.control,
            protocol.HEAD.pack(
                protocol.OUTCOME, len(head) - protocol.HEAD.size, sum(kept) + sum(map(len, files.values()))
            )
            + head[protocol.HEAD.size :],
        )
        for fd, size in zip([*streams[1:3], result], kept, strict=True):
            at = 0
            while at < size:
                at += os.sendfile(self.slot.control, fd, at, min(size - at, 1 << 20))
        for content in files.values():
            write_all(self.slot.control, content)

    def fail(self, message: str) -> None:
        """Tell the host what went wrong here and end: the agent is replaced."""
        try:
            self.send(protocol.FAULT, {"message": message[:2000]})
        finally:
            os._exit(FAILED)
