"""``capsys`` and ``capfd`` of pytest: what is printed while a test runs. A sealed program's text comes with its answers."""

from __future__ import annotations

import collections
import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

CaptureResult = collections.namedtuple("CaptureResult", ("out", "err"))


class _Text(io.TextIOWrapper):
    """A text stream in memory, with a ``buffer`` as the real one has."""

    def __init__(self) -> None:
        self.data = io.BytesIO()
        super().__init__(self.data, "utf-8", "surrogatepass", newline="", write_through=True)

    def taken(self) -> str:
        """What was written since this was last asked."""
        self.flush()
        text = self.data.getvalue().decode("utf-8", "replace")
        self.data.seek(0)
        self.data.truncate()
        return text


class Capture:
    """What is written to ``sys.stdout`` and ``sys.stderr`` from now on."""

    def __init__(self) -> None:
        self.before = (sys.stdout, sys.stderr)
        self.now = (_Text(), _Text())
        self.resume()

    def resume(self) -> None:
        sys.stdout, sys.stderr = self.now

    def suspend(self) -> None:
        sys.stdout, sys.stderr = self.before

    close = suspend

    def readouterr(self) -> Any:
        """``out`` and ``err`` since this was last asked."""
        return CaptureResult(*(stream.taken() for stream in self.now))

    @contextlib.contextmanager
    def disabled(self) -> Iterator[None]:
        """Without it for a while."""
        self.suspend()
        try:
            yield
        finally:
            self.resume()


class _Stream(NamedTuple):
    number: int
    before: int  # where it went
    file: Any


class CaptureDescriptors(Capture):
    """What is written to the descriptors 1 and 2, by whatever process."""

    def __init__(self) -> None:
        import tempfile

        self.streams = [_Stream(number, os.dup(number), tempfile.TemporaryFile()) for number in (1, 2)]
        self.resume()

    def resume(self) -> None:
        self._flush()
        for stream in self.streams:
            os.dup2(stream.file.fileno(), stream.number)

    def suspend(self) -> None:
        self._flush()
        for stream in self.streams:
            os.dup2(stream.before, stream.number)

    def close(self) -> None:
        self.suspend()
        for stream in self.streams:
            os.close(stream.before)
            stream.file.close()

    def readouterr(self) -> Any:
        self._flush()
        texts = []
        for stream in self.streams:
            stream.file.seek(0)
            texts.append(stream.file.read().decode("utf-8", "replace"))
            stream.file.seek(0)
            stream.file.truncate()
        return CaptureResult(*texts)

    @staticmethod
    def _flush() -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
