"""A candidate of the leader election recipe in ZooKeeper's documentation: `n_<sequence>`.

Having no predecessor does not mean that the candidate knows that it leads. With `--acknowledgement`
it creates that ephemeral node once its leader procedure has run, which here means: once the file of
`--acknowledge-when` exists, or at once without that option.
"""

import argparse
import os

from kazoo.exceptions import KazooException, NodeExistsError

import common
from common import Views, say, stop


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--path", default="/election")
    parser.add_argument("--id", required=True)
    parser.add_argument("--acknowledgement", help="path of the acknowledgement node")
    parser.add_argument("--acknowledge-when", help="a file that must exist first")
    parser.add_argument("--timeout", type=float, default=common.SESSION, help="session timeout in seconds")
    arguments = parser.parse_args()
    common.started(id=arguments.id)
    client = common.connect(arguments.hosts, arguments.timeout)
    parent, prefix = arguments.path, "n_"
    own = common.create_own(client, parent, prefix, arguments.id.encode())

    def acknowledge():
        if not arguments.acknowledgement:
            return
        while arguments.acknowledge_when and not os.path.exists(arguments.acknowledge_when):
            if stop.wait(0.1):
                return
        while not stop.is_set():
            try:
                client.create(arguments.acknowledgement, arguments.id.encode(), ephemeral=True)
                say("acknowledged", id=arguments.id)
                return
            except NodeExistsError:
                # Of the last leader, whose session has not ended yet; or our own, reply lost.
                stat = client.exists(arguments.acknowledgement)
                if stat and stat.ephemeralOwner == client.client_id[0]:
                    say("acknowledged", id=arguments.id)
                    return
                stop.wait(0.1)
            except KazooException as error:
                say("retry", error=type(error).__name__)
                stop.wait(0.2)

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
        common.lead_in_turn(client, own, parent, prefix, acknowledge)
    common.end(client)


if __name__ == "__main__":
    main()
