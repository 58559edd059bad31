"""Holds kazoo's Lock as soon as it gets it, and says who the library sees waiting."""

import argparse
import threading

from kazoo.exceptions import KazooException

import common
from common import Views, say, stop


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--timeout", type=float, default=common.SESSION, help="session timeout in seconds")
    parser.add_argument(
        "--persistent", action="store_true", help="wait with a node that outlives the session"
    )
    arguments = parser.parse_args()
    common.started(id=arguments.id)
    client = common.connect(arguments.hosts, arguments.timeout)
    lock = client.Lock(arguments.path, arguments.id)
    held = threading.Event()

    def run():
        while not stop.is_set() and not held.is_set():
            try:
                if lock.acquire(ephemeral=not arguments.persistent):
                    held.set()
                    say("leader", id=arguments.id)
            except KazooException as error:
                say("retry", error=type(error).__name__)
                stop.wait(0.2)

    threading.Thread(target=run, daemon=True).start()
    observer = common.connect(arguments.hosts, arguments.timeout)
    asked = observer.Lock(arguments.path)

    def look():
        contenders = asked.contenders()
        return {
            "leader": contenders[0] if contenders else None,
            "queue": contenders,
            "hasLeadership": held.is_set(),
        }

    Views(look).start()
    while not stop.wait(0.2):
        pass
    common.end(client)
    common.end(observer)


if __name__ == "__main__":
    main()
