"""Which wall a level stands for."""

from __future__ import annotations

from proctor.isolation.base import Boundary
from proctor.isolation.gvisor import GvisorBoundary
from proctor.isolation.jail import JailBoundary
from proctor.isolation.microvm import MicrovmBoundary


def boundary_for(isolation: str) -> Boundary:
    """The boundary of a level: ``auto``, ``jail``, ``degraded``, ``gvisor`` or ``microvm``.

    Raises:
        InputError: none of these.
        IsolationUnavailable: ``gvisor``, where no ``runsc`` works; ``microvm``, where there is no QEMU, no Firecracker or no kernel for it.
    """
    if isolation == "gvisor":
        return GvisorBoundary()
    return MicrovmBoundary() if isolation == "microvm" else JailBoundary(isolation)
