"""Which program runs machines on this host: QEMU or Firecracker."""

from __future__ import annotations

import os
from collections.abc import Mapping

from proctor.core.errors import InputError, IsolationUnavailable
from proctor.isolation import firecracker, qemu
from proctor.isolation.qemu import SPEED, Qemu

MONITOR = "PROCTOR_MICROVM_MONITOR"
_FIND = {"qemu": qemu.find, "firecracker": firecracker.find}


def find(environ: Mapping[str, str] | None = None) -> Qemu:
    """The one that the environment names, and no other; where it names none QEMU with KVM, else Firecracker where a
    machine boots with it, else QEMU without KVM.

    Raises:
        IsolationUnavailable: it cannot be had; names what was looked for and what to do.
        InputError: what the environment names is none, or its kernel is none.
    """
    environ = os.environ if environ is None else environ
    named = environ.get(MONITOR, "")
    if named:
        if named not in _FIND:
            raise InputError(f"{named!r} is not one of {', '.join(_FIND)}", field=MONITOR)
        return _FIND[named](environ)
    try:
        found: Qemu | None = qemu.find(environ)
    except IsolationUnavailable as exc:
        found, why = None, exc
    if found is not None and found.accelerator == "kvm":
        return found
    try:
        return firecracker.find(environ)
    except IsolationUnavailable:
        if found is None:
            raise why from None
        return found


def state() -> str:
    """Whether the level can be had here, in words: with what, or what to do; and what Firecracker needs, if anything."""
    words = []
    try:
        found = find()
        words.append(f"can be had: {found.path} {found.version}, kernel {found.release}, {SPEED[found.accelerator]}")
        if found.monitor == "firecracker":
            return words[0]
    except (IsolationUnavailable, InputError) as exc:
        words.append(_plain(exc))
    try:
        other = firecracker.find()
        words.append(f"with {MONITOR}=firecracker {other.path} {other.version} is taken instead")
    except (IsolationUnavailable, InputError) as exc:
        if _plain(exc) not in words:
            words.append(f"Firecracker instead: {_plain(exc)}")
    return "; ".join(words)


def _plain(exc: Exception) -> str:
    return str(exc).removeprefix("isolation 'microvm': ").removeprefix("isolation 'microvm' ")
