"""A real overlay mount in a user namespace shows what the layers are meant to show."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tarmake import archive, docker_save, member, tar, tree

from proctor.images.layer import Dialect
from proctor.images.oci import import_archive
from proctor.images.records import Origin
from proctor.images.rootfs import resolve
from proctor.images.store import Store
from proctor.isolation.identities import LAYER_ROOT, LAYER_USER

SHOW = """
import json, os, sys
found = {}
for folder, names, leaves in os.walk(sys.argv[1]):
    for name in names + leaves:
        path = os.path.join(folder, name)
        shown = os.path.relpath(path, sys.argv[1])
        if os.path.islink(path): found[shown] = ["symlink", os.readlink(path)]
        elif os.path.isdir(path): found[shown] = ["dir", os.lstat(path).st_mode & 0o7777]
        else: found[shown] = ["file", open(path).read()]
print(json.dumps(found))
"""


# Root of a user namespace in which the owners of layers have numbers, as in a sandbox.
ENTER = """
import ctypes, os, sys
if ctypes.CDLL(None, use_errno=True).unshare(0x10000000 | 0x00020000):
    sys.exit("unshare: " + os.strerror(ctypes.get_errno()))
print("ready", flush=True)
sys.stdin.readline()
os.execvp("sh", ["sh", "-c", sys.argv[1]])
"""


def namespaced(script: str, env: dict[str, str]) -> tuple[int, str, str]:
    """Exit status, standard output and error of a shell script; None where the host has no such namespaces."""
    with subprocess.Popen(
        [sys.executable, "-c", ENTER, script], env=env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        if child.stdout.readline() != "ready\n":
            return 1, "", child.communicate()[1]
        more = f"\n1 {LAYER_ROOT} 1\n1000 {LAYER_USER} 1" if os.geteuid() == 0 else ""
        place = Path(f"/proc/{child.pid}")
        try:
            if os.geteuid():
                (place / "setgroups").write_text("deny")
            (place / "uid_map").write_text(f"0 {os.geteuid()} 1{more}")
            (place / "gid_map").write_text(f"0 {os.getegid()} 1{more}")
        except OSError as error:
            child.kill()
            return 1, "", str(error)
        out, err = child.communicate("go\n")
        return child.returncode, out, err


def mounted(layers: tuple[Path, ...], script: str, box: Path) -> str:
    """Standard output of a shell script in a user namespace, with the layers and an empty upper one at $M."""
    for name in ("m", "u"):
        (box / name).mkdir(exist_ok=True)
    lower = ":".join(str(layer) for layer in layers)
    tmpfs = "set -e; mount --make-rprivate /; mount -t tmpfs none $U; mkdir $U/upper $U/work; "
    mount = f"mount -t overlay overlay -o userxattr,lowerdir={lower},upperdir=$U/upper,workdir=$U/work $M; "
    env = os.environ | {"M": str(box / "m"), "U": str(box / "u")}
    code, _, trouble = namespaced(tmpfs, env)
    if code:
        pytest.skip(f"this host allows no mounts in a user namespace: {trouble.strip()}")
    if "overlay" not in Path("/proc/filesystems").read_text():
        pytest.skip("this kernel has no overlay file system")
    code, out, trouble = namespaced(tmpfs + mount + script, env)
    assert code == 0, trouble
    return out


def shown(layers: tuple[Path, ...], box: Path) -> dict[str, list[object]]:
    return json.loads(mounted(layers, f"{sys.executable} -c '{SHOW}' $M", box))  # type: ignore[no-any-return]


# A reference of our own: what applying each archive to one directory, after the rules of OCI, leaves.
LAYERS = [
    [
        member("etc", kind="dir"), member("etc/a", b"a1"), member("etc/b", b"b1"), member("tmp", kind="dir", mode=0o1777),
        member("opt/one/x", b"x1"), member("opt/one/y", b"y1"), member("opt/two/x", b"x1"), member("lib", kind="symlink", to="usr/lib"),
        member("usr/lib/z", b"z1"), member("etc/c", kind="link", to="etc/a"), member("deep/er/f", b"1"),
    ],
    [
        member("etc/.wh.a"), member("etc/b", b"b2"), member("opt/one/.wh..wh..opq"), member("opt/one/new", b"n2"),
        member("opt/.wh.two"), member("tmp/left", b"l2"), member("deep/.wh.er"),
    ],
    [
        member("etc/a", b"a3"), member("opt/two/fresh", b"f3"), member("usr/lib", kind="dir", mode=0o711), member("etc/.wh.b"),
        member("opt/one/.wh.new"), member("opt/one/last", b"3"), member("deep/er", b"a file now"), member(".wh.lib"),
    ],
]  # fmt: skip
MERGED = {
    "etc": ["dir", 0o755], "etc/a": ["file", "a3"], "etc/c": ["file", "a1"], "tmp": ["dir", 0o1777], "tmp/left": ["file", "l2"],
    "opt": ["dir", 0o755], "opt/one": ["dir", 0o755], "opt/one/last": ["file", "3"], "opt/two": ["dir", 0o755],
    "opt/two/fresh": ["file", "f3"], "usr": ["dir", 0o755], "usr/lib": ["dir", 0o711], "usr/lib/z": ["file", "z1"],
    "deep": ["dir", 0o755], "deep/er": ["file", "a file now"],
}  # fmt: skip


def test_layers_whiteouts_and_opaque_directories_show_as_they_should(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        data = archive(docker_save([tar(*one) for one in LAYERS]))
        import_archive(store, io.BytesIO(data), name="three")
        root = resolve(store, "three")
        assert not root.host
        assert shown(root.layers, tmp_path) == MERGED


def test_an_opaque_top_hides_the_layers_below(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        layers = [tar(member("a", b"1")), tar(member(".wh..wh..opq"), member("b", b"2")), tar(member("c", b"3"))]
        made = import_archive(store, io.BytesIO(archive(docker_save(layers))), name="n").record
        assert len(made.layers) == 2
        assert shown(resolve(store, "n").layers, tmp_path) == {"b": ["file", "2"], "c": ["file", "3"]}


def test_a_snapshot_shows_what_the_sandbox_had(tmp_path: Path) -> None:
    """The upper directory of a real overlay mount, packed in the dialect of snapshots and laid over what it was over."""
    pack = """
import io, os, sys, tarfile
top = sys.argv[1]
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT) as tar:
    for folder, names, leaves in os.walk(top):
        for name in names + leaves:
            path = os.path.join(folder, name)
            info = tar.gettarinfo(path, os.path.relpath(path, top))
            if info.isdir() and "user.overlay.opaque" in os.listxattr(path): info.pax_headers["PROCTOR.opaque"] = "1"
            tar.addfile(info, open(path, "rb") if info.isreg() else None)
"""
    work = (
        "cd $M; rm etc/c; rm -r usr; mkdir usr; echo new > usr/file; echo more >> etc/a; ln -s a etc/link; mv opt/two opt/2; "
        "rm -r deep; chmod 700 tmp; "
    )
    with Store(tmp_path / "store") as store:
        base = import_archive(store, io.BytesIO(archive(docker_save([tar(*one) for one in LAYERS]))), name="b").record
        (tmp_path / "pack.py").write_text(pack)
        (tmp_path / "show.py").write_text(SHOW)
        layers = resolve(store, "b").layers
        before = mounted(layers, f"{work} {sys.executable} {tmp_path}/show.py $M", tmp_path)
        again = f"{work} {sys.executable} {tmp_path}/pack.py $U/upper > {tmp_path}/upper.tar"
        mounted(layers, again, tmp_path)
        with open(tmp_path / "upper.tar", "rb") as file:
            made = store.snapshot(file, parent=base, name="grader", retention_days=30)
        assert len(made.layers) == len(base.layers) + 1
        assert made.origin is Origin.SNAPSHOT
        after = resolve(store, snapshot="grader").layers
        assert shown(after, tmp_path) == json.loads(before)
        assert ["whiteout"] in [list(node) for node in tree(after[0]).values()]


def test_the_dialects_agree(tmp_path: Path) -> None:
    """The same removal told in both dialects is the same layer."""
    with Store(tmp_path / "store") as store:
        below = store.add_layer(io.BytesIO(tar(member("a/b", b"x"), member("a/c", b"x"), member("d/e", b"x"))))
        told = store.add_layer(
            io.BytesIO(tar(member("a/.wh.b"), member("d/.wh..wh..opq"))), dialect=Dialect.OCI, below=[below]
        )
        opaque = member("d", kind="dir", pax_headers={"PROCTOR.opaque": "1"})
        other = store.add_layer(io.BytesIO(tar(member("a/b", kind="char"), opaque)))
        assert told.number == other.number
