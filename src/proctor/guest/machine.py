"""The host's side of an agent inside a virtual machine: QEMU, and what joins the machine to the engine.

Where Firecracker runs the machine, its own parts are in ``firecracker``.

Theory of operation. The supervisor of such a slot starts QEMU where other
supervisors start a zygote: behind the same namespaces, with an identity and a
root of its own, where this host allows them, and with QEMU's own system call
filter. QEMU is given descriptors and nothing else: the memory and the state of
a machine that was saved as its agent said READY, a socket for the serial port,
one for the disk.

    engine --(control)--> supervisor --(serial port)--> QEMU | pid 1 --(control)--> zygote --> jail --> case
       \\--(lifeline)------/     \\--(disk: files of the image, to be read only)--/

Where the agent is a sandbox's room there is a second disk, with its layers: it may be
another in each copy, and is not read before the copy is woken.

The memory is a sealed memory file that nobody can change; QEMU maps it
privately, so that each machine has its own copy of what it writes and shares
the rest. The machine is woken with entropy and the time, then the supervisor
only passes on bytes (``channels``) and reads files for the disk (``blocks``).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from . import blocks, channels, firecracker, landlock, linux, root, stream

if TYPE_CHECKING:
    from . import cgroups
    from .host import Host

PORT, MONITOR, DISK, LAYERS = 3, 4, 5, 6  # descriptors of QEMU's; behind those that there are memory and state
_ENTROPY = 64
_CLOCK_NS = 10**9  # the machine's clock is set again when it was not for so long and something is asked of it
_TELL_NS = 50 * 10**6  # between two words about the CPU time that it has had
_ACTIVE_NS = 3 * 10**9  # after the last word of either side: a case that runs says one each second
_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


def arguments(machine: dict[str, Any], *, memory: str, serial: str, incoming: bool) -> list[str]:
    """QEMU's command line. Descriptors are as above; a saved machine must be given the devices that it had.

    Args:
        machine: ``qemu`` path, ``accelerator``, ``memory_mib``, ``layers_bytes`` where it has a second disk; of one
            that boots ``kernel``, ``first`` (its initial file system) and ``command_line``.
        memory: where the memory comes from and how, as options.
        serial: what becomes of the console.
        incoming: a saved machine, else one that boots.
    """
    tcg = machine["accelerator"] == "tcg"
    names = ("kernel", "kernel"), ("initrd", "first"), ("append", "command_line")
    boot = [] if incoming else [word for option, name in names for word in (f"-{option}", machine[name])]
    disks = [("root", DISK), *([("layers", LAYERS)] if machine.get("layers_bytes") else [])]
    return [
        machine["qemu"], "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-accel", machine["accelerator"],
        "-cpu", "max,la57=off" if tcg else "host", "-smp", "1", "-m", f"{machine['memory_mib']}M",
        "-M", "pc,usb=off,vmport=off,hpet=off,memory-backend=ram",
        "-object", f"memory-backend-file,id=ram,size={machine['memory_mib']}M,{memory}",
        "-sandbox", _SANDBOX,
        "-chardev", f"socket,id=port,fd={PORT}",
        "-chardev", f"socket,id=monitor,fd={MONITOR}", "-mon", "chardev=monitor,mode=control",
        "-chardev", f"{serial},id=console", "-serial", "chardev:console",
        *(word for name, fd in disks for word in (
            "-blockdev", f"driver=nbd,node-name={name},server.type=fd,server.str={fd},read-only=on",
            "-device", f"virtio-blk-pci,drive={name}",
        )),
        "-device", "virtio-serial-pci,max_ports=2", "-device", "virtserialport,chardev=port,name=proctor,nr=1",
        *(["-incoming", "defer"] if incoming else boot),
    ]  # fmt: skip


class Monitor:
    """QEMU's control socket: one command at a time."""

    def __init__(self, sock: socket.socket, deadline_s: float = 60.0) -> None:
        self.sock, self.buffer = sock, b""
        sock.settimeout(deadline_s)
        self._line()
        self.ask("qmp_capabilities")

    def ask(self, command: str, fds: tuple[int, ...] = (), **arguments: Any) -> Any:
        """The answer to a command; OSError where it is an error, or QEMU is gone."""
        text = json.dumps({"execute": command, "arguments": arguments}).encode()
        if fds:
            socket.send_fds(self.sock, [text], fds)
        else:
            self.sock.sendall(text)
        while True:
            words = self._line()
            if "error" in words:
                raise OSError(f"QEMU refuses {command}: {words['error'].get('desc')}")
            if "return" in words:
                return words["return"]

    def _line(self) -> dict[str, Any]:
        while b"\n" not in self.buffer:
            piece = self.sock.recv(1 << 16)
            if not piece:
                raise OSError("QEMU has ended")
            self.buffer += piece
        line, _, self.buffer = self.buffer.partition(b"\n")
        words = json.loads(line)
        return words if isinstance(words, dict) else {}


class Sockets:
    """The supervisor's ends of QEMU's sockets, and QEMU's."""

    def __init__(self, *, layers: bool = False) -> None:
        self.port, port = socket.socketpair()
        self.monitor, monitor = socket.socketpair()
        self.disks, disks = zip(*(socket.socketpair() for _ in range(1 + layers)), strict=True)
        self._there = [port, monitor, *disks]
        self.memory = PORT + len(self._there)  # QEMU's descriptors
        self.state = self.memory + 1

    def there(self) -> list[int]:
        """QEMU's, in the order of its descriptors."""
        return [sock.fileno() for sock in self._there]

    def keep(self) -> None:
        """Close QEMU's ends: its end is then seen."""
        for sock in self._there:
            sock.close()

    def command(self, machine: dict[str, Any]) -> list[str]:
        """How a saved machine is started."""
        memory = f"mem-path=/proc/self/fd/{self.memory},share=off"
        return arguments(machine, memory=memory, serial="null", incoming=True)

    def enter(self, walled: bool) -> list[tuple[str, int]]:
        """In the process that becomes QEMU: prepare it; what it may open beyond its root, for Landlock."""
        del walled
        os.dup2(2, 1)
        return []

    def wake(self, machine: dict[str, Any], pid: int, control: socket.socket, log: Any) -> channels.Relay:
        """Serve the disks and let the saved machine go on; joined to the engine's control stream."""
        del pid
        disks = [blocks.Disk.within(machine["folder"], machine["disk_bytes"])]
        if layers := machine.get("layers"):
            index, table = (f"/proc/self/fd/{fd}" for fd in layers)
            disks.append(blocks.Disk(index, table, machine["layers_bytes"]))
        for disk, sock in zip(disks, self.disks, strict=True):
            if os.fork() == 0:
                _serve(blocks.Server(disk, sock), [control, self.port, self.monitor, *self.disks], sock)
        for disk, sock in zip(disks, self.disks, strict=True):
            disk.close()
            sock.close()
        monitor = Monitor(self.monitor)
        monitor.ask("migrate-set-capabilities", capabilities=[{"capability": "x-ignore-shared", "state": True}])
        monitor.ask("migrate-incoming", uri=f"fd:{self.state}")
        self.monitor.settimeout(None)
        return channels.Relay(self.port.fileno(), control, inside=False, told=log)


def ends(config: dict[str, Any]) -> Sockets | firecracker.Ends:
    """What joins this process to the program that is to run the machine."""
    machine = config["machine"]
    return firecracker.Ends(config) if machine["monitor"] == "firecracker" else Sockets(layers="layers" in machine)


def launch(
    config: dict[str, Any], sockets: Sockets | firecracker.Ends, group: cgroups.Group, folder: str, host: Host
) -> tuple[int, str]:
    """Start QEMU, or Firecracker, behind the walls that this host allows; its pid, or ``(-1, why not)`` as in ``agent.start``."""
    from . import agent

    for name in ("memory", "state"):
        config["machine"][name] = os.dup(config["machine"][name])  # numbers that QEMU's are not copied onto
    pid, reason = -1, ""
    for level in ("jail", "bare"):
        config["walled"] = level == "jail"
        pid, reason = agent.start(config, level, group, folder, host, lambda go: become(config, sockets, go))
        if pid > 0 or reason[:1] != "R":
            break
    return pid, reason


def become(config: dict[str, Any], sockets: Sockets | firecracker.Ends, go: int) -> None:
    """Replace this process, behind its walls, by QEMU or Firecracker; OSError where that fails."""
    machine = config["machine"]
    if config["walled"]:
        root.mount_proc()
    kept = [*sockets.there(), machine["memory"], machine["state"]]
    high = [os.dup2(fd, 40 + at, inheritable=False) for at, fd in enumerate(kept)]
    parent = os.dup2(go, 60, inheritable=False)
    for at, fd in enumerate(high):
        os.dup2(fd, PORT + at)
    allowed = sockets.enter(config["walled"])
    rules = -1
    if landlock.abi() >= 1:
        rows = [("/", landlock.READ)] if config["walled"] else [(path, landlock.READ) for path in machine["readable"]]
        rows += [("/proc", landlock.READ), ("/dev/null", landlock.DEVICE), *allowed]
        if machine["accelerator"] == "kvm":
            rows.append(("/dev/kvm", landlock.CONTROL))
        rules = landlock.ruleset(landlock.abi(), rows, network=not config["walled"])
    linux.drop_bounding_set(0)
    if os.geteuid() == 0:
        uid = config["uid"] + 1 if config.get("host_identity") or not config["walled"] else 1000
        if not config.get("group"):
            os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    linux.drop_capabilities(0)
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    if select.select([parent], [], [], 0)[0]:
        os._exit(stream.FAILED)  # the supervisor was gone before the kernel knew to tell
    if rules >= 0:
        linux.landlock_restrict(rules)
    for fd in range(PORT + len(kept), 256):
        try:
            os.set_inheritable(fd, False)
        except OSError:
            pass  # there is none
    command = sockets.command(machine)
    os.execve(command[0], command, {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})


def say(relay: channels.Relay, words: dict[str, Any]) -> None:
    """Tell pid 1 something."""
    relay.say(channels.TOLD, 0, json.dumps(words).encode())


class Meter:
    """Tells a machine what it cannot know: the time, and how much CPU this host has given it.

    Its own clocks run on while the host runs something else.
    """

    def __init__(self, relay: channels.Relay, qemu: int) -> None:
        self.relay, self.qemu = relay, qemu
        self.set_at = self.told_at = self.active_at = time.monotonic_ns()
        relay.before = self.wanted

    def wanted(self) -> None:
        """Something goes in: set the clock, unless it was set a moment ago."""
        self.active_at = time.monotonic_ns()
        if self.active_at - self.set_at > _CLOCK_NS:
            self.set_at = self.active_at
            say(self.relay, {"do": "clock", "time": time.time_ns()})
        self.tell()

    def tell(self) -> None:
        """The CPU time, now."""
        self.told_at = time.monotonic_ns()
        say(self.relay, {"do": "cpu", "ns": cpu_ns(self.qemu)})

    def turn(self) -> int:
        """Tell it when it is time; ms until it is again."""
        now = time.monotonic_ns()
        if self.relay.heard:
            self.relay.heard, self.active_at = False, now
        if now - self.active_at > _ACTIVE_NS:
            return 1000
        if now - self.told_at >= _TELL_NS:
            self.tell()
        return _TELL_NS // 10**6


def cpu_ns(pid: int) -> int:
    """CPU nanoseconds that a process has had, all its threads together."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
                total += int(file.read().split()[0])
        except (OSError, ValueError, IndexError):
            continue
    return total


def supervise(config: dict[str, Any], pid: int, sockets: Sockets | firecracker.Ends, host: Host) -> int:
    """Join machine and engine until one of them ends; then see that nothing of the slot is left."""
    machine, control = config["machine"], socket.socket(fileno=config["control"])
    sockets.keep()
    for name in ("memory", "state"):
        os.close(machine[name])
    said: list[bytes] = []
    try:
        relay = sockets.wake(machine, pid, control, lambda data: said.__setitem__(slice(None), [data]))
        say(relay, {"do": "wake", "entropy": os.urandom(_ENTROPY).hex(), "time": time.time_ns()})
        watched = dict.fromkeys(host.ends, select.POLLIN)
        meter = Meter(relay, pid)
        while (ended := os.waitpid(-1, os.WNOHANG)[0]) != pid:
            # Without one who serves a disk its programs would fail, and that would be taken for their answer.
            if ended or relay.turn(meter.turn(), watched) or os.getppid() != host.parent:
                raise BrokenPipeError
    except (BrokenPipeError, channels.Broken, OSError) as exc:
        if not isinstance(exc, BrokenPipeError):
            os.write(2, f"{type(exc).__name__}: {exc}\n".encode())
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
    for data in said:  # its last word
        os.write(2, data[:2000])
    control.close()
    return 0


def _serve(server: blocks.Server, others: list[socket.socket], own: socket.socket) -> None:
    """Read files for a disk, in a process of its own: a slow one holds up nothing else."""
    try:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        for sock in others:
            if sock is not own:
                sock.close()
        while server.step():
            pass
        if server.fault:
            os.write(2, f"the machine's disk: {server.fault}\n".encode())
    finally:
        sys.stderr.flush()
        os._exit(0)
