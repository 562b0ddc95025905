# Made from async_files.py by tools/make_sync.py: change that one.
"""Files of a sandbox, and trees of them to and from this host."""

from __future__ import annotations

import builtins
import contextlib
import os
from collections.abc import Iterator

from proctor.client import local
from proctor.client.door import SyncDoor
from proctor.client.errors import ConflictError, InvalidRequestError, NotFoundError, RuntimeError
from proctor.client.far import closing
from proctor.client.fields import octets, spellings, whole
from proctor.client.fields import path as checked_path
from proctor.client.values import Record, file_record
from proctor.core.sandbox import MIB

_MOST_READ = 1 << 40


def too_large(path: str, most: int) -> InvalidRequestError:
    """More than a download may bring."""
    return InvalidRequestError(
        f"{path!a} goes beyond {most} bytes in all", code="file_too_large", status=413, hint="give max_bytes"
    )


class Files:
    """``sandbox.files``. A path that is not absolute is in /workspace."""

    def __init__(self, door: SyncDoor, sandbox_id: str, disk_mib: int) -> None:
        self._door, self._id = door, sandbox_id
        self._most = max(disk_mib, 64) * MIB  # a sparse file may be said to be far larger than what it holds

    @spellings
    def write(self, path: str, data: str | bytes, mode: int | None = None) -> Record:
        """Write a file, and the directories that it is in; gives ``path`` and ``size``.

        Args:
            data: text is UTF-8.
            mode: permission bits; None keeps those of a file that is there, and is 0o644 for a new one.
        """
        content = octets("data", data)
        if mode is not None:
            mode = whole("mode", mode, least=0, most=0o777)
        where = checked_path("path", path)
        return Record(self._door.call(self._door.backend.write_file(self._id, where, content, mode)))

    @spellings
    def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """All of a file.

        Args:
            max_bytes: refuse one that is larger; None is as much as the sandbox may write.
        """
        most = self._most if max_bytes is None else whole("max_bytes", max_bytes, least=0, most=_MOST_READ)
        return self._door.call(self._door.backend.read_file(self._id, checked_path("path", path), most))

    @spellings
    def read_text(self, path: str, encoding: str = "utf-8", *, errors: str = "strict") -> str:
        """All of a file, as text."""
        return (self.read(path)).decode(encoding, errors)

    @spellings
    def read_stream(self, path: str) -> Iterator[bytes]:
        """A file in pieces of at most 1 MiB."""
        handle, _ = self._door.call(
            self._door.backend.begin_read(self._id, checked_path("path", path)),
            closing(self._door.backend, self._id, write=False),
        )
        try:
            while piece := self._door.call(self._door.backend.read_piece(self._id, handle)):
                yield piece
        finally:
            with contextlib.suppress(RuntimeError):
                self._door.call(self._door.backend.end_read(self._id, handle))

    @spellings
    def list(
        self, path: str = "/workspace", *, depth: int | None = None, glob: str | None = None,
        hidden: bool | None = None, limit: int | None = None,
    ) -> builtins.list[Record]:  # fmt: skip
        """What is in a directory, in the order of names: ``path``, ``name``, ``type``, ``size``, ``mode``, ``modifiedAt``.

        Args:
            depth: levels; 1 unless given.
            glob: ``*`` stays in a directory, ``**`` crosses them; matched with the path below ``path``.
            hidden: names that begin with a dot as well; they are shown unless this is False.
            limit: at most so many.
        """
        depth = whole("depth", 1 if depth is None else depth, least=1, most=1000)
        if limit is not None:
            limit = whole("limit", limit, least=1, most=local.MOST_FILES)
        rows, more = self._door.call(
            self._door.backend.list_files(
                self._id, checked_path("path", path), depth=depth, glob=glob, hidden=hidden is not False, limit=limit
            )
        )
        if more and len(rows) != limit:
            raise InvalidRequestError(
                f"what is below {path!a} is more than can be listed at once",
                code="too_many_files", status=400, hint="name a directory in it, fewer levels, or a limit",
            )  # fmt: skip
        return [file_record(row) for row in rows]

    @spellings
    def glob(self, pattern: str, root: str = "/workspace") -> builtins.list[Record]:
        """What matches a pattern below a directory."""
        return self.list(root, depth=1000 if "**" in pattern else pattern.count("/") + 1, glob=pattern)

    @spellings
    def stat(self, path: str, *, follow: bool = True) -> Record:
        """What a path is; ``type`` is file, directory, symlink or other."""
        where = checked_path("path", path)
        return file_record(self._door.call(self._door.backend.stat_file(self._id, where, link=not follow)))

    @spellings
    def exists(self, path: str) -> bool:
        """Whether there is something at a path."""
        try:
            self.stat(path)
        except NotFoundError:
            return False
        except InvalidRequestError as exc:
            if exc.code == "not_a_directory":
                return False
            raise
        return True

    @spellings
    def mkdir(self, path: str, parents: bool = True) -> None:
        """Make a directory; one that is there stays. ``parents`` makes what is missing of the way."""
        where = checked_path("path", path)
        above = os.path.dirname(where.rstrip("/"))
        if not parents and above and not self.exists(above):
            raise NotFoundError(f"{above!a} is not there", code="not_found", status=404, hint="give parents=True")
        self._door.call(self._door.backend.make_directory(self._id, where))

    @spellings
    def remove(self, path: str, recursive: bool = False) -> bool:
        """Remove a file, a link or a directory; False where there was none."""
        where = checked_path("path", path)
        try:
            self._door.call(self._door.backend.remove_file(self._id, where, recursive=bool(recursive)))
        except NotFoundError:
            return False
        return True

    @spellings
    def rename(self, source: str, target: str, overwrite: bool = False) -> None:
        """Move a file or a directory; one that is at the new name stays unless ``overwrite``."""
        to = checked_path("target", target)
        if not overwrite and self.exists(to):
            raise ConflictError(f"{to!a} is there", code="already_exists", status=409, hint="give overwrite=True")
        self._door.call(self._door.backend.rename_file(self._id, checked_path("source", source), to))

    # ------------------------------------------------------------ trees

    @spellings
    def upload(self, local_path: str | os.PathLike[str], remote_path: str) -> Record:
        """Copy a file or a directory of this host into the sandbox, in pieces; gives ``files``, ``bytes``, ``skipped``.

        A directory's content comes to lie in ``remote_path``. Links that lead out of it, and what is neither file
        nor directory, are left out and listed in ``skipped``.
        """
        top, target = os.fspath(local_path), checked_path("remote_path", remote_path)
        if not self._door.thread(local.is_folder, top):
            size = self._send(top, None, target)
            return Record(files=1, bytes=size, skipped=[])
        self._door.call(self._door.backend.make_directory(self._id, target))
        done = Record(files=0, bytes=0, skipped=[])
        for source in self._door.thread(local.sources, top):
            where = f"{target.rstrip('/')}/{source.inside}"
            if source.skip:
                done["skipped"].append(f"{source.inside}: {source.skip}")
            elif source.folder:
                self._door.call(self._door.backend.make_directory(self._id, where))
            else:
                done["bytes"] += self._send(top, source.inside, where)
                done["files"] += 1
        return done

    def _send(self, top: str, inside: str | None, target: str) -> int:
        file, mode = self._door.thread(local.open_source, top, inside)
        backend, size = self._door.backend, 0
        with file:
            handle = self._door.call(
                backend.begin_write(self._id, target, mode), closing(backend, self._id, write=True)
            )
            try:
                while piece := self._door.thread(file.read, local.PIECE):
                    self._door.call(backend.write_piece(self._id, handle, piece))
                    size += len(piece)
            except BaseException:
                with contextlib.suppress(RuntimeError):
                    self._door.call(backend.end_write(self._id, handle, keep=False))
                raise
            self._door.call(backend.end_write(self._id, handle, keep=True))
        return size

    @spellings
    def download(
        self, remote_path: str, local_path: str | os.PathLike[str], *, max_bytes: int | None = None
    ) -> Record:
        """Copy a file or a directory of the sandbox to this host, in pieces; gives ``files``, ``bytes``, ``skipped``.

        Each file takes its place when all of it is there: one that fails leaves what was there as it was.
        A file becomes ``local_path``; a directory's content comes to lie in it. No link is made or followed, on
        either side: links, devices and pipes are left out and listed in ``skipped``.

        Args:
            max_bytes: refuse with ``file_too_large`` beyond so many in all; None is as much as the sandbox may write.
        """
        top, target = checked_path("remote_path", remote_path), os.fspath(local_path)
        most = self._most if max_bytes is None else whole("max_bytes", max_bytes, least=0, most=_MOST_READ)
        info = self._door.call(self._door.backend.stat_file(self._id, top, link=False))
        done = Record(files=0, bytes=0, skipped=[])
        if info.kind != "directory":
            if info.size > most:
                raise too_large(top, most)
            self._receive(top, None, [os.path.abspath(target)], done, most)
            return done
        found = self._tree(top.rstrip("/"), done, most)
        place = self._door.thread(local.Target, target)
        try:
            for steps, folder in found:
                if folder:
                    self._door.thread(place.make, steps)
                else:
                    self._receive("/".join([top.rstrip("/"), *steps]), place, steps, done, most)
        finally:
            place.close()
        return done

    def _tree(self, top: str, done: Record, most: int) -> builtins.list[tuple[builtins.list[str], bool]]:
        """Files and directories (True) below a directory, by their steps; refused here where they are too many or too large."""
        waiting: builtins.list[builtins.list[str]] = [[]]
        found: builtins.list[tuple[builtins.list[str], bool]] = []
        seen = size = 0
        while waiting:
            steps = waiting.pop()
            here = "/".join([top, *steps]) or "/"
            rows, more = self._door.call(
                self._door.backend.list_files(self._id, here, depth=1, glob=None, hidden=True, limit=None)
            )
            seen += len(rows)
            if more or seen > local.MOST_FILES or local.too_deep(steps):
                raise InvalidRequestError(
                    f"{top!a} has more than {local.MOST_FILES} files, more than {local.MOST_DEEP} levels, or a path of "
                    f"more than {local.MOST_LONG} bytes",
                    code="too_many_files", status=400, hint="pack it in the sandbox and download the archive",
                )  # fmt: skip
            for row in rows:
                name = row.path.rpartition("/")[2]
                below = [*steps, name]
                if not local.safe_step(name) or row.kind not in ("file", "directory"):
                    done["skipped"].append(f"{'/'.join(below)!a}: {row.kind}")
                elif row.kind == "directory":
                    found.append((below, True))
                    waiting.append(below)
                else:
                    found.append((below, False))
                    size += row.size
                    if size > most:
                        raise too_large(top, most)
        return found

    def _receive(
        self, source: str, place: local.Target | None, steps: builtins.list[str], done: Record, most: int
    ) -> None:
        backend = self._door.backend
        handle, mode = self._door.call(
            backend.begin_read(self._id, source), closing(backend, self._id, write=False)
        )
        try:
            file: local.Part
            if place is None:
                file = self._door.thread(local.part_at, steps[0], mode)
            else:
                file = self._door.thread(place.create, steps, mode)
            with file:
                while piece := self._door.call(backend.read_piece(self._id, handle)):
                    done["bytes"] += len(piece)
                    if done["bytes"] > most:
                        raise too_large(source, most)
                    self._door.thread(file.write, piece)
                self._door.thread(file.keep)
            done["files"] += 1
        finally:
            with contextlib.suppress(RuntimeError):
                self._door.call(backend.end_read(self._id, handle))
