"""What Firecracker's published API (1.16) says of the requests that describe, start, save and load a machine.

Facts of the description: paths, fields with their types, which are required, what
may be asked when. Whatever is not listed is refused, as the real one refuses unknown fields.
"""

from __future__ import annotations

import re
from typing import Any

LIMITER = {"bandwidth?": {"size": int, "refill_time": int, "one_time_burst?": int}, "ops?": {"size": int, "refill_time": int, "one_time_burst?": int}}  # fmt: skip
# Method and path -> (fields, when). A name that ends in ? may be left out; a tuple lists the values.
FRESH, BEFORE, AFTER, ALWAYS = "fresh", "before", "after", "always"
REQUESTS: dict[tuple[str, str], tuple[dict[str, Any], str]] = {
    ("PUT", "/machine-config"): (
        {
            "vcpu_count": int, "mem_size_mib": int, "smt?": bool, "track_dirty_pages?": bool,
            "cpu_template?": ("C3", "T2", "T2S", "T2CL", "T2A", "V1N1", "None"), "huge_pages?": ("None", "2M"),
        }, BEFORE,
    ),
    ("PUT", "/boot-source"): ({"kernel_image_path": str, "initrd_path?": str, "boot_args?": str}, BEFORE),
    ("PUT", "/drives/{id}"): (
        {
            "drive_id": str, "is_root_device": bool, "partuuid?": str, "cache_type?": ("Unsafe", "Writeback"),
            "is_read_only?": bool, "path_on_host?": str, "rate_limiter?": LIMITER, "io_engine?": ("Sync", "Async"), "socket?": str,
        }, BEFORE,
    ),
    ("PUT", "/network-interfaces/{id}"): ({"iface_id": str, "host_dev_name": str, "guest_mac?": str}, BEFORE),
    ("PUT", "/vsock"): ({"guest_cid": int, "uds_path": str, "vsock_id?": str}, BEFORE),
    ("PUT", "/entropy"): ({"rate_limiter?": LIMITER}, BEFORE),
    ("PUT", "/serial"): ({"serial_out_path?": str}, BEFORE),
    ("PUT", "/logger"): (
        {
            "log_path?": str, "level?": ("Error", "Warning", "Info", "Debug", "Trace", "Off"), "show_level?": bool,
            "show_log_origin?": bool, "module?": str,
        }, ALWAYS,
    ),
    ("PUT", "/metrics"): ({"metrics_path": str}, ALWAYS),
    ("PUT", "/actions"): ({"action_type": ("FlushMetrics", "InstanceStart", "SendCtrlAltDel")}, ALWAYS),
    ("PATCH", "/vm"): ({"state": ("Paused", "Resumed")}, AFTER),
    ("PUT", "/snapshot/create"): (
        {"mem_file_path": str, "snapshot_path": str, "snapshot_type?": ("Full", "Diff")}, AFTER,
    ),
    ("PUT", "/snapshot/load"): (
        {
            "snapshot_path": str, "mem_file_path?": str, "mem_backend?": {"backend_type": ("File", "Uffd"), "backend_path": str},
            "resume_vm?": bool, "track_dirty_pages?": bool, "enable_diff_snapshots?": bool, "clock_realtime?": bool,
            "network_overrides?": list, "vsock_override?": {"uds_path": str},
        }, FRESH,
    ),
}  # fmt: skip


class Refused(Exception):
    """A request that the description does not allow: 400, with this as ``fault_message``."""


class Machine:
    """The state that requests are held against. ``take`` raises ``Refused``; what it lets pass happened."""

    def __init__(self) -> None:
        self.state, self.known = "Not started", {}  # type: ignore[var-annotated]

    def take(self, method: str, path: str, body: Any) -> None:
        key = method, re.sub(r"^/(drives|network-interfaces)/[A-Za-z0-9_]+$", r"/\1/{id}", path)
        if key not in REQUESTS:
            raise Refused(f"Invalid request method and/or path: {method} {path}.")
        fields, when = REQUESTS[key]
        check(fields, body, path)
        started = self.state != "Not started"
        if started and when in (BEFORE, FRESH):
            raise Refused("The requested operation is not supported after starting the microVM.")
        if not started and when == AFTER:
            raise Refused("The requested operation is not supported before starting the microVM.")
        if when == FRESH and set(self.known) - {"/logger", "/metrics"}:
            raise Refused("Loading a microVM snapshot not allowed after configuring boot-specific resources.")
        self._further(key, path, body)
        self.known[path] = body

    def _further(self, key: tuple[str, str], path: str, body: dict[str, Any]) -> None:
        name = key[1]
        if name == "/machine-config" and not 1 <= body["vcpu_count"] <= 32:
            raise Refused("The vCPU number is invalid!")
        if name == "/vsock" and body["guest_cid"] < 3:
            raise Refused("Invalid guest CID.")
        if name == "/drives/{id}":
            if body["drive_id"] != path.rpartition("/")[2]:
                raise Refused("The id from the path does not match the id from the body!")
            if ("socket" in body) == ("path_on_host" in body) or (
                "path_on_host" in body and "is_read_only" not in body
            ):
                raise Refused("Exactly one of a file, with is_read_only, and a socket makes a drive.")
        if name == "/actions" and body["action_type"] == "InstanceStart":
            if self.state != "Not started":
                raise Refused("The requested operation is not supported after starting the microVM.")
            if "/boot-source" not in self.known:
                raise Refused("Cannot start microvm without kernel configuration.")
            if "initrd_path" in self.known["/boot-source"] and any(
                known.get("is_root_device") for at, known in self.known.items() if at.startswith("/drives/")
            ):
                raise Refused("An initrd and a root device cannot be had together.")
            self.state = "Running"
        if name == "/snapshot/create":
            if self.state != "Paused":
                raise Refused("Create snapshot error: the microVM is not paused.")
            if any("socket" in known for at, known in self.known.items() if at.startswith("/drives/")):
                raise Refused("Create snapshot error: vhost-user devices cannot be saved.")
        if name == "/snapshot/load":
            if ("mem_backend" in body) == ("mem_file_path" in body):
                raise Refused("Exactly one of `mem_backend` and `mem_file_path` must be there.")
            self.state = "Running" if body.get("resume_vm") else "Paused"
        if name == "/vm":
            self.state = {"Paused": "Paused", "Resumed": "Running"}[body["state"]]


def check(fields: dict[str, Any], body: Any, where: str) -> None:
    """Types, required and unknown fields of an object."""
    if not isinstance(body, dict):
        raise Refused(f"{where}: an object was expected")
    known = {name.rstrip("?"): (kind, name.endswith("?")) for name, kind in fields.items()}
    for name in body:
        if name not in known:
            raise Refused(f"{where}: unknown field `{name}`")
    for name, (kind, optional) in known.items():
        if name not in body:
            if not optional:
                raise Refused(f"{where}: missing field `{name}`")
            continue
        value = body[name]
        if isinstance(kind, dict):
            check(kind, value, f"{where} {name}")
        elif isinstance(kind, tuple):
            if value not in kind:
                raise Refused(f"{where}: unknown variant of `{name}`: {value!r}")
        elif type(value) is not kind:
            raise Refused(f"{where}: invalid type of `{name}`: {value!r}")
