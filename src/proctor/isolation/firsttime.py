"""What is said to a machine that is booted to be saved: how fast are you, start the agent."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from proctor.core.errors import InfrastructureError
from proctor.core.image import Image
from proctor.guest import channels, machine
from proctor.isolation.kept import GUEST

BOOT_S = 240.0
_MARGIN = 1.5  # programs may be slowed more than the loop that is measured
_PACE_LEAST, _PACE_MOST = 1.0, 100.0


def begin(port: int, told: dict[str, Any], image: Image, process: int) -> float:
    """Have a machine's agent come up, until it has said READY; how much slower the machine is than this host.

    Args:
        port: joins this process to pid 1 of the machine, which has just said that it is up, or is about to.
        told: ``monitor`` and its ``version``, ``accelerator``, ``release`` of the kernel; ``layers_bytes`` where the
            agent is a sandbox's room.
        process: what runs the machine here.

    Raises:
        OSError, channels.Broken, TimeoutError: it does not come up, and why.
    """
    said: list[dict[str, Any]] = []
    relay = channels.Relay(port, None, inside=False, told=lambda data: said.append(json.loads(data)))
    _hear(relay, said, "up")
    pace = 1.0
    if told["accelerator"] == "tcg":
        there = min(_measured(relay, said, process) for _ in range(4))
        pace = min(max(_MARGIN * there / _measure(image), _PACE_LEAST), _PACE_MOST)
    plan = image.plan | {"binds": [[inside, inside] for _, inside in image.plan["binds"]], "covers": {}}
    features = {"level": "microvm", "accelerator": told["accelerator"], told["monitor"]: told["version"], "kernel": told["release"], "pace": round(pace, 3)}  # fmt: skip
    config = {
        "root": plan, "readable": [], "env": image.env, "preload": image.preload, "python": image.python,
        "pace": pace, "features": features,
    }  # fmt: skip
    if "layers_bytes" in told:
        config |= {"lobby": True, "only": True}
    machine.say(relay, {"do": "start", "config": config})
    answer = _hear(relay, said, "ready", "failed", "ended")
    if "ready" not in answer:
        raise OSError(f"its agent does not come up: {answer}")
    return pace


def _hear(relay: channels.Relay, said: list[dict[str, Any]], *names: str) -> dict[str, Any]:
    """The next that pid 1 says, which has one of these names."""
    deadline = time.monotonic() + BOOT_S
    while time.monotonic() < deadline:
        while said:
            words = said.pop(0)
            if any(name in words for name in names):
                return words
            raise OSError(f"it said {words} where {names[0]} was due")
        relay.turn(1000)
    raise TimeoutError(f"it did not say {names[0]!r} in {BOOT_S:.0f} s")


def _measured(relay: channels.Relay, said: list[dict[str, Any]], process: int) -> int:
    """CPU nanoseconds of the loop in the machine: by its own clock, but no more than the host has given it meanwhile."""
    before = machine.cpu_ns(process)
    machine.say(relay, {"do": "measure"})
    there = int(_hear(relay, said, "measured")["measured"])
    return min(there, machine.cpu_ns(process) - before)


def _measure(image: Image) -> int:
    """CPU nanoseconds of the loop that pid 1 runs, by the same interpreter on this host; least of many."""
    lines = (GUEST / "pid1.py").read_text().partition("def measure() -> int:")[2].partition("def reseed")[0]
    loops = next(row for row in (GUEST / "pid1.py").read_text().splitlines() if row.startswith("_LOOP = "))
    code = f"import time\n{loops}\ndef measure() -> int:{lines}\nprint(min(measure() for _ in range(20)))"
    try:
        done = subprocess.run([image.python, "-I", "-S", "-c", code], capture_output=True, timeout=120, check=True)
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as exc:
        raise InfrastructureError(f"the interpreter {image.python} does not start: {exc}") from exc
