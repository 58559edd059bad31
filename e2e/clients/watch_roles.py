"""Asks every member for its role four times a second and says when two led at once.

Samples of different members are not simultaneous, and an old leader may call itself leader for a
moment after a new one was elected; it cannot commit anything then, which is what counts. So three
things are told apart, from the times at which each question was sent and answered:

* `sameEpoch`: two servers led the same epoch. ZooKeeper allows one, so this is a split brain even
  if neither has written yet.
* `bothCommitted`: the leader of the older epoch committed something more after a leader of a newer
  epoch was already seen. That is a split brain too.
* `overlaps`: two servers provably called themselves leader at the same instant (one was leader in
  samples both before and after a sample of the other). By itself harmless if short.
"""

import argparse
import socket
import ssl
import threading
import time

import common
from common import say, stop

lock = threading.Lock()


class Member:
    def __init__(self, name):
        self.name = name
        self.samples = []  # (sent, answered, mode, zxid)


def dial(host, port, timeout):
    connection = socket.create_connection((host, port), timeout=timeout)
    if not common.CA:
        return connection
    context = ssl.create_default_context(cafile=common.CA)
    try:
        return context.wrap_socket(connection, server_hostname=host)
    except OSError:
        connection.close()
        raise


def ask(host, port, timeout=1.0):
    """The member's mode, its zxid, and the address that answered, which tells one pod of a name from the next."""
    with dial(host, port, timeout) as connection:
        connection.settimeout(timeout)
        address = connection.getpeername()[0]
        connection.sendall(b"srvr")
        answer = b""
        while len(answer) < 65536:
            part = connection.recv(4096)
            if not part:
                break
            answer += part
    mode, zxid = None, None
    for line in answer.decode(errors="replace").splitlines():
        if line.startswith("Mode: "):
            mode = line[6:].strip()
        if line.startswith("Zxid: "):
            zxid = int(line[6:].strip(), 16)
    return mode or "looking", zxid, address


def follow(member, interval):
    host, port = member.name.rsplit(":", 1)
    last = None
    while not stop.is_set():
        sent = time.time()
        try:
            mode, zxid, address = ask(host, int(port))
        except (OSError, ValueError):
            mode, zxid, address = "down", None, None
        answered = time.time()
        with lock:
            member.samples.append((sent, answered, mode, zxid))
        epoch = zxid >> 32 if zxid is not None else None
        if (mode, epoch, address) != last:
            last = (mode, epoch, address)
            told = {"member": member.name, "address": address, "role": mode, "epoch": epoch}
            say("role", sent=round(sent, 4), **told)
        stop.wait(max(0.0, interval - (answered - sent)))


def judge(members):
    """Looks at all samples together; pure, so that it can be tried on made-up ones."""
    claims = [  # (sent, answered, member, epoch, zxid)
        (sent, answered, m.name, zxid >> 32, zxid)
        for m in members
        for sent, answered, mode, zxid in m.samples
        if mode == "leader" and zxid is not None
    ]
    claims.sort()
    by_epoch = {}
    for _, _, name, epoch, _ in claims:
        by_epoch.setdefault(epoch, set()).add(name)
    same_epoch = {str(e): sorted(names) for e, names in by_epoch.items() if len(names) > 1}

    both_committed = []
    first_answer = {}  # epoch -> when its leader was first known to lead
    for _, answered, _, epoch, _ in claims:
        first_answer[epoch] = min(first_answer.get(epoch, answered), answered)
    newest = {}  # (member, epoch) -> (zxid, when asked) of the last sample
    for sent, _, name, epoch, zxid in claims:
        previous = newest.get((name, epoch))
        newer = [e for e, at in first_answer.items() if e > epoch and previous and at < previous[1]]
        if previous and newer and zxid > previous[0]:
            both_committed.append({"member": name, "epoch": epoch, "newer": min(newer), "at": sent})
        newest[(name, epoch)] = (zxid, sent)

    overlap = 0.0
    spans = {}  # (member, epoch) -> list of unbroken spans of leadership
    for m in members:
        current = None
        for sent, answered, mode, zxid in m.samples:
            if mode == "leader" and zxid is not None:
                if current and current[2] == zxid >> 32:
                    current[1] = sent
                else:
                    current = [answered, sent, zxid >> 32]
                    spans.setdefault(m.name, []).append(current)
            else:
                current = None
    names = sorted(spans)
    overlaps = []
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            for x in spans[a]:
                for y in spans[b]:
                    seconds = min(x[1], y[1]) - max(x[0], y[0])
                    if seconds > 0:
                        overlap = max(overlap, seconds)
                        overlaps.append(
                            {"members": [a, b], "epochs": [x[2], y[2]], "seconds": round(seconds, 3)}
                        )

    without = 0.0
    longest_without = 0.0
    end = None  # until when a leader is known
    for sent, answered, _, _, _ in claims:
        if end is not None and sent > end + 0.5:
            without += sent - end
            longest_without = max(longest_without, sent - end)
        end = max(end or answered, answered)
    order = []
    for _, _, name, epoch, _ in claims:
        if not order or order[-1] != (name, epoch):
            order.append((name, epoch))
    return {
        "leaders": [{"member": n, "epoch": e} for n, e in order],
        "sameEpoch": same_epoch,
        "bothCommitted": both_committed,
        "overlaps": overlaps,
        "longestOverlap": round(overlap, 3),
        "withoutLeader": round(without, 3),
        "longestWithoutLeader": round(longest_without, 3),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", required=True, help="host:port of every member, with commas")
    parser.add_argument("--interval", type=float, default=0.25)
    parser.add_argument("--duration", type=float)
    arguments = parser.parse_args()
    common.started()
    members = [Member(name) for name in arguments.members.split(",")]
    threads = [
        threading.Thread(target=follow, args=(m, arguments.interval), daemon=True) for m in members
    ]
    for thread in threads:
        thread.start()
    stop.wait(arguments.duration)
    stop.set()
    for thread in threads:
        thread.join(timeout=2.0)
    with lock:
        verdict = judge(members)
        verdict["samples"] = sum(len(m.samples) for m in members)
    say("summary", **verdict)


if __name__ == "__main__":
    main()
