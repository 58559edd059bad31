"""A candidate of kazoo's Election recipe: says when it leads and whom the library sees waiting."""

import argparse
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from kazoo.client import KazooState
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
        "--resign",
        type=int,
        help="port at which it takes POST /resign, which lets it lead no more, and GET /leads, which says whether it does",
    )
    parser.add_argument("--unaware", action="store_true", help="does not notice that its session expired, and leads on")
    arguments = parser.parse_args()
    common.started(id=arguments.id)
    client = common.connect(arguments.hosts, arguments.timeout)
    election = client.Election(arguments.path, arguments.id)
    leading = threading.Event()

    def leave(state):
        # With the session the candidacy is gone, and kazoo leaves it to the application to notice.
        if state == KazooState.LOST and not arguments.unaware:
            leading.clear()

    client.add_listener(leave)

    def lead():
        leading.set()
        say("leader", id=arguments.id)
        while leading.is_set() and not stop.wait(0.1):
            pass
        leading.clear()

    class Resign(BaseHTTPRequestHandler):
        def do_POST(self):
            known = self.path == "/resign"
            leads = leading.is_set()
            if known and leads:
                say("resign", token=self.headers.get("Bellwether-Fencing-Token"))
                leading.clear()
            self.send_response(404 if not known else 200 if leads else 409)
            self.end_headers()

        def do_GET(self):
            self.send_response(404 if self.path != "/leads" else 200 if leading.is_set() else 503)
            self.end_headers()

        def log_message(self, *_):
            pass

    if arguments.resign:
        server = HTTPServer(("", arguments.resign), Resign)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def run():
        while not stop.is_set():
            try:
                election.run(lead)
            except KazooException as error:
                say("retry", error=type(error).__name__)
                stop.wait(0.2)

    threading.Thread(target=run, daemon=True).start()
    # A client of its own: a recipe that waits must not be disturbed by the questions.
    observer = common.connect(arguments.hosts, arguments.timeout)
    asked = observer.Election(arguments.path)

    def look():
        contenders = asked.contenders()
        return {
            "leader": contenders[0] if contenders else None,
            "queue": contenders,
            "hasLeadership": leading.is_set(),
        }

    Views(look).start()
    while not stop.wait(0.2):
        pass
    election.cancel()
    common.end(client)
    common.end(observer)


if __name__ == "__main__":
    main()
