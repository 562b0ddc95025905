"""What a program of sealed tests prints, and by which stream: tests replace the one of now, not those kept from before.

All of it is in the files of the descriptors 1 and 2. What goes through ``sys.stdout`` and ``sys.stderr`` as they are
since the program was loaded is noted, by its place there; the rest was written to a stream that the program kept
from before, to the descriptor, or by another process, and only who looks at the descriptor sees it.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any

_MOST = 1 << 20  # bytes of printed text of each stream that go along with one answer
_NAMES = {1: "stdout", 2: "stderr"}


class _Noted(io.FileIO):
    """A descriptor that notes where in its file each text is."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.name = f"<{_NAMES[number]}>"
        self.spans: list[tuple[int, int]] = []

    def write(self, data: Any) -> int:
        at = os.fstat(self.fileno()).st_size
        count = super().write(data)
        self.spans.append((at, at + count))
        return count


class Printed:
    """The program's side: what was printed since it was last asked for."""

    def __init__(self) -> None:
        self.told = {1: 0, 2: 0}  # bytes by descriptor
        self.noted: dict[int, _Noted] = {}
        self.streams: list[Any] = [sys.stdout, sys.stderr]

    def replace(self) -> None:
        """From now on the streams are others than those that the program may have kept."""
        self.streams += [sys.stdout, sys.stderr]
        for number, name in _NAMES.items():
            before = self.streams[number - 1]
            raw = self.noted[number] = _Noted(number)
            stream = io.TextIOWrapper(
                io.BufferedWriter(raw),
                before.encoding,
                before.errors,
                newline="\n",
                line_buffering=before.line_buffering,
            )
            setattr(sys, name, stream)
            self.streams.append(stream)

    def taken(self, number: int) -> tuple[tuple[bool, str], ...]:
        """Pieces of text, each with whether it went another way than by the stream of now."""
        for stream in (*self.streams, getattr(sys, _NAMES[number], None)):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        start = self.told[number]
        try:
            size = os.fstat(number).st_size - start
            data = os.pread(number, min(size, _MOST), start) if size > 0 else b""
        except OSError:
            return ()
        self.told[number] = end = start + len(data)
        pieces: list[tuple[bool, bytes]] = []

        def piece(kept: bool, first: int, last: int) -> None:
            if first < last and pieces and pieces[-1][0] == kept:
                pieces[-1] = kept, pieces[-1][1] + data[first - start : last - start]
            elif first < last:
                pieces.append((kept, data[first - start : last - start]))

        at, spans = start, self.noted[number].spans if number in self.noted else []
        for first, last in spans:
            first, last = max(first, at), min(last, end)
            if first < last:
                piece(True, at, first)
                piece(False, first, last)
                at = last
        piece(True, at, end)
        spans[:] = [span for span in spans if span[1] > end]
        return tuple((kept, text.decode("utf-8", "replace")) for kept, text in pieces)


def is_printed(pieces: Any) -> bool:
    """What ``taken`` gives."""
    return type(pieces) is tuple and all(
        type(piece) is tuple and [type(part) for part in piece] == [bool, str] for piece in pieces
    )


def show(texts: list[Any]) -> None:
    """Print what a program has printed, where the tests would see it: by the streams of now, or by the first ones."""
    for pieces, name in zip(texts, _NAMES.values(), strict=True):
        for kept, text in pieces:
            stream = getattr(sys, f"__{name}__" if kept else name)
            stream.write(text)
            if kept:
                stream.flush()
