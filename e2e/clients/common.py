"""What the client programs share: one JSON object a line on standard output, and a clean stop.

Every program prints `{"event": "started", "pid": ...}` first, so that a test can signal exactly this
process. Candidates print a `view` whenever what their own library tells them changes:
`{"event": "view", "leader": "a", "queue": ["a", "b"], "hasLeadership": true}`.
"""

import faulthandler
import json
import os
import re
import signal
import socket
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.retry import KazooRetry

# Clients connect over TLS and trust this file if it is given.
CA = os.environ.get("CA")
TLS = {"use_ssl": True, "ca": CA, "verify_certs": True, "check_hostname": True} if CA else {}

# The certificate that they show, with its key in the same file.
CERTIFICATE = os.environ.get("CERTIFICATE")
if CERTIFICATE:
    TLS.update(certfile=CERTIFICATE, keyfile=CERTIFICATE)
# The user that they log in as.
if os.environ.get("SASL_NAME"):
    TLS["sasl_options"] = {
        "mechanism": "DIGEST-MD5",
        "username": os.environ["SASL_NAME"],
        "password": os.environ["SASL_PASSWORD"],
    }

# The session timeout in seconds, unless a test asks for another one. A machine that pauses for a few seconds must not end
# the session of a candidate: the queue would have another order than the test made.
SESSION = 10.0

stop = threading.Event()
_print_lock = threading.Lock()


def say(event, **fields):
    """Prints one line; whole lines also from several threads."""
    line = json.dumps({"time": round(time.time(), 4), "event": event, **fields})
    with _print_lock:
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except (BrokenPipeError, ValueError):
            stop.set()


def stop_on_signals():
    """SIGTERM and SIGINT set `stop`; SIGUSR1 prints where every thread is.

    A thread waits for the signals, and no handler sets `stop`: a handler runs in the middle of the main thread, which
    may hold the lock of `stop` in its `wait`, and `set` would then wait for that lock for ever.
    """
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    numbers = {signal.SIGTERM, signal.SIGINT}
    # Threads that are started from here on inherit this: only `sigwait` takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def wait():
        signal.sigwait(numbers)
        stop.set()

    threading.Thread(target=wait, daemon=True).start()


def started(**fields):
    """The first line of every program."""
    stop_on_signals()
    say("started", pid=os.getpid(), host=socket.gethostname(), **fields)


def connect(hosts, timeout=SESSION, patience=60.0):
    """A connected client that reports how its connection fares."""
    client = KazooClient(
        hosts=hosts,
        timeout=timeout,
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=1.5, max_delay=0.5),
        randomize_hosts=True,
        **TLS,
    )

    def report(state):
        session = f"{client.client_id[0]:x}" if client.client_id else None
        say("connection", state=str(state).lower(), session=session)

    client.add_listener(report)
    client.start(timeout=patience)
    return client


def end(client):
    """Gives the session back, so that its ephemeral nodes go at once."""
    try:
        client.stop()
        client.close()
    except KazooException:
        pass


class Views:
    """Prints a view when it differs from the last one, asking `look` until `stop` is set."""

    def __init__(self, look, interval=0.3):
        self._look = look
        self._interval = interval
        self._last = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def _run(self):
        while not stop.wait(self._interval):
            try:
                view = self._look()
            except Exception as error:  # a view is best effort: a lost connection is one too
                view = {"error": type(error).__name__}
            if view != self._last:
                self._last = view
                say("view", **view)


def create_own(client, parent, prefix, data):
    """Creates an ephemeral sequential node and survives a lost reply.

    A reply that was lost does not say whether the node exists. A blind second create would leave an
    orphan that everybody else waits behind, so the session looks for its own node first.
    """
    client.ensure_path(parent)
    while not stop.is_set():
        try:
            return client.create(f"{parent}/{prefix}", data, ephemeral=True, sequence=True)
        except KazooException as error:
            say("retry", error=type(error).__name__)
            own = find_own(client, parent, prefix)
            if own:
                return own
    return None


def find_own(client, parent, prefix):
    """The node of this session among the children, if there is one."""
    while not stop.is_set():
        try:
            for name in client.get_children(parent):
                if not name.startswith(prefix):
                    continue
                stat = client.exists(f"{parent}/{name}")
                if stat and stat.ephemeralOwner == client.client_id[0]:
                    return f"{parent}/{name}"
            return None
        except KazooException:
            stop.wait(0.1)
    return None


def queue_of(client, parent, prefix):
    """The candidates of a sequential election in order: names and identities."""
    shape = re.compile(re.escape(prefix) + r"(\d{10})")
    names = sorted(n for n in client.get_children(parent) if shape.fullmatch(n))
    found = []
    for name in names:
        try:
            found.append((name, client.get(f"{parent}/{name}")[0].decode()))
        except KazooException:
            continue
    return found


def lead_in_turn(client, own, parent, prefix, on_lead):
    """Waits until `own` has no predecessor, then calls `on_lead` once and waits for the end.

    Only the predecessor is watched. When it goes, the queue is read again: it may have been a
    candidate in the middle that died, and then the leader still lives.
    """
    name = own.rsplit("/", 1)[1]
    while not stop.is_set():
        try:
            names = [n for n, _ in queue_of(client, parent, prefix)]
            if name not in names:
                say("own_node_gone", node=own)
                return
            place = names.index(name)
            if place == 0:
                break
            gone = threading.Event()
            say("waiting", behind=names[place - 1])
            if client.exists(f"{parent}/{names[place - 1]}", watch=lambda _: gone.set()):
                while not stop.is_set() and not gone.wait(0.2):
                    pass
        except KazooException as error:
            say("retry", error=type(error).__name__)
            stop.wait(0.2)
    if not stop.is_set():
        say("leader", node=own)
        on_lead()
        while not stop.wait(0.2):
            pass
