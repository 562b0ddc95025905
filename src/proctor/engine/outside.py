"""The way out of sandboxes: a gate for each one that has a network, opened, changed and closed while it lives."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from proctor.core.errors import InputError
from proctor.core.sandbox import NetworkRules, SandboxError
from proctor.engine.room import Room
from proctor.network import pip
from proctor.network.attempts import Attempt
from proctor.network.bounds import Bounds
from proctor.network.gate import Gate
from proctor.network.inside import ENVIRONMENT, RESOLV_CONF
from proctor.network.rules import compile
from proctor.network.upstream import Proxies

# Connections of sandboxes take two descriptors each of this process, which has other uses for them: one sandbox
# gets a 64th of them, all together half.
_LEAST, _SHARES, _ALL_SHARES = 8, 128, 4
_MANY = 1 << 20  # where there is no bound

log = logging.getLogger("proctor.network")


def check(rules: NetworkRules) -> None:
    """SandboxError ``invalid_network`` (400) where an entry is none."""
    try:
        compile(rules)
    except InputError as exc:
        raise SandboxError(str(exc), code="invalid_network", status=400) from exc


def _files() -> int:
    """Descriptors that this process may have."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MANY if files == resource.RLIM_INFINITY else files


@dataclass(slots=True)
class Outside:
    """What the host's network configuration means for sandboxes."""

    proxies: Proxies = field(default_factory=lambda: Proxies.of(os.environ))
    pip: pip.PipSetup = field(default_factory=lambda: pip.read(os.environ))
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_files() // _ALL_SHARES))

    @property
    def binds(self) -> list[str]:
        """Files and directories of the host that pip's configuration names."""
        return [str(path) for path in (*self.pip.directories, *self.pip.files)]

    def files(self, rules: NetworkRules) -> dict[str, str]:
        """Files of /etc for a sandbox with these rules."""
        found = {"/etc/resolv.conf": RESOLV_CONF}
        if rules.internet:
            found["/etc/pip.conf"] = self.pip.conf
        return found

    def env(self, certificates: str | None) -> dict[str, str]:
        """Environment of commands while there is a network."""
        bundle = str(self.pip.ca_bundle) if self.pip.ca_bundle else certificates
        return {**ENVIRONMENT, **({"SSL_CERT_FILE": bundle} if bundle else {})}

    async def open(self, room: Room, rules: NetworkRules, told: Callable[[Attempt], None]) -> Gate:
        """Give a sandbox its gate."""
        most = min(Bounds().connections, max(_LEAST, _files() // _SHARES))
        bounds = replace(Bounds(), connections=most)
        gate = Gate(await room.listen(), rules, log=told, proxies=self.proxies, bounds=bounds, places=self.places)
        await gate.start()
        return gate
