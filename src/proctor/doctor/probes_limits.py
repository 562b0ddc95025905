"""Probes of how much a program may use."""

from __future__ import annotations

from proctor.core.outcome import EndedBy
from proctor.doctor.probe import LIMITS, Probe, at_most, ended_by

CGROUP = (
    "a writable cgroup with the memory and pids controllers: run as root, under `systemd-run --user --scope -p Delegate=yes`, "
    "or in a container with a delegated cgroup"
)
NONE = "nothing: this is a fault of Proctor's, please report it"
# A limit may be overstepped by as much as is used between two looks at it.
SLACK = 1.25
PROCESSES = LIMITS.with_(cpu_s=2.0)
MEMORY = LIMITS.with_(cpu_s=3.0, wall_s=8.0)

COUNTED = """
count = 0
def say():
    print(json.dumps({"count": count}), flush=True)
"""

BOUNDS: tuple[Probe, ...] = (
    Probe(
        key="memory",
        title="memory of one process",
        limits=MEMORY,
        judge=at_most(MEMORY.memory_mib * SLACK, "MiB", EndedBy.MEMORY, floor=8),
        remedy=CGROUP,
        program=COUNTED
        + """
held = []
try:
    for _ in range(48):
        held.append(bytearray(b"x") * (8 << 20))
        count += 8
        say()
except MemoryError:
    pass
say()
""",
    ),
    Probe(
        key="memory_tree",
        title="memory of all processes together, shared mappings and files",
        limits=MEMORY,
        judge=at_most(MEMORY.memory_mib * SLACK, "MiB", EndedBy.MEMORY, floor=8),
        remedy=CGROUP,
        program=COUNTED
        + """
import mmap, time
read, write = os.pipe()
for _ in range(6):
    if os.fork() == 0:
        data = bytearray(b"x") * (32 << 20)
        shared = mmap.mmap(-1, 16 << 20)
        for at in range(0, 16 << 20, 4096):
            shared[at] = 1
        os.write(write, b"x")
        time.sleep(1.5)
        os._exit(0)
os.close(write)
while os.read(read, 1):
    count += 48
    say()
say()
""",
    ),
    Probe(
        key="cpu",
        title="CPU time of one process",
        judge=ended_by(EndedBy.CPU),
        remedy=NONE,
        program="while True: pass",
    ),
    Probe(
        key="cpu_tree",
        title="CPU time of all processes together",
        limits=LIMITS.with_(wall_s=16.0),
        judge=ended_by(EndedBy.CPU),
        remedy=CGROUP,
        # One after the other: gVisor's clock of a process goes on while the host runs something else, so that six of
        # them side by side on a busy host of two cores counted their half second with under a sixth of it used.
        program="""
import time
for _ in range(12):
    if os.fork() == 0:
        end = time.process_time() + 0.5 * host["pace"]
        while time.process_time() < end: pass
        os._exit(0)
    os.wait()
print("overstayed")
""",
    ),
    Probe(
        key="wall",
        title="wall time of a sleeper that blocks all signals",
        limits=LIMITS.with_(wall_s=1.0),
        judge=ended_by(EndedBy.WALL),
        remedy=NONE,
        program="""
import signal
signal.alarm(20)
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGALRM})
for number in (1, 2, 3, 15):
    signal.signal(number, signal.SIG_IGN)
for fd in range(3):
    os.close(fd)
while True:
    signal.sigtimedwait([signal.SIGTERM], 20)
""",
    ),
    Probe(
        key="processes_limit",
        title="number of processes and threads",
        limits=PROCESSES,
        judge=at_most(PROCESSES.processes, "processes"),
        remedy=CGROUP,
        program=COUNTED
        + """
import signal
signal.alarm(10)
count = 1
try:
    for _ in range(200):
        if os.fork() == 0:
            signal.alarm(10)
            signal.pause()
            os._exit(0)
        count += 1
except OSError:
    pass
say()
os._exit(0)
""",
    ),
    Probe(
        key="open_files",
        title="open files",
        judge=at_most(LIMITS.open_files, "descriptors"),
        remedy=NONE,
        program=COUNTED
        + """
count = 3
try:
    for _ in range(2000):
        os.dup(0)
        count += 1
except OSError:
    pass
say()
""",
    ),
    Probe(
        key="output",
        title="output, on both streams",
        judge=ended_by(EndedBy.OUTPUT),
        remedy=NONE,
        program="""
for _ in range(64):
    os.write(2, b"e" * (1 << 16))
    os.write(1, b"o" * (1 << 16))
""",
    ),
    Probe(
        key="workspace",
        title="bytes in /workspace and /tmp together",
        judge=at_most(LIMITS.workspace_mib * SLACK, "MiB", EndedBy.MEMORY, floor=0.5),
        remedy="run as root or allow user namespaces, for a file system of a fixed size",
        program=COUNTED
        + """
for number in range(64):
    for folder in (os.getcwd(), "/tmp", "/dev/shm"):
        try:
            with open(f"{folder}/escape_mark_{number}", "xb", buffering=0) as file:
                for _ in range(4):
                    count += file.write(b"x" * (1 << 18)) / (1 << 20)
        except OSError:
            pass
say()
""",
    ),
    Probe(
        key="inodes",
        title="files in /workspace and /tmp together",
        judge=at_most(LIMITS.workspace_inodes + 8, "files", floor=16),
        remedy="run as root or allow user namespaces, for a file system of a fixed size; in gVisor a newer runsc",
        program=COUNTED
        + """
for number in range(1000):
    for folder in (os.getcwd(), "/tmp"):
        try:
            os.mkdir(f"{folder}/escape_mark_{number}")
            count += 1
        except OSError:
            pass
say()
""",
    ),
    Probe(
        key="sparse_files",
        title="a file's size",
        judge=at_most(LIMITS.workspace_mib * SLACK, "MiB", floor=0),
        remedy=NONE,
        program=COUNTED
        + """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    fd = os.open("escape_mark_sparse", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 40)
    count = os.fstat(fd).st_size >> 20
except OSError:
    pass
say()
""",
    ),
)
