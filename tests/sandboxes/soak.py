"""Sandboxes under random kills, for as long as asked: ``python tests/sandboxes/soak.py SECONDS [SEED]``.

Client processes hold up to 50 sandboxes together, with leases, ceilings and deletes at random moments, and are killed
at random. Checked all the while: no lease ends early or late, no ceiling is passed by more than a look, no client's
sandbox outlives it; at the end nothing is left on the host.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLIENTS, EACH = 5, 10
LATE_S = 5.0  # that a busy host may be late with an end


async def client(seed: int, ledger: str) -> None:
    """Make sandboxes and let them end in every way; a line for each fault. Killed from outside."""
    from proctor.core.sandbox import CommandSpec, SandboxError, SandboxSpec, State, StopReason
    from proctor.engine.sandboxes import Sandboxes
    from proctor.meter.ledger import Ledger

    engine = Sandboxes(most=EACH, memory_mib=EACH * 400, ledger=Ledger(ledger))
    await engine.start()
    chance = random.Random(seed)

    async def one() -> None:
        lease = chance.uniform(0.3, 3.0)
        ceiling = chance.choice([None, None, 2])
        box = await engine.create(
            SandboxSpec(memory_mib=64, disk_mib=16, timeout_seconds=lease, max_cost_micros=ceiling)
        )
        loop = chance.random() < 0.5
        source = "while True: pass" if loop else "import time; print('x' * 10000); time.sleep(60)"
        work = asyncio.ensure_future(
            engine.run_command(box.id, CommandSpec(argv=("python3", "-c", source), timeout_s=60))
        )
        if chance.random() < 0.3:
            await asyncio.sleep(chance.uniform(0, lease))
            await engine.delete(box.id)
        else:
            while engine.get(box.id).state is State.RUNNING:
                await asyncio.sleep(0.05)
                if time.time() > box.expires_at + LATE_S:
                    print(json.dumps({"fault": f"{box.id} outlived its lease"}), flush=True)
                    break
            info = engine.get(box.id).info()
            if info.stop_reason is StopReason.LEASE and info.stopped_at < info.expires_at:
                print(json.dumps({"fault": f"{box.id} ended early"}), flush=True)
            if info.stop_reason not in (StopReason.LEASE, StopReason.COST):
                print(json.dumps({"fault": f"{box.id} ended by {info.stop_reason}"}), flush=True)
            if info.stop_reason is StopReason.COST and ceiling is None:
                print(json.dumps({"fault": f"{box.id} had no ceiling"}), flush=True)
        (result,) = await asyncio.gather(work, return_exceptions=True)
        if not isinstance(result, SandboxError):
            print(json.dumps({"fault": f"a command of a sandbox that ended gave {result!r}"}), flush=True)
        print(json.dumps({"done": 1}), flush=True)

    running: set[asyncio.Task[None]] = set()
    while True:
        while len(running) < EACH + 2:
            running.add(asyncio.ensure_future(one()))
        done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


def left() -> list[str]:
    """What of sandboxes is on this host now."""
    found = []
    space = os.stat("/proc/self/ns/pid").st_ino  # engines of other containers are no concern of this one
    for folder, inside, _ in os.walk("/sys/fs/cgroup"):
        found += [f"{folder}/{name}" for name in inside if name.startswith("proctor-") and f"-{space}-" in name]
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if b"guest/main.py" in command:
                found.append(f"process {entry}")
    return found


def main(seconds: float, seed: int) -> int:
    chance = random.Random(seed)
    before = set(left())
    end = time.monotonic() + seconds
    faults: list[str] = []
    done = kills = 0
    with tempfile.TemporaryDirectory() as folder:
        clients: list[tuple[subprocess.Popen[bytes], object]] = []

        def start() -> None:
            out = tempfile.TemporaryFile()  # noqa: SIM115  # closed when it was read
            command = [
                sys.executable,
                str(Path(__file__)),
                "--client",
                str(chance.randrange(1 << 30)),
                f"{folder}/l.sqlite",
            ]
            clients.append((subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT), out))

        def collect(process: subprocess.Popen[bytes], out: object) -> None:
            nonlocal done
            process.wait()
            out.seek(0)  # type: ignore[attr-defined]
            for line in out.read().decode("utf-8", "replace").splitlines():  # type: ignore[attr-defined]
                try:
                    said = json.loads(line)
                except ValueError:
                    faults.append(line)
                    continue
                done += "done" in said
                if "fault" in said:
                    faults.append(said["fault"])
            out.close()  # type: ignore[attr-defined]

        for _ in range(CLIENTS):
            start()
        while time.monotonic() < end:
            time.sleep(chance.uniform(1, 6))
            process, out = clients.pop(chance.randrange(len(clients)))
            process.send_signal(signal.SIGKILL)
            kills += 1
            collect(process, out)
            start()
        for process, _ in clients:
            process.send_signal(signal.SIGKILL)
        for process, out in clients:
            collect(process, out)
        deadline = time.monotonic() + 60
        while (remains := set(left()) - before) and time.monotonic() < deadline:
            time.sleep(0.1)
    print(
        f"{done} sandboxes ended as they should, {kills + CLIENTS} clients killed, {len(faults)} faults, {len(remains)} left"
    )
    for line in [*faults[:20], *sorted(remains)[:20]]:
        print(" ", line)
    return 1 if faults or remains else 0


if __name__ == "__main__":
    if sys.argv[1] == "--client":
        asyncio.run(client(int(sys.argv[2]), sys.argv[3]))
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
