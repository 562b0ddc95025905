"""pip of this host as a layer over the host's image."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.core.errors import InputError
from proctor.images import packages
from proctor.images.host import host_image
from proctor.images.packages import host_packages
from proctor.images.rootfs import resolve
from proctor.images.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as made:
        yield made


def pip(store: Store) -> Path:
    try:
        host_packages(store)
    except InputError as error:
        pytest.skip(str(error))
    return resolve(store, "host-pip").layers[0]


def test_pip_lies_where_the_hosts_image_looks_for_it_and_works(store: Store) -> None:
    layer, image = pip(store), host_image()
    site = layer / next(iter(image.plan["covers"])).lstrip("/")
    command = layer / os.path.dirname(image.python).lstrip("/") / "pip"
    assert os.access(command, os.X_OK)
    script = f"import sys; sys.path.insert(0, {str(site)!r}); exec(open({str(command)!r}).read())"
    env = {"PATH": "/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        [image.python, "-S", "-I", "-c", script], capture_output=True, text=True, env=env, timeout=120
    )
    assert "Usage" in done.stdout, done.stderr
    script = f"import sys; sys.path.insert(0, {str(site)!r}); import pip; print(pip.__file__)"
    done = subprocess.run(
        [image.python, "-S", "-I", "-c", script], capture_output=True, text=True, env=env, timeout=120
    )
    assert done.stdout.startswith(str(site)), done.stderr


def test_it_is_made_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    pip(store)
    first = host_packages(store)
    assert host_packages(store, ["PIP", "pip"]).id == first.id
    assert [one.id for one in store.list()] == [first.id]
    monkeypatch.setattr(packages, "_FORMAT", 0)  # something else is laid out from now on
    second = host_packages(store)
    assert [one.id for one in store.list()] == [second.id]


@pytest.mark.parametrize("bundled", [True, False])
def test_from_a_wheel(bundled: bool, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose interpreter has no pip, but a wheel of one."""
    found = packages._wheel("pip", packages._interpreter()["stdlib"])
    if found is None:
        pytest.skip("this host has no wheel of pip")
    (tmp_path / "empty").mkdir()
    folder = tmp_path / ("stdlib/ensurepip/_bundled" if bundled else "wheels")
    folder.mkdir(parents=True)
    (folder / found.name).write_bytes(found.read_bytes())
    monkeypatch.setattr(packages, "_WHEELS", str(tmp_path / "wheels"))
    assert packages._sources("pip", [str(tmp_path / "empty")], str(tmp_path / "stdlib")) == [folder / found.name]
    monkeypatch.setattr(packages, "_sources", lambda *args: [folder / found.name])
    layer = resolve(store, host_packages(store).id).layers[0]
    image = host_image()
    assert (layer / next(iter(image.plan["covers"])).lstrip("/") / "pip" / "__main__.py").is_file()
    assert (layer / os.path.dirname(image.python).lstrip("/") / "pip").is_file()


def test_a_host_without_it_says_what_to_install(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_WHEELS", str(tmp_path))
    with pytest.raises(InputError, match="python3-pip-whl"):
        packages._sources("pip", [str(tmp_path)], str(tmp_path))
    with pytest.raises(InputError, match="no-such-package"):
        host_packages(store, ["no-such-package"])
    with pytest.raises(InputError, match="not the name"):
        host_packages(store, ["../x"])


def test_a_long_interpreter_path_is_run_by_way_of_the_shell(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    python = folder / "python3"
    python.symlink_to(host_image().python)
    script = tmp_path / "command"
    script.write_text(packages._script(str(python), "platform:python_version"))
    script.chmod(0o755)
    done = subprocess.run([script], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip().count(".") == 2  # sys.exit of a text prints it
