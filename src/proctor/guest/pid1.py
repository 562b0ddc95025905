"""Pid 1 of a machine: mounts, the agent, and the way between it and the host.

Theory of operation. The machine's kernel starts ``first.py``, which goes on
here, in the image's root. This process mounts what an agent expects of a host,
then does what the host tells it over the one serial port: measure this CPU,
start the agent. When the agent has said READY the machine is saved, with that
word still unread. Each machine that is made from it is woken with fresh
entropy and the time; from then on this process joins the agent's control
stream to the host's, READY first.

Where the machine has no serial port for that, the host connects over vsock, to
the port number that the kernel's command line names (``proctor.vsock=N``). A
connection does not outlive the saving of a machine and its socket does: so the
host connects once more, and when a copy was woken nobody can again.

The agent, and all behind it, is the one of a jail: its supervisor here is a
child of pid 1, and the machine ends with it. Where it is one sandbox's room, the
sandbox's layers lie on a second disk, which is another in each copy: this process
mounts it, where the room sees it, when the copy is woken.
"""

from __future__ import annotations

import json
import os
import sys
import types

_folder = os.path.dirname(os.path.abspath(__file__))
_package = types.ModuleType("proctor_guest")
_package.__path__ = [_folder]
sys.modules["proctor_guest"] = _package

import fcntl  # noqa: E402
import socket  # noqa: E402
import struct  # noqa: E402
import time  # noqa: E402
from typing import Any, NoReturn  # noqa: E402

from proctor_guest import channels, linux, protocol  # type: ignore[import-not-found]  # noqa: E402

_RNDADDENTROPY, _RNDRESEEDCRNG = 0x40085203, 0x5207
_BLKFLSBUF = 0x1261
_DISK, _LAYERS = "vdb", "/.layers"  # as ``floor`` has it
_CPU = "/run/cpu"  # nanoseconds that this machine has had of its host
_AGENT: dict[str, Any] = {  # of its settings, what is the machine's own unless the host says otherwise
    "name": "slot", "box": "/run/slot", "levels": ["jail"], "cgroup": True, "public_python": None, "lobby": False,
    "uid": 2000,  # the first of its two user numbers: nobody else's in here
}  # fmt: skip
_GROUPS = ("memory", "cpu,cpuacct", "pids")
_LOOP = 200_000  # turns of the loop by which this CPU is measured


class Init:
    """What pid 1 knows."""

    def __init__(self) -> None:
        self.listener = _listener()
        self.relay = channels.Relay(_port(self.listener), None, inside=True, told=self.told)
        self.agent = 0
        self.control: socket.socket | None = None
        self.lifeline: socket.socket | None = None
        self.log = self.cpu = -1
        self.waiting = False  # for the agent's first word
        self.only = False  # it is one sandbox's room

    def run(self) -> NoReturn:
        """Serve until the agent has ended."""
        self.say({"up": True})
        while True:
            watched = {self.control.fileno(): 1} if self.waiting and self.control else {}
            try:
                if self.relay.turn(1000, watched) and self.control:
                    self.first_word(self.control)
            except channels.Broken:
                if self.listener is None:
                    raise
                os.close(self.relay.port)
                self.relay = channels.Relay(_port(self.listener), None, inside=True, told=self.told)
                self.say({"up": True})
            while True:
                try:
                    pid, _ = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    break
                if pid == 0:
                    break
                if pid == self.agent:
                    self.end(self.words())

    def say(self, words: dict[str, Any]) -> None:
        self.relay.say(channels.TOLD, 0, json.dumps(words).encode())

    def told(self, data: bytes) -> None:
        """Do what the host says."""
        words = json.loads(data)
        if words["do"] == "measure":
            self.say({"measured": measure()})
        elif words["do"] == "start":
            self.start(words["config"])
        elif words["do"] == "wake":
            reseed(bytes.fromhex(words["entropy"]))
            time.clock_settime_ns(time.CLOCK_REALTIME, words["time"])
            if self.listener is not None:
                self.listener.close()  # programs run from here on
                self.listener = None
            if self.only:
                try:
                    lay(self.agent)
                except OSError as exc:
                    self.end(f"the layers: {exc}")
            assert self.control is not None
            self.relay.join(self.control)
        elif words["do"] == "cpu":
            os.pwrite(self.cpu, b"%020d" % words["ns"], 0)
        elif words["do"] == "clock":
            time.clock_settime_ns(time.CLOCK_REALTIME, words["time"])

    def start(self, config: dict[str, Any]) -> None:
        """Start the agent's supervisor."""
        self.control, control = socket.socketpair()
        self.lifeline, watched = socket.socketpair()
        self.log = os.memfd_create("log")
        self.cpu = os.open(_CPU, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.pwrite(self.cpu, b"%020d" % 0, 0)
        self.only = bool(config.get("only"))
        config = {**_AGENT, **config}
        config |= {
            "control": control.fileno(), "lifeline": watched.fileno(), "parent": os.getpid(), "given": {"cpu": _CPU},
        }  # fmt: skip
        self.agent = os.fork()
        if self.agent == 0:
            try:
                null = os.open("/dev/null", os.O_RDWR)
                os.dup2(null, 0)
                os.dup2(null, 1)
                os.dup2(self.log, 2)
                for sock in (control, watched):
                    sock.set_inheritable(True)
                python = config["python"]
                os.execve(python, [python, "-S", f"{_folder}/main.py", json.dumps(config)], config["env"])
            finally:
                os._exit(127)
        control.close()
        watched.close()
        self.waiting = True

    def first_word(self, control: socket.socket) -> None:
        """READY, which the machine's copies are to read, and a room's own after it; or what went wrong."""
        kinds = words_of(control.recv(1 << 16, socket.MSG_PEEK))
        if kinds == [protocol.READY] and self.only:
            time.sleep(0.01)  # it is a moment away
            return
        self.waiting = False
        if kinds and set(kinds) == {protocol.READY}:
            self.say({"ready": True})
        else:
            self.say({"failed": control.recv(4000).decode("utf-8", "replace") + self.words()})

    def words(self) -> str:
        """The end of what the agent wrote on stderr."""
        size = os.fstat(self.log).st_size
        return os.pread(self.log, 2000, max(0, size - 2000)).decode("utf-8", "replace")

    def end(self, words: str) -> NoReturn:
        """Say why, and end the machine."""
        self.say({"ended": words})
        for _ in range(100):
            self.relay.turn(20)
            if not self.relay.out and len(self.relay.sources) == 0:
                break
        with open("/proc/sysrq-trigger", "w") as file:
            file.write("b")
        while True:
            time.sleep(1)


def words_of(data: bytes) -> list[int]:
    """Kinds of the frames that have come whole."""
    kinds, at = [], 0
    while len(data) - at >= protocol.HEAD.size:
        kind, header, body = protocol.unpack_head(data[at : at + protocol.HEAD.size])
        at += protocol.HEAD.size + header + body
        if at > len(data):
            break
        kinds.append(kind)
    return kinds


def lay(agent: int) -> None:
    """Mount the layers' disk in the mount namespace of the agent's one child, its room."""
    with open(f"/proc/{agent}/task/{agent}/children") as file:
        room = file.read().split()[0]
    devices = os.open("/dev", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    disk = os.open(_DISK, os.O_RDONLY | os.O_CLOEXEC, dir_fd=devices)
    fcntl.ioctl(disk, _BLKFLSBUF)  # what was read of it lies in the saved machine, and was another's
    os.close(disk)
    pid = os.fork()
    if pid == 0:
        try:
            linux.setns(os.open(f"/proc/{room}/ns/mnt", os.O_RDONLY), linux.NEWNS)
            os.fchdir(devices)  # which that namespace has not
            linux.mount(_DISK, _LAYERS, "erofs", linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV)
            os._exit(0)
        except OSError as exc:
            os._exit(exc.errno or 1)
        finally:
            os._exit(1)
    os.close(devices)
    if status := os.waitpid(pid, 0)[1]:
        raise OSError(status >> 8, "they cannot be mounted")


def measure() -> int:
    """CPU nanoseconds of a loop."""
    total, start = 0, time.process_time_ns()
    for number in range(_LOOP):
        total += number * number % 7
    return time.process_time_ns() - start


def reseed(entropy: bytes) -> None:
    """Give the kernel's generator what no other machine has, and let every process's share of it begin anew."""
    fd = os.open("/dev/urandom", os.O_RDWR)
    try:
        fcntl.ioctl(fd, _RNDADDENTROPY, struct.pack("=ii", 8 * len(entropy), len(entropy)) + entropy)
        fcntl.ioctl(fd, _RNDRESEEDCRNG)
    finally:
        os.close(fd)


def _listener() -> socket.socket | None:
    """What the host connects to, where that is how it comes in."""
    with open("/proc/cmdline") as file:
        words = [word.partition("=") for word in file.read().split()]
    for name, _, number in words:
        if name == "proctor.vsock":
            listener = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
            listener.bind((socket.VMADDR_CID_ANY, int(number)))
            listener.listen(1)
            return listener
    return None


def _port(listener: socket.socket | None) -> int:
    if listener is not None:
        return listener.accept()[0].detach()
    for name in sorted(os.listdir("/sys/class/virtio-ports")):
        return os.open(f"/dev/{name}", os.O_RDWR | os.O_CLOEXEC)
    raise FileNotFoundError("no serial port")


def _mounts() -> None:
    plain = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    linux.mount("proc", "/proc", "proc", plain)
    linux.mount("sys", "/sys", "sysfs", plain)
    linux.mount("run", "/run", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755,size=16m")
    linux.mount("groups", "/sys/fs/cgroup", "tmpfs", plain, "mode=755,size=1m")
    for names in _GROUPS:
        place = f"/sys/fs/cgroup/{names}"
        os.mkdir(place)
        linux.mount("cgroup", place, "cgroup", plain, names)


if __name__ == "__main__":
    _mounts()
    Init().run()
