"""The zygote of sandboxes: forks rooms as the host asks for them, each with a control socket of its own.

It never reads what a sandbox is to be: that goes over the room's socket, so no
room finds another's environment in its memory.
"""

from __future__ import annotations

import os
import select
import signal

from . import linux, protocol, stream, watch, zygote
from .room import Room
from .slot import Run, Slot


def loop(slot: Slot) -> Run:
    """Fork rooms and reap them; returns only in the process of a command. One behind a wall of its own is one room: then be it."""
    if slot.only:
        only = Room(slot, slot.control)
        zygote.keep(only)
        return only.serve()
    home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    signals = stream.high(linux.signalfd({signal.SIGCHLD}))
    if slot.seccomp is not None:
        linux.seccomp_prepare(slot.seccomp)
    rooms: dict[int, int] = {}  # process -> number
    while True:
        ready = dict(_poll([slot.control, signals]))
        if signals in ready:
            watch.drain(signals)
        while rooms:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            stream.write_all(slot.control, protocol.pack(protocol.DONE, {"room": rooms.pop(pid)}))
        if slot.control not in ready:
            continue
        kind, header = _frame(slot.control)
        number = header["room"]
        if kind == protocol.CANCEL:
            for pid in [pid for pid, known in rooms.items() if known == number]:
                os.kill(pid, signal.SIGKILL)
            continue
        fds = stream.take_fds(slot.control, 1 + header["groups"])
        linux.unshare(linux.NEWPID)
        pid = os.fork()
        if pid == 0:
            os.close(home)
            os.close(signals)
            os.close(slot.control)
            try:
                linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
                for fd in fds[1:]:
                    os.write(fd, b"0")
                    os.close(fd)
                slot.control = fds[0]
                slot.group.procs = []
                room = Room(slot, fds[0])
                zygote.keep(room)
                return room.serve()
            except BaseException as exc:
                zygote.report(fds[0], exc)
        linux.setns(home, linux.NEWPID)
        rooms[pid] = number
        for fd in fds:
            os.close(fd)


def _poll(fds: list[int]) -> list[tuple[int, int]]:
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return poller.poll()


def _frame(control: int) -> tuple[int, dict[str, int]]:
    try:
        kind, header, _ = protocol.unpack_head(stream.read_exact(control, protocol.HEAD.size))
        return kind, protocol.unpack_header(stream.read_exact(control, header))
    except EOFError:
        os._exit(0)  # the host is gone, and with this process all rooms
