"""What no program of a sandbox can do, tried as a program would, in a first and a second sandbox of the same agent."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from box_help import Boxes

from proctor.core.sandbox import SandboxError
from proctor.engine.sandbox import Sandbox

SECRET = "a-word-of-the-host-2718"


@pytest.fixture(params=["first", "second"])
def place(boxes: Boxes, request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    box = boxes.new()
    if request.param == "second":
        boxes.sh(box, "echo left > /workspace/left; echo left > /tmp/left; echo left > /opt/left")
        boxes.run(boxes.engine.delete(box.id))
        box = boxes.new()
    yield box
    boxes.run(boxes.engine.delete(box.id))


def test_nothing_of_another_sandbox_is_there(boxes: Boxes, place: Sandbox) -> None:
    other = boxes.new(env={"SECRET": SECRET})
    boxes.sh(other, f"echo {SECRET} > /tmp/s; sleep 1000 > /dev/null 2>&1 &")
    out = boxes.sh(place, "ls -A /workspace /tmp /opt; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null; true")
    boxes.run(boxes.engine.delete(other.id))
    assert b"left" not in out.stdout
    assert SECRET.encode() not in out.stdout
    assert b"sleep" not in out.stdout


def test_no_file_of_the_host_but_its_system(boxes: Boxes, place: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    tries = [str(tmp_path / "secret"), "/etc/shadow", "/root/" + ".ssh", "/home", "/sys/kernel", "/proc/1/root/etc/shadow",
             "/proc/1/cwd", "/.layers", "/.skeleton", "/box", "/var/lib", "/run/secrets"]  # fmt: skip
    out = boxes.sh(place, "\n".join(f"ls -A {path} 2>/dev/null; cat {path} 2>/dev/null" for path in tries) + "\ntrue")
    assert out.stdout == b""
    out = boxes.sh(
        place,
        "find / -xdev -name secret 2>/dev/null; find / -newermt 2000-01-01 -name '*.pem' -readable -path '/home/*'; true",
    )
    assert out.stdout == b""


def test_the_image_cannot_be_changed_on_the_host(boxes: Boxes, place: Sandbox) -> None:
    python = Path(os.path.realpath(boxes.engine.ground.image.python))
    before = {
        path: (path.stat().st_mtime_ns, path.stat().st_size) for path in (python, Path("/usr/bin/env"), python.parent)
    }
    boxes.sh(place, f"for f in {python} /usr/bin/env /usr/local/bin; do echo x >> $f; rm -rf $f; mv $f /tmp; done 2>/dev/null; "
                    "touch /usr/local/bin/mine; ls /usr/local/bin")  # fmt: skip
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in before} == before
    assert not Path("/usr/local/bin/mine").exists()


def test_no_address_can_be_reached(boxes: Boxes, place: Sandbox) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    source = f"""
        import socket
        def tried(what, f):
            try:
                f(); print("REACHED", what)
            except OSError as exc:
                print("no", what, exc.errno)
        addresses = [("127.0.0.1", {port}), ("1.1.1.1", 53), ("10.0.0.1", 80), ("169.254.169.254", 80), ("192.168.0.1", 80)]
        for a in addresses:
            tried(a, lambda: socket.create_connection(a, 2))
            tried(("udp", a), lambda: (lambda s: (s.settimeout(1), s.sendto(b"x", a), s.recv(1)))(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
        tried("v6", lambda: socket.create_connection(("2606:4700:4700::1111", 80), 2))
        tried("name", lambda: socket.getaddrinfo("example.org", 80))
        tried("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
        tried("packet", lambda: socket.socket(17, socket.SOCK_RAW, 3))
        tried("netlink", lambda: socket.socket(16, socket.SOCK_RAW, 0))
        tried("vsock", lambda: socket.socket(40, socket.SOCK_STREAM).connect((2, 1)))
        tried("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0proctor-test-{port}"))
    """
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0proctor-test-{port}")
        abstract.listen()
        out = boxes.python(place, textwrap.dedent(source), timeout_s=60)
    server.close()
    assert b"REACHED" not in out.stdout, out.stdout
    assert out.stdout.count(b"no ") == 17, (out.stdout, out.stderr)


def test_the_walls_cannot_be_taken_down(boxes: Boxes, place: Sandbox) -> None:
    users = ["sandbox", *(["root"] if boxes.engine.features["root"] else [])]
    for user in users:
        out = boxes.sh(
            place,
            "unshare -U true && echo GOT userns; unshare -m true && echo GOT mount; mount -t proc p /mnt && echo GOT proc; "
            "umount -l /usr && echo GOT umount; chroot / true && echo GOT chroot; nsenter -t 1 -m true && echo GOT nsenter; "
            "echo 0 > /proc/sys/kernel/randomize_va_space && echo GOT sysctl; kill -9 1; kill -STOP 1; "
            "cat /proc/1/mem >/dev/null 2>&1 && echo GOT mem; ls /proc/1/fd >/dev/null 2>&1 && echo GOT fds; "
            "readlink /proc/1/exe && echo GOT exe; echo still", user=user,
        )  # fmt: skip
        assert b"GOT" not in out.stdout, out.stdout
        assert out.stdout.endswith(b"still\n")
    assert boxes.sh(place, "echo alive").stdout == b"alive\n"


def test_a_fork_bomb_ends_with_its_sandbox(boxes: Boxes, place: Sandbox) -> None:
    boxes.sh(place, ":(){ :|:& };:", timeout_s=2)
    other = boxes.new()
    assert boxes.sh(other, "echo fine", timeout_s=60).stdout == b"fine\n"
    boxes.run(boxes.engine.delete(other.id))
    boxes.run(boxes.engine.stop(place.id))
    with pytest.raises(SandboxError, match="stopped"):
        boxes.sh(place, "true")


def test_the_disk_is_bounded_in_bytes_and_in_files(boxes: Boxes, place: Sandbox) -> None:
    out = boxes.sh(place, "head -c 100000000 /dev/zero > /workspace/big; stat -c %s /workspace/big; rm /workspace/big; "
                          "head -c 100000000 /dev/zero > /tmp/big; stat -c %s /tmp/big; rm /tmp/big; echo ok > /tmp/x; cat /tmp/x")  # fmt: skip
    sizes = [int(word) for word in out.stdout.split()[:2]]
    assert all(0 < size <= 32 << 20 for size in sizes)
    assert out.stdout.endswith(b"ok\n")


def test_its_owner_does_not_follow_a_link_into_the_agent(boxes: Boxes, place: Sandbox) -> None:
    boxes.sh(place, "for i in $(seq 3 40); do ln -s /proc/1/fd/$i /workspace/fd$i; done; ln -s /proc/self/mem /workspace/mem; "
                    "mkfifo /workspace/pipe; ln -s /dev/zero /workspace/zero; ln -s /proc/1/environ /workspace/environ")  # fmt: skip
    for name in [*(f"fd{i}" for i in range(3, 41)), "mem", "pipe", "zero", "environ"]:
        with pytest.raises(SandboxError):
            boxes.file(place, "open", path=name)
        with pytest.raises(SandboxError):
            boxes.file(place, "write", b"x" * 10, path=name)
        with pytest.raises(SandboxError):
            boxes.file(place, "list", path=name)
    assert boxes.sh(place, "echo alive").stdout == b"alive\n"


SWAPPER = """
import os, time
os.mkdir("x")
for i in range(400):
    os.mkdir(f"x/{i}")
    open(f"x/{i}/f", "w").close()
deep = "x/deep"
for i in range(60):
    os.mkdir(deep)
    deep += "/d"
print("ready", flush=True)
end = time.time() + 60
while os.path.isdir("x") and time.time() < end:
    for folder in (".", "x", "x/deep"):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names[:1] + [name for name in names if name.startswith(".removed-")]:
            if name in ("x", "program.py"):
                continue
            try:
                os.rename(f"{folder}/{name}", f"/tmp/{time.time_ns()}")
                os.symlink("/srv/tests", f"{folder}/{name}")
            except OSError:
                pass
"""


def test_its_owner_removes_nothing_that_a_program_leads_to(boxes: Boxes) -> None:
    """A program swaps what is removed, and what is made beside it, for links to files that it may not change."""
    box = boxes.new()
    if boxes.sh(box, "true", user="root").exit_code:
        pytest.skip("no root here")
    boxes.sh(box, "mkdir -p /srv/tests/keep; echo kept > /srv/tests/keep/t; chmod 700 /srv/tests", user="root")
    boxes.file(box, "write", SWAPPER.encode(), path="program.py")
    boxes.sh(box, "python3 program.py > out 2>&1 & until grep -q ready out; do sleep 0.01; done")
    for _ in range(3):
        with contextlib.suppress(SandboxError):
            boxes.file(box, "remove", path="x", recursive=True)
    out = boxes.sh(box, "cat /srv/tests/keep/t; ls /workspace; cat out", user="root").stdout
    assert out.startswith(b"kept\n"), out
    assert b"Traceback" not in out
    boxes.run(boxes.engine.delete(box.id))


def test_room_can_be_made_where_there_is_none(boxes: Boxes, place: Sandbox) -> None:
    """Nothing is made to remove, whatever the depth, the names and the modes."""
    fills = """
import os
deep = "/workspace/x"
os.mkdir(deep)
for i in range(100):
    os.chdir(deep)
    os.mkdir("d" * 200)
    deep = "d" * 200
os.mkdir("/workspace/x/shut")
open("/workspace/x/shut/f", "w").close()
os.chmod("/workspace/x/shut", 0)
os.chdir("/workspace/x")
i = 0
try:
    while True:
        open(f"{i}", "w").close()
        i += 1
except OSError as exc:
    print(exc.errno)
"""
    assert boxes.python(place, fills, timeout_s=100).stdout == b"28\n"
    boxes.file(place, "remove", path="x", recursive=True)
    assert boxes.sh(place, "ls; echo ok > y; cat y").stdout == b"program.py\nok\n"


def test_a_disk_that_is_full_ends_no_sandbox(boxes: Boxes) -> None:
    box = boxes.new(memory_mib=32, disk_mib=128)
    out = boxes.sh(box, "head -c 300M /dev/zero > f; stat -c %s f; head -c 300M /dev/zero > /tmp/f; echo still")
    assert out.stdout.endswith(b"still\n")
    assert 100 << 20 < int(out.stdout.split()[0]) <= 128 << 20
    assert boxes.command(box, "python3", "-c", "x = bytearray(200 << 20)", timeout_s=60).out_of_memory
    assert boxes.sh(box, "rm -f f; echo alive").stdout == b"alive\n"
    boxes.run(boxes.engine.delete(box.id))


def test_a_storm_of_processes_does_not_outlive_its_time_limit(boxes: Boxes) -> None:
    box = boxes.new()
    storm = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"
    out = boxes.python(box, storm, timeout_s=1)
    assert (out.timed_out, out.exit_code) == (True, None) or out.out_of_memory, out
    boxes.run(boxes.engine.delete(box.id))


def test_a_pid_1_that_has_no_time_does_not_hold_up_a_time_limit(boxes: Boxes) -> None:
    """The limit counts from the request, not from when the sandbox comes to it; what it starts too late is ended."""
    box = boxes.new()
    if box.group is None:
        pytest.skip("without a control group nobody here knows the sandbox's processes")
    boxes.sh(box, "true")
    (init,) = box.group.processes()
    os.kill(init, signal.SIGSTOP)
    try:
        out = boxes.sh(box, "sleep 1000", timeout_s=0.1)
        assert (out.timed_out, out.exit_code) == (True, None)
    finally:
        os.kill(init, signal.SIGCONT)
    waits = "until ! grep -qx sleep /proc/[0-9]*/comm; do :; done; echo gone"
    assert boxes.sh(box, waits, timeout_s=60).stdout == b"gone\n"
    boxes.run(boxes.engine.delete(box.id))


def test_one_sandbox_does_not_take_the_processes_of_another(boxes: Boxes) -> None:
    if not boxes.engine.features["pids"]:
        pytest.skip("without a control group the kernel counts a user's processes together")
    hold = "import os, time\nfor i in range(250):\n    if not os.fork():\n        time.sleep(1000)\n"
    bombs = [boxes.new() for _ in range(5)]
    for bomb in bombs:
        boxes.python(bomb, f"{hold}print('full')", timeout_s=60)
    other = boxes.new()
    assert boxes.sh(other, "for i in $(seq 30); do sleep 1 & done; echo fine | cat").stdout == b"fine\n"
    for made in [*bombs, other]:
        boxes.run(boxes.engine.delete(made.id))


def test_a_process_that_is_stopped_while_it_starts_holds_up_nothing(boxes: Boxes) -> None:
    box = boxes.new()
    stopper = textwrap.dedent(
        """
        import os, signal, time
        end = time.monotonic() + 20
        while time.monotonic() < end:
            for pid in range(os.getpid() + 1, os.getpid() + 40):
                try:
                    os.kill(pid, signal.SIGSTOP)
                except OSError:
                    pass
        """
    )
    boxes.file(box, "write", stopper.encode(), path="stopper.py")
    boxes.sh(box, "python3 stopper.py > /dev/null 2>&1 &", timeout_s=5)
    for _ in range(3):
        boxes.command(box, "true", timeout_s=1)  # ends by a limit or by itself; what counts is that it ends
    assert boxes.file(box, "stat", path="stopper.py")[0]["info"]["kind"] == "file"
    boxes.run(boxes.engine.delete(box.id))


def test_root_of_a_sandbox_sets_no_limits_for_its_pid_1(boxes: Boxes, box: Sandbox) -> None:
    if not boxes.engine.features["root"]:
        pytest.skip("there is no root in this host's sandboxes")
    source = "import resource\ntry:\n    resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))\nexcept OSError as exc:\n    print('no', exc.errno)\n"
    assert boxes.python(box, source, user="root").stdout == b"no 1\n"
    assert (
        boxes.python(box, "import resource; print(resource.prlimit(0, resource.RLIMIT_NOFILE)[0])").stdout == b"1024\n"
    )
    show = "import resource; print(resource.getrlimit(resource.RLIMIT_STACK)[0] >> 20)"
    assert boxes.sh(box, f"python3 -c '{show}'").stdout == b"8\n"
