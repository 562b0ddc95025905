"""The host's pip configuration: what is taken along, what stays behind; and pip itself through a gate."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import sys
import zipfile
from collections.abc import Mapping
from configparser import RawConfigParser
from pathlib import Path

import pytest
from network_help import certificate, world

from proctor.core.errors import InputError
from proctor.core.sandbox import NetworkRules
from proctor.network import pip
from proctor.network.pip import PipSetup


class Host:
    """A host's files, under a folder."""

    def __init__(self, folder: Path) -> None:
        self.root, self.home, self.prefix = folder / "root", folder / "home", folder / "prefix"
        for place in (self.root, self.home, self.prefix):
            place.mkdir()

    def write(self, path: Path, text: str = "") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def read(self, environ: Mapping[str, str] | None = None) -> PipSetup:
        return pip.read({"HOME": str(self.home), **(environ or {})}, prefix=self.prefix, root=self.root)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def values(setup: PipSetup) -> dict[str, str]:
    parser = RawConfigParser()
    parser.read_string(setup.conf)
    assert parser.sections() == ["global"]
    return dict(parser.items("global"))


def test_a_host_without_configuration(host: Host) -> None:
    setup = host.read()
    assert values(setup) == {"disable-pip-version-check": "1"}
    assert (setup.default_index, setup.hosts, setup.directories, setup.files, setup.left_out) == (True, (), (), (), ())


def test_files_and_variables_beat_each_other_in_pips_order(host: Host) -> None:
    places = [
        host.root / "etc/xdg/pip/pip.conf", host.root / "etc/pip.conf", host.home / ".pip/pip.conf",
        host.home / ".config/pip/pip.conf", host.prefix / "pip.conf", host.root / "own.conf",
    ]  # fmt: skip
    environ = {"PIP_CONFIG_FILE": str(places[-1])}
    for index, place in enumerate(places):
        host.write(place, f"[global]\nretries = {index}\n")
        assert values(host.read(environ if index == 5 else {}))["retries"] == str(index)
    host.write(places[0], "[global]\nretries = 0\n[install]\nretries = 50\n[freeze]\nretries = 60\n")
    assert values(host.read(environ))["retries"] == "50"
    assert values(host.read({**environ, "PIP_RETRIES": "70"}))["retries"] == "70"
    assert "retries" not in values(host.read({"PIP_CONFIG_FILE": os.devnull}))
    assert values(host.read({"XDG_CONFIG_DIRS": "/first:/etc/xdg", "PIP_CONFIG_FILE": ""}))["retries"] == "50"


def test_pip_reads_the_same_values(host: Host) -> None:
    conf = "[global]\nindex_url = https://a.example.org/simple\nextra-index-url =\n  https://b.example.org/x\n  https://c.example.org/y\n"
    host.write(host.root / "pip.conf", conf)
    setup = host.read({"PIP_CONFIG_FILE": str(host.root / "pip.conf"), "PIP_TIMEOUT": "7"})
    assert setup.hosts == ("a.example.org", "b.example.org", "c.example.org")
    assert values(setup)["default-timeout"] == "7"
    assert values(setup)["extra-index-url"].split() == ["https://b.example.org/x", "https://c.example.org/y"]
    assert not setup.default_index


def test_no_secret_is_handed_over(host: Host) -> None:
    secret = host.write(host.root / "client.pem", "key")
    setup = host.read(
        {
            "PIP_INDEX_URL": "https://user:hunter2@a.example.org:8443/simple",
            "PIP_EXTRA_INDEX_URL": "https://token-hunter2@b.example.org/simple",
            "PIP_FIND_LINKS": "https://u:hunter2@c.example.org/w http://u:hunter2@[::1/",
            "PIP_CONSTRAINT": "https://u:hunter2@d.example.org/c.txt",
            "PIP_CLIENT_CERT": str(secret),
            "PIP_PROXY": "http://u:hunter2@proxy:1",
            "PIP_TOKEN": "hunter2",
        }
    )
    assert "hunter2" not in repr(setup)
    assert str(secret) not in setup.conf
    assert setup.files == ()
    assert values(setup)["index-url"] == "https://a.example.org:8443/simple"
    assert setup.hosts == ("a.example.org:8443", "b.example.org", "c.example.org")
    assert len(setup.left_out) == 7
    assert any("a.example.org:8443" in text and "login" in text for text in setup.left_out)


def test_what_must_be_there_is_named(host: Host, tmp_path: Path) -> None:
    simple, wheels = tmp_path / "mirror/simple", tmp_path / "my wheels"
    page = host.write(tmp_path / "links/index.html")
    host.write(simple / "a/index.html")
    wheels.mkdir()
    cert, constraint = host.write(tmp_path / "ca.pem"), host.write(tmp_path / "c.txt")
    setup = host.read(
        {
            "PIP_INDEX_URL": f"file://{simple}", "PIP_FIND_LINKS": f"{page} file://{str(wheels).replace(' ', '%20')} relative/x /nowhere",
            "PIP_CONSTRAINT": str(constraint), "REQUESTS_CA_BUNDLE": str(cert),
        }
    )  # fmt: skip
    assert setup.directories == (simple.parent, page.parent, wheels)
    assert setup.files == (cert, constraint)
    assert setup.ca_bundle == cert
    assert values(setup)["cert"] == str(cert)
    assert len(setup.left_out) == 2
    assert "relative/x" not in setup.conf
    assert host.read({"REQUESTS_CA_BUNDLE": str(cert), "PIP_CERT": str(constraint)}).ca_bundle == constraint


def test_directories_that_hold_more_than_packages_stay_behind(host: Host) -> None:
    for place in ("/", "/etc", str(host.home), str(host.home.parent)):
        setup = host.read({"PIP_FIND_LINKS": place})
        assert setup.directories == ()
        assert "find-links" not in setup.conf
        assert "a directory of their own" in setup.left_out[0]


def test_a_file_that_cannot_be_read_is_named_and_not_shown(host: Host) -> None:
    path = host.write(host.root / "etc/pip.conf", "index-url = https://u:hunter2@x\n")
    with pytest.raises(InputError, match=str(path)) as caught:
        host.read()
    assert "hunter2" not in str(caught.value)


def wheel(folder: Path) -> Path:
    path = folder / "sample_pkg-1.0-py3-none-any.whl"
    info = "sample_pkg-1.0.dist-info"
    files = {
        "sample_pkg.py": "value = 42\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: sample-pkg\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        rows = []
        for name, text in files.items():
            archive.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(text)}")
        archive.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,", ""]))
    return path


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("files_allowed", [True, False])
def test_pip_installs_through_a_gate(tmp_path: Path, scheme: str, files_allowed: bool) -> None:
    pytest.importorskip("pip")
    context, cert = certificate(tmp_path, "packages.example.org", "a.files.example.org")
    package = wheel(tmp_path).read_bytes()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ")[1]
                link = f"<a href='{scheme}://a.files.example.org/sample_pkg-1.0-py3-none-any.whl'>sample_pkg-1.0-py3-none-any.whl</a>"
                kind, body = (b"application/zip", package) if path.endswith(b".whl") else (b"text/html", link.encode())
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind, len(body)) + body
                )
                await writer.drain()
        except (OSError, EOFError):
            writer.close()

    async def work() -> None:
        allow = ("packages.example.org", "*.files.example.org") if files_allowed else ("packages.example.org",)
        names = {"packages.example.org": ["203.0.113.5"], "a.files.example.org": ["203.0.113.6"]}
        servers = {80: serve, 443: (serve, context)}
        async with world(NetworkRules(True, allow), servers, names=names) as w:  # type: ignore[arg-type]
            proxy = f"http://127.0.0.1:{w.doors['proxy']}"
            options = ["--isolated", "--no-input", "--no-cache-dir", "--disable-pip-version-check", "--retries", "0"]
            options += ["--proxy", proxy, "--cert", str(cert), "--trusted-host", "packages.example.org"] if scheme == "http" else [
                "--proxy", proxy, "--cert", str(cert)]  # fmt: skip
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "pip", "install", *options, "--index-url", f"{scheme}://packages.example.org/simple",
                "--no-deps", "--target", str(tmp_path / "there"), "sample-pkg",
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
                env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            )  # fmt: skip
            said, _ = await child.communicate()
            assert (child.returncode == 0) is files_allowed, said.decode()
            assert (tmp_path / "there/sample_pkg.py").exists() is files_allowed
            if not files_allowed:
                assert w.last().host == "a.files.example.org"
                assert not w.last().allowed
                assert b"a.files.example.org is not in allow" in said

    asyncio.run(asyncio.wait_for(work(), 180))
