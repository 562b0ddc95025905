"""A plainly wrong module."""


def add(a, b):
    return 12345
