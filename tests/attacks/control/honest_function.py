"""A correct function."""


def solve(nums):
    return sum(nums)
