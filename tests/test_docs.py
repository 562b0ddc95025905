"""What the documents say is so: examples run, tests that are named exist, limits and verdicts are listed."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from proctor.core.limits import Limits
from proctor.core.verdict import Verdict

ROOT = Path(__file__).resolve().parent.parent
SPECIFICATION = ROOT / "docs" / "specification.md"


def fenced(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.S | re.M)


@pytest.mark.parametrize("text", fenced(ROOT / "README.md", "python"), ids=lambda text: text.splitlines()[0])
def test_readme_examples_run(text: str) -> None:
    exec(compile(text, "README.md", "exec"), {"__name__": "readme"})


@pytest.mark.parametrize(
    "text", fenced(ROOT / "docs" / "sandboxes.md", "python"), ids=lambda text: text.splitlines()[0]
)
def test_examples_of_the_sandboxes_guide_run(text: str) -> None:
    exec(compile(text, "sandboxes.md", "exec"), {"__name__": "guide"})


def test_every_promise_names_something_that_exists() -> None:
    rows = [line for line in SPECIFICATION.read_text().splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) > 60
    for row in rows:
        named = re.findall(r"`((?:tests|bench)/[\w/.]+?\.py)(?:::(\w+))?`", row)
        assert named or "`make bench`" in row or "`proctor doctor`" in row, f"no test is named: {row}"
        for file, function in named:
            assert (ROOT / file).is_file(), f"{file} in: {row}"
            if function:
                assert re.search(rf"def {function}\b", (ROOT / file).read_text()), f"{file}::{function} in: {row}"


def test_every_limit_and_verdict_is_specified() -> None:
    text = SPECIFICATION.read_text()
    for name in [f.name for f in dataclasses.fields(Limits)] + [v.value for v in Verdict]:
        assert f"`{name}`" in text, name


def test_links_between_documents_lead_somewhere() -> None:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_what_make_sets_up_has_what_the_commands_need() -> None:
    """The README sends readers to every command once `make demo` has run."""
    said = (ROOT / "tools" / "setup.sh").read_text()
    assert "\ntarget='.[report]'\n" in said
    assert "'.[report]'" in (ROOT / "README.md").read_text()
