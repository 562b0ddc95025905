"""Which wall a level stands for."""

from __future__ import annotations

from proctor.isolation.base import Boundary
from proctor.isolation.gvisor import GvisorBoundary
from proctor.isolation.jail import JailBoundary


def boundary_for(isolation: str) -> Boundary:
    """The boundary of a level: ``auto``, ``jail``, ``degraded`` or ``gvisor``.

    Raises:
        InputError: none of these.
        IsolationUnavailable: ``gvisor``, where no ``runsc`` works.
    """
    return GvisorBoundary() if isolation == "gvisor" else JailBoundary(isolation)
