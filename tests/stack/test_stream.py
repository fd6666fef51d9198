"""Streams of events on the deployed stack: drained again and again, each drain ending where it ends."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from test_line import SCHEDULED
from world import wait_until

EVENTS = 30


class EventServer:
    """A server of numbered events whose connections end in the middle of one, and begin with some told again."""

    def __init__(self, cut_after, told_again=0, heartbeats=0):
        self.events, self.cursors, self.open, self.most_open = [], [], 0, 0
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                with server.lock:
                    server.open += 1
                    server.most_open = max(server.most_open, server.open)
                try:
                    self.tell()
                finally:
                    with server.lock:
                        server.open -= 1

            def tell(self):
                cursor = self.headers.get("Last-Event-ID")
                server.cursors.append(cursor)
                after = int(cursor or 0)
                self.send_response_only(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(b"retry: 100\n")
                with server.lock:
                    events = list(enumerate(server.events, 1))[max(0, after - told_again) :]
                for number, uri in events:
                    event = f"id: {number}\ndata: {json.dumps({'uri': uri})}\n\n".encode()
                    if number > after + cut_after:
                        self.wfile.write(event[: len(event) // 2])
                        break
                    self.wfile.write(event)
                for _ in range(heartbeats):
                    self.wfile.write(b": still here\n\n")
                    self.wfile.flush()
                    time.sleep(1)
                self.close_connection = True

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # a drain that ends leaves its connection behind

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/events"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def streamed(world, source, server, **more):
    plan = {"url": server.url, "uri_pointer": "/uri", **more}
    world.apply([{"id": source, "allow": [world.upstream.url + "/"], "allow_http": True, "allow_private": True, "stream": plan}])


def state(world, source):
    sources = world.tidemark("status", "--json")["sources"]
    return next(found for found in sources if found["id"] == source)


def test_drains_that_end_in_the_middle_lead_to_each_change_once_and_lose_none(world):
    server = EventServer(cut_after=8, told_again=3)
    streamed(world, "drained", server)
    server.events += [world.upstream.hold(f"/drained/{number}.json", str(number)) for number in range(EVENTS)]

    def cursor():
        # Several at once, as when a schedule fires while the invocation before still drains.
        invocations = [threading.Thread(target=world.invoke, args=("SseFunction", SCHEDULED)) for _ in range(3)]
        [invocation.start() for invocation in invocations]
        [invocation.join() for invocation in invocations]
        return (state(world, "drained")["stream"] or {}).get("cursor") == str(EVENTS)

    wait_until("all events were told", cursor, 120, every=0.5)
    changes = world.drained("drained", EVENTS)
    assert sorted(change["entity_id"] for change in changes) == sorted(server.events), "each once, none lost"
    assert server.most_open == 1, "one drain follows a stream"
    assert server.cursors[:3] == [None, "8", "16"]
    stream = state(world, "drained")["stream"]
    assert stream["candidates"] == EVENTS and stream["copies"] >= 3 and stream["failing"] is None, stream
    line = next(line for line in world.metrics("SseFunction") if line.get("Accepted"))
    assert line["Silent"] == 0
    world.apply([{"id": "drained", "allow": [world.upstream.url + "/"], "allow_http": True, "allow_private": True}])


def test_a_quiet_stream_is_given_back_before_the_time_is_up_and_a_silent_one_is_told(world):
    server = EventServer(cut_after=EVENTS, heartbeats=30)
    streamed(world, "quiet", server, silent_after_s=5)
    server.events.append(world.upstream.hold("/quiet.json", "1"))
    began = time.monotonic()
    # The schedule may have taken it before us.
    wait_until("it was drained", lambda: world.invoke("SseFunction", SCHEDULED)["streams"] == 1 or (state(world, "quiet")["stream"] or {}).get("cursor"), 90)
    world.drained("quiet", 1)
    assert time.monotonic() - began < 100
    # Longer than it bears, nobody listens: a state that people see. The next drain would hear it again.
    wait_until("silence is told", lambda: (state(world, "quiet")["fault"] or {}).get("code") == "stream.silent", 60)
    world.apply([{"id": "quiet", "allow": [world.upstream.url + "/"], "allow_http": True, "allow_private": True}])
