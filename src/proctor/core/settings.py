"""Settings: a TOML file of the user's, and the environment, which goes before it.

The file is ``settings.toml`` in ``XDG_CONFIG_HOME/proctor``, or
``~/.config/proctor``. A value ``cpu_hour`` of its section ``[prices]`` is
``PROCTOR_PRICES_CPU_HOUR`` in the environment. Both are read once, by
``load``; what a section holds is said by the module that uses it.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any

from proctor.core.errors import InputError

SECTIONS = ("prices", "limits")
_PREFIX = "PROCTOR_"
_DIGITS = 12  # after the decimal point
_STEP = Decimal(1).scaleb(-_DIGITS)
_CONTEXT = Context(prec=60)
_LARGEST_FILE = 1 << 20


def default_path(environ: Mapping[str, str] | None = None) -> Path:
    """Under ``XDG_CONFIG_HOME``, or ``~/.config`` where that is not set.

    Raises:
        InputError: this user has no home directory.
    """
    told = (os.environ if environ is None else environ).get("XDG_CONFIG_HOME", "")
    try:
        base = Path(told) if os.path.isabs(told) else Path.home() / ".config"
    except RuntimeError as error:
        raise InputError(f"{error}; set XDG_CONFIG_HOME to a folder", field="XDG_CONFIG_HOME") from None
    return base / "proctor" / "settings.toml"


def exact(value: object, *, least: int = 0, most: int, field: str, where: str | None = None) -> Fraction:
    """A number as it was written: ``0.025`` is 25 thousandths, whether it came as text, Decimal or float.

    Raises:
        InputError: it is no number from ``least`` to ``most`` with at most 12 digits after its point.
    """
    wrong = InputError(
        f"{value!r:.60} is not a number from {least} to {most} with at most {_DIGITS} decimals; write for example 0.025",
        field=field,
        where=where,
    )
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal | Fraction):
        raise wrong
    if isinstance(value, Fraction):
        number = value
        if not least <= number <= most or number.denominator > 10**_DIGITS:
            raise wrong
        return number
    try:
        decimal = Decimal(value if not isinstance(value, float) else repr(value))
    except InvalidOperation:
        raise wrong from None
    if not decimal.is_finite() or not least <= decimal <= most:
        raise wrong
    rounded = _CONTEXT.quantize(decimal, _STEP)  # not by its exponent: 0e-999999999 would be a Fraction for hours
    if rounded != decimal:
        raise wrong
    return Fraction(rounded)


@dataclass(frozen=True, slots=True)
class Setting:
    """One value: text from the environment; text, a whole number, a Decimal or a truth value from the file.

    Attributes:
        field: its name, as in ``prices.cpu_hour``.
        where: the file, or the variable of the environment.
    """

    value: object
    field: str
    where: str

    def number(self, *, least: int = 0, most: int) -> Fraction:
        """A number, exactly.

        Raises:
            InputError: it is none, or out of bounds.
        """
        return exact(self.value, least=least, most=most, field=self.field, where=self.where)

    def whole(self, *, least: int = 0, most: int) -> int:
        """A whole number.

        Raises:
            InputError: it is none, or out of bounds.
        """
        value = self.value
        if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 30:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InputError(
                f"{self.value!r:.60} is not a whole number from {least} to {most}; write for example {max(least, 5_000_000)}",
                field=self.field,
                where=self.where,
            )
        return value


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, as they were found."""

    sections: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)

    def section(self, name: str, known: Collection[str]) -> dict[str, Setting]:
        """What was set in a section.

        Args:
            known: the names that it may hold.

        Raises:
            InputError: it holds another name.
        """
        found = dict(self.sections.get(name, {}))
        for key, setting in found.items():
            if key not in known:
                raise InputError(_unknown(f"{name}.{key}", key, known), where=setting.where)
        return found


def load(path: str | Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the file, where there is one, and then the environment.

    Args:
        path: another file than the user's own; it must be there.
        environ: another environment than this process's.

    Raises:
        InputError: the file cannot be read or is not TOML, or there is no such section.
    """
    environ = os.environ if environ is None else environ
    place = Path(path) if path is not None else default_path(environ)
    sections: dict[str, dict[str, Setting]] = {name: {} for name in SECTIONS}
    for name, body in _read(place, required=path is not None).items():
        if name not in SECTIONS:
            raise InputError(_unknown(name, name, SECTIONS), where=str(place))
        if not isinstance(body, dict):
            raise InputError(f"it is no section; write [{name}] on a line of its own", where=str(place), field=name)
        sections[name] = {key: Setting(value, f"{name}.{key}", str(place)) for key, value in body.items()}
    for name in SECTIONS:
        prefix = f"{_PREFIX}{name.upper()}_"
        for variable, value in environ.items():
            if variable.startswith(prefix) and value.strip():
                key = variable.removeprefix(prefix).lower()
                sections[name][key] = Setting(value.strip(), f"{name}.{key}", f"environment variable {variable}")
    return Settings(sections)


def _read(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
        if len(data) > _LARGEST_FILE:
            raise InputError(f"it is larger than {_LARGEST_FILE >> 20} MiB; it is no file of settings", where=str(path))
        return tomllib.loads(data.decode("utf-8"), parse_float=Decimal)
    except (FileNotFoundError, NotADirectoryError):
        if required:
            raise InputError("there is no such file; name one, or leave it out", where=str(path)) from None
        return {}
    except OSError as error:
        raise InputError(f"it cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, RecursionError, InvalidOperation) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"it is not TOML: {error}", where=str(path)) from None


def _unknown(full: str, name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
    return f"there is no setting {full!r:.80}; {hint}"
