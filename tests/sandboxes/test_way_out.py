"""A sandbox with a network: what its rules name can be reached and nothing else, from inside a real one."""

from __future__ import annotations

import http.server
import os
import textwrap
import threading
from collections.abc import Iterator

import pytest
from box_help import Boxes

from proctor.core.sandbox import NetworkRules, SandboxError


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"page")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """A server on the host's loopback, which no sandbox may reach but by an entry that names it."""
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made.server_address[1]
    made.shutdown()
    thread.join()
    made.server_close()


GET = """
import http.client, sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except Exception as exc:
    print("no:", type(exc).__name__, exc)
"""


def get(boxes: Boxes, box: object, url: str) -> str:
    return boxes.python(box, GET, url).stdout.decode().strip()  # type: ignore[arg-type]


def test_only_what_is_named_is_reached_and_every_attempt_is_told(boxes: Boxes, server: int) -> None:
    box = boxes.new(network=NetworkRules(True, (f"127.0.0.1:{server}",)))
    # Its own loopback is never asked of the proxy, and there nobody listens.
    own = get(boxes, box, f"http://127.0.0.1:{server}/")
    assert own == "no: URLError <urlopen error [Errno 111] Connection refused>"
    out = boxes.sh(box, f"python3 - <<'X'\nimport socket\ns = socket.create_connection(('127.0.0.1', 3128))\n"
                        f"s.sendall(b'GET http://127.0.0.1:{server}/ HTTP/1.1\\r\\nHost: 127.0.0.1:{server}\\r\\n\\r\\n')\n"
                        "data = b''\nwhile piece := s.recv(4096): data += piece\nprint(data[-4:].decode())\nX")  # fmt: skip
    assert out.stdout == b"page\n", out
    for url in (
        "http://example.org/",
        "http://127.0.0.1:1/",
        "http://169.254.169.254/latest/",
        "http://localhost/",
        "http://[::1]/",
    ):
        assert "page" not in get(boxes, box, url)
    told = boxes.engine.network_attempts(box.id)
    assert any(row["decision"] == "allow" and row["port"] == server for row in told)
    assert any(row["decision"] == "deny" and row["host"] == "example.org" for row in told)
    boxes.run(boxes.engine.delete(box.id))


def test_a_program_that_knows_no_proxy_finds_allowed_names_alone(boxes: Boxes) -> None:
    box = boxes.new(network=NetworkRules(True, ("a.example",)))
    look = "import socket, sys\nprint(socket.getaddrinfo(sys.argv[1], 80)[0][4][0])"
    assert boxes.python(box, look, "a.example").stdout == b"127.0.0.1\n"
    assert boxes.command(box, "python3", "-c", look, "a.example").stdout == b"127.0.0.1\n"
    assert b"gaierror" in boxes.python(box, look, "b.example").stderr
    told = boxes.engine.network_attempts(box.id)
    assert {(row["kind"], row["host"], row["decision"]) for row in told} >= {("dns", "b.example", "deny")}
    boxes.run(boxes.engine.delete(box.id))


def test_rules_are_changed_live_and_open_connections_are_cut(boxes: Boxes, server: int) -> None:
    box = boxes.new()
    ask = textwrap.dedent(
        f"""
        import socket
        try:
            s = socket.create_connection(("127.0.0.1", 3128), 10)
            s.sendall(b"GET http://127.0.0.1:{server}/ HTTP/1.1\\r\\nHost: 127.0.0.1:{server}\\r\\n\\r\\n")
            data = b""
            while piece := s.recv(4096):
                data += piece
            print(data.split(b"\\r\\n")[0].decode(), data[-4:])
        except OSError as exc:
            print("no", exc.errno)
        """
    )
    assert boxes.python(box, ask).stdout == b"no 111\n"
    rules = NetworkRules(True, (f"127.0.0.1:{server}",))
    boxes.run(boxes.engine.set_network(box.id, rules))
    assert boxes.python(box, ask).stdout.endswith(b"b'page'\n")
    boxes.run(boxes.engine.set_network(box.id, NetworkRules(True, ("example.org",))))
    assert b"403" in boxes.python(box, ask).stdout
    boxes.run(boxes.engine.set_network(box.id, rules))
    hold = "import socket, sys\ns = socket.create_connection(('127.0.0.1', 3128))\nprint('up', flush=True)\nprint(s.recv(1))\n"
    boxes.file(box, "write", hold.encode(), path="hold.py")

    async def cut() -> bytes:
        import asyncio

        from proctor.core.sandbox import CommandSpec

        running = await boxes.engine.start_command(box.id, CommandSpec(argv=("python3", "-u", "hold.py")))
        gate = boxes.engine.get(box.id).gate
        assert gate is not None
        while not gate.connections:
            await asyncio.sleep(0.01)
        await boxes.engine.set_network(box.id, NetworkRules())
        return (await running.done).stdout

    assert boxes.run(cut()).startswith(b"up\n")
    assert boxes.python(box, ask).stdout == b"no 111\n"
    with pytest.raises(SandboxError, match="host name"):
        boxes.run(boxes.engine.set_network(box.id, NetworkRules(True, ("https://example.org/x",))))
    boxes.run(boxes.engine.delete(box.id))


def test_programs_are_told_of_the_proxy_only_while_there_is_one(boxes: Boxes) -> None:
    box = boxes.new()
    look = "env | grep -ci proxy; test -e /etc/pip.conf && echo conf; true"
    assert boxes.sh(box, look).stdout == b"0\n"
    boxes.run(boxes.engine.set_network(box.id, NetworkRules(True, ("example.org",))))
    assert boxes.sh(box, look).stdout == b"6\nconf\n"
    boxes.run(boxes.engine.set_network(box.id, NetworkRules()))
    assert boxes.sh(box, "env | grep -ci proxy; true").stdout == b"0\n"
    boxes.run(boxes.engine.delete(box.id))


def test_nothing_of_the_hosts_descriptors_is_left(boxes: Boxes) -> None:
    def cycle() -> None:
        box = boxes.new(network=NetworkRules(True, ("example.org",)))
        boxes.sh(box, "true")
        boxes.run(boxes.engine.delete(box.id))

    for _ in range(3):
        cycle()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        cycle()
    assert abs(len(os.listdir("/proc/self/fd")) - before) <= 16


def test_a_port_that_a_program_holds_is_free_again_when_it_has_ended(boxes: Boxes) -> None:
    box = boxes.new()
    hold = "import socket, time\ns = socket.socket()\ns.bind(('127.0.0.1', 3128))\ns.listen()\nopen('said', 'w').write('1')\ntime.sleep(1000)\n"
    boxes.file(box, "write", hold.encode(), path="hold.py")
    boxes.sh(box, "python3 hold.py & echo $! > pid; while ! test -s said; do sleep 0.01; done")
    rules = NetworkRules(True, ("example.org",))
    for _ in range(2):
        with pytest.raises(SandboxError):
            boxes.run(boxes.engine.set_network(box.id, rules))
    boxes.sh(box, "kill -9 $(cat pid); while kill -0 $(cat pid); do sleep 0.01; done")
    boxes.run(boxes.engine.set_network(box.id, rules))
