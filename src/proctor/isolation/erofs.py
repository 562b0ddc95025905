"""A read-only file system (EROFS) laid out from an image's plan, without a copy of any file's content.

What is written is the index: inodes, directories, links, the plan's own files.
The content of every other file has its place behind that, and a table says
which file of the host it is read from when the machine asks for it. So an image
of many gigabytes costs as much as a walk over its names.

Layers of sandboxes are laid out the same way, on a disk of their own, with what
overlays read in them: owners, whiteouts, and directories that hide those below.
Owners are those that the machine has (0 and 1000), and the mark of such directories
is the one of overlays that a machine's own root mounts.

The layout is that of the kernel's ``fs/erofs/erofs_fs.h``: blocks of 4 KiB,
inodes of 64 bytes, flat data, nothing compressed.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from proctor.guest import blocks
from proctor.isolation.identities import LAYER_USER

BLOCK = blocks.BLOCK
_MAGIC, _SUPER_AT = 0xE0F5E1E2, 1024
_SUPER = struct.Struct("<IIIBBHQQIIII16s16sIHHH38x")
_INODE = struct.Struct("<HHHHQIIIIQII16x")
_DIRENT = struct.Struct("<QHBx")
_SLOT = 32  # inodes are numbered in units of so many bytes
_EXTENDED = 1  # inodes of 64 bytes, data flat
_KINDS = {stat.S_IFREG: 1, stat.S_IFDIR: 2, stat.S_IFCHR: 3, stat.S_IFLNK: 7}
_OPAQUE = "user.overlay.opaque"
_TRUSTED = 4  # number of the names that begin with ``trusted.``
_ATTRIBUTE = struct.pack("<12xBBH14s1sx", 14, _TRUSTED, 1, b"overlay.opaque", b"y")  # lies behind its inode
_SANDBOX = 1000  # as ``guest/agent.py`` has it


@dataclass(slots=True)
class _Node:
    mode: int
    mtime_ns: int = 0
    size: int = 0
    links: int = 1
    children: dict[bytes, _Node] | None = None
    content: bytes | None = None  # a link's target, or a file of the plan's own
    source: str | None = None  # else the host's file
    inode: int = 0  # the host's, by which a file that was replaced is known
    number: int = -1  # where its inode lies, in units of _SLOT
    block: int = 0
    owner: tuple[int, int] = 0, 0
    opaque: bool = False


@dataclass(slots=True)
class _Walk:
    covers: dict[str, list[list[str]]]
    seen: dict[tuple[int, int], _Node] = field(default_factory=dict)

    def layer(self, source: str) -> _Node:
        """What lies at a path of a layer, whoever owns it; OSError where it cannot be read."""
        info = os.lstat(source)
        alone = os.geteuid() != 0  # then all files are this user's, whoever they were made by
        owner, group = (_SANDBOX if alone or number == LAYER_USER else 0 for number in (info.st_uid, info.st_gid))
        found = _Node(info.st_mode, info.st_mtime_ns, owner=(owner, group))
        if stat.S_ISREG(info.st_mode):
            known = self.seen.setdefault((info.st_dev, info.st_ino), found)
            if known is not found:
                known.links += 1
                return known
            found.size, found.inode, found.source = info.st_size, info.st_ino, source
        elif stat.S_ISLNK(info.st_mode):
            found.content = os.fsencode(os.readlink(source))
            found.size = len(found.content)
        elif stat.S_ISDIR(info.st_mode):
            found.opaque = _is_opaque(source)
            found.children = {os.fsencode(name): self.layer(f"{source}/{name}") for name in os.listdir(source)}
        elif not stat.S_ISCHR(info.st_mode) or info.st_rdev:  # else it is a whiteout
            raise OSError(22, f"{source} is nothing that a layer holds")
        return found

    def node(self, source: str, inside: str) -> _Node | None:
        """What lies at a path of the host; None for what is no file, directory or link, or cannot be read here."""
        try:
            info = os.lstat(source)
            kind = stat.S_IFMT(info.st_mode)
            if kind not in _KINDS or kind == stat.S_IFCHR:
                return None
            found = _Node(_mode(info), info.st_mtime_ns)
            if kind == stat.S_IFREG:
                if info.st_nlink > 1:
                    if known := self.seen.get((info.st_dev, info.st_ino)):
                        known.links += 1
                        return known
                    self.seen[info.st_dev, info.st_ino] = found
                found.size, found.inode = info.st_size, info.st_ino
                if found.mode & 0o004:  # else no program may read it, and the machine gets zeros
                    found.source = source
            elif kind == stat.S_IFLNK:
                found.content = os.fsencode(os.readlink(source))
                found.size = len(found.content)
            else:
                found.children = {}
                if (
                    found.mode & 0o001
                ):  # else no program may look for anything in it, and root of the machine finds nothing
                    self.fill(found.children, source, inside)
        except OSError:
            return None
        return found

    def fill(self, children: dict[bytes, _Node], source: str, inside: str) -> None:
        if inside in self.covers:
            names = [(entry, name) for entry, name in self.covers[inside]]
        else:
            with os.scandir(source) as entries:
                names = [(entry.path, entry.name) for entry in entries]
        for path, name in names:
            real = os.path.realpath(path) if inside in self.covers else path
            if (child := self.node(real, f"{inside}/{name}")) is not None:
                children[os.fsencode(name)] = child


def _is_opaque(path: str) -> bool:
    try:
        return os.getxattr(path, _OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


def _mode(info: os.stat_result) -> int:
    """As every program's identity sees it: what this user owns is shown to others as it is to its owner."""
    mode = info.st_mode
    if info.st_uid == os.geteuid() != 0:
        mode |= (mode & 0o500) >> 6
    return mode


def write(plan: dict[str, Any], extra: dict[str, str], index: BinaryIO, table: BinaryIO) -> int:
    """Lay out the root that ``guest/root.py`` would build, with its binds in place.

    Args:
        plan: as for ``guest.root.build``; of what is covered only the entries are there.
        extra: further directories: path inside -> the host's.
        index: gets the beginning of the file system.
        table: gets where the rest is read from, see ``guest.blocks``.

    Returns:
        Bytes of the whole file system.
    """
    root = _Node(stat.S_IFDIR | 0o755, children={})
    walk = _Walk(plan["covers"])
    for path in ("proc", "sys", "dev", "etc", "tmp", "mnt", "run", "workspace", *plan["dirs"]):
        _folder(root, path)
    binds = [(source, inside) for source, inside in plan["binds"]] + [(host, path) for path, host in extra.items()]
    for source, inside in sorted(binds, key=lambda bind: bind[1]):
        if (node := walk.node(os.path.realpath(source), inside)) is not None:
            _put(root, inside, node)
    for target, path in plan["links"]:
        content = os.fsencode(target)
        _put(root, path, _Node(stat.S_IFLNK | 0o777, size=len(content), content=content))
    for path, text in plan["files"].items():
        content = text.encode()
        _put(root, path, _Node(stat.S_IFREG | 0o644, size=len(content), content=content))
    return _lay_out(root, index, table)


class Layers:
    """A disk with layers of sandboxes, each in a directory of its own name: index and table, in memory alone.

    Raises:
        OSError: one of them cannot be read.
    """

    def __init__(self, paths: Sequence[str] = ()) -> None:
        walk = _Walk({})
        children = {os.fsencode(os.path.basename(path)): walk.layer(path) for path in paths}
        self.fds = tuple(os.memfd_create(name, os.MFD_CLOEXEC) for name in ("index", "table"))
        with open(self.fds[0], "wb", closefd=False) as index, open(self.fds[1], "wb", closefd=False) as table:
            _lay_out(_Node(stat.S_IFDIR | 0o755, children=children), index, table)

    @property
    def paths(self) -> tuple[str, str]:
        """Where this process can open both."""
        return f"/proc/self/fd/{self.fds[0]}", f"/proc/self/fd/{self.fds[1]}"

    def __enter__(self) -> Layers:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of both; what has opened them has its own."""
        for fd in self.fds:
            os.close(fd)
        self.fds = ()


def _folder(root: _Node, path: str) -> _Node:
    node = root
    for part in filter(None, path.split("/")):
        assert node.children is not None
        node = node.children.setdefault(os.fsencode(part), _Node(stat.S_IFDIR | 0o755, children={}))
    return node


def _put(root: _Node, path: str, node: _Node) -> None:
    folder, name = os.path.split(path)
    children = _folder(root, folder).children
    assert children is not None
    children[os.fsencode(name)] = node


def _lay_out(root: _Node, index: BinaryIO, table: BinaryIO) -> int:
    order: list[_Node] = []
    parents: dict[int, _Node] = {}
    waiting = [root]
    slots = 0
    while waiting:  # the root first: its number has 16 bits
        node = waiting.pop()
        if node.number >= 0:
            continue  # another name of the same file
        need = (_INODE.size + (len(_ATTRIBUTE) if node.opaque else 0)) // _SLOT
        if slots % (BLOCK // _SLOT) + need > BLOCK // _SLOT:
            slots = -(-slots // (BLOCK // _SLOT)) * (BLOCK // _SLOT)  # none lies in two blocks
        node.number, slots = slots, slots + need
        order.append(node)
        for child in (node.children or {}).values():
            if child.children is not None:
                parents[id(child)] = node
            waiting.append(child)
    at = 1 + -(-slots * _SLOT // BLOCK)
    lists: list[tuple[_Node, list[list[tuple[bytes, _Node]]]]] = []
    for node in order:
        if node.children is not None:
            pages, node.size = _pages(node, parents.get(id(node), root))
            lists.append((node, pages))
            node.links = 2 + sum(child.children is not None for child in node.children.values())
        if node.source is None and (node.children is not None or node.content):
            node.block, at = at, at + -(-node.size // BLOCK)
    own = at
    for node in order:
        if node.source is None and node.children is None and not node.content and node.size:
            node.block, at = at, at + -(-node.size // BLOCK)  # zeros
        elif node.source is not None and node.size:
            node.block, at = at, at + -(-node.size // BLOCK)
    _write_index(order, lists, own, at, index)
    paths: list[bytes] = []
    told = [node for node in order if node.source is not None and node.size]
    table.write(struct.pack("<QQ", len(told), own * BLOCK))
    offset = 0
    for node in sorted(told, key=lambda one: one.block):
        name = os.fsencode(node.source or "")
        table.write(blocks.EXTENT.pack(node.block, node.size, node.mtime_ns, node.inode, offset, len(name)))
        paths.append(name)
        offset += len(name)
    table.write(b"".join(paths))
    return at * BLOCK


def _pages(node: _Node, parent: _Node) -> tuple[list[list[tuple[bytes, _Node]]], int]:
    """Entries of a directory, in order, by the block that they lie in; and its size."""
    assert node.children is not None
    pages: list[list[tuple[bytes, _Node]]] = [[]]
    room = BLOCK
    for name, child in sorted({b".": node, b"..": parent, **node.children}.items()):
        need = _DIRENT.size + len(name)
        if need > room:
            pages.append([])
            room = BLOCK
        pages[-1].append((name, child))
        room -= need
    return pages, len(pages) * BLOCK - room


def _write_index(
    order: list[_Node], lists: list[tuple[_Node, list[list[tuple[bytes, _Node]]]]], own: int, blocks: int, out: BinaryIO
) -> None:
    head = bytearray(BLOCK)
    _SUPER.pack_into(
        head, _SUPER_AT, _MAGIC, 0, 0, 12, 0, 0, len(order), 0, 0, blocks, 1, 0, b"\0" * 16, b"proctor".ljust(16, b"\0"),
        0, 0, 0, 0,
    )  # fmt: skip
    out.write(head)
    for number, node in enumerate(order, 1):
        seconds, rest = divmod(max(0, node.mtime_ns), 10**9)
        out.seek(BLOCK + node.number * _SLOT)
        out.write(
            _INODE.pack(
                _EXTENDED, (len(_ATTRIBUTE) - 12) // 4 + 1 if node.opaque else 0, node.mode & 0xFFFF, 0, node.size,
                node.block, number, *node.owner, seconds, rest, node.links,
            )
            + (_ATTRIBUTE if node.opaque else b"")
        )  # fmt: skip
    contents = {node.block: node.content for node in order if node.content}
    contents.update({node.block: _directory(pages) for node, pages in lists})
    for block in sorted(contents):
        out.seek(block * BLOCK)
        out.write(contents[block] or b"")
    out.truncate(own * BLOCK)


def _directory(pages: list[list[tuple[bytes, _Node]]]) -> bytes:
    made = []
    for page in pages:
        at = len(page) * _DIRENT.size
        entries = b""
        for name, child in page:
            entries += _DIRENT.pack(child.number, at, _KINDS[stat.S_IFMT(child.mode)])
            at += len(name)
        made.append(entries + b"".join(name for name, _ in page))
    return b"".join(page.ljust(BLOCK, b"\0") for page in made[:-1]) + made[-1]


def save(plan: dict[str, Any], extra: dict[str, str], folder: Path) -> int:
    """``write`` into the files ``index`` and ``table`` of a directory; bytes of the file system."""
    with open(folder / "index", "wb") as index, open(folder / "table", "wb") as table:
        return write(plan, extra, index, table)
