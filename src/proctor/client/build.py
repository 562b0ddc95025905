"""Builds images: Python packages by pip in a sandbox, Debian packages by the host's apt, on top of the host's system.

pip runs the packages' own code, so it runs in a sandbox, with a network. What it
leaves there, without caches, logs and what depends on the hour, is the layer:
the same packages give the same image.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.client.embedded import EmbeddedBackend
from proctor.client.errors import InvalidRequestError
from proctor.client.sync_runtime import Runtime
from proctor.client.sync_sandbox import Sandbox
from proctor.core.errors import InfrastructureError, InputError
from proctor.images.debs import add_debs, check_package, fetch
from proctor.images.packages import host_packages
from proctor.images.records import Base, Layer, Origin, Record, Settings, check_name
from proctor.images.store import Store

_LIMIT_MS = 3_600_000
_HOUR = 1 / 24  # days that what a killed build leaves is kept at most
_PIP = ("python3", "-m", "pip", "install", "--no-cache-dir", "--no-compile", "--no-input", "--progress-bar", "off",
        "--no-warn-script-location")  # fmt: skip
# Byte code whose check is not the time of its source: times differ from build to build.
_COMPILE = """
import compileall, re, sysconfig
from py_compile import PycInvalidationMode
mode = PycInvalidationMode.UNCHECKED_HASH
for path in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
    compileall.compile_dir(path, quiet=2, rx=re.compile(r"/(pip|setuptools)/"), invalidation_mode=mode)
"""
_IMPORT = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
# Not where something of the host's is mounted: an index of files.
_CLEAN = """
import contextlib, os
def empty(folder, device):
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            if entry.stat(follow_symlinks=False).st_dev == device:
                empty(entry.path, device)
                with contextlib.suppress(OSError):
                    os.rmdir(entry.path)
        else:
            os.unlink(entry.path)
for folder in ("/tmp", "/var/tmp", "/workspace"):
    empty(folder, os.stat(folder).st_dev)
with contextlib.suppress(FileNotFoundError):
    os.unlink("/etc/pip.conf")
"""

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What an image is built from.

    Attributes:
        name: what it is called.
        requirements: text of a requirements file.
        packages: requirements in pip's form. debian: names of Debian packages.
        preimport: modules that its warm interpreter imports.
        env: variables of all commands in it.
        allow: hosts that the build may reach; empty for all.
        memory_mib: of the sandbox that pip works in, for its processes and files together.
    """

    name: str
    requirements: bytes | None = None
    packages: tuple[str, ...] = ()
    debian: tuple[str, ...] = ()
    preimport: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    allow: tuple[str, ...] = ()
    memory_mib: int = 2048

    def __post_init__(self) -> None:
        check_name(self.name)
        for package in self.packages:
            if not package.strip() or package.startswith("-") or "\0" in package:
                raise InputError(
                    f"{package[:80]!r} is no requirement; write for example numpy, or numpy==2.1", field="--package"
                )
        for package in self.debian:
            check_package(package)
        if not (self.requirements is not None or self.packages or self.debian or self.preimport or self.env):
            raise InputError("nothing to build; give --requirements, --package or --debian")

    @property
    def python(self) -> bool:
        """Whether pip has something to do."""
        return self.requirements is not None or bool(self.packages)


def build(store: Store, recipe: Recipe, told: Told) -> Record:
    """Build an image; one that equals the newest version of its name is that version.

    Args:
        told: gets lines of progress; they may hold a program's words.

    Raises:
        InputError: a package cannot be had or installed. Nothing is kept then.
        InfrastructureError: this host failed.
    """
    settings = Settings(env=recipe.env, preimport=recipe.preimport)
    passing: list[Record] = []
    loose: list[Layer] = []
    try:
        layers = [*_debian(store, recipe, told, loose), *_pip_of_host(store, recipe)]
        if recipe.python or recipe.preimport:
            passing.append(
                store.commit(layers, base=Base.HOST, settings=Settings(env=recipe.env), retention_days=_HOUR)
            )
            loose.clear()
            kept = _in_a_sandbox(store, recipe, passing[0], told)
            if kept is not None:
                passing.append(store.get(kept, Origin.SNAPSHOT))
                layers = list(passing[-1].layers)
        made = store.commit(layers, base=Base.HOST, name=recipe.name, settings=settings)
        loose.clear()
        return made
    finally:
        for layer in loose:
            store.release(layer)
        for record in passing:
            with contextlib.suppress(InputError):
                store.remove(record.id, record.origin)
        store.gc()


def _debian(store: Store, recipe: Recipe, told: Told, loose: list[Layer]) -> list[Layer]:
    if not recipe.debian:
        return []
    with store.box() as folder:
        debs = fetch(recipe.debian, Path(folder), told)
        if not debs:
            told("this host has all of the Debian packages")
            return []
        told("unpacking")
        loose.append(add_debs(store, debs))
    return list(loose)


def _pip_of_host(store: Store, recipe: Recipe) -> list[Layer]:
    """What the host's own sandboxes have; pip must be there where it is needed."""
    try:
        return list(host_packages(store).layers)
    except InputError:
        if recipe.python:
            raise
        return []


def _in_a_sandbox(store: Store, recipe: Recipe, base: Record, told: Told) -> str | None:
    """Install what pip installs and try the modules; id of a snapshot, None where pip had nothing to do."""
    backend = EmbeddedBackend(store=store)
    try:
        with Runtime(backend=backend).sandboxes.create(
            image=base.id, memory_mib=recipe.memory_mib, disk_mib=recipe.memory_mib,
            network={"internet": recipe.python, "allow": list(recipe.allow)}, timeout_seconds=2 * _LIMIT_MS / 1000,
            labels={"image-build": recipe.name}, env={"PYTHONDONTWRITEBYTECODE": "1"},
        ) as box:  # fmt: skip
            if recipe.python:
                _install(box, recipe, told)
            if recipe.preimport:
                told("importing " + ", ".join(recipe.preimport))
                done = _run(box, ["python3", "-c", _IMPORT, *recipe.preimport], told=None)
                if done.exit_code != 0:
                    raise InputError(f"a module cannot be imported: {_last(done.stderr)}", field="--preimport")
            if not recipe.python:
                return None
            _run(box, ["python3", "-c", _COMPILE], told=None)
            if (done := _clean(box)).exit_code != 0:
                raise InfrastructureError(f"what the build left cannot be removed: {_last(done.stderr)}")
            return str(box.snapshot(retention_days=_HOUR).id)
    finally:
        backend.close()


def _install(box: Sandbox, recipe: Recipe, told: Told) -> None:
    command = list(_PIP)
    if recipe.requirements is not None:
        box.files.write("/tmp/requirements.txt", recipe.requirements)
        command += ["-r", "/tmp/requirements.txt"]
    done = _run(box, [*command, "--", *recipe.packages], told)
    if done.exit_code == 0 and not done.timed_out:
        return
    refused = sorted({str(row["host"]) for row in box.network.attempts() if row["decision"] == "deny"})
    words = _last(done.stderr or done.stdout)
    if refused:
        words += f"; {', '.join(refused[:5])} could not be reached, as --allow says"
    if done.out_of_memory or "No space left" in done.stderr:
        words += "; --memory gives it more room"
    raise InputError(f"pip could not install the packages: {words}", field="--requirements or --package")


def _clean(box: Sandbox) -> Any:
    command = ["python3", "-c", _CLEAN]
    try:
        return _run(box, command, told=None, user="root")
    except InvalidRequestError:  # an ordinary user's sandbox has one identity, whose all of it is
        return _run(box, command, told=None)


def _run(box: Sandbox, command: list[str], told: Told | None, user: str = "sandbox") -> Any:
    lines = _Lines(told) if told is not None else None
    return box.exec(command, user=user, timeout_ms=_LIMIT_MS, on_stdout=lines.take if lines else lambda _: None)


class _Lines:
    """Text into lines of progress."""

    def __init__(self, told: Told) -> None:
        self._told, self._rest = told, ""

    def take(self, text: str) -> None:
        """More of it."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.strip():
                self._told(f"pip: {line.strip()[:200]}")
        self._rest = self._rest[-1000:]


def _last(text: str) -> str:
    """The line that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    wrong = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (wrong or lines or ["it said nothing"])[-1][:300]
