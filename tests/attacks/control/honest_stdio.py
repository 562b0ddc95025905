"""A correct program."""

a, b = map(int, input().split())
print(a + b)
