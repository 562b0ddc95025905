"""Signs that a reward was not earned: what a program did, and what its source says that it does.

Nothing here runs anything of a program's, and nothing is held against one
unless a reward policy asks (``audit_penalty``). A sign is a reason to look, not
a proof; see ``docs/audit.md`` for each, its weight and what honest programs
show it too.
"""

from __future__ import annotations

from proctor.grading.audit.audit import Audit, Sample, audit, audit_row, findings_of, signs
from proctor.grading.audit.signals import SIGNALS, WORTH_A_LOOK, Finding, suspicion

__all__ = [
    "SIGNALS",
    "WORTH_A_LOOK",
    "Audit",
    "Finding",
    "Sample",
    "audit",
    "audit_row",
    "findings_of",
    "signs",
    "suspicion",
]
