"""A plainly wrong function."""


def solve(nums):
    return 12345
