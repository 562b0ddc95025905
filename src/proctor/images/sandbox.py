"""What a sandbox's root is made of where it lies on the host's own interpreter and libraries."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proctor.core.image import Image
from proctor.images.host import SYSTEM, host_image, interpreter_prefix, standard_library
from proctor.isolation.identities import LAYER_USER

POINT = "/.layers"  # where the agent sees the store
_SKELETON, _OWNED = "/.skeleton", "/.owned"
_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_PREFIX_FOLDERS = ("bin", "share", "include", "etc")  # where pip puts what is no module


@dataclass(frozen=True, slots=True)
class Ground:
    """What layers are put on: the image of the agent that forks sandboxes, and the fixed part of each one's plan.

    Attributes:
        image: of the agent.
        floor: ``tops``, ``binds`` and ``covers`` of ``guest/floor.py``.
        sites: directories of packages, as sandboxes see them.
        watched: what of the interpreter itself, once it is written over, makes it another one.
        certificates: the bundle of certificate authorities, None where the host has none.
    """

    image: Image
    floor: dict[str, Any]
    sites: list[str]
    certificates: str | None = None
    watched: list[str] = field(default_factory=list)
    extra: dict[str, str] = field(default_factory=dict)


def host_ground(layers: Path | None = None, binds: Sequence[str] = (), hidden: Sequence[list[Any]] = ()) -> Ground:
    """The host's interpreter and libraries as the ground of sandboxes.

    Args:
        layers: the store's directory of layers, which only the agent itself sees.
        binds: further files and directories of the host to show read-only, at the same place.
        hidden: files that only the agent itself sees, as in ``guest/root.py``.

    Raises:
        InfrastructureError: the interpreter cannot be used.
    """
    base = host_image()
    prefix = interpreter_prefix()
    tops = [path for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    if [prefix, prefix] in base.plan["binds"]:
        tops.append(prefix)
    authorities = [
        path for path in (ssl.get_default_verify_paths().cafile, *_CERTIFICATES) if path and os.path.exists(path)
    ]
    certificates = authorities[0] if authorities else None
    shown = [inside for _, inside in base.plan["binds"] if inside not in tops]
    more = [path for path in dict.fromkeys([*([certificates] if certificates else []), *binds]) if path not in shown]
    more = [path for path in more if not any(path.startswith(f"{top}/") for top in tops)]
    sites = list(base.plan["covers"])
    owned = ["/usr/local"] if os.path.isdir("/usr/local") else []
    if prefix in tops and prefix not in SYSTEM:
        owned += [f"{prefix}/{name}" for name in _PREFIX_FOLDERS]
    names = "passwd: files\ngroup: files\nhosts: files dns\n"  # a sandbox's network answers them
    plan = {
        **base.plan,
        "files": {**base.plan["files"], "/etc/nsswitch.conf": names},
        "binds": base.plan["binds"] + [[path, path] for path in more] + ([[str(layers), POINT]] if layers else []),
        "dirs": [*base.plan["dirs"], POINT],
        "covers": {},  # a mount below another would keep overlays off; each sandbox covers them itself
        "hidden": list(hidden),
        "skeleton": _SKELETON,
        "owned": owned,
        "owned_but": sites,
        "owned_at": _OWNED,
        "owner": LAYER_USER if os.geteuid() == 0 else -1,  # an ordinary user makes them as what they are to be
    }
    floor = {"tops": tops, "binds": shown + more, "covers": sites}
    beside = os.path.dirname(base.python)
    watched = [standard_library(), base.python, *(f"{beside}/{name}" for name in ("python", "python3"))]
    return Ground(replace(base, plan=plan), floor, sites, certificates, watched)
