"""Every limit bites, the first time and the next, and is named; and what is within them is left alone.

Runs as root, as an ordinary user and in a locked-down container. Where a
kind of place cannot hold a limit in one way (its features say so), the test
says what holds there instead.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_help import PATIENCE, finished, gone, leavings, left, marked, one, run, trainer

from proctor.core.limits import Limits
from proctor.core.outcome import EndedBy, Outcome
from proctor.engine.job import MAX_STDIN, Case, Job
from proctor.engine.languages import program
from proctor.engine.shared import SyncEngine

pytestmark = pytest.mark.environments
MIB = 1 << 20
WIDE = Limits(cpu_s=20, wall_s=60, memory_mib=256)


def twice(engine: SyncEngine, source: str, limits: Limits, stdin: bytes = b"") -> list[Outcome]:
    """The same case in a fresh jail, again in that jail, and in the next one on the slot."""
    found = [outcome for _ in range(2) for outcome in run(engine, source, stdin, stdin, limits=limits)][:3]
    assert [outcome.error for outcome in found] == [None] * 3
    return found


def ended(engine: SyncEngine, source: str, by: EndedBy, limits: Limits) -> list[Outcome]:
    found = twice(engine, source, limits)
    assert [outcome.ended_by for outcome in found] == [by] * 3
    assert all(outcome.signal == signal.SIGKILL or outcome.exit_code is not None for outcome in found)
    assert not gone(lambda: marked("12345.678"))
    return found


@pytest.fixture(scope="module")
def engine() -> Iterator[SyncEngine]:
    """One slot, so that each job follows on what the one before left."""
    engine = SyncEngine(slots=1)
    yield engine
    engine.close()
    assert not gone(left)


# ---------------------------------------------------------------- time


def test_cpu_of_one_process(engine: SyncEngine) -> None:
    for outcome in ended(engine, "while True: pass", EndedBy.CPU, Limits(cpu_s=0.2, wall_s=30)):
        assert 0.2 < outcome.cpu_s < 5


@pytest.mark.parametrize("then", ["os.wait()", "while True: pass"])
def test_cpu_of_eight_processes(engine: SyncEngine, then: str) -> None:
    source = f"import os\nfor _ in range(7):\n    if os.fork() == 0:\n        while True: pass\n{then}"
    for outcome in ended(engine, source, EndedBy.CPU, Limits(cpu_s=0.25, wall_s=30)):
        assert 0.25 < outcome.cpu_s < 5


def test_cpu_of_children_that_are_gone(engine: SyncEngine) -> None:
    """Each child uses little, and all together too much."""
    source = """
import os, time
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.05
        while time.process_time() < end: pass
        os._exit(0)
    os.wait()
"""
    ended(engine, source, EndedBy.CPU, Limits(cpu_s=0.15, wall_s=30))


def test_cpu_of_a_session_of_its_own(engine: SyncEngine) -> None:
    source = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: pass
    os._exit(0)
os.wait()
time.sleep(1000)
"""
    ended(engine, source, EndedBy.CPU, Limits(cpu_s=0.15, wall_s=30))


def test_cpu_that_the_kernel_spends(engine: SyncEngine) -> None:
    source = "import os\nfd = os.open('/dev/zero', os.O_RDONLY)\nwhile True: os.read(fd, 1 << 20)"
    ended(engine, source, EndedBy.CPU, Limits(cpu_s=0.15, wall_s=30))


@pytest.mark.parametrize(
    "source",
    [
        "import time; time.sleep(12345.678)",
        "import signal, time\nfor n in set(range(1, 65)) - {9, 19, 32, 33}: signal.signal(n, signal.SIG_IGN)\ntime.sleep(12345.678)",
        "import os\nr, w = os.pipe()\nos.read(r, 1)",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
        "import subprocess; subprocess.run(['sleep', '12345.678'])",
        "import threading; threading.Thread(target=threading.Event().wait).start()",
    ],
    ids=["sleeps", "ignores signals", "waits for input", "stops itself", "waits for a child", "waits for a thread"],
)
def test_wall(engine: SyncEngine, source: str) -> None:
    for outcome in ended(engine, source, EndedBy.WALL, Limits(cpu_s=5, wall_s=0.25)):
        assert 0.25 <= outcome.wall_s < 20
        assert outcome.cpu_s < 2


def test_the_kernels_own_count_comes_long_after_the_limit(engine: SyncEngine) -> None:
    """Its ticks may be those of a busy host: the jail's word on CPU time is the one that counts."""
    found = one(engine, "import resource; print(resource.getrlimit(resource.RLIMIT_CPU)[0])", limits=Limits(cpu_s=2))
    assert int(found.stdout) == -1 if engine.features["cpu"] else int(found.stdout) >= 10 * 2


def test_a_programs_own_clock_is_as_fine_as_elsewhere(engine: SyncEngine) -> None:
    """A limit of the kernel's own on CPU time would have it move by ticks: nothing that is short would take any time."""
    source = "import time\nseen = {time.process_time_ns() for _ in range(3000)}\nprint(len(seen))"
    for outcome in twice(engine, source, WIDE):
        assert int(outcome.stdout) > 1000 or not engine.features["cpu"]


def test_cpu_of_one_case_is_not_charged_to_the_next(engine: SyncEngine) -> None:
    """Each uses more than half of the limit."""
    source = "import time\nwhile time.process_time() < 0.6: pass\nprint(sum(map(int, input().split())))"
    found = run(engine, source, b"3 4", b"10 -2", b"1 1", limits=Limits(cpu_s=1.0, wall_s=30))
    assert [(o.stdout, o.ended_by, o.error) for o in found] == [
        (b"7\n", None, None),
        (b"8\n", None, None),
        (b"2\n", None, None),
    ]
    assert all(0.5 < outcome.cpu_s < 1.2 for outcome in found)


def test_usage_is_of_the_case_alone(engine: SyncEngine) -> None:
    big = "x = bytearray(b'x') * (100 << 20)\nimport time\nwhile time.process_time() < 0.3: pass"
    heavy = one(engine, big, limits=WIDE)
    light = one(engine, "print(1)", limits=WIDE)
    assert heavy.cpu_s > 0.25
    assert light.cpu_s < 0.2
    assert (heavy.peak_memory_bytes or 100 * MIB) > 90 * MIB
    assert (light.peak_memory_bytes or 0) < 30 * MIB


# ---------------------------------------------------------------- memory

TOUCH = "x = bytearray(b'x') * (200 << 20)\nprint(len(x))"


def test_memory_on_the_first_run() -> None:
    """In a box that nothing has run in yet."""
    engine = SyncEngine(slots=1)
    (outcome,) = run(engine, TOUCH, limits=Limits(memory_mib=64, cpu_s=20))
    engine.close()
    assert (outcome.ended_by, outcome.stdout) == (EndedBy.MEMORY, b"")


MEMORY = {
    "one object": TOUCH,
    "bit by bit": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "small objects": "x = []\nwhile True: x.append([x])",
    "eight processes": "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        x = bytearray(b'x') * (20 << 20)\n        time.sleep(50)\nos.wait()",
    "shared memory": "import mmap\nm = mmap.mmap(-1, 200 << 20)\nfor i in range(0, 200 << 20, 4096): m[i] = 1",
    "shared memory of a child": "import mmap, os\nm = mmap.mmap(-1, 200 << 20)\nif os.fork() == 0:\n    for i in range(0, 200 << 20, 4096): m[i] = 1\n    os._exit(0)\nos.wait()\nimport time; time.sleep(50)",
    "a thread": "import threading, time\ndef f():\n    x = bytearray(b'x') * (200 << 20)\n    time.sleep(50)\nthreading.Thread(target=f).start()",
}  # fmt: skip
FILES = {
    "memory files": "import os\nwhile True: os.write(os.memfd_create('x'), b'x' * (20 << 20))",
    "files in the workspace": "f = open('f', 'wb')\nwhile True: f.write(b'x' * (1 << 20))",
    "files in /tmp": "i = 0\nwhile True:\n    i += 1\n    open(f'/tmp/{i}', 'wb').write(b'x' * (1 << 20))",
    "pipes": "import fcntl, os\nwhile True:\n    r, w = os.pipe()\n    fcntl.fcntl(w, 1031, 1 << 20)\n    os.write(w, b'x' * (1 << 20))",
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory(engine: SyncEngine, name: str) -> None:
    for outcome in ended(engine, MEMORY[name], EndedBy.MEMORY, Limits(memory_mib=64, cpu_s=20, wall_s=60)):
        assert outcome.stdout == b""


@pytest.mark.parametrize("name", FILES)
def test_memory_that_files_hold(engine: SyncEngine, name: str) -> None:
    limits = Limits(memory_mib=64, workspace_mib=512, workspace_inodes=100_000, cpu_s=20, wall_s=60)
    if engine.features["memory"]:
        ended(engine, FILES[name], EndedBy.MEMORY, limits)
    else:  # no group counts them: bounded they are all the same, by other limits
        for outcome in twice(engine, FILES[name], limits.with_(workspace_mib=64, cpu_s=2)):
            assert not outcome.ok


def test_memory_within_the_limit(engine: SyncEngine) -> None:
    source = "x = bytearray(b'x') * (40 << 20)\nopen('f', 'wb').write(b'x' * (10 << 20))\nprint(len(x))"
    for outcome in twice(engine, source, Limits(memory_mib=96, cpu_s=20)):
        assert (outcome.ended_by, outcome.stdout) == (None, b"%d\n" % (40 * MIB))


def test_input_does_not_count_as_the_programs_memory(engine: SyncEngine) -> None:
    for outcome in twice(engine, "print(1)", Limits(memory_mib=32, cpu_s=20), stdin=bytes(40 * MIB)):
        assert (outcome.ended_by, outcome.stdout) == (None, b"1\n")


# ---------------------------------------------------------------- output

WRITERS = {
    "at once": "import os\nos.write(1, b'0123456789' * 2_000_000)\nimport time; time.sleep(50)",
    "in small pieces": "import os\nwhile True: os.write(1, b'0123456789')",
    "through print": "while True: print('0123456789', end='')",
    "by a child": "import os\nif os.fork() == 0:\n    while True: os.write(1, b'0123456789')\nos.wait()",
    "at the end": "import os\nos.write(1, b'0123456789' * 200_000)",
}


@pytest.mark.parametrize("name", WRITERS)
def test_output(engine: SyncEngine, name: str) -> None:
    """Exactly the first bytes are kept."""
    size = 100_003
    for outcome in ended(engine, WRITERS[name], EndedBy.OUTPUT, WIDE.with_(output_bytes=size)):
        assert outcome.stdout == (b"0123456789" * (size // 10 + 1))[:size]
        assert outcome.stdout_truncated
        assert not outcome.stderr_truncated


def test_output_on_stderr(engine: SyncEngine) -> None:
    """What is over the kept part is cut, what is over the limit ends the program."""
    limits = WIDE.with_(output_bytes=200_000, stderr_keep=1000)
    for outcome in twice(engine, "import os\nos.write(2, b'0123456789' * 10_000)\nprint(1)", limits):
        assert (outcome.ended_by, outcome.stdout, outcome.stderr) == (None, b"1\n", b"0123456789" * 100)
        assert outcome.stderr_truncated
        assert not outcome.stdout_truncated
    for outcome in ended(engine, "import os\nwhile True: os.write(2, b'0123456789')", EndedBy.OUTPUT, limits):
        assert outcome.stderr == b"0123456789" * 100


@pytest.mark.parametrize("keep", [0, 1, 99_999, 100_000, 100_001])
def test_what_is_kept_of_the_output(engine: SyncEngine, keep: int) -> None:
    (outcome,) = run(engine, "print('x' * 99_999)", limits=WIDE.with_(stdout_keep=keep))
    assert (outcome.ended_by, outcome.exit_code) == (None, 0)
    assert outcome.stdout == (b"x" * 99_999 + b"\n")[:keep]
    assert outcome.stdout_truncated == (keep < 100_000)


def test_no_output_allowed(engine: SyncEngine) -> None:
    assert one(engine, "pass", limits=WIDE.with_(output_bytes=0)).ok
    assert one(engine, "print(1)", limits=WIDE.with_(output_bytes=0)).ended_by is EndedBy.OUTPUT


@pytest.mark.parametrize("extra", [0, 1])
def test_the_widest_output(engine: SyncEngine, extra: int) -> None:
    size = 16 * MIB
    outcome = one(engine, f"import sys\nsys.stdout.write('x' * {size + extra})", limits=WIDE)
    assert outcome.stdout == b"x" * size
    assert outcome.ended_by is (EndedBy.OUTPUT if extra else None)


# ---------------------------------------------------------------- counts


def test_processes(engine: SyncEngine) -> None:
    source = """
import os, time
count = 1
try:
    while count < 200:
        if os.fork() == 0:
            time.sleep(50)
        count += 1
except BlockingIOError:
    print(count)
else:
    print("all of them")
"""
    for outcome in twice(engine, source, WIDE.with_(processes=20)):
        assert outcome.ended_by is None
        if engine.features["pids"] or engine.features["root"]:
            assert outcome.stdout == b"20\n"
            assert outcome.left_processes == 19
        else:  # the user's other processes count as well, so the bound is a coarse one
            assert outcome.stdout == b"all of them\n" or int(outcome.stdout) >= 20


def test_threads(engine: SyncEngine) -> None:
    source = """
import threading, time
count = 1
try:
    while count < 200:
        threading.Thread(target=time.sleep, args=(50,), daemon=True).start()
        count += 1
except RuntimeError:
    print(count, flush=True)
else:
    print("all of them", flush=True)
import os; os._exit(0)
"""
    for outcome in twice(engine, source, WIDE.with_(processes=20)):
        if engine.features["pids"] or engine.features["root"]:
            assert (outcome.ended_by, outcome.stdout) == (None, b"20\n")


def test_the_dead_of_one_case_do_not_count_in_the_next(engine: SyncEngine) -> None:
    source = "import os\nfor _ in range(15):\n    if os.fork() == 0: os._exit(0)\nprint(1)"
    found = run(engine, source, *[b""] * 5, limits=WIDE.with_(processes=20))
    assert [outcome.stdout for outcome in found] == [b"1\n"] * 5


def test_a_bomb(engine: SyncEngine) -> None:
    source = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    for outcome in twice(engine, source, Limits(cpu_s=0.2, wall_s=20, processes=30)):
        assert outcome.ended_by in (EndedBy.CPU, EndedBy.WALL)
    assert one(engine, "print(1)").stdout == b"1\n"


def test_open_files(engine: SyncEngine) -> None:
    source = "import os\nfiles = []\ntry:\n    while True: files.append(os.open('/dev/null', 0))\nexcept OSError as e: print(max(files), e.errno)"
    for outcome in twice(engine, source, WIDE.with_(open_files=40)):
        assert outcome.stdout == b"39 24\n"


def fill(unit: int, many: bool) -> str:
    name = "f'{count}'" if many else "'file'"
    return f"""
import os
count, out = 0, None
try:
    while True:
        out = out if out and not {many} else open({name}, "wb", buffering=0)
        size = out.write(bytes({unit}))
        count += 1
        if size != {unit}: break
except OSError as error:
    print(error.errno, count)
else:
    print(28, count)
"""


@pytest.mark.parametrize("place", [".", "/tmp"])
@pytest.mark.parametrize("many", [False, True], ids=["one file", "many files"])
def test_workspace_bytes(engine: SyncEngine, place: str, many: bool) -> None:
    source = f"import os\nos.chdir('{place}' if '{place}' == '.' else os.environ.get('TMPDIR', '/tmp'))\n" + fill(
        MIB // 4, many
    )
    for outcome in (
        twice(engine, source, WIDE.with_(workspace_mib=4, workspace_inodes=1000, output_bytes=1000))
        if engine.features["namespaces"] or not many
        else []
    ):
        error, count = map(int, outcome.stdout.split())
        assert error in (27, 28)  # too large, or no space
        assert 13 <= count <= 17


def test_workspace_inodes(engine: SyncEngine) -> None:
    if not engine.features["namespaces"]:
        pytest.skip("without a mount of its own the workspace has no bound on files")
    source = "import os\nn = 0\ntry:\n    while True:\n        os.mkdir(str(n))\n        n += 1\nexcept OSError as e: print(e.errno, n)"
    for outcome in twice(engine, source, WIDE.with_(workspace_inodes=100)):
        error, count = map(int, outcome.stdout.split())
        assert error == 28
        assert 90 <= count <= 110


def test_sparse_files_are_bounded(engine: SyncEngine) -> None:
    source = "import os\nf = os.open('f', os.O_RDWR | os.O_CREAT)\nos.ftruncate(f, 3 << 20)\ntry: os.ftruncate(f, 1 << 40)\nexcept OSError as e: print(e.errno, os.fstat(f).st_size)"
    for outcome in twice(engine, source, WIDE.with_(workspace_mib=4, output_bytes=1000)):
        assert outcome.stdout == b"27 3145728\n"


def test_what_is_within_the_limits_is_left_alone(engine: SyncEngine) -> None:
    source = """
import os, subprocess, threading
data = bytes(3 << 20)
open("file", "wb").write(data)
os.makedirs("a/b/c")
for i in range(20): open(f"a/b/c/{i}", "w").close()
threads = [threading.Thread(target=print, args=("t",)) for _ in range(5)]
[t.start() for t in threads]; [t.join() for t in threads]
print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip())
files = [open("file", "rb") for _ in range(20)]
print(len(files[7].read()))
"""
    for outcome in twice(
        engine,
        source,
        Limits(cpu_s=10, memory_mib=64, processes=10, open_files=40, workspace_mib=8, workspace_inodes=100),
    ):
        assert (outcome.stdout, outcome.stderr, outcome.ok) == (b"t\n" * 5 + b"child\n3145728\n", b"", True)


# ---------------------------------------------------------------- input


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 5 * MIB])
def test_input_of_any_size(engine: SyncEngine, size: int) -> None:
    stdin = bytes(range(256)) * (size // 256) + b"\r\n\0"[: size % 256]
    source = "import sys, zlib\ndata = sys.stdin.buffer.read()\nprint(len(data), zlib.crc32(data))"
    import zlib

    assert one(engine, source, stdin, limits=WIDE).stdout == b"%d %d\n" % (len(stdin), zlib.crc32(stdin))


def test_the_widest_input(engine: SyncEngine) -> None:
    stdin = bytes(MAX_STDIN)
    for source, answer in (
        ("print('never read')", b"never read\n"),
        ("print(len(open(0, 'rb').read()))", b"%d\n" % MAX_STDIN),
    ):
        assert one(engine, source, stdin, limits=WIDE).stdout == answer
    assert one(engine, "print(len(input()))", b"x" * 10 * MIB + b"\n" + bytes(MIB), limits=WIDE).stdout == b"%d\n" % (
        10 * MIB
    )


# ---------------------------------------------------------------- ends


def test_exit_statuses(engine: SyncEngine) -> None:
    found = run(engine, "import sys; sys.exit(int(input()))", *[b"%d" % code for code in range(256)])
    assert [outcome.exit_code for outcome in found] == list(range(256))
    assert all(outcome.error is None and outcome.signal is None and outcome.ended_by is None for outcome in found)


@pytest.mark.parametrize("warm", [True, False])
def test_deaths_by_signal(engine: SyncEngine, warm: bool) -> None:
    harmless = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGPIPE, signal.SIGXFSZ}
    stopping = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
    own = {32, 33}  # the C library's: nobody else can set them, so whatever started the tests decides
    numbers = [n for n in range(1, 65) if n not in stopping | own]
    found = run(
        engine,
        "import os; os.kill(os.getpid(), int(input())); print('alive')",
        *[b"%d" % n for n in numbers],
        warm=warm,
    )
    assert [outcome.error for outcome in found] == [None] * len(numbers)
    lived = {
        n for n, outcome in zip(numbers, found, strict=True) if outcome.exit_code == 0 and outcome.stdout == b"alive\n"
    }
    died = {n for n, outcome in zip(numbers, found, strict=True) if outcome.signal == n and outcome.ended_by is None}
    assert lived == harmless
    assert died == set(numbers) - harmless


def test_a_crash_of_the_interpreter(engine: SyncEngine) -> None:
    for outcome in twice(engine, "import ctypes; ctypes.string_at(0)", WIDE):
        assert (outcome.signal, outcome.ended_by) == (signal.SIGSEGV, None)


# ---------------------------------------------------------------- what is left


def test_survivors_are_dead_before_the_next_case(engine: SyncEngine) -> None:
    source = """
import os, subprocess, sys
word = input()
if word == "look":
    print(len([n for n in os.listdir("/proc") if n.isdigit()]) if os.path.isdir("/proc/self") else "cannot", subprocess.run(["true"]).returncode)
else:
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "12345.678"])
            os._exit(0)
    for _ in range(3): os.wait()
    print("left", flush=True)
"""
    before, first, after, again = run(engine, source, b"look", b"leave", b"look", b"leave", limits=WIDE)
    for outcome in (first, again):
        assert (outcome.stdout, outcome.exit_code, outcome.left_processes) == (b"left\n", 0, 3)
    assert before.left_processes == 0
    if engine.features["namespaces"]:
        assert after.stdout == before.stdout
    assert not marked("12345.678")


def test_a_child_that_is_left_does_not_hold_up_the_end(engine: SyncEngine) -> None:
    """It has the output open, which is no reason to wait."""
    start = time.monotonic()
    for outcome in twice(
        engine, "import os\nprint('done', flush=True)\nif os.fork() == 0:\n    while True: pass", Limits(cpu_s=50)
    ):
        assert (outcome.stdout, outcome.exit_code, outcome.left_processes) == (b"done\n", 0, 1)
    assert time.monotonic() - start < PATIENCE


def test_a_case_leaves_nothing_for_the_next(engine: SyncEngine) -> None:
    source = """
import ctypes, os
def attempt(act, *args):
    try: return act(*args)
    except OSError: return "denied"
temp = os.environ.get("TMPDIR", "/tmp")
libc = ctypes.CDLL(None, use_errno=True)
shared = libc.shmget(0x1234, 4096, 0o3666), libc.msgget(0x1234, 0o3666), libc.semget(0x1234, 1, 0o3666)
print(sorted(os.listdir(".")), sorted(os.listdir(temp)), attempt(os.listdir, "/dev/shm"), [x >= 0 for x in shared], os.umask(0o77), os.nice(0), os.environ.get("LEFT"))
os.environ["LEFT"] = "1"
for place in (".", temp):
    for name in ("file", ".hidden", ".bashrc", "solution.pyc"):
        open(f"{place}/{name}", "w").write("sleep 60")
    os.makedirs(f"{place}/a/b/c")
    attempt(os.chmod, f"{place}/a/b", 0)
    os.mkdir(f"{place}/closed", 0)
    attempt(os.symlink, "/etc/passwd", f"{place}/link")
    attempt(os.mkfifo, f"{place}/fifo")
attempt(os.chmod, ".", 0)
attempt(os.nice, 5)
print("all done")
"""
    found = twice(engine, source, WIDE)
    assert len({outcome.stdout for outcome in found}) == 1
    assert found[0].stdout.startswith(b"['solution.py'] [] ")
    assert found[0].stdout.endswith(b"all done\n"), found[0].stderr


def test_the_programs_own_files_come_back_after_each_case(engine: SyncEngine) -> None:
    source = """
import os
print(open("solution.py").read()[:10].strip(), open("data/in.txt").read())
try: open("data/in.txt", "w").write("changed")
except OSError as error: print(error.errno)
else: print("written")
os.remove("solution.py") if os.access(".", os.W_OK) else None
"""
    made = Job(program(source, files={"data/in.txt": b"text"}), (Case(), Case(), Case()), WIDE)
    found = engine.run(made)
    assert {outcome.stdout for outcome in found} == {b"import os text\n13\n"}


# ---------------------------------------------------------------- limits that the trainer was started under

CHECKS = """
engine = SyncEngine(slots=1)
for text, stdin, limits in [
    ("print(sum(map(int, input().split())))", b"3 4", Limits(cpu_s=5, memory_mib=128)),
    ({source!r}, b"", Limits(cpu_s=5, memory_mib=256)),
]:
    (outcome,) = engine.run(job(text, stdin, limits=limits))
    right = outcome.ok and outcome.stdout.endswith(b"7\\n")
    print("right" if right else "error" if outcome.error and "ulimit" in outcome.error else outcome, flush=True)
engine.close()
"""
# What the trainer's shell has set, and a program that is within its own limits but not within that.
INHERITED = {
    "v": (
        resource.RLIMIT_AS,
        600 * MIB,
        "import mmap; x = mmap.mmap(-1, 200 << 20); y = bytearray(100 << 20); print(7)",
    ),
    "d": (resource.RLIMIT_DATA, 200 * MIB, "x = bytearray(220 << 20); print(7)"),
    "t": (resource.RLIMIT_CPU, 2, "import time\nwhile time.process_time() < 2.3: pass\nprint(7)"),
    "n": (resource.RLIMIT_NOFILE, 40, "files = [open('/dev/null') for _ in range(100)]; print(7)"),
    "f": (resource.RLIMIT_FSIZE, MIB, "import sys; sys.stdout.write('x' * 3_000_000); print(7)"),
    "s": (resource.RLIMIT_STACK, MIB, "def f(n): return n and f(n - 1)\nf(900); print(7)"),
    "u": (
        resource.RLIMIT_NPROC,
        3_000,
        "import threading; [threading.Thread(target=str).start() for _ in range(20)]; print(7)",
    ),
}


@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
@pytest.mark.parametrize("name", INHERITED)
def test_inherited_limits_make_no_zeros(name: str, hard: bool) -> None:
    """Undone where this user may; where not, a program that would suffer is an error, and never its own fault."""
    which, size, source = INHERITED[name]
    top = resource.getrlimit(which)[1]

    def lower() -> None:
        resource.setrlimit(which, (size, size if hard else top))

    with trainer(CHECKS.format(source=source), preexec_fn=lower) as process:
        out, err = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 0, err
    verdicts = out.splitlines()
    assert len(verdicts) == 2
    assert set(verdicts) <= ({"right", "error"} if hard else {"right"}), out
    assert not gone(lambda: leavings(process.pid))


def test_the_hosts_want_of_memory_is_not_the_programs() -> None:
    """A control group above ours is full: the kernel kills a program that was within its own limit."""
    groups = _parent_group()
    if groups is None:
        pytest.skip("no control group of memory (version 1) that this user may make")
    group, join = groups
    script = """
engine = SyncEngine(slots=1)
(outcome,) = engine.run(job("x = bytearray(b'x') * (400 << 20); print(1)", limits=Limits(memory_mib=1000, cpu_s=20)))
print(outcome.error, outcome.ended_by)
(outcome,) = engine.run(job("x = bytearray(b'x') * (400 << 20); print(1)", limits=Limits(memory_mib=100, cpu_s=20)))
print(outcome.error, outcome.ended_by)
engine.close()
from proctor.engine.capacity import free_mib
print(0 < free_mib() <= 200)
"""
    try:
        with trainer(script, preexec_fn=join) as process:
            out, err = process.communicate(timeout=2 * PATIENCE)
    finally:
        assert gone(lambda: [] if _removed(group) else [group]) == []
    assert not err
    first, second, budget = out.splitlines()
    assert budget == "True"  # of that group, not of the machine
    assert "ran out of memory" in first
    assert first.endswith("None")
    assert second == "None memory_limit" or second == f"None {EndedBy.MEMORY}"


def _removed(group: str) -> bool:
    import os

    try:
        os.rmdir(group)
    except OSError:
        pass
    return not os.path.isdir(group)


def _parent_group() -> tuple[str, Callable[[], None]] | None:
    """A group of this test with a bound of 200 MiB, and what makes a process join it."""
    import os

    lines = Path("/proc/self/cgroup").read_text().splitlines()
    place = next((line.split(":", 2)[2] for line in lines if line.split(":")[1] == "memory"), None)
    path = f"/sys/fs/cgroup/memory{place}/test-of-{os.getpid()}"
    try:
        os.mkdir(path)
        with open(f"{path}/memory.limit_in_bytes", "w") as file:
            file.write(str(200 * MIB))
    except OSError:
        return None

    def join() -> None:
        with open(f"{path}/cgroup.procs", "w") as file:
            file.write("0")

    return path, join


# ---------------------------------------------------------------- what passes some walls where others are missing


FORGETTING = """
import os, signal, sys, time
if {how!r} == "ignore":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
else:
    import ctypes
    action = (ctypes.c_ulong * 19)()
    action[0], action[17] = 0, 2  # SIG_DFL, SA_NOCLDWAIT
    ctypes.CDLL(None).sigaction(17, action, None)
for _ in range(300):
    if os.fork() == 0:
        until = time.process_time() + 0.005
        while time.process_time() < until: pass
        os._exit(0)
    try:
        os.wait()
    except ChildProcessError:
        pass  # it is over, and left no zombie
print("done")
"""


@pytest.mark.parametrize("how", ["ignore", "no zombies"])
def test_cpu_of_children_that_nobody_waits_for(engine: SyncEngine, how: str) -> None:
    """They would leave no trace where the CPU of a tree is summed up from its processes."""
    for outcome in ended(engine, FORGETTING.format(how=how), EndedBy.CPU, Limits(cpu_s=0.4, wall_s=20)):
        assert outcome.wall_s < 40


# An orphan whose state changes wakes whoever is pid 1, or adopts; what follows is ready to run for a moment each time.
WAKING = """
import os, signal, time
up, down = os.pipe()
if os.fork() == 0:
    if (orphan := os.fork()) == 0:
        while True:
            signal.pause()
    os.write(down, orphan.to_bytes(4, "little"))
    os._exit(0)
os.wait()
orphan = int.from_bytes(os.read(up, 4), "little")
while True:
    for how in signal.SIGSTOP, signal.SIGCONT:
        time.sleep(0.0087)
        os.kill(orphan, how)
        end = time.monotonic() + 0.0003
        while time.monotonic() < end: pass
"""


def test_no_program_chooses_when_it_is_looked_at(engine: SyncEngine) -> None:
    """One that has its watch woken, and is ready to run just then, does not look like one that waits for a CPU."""
    for outcome in ended(engine, WAKING, EndedBy.WALL, Limits(cpu_s=5, wall_s=1.5)):
        assert outcome.wall_s < 3.5


def test_what_the_jail_computes_is_not_told(engine: SyncEngine) -> None:
    """When it computes is when it looks: its CPU clock would tell, and so would its numbers in /proc."""
    source = """
import time
told = []
for which in 2, 6:
    try:
        told.append(time.clock_gettime((~1 << 3) | which))
    except OSError:
        pass
for name in "stat", "status", "schedstat", "sched", "task/1/stat":
    try:
        told.append(open(f"/proc/1/{name}").read())
    except OSError:
        pass
print(told)
"""
    for outcome in twice(engine, source, WIDE):
        assert outcome.stdout == b"[]\n" or not engine.features["namespaces"]


@pytest.mark.parametrize(("metered", "times"), [(True, 10), (False, 2)])
def test_what_a_busy_host_is_forgiven(metered: bool, times: int) -> None:
    """Without a meter of its CPU a program can be the load that its main process waits for."""
    script = f"""
    import os, subprocess, types
    from proctor.guest.watch import Watch
    sleeper = subprocess.Popen(["sleep", "60"])
    signals, control = os.pipe()[0], os.pipe()[0]
    os.set_blocking(signals, False)
    group = types.SimpleNamespace(cpu={metered}, memory=True, cpu_ns=lambda: 0, oom_kills=lambda: 0, limit_hits=lambda: 0, held=lambda counted, start: counted, had=lambda counted, start: counted)
    watch = Watch(sleeper.pid, group=group, in_pid_namespace=False, signals=signals, control=control)
    watch._wants = lambda: True
    start = time.monotonic()
    how, _ = watch.run(
        dict(wall=10**8, memory=10**9, output=10**6), cpu_kill=10**12, steps=1, streams=(1, 2, -1),
        meters=dict(cpu=0, self=0, children=0, oom=0, hits=0), beat=lambda wall, waited: None, stopped=lambda: False,
    )
    sleeper.returncode = 0
    print(how, {times} * 0.1 <= time.monotonic() - start, {metered} or time.monotonic() - start < 0.9)
    """
    assert finished(script) == "wall_time True True\n"


def test_the_dead_are_collected_some_at_a_time() -> None:
    """A program that makes processes faster than they are collected must not keep its jail from the clock."""
    script = """
    import os, subprocess, types
    from proctor.guest.watch import Watch
    signals, control = os.pipe()[0], os.pipe()[0]
    os.set_blocking(signals, False)
    watch = Watch(0, group=types.SimpleNamespace(memory=True), in_pid_namespace=False, signals=signals, control=control)
    for _ in range(600):
        if os.fork() == 0:
            os._exit(0)
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        for pid in file.read().split():
            os.waitid(os.P_PID, int(pid), os.WEXITED | os.WNOWAIT)
    print(watch._reap(), os.waitpid(-1, os.WNOHANG)[0] > 0)
    sleeper = subprocess.Popen(["sleep", "60"])
    watch.sweep()
    sleeper.returncode = 0
    print(watch.left)
    """
    assert finished(script) == "False True\n1\n"


def test_children_that_are_waited_for_are_counted_and_no_more(engine: SyncEngine) -> None:
    source = """
import multiprocessing, signal, subprocess
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
for _ in range(5):
    subprocess.run(["true"], check=True)
print(subprocess.run("echo a | cat", shell=True, capture_output=True, text=True).stdout.strip())
process = multiprocessing.get_context("fork").Process(target=print, args=("b",), kwargs={"flush": True})
process.start(), process.join()
print(process.exitcode)
"""
    outcome = one(engine, source, limits=Limits(cpu_s=5))
    assert (outcome.stdout, outcome.ended_by) == (b"a\nb\n0\n", None), outcome.stderr


@pytest.mark.parametrize("warm", [True, False])
def test_an_interrupt_ends_the_program_and_not_the_jail(engine: SyncEngine, warm: bool) -> None:
    source = """
import os, signal, subprocess
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
print(subprocess.run(["sh", "-c", "kill -INT $$; sleep 9"]).returncode)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    try:
        os.kill(os.getppid(), number)
    except OSError:
        pass
print("on", flush=True)
os.kill(os.getpid(), signal.SIGINT)
"""
    for outcome in run(engine, source, b"", b"", limits=Limits(cpu_s=5, wall_s=30), warm=warm):
        assert outcome.error is None
        assert outcome.stdout == b"True\n-2\non\n"
        assert outcome.signal == signal.SIGINT
        assert b"KeyboardInterrupt" in outcome.stderr


def test_a_datagram_reaches_no_socket_of_the_host(engine: SyncEngine, tmp_path: Path) -> None:
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o777)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as host:
        host.bind(str(tmp_path / "s"))
        (tmp_path / "s").chmod(0o777)
        host.setblocking(False)
        source = """
import os, socket, sys
path = sys.stdin.read()
for attempt in (lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0], lambda: socket.socketpair()[0],
                lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)):
    for send in (lambda s: s.sendto(b"x", path), lambda s: s.sendmsg([b"x"], [], 0, path), lambda s: s.connect(path)):
        try:
            send(attempt())
            print("sent")
        except OSError:
            pass
a, b = socket.socketpair()
a.sendall(b"still here")
print(b.recv(100))
"""
        outcome = one(engine, source, str(tmp_path / "s").encode())
        assert outcome.stdout == b"b'still here'\n", outcome.stderr
        with pytest.raises(BlockingIOError):
            host.recv(10)


def test_a_program_has_no_hand_on_the_trainer(engine: SyncEngine) -> None:
    pid = os.getpid()
    before = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0), resource.getrlimit(resource.RLIMIT_NOFILE)
    source = """
import os, resource, sys, time
pid = int(sys.stdin.read())
attempts = {
    "user": lambda: os.setpriority(os.PRIO_USER, 0, 3), "nice": lambda: os.setpriority(os.PRIO_PROCESS, pid, 3),
    "cpus": lambda: os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))}),
    "batch": lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)),
    "files": lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (200, 200)),
    "session": lambda: os.getsid(pid), "clock": lambda: time.clock_gettime((~pid << 3) | 2),
}
for name, attempt in attempts.items():
    try:
        attempt()
        print(name)
    except OSError:
        pass
assert os.cpu_count() and os.sched_getaffinity(0) and os.getpriority(os.PRIO_PROCESS, 0) >= 0
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
"""
    outcome = one(engine, source, b"%d" % pid)
    assert (outcome.exit_code, outcome.stderr) == (0, b"")
    assert outcome.stdout in (b"", b"user\n")  # of its own namespace
    assert before == (
        os.getpriority(os.PRIO_PROCESS, 0),
        os.sched_getaffinity(0),
        resource.getrlimit(resource.RLIMIT_NOFILE),
    )


TANGLE = """
import os
if os.path.lexists("d"): raise SystemExit("left from before")
for n in range(1, 40):
    os.makedirs(f".proctor-{n}/.proctor-{n + 1}/x")
    os.makedirs(f"d/{n}/{n}/e")
    open(f".proctor-{n}/f", "w").close()
os.makedirs("name" * 60 + "/" + "name" * 60)
os.mkdir("shut", 0o000), os.makedirs("closed/in"), os.mkdir("closed/in/none", 0o000)
for n in range(400):
    os.mkdir(f"d/wide-{n}")
os.chdir("d")
for n in range(400):
    os.mkdir("deeper"), os.chdir("deeper")
print("ok")
"""


def test_directories_of_any_name_depth_and_width_are_removed(engine: SyncEngine) -> None:
    one(engine, "pass")
    agents = [link.agent.process.pid for link in engine._engine._links]
    for outcome in run(engine, TANGLE, b"", b"", limits=Limits(cpu_s=10, wall_s=30)):
        assert (outcome.error, outcome.stdout) == (None, b"ok\n"), outcome.stderr
    assert one(engine, TANGLE).stdout == b"ok\n"
    assert agents == [link.agent.process.pid for link in engine._engine._links]


@pytest.mark.parametrize("warm", [True, False])
def test_how_much_of_its_input_a_program_read(engine: SyncEngine, warm: bool) -> None:
    for source, read in (
        ("print(7)", 0),
        ("input(); print(7)", 10),
        ("import os; os.read(0, 4)", 4),
        ("import sys; sys.stdin.close()", 0),
        ("import os; os.lseek(0, (1 << 63) - 1, 0)", 10),
        ("import os; os.ftruncate(0, 0); os.lseek(0, 1 << 62, 0)", 10),
    ):
        (outcome,) = run(engine, source, b"3 4\n5 6 7\n", warm=warm)
        assert outcome.stdin_read == read, (source, outcome)


@pytest.mark.parametrize("warm", [True, False])
def test_a_program_may_raise_its_stack(engine: SyncEngine, warm: bool) -> None:
    """As programs that recurse do: their first line sets it, and no hard limit of the host's keeps them from it."""
    source = """import resource, sys
soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
resource.setrlimit(resource.RLIMIT_STACK, (min(hard, 1 << 28) if hard > 0 else 1 << 28, hard))
print(soft >> 20, hard == resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_STACK)[0] >> 20)
"""
    outcome = one(engine, source, warm=warm)
    free = resource.getrlimit(resource.RLIMIT_STACK)[1] == resource.RLIM_INFINITY
    assert outcome.stdout.split() == ([b"8", b"True", b"256"] if free else outcome.stdout.split()), outcome
    assert outcome.ok, outcome
