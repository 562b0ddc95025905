"""Debian packages as a layer: fetched by the host's apt, unpacked by the store; no script of theirs runs.

apt computes what is missing on this host, since a sandbox has the host's system
under its layers, and downloads it as an ordinary user could. Where the host has
``/lib`` as a link to ``/usr/lib``, what a package has in ``/lib`` goes there.
"""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote

from proctor.core.errors import InputError
from proctor.images.records import Layer
from proctor.images.store import Store

_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+.](:[a-z0-9-]+)?(=[A-Za-z0-9.+:~-]+|/[a-z0-9-]+)?")
_URI = re.compile(r"'([^']+)' (\S+) (\d+)")
_TOPS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")

Told = Callable[[str], None]


def check_package(name: str) -> str:
    """The same; InputError where it is no Debian package's name."""
    if not _PACKAGE.fullmatch(name) or len(name) > 200:
        raise InputError(f"{name[:80]!r} is not a Debian package's name; write for example graphviz", field="--debian")
    return name


def fetch(names: Sequence[str], folder: Path, told: Told) -> list[Path]:
    """The packages, and what they need that this host has not, as ``.deb`` files.

    Args:
        folder: an empty directory for apt to work in.
        told: gets lines of progress.

    Raises:
        InputError: there is no apt, no such package, or no way to fetch it.
    """
    names = [check_package(name) for name in names]
    error = ""
    for fresh in (False, True):
        try:
            if fresh:
                told("apt-get update, into a directory of its own")
                _apt(folder, True, "update", told=told)
            wanted = _wanted(names, folder, fresh)
            told(f"Debian packages to fetch: {len(wanted)}, {sum(size for *_, size in wanted) / 1e6:.1f} MB")
            if any(not path for path, *_ in wanted):
                _apt(folder, fresh, "install", "--download-only", *names, told=told)
            found = [path or folder / "archives" / name for path, name, _ in wanted]
            if missing := [path.name for path in found if not path.is_file()]:
                raise _Failed(f"{missing[0]} was not fetched")
            return found
        except _Failed as exc:
            error = error if fresh and "locate" in str(exc) and error else str(exc)
    raise InputError(
        f"apt-get cannot fetch {', '.join(names)}: {error}; see that `apt-get update` works on this host",
        field="--debian",
    )


class _Failed(Exception):
    """What apt said last."""


def _wanted(names: Sequence[str], folder: Path, fresh: bool) -> list[tuple[Path | None, str, int]]:
    """Path on this host where apt needs no download, name, and bytes of each file."""
    found = []
    for line in _apt(folder, fresh, "install", "-qq", "--print-uris", *names).splitlines():
        if (match := _URI.match(line)) is None:
            continue
        uri, name, size = match.groups()
        local = Path(unquote(uri.partition(":")[2])) if uri.startswith("file:") else None
        if "/" in name:
            raise _Failed(f"{name!r} is no file name")
        found.append((local, name, int(size)))
    return found


def _apt(folder: Path, fresh: bool, verb: str, *args: str, told: Told | None = None) -> str:
    """Run apt-get so that it changes nothing outside of ``folder``; its standard output."""
    (folder / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    options = {
        "Debug::NoLocking": "1", "Dir::Cache": f"{folder}/cache", "Dir::Cache::archives": f"{folder}/archives",
        "APT::Sandbox::User": "", "APT::Install-Recommends": "0", "APT::Install-Suggests": "0",
        "Acquire::Languages": "none", "Acquire::Retries": "2",
    }  # fmt: skip
    if os.geteuid() == 0:
        options["APT::Sandbox::User"] = "root"  # it would not find the way to the directory as another
    if fresh:
        (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        options["Dir::State::lists"] = f"{folder}/lists"
    command = ["apt-get", "-y", *(part for item in options.items() for part in ("-o", "=".join(item)))]
    if verb == "install":
        command += ["--no-remove", "--no-upgrade"]
    (folder / "cache").mkdir(exist_ok=True)
    try:
        process = subprocess.Popen(
            [*command, verb, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}, encoding="utf-8", errors="replace",
        )  # fmt: skip
    except FileNotFoundError:
        raise InputError(
            "there is no apt-get on this host; Debian packages need Debian or a kin of it", field="--debian"
        ) from None
    lines = []
    with process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                if told is not None and line.startswith(("Get:", "Err:")):
                    told(f"apt-get: {line.strip()}")
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        errors = [line[2:].strip() for line in lines if line.startswith("E:")] or [lines[-1].strip() if lines else ""]
        raise _Failed(errors[0][:300] or f"status {process.returncode}")
    return "".join(lines)


def add_debs(store: Store, debs: Sequence[Path], root: Path = Path("/")) -> Layer:
    """All of them as one layer, for sandboxes of the host's image; kept as ``Store.add_layer`` keeps one.

    Args:
        root: where it is looked how this host lays out its directories.

    Raises:
        InputError: one is no package, or hostile.
    """
    moved = {top: _real(root, top) for top in _TOPS}
    with tempfile.TemporaryFile(dir=store.incoming) as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as out:
            for deb in debs:
                _copy(deb, out, moved)
        file.seek(0)
        return store.add_layer(file)


def _real(root: Path, top: str) -> str:
    """Where a top directory of a package lies on this host."""
    try:
        return os.readlink(root / top).strip("/")
    except OSError:
        return top


def _copy(deb: Path, out: tarfile.TarFile, moved: dict[str, str]) -> None:
    try:
        process = subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(deb)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
    except FileNotFoundError:
        raise InputError("there is no dpkg-deb on this host to unpack Debian packages with", field="--debian") from None
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                for member in archive:
                    name = _moved(member.name, moved)
                    if not name:
                        continue
                    content = archive.extractfile(member) if member.isreg() else None
                    plain = tarfile.TarInfo(name)
                    plain.type, plain.mode, plain.mtime = member.type, member.mode, member.mtime
                    plain.size = member.size if content is not None else 0
                    plain.linkname = _moved(member.linkname, moved) if member.islnk() else member.linkname
                    out.addfile(plain, content)
            process.stdout.read()
        except (tarfile.TarError, OSError, EOFError) as exc:
            process.kill()
            words = process.stderr.read(2000).decode("utf-8", "replace").strip()
            raise InputError(f"{deb.name}: it cannot be unpacked: {words or exc}", field="--debian") from exc
    if process.returncode:
        raise InputError(f"{deb.name}: dpkg-deb cannot unpack it (status {process.returncode})", field="--debian")


def _moved(name: str, moved: dict[str, str]) -> str:
    """A path of a package as one of this host, without ``./``."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return "/".join([moved.get(parts[0], parts[0]), *parts[1:]]) if parts else ""
