"""A layer with Python packages of this host for sandboxes of the host's image, such as pip.

The host's image hides all that is in its site-packages directories, so that
programs see the bare standard library. This lays chosen packages over that, from
where the host has them: its interpreter's own site-packages, the wheel that
``ensurepip`` brings, or the wheels of a Debian package. It is made once and is
an image like others, named ``host-pip``.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import os
import re
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path

from proctor.core.errors import InputError
from proctor.images.host import _interpreter, host_image
from proctor.images.records import Base, Origin, Record
from proctor.images.store import Store

_WHEELS = "/usr/share/python-wheels"
_KEY = "host"
_FORMAT = 2  # of what is laid out
_USER = 1000  # theirs, so that they can be upgraded and removed
_SHEBANG = 120  # bytes that every kernel reads of one


def host_packages(store: Store, names: Sequence[str] = ("pip",)) -> Record:
    """The image that is the host's own and the named packages with what they require; made when first asked for.

    Their commands lie beside the interpreter, so ``pip`` is found. A mark that forbids installing
    (``EXTERNALLY-MANAGED``) is hidden, since no package manager owns a sandbox.

    Raises:
        InputError: this host does not have one of them.
        InfrastructureError: the interpreter or the store cannot be used.
    """
    names = sorted({_plain(name) for name in names})
    title = "host-" + "-".join(names)[:59].rstrip("-")
    image = host_image()
    where = _interpreter()
    sites = list(image.plan["covers"])
    if not sites:
        raise InputError("the host's interpreter has no site-packages directory to lay packages over", field="packages")
    found = [source for name in names for source in _sources(name, sites, where["stdlib"])]
    about = [_FORMAT, names, image.python, where["version"], sites[0], [str(path) for path in found], _stamps(found)]
    key = hashlib.sha256(json.dumps(about).encode()).hexdigest()
    made = [one for one in store.list(Origin.IMAGE) if one.name == title and one.labels.get(_KEY) == key]
    if made:
        return made[-1]
    with tempfile.TemporaryFile() as file:
        _write(file, found, sites[0], image.python, Path(where["stdlib"]))
        file.seek(0)
        layer = store.add_layer(file)
    record = store.commit([layer], base=Base.HOST, name=title, labels={_KEY: key})
    for old in store.list(Origin.IMAGE):
        if old.name == title and old.labels.get(_KEY, key) != key:  # of the interpreter as it was
            try:
                store.remove(old.id)
            except InputError:
                continue  # in use, or another process was quicker
    return record


def _plain(name: str) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}", name):
        raise InputError(f"{str(name)[:80]!r} is not the name of a package", field="packages")
    return re.sub(r"[-_.]+", "-", name).lower()


def _sources(name: str, sites: Sequence[str], stdlib: str) -> list[Path]:
    """Where a package and what it requires are: ``.dist-info`` directories, or wheels."""
    waiting, found = [name], dict[str, Path]()
    while waiting:
        wanted = waiting.pop()
        if wanted in found:
            continue
        dist = next(iter(importlib.metadata.distributions(name=wanted, path=list(sites))), None)
        place = Path(str(dist.locate_file(""))) / _info(dist) if dist is not None else _wheel(wanted, stdlib)
        if place is None:
            if wanted != name:
                continue  # an optional requirement
            raise InputError(
                f"{name!r} is not on this host: neither in {sites[0]}, nor with ensurepip, nor in {_WHEELS}; "
                f"install it for {_interpreter()['python']}"
                + (", or the package python3-pip-whl" if name == "pip" else ""),
                field="packages",
            )
        found[wanted] = place
        for requirement in (dist.requires or []) if dist is not None else []:
            match = re.match(r"[A-Za-z0-9._-]+", requirement)
            if match and "extra ==" not in requirement:
                waiting.append(_plain(match.group()))
    return [found[key] for key in sorted(found)]


def _info(dist: importlib.metadata.Distribution) -> str:
    for file in dist.files or ():
        if file.parts[0].endswith(".dist-info"):
            return file.parts[0]
    return "."


def _wheel(name: str, stdlib: str) -> Path | None:
    """The newest wheel of a package among those that a host has for its own use."""
    stem = name.replace("-", "_")
    wheels = [*Path(stdlib, "ensurepip", "_bundled").glob(f"{stem}-*.whl"), *Path(_WHEELS).glob(f"{stem}-*.whl")]
    return max(wheels, key=lambda path: [int(n) for n in re.findall(r"\d+", path.name.split("-")[1])], default=None)


def _stamps(paths: Sequence[Path]) -> list[int]:
    return [path.stat().st_mtime_ns for path in paths]


def _files(source: Path) -> Iterator[tuple[str, Path | bytes, int]]:
    """Name, content or place of it, and permission bits, of each file of a package."""
    if source.suffix == ".whl":
        with zipfile.ZipFile(source) as wheel:
            for entry in wheel.infolist():
                if not entry.is_dir() and ".data/" not in entry.filename:
                    yield entry.filename, wheel.read(entry), entry.external_attr >> 16 & 0o111
        return
    dist = importlib.metadata.Distribution.at(source)
    for file in dist.files or ():
        place = Path(str(dist.locate_file(file)))
        if ".." not in file.parts and "__pycache__" not in file.parts and place.is_file():
            yield str(file), place, stat.S_IMODE(place.stat().st_mode) & 0o111


def _write(file: io.BufferedIOBase | object, sources: Sequence[Path], site: str, python: str, stdlib: Path) -> None:
    made: set[str] = set()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        for source in sources:
            commands = b""
            for name, content, runnable in _files(source):
                data = content if isinstance(content, bytes) else content.read_bytes()
                time = source.stat().st_mtime if isinstance(content, bytes) else content.stat().st_mtime
                _folders(tar, site, os.path.dirname(name), made)
                _add(tar, f"{site}/{name}", data, 0o644 | runnable, time)
                if name.endswith(".dist-info/entry_points.txt"):
                    commands = data
            for command, target in _commands(commands):
                script, folder = _script(python, target).encode(), os.path.dirname(python)
                if not folder.startswith(("/usr/bin", "/bin")):  # the system's stays root's
                    _folders(tar, os.path.dirname(folder), os.path.basename(folder), made)
                _add(tar, f"{folder}/{command}", script, 0o755, source.stat().st_mtime)
        mark = stdlib / "EXTERNALLY-MANAGED"
        if mark.exists():
            gone = tarfile.TarInfo(str(mark.resolve()).lstrip("/"))
            gone.type, gone.mode = tarfile.CHRTYPE, 0
            tar.addfile(gone)


def _folders(tar: tarfile.TarFile, top: str, inside: str, made: set[str]) -> None:
    """The directories below ``top`` that a file lies in, the user's."""
    parts = inside.split("/") if inside else []
    for depth in range(len(parts)):
        path = "/".join([top, *parts[: depth + 1]])
        if path not in made:
            made.add(path)
            member = tarfile.TarInfo(path.lstrip("/"))
            member.type, member.mode, member.uid, member.gid = tarfile.DIRTYPE, 0o755, _USER, _USER
            tar.addfile(member)


def _add(tar: tarfile.TarFile, path: str, data: bytes, mode: int, time: float) -> None:
    member = tarfile.TarInfo(path.lstrip("/"))
    member.size, member.mode, member.mtime = len(data), mode, int(time)
    member.uid = member.gid = _USER
    tar.addfile(member, io.BytesIO(data))


def _commands(text: bytes) -> list[tuple[str, str]]:
    """Console scripts of a package: name, ``module:function``."""
    parser = ConfigParser(delimiters=("=",), strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text.decode())
    except (ConfigError, UnicodeDecodeError):
        return []
    if not parser.has_section("console_scripts"):
        return []
    found = [(name, target.split("[")[0].strip()) for name, target in parser.items("console_scripts")]
    return [(n, t) for n, t in found if re.fullmatch(r"[\w.-]+", n) and re.fullmatch(r"[\w.]+:[\w.]+", t)]


def _script(python: str, target: str) -> str:
    module, _, function = target.partition(":")
    head = f"#!{python}\n"
    if len(head) > _SHEBANG or " " in python:  # read by the shell first, then by Python as a text
        head = f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"
    return f"{head}import sys\nfrom {module} import {function.split('.')[0]}\nsys.exit({function}())\n"
