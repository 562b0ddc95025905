"""What callers give, checked: both spellings of a name, and values that name their field when they cannot be."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from proctor.client.errors import invalid, unsupported
from proctor.core.sandbox import LONG_S, OUTPUT_KEPT, OUTPUT_KEPT_LONG, CommandSpec, NetworkRules, SandboxSpec
from proctor.isolation.base import LEVELS
from proctor.meter.limits import MOST_MICROS

P = ParamSpec("P")
R = TypeVar("R")

VARIABLE = "PROCTOR_ISOLATION"
NEVER_S = 10 * 365 * 86400.0  # seconds of the longest lease: as good as none
MOST_MIB = 1 << 24
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_CREATE = (
    "name", "labels", "vcpu", "memory_mib", "disk_mib", "timeout_seconds", "idle_pause_seconds", "on_lease_end",
    "max_cost_micros", "network", "image", "snapshot", "snapshot_id", "env", "secrets", "gpu", "gpu_model",
    "isolation",
)  # fmt: skip


def snake(name: str) -> str:
    """``timeoutSeconds`` as ``timeout_seconds``, ``memoryMiB`` as ``memory_mib``."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name.replace("MiB", "Mib")).lower()


def renamed(given: Mapping[str, Any], known: Iterable[str], what: str) -> dict[str, Any]:
    """Keywords under their own names, whichever way they were spelled.

    Raises:
        TypeError: one is not known, or was given twice.
    """
    names, found = list(known), {}
    for key, value in given.items():
        name = snake(key)
        if name not in names and name.endswith("_ms") and name[:-3] in names:
            name, value = name[:-3], None if value is None else seconds(name, value, most=NEVER_S * 1000) / 1000
        if name not in names:
            close = difflib.get_close_matches(name, names, 1, 0.5)
            hint = f"Did you mean {close[0]!r}?" if close else f"It has: {', '.join(names)}"
            raise TypeError(f"{what}() has no field {key!r}. {hint}")
        if name in found:
            raise TypeError(f"{what}() got {name!r} twice, in two spellings")
        found[name] = value
    return found


def spellings(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function's keywords be spelled in camelCase too; one that it has not is a TypeError with a guess."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    names = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs.keys() - names_set:
            kwargs = renamed(kwargs, names, function.__name__.strip("_"))  # type: ignore[assignment]
        return function(*args, **kwargs)

    names_set = set(names)
    return call


# ---------------------------------------------------------------- values


def seconds(field: str, value: object, *, least: float = 0.0, most: float = NEVER_S) -> float:
    """A length of time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise invalid(field, value, "give a number")
    if not least <= value <= most:
        raise invalid(field, value, f"give a number from {least:g} to {most:g}")
    return float(value)


def whole(field: str, value: object, *, least: int, most: int) -> int:
    """A whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise invalid(field, value, f"give a whole number from {least} to {most}")
    return value


def text(field: str, value: object, *, empty: bool = False) -> str:
    """Text that the kernel takes as a name or an argument."""
    if not isinstance(value, str) or "\0" in value or not (value or empty):
        raise invalid(field, value, "give text without a NUL character" + ("" if empty else ", not empty"))
    octets(field, value)
    return value


def octets(field: str, value: object) -> bytes:
    """What is written somewhere: text as UTF-8; the half of a surrogate pair that stands for a byte is that byte."""
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as exc:
            raise invalid(field, value, f"{value[exc.start]!a} is half a character, which UTF-8 has not") from None
    if not isinstance(value, bytes | bytearray | memoryview):
        raise invalid(field, value, "give text or bytes")
    return bytes(value)


def path(field: str, value: object) -> str:
    """A path in a sandbox; one that is not absolute is in /workspace."""
    if hasattr(value, "__fspath__"):
        value = value.__fspath__()
    return text(field, value)


def words(field: str, value: object) -> dict[str, str]:
    """Names and texts, such as labels."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise invalid(field, value, "give a dict of names and texts")
    return {text(f"{field} (a name)", key): text(f"{field}[{key!r}]", item, empty=True) for key, item in value.items()}


def labels(value: object) -> dict[str, str]:
    """Labels, as many and as long as a record takes."""
    found = words("labels", value)
    if len(found) > 64 or any(len(key) > 128 or len(item) > 256 for key, item in found.items()):
        raise invalid("labels", value, "give at most 64, with names up to 128 and texts up to 256 characters")
    return found


def environment(value: object) -> dict[str, str]:
    """Environment variables."""
    found = words("env", value)
    for name in found:
        if "=" in name:
            raise invalid("env (a name)", name, "a variable's name has no '='")
    return found


def name(field: str, value: object) -> str:
    """A name that may stand in a path."""
    if not isinstance(value, str) or not _NAME.match(value):
        raise invalid(field, value, "give up to 63 letters, digits, '.', '_' and '-', beginning with a letter or digit")
    return value


def entries(field: str, value: object) -> tuple[str, ...]:
    """Hosts and networks."""
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
        raise invalid(field, value, "give a list of host names, '*.suffix', addresses or CIDR networks")
    return tuple(text(f"{field} (an entry)", item) for item in value)


def rules(value: object) -> NetworkRules:
    """Network rules from a dict, or from None for none: offline."""
    if value is None or isinstance(value, NetworkRules):
        return value or NetworkRules()
    if not isinstance(value, Mapping):
        raise invalid("network", value, "give a dict such as {'internet': False}")
    found = renamed(
        {str(key): item for key, item in value.items()}, ("internet", "allow", "deny", "connect"), "network"
    )
    if found.get("connect"):
        raise unsupported("network.connect", "name hosts in 'allow'")
    internet = found.get("internet", bool(found.get("allow")))
    if not isinstance(internet, bool):
        raise invalid("network.internet", internet, "give True or False")
    return NetworkRules(
        internet, entries("network.allow", found.get("allow")), entries("network.deny", found.get("deny"))
    )


def sandbox_spec(fields: Mapping[str, Any], what: str = "create") -> SandboxSpec:
    """What a sandbox is made from, out of a caller's keywords; None stands for a field's default."""
    given = {key: value for key, value in renamed(fields, _CREATE, what).items() if value is not None}
    if given.get("idle_pause_seconds"):
        raise unsupported("idle_pause_seconds", "a sandbox here runs until its lease ends; set timeout_seconds")
    if given.get("secrets"):
        raise unsupported("secrets", "hand over what a program may know with env")
    end = given.get("on_lease_end", "stop")
    if end == "pause":
        raise unsupported("on_lease_end='pause'", "take 'stop', and a snapshot before the lease ends")
    if end != "stop":
        raise invalid("on_lease_end", end, "give 'stop'")
    if "snapshot" in given and "snapshot_id" in given:
        raise TypeError(f"{what}() got 'snapshot' and 'snapshot_id'; give one")
    snapshot = given.get("snapshot", given.get("snapshot_id"))
    if snapshot is not None and not isinstance(snapshot, str):
        snapshot = getattr(snapshot, "id", snapshot)
    spec: dict[str, Any] = {
        "labels": labels(given.get("labels")), "network": rules(given.get("network")),
        "env": environment(given.get("env")),
    }  # fmt: skip
    if "name" in given:
        spec["name"] = name("name", given["name"])
    if "vcpu" in given:
        spec["vcpu"] = seconds("vcpu", given["vcpu"], least=0.01, most=1024)
    if "memory_mib" in given:
        spec["memory_mib"] = whole("memory_mib", given["memory_mib"], least=16, most=MOST_MIB)
    if "disk_mib" in given:
        spec["disk_mib"] = whole("disk_mib", given["disk_mib"], least=1, most=MOST_MIB)
    elif "memory_mib" in spec:  # files are memory: no more of them than that unless it is asked for
        spec["disk_mib"] = min(SandboxSpec().disk_mib, spec["memory_mib"])
    if "timeout_seconds" in given:
        spec["timeout_seconds"] = seconds("timeout_seconds", given["timeout_seconds"], least=0.1)
    if "max_cost_micros" in given:
        spec["max_cost_micros"] = whole("max_cost_micros", given["max_cost_micros"], least=1, most=MOST_MICROS)
    if "gpu" in given:
        spec["gpu"] = whole("gpu", given["gpu"], least=0, most=64)
    if "isolation" in given:
        spec["isolation"] = isolation(given["isolation"])
    if "gpu_model" in given:
        spec["gpu_models"] = models(given["gpu_model"])
        if not spec.setdefault("gpu", 1):
            raise invalid("gpu_model", given["gpu_model"], "leave it out where gpu is 0")
    if "image" in given and snapshot is not None:
        raise invalid("snapshot", snapshot, "image is given too, and a sandbox is made from one: leave one out")
    if "image" in given:
        spec["image"] = text("image", given["image"])
    if snapshot is not None:
        spec["snapshot"] = text("snapshot", snapshot)
    return SandboxSpec(**spec)


def isolation(value: object) -> str:
    """A level of isolation; None for what the environment says, or ``auto``."""
    field = "isolation"
    if value is None:
        value = os.environ.get(VARIABLE) or "auto"
        field = VARIABLE if value != "auto" else field
    if value not in LEVELS:  # a level that is not there for sandboxes is said where one is made
        raise invalid(field, value, "give auto, jail, gvisor, microvm")
    return str(value)


def models(value: object) -> tuple[str, ...]:
    """Models of GPUs: one name, or several of which any will do; ``any`` is every one."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise invalid("gpu_model", value, "give the name of a model, such as 'T4', or a list of them")
    if not all(any(letter.isalnum() for letter in name) for name in names):
        raise invalid("gpu_model", value, "give the name of a model, such as 'T4', or 'any'")
    return () if "any" in [name.strip().lower() for name in names] else tuple(text("gpu_model", name) for name in names)


def arguments(command: object) -> tuple[str, ...]:
    """A command: text is the shell's, a list is the program and its arguments."""
    if isinstance(command, str):
        return ("bash", "-c", text("command", command))
    if not isinstance(command, list | tuple) or not command:
        raise invalid("command", command, "give text for the shell, or a list of a program and its arguments")
    first = text("command[0]", command[0])
    return (first, *(text(f"command[{at}]", item, empty=True) for at, item in enumerate(command[1:], 1)))


def command_spec(
    command: object, *, cwd: object = None, user: object = None, env: object = None,
    stdin: object = None, stdin_open: bool = False, timeout_ms: object = None, streamed: bool = False, limit: bool = True,
) -> CommandSpec:  # fmt: skip
    """A command out of a caller's arguments; ``limit`` gives one without a time limit the usual."""
    if user not in (None, "sandbox", "root"):
        raise invalid("user", user, "give 'sandbox' or 'root'")
    timeout_s = LONG_S if limit else None
    if timeout_ms is not None:
        timeout_s = seconds("timeout_ms", timeout_ms, least=1, most=NEVER_S * 1000) / 1000
    long = timeout_s is None or timeout_s > LONG_S
    return CommandSpec(
        argv=arguments(command), cwd=None if cwd is None else path("cwd", cwd), user=str(user or "sandbox"),
        env=environment(env), stdin=None if stdin is None else octets("stdin", stdin), stdin_open=stdin_open, timeout_s=timeout_s,
        keep=None if streamed else OUTPUT_KEPT_LONG if long else OUTPUT_KEPT,
    )  # fmt: skip
