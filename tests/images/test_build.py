"""Images that are built: Python packages by pip from a local place, Debian packages from a local source."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor import Runtime
from proctor.client.build import Recipe, build
from proctor.client.embedded import EmbeddedBackend
from proctor.core.errors import InputError, IsolationUnavailable
from proctor.images.debs import add_debs, fetch
from proctor.images.packages import host_packages
from proctor.images.records import Origin, Record
from proctor.images.store import Store

needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="this host has no dpkg-deb")
needs_apt = pytest.mark.skipif(
    shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None, reason="this host has no apt-get"
)


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("data") / "proctor" / "images") as made:
        yield made


@pytest.fixture
def boxes(store: Store) -> Iterator[Runtime]:
    backend = EmbeddedBackend(store=store)
    runtime = Runtime(backend=backend)
    try:
        with runtime.sandboxes.create(memory_mib=64):
            pass
    except IsolationUnavailable as exc:
        pytest.skip(f"this host gives no sandboxes: {exc}")
    yield runtime
    backend.close()


def wheel(folder: Path, name: str, version: str, source: str, requires: str = "") -> None:
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-says = {name}:says\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


@pytest.fixture
def wheels(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all that pip may install from."""
    try:
        host_packages(store)
    except InputError as exc:
        pytest.skip(str(exc))
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(
        folder, "hello_a", "1.0", "import hello_b\ndef says(): print('a', hello_b.SAID)\n", "Requires-Dist: hello-b\n"
    )
    wheel(folder, "hello_b", "2.0", "SAID = 'b'\n")
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    conf = tmp_path / "pip.conf"
    conf.write_text(f"[global]\nno-index = true\nfind-links = {folder}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(conf))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "none"))
    return folder


def what_there_is(store: Store) -> tuple[list[str], list[str], list[Path]]:
    store.gc()
    records = [record.reference for record in store.list()]
    return records, sorted(os.listdir(store.layers)), list(store.incoming.iterdir())


# ---------------------------------------------------------------- Python


def test_python_packages_are_there_and_warm(store: Store, wheels: Path, boxes: Runtime) -> None:
    told: list[str] = []
    recipe = Recipe(name="hello", packages=("hello-a",), preimport=("hello_a",), env={"WHO": "me"}, memory_mib=256)
    record = build(store, recipe, told.append)
    assert (record.reference, record.settings.preimport, dict(record.settings.env)) == (
        "hello@v1", ("hello_a",), {"WHO": "me"},
    )  # fmt: skip
    assert any("hello_b-2.0" in line or "hello-b" in line for line in told)
    with boxes.sandboxes.create(image="hello", memory_mib=128) as box:
        assert box.exec(["hello_a-says"]).stdout == "a b\n"
        box.files.write("p.py", "import sys, os; print('hello_b' in sys.modules, os.environ['WHO'], os.listdir())")
        assert box.exec(["python3", "p.py"]).stdout == "True me ['p.py']\n"
        cached = "import hello_a, os; print(os.path.exists(hello_a.__cached__))"
        assert box.exec(["python3", "-c", cached]).stdout == "True\n"
        assert box.exec("find /tmp /var/tmp -type f | grep -v /wheels/").stdout == ""
        assert box.exec(["test", "-e", "/etc/pip.conf"]).exit_code == 1
    assert store.list(Origin.SNAPSHOT) == []
    assert {one.name for one in store.list(Origin.IMAGE)} <= {"hello", "host-pip"}


def test_the_same_again_is_the_same_version_and_more_is_the_next(store: Store, wheels: Path) -> None:
    text = b"hello-b  # with a comment\n"
    first = build(store, Recipe(name="again", requirements=text, memory_mib=256), quiet)
    second = build(store, Recipe(name="again", requirements=text, memory_mib=256), quiet)
    assert (first.reference, second.id) == ("again@v1", first.id)
    third = build(store, Recipe(name="again", requirements=text, packages=("hello-a==1.0",), memory_mib=256), quiet)
    assert third.reference == "again@v2"


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (Recipe(name="bad", packages=("hello-c",), memory_mib=256), "hello-c"),
        (Recipe(name="bad", requirements=b"hello-b\n==\n", memory_mib=256), "pip could not install"),
        (Recipe(name="bad", packages=("hello-b",), preimport=("hello_c",), memory_mib=256), "hello_c"),
        (Recipe(name="bad", preimport=("hello_b",)), "hello_b"),
    ],
)
def test_a_build_that_fails_says_why_and_leaves_nothing(recipe: Recipe, words: str, store: Store, wheels: Path) -> None:
    before = what_there_is(store)
    with pytest.raises(InputError, match=words):
        build(store, recipe, quiet)
    assert what_there_is(store) == before


def test_on_the_command_line(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "requirements.txt").write_text("hello-b\n")
    command = [sys.executable, "-m", "proctor.cli.main", "image", "build", "--name", "n", "--memory", "256M"]
    done = subprocess.run(
        [*command, "--requirements", str(tmp_path / "requirements.txt"), "--env", "A=1", "--json"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["version"], told["env"], told["base"]) == ("v1", {"A": "1"}, "host")
    assert "proctor: pip: " in done.stderr
    done = subprocess.run([*command, "--package", "hello-c"], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip could not install" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "n"}, "nothing to build"),
        ({"name": "a/b", "packages": ("x",)}, "no name"),
        ({"name": "n", "packages": ("--index-url=http://e.example",)}, "no requirement"),
        ({"name": "n", "debian": ("-o",)}, "Debian package"),
        ({"name": "n", "debian": ("vim-",)}, "Debian package"),
        ({"name": "n", "debian": ("a;b",)}, "Debian package"),
    ],
)
def test_what_cannot_be_built_is_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Recipe(**fields)  # type: ignore[arg-type]


# ---------------------------------------------------------------- Debian


def deb(folder: Path, name: str, depends: str = "", files: dict[str, str] | None = None) -> Path:
    tree = folder / name
    (tree / "DEBIAN").mkdir(parents=True)
    control = f"Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: t <t@t.example>\nDescription: t\n"
    (tree / "DEBIAN" / "control").write_text(control + (f"Depends: {depends}\n" if depends else ""))
    postinst = tree / "DEBIAN" / "postinst"
    postinst.write_text(f"#!/bin/sh\ntouch {folder}/script-ran\n")
    postinst.chmod(0o755)
    for path, text in (files or {}).items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
        (tree / path).chmod(0o755)
    made = folder / f"{name}_1.0_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(tree), str(made)], check=True, capture_output=True)
    return made


@needs_dpkg
def test_packages_come_to_lie_where_this_host_has_its_directories(store: Store, tmp_path: Path) -> None:
    first = deb(tmp_path, "one", files={"lib/one.so": "1", "usr/share/doc/one": "d", "bin/one": "x"})
    tree = tmp_path / "two"
    (tree / "usr" / "bin").mkdir(parents=True)
    (tree / "usr" / "bin" / "real").write_text("r")
    (tree / "usr" / "bin" / "real").chmod(0o4755)
    os.link(tree / "usr" / "bin" / "real", tree / "usr" / "bin" / "same")
    (tree / "usr" / "bin" / "link").symlink_to("/bin/one")
    second = deb(tmp_path, "two", files={"usr/lib/two.so": "2"})
    merged, apart = tmp_path / "merged", tmp_path / "apart"
    merged.mkdir()
    (apart / "lib").mkdir(parents=True)
    for top in ("lib", "bin"):
        (merged / top).symlink_to(f"usr/{top}")
    layer = add_debs(store, [first, second], merged)
    here = store.path_of(layer)
    found = sorted(str(path.relative_to(here)) for path in here.rglob("*") if not path.is_dir() or path.is_symlink())
    assert found == [
        "usr/bin/link", "usr/bin/one", "usr/bin/real", "usr/bin/same", "usr/lib/one.so", "usr/lib/two.so",
        "usr/share/doc/one",
    ]  # fmt: skip
    assert os.readlink(here / "usr/bin/link") == "/bin/one"
    assert (here / "usr/bin/real").samefile(here / "usr/bin/same")
    assert not (here / "usr/bin/real").stat().st_mode & stat.S_ISUID
    assert dict(layer.dropped)["setuid and setgid bits"] == 1
    assert add_debs(store, [first, second], merged).number == layer.number
    other = store.path_of(add_debs(store, [first], apart))
    assert (other / "lib" / "one.so").read_text() == "1"
    assert not (tmp_path / "script-ran").exists()


@needs_dpkg
def test_what_is_no_package_is_refused(store: Store, tmp_path: Path) -> None:
    before = what_there_is(store)
    good = deb(tmp_path, "good", files={"usr/x": "x" * 100_000})
    (tmp_path / "no.deb").write_bytes(b"no package")
    (tmp_path / "cut.deb").write_bytes(good.read_bytes()[:-200])
    for name in ("no.deb", "cut.deb", "missing.deb"):
        with pytest.raises(InputError, match=name):
            add_debs(store, [good, tmp_path / name])
    assert what_there_is(store) == before


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source of packages that is all that apt knows."""
    repository = tmp_path / "repository"
    repository.mkdir()
    said = "#!/bin/sh\n. /usr/share/said-b\necho $SAID\n"
    debs = [
        deb(repository, "said-a", "said-b", {"usr/bin/said-a": said}),
        deb(repository, "said-b", "", {"usr/share/said-b": "SAID=b\n", "lib/said-b": ""}),
    ]
    lines = []
    for path in debs:
        data = path.read_bytes()
        control = subprocess.run(["dpkg-deb", "-f", str(path)], check=True, capture_output=True, text=True).stdout
        lines.append(
            f"{control}Filename: ./{path.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n\n"
        )
    (repository / "Packages").write_text("".join(lines))
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] file:{repository} ./\n")
    (tmp_path / "lists" / "partial").mkdir(parents=True)
    (tmp_path / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{tmp_path}/sources.list";\nDir::Etc::sourceparts "-";\nDir::State::lists "{tmp_path}/lists";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    return repository


@needs_apt
@pytest.mark.parametrize("method", ["file", "copy"])
def test_apt_brings_what_is_needed(method: str, source: Path, tmp_path: Path) -> None:
    listed = tmp_path / "sources.list"
    listed.write_text(listed.read_text().replace("file:", f"{method}:"))
    (tmp_path / "box").mkdir()
    told: list[str] = []
    found = fetch(["said-a"], tmp_path / "box", told.append)
    assert sorted(path.name for path in found) == ["said-a_1.0_all.deb", "said-b_1.0_all.deb"]
    assert any("packages to fetch: 2" in line for line in told)
    assert os.listdir(tmp_path / "lists") == ["partial"]  # the host's own are left as they were
    with pytest.raises(InputError, match="said-c"):
        fetch(["said-c"], tmp_path / "box", quiet)


@needs_apt
def test_debian_packages_are_there(source: Path, store: Store, boxes: Runtime) -> None:
    record: Record = build(store, Recipe(name="said", debian=("said-a",)), quiet)
    assert build(store, Recipe(name="said", debian=("said-a",)), quiet).id == record.id
    with boxes.sandboxes.create(image="said", memory_mib=64) as box:
        run = box.exec("said-a; ls /lib/said-b; ls -d /lib/*/libc.so.6 /usr/lib/*/libc.so.6 | head -1 | wc -l")
        assert run.stdout == "b\n/lib/said-b\n1\n"
    assert not (source / "script-ran").exists()


@needs_apt
def test_both_kinds_in_one(source: Path, store: Store, wheels: Path, boxes: Runtime) -> None:
    build(store, Recipe(name="both", debian=("said-a",), packages=("hello-a",), memory_mib=256), quiet)
    with boxes.sandboxes.create(image="both", memory_mib=128) as box:
        assert box.exec("said-a; hello_a-says").stdout == "b\na b\n"


def test_without_apt(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = what_there_is(store)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="no apt-get"):
        build(store, Recipe(name="n", debian=("vim",)), quiet)
    assert what_there_is(store) == before
