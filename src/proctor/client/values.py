"""What the SDK gives back: results of commands, and records as plain data."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from proctor.client.errors import CommandError
from proctor.client.fields import snake
from proctor.core.sandbox import CommandOutcome, FileInfo, SandboxInfo, SnapshotInfo

STREAMED_MOST = 64 << 20  # bytes of each stream that the result of a streamed command holds


class Record(dict[str, Any]):
    """Data under the names of the interface (``exitCode``), found in either spelling, as an item or an attribute."""

    def __missing__(self, key: str) -> Any:
        for name in self:
            if snake(name) == snake(str(key)):
                return self[name]
        raise KeyError(key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended.

    Attributes:
        exit_code: None where a limit ended it; negative for a signal.
        stdout, stderr: text, with U+FFFD where the bytes were not UTF-8.
        timed_out: its time was over.
        stdout_truncated, stderr_truncated: there was more.
        duration_ms: milliseconds of wall time.
        process_id: its number in its sandbox.
        replayed: an earlier answer to the same idempotency key.
        out_of_memory: it was killed for memory.
        stdout_bytes, stderr_bytes: the same output as it came.
    """

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool = False
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    duration_ms: float | None = None
    process_id: str | None = None
    replayed: bool = False
    out_of_memory: bool = False
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""

    def __getattr__(self, name: str) -> Any:
        other = snake(name)
        if other == name or name.startswith("_"):
            raise AttributeError(f"a CommandResult has no {name!r}")
        return getattr(self, other)

    def to_dict(self) -> dict[str, Any]:
        """As data, without the bytes."""
        return {f.name: getattr(self, f.name) for f in fields(self) if not f.name.endswith("_bytes")}


def result(outcome: CommandOutcome, *, replayed: bool = False) -> CommandResult:
    """A backend's outcome as callers see it."""
    return CommandResult(
        exit_code=outcome.exit_code, stdout=outcome.stdout.decode("utf-8", "replace"),
        stderr=outcome.stderr.decode("utf-8", "replace"), timed_out=outcome.timed_out,
        stdout_truncated=outcome.stdout_truncated, stderr_truncated=outcome.stderr_truncated,
        duration_ms=outcome.duration_ms, process_id=outcome.process_id, replayed=replayed,
        out_of_memory=outcome.out_of_memory, stdout_bytes=outcome.stdout, stderr_bytes=outcome.stderr,
    )  # fmt: skip


def checked(found: CommandResult, check: bool) -> CommandResult:
    """The same, or CommandError where ``check`` asks for success."""
    if not check or (found.exit_code == 0 and not found.timed_out and not found.out_of_memory):
        return found
    if found.timed_out:
        code, words = "command_timeout", "the command ran out of time"
    elif found.out_of_memory:
        code, words = "out_of_memory", "the command was killed for memory"
    else:
        code, words = "command_failed", f"the command ended with {found.exit_code}"
    last = found.stderr.strip().splitlines()[-1:] or [""]
    shown = f"{words}: {ascii(last[0][:200])[1:-1]}" if last[0] else words
    raise CommandError(shown, code=code, exit_code=found.exit_code, stdout=found.stdout, stderr=found.stderr)


class Gathered:
    """Streamed output put together: text for callbacks, bytes for the result."""

    def __init__(self) -> None:
        self.kept = {1: bytearray(), 2: bytearray()}
        self.written = {1: 0, 2: 0}
        decoder: Callable[[], Any] = lambda: codecs.getincrementaldecoder("utf-8")("replace")  # noqa: E731
        self._decoders = {1: decoder(), 2: decoder()}

    def take(self, stream: int, data: bytes) -> str:
        """Note a piece; returns the text that is complete with it."""
        if (left := STREAMED_MOST - len(self.kept[stream])) > 0:
            self.kept[stream] += data[:left]
        self.written[stream] += len(data)
        return str(self._decoders[stream].decode(data))

    def rest(self, stream: int) -> str:
        """What the last piece left unfinished."""
        return str(self._decoders[stream].decode(b"", True))

    def outcome(self, ended: CommandOutcome) -> CommandOutcome:
        """An outcome with this output."""
        from dataclasses import replace

        return replace(
            ended, stdout=bytes(self.kept[1]), stderr=bytes(self.kept[2]),
            stdout_truncated=self.written[1] > len(self.kept[1]),
            stderr_truncated=self.written[2] > len(self.kept[2]),
        )  # fmt: skip


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def sandbox_record(info: SandboxInfo) -> Record:
    """A sandbox as data."""
    spec = info.spec
    return Record(
        id=info.id, state=info.state.value, name=spec.name, labels=dict(spec.labels), vcpu=spec.vcpu,
        isolation="jail" if spec.isolation == "auto" else spec.isolation, memoryMiB=spec.memory_mib, diskMiB=spec.disk_mib, timeoutSeconds=spec.timeout_seconds,
        onLeaseEnd=spec.on_lease_end, maxCostMicros=spec.max_cost_micros, image=spec.image, snapshot=spec.snapshot,
        network=Record(internet=spec.network.internet, allow=list(spec.network.allow), deny=list(spec.network.deny)),
        createdAt=_moment(info.created_at), expiresAt=_moment(info.expires_at), stoppedAt=_moment(info.stopped_at),
        stopReason=info.stop_reason.value if info.stop_reason else None, gpu=spec.gpu, cpuSeconds=info.cpu_seconds,
        costMicros=info.cost_micros,
    )  # fmt: skip


def file_record(info: FileInfo) -> Record:
    """A file as data; ``name`` is the last part of its path, which has no ``.`` and no ``//``."""
    path = "/" + "/".join(part for part in info.path.split("/") if part not in ("", "."))
    record = Record(
        path=path, name=path.rpartition("/")[2], type=info.kind, size=info.size, mode=info.mode,
        modifiedAt=_moment(info.modified_at) if -6e10 < info.modified_at < 2.5e11 else None,
    )  # fmt: skip
    if info.target is not None:
        record["target"] = info.target
    return record


def snapshot_record(info: SnapshotInfo) -> Record:
    """A snapshot as data."""
    return Record(
        id=info.id, name=info.name, state="ready", digest=info.digest, sizeBytes=info.size_bytes,
        labels=dict(info.labels), createdAt=_moment(info.created_at), expiresAt=_moment(info.expires_at),
    )  # fmt: skip
