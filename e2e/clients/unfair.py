"""A candidate of the unfair election: everybody creates the same ephemeral node, one succeeds.

The others watch the node, and when it goes they all try again: the herd.
"""

import argparse
import threading

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

import common
from common import Views, say, stop


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--path", default="/zkroot/leader")
    parser.add_argument("--id", required=True)
    parser.add_argument("--timeout", type=float, default=common.SESSION, help="session timeout in seconds")
    arguments = parser.parse_args()
    common.started(id=arguments.id)
    client = common.connect(arguments.hosts, arguments.timeout)
    path, own = arguments.path, arguments.id.encode()
    leading = threading.Event()

    def look():
        try:
            leader = client.get(path)[0].decode()
        except NoNodeError:
            leader = None
        queue = [leader] if leader else []
        return {"leader": leader, "queue": queue, "hasLeadership": leading.is_set()}

    Views(look).start()
    client.ensure_path(path.rsplit("/", 1)[0] or "/")
    while not stop.is_set():
        gone = threading.Event()
        try:
            try:
                client.create(path, own, ephemeral=True)
            except NodeExistsError:
                pass
            # Also after a lost reply: whose node it is decides, not what create said.
            stat = client.exists(path, watch=lambda _: gone.set())
            if not stat:
                continue
            if stat.ephemeralOwner == client.client_id[0]:
                leading.set()
                say("leader", id=arguments.id)
            while not stop.is_set() and not gone.wait(0.2):
                pass
            leading.clear()
        except KazooException as error:
            say("retry", error=type(error).__name__)
            stop.wait(0.2)
    common.end(client)


if __name__ == "__main__":
    main()
