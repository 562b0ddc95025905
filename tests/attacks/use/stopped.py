"""Answers, and stops itself so that it never ends."""

import os
import signal

a, b = map(int, input().split())
print(a + b, flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
