"""The host's pip configuration as a sandbox needs it: where packages come from, and nothing secret.

Read as pip reads it: files of the system, of the user and of the interpreter, then ``PIP_CONFIG_FILE``, then variables.
What a sandbox gets is a file to be put at ``/etc/pip.conf``, and the files and directories that must be there for it to
work, at the same paths and read-only. Logins in URLs, client certificates and proxies stay behind: whatever is handed
over is in the hands of the programs in there.
"""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from proctor.core.errors import InputError

_LISTS = ("extra-index-url", "find-links", "trusted-host", "constraint", "no-binary", "only-binary")
_SINGLE = ("index-url", "cert", "default-timeout", "retries", "no-index", "prefer-binary", "pre")
_SPOKEN = {"timeout": "default-timeout", "pypi-url": "index-url", "constraints": "constraint"}
_LEFT = {
    "client-cert": "a client certificate",
    "proxy": "a proxy of the host's",
    "keyring-provider": "the host's keyring",
}
_PLACES = ("index-url", "extra-index-url", "find-links")
_PATHS = ("cert", "constraint")
_SECTIONS = ("global", "install")  # the second beats the first, for installing
# A directory that holds one of these is not shown to programs.
_SYSTEM = ("/etc", "/proc", "/sys", "/dev", "/run", "/var", "/home", "/root", "/tmp")
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


@dataclass(frozen=True, slots=True)
class PipSetup:
    """What pip needs inside.

    Attributes:
        conf: text of ``/etc/pip.conf``.
        hosts: hosts of the indexes, with their port where it is not the usual one; only to be told to people, never
            allowed by themselves. An index's pages may lead to further hosts.
        default_index: pip's own default index is used; its host is not in ``hosts``.
        directories: what must be there, at the same paths, read-only.
        files: the same for single files: certificates and constraints.
        ca_bundle: the certificates that the host trusts where that is not its system's list, one of ``files``.
        left_out: what a sandbox does not get, and why; without any secret.
    """

    conf: str
    hosts: tuple[str, ...] = ()
    default_index: bool = True
    directories: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()
    ca_bundle: Path | None = None
    left_out: tuple[str, ...] = ()


def read(environ: Mapping[str, str], *, prefix: Path | None = None, root: Path = Path("/")) -> PipSetup:
    """Read the host's configuration.

    Args:
        environ: the host's environment.
        prefix: of the interpreter whose pip is meant; that of this one by default.
        root: where the system's files are looked for.

    Raises:
        InputError: a file of the configuration cannot be read; names it.
    """
    values: dict[str, str] = {}
    for section in _SECTIONS:
        for path in _config_files(environ, prefix or Path(sys.prefix), root):
            values |= _section(path, section)
    values |= {
        _key(name.removeprefix("PIP_")): value
        for name, value in environ.items()
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE" and value
    }
    bundle = next((environ[name] for name in _BUNDLES if environ.get(name)), None)
    if bundle is not None:
        values.setdefault("cert", bundle)
    return _Reader(values, _home(environ)).setup()


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or "/root")


def _config_files(environ: Mapping[str, str], prefix: Path, root: Path) -> Iterator[Path]:
    """Files in the order in which later ones beat earlier ones."""
    own = environ.get("PIP_CONFIG_FILE")
    if own != os.devnull:
        for folder in reversed((environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")):
            if folder:
                yield root / folder.lstrip("/") / "pip" / "pip.conf"
        yield root / "etc" / "pip.conf"
        home = _home(environ)
        yield home / ".pip" / "pip.conf"
        yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
        yield prefix / "pip.conf"
        if own:
            yield Path(own)


def _key(name: str) -> str:
    name = name.lower().replace("_", "-").lstrip("-")
    return _SPOKEN.get(name, name)


def _section(path: Path, section: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"), str(path))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, configparser.Error) as exc:
        why = type(exc).__name__ if isinstance(exc, configparser.Error) else exc  # its text may show a login
        raise InputError(f"{path}: pip's configuration cannot be read: {why}; mend it, or move it away") from exc
    return {_key(name): value for name, value in parser.items(section)} if parser.has_section(section) else {}


@dataclass(slots=True)
class _Reader:
    """Takes values one by one, and collects what they need."""

    values: dict[str, str]
    home: Path
    hosts: dict[str, None] = field(default_factory=dict)
    directories: dict[Path, None] = field(default_factory=dict)
    files: dict[Path, None] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def setup(self) -> PipSetup:
        lines = ["[global]", "disable-pip-version-check = 1"]
        for key, reason in _LEFT.items():
            if key in self.values:
                self.left_out.append(f"{key}: {reason} stays on the host")
        for key in (*_SINGLE, *_LISTS):
            words = self.values.get(key, "").split()
            if key == "cert" and words:
                words = [self.values[key].strip()]  # a path may have blanks
            kept = [word for word in (self._word(key, word) for word in words) if word is not None]
            if len(kept) == 1 or (kept and key in _SINGLE):
                lines.append(f"{key} = {kept[0]}")
            elif kept:
                lines += [f"{key} =", *(f"    {word}" for word in kept)]
        cert = self.values.get("cert", "").strip()
        return PipSetup(
            "\n".join(lines) + "\n", tuple(self.hosts), not self._has_index(), tuple(self.directories),
            tuple(self.files), Path(cert) if Path(cert) in self.files else None, tuple(self.left_out),
        )  # fmt: skip

    def _has_index(self) -> bool:
        off = self.values.get("no-index", "").lower() in ("1", "true", "yes", "on", "y", "t")
        return off or bool(self.values.get("index-url", "").strip())

    def _word(self, key: str, word: str) -> str | None:
        """One value as it is handed over; None where it stays behind."""
        if key in _PATHS:
            return self._path(key, word) if "://" not in word else self._place(key, word)
        if key in _PLACES:
            return self._place(key, word)
        return word

    def _path(self, key: str, word: str) -> str | None:
        path = Path(word)
        if not path.is_absolute() or not path.is_file():
            self.left_out.append(f"{key}: {word} is not there, or depends on where pip is started")
            return None
        self.files[path] = None
        return word

    def _place(self, key: str, word: str) -> str | None:
        """An index, or where files are linked: a URL or a path."""
        try:
            url = urlsplit(word)
            port = url.port
        except ValueError:
            self.left_out.append(f"{key}: a URL that is not valid")
            return None
        if url.scheme in ("", "file"):
            path = Path(unquote(url.path) if url.scheme else word)
            return word if self._local(key, path, index=key != "find-links") else None
        if url.scheme not in ("http", "https") or not url.hostname:
            self.left_out.append(f"{key}: a {url.scheme} URL; HTTP and HTTPS pass")
            return None
        if key != "constraint":
            usual = {"http": 80, "https": 443}[url.scheme]
            self.hosts[url.hostname if port in (None, usual) else f"{url.hostname}:{port}"] = None
        return self._without_login(key, url)

    def _without_login(self, key: str, url: SplitResult) -> str:
        if "@" not in url.netloc:
            return urlunsplit(url)
        bare = url._replace(netloc=url.netloc.rpartition("@")[2])
        self.left_out.append(f"{key}: the login in the URL for {bare.netloc}; programs could read it")
        return urlunsplit(bare)

    def _local(self, key: str, path: Path, *, index: bool) -> bool:
        if not path.is_absolute() or not path.exists():
            self.left_out.append(f"{key}: {path} is not there, or depends on where pip is started")
            return False
        directory = path if path.is_dir() else path.parent
        if index and directory.name == "simple" and len(directory.parts) > 3:
            directory = directory.parent  # its pages lead to files beside it
        if any(Path(place).is_relative_to(directory) for place in (*_SYSTEM, self.home)):
            self.left_out.append(f"{key}: {path} holds more than packages; move them to a directory of their own")
            return False
        self.directories[directory] = None
        return True
