"""Reads back every acknowledged write from every member separately, each after `sync`.

Prints one JSON object: how many were acknowledged, which are lost anywhere, and each member's view.
"""

import argparse
import json
import sys
import time

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

import common


def acknowledged(files):
    numbers = set()
    for name in files:
        with open(name) as file:
            for line in file:
                try:
                    record = json.loads(line)
                except ValueError:
                    continue  # the last line of a writer that was killed
                if "n" in record and "event" not in record:
                    numbers.add(record["n"])
    return numbers


def read(member, path, deadline):
    """The numbers that this member has; asks it alone, until it answers or the deadline passes."""
    while True:
        client = None
        try:
            client = common.KazooClient(hosts=member, timeout=6.0, **common.TLS)
            client.start(timeout=5)
            client.sync(path)
            names = client.get_children(path)
            return {int(n[2:]) for n in names if n.startswith("w-")}, None
        except NoNodeError:
            return set(), None
        except (KazooException, KazooTimeoutError) as error:
            if time.time() > deadline:
                return None, f"{type(error).__name__}: {error}"
            time.sleep(0.3)
        finally:
            if client:
                common.end(client)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", required=True, help="host:port of every member, with commas")
    parser.add_argument("--path", required=True)
    parser.add_argument("--acknowledged", required=True, nargs="+", help="files of writer.py")
    parser.add_argument("--deadline", type=float, default=30.0)
    arguments = parser.parse_args()

    written = acknowledged(arguments.acknowledged)
    deadline = time.time() + arguments.deadline
    members, lost = {}, set()
    for member in arguments.members.split(","):
        present, error = read(member, arguments.path, deadline)
        if present is None:
            members[member] = {"error": error}
            continue
        missing = written - present
        lost |= missing
        members[member] = {"present": len(present), "missing": len(missing)}
    unread = [m for m, v in members.items() if "error" in v]
    print(
        json.dumps(
            {
                "event": "verified",
                "acknowledged": len(written),
                "lostCount": len(lost),
                "lost": sorted(lost)[:50],
                "unread": unread,
                "members": members,
            }
        )
    )
    sys.exit(1 if lost or unread else 0)


if __name__ == "__main__":
    main()
