"""What a level does not do, said beforehand with the reason: everything else that fails is a fault.

A declaration excuses one check on one level, where the level's own features
are as it says, and only for the failure that it describes. What this host
failed on is never excused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Features = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One thing that a level does not do.

    Attributes:
        level: of ``proctor.isolation.base.LEVELS``, but for ``auto``.
        check: its key.
        why: the reason, for users.
        shown: a pattern that is found in what the check then says.
        where: the features with which it is so; None: always.
    """

    level: str
    check: str
    why: str
    shown: str
    where: Callable[[Features], bool] | None = None


DECLARED: tuple[Declaration, ...] = ()


def declaration(check: str, level: str, features: Features) -> Declaration | None:
    """What a level with these features declares about a check."""
    for one in DECLARED:
        if (one.check, one.level) == (check, level) and (one.where is None or one.where(features)):
            return one
    return None


def excuses(one: Declaration, fault: str) -> bool:
    """The declaration is about this failure."""
    return re.search(one.shown, fault) is not None
