"""Trees come through an archive as they were, and their digest says what they are."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tarmake import extract, files, member, tar, tree

from proctor.images.layer import Dialect

NAMES = st.one_of(
    st.sampled_from(["a", "b", ".wh.x", ".wh..wh..opq", " ", "\n", "é", "\udcff\udcfe", "x" * 200, "-", "..."]),
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20),
).filter(lambda name: name not in (".", "..") and len(name.encode("utf-8", "surrogateescape")) <= 255)
LEAVES = st.one_of(
    st.tuples(
        st.just("file"),
        st.sampled_from([0o644, 0o755, 0o400, *([0] if os.geteuid() == 0 else [])]),
        st.binary(max_size=2000),
    ),
    st.tuples(st.just("symlink"), st.sampled_from(["/etc/passwd", "../../x", "a", "\udcff"])),
    st.tuples(st.just("whiteout")),
)
TREES = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=4),
    lambda inner: st.dictionaries(
        NAMES, st.one_of(LEAVES, st.tuples(st.just("dir"), st.sampled_from([0o755, 0o1777, 0o500]), st.booleans(), inner)),
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


def pack(nested: dict[str, Any], order: int) -> tuple[bytes, dict[str, Any]]:
    """An archive of a tree in the dialect of snapshots, and what ``tree`` is to say of it."""
    members, wanted = [], dict[str, Any]()

    def walk(inner: dict[str, Any], prefix: str, hidden: bool) -> None:
        for name, node in sorted(inner.items(), reverse=bool(order % 2)):
            path = prefix + name
            if node[0] == "dir":
                _, mode, opaque, below = node
                headers = {"PROCTOR.opaque": "1"} if opaque else {}
                members.append(member(path, kind="dir", mode=mode, mtime=order, pax_headers=headers))
                wanted[path] = ("dir", mode, *(["opaque"] if opaque else []))
                walk(below, path + "/", hidden or opaque)
            elif node[0] == "whiteout":
                members.append(member(path, kind="char", mode=0))
                if not hidden:
                    wanted[path] = node
            elif node[0] == "symlink":
                members.append(member(path, kind="symlink", to=node[1], mtime=order))
                wanted[path] = node
            else:
                members.append(member(path, node[2], mode=node[1], mtime=order))
                wanted[path] = node

    walk(nested, "", False)
    if order % 3 == 2:  # what lies in directories before these
        members.reverse()
    return tar(*members), wanted


@settings(max_examples=80, deadline=None)
@given(TREES)
def test_a_tree_comes_through_as_it_was(nested: dict[str, Any]) -> None:
    digests = set()
    with tempfile.TemporaryDirectory() as box:
        for order in range(3):
            data, wanted = pack(nested, order)
            made = extract(data, Path(box, str(order)))
            digests.add(made.digest)
            assert tree(Path(box, str(order))) == wanted
            assert made.entries == len(wanted)
    assert len(digests) == 1  # neither times nor order count


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_formats_of_tar(form: int, tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as out:
        long = "/".join(["directory"] * 12) + "/" + "n" * (90 if form == tarfile.USTAR_FORMAT else 180)
        for info, data in (member(long, b"long", mtime=7), member("é", b"text"), member("e", kind="dir")):
            out.addfile(info, io.BytesIO(data))
        if form != tarfile.USTAR_FORMAT:
            out.addfile(member("link", kind="symlink", to="t" * 300)[0])
    extract(file.getvalue(), tmp_path / "top")
    assert (tmp_path / "top" / long).read_bytes() == b"long"
    assert (tmp_path / "top" / long).stat().st_mtime == 7
    assert (tmp_path / "top" / "é").read_bytes() == b"text"
    assert form == tarfile.USTAR_FORMAT or os.readlink(tmp_path / "top" / "link") == "t" * 300


def test_digests_tell_trees_apart(tmp_path: Path) -> None:
    trees = [
        tar(),
        files(a=b""),
        files(a=b"x"),
        files(b=b"x"),
        tar(member("a", b"x", mode=0o755)),
        tar(member("a", b"x", uid=1000)),
        tar(member("a", b"x", gid=1000)),
        tar(member("a", kind="symlink", to="x")),
        tar(member("a", kind="dir")),
        tar(member("a", kind="dir", pax_headers={"PROCTOR.opaque": "1"})),
        tar(member("a", kind="char")),
        files(a=b"x", b=b"x"),
        tar(member("a", b"x"), member("b", kind="link", to="a")),
        tar(member(".", kind="dir", mode=0o700)),
        tar(member("a/b", b"")),
    ]
    digests = [extract(data, tmp_path / str(number)).digest for number, data in enumerate(trees)]
    assert len(set(digests)) == len(trees)
    again = [
        tar(member("./a", b"x", mtime=99)),
        tar(member("a", b"x", uid=4)),
        tar(member("b", b"x"), member("a", kind="link", to="b")),
        tar(member("a", kind="dir"), member("a/b", b"")),
    ]
    same = [extract(data, tmp_path / f"again{number}").digest for number, data in enumerate(again)]
    assert same == [digests[2], digests[2], digests[12], digests[14]]


def test_times_links_and_large_files(tmp_path: Path) -> None:
    large = os.urandom(3 << 20)
    data = tar(
        member("d/large", large, mtime=1e9 + 0.5),
        member("d", kind="dir", mtime=3),
        member("l", kind="link", to="./d//large"),
    )
    made = extract(data, tmp_path / "top")
    top = tmp_path / "top"
    assert (top / "d/large").read_bytes() == large
    assert (top / "d/large").stat().st_mtime == 1e9 + 0.5
    assert (top / "d").stat().st_mtime == 3
    assert os.path.samefile(top / "l", top / "d" / "large")
    assert (made.bytes, made.entries) == (len(large), 3)


def test_markers_of_oci_become_those_of_an_overlay(tmp_path: Path) -> None:
    below = tar(
        *(member(name, b"old") for name in ("gone", "kept", "d/x", "e/x", "f/x", "g/h/x")),
        member("t", kind="dir", mode=0o1777),
    )
    extract(below, tmp_path / "below", Dialect.OCI)
    data = tar(
        member(".wh.gone"), member("d/.wh..wh..opq"), member("d/new", b"n"),
        member("e/new", b"n"), member("e/.wh..wh..opq"),  # the order does not matter
        member(".wh.f"), member("f/new", b"n"),  # made anew
        member(".wh.never-there"), member("new/.wh.x"), member("d/.wh.x"),
        member(".wh..wh.plnk/1.2"), member(".wh..wh.aufs"), member("t/new", b"n"), member(".wh.kept"), member("kept", b"n"),
        member("g/.wh.h"),
    )  # fmt: skip
    extract(data, tmp_path / "top", Dialect.OCI, below=[tmp_path / "below"])
    new = ("file", 0o644, b"n")
    assert tree(tmp_path / "top") == {
        "gone": ("whiteout",), "d": ("dir", 0o755, "opaque"), "d/new": new, "e": ("dir", 0o755, "opaque"), "e/new": new,
        "f": ("dir", 0o755, "opaque"), "f/new": new, "t": ("dir", 0o1777), "t/new": new, "kept": new,
        "g": ("dir", 0o755), "g/h": ("whiteout",),
    }  # fmt: skip
    made = extract(
        tar(member(".wh..wh..opq"), member("a", b"n")), tmp_path / "all", Dialect.OCI, below=[tmp_path / "top"]
    )
    assert made.hides_all


def test_a_whiteout_of_what_is_already_gone_is_left_out(tmp_path: Path) -> None:
    extract(files(a=b"x"), tmp_path / "1", Dialect.OCI)
    extract(tar(member(".wh.a")), tmp_path / "2", Dialect.OCI, below=[tmp_path / "1"])
    extract(tar(member(".wh.a")), tmp_path / "3", Dialect.OCI, below=[tmp_path / "2", tmp_path / "1"])
    assert (tree(tmp_path / "2"), tree(tmp_path / "3")) == ({"a": ("whiteout",)}, {})
