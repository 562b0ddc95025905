"""``monkeypatch`` of pytest: names, items, variables and the directory changed for one test, and put back after it."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

_UNSET: Any = object()


class MonkeyPatch:
    """What it changes is put back by ``undo``, the last first."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []

    @classmethod
    @contextlib.contextmanager
    def context(cls) -> Iterator[MonkeyPatch]:
        """Changes for a block."""
        made = cls()
        try:
            yield made
        finally:
            made.undo()

    def setattr(self, target: Any, name: Any, value: Any = _UNSET, raising: bool = True) -> None:
        """Set an attribute: ``(object, name, value)``, or ``("module.name", value)``.

        Raises:
            AttributeError: it has none of that name, and ``raising``.
        """
        if value is _UNSET:
            (target, name), value = _found(target, raising), name
        before = getattr(target, name, _UNSET)
        if before is _UNSET and raising:
            raise AttributeError(f"{target!r} has no attribute {name!r}")
        if isinstance(target, type):
            before = vars(target).get(name, _UNSET)  # a static method as it is written
        self._undo.append(lambda: delattr(target, name) if before is _UNSET else setattr(target, name, before))
        setattr(target, name, value)

    def delattr(self, target: Any, name: Any = _UNSET, raising: bool = True) -> None:
        """Delete an attribute, named as in ``setattr``."""
        if name is _UNSET:
            target, name = _found(target, raising)
        if not hasattr(target, name):
            if raising:
                raise AttributeError(name)
            return
        before = vars(target).get(name, _UNSET) if isinstance(target, type) else getattr(target, name)
        self._undo.append(lambda: setattr(target, name, before))
        delattr(target, name)

    def setitem(self, mapping: Any, key: Any, value: Any) -> None:
        """Set a mapping's item."""
        before = mapping.get(key, _UNSET)
        self._undo.append(lambda: mapping.pop(key, None) if before is _UNSET else mapping.__setitem__(key, before))
        mapping[key] = value

    def delitem(self, mapping: Any, key: Any, raising: bool = True) -> None:
        """Delete a mapping's item.

        Raises:
            KeyError: there is none, and ``raising``.
        """
        if key not in mapping and not raising:
            return
        before = mapping[key]
        self._undo.append(lambda: mapping.__setitem__(key, before))
        del mapping[key]

    def setenv(self, name: str, value: Any, prepend: str | None = None) -> None:
        """Set an environment variable; ``prepend``: put before what it holds, with this between."""
        text = str(value)
        self.setitem(os.environ, name, f"{text}{prepend}{os.environ[name]}" if prepend and name in os.environ else text)

    def delenv(self, name: str, raising: bool = True) -> None:
        """Delete an environment variable."""
        self.delitem(os.environ, name, raising)

    def syspath_prepend(self, path: Any) -> None:
        """Look there first for modules."""
        before = sys.path[:]
        self._undo.append(lambda: sys.path.__setitem__(slice(None), before))
        sys.path.insert(0, str(path))
        importlib.invalidate_caches()

    def chdir(self, path: Any) -> None:
        """Change the working directory."""
        before = os.getcwd()
        self._undo.append(lambda: os.chdir(before))
        os.chdir(path)

    def undo(self) -> None:
        """Put all back."""
        while self._undo:
            self._undo.pop()()


def _found(path: str, raising: bool) -> tuple[Any, str]:
    """What a dotted name names: an object, and the attribute of it."""
    parts = path.split(".")
    target: Any = importlib.import_module(parts[0])
    for at, part in enumerate(parts[1:-1], 2):
        if not hasattr(target, part):
            importlib.import_module(".".join(parts[:at]))
        target = getattr(target, part)
    if len(parts) < 2 or (raising and not hasattr(target, parts[-1])):
        raise AttributeError(f"{path!r} names no attribute")
    return target, parts[-1]
