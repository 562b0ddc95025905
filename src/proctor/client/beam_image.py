"""What a sandbox in Beam's shape has installed: the host's interpreter, and what is added to it in a sandbox."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from proctor.client.errors import invalid, unsupported
from proctor.client.sync_runtime import Runtime

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
_BUILD_MIB = 2048
_BUILD_MS = 1_800_000


class Image:
    """Packages and commands on top of the host's interpreter.

    Args:
        python_version: must be this interpreter's.
        python_packages: a list, or the path of a requirements file.
        commands: run under a shell, in order, after the packages, by the user that owns /workspace and the packages.
        env_vars: variables, as a dict or as ``NAME=value``.

    It is built when a sandbox first needs it, in a sandbox with a network, and kept under a name made of what it has.
    """

    def __init__(
        self, python_version: Any = "python3", python_packages: Sequence[str] | str = (), commands: Sequence[str] = (),
        base_image: str | None = None, base_image_creds: Any = None, env_vars: Any = None, image_id: str | None = None,
    ) -> None:  # fmt: skip
        version = str(getattr(python_version, "value", python_version))
        wanted = re.sub(r"^(python|micromamba)", "", version)
        if wanted not in ("3", "", HERE):
            raise unsupported(f"python_version={version!a}", f"images here have this interpreter's: 'python{HERE}'")
        if base_image or base_image_creds:
            raise unsupported("base_image", "images here are made from the host's interpreter and libraries")
        self.packages = _requirements(python_packages)
        self.commands = _texts("commands", commands)
        self.variables = _variables(env_vars)
        self.image_id = image_id

    @classmethod
    def from_id(cls, image_id: str) -> Image:
        """What ``create_image_from_filesystem`` has made."""
        return cls(image_id=image_id)

    @classmethod
    def from_registry(cls, image_uri: str, credentials: Any = None) -> Image:
        """Not supported: raises."""
        raise unsupported("from_registry", "use python_packages and commands")

    @classmethod
    def from_dockerfile(cls, path: str, context_dir: str | None = None, **options: Any) -> Image:
        """Not supported: raises."""
        raise unsupported("from_dockerfile", "use python_packages and commands")

    def add_python_packages(self, packages: Sequence[str] | str) -> Image:
        """More packages."""
        self.packages += _requirements(packages)
        return self

    def add_commands(self, commands: Sequence[str]) -> Image:
        """More commands."""
        self.commands += _texts("commands", commands)
        return self

    def with_envs(self, env_vars: Any, clear: bool = False) -> Image:
        """More variables."""
        self.variables = {**({} if clear else self.variables), **_variables(env_vars)}
        return self

    @property
    def name(self) -> str:
        """The name under which it is kept: the same for the same content."""
        what = json.dumps([HERE, self.image_id, self.packages, self.commands]).encode()
        return f"beam-{hashlib.sha256(what).hexdigest()[:24]}"

    def snapshot(self, runtime: Runtime) -> str | None:
        """Id of the snapshot that a sandbox is made from, built where it is not there; None for the bare host."""
        if not self.packages and not self.commands:
            return self.image_id
        for kept in runtime.snapshots.list(name=self.name):
            return str(kept.id)
        with runtime.sandboxes.create(
            memory_mib=_BUILD_MIB, disk_mib=_BUILD_MIB, network={"internet": True}, snapshot=self.image_id,
            timeout_seconds=2 * _BUILD_MS / 1000, env=self.variables,
        ) as sandbox:  # fmt: skip
            if self.packages:
                install = ["python3", "-m", "pip", "install", "--quiet", *self.packages]
                sandbox.exec(install, timeout_ms=_BUILD_MS, check=True)
            for command in self.commands:
                sandbox.exec(command, timeout_ms=_BUILD_MS, check=True)
            return str(sandbox.snapshot(name=self.name).id)


def _texts(field: str, value: object) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value):
        raise invalid(field, value, "give a list of texts")
    return list(value)


def _requirements(value: Sequence[str] | str) -> list[str]:
    if not isinstance(value, str):
        return _texts("python_packages", value)
    try:
        with open(value, encoding="utf-8") as file:
            lines = [line.partition("#")[0].strip() for line in file]
    except OSError as exc:
        raise invalid(
            "python_packages", value, f"give a list, or the path of a requirements file: {exc.strerror}"
        ) from exc
    return [line for line in lines if line]


def _variables(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {str(name): str(text) for name, text in value.items()}
    pairs = [value] if isinstance(value, str) else _texts("env_vars", value)
    for pair in pairs:
        if "=" not in pair:
            raise invalid("env_vars", pair, "give NAME=value")
    return dict(pair.split("=", 1) for pair in pairs)
