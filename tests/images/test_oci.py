"""Archives of images: those of every kind come in right, and those that lie do not come in."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tarmake import archive, config, docker_save, files, member, oci_layout, sha, tar, tree

from proctor.core.errors import InputError
from proctor.images.oci import import_archive
from proctor.images.rootfs import resolve
from proctor.images.store import Store
from proctor.images.tarstream import Bounds

LAYERS = [
    tar(member("a", b"1"), member("d/b", b"2"), member("su", b"", mode=0o4755, uid=33)),
    tar(member("d/.wh.b"), member("c", b"3")),
]
TREES = [
    {"a": ("file", 0o644, b"1"), "d": ("dir", 0o755), "d/b": ("file", 0o644, b"2"), "su": ("file", 0o755, b"")},
    {"d": ("dir", 0o755), "d/b": ("whiteout",), "c": ("file", 0o644, b"3")},
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as made:
        yield made


def brought(store: Store, members: dict[str, bytes] | bytes, **more: Any) -> Any:
    data = members if isinstance(members, bytes) else archive(members)
    return import_archive(store, io.BytesIO(data), name="n", **more)


def refused(store: Store, members: dict[str, bytes] | bytes, match: str, **more: Any) -> None:
    with pytest.raises(InputError, match=match):
        brought(store, members, **more)
    assert store.list() == []
    assert list(store.layers.iterdir()) == list(store.incoming.iterdir()) == []


@pytest.mark.parametrize("make", [docker_save, oci_layout])
@pytest.mark.parametrize("packing", [None, gzip.compress])
def test_both_kinds_packed_or_not(make: Any, packing: Any, store: Store, tmp_path: Path) -> None:
    members = make(LAYERS, [packing(one) for one in LAYERS] if packing else None)
    made = brought(store, members, preimport=("json",))
    root = resolve(store, "n@v1")
    assert [tree(layer) for layer in root.layers] == TREES[::-1]
    assert dict(root.env) == {"PATH": "/bin:/usr/bin", "GREETING": "a=b"}
    assert (root.workdir, root.host, root.preimport) == ("/srv", False, ("json",))
    assert (made.record.settings.command, made.record.settings.user) == (("sh",), "app")
    assert made.dropped == {"setuid and setgid bits": 1, "other owners": 1}
    (tmp_path / "file.tar").write_bytes(archive(members))
    (tmp_path / "file.tar.gz").write_bytes(gzip.compress(archive(members)))
    for name in ("file.tar", "file.tar.gz"):
        assert import_archive(store, tmp_path / name, name="n", preimport=("json",)).record.id == made.record.id


def test_zstd(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    zstandard = pytest.importorskip("zstandard")
    members = oci_layout(LAYERS, [zstandard.compress(one) for one in LAYERS])
    brought(store, members)
    assert [tree(layer) for layer in resolve(store, "n").layers] == TREES[::-1]
    store.remove("n")
    store.gc()
    broken = zstandard.compress(LAYERS[0])[:-5] + b"12345"
    refused(store, oci_layout(LAYERS, [broken, LAYERS[1]]), "unpacked|middle|cut off|sha256")


def test_zstd_without_its_library(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("zstandard", "compression", "compression.zstd"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    refused(store, oci_layout(LAYERS, [b"\x28\xb5\x2f\xfd" + bytes(20), LAYERS[1]]), "pip install")


@pytest.mark.parametrize(("magic", "name"), [(b"BZh9", "bzip2"), (b"\xfd7zXZ\0", "xz")])
def test_other_packings_are_named(magic: bytes, name: str, store: Store) -> None:
    refused(store, oci_layout([LAYERS[0]], [magic + bytes(20)]), name)


def test_links_between_layers_of_docker_save(store: Store) -> None:
    twice = [LAYERS[0], LAYERS[0]]
    members = docker_save(twice)
    names = [name for name in members if name.endswith("layer.tar")]
    listed = [member(name, data) for name, data in members.items() if name != names[1]]
    brought(store, tar(*listed, member(names[1], kind="symlink", to=f"../{names[0]}")))
    assert len(resolve(store, "n").layers) == 2
    store.remove("n")
    store.gc()
    leading_out = tar(*listed, member(names[1], kind="symlink", to="../../../../etc/passwd"))
    refused(store, leading_out, r"'\.\.'|has no")


def test_the_platform_is_chosen(store: Store) -> None:
    other = json.dumps({"config": {}, "layers": []}).encode()
    brought(store, oci_layout(LAYERS, platforms={"s390x": other, "unknown": b"not even JSON"}))
    store.remove("n")
    store.gc()
    refused(store, docker_save(LAYERS, architecture="s390x"), "it has linux/s390x")
    members = oci_layout(LAYERS)
    index = json.loads(members["index.json"])
    inner = members["blobs/sha256/" + index["manifests"][0]["digest"][7:]]
    changed = inner.replace(b'"linux"', b'"plan9"')
    index["manifests"][0] |= {"digest": f"sha256:{sha(changed)}", "size": len(changed)}
    members |= {f"blobs/sha256/{sha(changed)}": changed, "index.json": json.dumps(index).encode()}
    refused(store, members, "it has plan9/")


def test_one_of_several_is_named(store: Store) -> None:
    first, second = docker_save([LAYERS[0]]), docker_save([LAYERS[1]], config={"Env": ["WHICH=second"]})
    listed = json.loads(first["manifest.json"]) + json.loads(second["manifest.json"])
    listed[1]["RepoTags"], listed[1]["Layers"] = ["other:2"], ["second/layer.tar"]
    members = second | first | {"second/layer.tar": LAYERS[1], "manifest.json": json.dumps(listed).encode()}
    refused(store, members, r"2 images \(example:1, other:2\)")
    refused(store, members, "say which", reference="third")
    brought(store, members, reference="other:2")
    assert resolve(store, "n").env == {"WHICH": "second"}


@pytest.mark.parametrize("make", [docker_save, oci_layout])
def test_every_digest_is_checked(make: Any, store: Store) -> None:
    members = make(LAYERS)
    for name, data in members.items():
        if name in ("index.json", "manifest.json", "oci-layout"):
            continue
        other = data.replace(b"1", b"2", 1) if b"1" in data else data + b" "
        refused(store, members | {name: other}, "sha256|JSON|bytes|checksum|size|octal|digest")
        refused(store, {key: value for key, value in members.items() if key != name}, "which it needs")


def test_the_digest_of_what_was_unpacked_is_checked_to_its_last_byte(store: Store) -> None:
    """The packed bytes are the right ones, and what they unpack to is not what the configuration says."""
    tails = [LAYERS[0] + b"more"]
    assert brought(store, oci_layout(tails)).record.bytes == 2
    store.remove("n")
    store.gc()
    refused(store, docker_save([LAYERS[0]], [LAYERS[0] + b"more"]), "sha256")
    refused(store, docker_save([LAYERS[0]], [gzip.compress(LAYERS[0]) + gzip.compress(b"more")]), "sha256")


def test_a_bomb_is_left_soon(store: Store) -> None:
    small = gzip.compress(bytes(1 << 20)) * 600  # 600 MiB of zeros behind the archive's end, in 0.6 MB
    data = gzip.compress(LAYERS[0]) + small
    refused(store, oci_layout([LAYERS[0]], [data]), "times as large")
    refused(store, oci_layout(LAYERS), "more than 1 ", bounds=Bounds(members=1))


def test_what_whiteouts_ask_of_the_layers_below_is_bounded(store: Store) -> None:
    """A whiteout is looked for in each layer from its top: few bytes of archive could ask for days."""
    deep = "/".join("abcdefghij")
    layers = [tar(member(f"{deep}/f", str(n).encode())) for n in range(4)] + [
        tar(*(member(f"{deep}/.wh.{n}") for n in range(50)))
    ]
    refused(store, oci_layout(layers), "fewer layers", bounds=Bounds(lookups=2000))
    brought(store, oci_layout(layers), bounds=Bounds(lookups=3000))


@pytest.mark.parametrize(
    ("members", "match"),
    [
        (b"", "cut off"), (b"not a tar" * 200, "checksum|octal"), (files(a=b"x"), "neither"),
        ({"manifest.json": b"[]"}, "list of images"), ({"manifest.json": b"[" * 100_000}, "not JSON"),
        ({"manifest.json": b'[{"Config": 5}]'}, "not a text"), ({"manifest.json": b'["x"]'}, "not an object"),
        ({"manifest.json": b'[{"Config": "../x"}]'}, "has no"), ({"index.json": b"[]"}, "not an object"),
        ({"index.json": b'{"manifests": 1}'}, "not a list"), ({"index.json": b'{"manifests": [1]}'}, "not an object"),
        ({"index.json": b'{"manifests": [{"digest": "sha256:../../x", "size": 1}]}'}, "not a sha256"),
        ({"index.json": b'{"manifests": [{"digest": "md5:1", "size": 1}]}'}, "not a sha256"),
        ({"index.json": b'{"manifests": [{"digest": "sha256:1", "size": true}]}'}, "no size"),
        ({"index.json": b'{"manifests": []}'}, "no image for linux"),
        ({"index.json": b" " * (5 << 20)}, "more than any"),
        (tar(member("manifest.json", b"[]"), member("manifest.json", b"[]")), "twice"),
        (docker_save(LAYERS, config={"Env": ["NOVALUE"]}), "no value"),
        (docker_save(LAYERS, config={"Env": ["=x"]}), "no variable"),
        (docker_save(LAYERS, config={"WorkingDir": "relative"}), "begin with /"),
        (docker_save(LAYERS, config=[]), "not an object"),
        (docker_save(LAYERS, rootfs={"diff_ids": []}), "knows 0 layers"),
        (docker_save([tar(member("../x"))]), r"'\.\.'"),
        (docker_save([b""] * 129), "128 are the most"),
    ],
)  # fmt: skip
def test_archives_that_are_none(members: Any, match: str, store: Store) -> None:
    refused(store, members, match)


def test_an_index_that_holds_itself_ends(store: Store) -> None:
    """It cannot name its own digest, but many can be nested."""
    inner = json.dumps({"manifests": []}).encode()
    members = {}
    for _ in range(20):
        members[f"blobs/sha256/{sha(inner)}"] = inner
        inner = json.dumps({"manifests": [{"digest": f"sha256:{sha(inner)}", "size": len(inner)}] * 2}).encode()
    refused(store, members | {"index.json": inner}, "nested too deep")


def test_indexes_that_are_small_and_name_one_another_over_and_over_are_left(store: Store) -> None:
    members, inner = {"oci-layout": b"{}"}, json.dumps({"manifests": []}).encode()
    for _ in range(3):
        members[f"blobs/sha256/{sha(inner)}"] = inner
        row = {"digest": f"sha256:{sha(inner)}", "size": len(inner)}
        inner = json.dumps({"manifests": [row] * 900}).encode()
    refused(store, members | {"index.json": inner}, "too many manifests")
    large = json.dumps({"manifests": [], "padding": "x" * (3 << 20)}).encode()  # 3 KiB of an archive, read each time
    row = {"digest": f"sha256:{sha(large)}", "size": len(large)}
    members = {"oci-layout": b"{}", f"blobs/sha256/{sha(large)}": large}
    refused(store, members | {"index.json": json.dumps({"manifests": [row] * 900}).encode()}, "too many manifests")


def test_names_in_messages_are_escaped(store: Store) -> None:
    rows = [{"Config": "c", "Layers": [], "RepoTags": [f"\x1b]0;x\x07\ud800{n}"]} for n in range(2)]
    with pytest.raises(InputError) as caught:
        brought(store, {"manifest.json": json.dumps(rows).encode()})
    assert str(caught.value).isprintable()


def test_an_image_without_a_configuration_of_its_own(store: Store) -> None:
    data = json.loads(config([LAYERS[0]]))
    del data["config"]
    members = docker_save([LAYERS[0]], config=None)
    root = resolve(store, brought(store, members).record.id)
    assert (root.env, root.workdir) == ({}, None)


def test_the_digest_of_what_is_packed_is_checked_though_it_unpacks_to_the_same(store: Store) -> None:
    one, other = gzip.compress(LAYERS[0], mtime=1), gzip.compress(LAYERS[0], mtime=2)
    members = oci_layout([LAYERS[0]], [one])
    refused(store, members | {f"blobs/sha256/{sha(one)}": other}, "sha256")
