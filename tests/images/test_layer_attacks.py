"""Archives that attack: each is refused or rendered harmless by what protects against it, and nothing outside changes."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tarmake import END, extract, files, header, member, padded, pax, record, tar, tree, untouched

from proctor.core.errors import InfrastructureError, InputError
from proctor.images.layer import Dialect
from proctor.images.tarstream import Bounds


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What an archive must not reach: beside the directory that it is unpacked into."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "victim").write_text("as it was")
    return folder


def refused(data: Any, top: Path, match: str, **more: Any) -> None:
    with pytest.raises(InputError, match=match):
        extract(data, top, **more)


# ---------------------------------------------------------------- leading outside


@pytest.mark.parametrize("name", ["../outside/new", "a/../../outside/new", "..", "./../outside/victim"])
@pytest.mark.parametrize("kind", ["file", "dir", "symlink", "link", "char"])
@pytest.mark.parametrize("dialect", list(Dialect))
def test_names_that_lead_upwards(name: str, kind: str, dialect: Dialect, outside: Path) -> None:
    with untouched(outside):
        refused(tar(member("f"), member(name, kind=kind, to="f")), outside.parent / "top", r"'\.\.'", dialect=dialect)


def test_absolute_names(outside: Path) -> None:
    name = f"{outside}/new"
    with untouched(outside):
        refused(tar(member(name, b"x")), outside.parent / "top", "absolute")
        extract(
            tar(member(name, b"x")), outside.parent / "image", Dialect.OCI
        )  # as every engine does: within the image
    assert (outside.parent / "image" / name[1:]).read_bytes() == b"x"


@pytest.mark.parametrize("kind", ["file", "dir", "symlink", "link", "char"])
def test_a_symlink_as_a_directory_on_the_way(kind: str, outside: Path) -> None:
    attack = tar(member("f"), member("way", kind="symlink", to="../outside"), member("way/new", kind=kind, to="f"))
    with untouched(outside):
        refused(attack, outside.parent / "top", "is a symlink")


def test_a_whiteout_through_a_symlink(outside: Path) -> None:
    attack = tar(member("way", kind="symlink", to="../outside"), member("way/.wh.victim"), member("way/.wh..wh..opq"))
    with untouched(outside):
        refused(attack, outside.parent / "top", "is a symlink", dialect=Dialect.OCI)


def test_a_file_over_a_symlink_replaces_the_link_and_not_what_it_names(outside: Path) -> None:
    attack = tar(member("f", kind="symlink", to="../outside/victim"), member("f", b"new"))
    with untouched(outside):
        extract(attack, outside.parent / "top")
    assert tree(outside.parent / "top") == {"f": ("file", 0o644, b"new")}


def test_attributes_of_a_symlink_are_not_those_of_what_it_names(outside: Path) -> None:
    attack = tar(member("f", kind="symlink", to="../outside/victim", mode=0o4777, mtime=5))
    with untouched(outside):
        extract(attack, outside.parent / "top")
    assert os.lstat(outside.parent / "top" / "f").st_mtime == 5


def test_a_directory_over_a_symlink(outside: Path) -> None:
    attack = tar(member("way", kind="symlink", to="../outside"), member("way", kind="dir", mode=0o700))
    with untouched(outside):
        refused(attack, outside.parent / "top", "there twice")


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("../outside/victim", r"'\.\.'"), ("way/victim", "no file of this archive"), ("soft", "a symlink"),
        ("folder", "a directory"), ("missing", "no file"), ("itself", "no file"),
    ],
)  # fmt: skip
def test_hard_links_lead_only_to_files_of_the_archive(target: str, match: str, outside: Path) -> None:
    attack = tar(
        member("way", kind="symlink", to="../outside"),
        member("soft", kind="symlink", to="../outside/victim"),
        member("folder", kind="dir"),
        member("itself", kind="link", to=target),
    )
    with untouched(outside):
        refused(attack, outside.parent / "top", match)
    assert os.stat(outside / "victim").st_nlink == 1


def test_a_hard_link_to_an_absolute_name_is_within_the_archive(outside: Path) -> None:
    attack = tar(member("l", kind="link", to=f"{outside}/victim"), member("l", b"overwritten"))
    with untouched(outside):
        refused(attack, outside.parent / "top", "no file of this archive")


class Swapper:
    """A stream that, once it has been read so far, puts a symlink in the place of a directory."""

    def __init__(self, data: bytes, at: int, folder: Path, target: Path) -> None:
        self._stream, self._at, self._folder, self._target = io.BytesIO(data), at, folder, target

    def read(self, size: int, /) -> bytes:
        if self._stream.tell() >= self._at and not self._folder.is_symlink():
            self._folder.rename(self._folder.with_name("moved"))
            self._folder.symlink_to(self._target)
        return self._stream.read(size)


def test_a_directory_that_becomes_a_symlink_meanwhile_is_not_followed(outside: Path) -> None:
    top = outside.parent / "top"
    before = tar(member("way", kind="dir"), member("other/f"))
    attack = tar(member("way", kind="dir"), member("other/f"), member("way/new", b"x"))
    with untouched(outside), pytest.raises(InfrastructureError, match="changed by somebody"):
        extract(Swapper(attack, len(before.rstrip(b"\0")), top / "way", outside), top)


# ---------------------------------------------------------------- what is not taken


def test_bits_devices_pipes_and_attributes_are_dropped_and_counted(tmp_path: Path) -> None:
    capability = {"SCHILY.xattr.security.capability": "\1", "SCHILY.xattr.user.overlay.redirect": "/etc"}
    made = extract(
        tar(
            member("su", b"x", mode=0o6755),
            member("sg", kind="dir", mode=0o2775, pax_headers={"SCHILY.xattr.user.overlay.opaque": "y"}),
            member("cap", b"x", mode=0o755, pax_headers=capability, uid=77),
            member("disk", kind="block", devmajor=8, devminor=0),
            member("mem", kind="char", devmajor=1, devminor=1),
            member("pipe", kind="fifo"),
        ),
        tmp_path / "top",
    )
    assert made.dropped == {
        "setuid and setgid bits": 2, "attributes": 2, "capabilities": 1, "other owners": 1, "devices": 2, "fifos": 1,
    }  # fmt: skip
    assert tree(tmp_path / "top") == {
        "su": ("file", 0o755, b"x"), "sg": ("dir", 0o775), "cap": ("file", 0o755, b"x"),
    }  # fmt: skip
    for path in (tmp_path / "top").iterdir():
        assert not [name for name in os.listxattr(path) if not name.startswith("security.selinux")]


def test_a_device_is_no_device_by_the_other_dialects_rules(tmp_path: Path) -> None:
    extract(tar(member("gone", kind="char")), tmp_path / "a", Dialect.OCI)
    assert tree(tmp_path / "a") == {}
    extract(tar(member("gone", kind="char")), tmp_path / "b", Dialect.SNAPSHOT)
    assert tree(tmp_path / "b") == {"gone": ("whiteout",)}
    extract(tar(member(".wh.name", b"x")), tmp_path / "c", Dialect.SNAPSHOT)
    assert tree(tmp_path / "c") == {".wh.name": ("file", 0o644, b"x")}


@pytest.mark.parametrize("name", [".wh.", ".wh..", ".wh...", "a/.wh.x/y"])
def test_whiteouts_of_nothing(name: str, tmp_path: Path) -> None:
    refused(tar(member(name)), tmp_path / "top", "whiteout", dialect=Dialect.OCI)


def test_duplicates_the_last_one_counts(tmp_path: Path) -> None:
    data = tar(member("a", b"one", mode=0o755), member("b", kind="link", to="a"), member("a", b"two"))
    made = extract(data, tmp_path / "top")
    assert tree(tmp_path / "top") == {"a": ("file", 0o644, b"two"), "b": ("file", 0o755, b"one")}
    assert made.dropped == {"duplicates": 1}
    assert made.bytes == 6


def test_a_file_over_a_directory(tmp_path: Path) -> None:
    refused(tar(member("a/b", b"x"), member("a", b"y")), tmp_path / "top", "there twice")
    refused(tar(member(".", b"y")), tmp_path / "other", "the top of the archive")


def test_a_snapshot_cannot_hide_all_that_is_below(tmp_path: Path) -> None:
    data = tar(member(".", kind="dir", pax_headers={"PROCTOR.opaque": "1"}))
    refused(data, tmp_path / "top", "hides all")


# ---------------------------------------------------------------- bombs


def test_bounds(tmp_path: Path) -> None:
    few = Bounds(members=10, stream_bytes=100_000, file_bytes=50_000, header_bytes=2000, path_bytes=300, depth=5)
    fine = {f"f{number}": bytes(1000) for number in range(9)}
    extract(files(**fine), tmp_path / "fine", bounds=few)
    for number, (data, match) in enumerate(
        [
            (files(**{f"f{number}": b"" for number in range(11)}), "more than 10"),
            (tar(*(member(f"{number}/a/b/c/d") for number in range(3))), "more than 10 entries"),
            (files(a=bytes(50_001)), "most in one file"),
            (files(a=bytes(49_000), b=bytes(49_000), c=bytes(49_000)), "larger than 100000 bytes"),
            (tar(member("/".join("abcdef"))), "nested deeper"),
            (tar(member("/".join(["a" * 100] * 4))), "longer than"),
            (tar(member("l", kind="symlink", to="x" * 301)), "leads to"),
            (tar(member("a", pax_headers={"comment": "x" * 2001})), "most"),
            (header(size=1 << 33) + b"", "most in one file"),
        ]
    ):
        refused(data, tmp_path / str(number), match, bounds=few)
    refused(tar(member("a" * 256)), tmp_path / "component", "longer than")


def test_a_claimed_size_is_not_read_or_reserved(tmp_path: Path) -> None:
    refused(header(b"pax", 1 << 32, b"x"), tmp_path / "pax", "extension header of")
    refused(header(b"name", 1 << 32, b"L"), tmp_path / "long", "extension header of")
    refused(header(b"f", 1 << 30) + b"few", tmp_path / "file", "middle of a member")


def test_chains_of_headers_end(tmp_path: Path) -> None:
    chain = pax(record(b"comment", b"x"), b"g") * 50
    refused(chain + header() + END, tmp_path / "global", "more than 10", bounds=Bounds(members=10))
    one = pax(record(b"comment", b"x"))
    refused(one + one + header() + END, tmp_path / "two", "two pax headers")
    name = header(b"l", 4, b"L") + padded(b"abc\0")
    refused(name + name + header() + END, tmp_path / "names", "two long names")


@pytest.mark.parametrize(
    "long",
    [
        tar(*(member("d" * 200 + f"/{n}", kind="dir") for n in range(20))),
        tar(*(member(f"{n}", kind="symlink", to="t" * 200) for n in range(20))),
        tar(*(member(f"{n}/" + "d" * 100 + "/f") for n in range(15))),
        tar(*(member("d" * 200 + f"/{n}", kind="char") for n in range(20))),
    ],
    ids=["paths", "targets", "implied", "hidden"],
)
def test_names_together_are_bounded(long: bytes, tmp_path: Path) -> None:
    """They are in memory until the archive is stored."""
    refused(long, tmp_path / "top", "names are longer", bounds=Bounds(name_bytes=3000))
    extract(long, tmp_path / "fine", bounds=Bounds(name_bytes=6000))


class Endless:
    """Zeros behind a file's header, without end: what a decompressor makes of a bomb."""

    def __init__(self) -> None:
        self.head, self.given = header(b"f", 8 << 30), 0

    def read(self, size: int, /) -> bytes:
        data, self.head = self.head[:size], self.head[size:]
        data = data or bytes(size)
        self.given += len(data)
        return data


def test_an_endless_stream_is_left_at_the_bound(tmp_path: Path) -> None:
    source = Endless()
    refused(source, tmp_path / "top", "larger than", bounds=Bounds(stream_bytes=3 << 20))
    assert source.given <= 5 << 20


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (header(flag=b"S") + END, "sparse"),
        (pax(record(b"GNU.sparse.major", b"1")) + header() + END, "sparse"),
        (pax(record(b"GNU.sparse.size", b"1"), b"g") + header() + END, "global"),
        (pax(record(b"path", b"/etc/passwd"), b"g") + header() + END, "global"),
        (pax(record(b"size", b"9" * 30)) + header() + END, "no number"),
        (pax(record(b"size", b"-1")) + header() + END, "no number"),
        (pax(record(b"path", b"a\0b")) + header() + END, "zero byte"),
        (pax(record(b"path", b"../up")) + header() + END, r"'\.\.'"),
        (pax(record(b"linkpath", b"a\0b")) + header(flag=b"2") + END, "leads to"),
        (pax(b"5 a=b\n") + header() + END, "not of its length"),
        (pax(b"99999999999999999999 a=b\n") + header() + END, "no length"),
        (pax(b"999999 a=b\n") + header() + END, "not of its length"),
        (pax(b"0 a=b\n") + header() + END, "not of its length"),
        (pax(record(b"mtime", b"nan")) + header() + END, "no number"),
        (header(flag=b"V") + END, "unknown type"),
        (header(flag=b"2") + END, "leads to"),
        (header(b"d/", 512, b"5") + bytes(512) + END, "claims 512 bytes"),
        (header(size_field=b"\xff" * 12) + END, "negative"),
        (header(size_field=b"\x80" + b"\xff" * 11) + END, "too large"),
        (header(size_field=b"99999999999\0") + END, "no octal number"),
        (header(b"up", prefix=b"../..") + END, r"'\.\.'"),
        (b"\1" * 512 + END, "no octal|checksum"),
        (header()[:148] + b"0000000\0" + header()[156:] + END, "checksum"),
        (header(), "cut off"),
        (pax(record(b"comment", b"x")) + END, "no member"),
        (b"", "cut off"),
        (header(b"f", 4) + b"ab", "middle"),
    ],
)  # fmt: skip
def test_headers_that_lie(data: bytes, match: str, tmp_path: Path) -> None:
    refused(data, tmp_path / "top", match)


def test_times_out_of_range_are_brought_into_it(tmp_path: Path) -> None:
    for number, time in enumerate([b"-5.5", b"9" * 19, b"1.25"]):
        extract(pax(record(b"mtime", time)) + header() + END, tmp_path / str(number))
    assert [os.lstat(tmp_path / str(n) / "x").st_mtime for n in range(3)] == [0, 1 << 33, 1.25]


def test_names_that_are_no_text_are_kept(tmp_path: Path) -> None:
    extract(header(b"\xff\xfe\n\x1b[2J") + END, tmp_path / "top")
    assert os.listdir(os.fsencode(tmp_path / "top")) == [b"\xff\xfe\n\x1b[2J"]
    with pytest.raises(InputError) as caught:
        extract(header(b"\x1b[2J/../x") + END, tmp_path / "other")
    assert str(caught.value).isprintable()


def test_directories_are_nobodys_to_write_until_the_end(tmp_path: Path) -> None:
    """A directory that nobody may write to comes first, and what lies in it afterwards."""
    data = tar(member("d", kind="dir", mode=0), member("d/e", kind="dir", mode=0o555), member("d/e/f", b"x"))
    extract(data, tmp_path / "top")
    assert stat.S_IMODE(os.lstat(tmp_path / "top" / "d").st_mode) == 0
    os.chmod(tmp_path / "top" / "d", 0o755)
    assert stat.S_IMODE(os.lstat(tmp_path / "top" / "d" / "e").st_mode) == 0o555
    os.chmod(tmp_path / "top" / "d" / "e", 0o755)
