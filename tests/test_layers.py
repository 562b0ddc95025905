"""The layers and the habits that hold for the whole tree."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "proctor"
MODULES = sorted(PACKAGE.rglob("*.py"))
# From the top to the bottom; a layer imports only itself and what stands under it.
LAYERS = [
    "cli", "doctor", "report", "grading", "client", "engine", "meter", "network", "images", "isolation", "guest", "core",
]  # fmt: skip


def name_of(path: Path) -> str:
    """Dotted name of a module's file."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Dotted names that a module imports; `from a import b` gives a.b, which may be a module or a name in one."""
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, node.module] if node.module else base)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def layer(dotted: str) -> str | None:
    """The layer that a dotted name of ours stands in; None for the package's own top."""
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else None


def ours(path: Path) -> list[str]:
    return [name for name in imports(path) if name.split(".")[0] == "proctor"]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    here = layer(name_of(path))
    if here is None:  # proctor/__init__.py and __main__.py stand above all layers
        return
    for name in ours(path):
        there = layer(name)
        assert there is not None, f"{name_of(path)} imports {name}, the top of the package"
        assert LAYERS.index(there) >= LAYERS.index(here), f"{name_of(path)} imports {name}, which stands above it"


def test_every_folder_is_a_layer() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    modules = {path.parent.relative_to(PACKAGE).parts[0] for path in MODULES if path.parent != PACKAGE}
    assert folders & modules <= set(LAYERS)


@pytest.mark.parametrize("path", [p for p in MODULES if "guest" in p.parts], ids=name_of)
def test_guest_imports_only_the_standard_library_and_itself(path: Path) -> None:
    for name in imports(path):
        top = name.split(".")[0]
        own = layer(name) == "guest" or top == "proctor_guest"  # its name where it runs, without the rest of us
        assert own or top in sys.stdlib_module_names, f"{name_of(path)} imports {name}"


@pytest.mark.parametrize("path", [p for p in MODULES if "guest" not in p.parts], ids=name_of)
def test_hosts_import_only_the_protocol_of_the_guest(path: Path) -> None:
    for name in ours(path):
        allowed = name == "proctor.guest.protocol" or name.startswith("proctor.guest.protocol.")
        # What a sandbox has used is read from outside it, by the same code as inside; so is what surrounds gVisor, and
        # a container that is only a try, and a machine that is to be saved, are started as those of an agent are.
        allowed = allowed or (name_of(path), name) in (
            ("proctor.isolation.lobby", "proctor.guest.cgroups"),
            ("proctor.isolation.gvisor", "proctor.guest.cgroups"),
            ("proctor.isolation.enclosed", "proctor.guest.cgroups"),
            ("proctor.isolation.enclosed", "proctor.guest.bundle"),
            ("proctor.isolation.runsc", "proctor.guest.bundle"),
            ("proctor.isolation.microvm", "proctor.guest.cgroups"),
            ("proctor.isolation.machines", "proctor.guest.cgroups"),
            ("proctor.isolation.erofs", "proctor.guest.blocks"),
            *(("proctor.isolation.template", f"proctor.guest.{name}") for name in ("blocks", "channels", "machine")),
            *(("proctor.isolation.firsttime", f"proctor.guest.{name}") for name in ("channels", "machine")),
            *(("proctor.isolation.saving", f"proctor.guest.{name}") for name in ("blocks", "channels", "firecracker")),
            ("proctor.isolation.firecracker", "proctor.guest.firecracker"),
        )
        assert layer(name) != "guest" or allowed, f"{name_of(path)} imports {name}"


@pytest.mark.parametrize("path", [p for p in MODULES if "core" in p.parts], ids=name_of)
def test_core_imports_nothing_of_ours_outside_core(path: Path) -> None:
    assert all(layer(name) == "core" for name in ours(path))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_stay_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 400


def texts() -> list[Path]:
    """Files that users read: the package, the documents, the build files."""
    found = [p for p in (ROOT / "docs").rglob("*") if p.is_file()] + [p for p in PACKAGE.rglob("*") if p.is_file()]
    found += [
        *ROOT.glob("*.md"),
        *(ROOT / "tools").glob("*"),
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "bench").rglob("*.py"),
    ]
    found += [p for p in (ROOT / "Makefile", ROOT / "pyproject.toml") if p.exists()]
    return sorted(p for p in found if "__pycache__" not in p.parts and p.is_file())


@pytest.mark.parametrize("path", texts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_names_a_place_that_users_do_not_have(path: Path) -> None:
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.is_relative_to(PACKAGE) or path.suffix == ".md":
        assert "../" + "shared" not in text
    # A person's own home, or where this tree happened to lie when it was written.
    for found in re.finditer(r"(?<![\w.])/(?:home/[a-z]\w*|Users/\w+|work|root/[.\w]+)(?=[/\s\"'`])[^\s\"'`]*", text):
        assert found[0] in HARMLESS, f"{path.name} names {found[0]}"


HARMLESS: set[str] = set()  # paths of that look that a document shows on purpose
