"""Sandboxes with GPUs, on a host that was made to look as if it had three: nodes by mknod, a library, an nvidia-smi.

A node without a driver answers ENXIO to whoever gets through to it. What the
driver itself does is tried by nobody here.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from box_help import SMALL, Boxes
from gpu_help import MODELS, NAMES, OPEN, SHARED, VERSION, Tree, a_tree

from proctor.core.errors import InfrastructureError, IsolationUnavailable
from proctor.core.sandbox import SandboxError, SandboxSpec, State, StopReason
from proctor.engine.sandbox import Sandbox
from proctor.images.records import Base
from proctor.images.store import Store
from proctor.meter.ledger import Ledger
from proctor.meter.prices import Prices


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    with a_tree() as made:
        yield made.whole()


@pytest.fixture(scope="module")
def host(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boxes]:
    try:
        made = Boxes(gpus=tree.find(), store=Store(tmp_path_factory.mktemp("store") / "store"))
    except IsolationUnavailable as exc:
        pytest.skip(f"this host gives no sandboxes: {exc}")
    yield made
    made.close()
    assert not made.engine.gpus.held


@pytest.fixture
def boxes(host: Boxes) -> Iterator[Boxes]:
    yield host
    for box in list(host.engine.list(include_stopped=True)):
        host.run(host.engine.delete(box.id))
    assert not host.engine.gpus.held


def reached(boxes: Boxes, box: Sandbox, **options: str) -> dict[str, str]:
    """What opening each node comes to."""
    done = boxes.command(box, "python3", "-c", OPEN.format(names=NAMES), **options)
    assert done.exit_code == 0, done.stderr
    return dict(line.split() for line in done.stdout.decode().splitlines())


def mine(box: Sandbox) -> list[str]:
    return [gpu.node for gpu in box.seat.devices]


@pytest.mark.parametrize("user", ["sandbox", "root"])
def test_a_sandbox_reaches_its_own_devices_and_no_others(boxes: Boxes, user: str) -> None:
    one, two, none = boxes.new(gpu=1), boxes.new(gpu=2), boxes.new()
    assert (mine(one), mine(two), mine(none)) == (["nvidia0"], ["nvidia1", "nvidia2"], [])
    for box in (one, two, none):
        given = [*mine(box), *(SHARED if mine(box) else [])]
        assert reached(boxes, box, user=user) == {name: "ENXIO" if name in given else "ENOENT" for name in NAMES}
        listed = boxes.sh(box, "ls /dev", user=user).stdout.decode().split()
        assert [name for name in listed if name.startswith("nvidia")] == sorted(given)
        assert {"null", "zero", "full", "random", "urandom", "fd", "stdin", "stdout", "stderr", "shm"} <= set(listed)


def test_nobody_inside_makes_or_finds_another_way_to_a_device(boxes: Boxes) -> None:
    box = boxes.new(gpu=1)
    source = """
import os, stat
for place in ("/workspace/n", "/tmp/n", "/dev/n", "/usr/local/nvidia/n"):
    try:
        os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(195, 1))
        os.close(os.open(place, os.O_RDWR))
        print("made", place)
    except OSError as exc:
        assert exc.errno in (1, 13, 30), exc
for place in ("/.gpus", "/.gpus/dev/nvidia1", "/proc/1/root/.gpus", "/.layers/.gpus"):
    if os.path.lexists(place):
        print("found", place)
for path in ("/dev/nvidia1", "/dev/nvidia0"):
    try:
        os.rename("/dev/nvidia0", path + "x")
        print("renamed")
    except OSError:
        pass
print("done")
"""
    for user in ("sandbox", "root"):
        done = boxes.command(box, "python3", "-c", source, user=user)
        assert done.stdout == b"done\n", (user, done)


def test_the_drivers_library_and_program_are_where_loaders_look(boxes: Boxes) -> None:
    box = boxes.new(gpu=2)
    done = boxes.python(box, 'import ctypes\nprint(ctypes.CDLL("libcuda.so.1").cuInit(7))\n')
    assert (done.stdout, done.stderr) == (b"4207\n", b"")
    assert boxes.command(box, "nvidia-smi").stdout == b"NVIDIA-SMI 0,1\n"
    listed = boxes.sh(box, "cd /usr/local/nvidia && ls lib64 lib/ && cat lib64/libcuda.so.1 | wc -c").stdout.decode()
    assert f"libcuda.so.{VERSION}" in listed
    for command in ("echo x > /usr/local/nvidia/lib64/libcuda.so.1", "rm /usr/local/nvidia/bin/nvidia-smi"):
        done = boxes.sh(box, command, user="root")
        assert done.exit_code
        assert b"Read-only file system" in done.stderr, done.stderr
    other = boxes.new()
    assert boxes.command(other, "test", "-e", "/usr/local/nvidia/lib64").exit_code == 1
    done = boxes.python(other, 'import ctypes\nctypes.CDLL("libcuda.so.1")\n')
    assert done.exit_code == 1


def test_variables_say_which_devices_there_are(boxes: Boxes) -> None:
    box = boxes.new(gpu=2, env={"LD_LIBRARY_PATH": "/workspace/lib"})
    rows = dict(line.split("=", 1) for line in boxes.command(box, "env").stdout.decode().splitlines())
    uuids = [gpu.uuid for gpu in box.seat.devices]
    assert rows["NVIDIA_VISIBLE_DEVICES"] == ",".join(map(str, uuids))
    assert rows["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert rows["LD_LIBRARY_PATH"] == "/workspace/lib:/usr/local/nvidia/lib64"
    assert rows["PATH"].endswith(":/usr/local/nvidia/bin")
    plain = boxes.command(boxes.new(), "env").stdout.decode()
    assert "NVIDIA" not in plain
    assert "CUDA" not in plain


def test_proc_has_what_the_driver_tells_of_the_sandboxs_own_and_no_more(boxes: Boxes) -> None:
    boxes.new(gpu=1)
    box = boxes.new(gpu=1)
    if boxes.command(box, "test", "-e", "/proc/driver").exit_code:
        pytest.skip("this kernel gives a sandbox no full /proc")
    text = boxes.sh(box, "cat /proc/driver/nvidia/*").stdout.decode()
    assert "ModifyDeviceFiles: 0\n" in text  # else the library would try to make nodes
    assert "ModifyDeviceFiles: 1" not in text
    assert VERSION in text
    assert boxes.sh(box, "cat /proc/driver/nvidia/gpus/*/information").stdout.decode().count("Model:") == 1
    assert f"{MODELS[1]}\n" in boxes.sh(box, "cat /proc/driver/nvidia/gpus/*/information").stdout.decode()
    source = """
import os
shown = {"cpuinfo", "meminfo", "devices", "modules", "driver"}
for entry in os.scandir("/proc"):
    if entry.is_symlink() or entry.name.isdigit() or entry.name in shown:
        continue
    if os.listdir(entry.path) not in ([], ["vm"]) if entry.is_dir() else open(entry.path, "rb").read(1):
        print(entry.name)
print(sorted(name for name in os.listdir("/proc") if name.isdigit() and open(f"/proc/{name}/comm").read() == "python3\\n") != [])
"""
    assert boxes.command(box, "python3", "-c", source, user="root").stdout == b"True\n"


def test_sys_has_the_sandboxs_own_devices_and_the_kernel_module_and_no_more(boxes: Boxes) -> None:
    boxes.new(gpu=1)
    box, plain = boxes.new(gpu=1), boxes.new()
    files = boxes.sh(box, "cd /sys && find . -type f -o -type l | sort").stdout.decode().splitlines()
    assert files == [
        "./bus/pci/devices/0000:02:00.0", "./devices/pci0000:00/0000:02:00.0/numa_node",
        "./devices/system/memory/block_size_bytes", "./devices/system/node/node0/cpumap", "./module/nvidia/initstate",
    ]  # fmt: skip
    assert boxes.sh(box, "cat /sys/bus/pci/devices/*/numa_node").stdout == b"1\n"
    done = boxes.sh(box, "echo 5 > /sys/bus/pci/devices/0000:02:00.0/numa_node", user="root")
    assert b"Read-only file system" in done.stderr, done.stderr
    assert boxes.sh(plain, "ls -A /sys").stdout == b""


def test_a_memory_file_can_be_made(boxes: Boxes) -> None:
    assert boxes.python(boxes.new(gpu=1), "import os\nprint(os.memfd_create('m') > 2)\n").stdout == b"True\n"


_ORDER = """
import fcntl, array
try:
    fcntl.ioctl(open("/etc/passwd"), 2, array.array("i", [0]))  # FIGETBSZ, whose number could be one of nvidia-uvm's
    print("passed")
except OSError as exc:
    print(exc.errno)
"""


def test_orders_to_the_driver_pass_the_filter_with_a_gpu_alone(boxes: Boxes) -> None:
    assert boxes.python(boxes.new(gpu=1), _ORDER).stdout in (b"passed\n", b"22\n")  # EINVAL: the file system's answer
    assert boxes.python(boxes.new(), _ORDER).stdout == b"25\n"  # ENOTTY: the filter's


def test_creates_at_once_share_no_device_and_all_get_their_turn(boxes: Boxes) -> None:
    engine, having = boxes.engine, set[str]()

    async def use(count: int) -> None:
        box = await engine.create(SandboxSpec(**SMALL, gpu=count), wait_s=None)
        assert not having & set(mine(box))
        having.update(mine(box))
        await asyncio.sleep(0.01)
        having.difference_update(mine(box))
        await engine.stop(box.id)

    async def plain() -> None:
        await engine.stop((await engine.create(SandboxSpec(**SMALL), wait_s=None)).id)

    async def work() -> None:
        await asyncio.gather(*(use(1 + number % 3) for number in range(9)), *(plain() for _ in range(3)))

    boxes.run(asyncio.wait_for(work(), 300))
    assert not engine.gpus.held


def test_creates_wait_and_those_that_want_none_do_not(boxes: Boxes) -> None:
    first = boxes.new(gpu=3)
    places: list[int] = []

    async def work() -> None:
        waiting = asyncio.ensure_future(
            boxes.engine.create(SandboxSpec(**SMALL, gpu=1), wait_s=None, on_wait=places.append)
        )
        await asyncio.sleep(0)
        plain = await boxes.engine.create(SandboxSpec(**SMALL), wait_s=60)
        assert plain.state is State.RUNNING
        assert not waiting.done()
        with pytest.raises(SandboxError, match="1 GPU") as refused:
            await boxes.engine.create(SandboxSpec(**SMALL, gpu=1), wait_s=0.05)
        assert refused.value.code == "no_capacity"
        await boxes.engine.stop(first.id)
        assert mine(await waiting) == ["nvidia0"]

    boxes.run(asyncio.wait_for(work(), 120))
    assert places == [0]


def test_devices_are_free_at_the_end_of_a_lease(boxes: Boxes) -> None:
    box = boxes.new(gpu=3, timeout_seconds=0.3)
    again = boxes.new(gpu=3)  # waits for it
    assert box.reason is StopReason.LEASE
    assert mine(again) == NAMES[:3]
    assert reached(boxes, again)["nvidia2"] == "ENXIO"


def test_devices_are_free_when_a_sandbox_is_killed(boxes: Boxes) -> None:
    box = boxes.new(gpu=3)
    assert box.lobby is not None
    assert box.room is not None
    boxes.command(box, "true")
    inside = box.group.processes() if box.group else []
    if not inside:
        pytest.skip("no control groups: nothing tells its processes from outside")
    for pid in inside:
        os.kill(pid, signal.SIGKILL)
    again = boxes.new(gpu=3)
    assert box.reason is StopReason.FAULT
    assert mine(again) == NAMES[:3]


def test_devices_are_free_when_a_create_fails(boxes: Boxes) -> None:
    with pytest.raises(SandboxError, match="ghost"):
        boxes.new(gpu=3, snapshot="ghost")
    assert not boxes.engine.gpus.held

    async def cancelled() -> None:
        making = asyncio.ensure_future(boxes.engine.create(SandboxSpec(**SMALL, gpu=3)))
        await asyncio.sleep(0.001)
        making.cancel()
        await asyncio.gather(making, return_exceptions=True)

    boxes.run(cancelled())
    assert mine(boxes.new(gpu=3)) == NAMES[:3]


def test_more_than_there_are_and_other_models_are_refused_at_once(boxes: Boxes) -> None:
    for fields, word, code in (
        ({"gpu": 4}, "4 are more than the 3", "too_large"),
        ({"gpu": 1, "gpu_models": ("A100",)}, f"no A100; it has: {MODELS[0]}, {MODELS[1]}$", "no_gpu"),
    ):
        with pytest.raises(SandboxError, match=word) as refused:
            boxes.new(**fields)
        assert (refused.value.code, refused.value.status) == (code, 400)
    assert mine(boxes.new(gpu=2, gpu_models=("H100",))) == ["nvidia1", "nvidia2"]
    assert mine(boxes.new(gpu=1, gpu_models=("H100", "T4"))) == ["nvidia0"]


@pytest.mark.parametrize("layer", ["ln -s /nowhere /usr/local/nvidia", "ln -s /opt /usr/local/nvidia",
                                   "echo x > /usr/local/nvidia", "mkdir -p /usr/local/nvidia/lib64/libcuda.so.1"])  # fmt: skip
def test_whatever_an_image_has_there_the_driver_is_the_hosts(boxes: Boxes, layer: str) -> None:
    base = boxes.new()
    done = boxes.sh(base, f"rm -rf /usr/local/nvidia; {layer}", user="root")
    assert done.exit_code == 0, done.stderr
    made = boxes.run(boxes.engine.snapshot(base.id))
    box = boxes.new(gpu=1, snapshot=made.id)
    assert reached(boxes, box)["nvidia0"] == "ENXIO"
    done = boxes.python(box, 'import ctypes\nprint(ctypes.CDLL("libcuda.so.1").cuInit(0))\n')
    assert done.stdout == b"4200\n", done.stderr


def test_a_snapshot_holds_nothing_of_the_driver(boxes: Boxes) -> None:
    box = boxes.new(gpu=1)
    boxes.sh(box, "echo kept > /workspace/file")
    made = boxes.run(boxes.engine.snapshot(box.id))
    plain = boxes.new(snapshot=made.id)
    assert boxes.read(plain, "/workspace/file") == b"kept\n"
    assert boxes.sh(plain, "ls -A /usr/local/nvidia; ls /dev | grep nvidia").stdout == b""
    assert set(reached(boxes, plain).values()) == {"ENOENT"}


def test_gpus_cost_what_the_price_list_says(tree: Tree, tmp_path: Path) -> None:
    prices = Prices(cpu_hour=0, memory_hour=0, gpu_second=0.25)  # type: ignore[arg-type]
    with Ledger(tmp_path / "ledger.sqlite", prices=prices) as ledger:
        own = Boxes(gpus=tree.find(), ledger=ledger)
        try:
            box = own.new(gpu=2, max_cost_micros=100_000)  # 0.2 s of two

            async def wait() -> None:
                while own.engine.get(box.id).state is State.RUNNING:
                    await asyncio.sleep(0.01)

            own.run(asyncio.wait_for(wait(), 60))
            own.run(own.engine.stop(box.id))
            assert box.reason is StopReason.COST
            info, cost = box.info(), ledger.sandbox(box.id)
            assert cost is not None
            assert (cost.gpus, cost.cost_micros) == (2, info.cost_micros)
            assert info.cost_micros == pytest.approx(cost.wall_seconds * 500_000, abs=2)
            assert ledger.total().gpu_seconds == pytest.approx(2 * cost.wall_seconds)
            assert own.new().info().cost_micros == 0
        finally:
            own.close()


def test_where_the_driver_has_gone_only_gpus_fail(tree: Tree) -> None:
    found = tree.find()
    own = Boxes(gpus=found)
    try:
        hidden = tree.dev / "nvidia0"
        hidden.rename(tree.dev / "gone")
        try:
            if (lobby := own.engine.rooms.lobby) is not None:
                own.run(lobby.close())  # another agent is made, which does not find it
            assert own.command(own.new(), "true").exit_code == 0
            with pytest.raises(InfrastructureError, match="cannot be opened"):
                own.new(gpu=1)
            assert not own.engine.gpus.held
            assert own.command(own.new(gpu=1, gpu_models=("H100",)), "true").exit_code == 0
        finally:
            (tree.dev / "gone").rename(hidden)
    finally:
        own.close()


_TOOL = """
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char **paths) {
    for (int i = 1; i < count; i++) {
        int fd = open(paths[i], O_RDONLY);
        printf("%d ", fd < 0 ? errno : 0);
    }
    return 0;
}
"""


def test_an_image_without_the_hosts_system_has_them_too(boxes: Boxes, tree: Tree) -> None:
    tool = tree.top / "tool"
    made = subprocess.run(["gcc", "-static", "-x", "c", "-o", tool, "-"], input=_TOOL.encode(), capture_output=True)
    if made.returncode:
        pytest.skip("no compiler with a static libc")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        member = tarfile.TarInfo("bin/tool")
        member.mode, member.size = 0o755, tool.stat().st_size
        tar.addfile(member, io.BytesIO(tool.read_bytes()))
    data.seek(0)
    store = boxes.engine.roots.store
    assert store is not None
    store.commit([store.add_layer(data)], base=Base.OCI, name="alone")
    box = boxes.new(gpu=1, image="alone")
    files = ["/usr/local/nvidia/lib64/libcuda.so.1", "/usr/local/nvidia/bin/nvidia-smi", "/sys/module/nvidia/initstate"]
    done = boxes.command(box, "/bin/tool", "/dev/nvidia0", "/dev/nvidia1", "/dev/null", "/usr/bin/env", *files)
    numbers = [errno.ENXIO, errno.ENOENT, 0, errno.ENOENT, 0, 0, 0]
    assert [int(word) for word in done.stdout.split()] == numbers, done.stderr
