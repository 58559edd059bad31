"""Creates numbered znodes one after the other and records every write that was acknowledged.

A create whose reply was lost may have happened: it is sent again, and NodeExists then means that it
is acknowledged. So every number is in the record exactly when the ensemble promised to keep it.
"""

import argparse
import json
import sys
import time

from kazoo.exceptions import KazooException, NodeExistsError

import common
from common import say, stop


def create(client, node, data):
    """Whether the znode was created before this program is asked to stop. A client that never connects again
    answers nothing, and nothing interrupts one that waits for its answer."""
    answer = client.create_async(node, data)
    while True:
        try:
            answer.get(timeout=1)
            return True
        except client.handler.timeout_exception:
            if stop.is_set():
                return False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--out", help="file for the acknowledged writes; default: standard output")
    parser.add_argument("--duration", type=float, help="seconds; default: until SIGTERM")
    parser.add_argument("--count", type=int, help="stop after this many")
    parser.add_argument("--first", type=int, default=0, help="the first number")
    parser.add_argument("--rate", type=float, default=100.0, help="writes a second at most")
    parser.add_argument("--timeout", type=float, default=6.0, help="session timeout in seconds")
    arguments = parser.parse_args()

    common.started(path=arguments.path)
    client = common.connect(arguments.hosts, arguments.timeout)
    while not stop.is_set():
        try:
            client.ensure_path(arguments.path)
            break
        except KazooException:
            stop.wait(0.1)

    out = open(arguments.out, "a", buffering=1) if arguments.out else sys.stdout
    begin = last = time.time()
    longest, gaps, retries, done = 0.0, [], 0, 0
    number = arguments.first
    say("writing")
    while not stop.is_set():
        if arguments.duration and time.time() - begin > arguments.duration:
            break
        if arguments.count is not None and done >= arguments.count:
            break
        node = f"{arguments.path}/w-{number:010d}"
        acknowledged, again = False, False
        while not acknowledged and not stop.is_set():
            try:
                acknowledged = create(client, node, str(number).encode())
            except NodeExistsError:
                # Only this program writes here, so an earlier attempt of this run made it.
                acknowledged = again
                if not again:
                    say("foreign_node", node=node)
                    sys.exit(1)
            except KazooException as error:
                if not again:
                    say("retry", n=number, error=type(error).__name__)
                again = True
                retries += 1
                time.sleep(0.02)
        if not acknowledged:
            break
        now = time.time()
        if now - last > 0.3:
            gaps.append({"at": round(last, 3), "seconds": round(now - last, 3)})
        longest, last = max(longest, now - last), now
        out.write(json.dumps({"n": number, "time": round(now, 4)}) + "\n")
        out.flush()
        number += 1
        done += 1
        time.sleep(max(0.0, 1.0 / arguments.rate - (time.time() - now)))
    say(
        "summary",
        acknowledged=done,
        first=arguments.first,
        retries=retries,
        seconds=round(time.time() - begin, 3),
        longestGap=round(longest, 3),
        gaps=gaps,
    )
    common.end(client)


if __name__ == "__main__":
    main()
