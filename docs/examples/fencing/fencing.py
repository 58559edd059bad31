"""A resource that refuses the leaders of the past.

Every request carries the fencing token of the leader that sends it. The resource keeps the greatest token that it
has seen beside its data and refuses smaller ones: a leader that was stopped for a minute and goes on does no harm.
Token and data are replaced together, so that neither a crash nor a restart forgets the token.

    python3 fencing.py FILE     reads requests from the standard input, one a line: TOKEN VALUE
"""

import os
import sys


class Store:
    """One value and the token of the leader that wrote it, in a file."""

    def __init__(self, path):
        self.path = path
        self.token, self.value = 0, ""
        try:
            with open(path, encoding="utf-8") as file:
                token, self.value = file.read().split("\n", 1)
                self.token = int(token)
        except FileNotFoundError:
            pass

    def write(self, token, value):
        """Whether the value was written; False for a token that is smaller than one before."""
        if token < self.token:
            return False
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            file.write(f"{token}\n{value}")
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path + ".new", self.path)
        self.token, self.value = token, value
        return True


def main():
    store = Store(sys.argv[1])
    for line in sys.stdin:
        token, _, value = line.rstrip("\n").partition(" ")
        # int() takes more than digits, such as "1_0".
        if not (token.isascii() and token.isdigit()):
            print("refused: no token", flush=True)
        elif store.write(int(token), value):
            print("written", flush=True)
        else:
            print(f"refused: {token} is older than {store.token}", flush=True)


main()
