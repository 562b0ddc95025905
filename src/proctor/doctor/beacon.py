"""A process on the host that an attack would love to find.

Run as a script. It holds the canary on its command line, in its environment,
in a System V segment, in an abstract socket's name and in the banner of a
loopback port, and counts who came: connections, datagrams, signals. On each
line of standard input it answers with those counts as one line of JSON; it
ends, and takes everything away, when standard input does.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import sys

# Where trainers tend to have services, so where a program would look.
PORTS = (9090, 8081, 8888, 5000, 8001, 10001, 3000, 6006, 9000, 0)
IPC_CREAT, IPC_RMID, IPC_PRIVATE = 0o1000, 0, 0
MARK = "\0escape_mark_host"  # an abstract socket whose name a program may know


def segment(text: bytes) -> int | None:
    """A System V segment that everybody may read, holding ``text``; None where the kernel has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    number = int(libc.shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0o666))
    if number < 0:
        return None
    address = libc.shmat(number, None, 0)
    if address not in (None, ctypes.c_void_p(-1).value):
        ctypes.memmove(address, text, len(text))
    return number


def forget(number: int | None) -> None:
    """Takes the segment away."""
    if number is not None:
        ctypes.CDLL(None).shmctl(number, IPC_RMID, None)


def listen_tcp() -> socket.socket:
    """A listener on the first of PORTS that is free, on 127.0.0.1."""
    for port in PORTS:
        box = socket.socket()
        box.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            box.bind(("127.0.0.1", port))
            box.listen(16)
            return box
        except OSError:
            box.close()
    raise SystemExit("no loopback port is free")


def listen_unix(name: str) -> socket.socket | None:
    """A listener on an abstract name; None when another process has it."""
    box = socket.socket(socket.AF_UNIX)
    try:
        box.bind(name)
        box.listen(16)
    except OSError:
        box.close()
        return None
    return box


def main(canary: str) -> int:
    """Serves until standard input ends."""
    counts = {"tcp": 0, "udp": 0, "unix": 0, "signals": 0}

    def came(number: int, frame: object) -> None:
        counts["signals"] += 1

    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, came)
    shm = segment(canary.encode())
    tcp, udp = listen_tcp(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    boxes = {tcp: "tcp", udp: "udp"} | {box: "unix" for name in ("\0" + canary, MARK) if (box := listen_unix(name))}
    ready = {"pid": os.getpid(), "tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1], "shm": shm}
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    watch = selectors.DefaultSelector()
    watch.register(0, selectors.EVENT_READ, "stdin")
    for box, kind in boxes.items():
        box.setblocking(False)
        watch.register(box, selectors.EVENT_READ, kind)
    try:
        while True:
            # What the kernel queued before a question is counted before the answer.
            events = sorted(watch.select(), key=lambda event: event[0].data == "stdin")
            for key, _ in events:
                if key.data == "stdin":
                    if not os.read(0, 4096):
                        return 0
                    sys.stdout.write(json.dumps(counts) + "\n")
                    sys.stdout.flush()
                    continue
                counts[key.data] += 1
                visited = key.fileobj
                assert isinstance(visited, socket.socket)
                with contextlib.suppress(OSError):
                    if key.data == "udp":
                        visited.recv(4096)
                    else:
                        peer, _ = visited.accept()
                        peer.send(canary.encode() + b"\r\n")
                        peer.close()
    finally:
        forget(shm)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
