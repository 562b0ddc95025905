"""Commands in a sandbox: what they get, how they end, and what comes back."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import textwrap

import pytest
from box_help import Boxes

from proctor.core.sandbox import CommandSpec, SandboxError
from proctor.engine.sandbox import Sandbox


def test_streams_exit_code_and_signal(boxes: Boxes, box: Sandbox) -> None:
    out = boxes.sh(box, "echo out; echo err >&2; exit 3")
    assert (out.stdout, out.stderr, out.exit_code, out.timed_out) == (b"out\n", b"err\n", 3, False)
    assert boxes.sh(box, "kill -TERM $$").exit_code == -15


def test_attributes_that_are_no_file_systems_keep_nobody_from_copying(boxes: Boxes, box: Sandbox) -> None:
    """``cp -p`` asks for access lists to be set, and goes on where the answer is that there are none."""
    out = boxes.sh(box, "echo 1 > a && chmod 640 a && cp -p a b && install -m 755 a c && cp -a a d && stat -c %a b c d")
    assert (out.stdout, out.exit_code) == (b"640\n755\n640\n", 0), out.stderr


def test_a_request_that_is_too_large_is_refused_and_the_sandbox_goes_on(boxes: Boxes, box: Sandbox) -> None:
    with pytest.raises(SandboxError, match="at most 1024 KiB") as caught:
        boxes.command(box, "echo", "x" * (2 << 20))
    assert (caught.value.code, caught.value.status) == ("request_too_large", 413)
    with pytest.raises(SandboxError, match="at most 1024 KiB"):
        boxes.command(box, "true", env={"A": "x" * (2 << 20)})
    with pytest.raises(SandboxError, match="at most 1024 KiB"):
        boxes.new(env={"A": "x" * (2 << 20)})
    assert boxes.command(box, "echo", "alive").stdout == b"alive\n"


def test_files_left_open_are_bounded_and_leave_nothing_behind(boxes: Boxes, box: Sandbox) -> None:
    boxes.file(box, "write", b"1", path="f")
    handles = [boxes.file(box, "open", path="f")[0]["handle"] for _ in range(64)]
    for _ in range(100):
        with pytest.raises(SandboxError, match="end one first"):
            boxes.file(box, "write", b"2", path="g")
    for handle in handles:
        boxes.file(box, "close", handle=handle)
    assert boxes.sh(box, "ls -A").stdout == b"f\n"
    boxes.file(box, "write", b"2", path="g")


def test_whoever_sends_to_a_sandbox_that_ends_is_told(boxes: Boxes) -> None:
    """Its pid 1 takes nothing any more: what waits to be sent does not wait for ever."""
    box = boxes.new()
    if box.group is None or not box.group.processes():
        pytest.skip("without a control group nobody here knows the sandbox's processes")
    (init,) = box.group.processes()

    async def send_and_stop() -> list[object]:
        os.kill(init, signal.SIGSTOP)
        sends = [
            asyncio.ensure_future(boxes.engine.files(box.id, "write", bytes(1 << 20), path=f"f{number}"))
            for number in range(8)
        ]
        await asyncio.sleep(0.2)
        await boxes.engine.delete(box.id)
        return list(await asyncio.wait_for(asyncio.gather(*sends, return_exceptions=True), 45))

    answers = boxes.run(send_and_stop())
    assert {getattr(answer, "code", answer) for answer in answers} == {"sandbox_stopped"}


def test_no_shell_stands_between_an_argument_and_a_program(boxes: Boxes, box: Sandbox) -> None:
    out = boxes.command(box, "printf", "%s|", "a b", "$(id)", "*", "x\ny", "")
    assert out.stdout == b"a b|$(id)|*|x\ny||"


def test_stdin(boxes: Boxes, box: Sandbox) -> None:
    big = bytes(range(256)) * 16384
    assert boxes.command(box, "md5sum", stdin=big).stdout.split()[0] == hashlib.md5(big).hexdigest().encode()
    assert boxes.command(box, "wc", "-c", stdin=big).stdout.strip() == b"%d" % len(big)
    assert boxes.command(box, "cat").stdout == b""  # nothing given: an end at once, not a wait


def test_output_beyond_what_is_kept_is_cut_and_said_and_does_not_hold_the_program_up(
    boxes: Boxes, box: Sandbox
) -> None:
    out = boxes.sh(box, "head -c 3000000 /dev/zero; echo done >&2", keep=65536)
    assert (len(out.stdout), out.stdout_truncated, out.stderr, out.exit_code) == (65536, True, b"done\n", 0)
    assert not boxes.sh(box, "head -c 65536 /dev/zero", keep=65536).stdout_truncated


def test_an_endless_flood_ends_in_time(boxes: Boxes, box: Sandbox) -> None:
    out = boxes.command(box, "yes", timeout_s=0.5)
    assert (out.timed_out, out.exit_code, out.stdout_truncated) == (True, None, True)


def test_a_timeout_takes_the_whole_tree_and_nothing_else(boxes: Boxes, box: Sandbox) -> None:
    boxes.sh(box, "sleep 1000 > /dev/null 2>&1 &")
    out = boxes.sh(box, "(setsid sleep 777 &) ; sleep 777 | sleep 777", timeout_s=0.5)
    assert out.timed_out
    seen = boxes.sh(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    assert b"sleep 1000" in seen
    assert seen.count(b"sleep 777") <= 1  # what left its session and its parent before is no more of it


def test_a_service_outlives_the_command_that_started_it(boxes: Boxes, box: Sandbox) -> None:
    source = "import time\nfor i in range(10000):\n    print('beat', flush=True)\n    open('/tmp/beats', 'a').write('x')\n    time.sleep(0.01)\n"
    boxes.file(box, "write", source.encode(), path="service.py")
    assert boxes.sh(box, "python3 service.py & echo started").stdout.startswith(b"started")
    before = len(boxes.read(box, "/tmp/beats")) if boxes.sh(box, "sleep 0.3; ls /tmp/beats").exit_code == 0 else 0
    boxes.sh(box, "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done")
    assert len(boxes.read(box, "/tmp/beats")) > before > 0


def test_environment_and_directory(boxes: Boxes) -> None:
    box = boxes.new(env={"A": "1", "B": "2"})
    out = boxes.sh(
        box, "echo $A $B $C; pwd; env | sort | cut -d= -f1 | tr '\\n' ' '", env={"B": "3", "C": "4"}, cwd="/tmp"
    )
    lines = out.stdout.decode().splitlines()
    assert lines[:2] == ["1 3 4", "/tmp"]
    assert not {name for name in lines[2].split() if name.startswith(("PROCTOR", "XDG", "SSH", "USER", "PIP"))}
    with pytest.raises(SandboxError, match="no directory"):
        boxes.sh(box, "true", cwd="/nosuch")
    boxes.run(boxes.engine.delete(box.id))


def test_a_missing_program_is_127_as_in_a_shell(boxes: Boxes, box: Sandbox) -> None:
    out = boxes.command(box, "nosuchprogram")
    assert (out.exit_code, out.stderr) == (127, b"nosuchprogram: not found\n")
    assert boxes.command(box, "/etc").exit_code == 126


def test_root_has_power_over_its_own_files_and_processes_alone(boxes: Boxes, box: Sandbox) -> None:
    if not boxes.engine.features["root"]:
        with pytest.raises(SandboxError, match="one identity"):
            boxes.sh(box, "id", user="root")
        return
    out = boxes.sh(box, "id -u; grep Cap /proc/self/status; mount -t tmpfs none /mnt; mknod /tmp/m b 8 0; chroot /; "
                        "cat /dev/mem; hostname x; ip link set lo down", user="root")  # fmt: skip
    assert out.stdout.split()[0] == b"0"
    # CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL: over files and processes of its own namespaces.
    assert {line.split()[1].lstrip(b"0") for line in out.stdout.splitlines()[1:]} == {b"3b"}
    assert out.exit_code != 0
    boxes.sh(
        box, "echo mine > /etc/motd; echo hi > /var/x; chmod 600 /var/x; echo root > f; chown 1000:1000 f", user="root"
    )
    assert boxes.sh(box, "cat /etc/motd; cat /var/x; stat -c %U f").stdout == b"mine\nsandbox\n"
    assert boxes.sh(box, "grep Cap /proc/self/status | grep -v Bnd | cut -f2 | sort -u").stdout.strip(b"0\n") == b""


def test_many_at_once(boxes: Boxes, box: Sandbox) -> None:
    async def all_of_them() -> list[bytes]:
        specs = [CommandSpec(argv=("bash", "-c", f"sleep 0.{i % 3}; echo {i}")) for i in range(40)]
        return [out.stdout for out in await asyncio.gather(*(boxes.engine.run_command(box.id, s) for s in specs))]

    assert boxes.run(all_of_them()) == [b"%d\n" % i for i in range(40)]


def test_streamed_output_comes_in_order_at_the_readers_pace(boxes: Boxes, box: Sandbox) -> None:
    seen: list[bytes] = []

    async def slow(stream: int, data: bytes) -> None:
        assert stream == 1
        seen.append(data)
        if len(seen) < 20:
            await asyncio.sleep(0.01)

    spec = CommandSpec(argv=("bash", "-c", "for i in $(seq 200000); do echo line $i; done"), keep=None)
    out = boxes.run(boxes.engine.run_command(box.id, spec, slow))
    assert out.exit_code == 0
    assert b"".join(seen) == b"".join(b"line %d\n" % i for i in range(1, 200001))


def test_a_reader_that_fails_ends_the_command_and_not_the_sandbox(boxes: Boxes, box: Sandbox) -> None:
    def fails(stream: int, data: bytes) -> None:
        raise LookupError("the reader's own")

    spec = CommandSpec(argv=("bash", "-c", "while true; do echo x; done"), keep=None, timeout_s=60)
    with pytest.raises(LookupError):
        boxes.run(boxes.engine.run_command(box.id, spec, fails))
    assert boxes.sh(box, "pgrep -c bash || true; echo ok").stdout.endswith(b"ok\n")


def test_input_that_is_written_piece_by_piece(boxes: Boxes, box: Sandbox) -> None:
    async def talk() -> bytes:
        engine = boxes.engine
        running = await engine.start_command(box.id, CommandSpec(argv=("cat",), stdin_open=True))
        for piece in (b"a" * 100_000, b"b" * 100_000):
            await engine.write_stdin(box.id, running.number, piece)
        await engine.write_stdin(box.id, running.number, b"", end=True)
        return (await running.done).stdout

    assert boxes.run(talk()) == (b"a" * 100_000 + b"b" * 100_000)[:65536]


def test_a_signal_reaches_a_command_and_a_kill_all_of_it(boxes: Boxes, box: Sandbox) -> None:
    async def end(number: int, source: str) -> int | None:
        running = await boxes.engine.start_command(box.id, CommandSpec(argv=("bash", "-c", source)))
        while b"up" not in bytes((await boxes.engine.run_command(box.id, CommandSpec(argv=("cat", "/tmp/up")))).stdout):
            await asyncio.sleep(0.02)
        await boxes.engine.kill(box.id, running.number, number)
        return (await running.done).exit_code

    assert boxes.run(end(15, "trap 'exit 7' TERM; echo up > /tmp/up; while true; do sleep 0.05; done")) == 7
    assert boxes.run(end(9, "trap '' TERM; sleep 1000 & wait")) == -9
    assert b"sleep 1000" not in boxes.sh(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout


def test_memory_beyond_the_bound_ends_the_program_and_is_told(boxes: Boxes, box: Sandbox) -> None:
    out = boxes.python(box, "x = bytearray(600 << 20)\nprint(len(x))", timeout_s=60)
    assert (out.out_of_memory, out.stdout) == (True, b"")
    assert boxes.sh(box, "echo fine").stdout == b"fine\n"


WARM = """
    import sys, os
    print(__name__, __file__, sys.argv, sys.path[0], os.environ.get("X"), os.getcwd(), sys.stdin.read())
    print(sorted(n for n in sys.modules if "proctor" in n), open("/proc/self/cmdline", "rb").read().rstrip(b"\\0"))
    sys.exit(5)
"""


@pytest.mark.parametrize("where", ["/workspace", "/tmp/some/place"])
def test_a_warm_program_is_as_one_in_a_fresh_interpreter(boxes: Boxes, box: Sandbox, where: str) -> None:
    boxes.file(box, "write", textwrap.dedent(WARM).encode(), path=f"{where}/p.py")
    options = {"cwd": where, "env": {"X": "y"}, "stdin": b"in"}
    warm = boxes.command(box, "python3", f"{where}/p.py", "a", **options)
    real = boxes.command(box, "python3", "-u", f"{where}/p.py", "a", **options)  # an option: a fresh one
    assert warm.exit_code == real.exit_code == 5
    assert warm.stdout == real.stdout.replace(b"python3\\x00-u\\x00", b"python3\\x00")


def test_what_was_installed_later_is_seen_by_a_program(boxes: Boxes, box: Sandbox) -> None:
    site = boxes.engine.ground.sites[0]
    boxes.file(box, "write", b"value = 42\n", path=f"{site}/installed.py")
    assert boxes.python(box, "import installed; print(installed.value)").stdout == b"42\n"
    boxes.file(box, "write", b"import sys; sys.flag = 'set'\n", path=f"{site}/start.pth")
    assert boxes.python(box, "import sys; print(sys.flag)").stdout == b"set\n"


def test_a_module_of_the_programs_own_hides_the_librarys(boxes: Boxes, box: Sandbox) -> None:
    boxes.file(box, "write", b"value = 'mine'\n", path="random.py")
    assert boxes.python(box, "import random; print(random.value)").stdout == b"mine\n"


@pytest.mark.parametrize(
    "source",
    [
        "def f(:\n", "print('a')\nx = 1 +\n", "a\0b", "# -*- coding: nosuch -*-\n", "if 1:\nprint()\n",
        "import sys\nassert (1, 'always')\nprint('ran')\n", "x = " + "(" * 300 + ")" * 300,
    ],
)  # fmt: skip
def test_a_program_that_does_not_compile_ends_as_in_a_fresh_interpreter(
    boxes: Boxes, box: Sandbox, source: str
) -> None:
    warm = boxes.python(box, source)
    fresh = boxes.command(box, "python3", "-u", "program.py")
    assert (warm.exit_code, warm.stdout, warm.stderr) == (fresh.exit_code, fresh.stdout, fresh.stderr)


def test_a_script_behind_a_link_and_a_fresh_random(boxes: Boxes, box: Sandbox) -> None:
    boxes.file(box, "write", b"value = 'own'\n", path="place/random.py")
    boxes.file(box, "write", b"import random; print(random.value, __file__)\n", path="place/real.py")
    boxes.sh(box, "ln -s place/real.py link.py; ln -s place here")
    for cwd, name in (("/workspace", "link.py"), ("/workspace/here", "real.py")):
        fresh = boxes.command(box, "python3", "-u", name, cwd=cwd).stdout
        assert boxes.command(box, "python3", name, cwd=cwd).stdout == fresh
    source = "import random; print(random.random())"
    assert boxes.python(box, source).stdout != boxes.python(box, source).stdout


def test_an_interpreter_that_was_changed_is_not_the_warm_one(boxes: Boxes, box: Sandbox) -> None:
    if not boxes.engine.features["root"]:
        pytest.skip("an ordinary user's sandbox cannot write there")
    folder = boxes.engine.ground.watched[0]
    made = boxes.sh(box, f"echo 'print(1)' > {folder}/sitecustomize.py", user="root")
    if made.exit_code:
        pytest.skip("the interpreter's library belongs to the host's root, and cannot be written over")
    assert boxes.python(box, "print(2)").stdout == boxes.command(box, "python3", "-u", "program.py").stdout == b"1\n2\n"


def test_a_large_folder_is_listed(boxes: Boxes, box: Sandbox) -> None:
    boxes.sh(box, "mkdir many; cd many; seq -f 'a-rather-long-name-of-a-file-%g' 15000 | xargs touch")
    answer, body = boxes.file(box, "list", path="many")
    assert (len(json.loads(body)), answer["more"]) == (15000, False)
    assert boxes.sh(box, "echo alive").stdout == b"alive\n"
