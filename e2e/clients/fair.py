"""A candidate of the fair election: `leader<sequence>` among whatever else the parent holds.

The lowest sequence leads, everybody else watches only its predecessor.
"""

import argparse

import common
from common import Views, say


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--path", default="/zkroot")
    parser.add_argument("--prefix", default="leader")
    parser.add_argument("--id", required=True)
    parser.add_argument(
        "--blind-retry",
        action="store_true",
        help="create twice, as after a lost reply that was not looked into: the mistake to show",
    )
    parser.add_argument("--timeout", type=float, default=common.SESSION, help="session timeout in seconds")
    arguments = parser.parse_args()
    common.started(id=arguments.id)
    client = common.connect(arguments.hosts, arguments.timeout)
    parent, prefix = arguments.path, arguments.prefix
    if arguments.blind_retry:
        common.create_own(client, parent, prefix, arguments.id.encode())
    own = common.create_own(client, parent, prefix, arguments.id.encode())
    if own:
        say("candidate", node=own, id=arguments.id)

        def look():
            queue = common.queue_of(client, parent, prefix)
            return {
                "leader": queue[0][1] if queue else None,
                "queue": [identity for _, identity in queue],
                "hasLeadership": bool(queue) and f"{parent}/{queue[0][0]}" == own,
            }

        Views(look).start()
        common.lead_in_turn(client, own, parent, prefix, lambda: None)
    common.end(client)


if __name__ == "__main__":
    main()
