"""Leaves a process behind that would answer in the next case."""

import os
import signal
import socket

NAME = "\0escape_mark_oracle"
a, b = map(int, input().split())
try:
    socket.socket(socket.AF_UNIX).connect(NAME)
except OSError as error:
    why = error
    if os.fork() == 0:
        signal.alarm(15)
        os.setsid()
        if os.fork() == 0:
            signal.alarm(15)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            for fd in (0, 1, 2):
                os.close(fd)  # whatever becomes of this process, it has no say in what its parent says
            served = socket.socket(socket.AF_UNIX)
            served.bind(NAME)
            served.listen()
            while True:
                served.accept()
        os._exit(0)
    os.wait()
    raise SystemExit(f"held: {why}") from None
print(a + b)
