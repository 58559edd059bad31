"""A member of a Patroni cluster without its PostgreSQL: Patroni's own module for ZooKeeper, driven as
Patroni's loop drives it.

A member takes the leader key when there is none and keeps it when it is in its own name. What it says
is what Patroni's `get_cluster` told it, and whether Patroni let it keep the key.
"""

import argparse

from patroni.dcs import get_dcs
from patroni.exceptions import DCSError

import common
from common import Views, say, stop

LOOP_WAIT = 1


def turn(dcs, own):
    """One turn of the loop: what this member is told, after what it did."""
    cluster = dcs.get_cluster()
    dcs.touch_member({"role": "replica", "state": "running"})
    if cluster.is_unlocked():
        dcs.attempt_to_acquire_leader()
        cluster = dcs.get_cluster()
    leader = cluster.leader.name if cluster.leader else None
    leads = leader == own and bool(dcs.update_leader(cluster, None, None))
    return {"leader": leader, "queue": [leader] if leader else [], "hasLeadership": leads}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--scope", required=True)
    parser.add_argument("--id", required=True)
    arguments = parser.parse_args()
    common.started(id=arguments.id)
    dcs = get_dcs({
        "scope": arguments.scope,
        "name": arguments.id,
        "namespace": "/service/",
        "ttl": 6,
        "loop_wait": LOOP_WAIT,
        "retry_timeout": 5,
        "zookeeper": {"hosts": arguments.hosts.split(",")},
    })
    told = {"error": "nothing yet"}
    Views(lambda: told).start()
    while not stop.is_set():
        try:
            told = turn(dcs, arguments.id)
        except DCSError as error:
            told = {"error": type(error).__name__}
        stop.wait(LOOP_WAIT)
    cluster = dcs.cluster
    if cluster and cluster.leader and cluster.leader.name == arguments.id:
        dcs.delete_leader(cluster.leader)


if __name__ == "__main__":
    main()
