"""Which backend a runtime talks to."""

from __future__ import annotations

import os
from collections.abc import Callable

from proctor.client.backend import Backend
from proctor.client.embedded import shared_backend
from proctor.client.errors import unsupported


def choose(*, base_url: str | None, backend: Backend | None) -> Callable[[], Backend]:
    """How to get the backend: the one that was given, a server by URL, or this process's own."""
    if backend is not None:
        return lambda: backend
    for field, url in (
        ("base_url", base_url),
        ("PROCTOR_API_URL", os.environ.get("PROCTOR_API_URL")),
        ("RUNTIME_API_URL", os.environ.get("RUNTIME_API_URL")),
    ):
        if url:
            raise unsupported(f"{field}={url!a}", "this version holds sandboxes in this process only: leave it out")
    return shared_backend
