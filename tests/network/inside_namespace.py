"""Runs in a network namespace of its own: makes the listeners, hands them over, then tries what a program would try.

Started by test_network_namespace.py with a socket as its first argument, a folder as its second and names after that.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import http.client
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

from proctor.network.inside import ENVIRONMENT, LISTENERS, RESOLV_CONF

BIND = 4096


def loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 0x49))


def own_resolv_conf(folder: Path) -> None:
    """In a mount namespace of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name, text in (("resolv.conf", RESOLV_CONF), ("hosts", "127.0.0.1 localhost\n")):
        (folder / name).write_text(text)
        place = os.path.realpath(f"/etc/{name}")
        if libc.mount(str(folder / name).encode(), place.encode(), None, BIND, None):
            raise OSError(ctypes.get_errno(), "mount")


def hand_over(control: socket.socket) -> None:
    made = []
    for kind, address, port in LISTENERS.values():
        sock = socket.socket(socket.AF_INET, kind)
        sock.bind((address, port))
        if kind == socket.SOCK_STREAM:
            sock.listen(64)
        made.append(sock)
    numbers = array.array("i", [sock.fileno() for sock in made])
    control.sendmsg([b"here"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
    for sock in made:
        sock.close()


def tried(work: Callable[[], object]) -> str:
    try:
        return f"ok {work()}"
    except Exception as exc:
        return f"no {type(exc).__name__} {exc}"


def fetch(url: str, proxy: bool, cert: Path) -> int:
    handler = urllib.request.ProxyHandler(
        {"http": ENVIRONMENT["http_proxy"], "https": ENVIRONMENT["http_proxy"]} if proxy else {}
    )
    context = ssl.create_default_context(cafile=str(cert))
    opener = urllib.request.build_opener(handler, urllib.request.HTTPSHandler(context=context))
    with opener.open(url, timeout=20) as answer:
        return int(answer.status)


def straight(address: str, port: int, cert: Path, name: str | None) -> str:
    with socket.create_connection((address, port), timeout=20) as sock:
        if name is None:
            return "connected"
        with ssl.create_default_context(cafile=str(cert)).wrap_socket(sock, server_hostname=name) as tls:
            return str(tls.version())


def tunnel(target: str, name: str, cert: Path) -> str:
    connection = http.client.HTTPSConnection(
        "127.0.0.1", 3128, timeout=20, context=ssl.create_default_context(cafile=str(cert))
    )
    connection.set_tunnel(target)
    connection.connect()
    return name


def datagram(address: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        sock.connect((address, 53))
        sock.send(b"x" * 30)
        return str(sock.recv(100))


def curl(url: str, cert: Path, proxy: bool) -> str:
    command = ["curl", "-sSf", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "20", "--cacert", str(cert), url]
    done = subprocess.run(command, env=dict(ENVIRONMENT) if proxy else {}, capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr)
    return done.stdout


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    folder, good, evil, host_port = Path(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
    cert = folder / "cert.pem"
    loopback_up()
    own_resolv_conf(folder)
    hand_over(control)
    found = {}
    for name in (good, evil):
        for scheme in ("http", "https"):
            for proxy in (True, False):
                url, way = f"{scheme}://{name}/x", "proxy" if proxy else "plain"
                found[f"{name} {scheme} {way}"] = tried(lambda url=url, proxy=proxy: fetch(url, proxy, cert))  # type: ignore[misc]
                if shutil.which("curl"):
                    found[f"{name} {scheme} {way} curl"] = tried(
                        lambda url=url, proxy=proxy: curl(url, cert, proxy)  # type: ignore[misc]
                    )
        found[f"{name} look-up"] = tried(lambda name=name: socket.gethostbyname(name))  # type: ignore[misc]
        found[f"{name} sni"] = tried(lambda name=name: straight("127.0.0.1", 443, cert, name))  # type: ignore[misc]
        found[f"{name} connect"] = tried(lambda name=name: tunnel(f"{name}:443", name, cert))  # type: ignore[misc]
    found["hosts port"] = tried(lambda: straight("127.0.0.1", host_port, cert, None))
    found["address"] = tried(lambda: straight("203.0.113.5", 443, cert, None))
    found["address 6"] = tried(lambda: straight("2001:db8::5", 443, cert, None))
    found["metadata"] = tried(lambda: straight("169.254.169.254", 80, cert, None))
    found["metadata proxy"] = tried(lambda: fetch("http://169.254.169.254/", True, cert))
    found["address connect"] = tried(lambda: tunnel("203.0.113.5:443", good, cert))
    found["host connect"] = tried(lambda: tunnel(f"127.0.0.1:{host_port}", good, cert))
    found["datagram"] = tried(lambda: datagram("203.0.113.5"))
    found["as root"] = str(os.getuid())
    control.sendall(json.dumps(found).encode())
    control.close()


if __name__ == "__main__":
    main()
