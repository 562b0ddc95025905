"""A correct module."""


def add(a, b):
    return a + b
