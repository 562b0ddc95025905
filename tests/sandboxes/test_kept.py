"""Snapshots and images: what comes back, what does not, and that creating from one copies nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from box_help import Boxes

from proctor.core.sandbox import CommandSpec, SandboxError, State
from proctor.engine.sandbox import Sandbox
from proctor.images.records import Origin
from proctor.images.store import Store


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boxes]:
    store = Store(tmp_path_factory.mktemp("store"))
    found = Boxes(store=store)
    found.store = store  # type: ignore[attr-defined]
    yield found
    found.close()


def test_files_modes_links_and_removals_come_back(kept: Boxes) -> None:
    box = kept.new()
    kept.sh(box, "mkdir -p /usr/local/share/man; touch /usr/local/bin/mine")
    kept.sh(
        box,
        "cd /workspace; echo data > f; chmod 750 f; ln -s f l; ln f h; mkdir -p d/e; printf 'a\\0b' > 'd/e/odd\nname'; "
        "touch -d '2020-02-02 02:02:02 UTC' f; head -c 3000000 /dev/urandom > big; sha256sum big > sum; mkfifo p; "
        "rm -r /usr/local/share/man; rm /usr/local/bin/mine; mkdir /opt/o; echo x > /tmp/t",
    )
    snap = kept.run(kept.engine.snapshot(box.id, name="tree", labels={"a": "b"}, retention_days=3))
    assert (snap.name, snap.labels, kept.engine.get(box.id).state) == ("tree", {"a": "b"}, State.RUNNING)
    assert snap.size_bytes > 3_000_000
    assert snap.expires_at is not None
    assert kept.sh(box, "echo goes on").stdout == b"goes on\n"
    kept.run(kept.engine.delete(box.id))
    for reference in (snap.id, "tree"):
        made = kept.new(snapshot=reference)
        out = kept.sh(
            made,
            "cd /workspace; cat f l h; stat -c '%a %U %h %Y' f; readlink l; ls d/e | od -c | head -1; sha256sum -c sum; "
            "ls p /usr/local/share/man /usr/local/bin/mine 2>&1 | grep -c 'No such'; ls -d /opt/o; cat /tmp/t; echo new > f",
        ).stdout.decode()
        assert out.startswith("data\ndata\ndata\n750 sandbox 2 1580608922\nf\n")
        assert "o   d   d  \\n" in out
        assert "big: OK\n3\n/opt/o\nx\n" in out
        kept.run(kept.engine.delete(made.id))


def test_a_snapshot_of_a_snapshot_has_both(kept: Boxes) -> None:
    first = kept.new()
    kept.sh(first, "echo 1 > one; echo 1 > both")
    one = kept.run(kept.engine.snapshot(first.id))
    second = kept.new(snapshot=one.id)
    kept.sh(second, "echo 2 > two; echo 2 > both; rm one")
    two = kept.run(kept.engine.snapshot(second.id))
    third = kept.new(snapshot=two.id)
    assert kept.sh(third, "ls; cat both two").stdout == b"both\ntwo\n2\n2\n"
    again = kept.new(snapshot=one.id)
    assert kept.sh(again, "ls; cat both").stdout == b"both\none\n1\n"


def test_several_snapshots_at_once_are_each_whole_and_nothing_runs_meanwhile(kept: Boxes) -> None:
    """Whoever waits for one snapshot waits for the next as well: woken together, one would stop the other's packing."""
    box = kept.new(memory_mib=256, disk_mib=64)
    kept.sh(box, "head -c 40000000 /dev/urandom > bulk; echo 0 > a; echo 0 > z")

    async def many() -> list[object]:
        engine, work = kept.engine, []
        for number in range(3):
            work.append(asyncio.ensure_future(engine.snapshot(box.id)))
            both = f"echo {number} > a; echo {number} > z"
            work.append(asyncio.ensure_future(engine.run_command(box.id, CommandSpec(argv=("bash", "-c", both)))))
        return await asyncio.gather(*work)

    found = kept.run(many())
    assert [outcome.exit_code for outcome in found[1::2]] == [0, 0, 0]  # type: ignore[attr-defined]
    for snapshot in found[::2]:
        made = kept.new(memory_mib=256, disk_mib=64, snapshot=snapshot.id)  # type: ignore[attr-defined]
        a, z = kept.sh(made, "cat a z; stat -c %s bulk").stdout.split()[:2]
        assert a == z
        kept.run(kept.engine.delete(made.id))


def test_many_directories_deep_down_fit_through_a_small_sandbox(kept: Boxes) -> None:
    """Packing runs in the sandbox's memory: it may keep neither the paths nor the headers of all that was seen."""
    box = kept.new(memory_mib=128)
    deep = "/".join(["d" * 100] * 30)
    source = f"import os\nos.makedirs({deep!r})\nos.chdir({deep!r})\nfor n in range(30000):\n    os.mkdir(str(n))\n"
    kept.file(box, "write", source.encode(), path="many.py")
    assert kept.sh(box, "python3 many.py").exit_code == 0
    made = kept.new(snapshot=kept.run(kept.engine.snapshot(box.id)).id)
    assert kept.sh(made, f"ls {deep} | wc -l").stdout == b"30000\n"


def test_processes_stand_still_while_files_are_read(kept: Boxes) -> None:
    box = kept.new()
    source = "import os\nn = 0\nwhile True:\n    n += 1\n    for name in 'ab':\n        open(name + '.new', 'w').write(str(n))\n        os.rename(name + '.new', name)\n"
    kept.file(box, "write", source.encode(), path="writer.py")
    kept.sh(box, "head -c 9000000 /dev/urandom > bulk; (python3 writer.py &) ; sleep 0.3")
    made = kept.new(snapshot=kept.run(kept.engine.snapshot(box.id)).id)
    a, b = (int(word) for word in kept.sh(made, "cat a; echo; cat b").stdout.split())
    assert a - b in (0, 1)
    before = kept.sh(box, "cat a").stdout
    assert kept.sh(box, "sleep 0.3; cat a").stdout != before  # and go on afterwards


def test_sparse_files_longer_than_the_disk_are_refused_and_all_goes_on(kept: Boxes) -> None:
    box = kept.new()
    kept.sh(box, "truncate -s 1T huge")
    with pytest.raises(SandboxError, match="sparse"):
        kept.run(kept.engine.snapshot(box.id))
    kept.sh(box, "rm huge; echo small > f")
    made = kept.new(snapshot=kept.run(kept.engine.snapshot(box.id)).id)
    assert kept.sh(made, "cat f").stdout == b"small\n"


DEEP = "import os\nfor _ in range({}):\n    os.mkdir('{}'); os.chdir('{}')\nopen('f', 'w').close()\n"


@pytest.mark.parametrize(("times", "name"), [(30, "d" * 200), (160, "d")])
def test_a_path_that_no_snapshot_holds_is_said_and_all_goes_on(kept: Boxes, times: int, name: str) -> None:
    box = kept.new()
    assert kept.python(box, DEEP.format(times, name, name)).exit_code == 0
    with pytest.raises(SandboxError, match=r"longer than 4000 bytes, or deeper than 128 directories: remove") as caught:
        kept.run(kept.engine.snapshot(box.id))
    assert (caught.value.code, caught.value.status) == ("path_too_long", 400)
    kept.sh(box, f"mv {name} /tmp/gone; rm -r /tmp/gone; echo 1 > here")
    made = kept.new(snapshot=kept.run(kept.engine.snapshot(box.id)).id)
    assert kept.sh(made, "cat here").stdout == b"1\n"


def test_the_deepest_path_that_a_snapshot_holds_comes_back(kept: Boxes) -> None:
    box = kept.new()
    assert kept.python(box, DEEP.format(19, "d" * 200, "d" * 200)).exit_code == 0
    made = kept.new(snapshot=kept.run(kept.engine.snapshot(box.id)).id)
    assert kept.sh(made, "find . -name f | wc -c").stdout == b"3823\n"


def test_names_of_whiteouts_are_names_like_others(kept: Boxes) -> None:
    """In an image's archive ``.wh.a`` removes ``a``; in a sandbox it is what a program called a file."""
    box = kept.new()
    kept.sh(
        box,
        "mkdir a; echo 1 > a/b; echo 2 > a/.wh.b; echo 3 > .wh.a; echo 4 > a/.wh..wh..opq; mkdir .wh.q; echo 5 > .wh.q/.wh.x",
    )
    look = "find . -type f | sort | xargs tail -qn1 | tr -d '\\n'"
    made = kept.new(snapshot=kept.run(kept.engine.snapshot(box.id)).id)
    assert kept.sh(made, look).stdout == b"35421"
    kept.sh(made, "rm a/b; echo 6 > a/.wh.c; echo 7 > a/c")
    again = kept.new(snapshot=kept.run(kept.engine.snapshot(made.id)).id)
    assert kept.sh(again, look).stdout == b"354267"


def test_what_a_program_plants_in_its_files_does_nothing_on_the_host(kept: Boxes, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    box = kept.new()
    kept.sh(
        box,
        f"ln -s {tmp_path} out; ln -s / root; ln -s /../../.. up; mkdir -p x/y; ln -s {victim} x/y/v; cp /usr/bin/id suid; "
        "chmod 4755 suid; mknod w c 0 0; setfattr -n user.overlay.opaque -v y x; for i in $(seq 50); do mkdir d; cd d; done",
    )
    snap = kept.run(kept.engine.snapshot(box.id))
    assert victim.read_text() == "untouched"
    assert list(tmp_path.iterdir()) == [victim]
    made = kept.new(snapshot=snap.id)
    assert kept.sh(made, "cat out/victim x/y/v 2>&1 | grep -c 'No such'; stat -c %a suid").stdout == b"2\n755\n"


@pytest.mark.parametrize(
    "done", ["rmdir /var/tmp", "rm -rf /var; ln -s /tmp /var", "rm -rf /var; echo > /var", "rm -rf /var"]
)
def test_a_root_without_usual_directories_can_be_created_from(kept: Boxes, done: str) -> None:
    if not kept.engine.features["root"]:
        pytest.skip("there is no root in sandboxes of an ordinary user")
    box = kept.new()
    kept.sh(box, f"{done}; echo 1 > f", user="root")
    made = kept.new(snapshot=kept.run(kept.engine.snapshot(box.id)).id)
    assert kept.sh(made, "cat f; echo 2 > g; cat g").stdout == b"1\n2\n"
    assert kept.sh(made, "test -L /var -o -f /var || stat -c %a /var /var/tmp").stdout in (b"", b"755\n1777\n")


def test_what_is_in_use_is_not_removed(kept: Boxes) -> None:
    box = kept.new()
    kept.sh(box, "echo 1 > f")
    snap = kept.run(kept.engine.snapshot(box.id, name="used"))
    made = kept.new(snapshot=snap.id)
    with pytest.raises(SandboxError) as caught:
        kept.run(kept.engine.delete_snapshot(snap.id))
    assert caught.value.code == "in_use"
    kept.store.gc()  # type: ignore[attr-defined]
    assert kept.sh(made, "cat f").stdout == b"1\n"
    kept.run(kept.engine.delete(made.id))
    kept.run(kept.engine.delete_snapshot(snap.id))
    with pytest.raises(SandboxError) as caught:
        kept.new(snapshot=snap.id)
    assert (caught.value.code, caught.value.status) == ("not_found", 404)


def test_the_default_image_has_pip_and_no_other_package(kept: Boxes) -> None:
    box = kept.new()
    assert kept.sh(box, "python3 -m pip --version").stdout.startswith(b"pip ")
    out = kept.sh(box, "python3 -m pip list --format=freeze")
    assert {line.split(b"=")[0].lower() for line in out.stdout.split()} <= {b"pip", b"setuptools", b"wheel"}


PACKAGE = "value = 1\n"


def test_modules_that_an_image_names_are_imported_ahead_and_stay_as_the_files_say(kept: Boxes) -> None:
    box = kept.new()
    site = kept.engine.ground.sites[0]
    kept.file(box, "write", b"import os\nvalue, where = 1, os.getpid()\n", path=f"{site}/ahead.py")
    snap = kept.run(kept.engine.snapshot(box.id))
    store: Store = kept.store  # type: ignore[attr-defined]
    record = store.get(snap.id)
    settings = dataclasses.replace(record.settings, preimport=("ahead",))
    store.commit(record.layers, base=record.base, origin=Origin.IMAGE, name="warm", settings=settings)
    made = kept.new(image="warm")
    source = "import sys; ahead = sys.modules.get('ahead'); import ahead as now, os; print(ahead is now, now.where == os.getpid(), now.value)"
    assert kept.python(made, source).stdout == b"True False 1\n"
    kept.file(made, "write", b"value, where = 2, 0\n", path=f"{site}/ahead.py")
    assert kept.python(made, source).stdout == b"False False 2\n"  # changed since: a fresh interpreter
    assert kept.python(kept.new(image="warm"), source).stdout == b"True False 1\n"


def test_an_image_without_the_hosts_system(kept: Boxes, tmp_path: Path) -> None:
    import io
    import subprocess
    import tarfile

    busybox = Path("/bin/busybox")
    static = busybox.exists() and b"statically" in subprocess.run(["file", "-L", busybox], capture_output=True).stdout
    if not static:
        busybox = tmp_path / "sh"
        code = '#include <stdio.h>\nint main(int c, char **v) { for (int i = 1; i < c; i++) puts(v[i]); FILE *f = fopen("/made", "w"); puts(f ? "wrote" : "no"); return 7; }'
        done = subprocess.run(
            ["gcc", "-static", "-x", "c", "-o", busybox, "-"], input=code.encode(), capture_output=True
        )
        if done.returncode:
            pytest.skip("neither a static busybox nor a compiler with a static libc")
        argv = ["/bin/tool", "a"]
    else:
        argv = ["/bin/tool", "sh", "-c", "echo a; touch /made && echo wrote; exit 7"]
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        member = tarfile.TarInfo("bin/tool")
        member.mode, member.size = 0o755, busybox.stat().st_size
        tar.addfile(member, io.BytesIO(busybox.read_bytes()))
        top = tarfile.TarInfo(".")
        top.type, top.mode, top.uid = tarfile.DIRTYPE, 0o755, 1000
        tar.addfile(top)
    data.seek(0)
    from proctor.images.records import Base

    store: Store = kept.store  # type: ignore[attr-defined]
    layer = store.add_layer(data)
    store.commit([layer], base=Base.OCI, name="alone")
    box = kept.new(image="alone")
    out = kept.command(box, *argv)
    assert (out.stdout, out.exit_code) == (b"a\nwrote\n", 7)
    assert kept.command(box, "python3", "-c", "1").exit_code == 127


def test_names_of_the_roots_own_in_a_snapshot_are_in_nobodys_way(kept: Boxes) -> None:
    if not kept.engine.features["root"]:
        pytest.skip("only root writes there")
    box = kept.new()
    kept.sh(box, "mkdir /.old; echo x > /.old/f; echo kept > /workspace/f", user="root")
    made = kept.new(snapshot=kept.run(kept.engine.snapshot(box.id)).id)
    assert kept.sh(made, "cat /workspace/f; echo x > /dev/null; ls /proc/self/fd | head -1").stdout == b"kept\n0\n"


_FULL = """
import os, sys, time
if os.fork():
    time.sleep(1)
    sys.exit()
os.setsid()
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.2)
"""


def fill(kept: Boxes, box: Sandbox) -> None:
    """Let a program take all the processes that a sandbox may have, and go on trying for more."""
    kept.python(box, _FULL, name="full.py", timeout_s=60)
    kept.run(asyncio.sleep(2))  # the place of the one that has ended is taken too


def descriptors(box: Sandbox) -> int:
    """Open files of a sandbox's pid 1; 0 where this user cannot tell."""
    for path in box.group.paths[:1] if box.group else ():
        for pid in Path(path, "cgroup.procs").read_text().split():
            try:
                rows = Path(f"/proc/{pid}/status").read_text().splitlines()
                if next(row.split()[-1] for row in rows if row.startswith("NSpid")) == "1":
                    return len(os.listdir(f"/proc/{pid}/fd"))
            except OSError:
                continue
    return 0


def test_a_sandbox_full_of_processes_still_answers_and_is_kept(kept: Boxes) -> None:
    box = kept.new(memory_mib=1024)
    fill(kept, box)
    for keep in (1000, None, 1000):  # whatever comes is a result, never an exception
        said: list[bytes] = []
        spec = CommandSpec(argv=("bash", "-c", "true"), keep=keep, timeout_s=60)
        out = kept.run(kept.engine.run_command(box.id, spec, lambda _, data, said=said: said.append(data)))
        assert out.exit_code in (0, 126, 254) or out.timed_out
        if out.exit_code == 254:
            assert b"fork: " in out.stderr + b"".join(said)
    before = descriptors(box)
    for _ in range(5):
        kept.sh(box, "true", timeout_s=60)
    assert descriptors(box) <= before + 2
    snap = kept.run(asyncio.wait_for(kept.engine.snapshot(box.id), 120))
    assert kept.read(box, "full.py") == _FULL.encode()
    kept.run(kept.engine.delete(box.id))
    made = kept.new(snapshot=snap.id)
    assert kept.read(made, "full.py") == _FULL.encode()
    kept.run(kept.engine.delete(made.id))


def test_its_processes_go_on_after_a_snapshot_of_a_full_sandbox(kept: Boxes) -> None:
    box = kept.new(memory_mib=1024)
    beat = "import os\nif os.fork():\n    os._exit(0)\nos.setsid()\nimport time\nn = 0\nwhile True:\n    n += 1\n    open('beat', 'w').write(str(n))\n    time.sleep(0.02)\n"
    kept.python(box, beat, name="beat.py", timeout_s=60)
    fill(kept, box)
    kept.run(asyncio.wait_for(kept.engine.snapshot(box.id), 120))
    was = kept.read(box, "beat")
    for _ in range(3000):
        if (now := kept.read(box, "beat")) and now != was:
            break
        kept.run(asyncio.sleep(0.01))
    assert now != was
    kept.run(kept.engine.delete(box.id))
