"""A process that stands for a machine: the real pid 1, and behind it a real agent in a jail, with no kernel of their own.

    python fc_guest.py TOLD, a file with JSON: ``guest`` (folder of the code), ``listen``, ``saved`` (what a saved
    machine was told to start, or null), ``keep`` (where that is written), ``plan``, ``agent``, ``cpu``, ``woken``.

What pid 1 does to its kernel alone is written down instead: the clock, the entropy, the end.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

ctypes.CDLL(None).prctl(1, 9)  # it dies with the test
told: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
spec = importlib.util.spec_from_file_location("pid1", f"{told['guest']}/pid1.py")
assert spec is not None
assert spec.loader is not None
pid1: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pid1)


def listener() -> socket.socket:
    """Instead of vsock's."""
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(told["listen"] + ".new")
    os.chmod(told["listen"] + ".new", 0o777)
    sock.listen(5)
    os.rename(told["listen"] + ".new", told["listen"])
    return sock


def write_down(**words: Any) -> None:
    with open(told["woken"], "a") as file:
        file.write(json.dumps(words) + "\n")


def port(listening: socket.socket | None) -> int:
    """Of a saved machine the first is the connection that it was saved with, which is gone when it has said READY."""
    if told["saved"] is not None and not old:
        there, here = socket.socketpair()
        old.append(there)

        def last() -> None:
            heard = b""
            while b'"ready"' not in heard:
                heard += there.recv(1 << 16)
            there.close()

        threading.Thread(target=last, daemon=True).start()
        return here.detach()
    return accept(listening)


class Guest(pid1.Init):  # type: ignore[misc]
    def start(self, config: dict[str, Any]) -> None:
        Path(told["keep"]).write_text(json.dumps(config))
        super().start(config | {"root": told["plan"]})

    def ended(self, status: int) -> None:
        """Never what pid 1 does: that restarts the host."""
        self.say({"ended": self.words()})
        self.relay.turn(20)
        sys.exit(status != 0)


old: list[socket.socket] = []
accept = pid1._port
pid1._listener, pid1._port, pid1._CPU = listener, port, told["cpu"]
pid1._AGENT |= told["agent"]
pid1.reseed = lambda entropy: write_down(entropy=entropy.hex())
pid1.time.clock_settime_ns = lambda clock, ns: write_down(clock=clock, time=ns)
guest = Guest()
if told["saved"] is not None:
    guest.start(told["saved"])
guest.run()
