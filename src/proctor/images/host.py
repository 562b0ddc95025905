"""The default image: this host's own interpreter and system libraries, bound read-only.

Nothing of /home, /root, /etc beyond what programs need, or the environment is
in it. It is the bare standard library, or that and named packages of the
environment that Proctor is installed in.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from proctor.core.errors import InfrastructureError, InputError
from proctor.core.image import Image

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("ld.so.cache", "alternatives", "ssl/openssl.cnf")
_FILES = {
    "/etc/passwd": "root:x:0:0:root:/:/bin/sh\nsandbox:x:1000:1000::/workspace:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    "/etc/group": "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost\n",
    "/etc/hostname": "proctor\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/resolv.conf": "",
}
# Where tools and libraries lie, and what package managers write to when they change them.
_STAMPED = (
    "/bin", "/usr/bin", "/usr/local/bin", "/lib", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache",
    "/var/lib/dpkg/status", "/var/lib/rpm/rpmdb.sqlite", "/var/lib/rpm/Packages", "/lib/apk/db/installed",
    "/var/lib/pacman/local",
)  # fmt: skip
_LINKS = (
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("/tmp", "/dev/shm"),
)


@cache
def _interpreter() -> dict[str, Any]:
    """The real interpreter behind this one (a venv or a shim may stand before it)."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    probe = (
        "import json,site,sys,sysconfig;"
        "print(json.dumps([sys.executable,sys.base_prefix,site.getsitepackages(),sysconfig.get_path('stdlib'),sys.version]))"
    )
    try:
        answer = subprocess.run([base, "-I", "-c", probe], capture_output=True, timeout=60, check=True).stdout
        executable, prefix, sites, stdlib, version = json.loads(answer)
    except (OSError, ValueError, subprocess.SubprocessError) as exc:
        raise InfrastructureError(f"the interpreter {base} does not start: {exc}") from exc
    python = str(Path(executable).resolve())
    return {
        "python": python,
        "prefix": str(Path(prefix).resolve()),
        "sites": sites,
        "stdlib": stdlib,
        "version": version,
    }


def interpreter_prefix() -> str:
    """Where the interpreter of the host's image is installed."""
    return str(_interpreter()["prefix"])


def standard_library() -> str:
    """Directory of the standard library of the host's interpreter."""
    return str(os.path.realpath(_interpreter()["stdlib"]))


@cache
def _public_python() -> str | None:
    """A system interpreter of version 3.11 or newer."""
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            answer = subprocess.run(
                [path, "-I", "-c", "import sys;print(sys.version_info >= (3, 11))"], capture_output=True, timeout=60
            )
        except (OSError, subprocess.SubprocessError):
            continue
        if answer.stdout.strip() == b"True":
            return str(Path(path).resolve())
    return None


def host_image(packages: tuple[str, ...] = (), preload: tuple[str, ...] = ()) -> Image:
    """The host's interpreter and libraries, with the named packages and what they require.

    Raises:
        InputError: a package is not installed here.
        InfrastructureError: the interpreter cannot be used.
    """
    found = _interpreter()
    prefix = found["prefix"]
    binds = [[path, path] for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    links = [[os.readlink(path), path] for path in SYSTEM if os.path.islink(path)]
    binds += [[f"/etc/{name}", f"/etc/{name}"] for name in _ETC if os.path.exists(f"/etc/{name}")]
    binds += [[str(path), str(path)] for path in sorted(Path("/etc").glob("java*")) if path.is_dir()]
    if not any(prefix == top or prefix.startswith(top + "/") for top in SYSTEM):
        if Path.home().is_relative_to(prefix) or prefix == "/":
            raise InfrastructureError(f"the interpreter's prefix {prefix} holds a home directory; it would be visible")
        binds.append([prefix, prefix])
    sites = [path for path in found["sites"] + ["/usr/lib/python3/dist-packages"] if os.path.isdir(path)]
    covers: dict[str, list[list[str]]] = {path: [] for path in dict.fromkeys(sites)}
    entries = _package_entries(packages)
    if entries and not covers:
        raise InfrastructureError("the interpreter has no site-packages directory to put packages in")
    if entries:
        covers[sites[0]] = [[str(path), path.name] for path in entries]
    env = {
        "PATH": f"{os.path.dirname(found['python'])}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/workspace",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        # One thread a library: many-core hosts otherwise start more than the process limit allows.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    plan = {
        "binds": binds,
        "links": links + [list(pair) for pair in _LINKS],
        "files": dict(_FILES),
        "dirs": [],
        "covers": covers,
    }
    readable = [path for source, _ in binds for path in _without(source, sites)]
    readable += [path for path in SYSTEM if os.path.islink(path)] + ["/etc/localtime"]
    readable += [str(path) for path in entries]
    # Not a package's own folder, which changes when byte code is written into it.
    told = [str(path) for path in entries if path.is_file() or path.suffix in (".dist-info", ".egg-info")]
    stamps = [_stamp(path) for path in (*_STAMPED, found["python"], *told)]
    listed = [str(path) for path in entries]
    about = json.dumps([plan, env, list(preload), found["version"], listed, stamps], sort_keys=True)
    return Image(
        plan,
        found["python"],
        env,
        readable,
        _public_python(),
        list(preload),
        "host-" + hashlib.sha256(about.encode()).hexdigest()[:32],
    )


def _stamp(path: str) -> list[str | int]:
    """What changes when a file is replaced, or a directory gets or loses an entry."""
    try:
        found = os.stat(path)
    except OSError:
        return [path]
    return [path, found.st_mtime_ns, 0 if os.path.isdir(path) else found.st_size]


def _without(path: str, hidden: list[str]) -> list[str]:
    """``path`` as a list of paths that leave the ``hidden`` ones out."""
    inside = [place for place in hidden if place == path or place.startswith(path + "/")]
    if not inside:
        return [path]
    if path in inside:
        return []
    return [kept for entry in sorted(os.scandir(path), key=lambda e: e.name) for kept in _without(entry.path, inside)]


def _package_entries(packages: tuple[str, ...]) -> list[Path]:
    """Top-level files and directories of the packages and of all that they require."""
    waiting, seen, entries = list(packages), set(), dict[Path, None]()
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            dist = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError as exc:
            if name in (re.sub(r"[-_.]+", "-", p).lower() for p in packages):
                raise InputError(
                    f"{name!r} is not installed in {sys.prefix}; install it there", field="packages"
                ) from exc
            continue  # an optional requirement
        for requirement in dist.requires or []:
            match = re.match(r"[A-Za-z0-9._-]+", requirement)
            if match and "extra ==" not in requirement:
                waiting.append(match.group())
        for file in dist.files or []:
            top = file.parts[0]
            if top not in ("..", ".") and top != "__pycache__":
                entries[Path(str(dist.locate_file(top)))] = None
    return [path for path in entries if path.exists()]
