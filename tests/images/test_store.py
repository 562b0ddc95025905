"""What is recorded is whole, what is in use stays, and what a crash leaves goes."""

from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tarmake import files, member, tar, tree

from proctor.core.errors import InfrastructureError, InputError
from proctor.images.records import Base, Origin, Record, Settings
from proctor.images.rootfs import resolve
from proctor.images.store import Store, default_root

DAY = 86400.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as made:
        yield made


def image(store: Store, name: str, content: bytes = b"x", **more: object) -> Record:
    layer = store.add_layer(io.BytesIO(files(file=content)))
    return store.commit([layer], base=Base.HOST, name=name, **more)  # type: ignore[arg-type]


def kept(store: Store) -> list[bytes]:
    return sorted((path / "file").read_bytes() for path in store.layers.iterdir())


class Child(subprocess.Popen[str]):
    """A process of ours that is ended with its block, also where the test fails."""

    def __exit__(self, *exc: object) -> None:
        self.kill()
        super().__exit__(*exc)  # type: ignore[arg-type]


def child(code: str, *args: object) -> Child:
    """One with the store's modules at hand; ``args`` are its ``sys.argv[1:]``."""
    head = "import io, os, sys, time\nfrom proctor.images.store import Store\nfrom proctor.images.records import Base\n"
    return Child(
        [sys.executable, "-c", head + code, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


# ---------------------------------------------------------------- names


def test_names_versions_digests_and_ids(store: Store) -> None:
    one, two = image(store, "n", b"1"), image(store, "n", b"2")
    assert (one.reference, two.reference) == ("n@v1", "n@v2")
    for reference, wanted in {
        "n": two, "n@v1": one, f"n@{one.digest}": one, f"n@{one.digest[:20]}": one, one.id: one, "n@v2": two,
    }.items():  # fmt: skip
        assert store.get(reference).id == wanted.id
    assert image(store, "n", b"2").id == two.id  # the same again is no new version
    store.remove("n@v2")
    assert store.get("n").id == one.id
    assert image(store, "n", b"2").version == 3  # a version never means something else
    assert [one.version for one in store.list()] == [1, 3]


@pytest.mark.parametrize("bad", ["", "a b", "../x", "n@v0", "n@3", "n@sha256:zz", "@v1", "é", "a" * 65, "n@v1@v2"])
def test_what_is_no_name(bad: str, store: Store) -> None:
    with pytest.raises(InputError):
        store.get(bad)
    with pytest.raises(InputError):
        image(store, bad)


def test_unknown_names_and_wrong_settings_say_so(store: Store) -> None:
    image(store, "there")
    with pytest.raises(InputError, match="there are: there"):
        store.get("missing")
    with pytest.raises(InputError, match="'there'"):
        store.get("there", Origin.SNAPSHOT)
    for days in (0, -1, float("nan"), True, "3"):
        with pytest.raises(InputError, match="retention_days"):
            image(store, "n", retention_days=days)
    for bad in ({"env": {"A=B": "x"}}, {"workdir": "here"}, {"preimport": ("os; x",)}):
        with pytest.raises(InputError):
            Settings(**bad)  # type: ignore[arg-type]
    store.snapshot(io.BytesIO(files(file=b"s")), name="there")
    with pytest.raises(InputError, match="an image and a snapshot"):
        store.get("there")


def test_settings_and_digests(store: Store) -> None:
    plain = image(store, "a")
    told = Settings(env={"A": "\ud800"}, workdir="/srv", preimport=("numpy", "os.path"))
    other = image(store, "b", settings=told)
    assert plain.digest != other.digest
    assert plain.layers == other.layers
    root = resolve(store, "b")
    assert (root.env, root.workdir, root.preimport, root.host) == ({"A": "\ud800"}, "/srv", ("numpy", "os.path"), True)
    assert root.layers == (store.path_of(other.layers[0]),)
    assert tree(root.layers[0]) == {"file": ("file", 0o644, b"x")}
    assert resolve(store).layers == ()
    with pytest.raises(InputError, match="both"):
        resolve(store, "a", "b")


def test_a_layer_is_stored_once(store: Store) -> None:
    one, two = image(store, "a"), image(store, "b", labels={"l": "1"})
    assert one.layers[0].number == two.layers[0].number
    assert len(list(store.layers.iterdir())) == 1
    parent = store.snapshot(io.BytesIO(files(more=b"12345")), parent=one, labels={"run": "1"}, retention_days=2)
    assert [layer.bytes for layer in parent.layers] == [5, 1]
    info = store.snapshot_info(parent)
    assert (info.id, info.size_bytes, info.labels) == (parent.id, 5, {"run": "1"})
    assert info.expires_at is not None
    assert round(info.expires_at - info.created_at) == 2 * DAY


def test_who_may_enter(store: Store) -> None:
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (store.root, store.layers, store.incoming)]
    assert modes == [0o700, 0o711, 0o700]
    assert os.stat(store.root / "records.sqlite").st_uid == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="owners are only given as root")
def test_owners_are_the_fixed_ones(store: Store) -> None:
    from proctor.isolation.identities import LAYER_ROOT, LAYER_USER

    data = tar(
        member("r", uid=0),
        member("u", uid=1000, gid=1000),
        member("o", uid=7, gid=1000),
        member("s", kind="symlink", to="r", uid=1000),
    )
    top = store.path_of(store.add_layer(io.BytesIO(data)))
    owners = {path.name: (path.lstat().st_uid, path.lstat().st_gid) for path in top.iterdir()}
    assert owners == {
        "r": (LAYER_ROOT, LAYER_ROOT), "u": (LAYER_USER, LAYER_USER), "o": (LAYER_ROOT, LAYER_USER), "s": (LAYER_USER, LAYER_ROOT),
    }  # fmt: skip
    assert (top.stat().st_uid, top.stat().st_gid) == (LAYER_ROOT, LAYER_ROOT)


def test_the_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_root() == tmp_path / "proctor" / "images"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_root() == Path.home() / ".local" / "share" / "proctor" / "images"
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="cannot be used"):
        Store(tmp_path / "file")


# ---------------------------------------------------------------- collection


def test_collection_takes_what_nobody_needs(store: Store) -> None:
    image(store, "a", b"a")
    image(store, "b", b"b")
    loose = store.add_layer(io.BytesIO(files(file=b"loose")))
    assert store.gc().layers == 0  # it may yet be committed
    store.release(loose)
    store.remove("b")
    done = store.gc()
    assert (done.layers, done.bytes) == (2, 6)
    assert kept(store) == [b"a"]
    with pytest.raises(InputError, match="no longer"):
        store.commit([loose], base=Base.HOST)


def test_a_tree_that_forbids_everything_is_removed(store: Store) -> None:
    data = tar(
        member(".", kind="dir", mode=0),
        member("d", kind="dir", mode=0),
        member("d/e/f", mode=0),
        member("l", kind="symlink", to="/"),
    )
    store.release(store.add_layer(io.BytesIO(data)))
    assert store.gc().layers == 1
    assert list(store.layers.iterdir()) == list(store.incoming.iterdir()) == []


def test_retention(store: Store) -> None:
    image(store, "a", b"a")
    old = image(store, "b", b"b", retention_days=3)
    assert store.gc(old.created_at + 2.9 * DAY).expired == ()
    assert store.get("b").id == old.id
    assert store.gc(old.created_at + 3.1 * DAY).expired == (old.id,)
    assert kept(store) == [b"a"]
    gone = image(store, "c", b"c", retention_days=1e-9)
    time.sleep(0.01)
    with pytest.raises(InputError):  # also before it is collected
        store.get(gone.id)
    with pytest.raises(InputError, match="has expired"):
        store.lease(gone)


def test_what_a_living_process_uses_is_never_removed(store: Store, tmp_path: Path) -> None:
    used = image(store, "used", b"u", retention_days=1)
    code = "s = Store(sys.argv[1]); lease = s.lease(s.get('used')); print('ready', flush=True); sys.stdin.readline()"
    with child(code, store.root) as process:
        ready(process)
        later = used.created_at + 5 * DAY
        assert store.gc(later).expired == ()
        assert kept(store) == [b"u"]
        with pytest.raises(InputError, match=f"in use by process {process.pid}"):
            store.remove("used")
        assert store.inspect("used")["used_by"] == [process.pid]
        process.kill()  # a zombie until it is waited for, and dead all the same
        deadline = time.monotonic() + 60
        while store.inspect("used")["used_by"] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert store.gc(later).expired == (used.id,)
        assert kept(store) == []


def test_leases_end_with_their_block_and_belong_to_their_process(store: Store) -> None:
    used = image(store, "used")
    with store.lease(used), store.lease(used) as second:
        second.release()
        if (pid := os.fork()) == 0:
            try:
                second.release()
                with store.lease(used):
                    pass
            finally:
                os._exit(0 if store.inspect("used")["used_by"] == [os.getppid()] else 1)
        assert os.waitpid(pid, 0)[1] == 0
        with pytest.raises(InputError, match="in use"):
            store.remove("used")
    store.remove("used")


@pytest.mark.parametrize(("column", "value", "counts"), [
    ("boot", "another", False), ("started", "1", False), ("space", "1", True),
])  # fmt: skip
def test_leases_of_other_boots_and_containers(column: str, value: str, counts: bool, store: Store) -> None:
    used = image(store, "used")
    store.lease(used)
    with store.database.write() as database:
        database.execute(f"UPDATE leases SET {column} = ?", (value,))
    assert bool(store.inspect("used")["used_by"]) is counts


# ---------------------------------------------------------------- crashes and company


SLOW = """
class Slow:
    def __init__(self, data, stop): self.data, self.at, self.stop = data, 0, stop
    def read(self, size):
        if self.at >= self.stop:
            print('ready', flush=True); time.sleep(600)
        data = self.data[self.at:self.at + min(size, 512)]; self.at += len(data); return data
s = Store(sys.argv[1])
s.add_layer(Slow(sys.stdin.buffer.read(int(sys.argv[2])), int(sys.argv[3])))
"""


@pytest.mark.parametrize("part", [0, 1, 40, 100])
def test_killed_in_the_middle_of_a_layer(part: int, store: Store) -> None:
    data = tar(*(member(f"d/f{number}", b"x" * 700, mode=0) for number in range(50)))
    with child(SLOW, store.root, len(data), len(data.rstrip(b"\0")) * part // 100) as process:
        assert process.stdin is not None
        process.stdin.buffer.write(data)
        process.stdin.flush()
        ready(process)
        assert len(list(store.incoming.iterdir())) == 1
        assert store.gc().leftovers == 0  # it is alive
        assert len(list(store.incoming.iterdir())) == 1
        process.send_signal(signal.SIGKILL)
    assert list(store.layers.iterdir()) == []
    assert store.gc().leftovers == 1
    assert list(store.incoming.iterdir()) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_the_moment_of_recording(when: str, store: Store) -> None:
    """Killed when the layer was moved and not yet recorded, or recorded and in no image."""
    code = f"""
import proctor.images.store as module
when, real = {when!r}, module.take
def take(database, **more):
    if when == 'before': os.kill(os.getpid(), 9)
    return real(database, **more)
module.take = take
s = Store(sys.argv[1]); s.add_layer(sys.stdin.buffer); os.kill(os.getpid(), 9)
"""
    with child(code, store.root) as process:
        process.communicate(files(file=b"first").decode())
        assert process.returncode == -signal.SIGKILL
    assert kept(store) == [b"first"]
    image(store, "b", b"second")  # may get the number of the layer that was not recorded
    done = store.gc()
    assert (done.layers, kept(store)) == (0 if when == "before" else 1, [b"second"])
    assert tree(resolve(store, "b").layers[0]) == {"file": ("file", 0o644, b"second")}
    assert list(store.incoming.iterdir()) == []


def test_a_failure_leaves_nothing(store: Store) -> None:
    with pytest.raises(InputError):
        store.add_layer(io.BytesIO(files(a=b"x")[:600]))
    with pytest.raises(InputError):
        store.snapshot(io.BytesIO(files(a=b"x")), name="bad name")
    with pytest.raises(ZeroDivisionError):
        store.add_layer(io.BytesIO(files(a=b"x")), check=lambda reader: 1 / 0)  # type: ignore[arg-type,return-value]
    assert (list(store.layers.iterdir()), list(store.incoming.iterdir()), store.list()) == ([], [], [])


def test_many_processes_at_once(store: Store) -> None:
    """Each adds layers that others add as well, takes images and collects; nothing that is recorded is ever missing."""
    code = """
import random
sys.path.insert(0, sys.argv[3])
from tarmake import files
s, rng = Store(sys.argv[1]), random.Random(sys.argv[2])
print('ready', flush=True); sys.stdin.readline()
for turn in range(25):
    number = rng.randrange(4)
    layer = s.add_layer(io.BytesIO(files(file=b'%d' % number)))
    made = s.commit([layer], base=Base.HOST, name='n%d' % number, retention_days=rng.choice([1, 1e-9]))
    try:
        with s.lease(made):
            s.gc()
            assert (s.path_of(made.layers[0]) / 'file').read_bytes() == b'%d' % number
    except ValueError:
        pass  # it had expired
print('done', flush=True)
"""
    processes = [child(code, store.root, number, Path(__file__).parent) for number in range(3)]
    for process in processes:
        ready(process)
    outputs = [process.communicate("go\n")[0] for process in processes]
    assert outputs == ["done\n"] * 3
    store.gc()
    for record in store.list():
        assert record.name is not None
        assert (store.path_of(record.layers[0]) / "file").read_text() == record.name[1:]
    store.gc(time.time() + 9 * DAY)
    assert (kept(store), list(store.incoming.iterdir())) == ([], [])


def test_a_database_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    import sqlite3

    tmp_path.joinpath("s").mkdir()
    with sqlite3.connect(tmp_path / "s" / "records.sqlite") as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(InfrastructureError, match="another program's"):
        Store(tmp_path / "s")
