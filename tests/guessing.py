"""A program that guesses a number from 1 to 1000, for tests of programs that talk."""

GUESS = """
low, high = 1, 1000
while True:
    middle = (low + high) // 2
    print(middle, flush=True)
    answer = input()
    if answer == "right":
        break
    if answer == "less":
        high = middle - 1
    else:
        low = middle + 1
"""
