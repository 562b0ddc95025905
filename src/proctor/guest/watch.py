"""Watching one case from outside it: clocks, memory, output, and the end of every process.

The CPU limit is on the whole tree. The wall limit leaves out the time that the
tree waited for a busy CPU, so that a loaded host does not shorten it; ten times
the limit ends it whatever the load. Without a group's meter a program could be
the load itself, so there it is twice the limit.

The tree waits while a thread of it, whichever, is ready to run, but for what it
computes meanwhile. The kernel's own count of that is a thread's, ends with it,
and says nothing of two that wait in turn; so the tree is looked at now and then:
at moments that no program can foresee or choose, or it would be ready just then.
"""

from __future__ import annotations

import math
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from . import procfs
from .cgroups import Group

SOON_MS = 2  # between looks while memory grows towards the limit
TICK_MS = 10  # a look costs some 40 microseconds: 0.4 % of a CPU
BEAT_S, TALK_BEAT_S = 1.0, 0.2  # of one that talks the host keeps the clock
_LOOK_NS = 50 * 10**6  # between looks at whether the tree wants a CPU, in the mean
_END_LOOK_NS = 10 * 10**6  # beyond the wall limit, where a look decides
_LOOK_PART = 100  # a look takes no more of the time than one part in this many
HOST_MEMORY = "host_memory"  # the kernel killed it for want of memory, but not of its own
_DEATH_S = 10.0
_DEAD = 256  # collected in one go: where processes are made faster than that, there is no end to it
_MOST_WALL = {True: 10, False: 2}  # times the limit, by whether the CPU of the tree has a meter


class Watch:
    """One case under way. ``run`` returns when no process of it is left."""

    def __init__(self, pid: int, *, group: Group, in_pid_namespace: bool, signals: int, control: int, own: int = -1, pace: float = 1.0) -> None:  # fmt: skip
        self.pid, self.group, self.in_namespace = pid, group, in_pid_namespace
        self.signals, self.control, self.pace = signals, control, pace
        self.status: int | None = None
        self.left = 0
        self.peak = 0
        self.at_half = -1  # bytes of results when half of the CPU limit was used; -1: never that far
        self.counted = 0  # CPU nanoseconds by this kernel's own count
        self.busiest = 0  # CPU nanoseconds of the step that took most, as far as steps can be told apart
        self.balance = 0  # nanoseconds in which the tree wanted a CPU, as sampled, less those in which it had one
        self.looked = self.next_look = self.had = 0
        self.look_ns = _LOOK_NS
        self.nice = os.getpriority(os.PRIO_PROCESS, 0)
        self.base = (
            0
            if group.memory
            else procfs.resident(os.getpid())
            if own < 0
            else int(os.pread(own, 99, 0).split()[1]) * procfs.PAGE
        )
        self.total = self.grew = 0  # bytes at the last look, and by how much more than at the one before

    def run(
        self, limits: dict[str, Any], *, cpu_kill: int, steps: int, streams: tuple[int, int, int], meters: dict[str, int],
        beat: Callable[[int, int], None], stopped: Callable[[], bool], beat_s: float = BEAT_S,
    ) -> tuple[str | None, int]:  # fmt: skip
        """Wait for the end, or bring it about.

        Args:
            limits: as in a JOB frame; times in nanoseconds.
            cpu_kill: CPU nanoseconds a step at which it is ended.
            steps: calls in this process; progress on the result stream starts the next.
            streams: stdout, stderr and result descriptors (result may be -1).
            meters: ``cpu``, ``oom`` and ``usage`` of the group at the start.
            beat: called each ``beat_s`` seconds with nanoseconds that the case has lasted, and of them those that
                ``uncounted`` tells, so that the host knows that this jail lives.
            stopped: called when the control stream has something; True ends the case.

        Returns:
            Which limit ended it (None: it ended by itself), and nanoseconds that
            it waited for a CPU.
        """
        start = next_beat = self.looked = time.monotonic_ns()
        next_beat += int(beat_s * 1e9)
        self._plan(start, 0)
        poller = select.epoll()
        poller.register(self.signals, select.EPOLLIN)
        poller.register(self.control, select.EPOLLIN)
        ended: str | None = None
        cpu = step_cpu = step_wall = step_waited = done = size = 0
        while True:
            rest = max(0, self.next_look - time.monotonic_ns()) / 1e9
            # Not by the poller's own milliseconds: whom it wakes too late the program wakes meanwhile, and so looks when
            # it likes; who wakes too early tells of the look by the CPU time that he uses, which is no secret.
            select.select([poller], (), (), min(rest, (SOON_MS if self.grew > 0 else TICK_MS) / 1e3))
            if look := (now := time.monotonic_ns()) >= self.next_look:
                self._look(now, self._cpu(meters))
            ready = dict(poller.poll(0))
            if self.signals in ready:
                drain(self.signals)
            if self._reap():
                break
            if self.control in ready:
                if stopped():
                    ended = "cancelled"
                    break
                poller.modify(self.control, 0)  # the next case waits there: from now on only the host's end wakes us
            now = time.monotonic_ns()
            if now >= next_beat:
                beat(now - start, self.uncounted(cpu))
                next_beat = now + int(beat_s * 1e9)
            cpu = self._cpu(meters)
            if streams[2] >= 0 and done + 1 < steps and (grown := os.fstat(streams[2]).st_size) > size:
                self.busiest = max(self.busiest, cpu - step_cpu)
                size, done, step_cpu, step_wall, step_waited = grown, done + 1, cpu, now - start, self.uncounted(cpu)
            if self.at_half < 0 <= streams[2] and cpu > limits["cpu"] // 2:
                self.at_half = os.fstat(streams[2]).st_size
            if cpu - step_cpu > cpu_kill:
                ended = "cpu_time"
            elif now - start - step_wall > limits["wall"]:
                spent = now - start - step_wall
                if spent > self.pace * _MOST_WALL[self.group.cpu] * limits["wall"]:
                    ended = "wall_time"
                elif spent - self.uncounted(cpu) + step_waited > limits["wall"]:
                    if look:  # else the time since the last one may have been waiting
                        ended = "wall_time"
                    elif self.look_ns > _END_LOOK_NS:
                        self.look_ns = _END_LOOK_NS
                        self._plan(now, 0)
            if any(os.fstat(fd).st_size > limits["output"] for fd in streams[:2]):
                ended = "output"
            if self.group.memory:
                ended = self._oom(meters) or ended
            elif self._memory(limits["memory"]) > limits["memory"]:
                ended = "memory"
            if ended:
                break
        self.sweep()
        self.busiest = max(self.busiest, cpu_total(self.group, meters) - step_cpu)
        ended = ended or self._oom(meters)
        if ended is None and any(os.fstat(fd).st_size > limits["output"] for fd in streams[:2]):
            ended = "output"
        return ended, self.waited

    @property
    def waited(self) -> int:
        """Nanoseconds in which the tree had no CPU and wanted one."""
        return max(0, self.balance)

    def uncounted(self, cpu: int) -> int:
        """Nanoseconds so far that no wall limit counts, at ``cpu`` nanoseconds of the tree."""
        return self.waited + self.slowed(cpu)

    def _look(self, now: int, cpu: int) -> None:
        """Count the time since the last look as wanted if the tree wants a CPU now, less what it computed."""
        begun = time.thread_time_ns()
        had = cpu if self.pace == 1.0 else max(self.counted, cpu)  # else what the host took is in ``slowed``
        passed = now - self.looked
        self.balance += passed * self._wants() - min(passed, max(0, had - self.had))
        self.looked, self.had = now, had
        self._plan(now, _LOOK_PART * (time.thread_time_ns() - begun))

    def _plan(self, now: int, least: int) -> None:
        """Choose the next look. Without memory: who knows when the last one was knows nothing of the next."""
        part = (int.from_bytes(os.urandom(6)) + 1) / 2**48
        self.next_look = now + int(-math.log(part) * max(self.look_ns, least))

    def slowed(self, cpu: int) -> int:
        """Nanoseconds that passed only because this machine computes more slowly than its host, or was not running.

        ``cpu``: what the tree has used.
        """
        return int(max(self.counted, cpu) - cpu / self.pace) if self.pace != 1.0 else 0

    def _oom(self, meters: dict[str, int]) -> str | None:
        if self.group.oom_kills() <= meters["oom"]:
            return None
        return "memory" if self.group.limit_hits() > meters["hits"] else HOST_MEMORY

    def _reap(self) -> bool:
        """Collect the dead, at most ``_DEAD`` of them; True when the main process is among them."""
        for _ in range(_DEAD):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == self.pid:
                self.status = status
        return self.status is not None

    def sweep(self) -> None:
        """Kill and reap all that is left; TimeoutError when something will not die."""
        give_up, count = time.monotonic() + _DEATH_S, 0
        while True:
            count += 1
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return  # no child: every orphan would be one, so nothing is left
            if pid == self.pid:
                self.status = status
            elif pid:
                self.left += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            if pid and count % _DEAD:
                continue
            self._kill_all()
            if time.monotonic() > give_up:
                raise TimeoutError("processes of the program do not die")
            if not pid:
                select.select([self.signals], [], [], 0.01)
                drain(self.signals)

    def _kill_all(self) -> None:
        if self.in_namespace:
            try:
                os.kill(-1, signal.SIGKILL)  # all of this PID namespace but ourselves, its init
            except ProcessLookupError:
                pass
            return
        # Stop everything first: a tree that is stopped cannot fork away from the kill.
        seen: set[int] = set()
        while fresh := set(procfs.descendants(os.getpid())) - seen:
            for pid in fresh:
                signal_one(pid, signal.SIGSTOP)
            seen |= fresh
        for pid in seen:
            signal_one(pid, signal.SIGKILL)

    def _cpu(self, meters: dict[str, int]) -> int:
        """CPU nanoseconds of the tree so far."""
        if self.group.cpu:
            self.counted = self.group.cpu_ns() - meters["cpu"] - (time.process_time_ns() - meters["self"])
            return self.group.had(self.counted, meters)
        total = sum(procfs.cpu(pid) for pid in self._members())
        return self.group.held(int(total * 1e9) + procfs.children_ns() - meters["children"], meters)

    def _memory(self, limit: int) -> int:
        """Bytes that the tree holds. Forks share what the jail itself has; near the limit shares are counted (dear)."""
        members = self._members()
        total = sum(max(0, procfs.resident(pid) - self.base) for pid in members)
        if total > limit // 2:
            exact = [procfs.proportional(pid) for pid in members]
            if all(exact):
                total = sum(exact)
            total = self.group.grown(total, len(members))
        self.grew = total - self.total if total > limit // 2 else 0
        self.total = total
        self.peak = max(self.peak, total)
        return total

    def _members(self) -> list[int]:
        if self.in_namespace:
            own = os.getpid()
            try:
                return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own]
            except OSError:
                return [self.pid]
        return procfs.descendants(os.getpid())

    def _wants(self) -> bool:
        """A thread of the tree runs, or is ready to."""
        if procfs.wants(self.pid, self.nice):
            return True
        for pid in self._members():
            try:
                threads = os.listdir(f"/proc/{pid}/task")
            except OSError:
                continue
            if any(procfs.wants(f"{pid}/task/{thread}", self.nice) for thread in threads):
                return True
        return False


def meters(group: Group) -> dict[str, int]:
    """Readings at the start of a case, to be subtracted at its end."""
    return {
        "cpu": group.cpu_ns(),
        "outside": group.outside_ns(),
        "now": time.monotonic_ns(),
        "self": time.process_time_ns(),
        "children": procfs.children_ns(),
        "oom": group.oom_kills(),
        "hits": group.limit_hits(),
        "usage": group.usage(),
        "reset": group.reset_peak(),
    }


def cpu_total(group: Group, start: dict[str, int]) -> int:
    """CPU nanoseconds of a case whose processes are all dead."""
    reaped = procfs.children_ns() - start["children"]
    if not group.cpu:
        return group.held(reaped, start)
    counted = max(reaped, group.cpu_ns() - start["cpu"] - (time.process_time_ns() - start["self"]))
    return group.had(counted, start)


def signal_one(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass


def drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except OSError:
        pass
