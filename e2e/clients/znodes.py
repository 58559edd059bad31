"""Owns the znodes that it is told to, as an application of some dialect would.

Every `--node` is created in one session, in the order given, and goes when the program ends. The
parents are created where they are missing.
"""

import argparse

import common
from kazoo.security import make_acl, make_digest_acl
from common import say, stop


def acl_of(reader):
    """The ACL that gives everything to a reader and nothing to others."""
    if not reader:
        return None
    scheme, credential = reader.split(":", 1)
    if scheme == "digest":
        return [make_digest_acl(*credential.split(":", 1), all=True)]
    return [make_acl(scheme, credential, all=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument(
        "--node",
        action="append",
        default=[],
        metavar="PATH=DATA",
        help="{session} in it becomes the id of the session, as a signed number",
    )
    parser.add_argument(
        "--reader",
        help="who alone may read them: digest:NAME:PASSWORD or SCHEME:ID (default: everybody)",
    )
    parser.add_argument("--timeout", type=float, default=common.SESSION, help="session timeout in seconds")
    arguments = parser.parse_args()
    common.started(id=arguments.id)
    client = common.connect(arguments.hosts, arguments.timeout)
    for node in arguments.node:
        path, data = node.replace("{session}", str(client.client_id[0])).split("=", 1)
        client.ensure_path(path.rsplit("/", 1)[0] or "/")
        client.create(path, data.encode(), acl=acl_of(arguments.reader), ephemeral=True)
        say("created", path=path)
    say("ready", session=client.client_id[0])
    while not stop.wait(0.2):
        pass
    common.end(client)


if __name__ == "__main__":
    main()
