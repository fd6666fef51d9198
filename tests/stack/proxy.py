"""Stands between the functions and AWS: counts every request by its operation, and disturbs some on purpose."""

import http.client
import random
import socket
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}
HOLD_S_MAX = 120
THROTTLE = {
    "dynamodb": (400, b'{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"slow down"}'),
    "sqs": (400, b'{"__type":"com.amazonaws.sqs#RequestThrottled","message":"slow down"}'),
    "s3": (503, b"<Error><Code>SlowDown</Code><Message>slow down</Message></Error>"),
}


class Held:
    """One request that is on its way for as long as a test likes: its sender may be dead when it arrives."""

    def __init__(self, operation, words):
        self.operation, self.words = operation, words
        self.caught, self.released, self.arrived = threading.Event(), threading.Event(), threading.Event()
        self.status = None

    def release(self):
        """Lets it arrive, and waits until it has. Returns the status that its sender would have seen."""
        self.released.set()
        assert self.arrived.wait(30), "it never arrived"
        return self.status


@dataclass
class Fault:
    """Disturbs calls of `operation` (a prefix): `drop` loses the reply after the effect, `throttle` and `error` refuse it."""

    operation: str
    kind: str
    chance: float
    dice: random.Random = field(repr=False)
    hits: int = 0


def operation_of(method, path, headers):
    """The service and the operation that a request is about, from its wire form."""
    target = headers.get("X-Amz-Target", "")
    if target.startswith("DynamoDB"):
        return "dynamodb", target.split(".")[-1]
    if target.startswith("AmazonSQS"):
        return "sqs", target.split(".")[-1]
    if target.startswith("secretsmanager"):
        return "secretsmanager", target.split(".")[-1]
    parts = urlsplit(path)
    query = parse_qs(parts.query, keep_blank_values=True)
    names = {
        "PUT": "CopyObject" if "x-amz-copy-source" in headers else "PutObject",
        "GET": "ListObjectsV2" if "list-type" in query else "GetObject",
        "HEAD": "HeadObject",
        "DELETE": "DeleteObject",
        "POST": "Post",
    }
    if "uploads" in query:
        return "s3", "CreateMultipartUpload" if method == "POST" else "ListMultipartUploads"
    if "uploadId" in query:
        multipart = {"PUT": "UploadPart", "POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload"}
        return "s3", multipart.get(method, method)
    return "s3", names.get(method, method)


class Proxy:
    """A transparent proxy on loopback until a fault is set. With `host`, it asks for that name, whatever it is called by."""

    def __init__(self, host=None):
        self.upstream = None
        self.host = host
        self.fault = None
        self.held = None
        self.lock = threading.Lock()
        self.counts = Counter()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # A reply in two small writes would wait for an acknowledgement.
            wbufsize = -1
            disable_nagle_algorithm = True

            def handle_any(self):
                proxy.pass_on(self)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, *_):
                pass  # a killed function leaves its connections behind

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def disturb(self, operation, kind, chance, seed):
        self.fault = Fault(operation, kind, chance, random.Random(f"{operation}/{kind}/{seed}"))
        return self.fault

    def hold(self, operation, *words):
        """Holds the next request of `operation` that contains all of `words`."""
        self.held = Held(operation, [word.encode() for word in words])
        return self.held

    def leave_alone(self):
        self.fault = None
        if self.held:
            self.held.released.set()
            self.held = None

    def count(self):
        """All requests since the last call, by service and operation."""
        with self.lock:
            counts, self.counts = self.counts, Counter()
        return counts

    def pass_on(self, request):
        body = read_body(request)
        service, operation = operation_of(request.command, request.path, request.headers)
        with self.lock:
            self.counts[(service, operation)] += 1
            fault = self.fault
            hit = fault is not None and operation.startswith(fault.operation) and fault.dice.random() < fault.chance
            if hit:
                fault.hits += 1
            held = self.held
            holds = held and not held.caught.is_set() and operation == held.operation and all(word in body for word in held.words)
            if holds:
                held.caught.set()
        if hit and fault.kind == "throttle":
            return reply(request, *THROTTLE.get(service, (400, b"{}")))
        if hit and fault.kind == "error":
            return reply(request, 500, b"{}")
        if holds:
            held.released.wait(HOLD_S_MAX)
        status, headers, answer = self.forward(request, body)
        if holds:
            held.status = status
            held.arrived.set()
        if hit and fault.kind == "drop":
            # The effect has happened; nobody learns of it.
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)
            return None
        return reply(request, status, answer, headers)

    def forward(self, request, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=120)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        headers["Content-Length"] = str(len(body))
        # What ends TLS before AWS says so; the buckets refuse everything else.
        headers["X-Forwarded-Proto"] = "https"
        if self.host:
            headers = {name: value for name, value in headers.items() if name.lower() != "host"} | {"Host": self.host}
        connection.request(request.command, request.path, body=body, headers=headers)
        answer = connection.getresponse()
        result = answer.status, answer.getheaders(), answer.read()
        connection.close()
        return result


def read_body(request):
    if "chunked" in request.headers.get("Transfer-Encoding", "").lower():
        body = b""
        while True:
            size = int(request.rfile.readline().split(b";")[0], 16)
            body += request.rfile.read(size)
            request.rfile.readline()
            if size == 0:
                return body
    return request.rfile.read(int(request.headers.get("Content-Length") or 0))


def reply(request, status, body, headers=()):
    request.send_response_only(status)
    length = None
    for name, value in headers:
        if name.lower() == "content-length":
            length = value
        elif name.lower() not in HOP_BY_HOP:
            request.send_header(name, value)
    request.send_header("Content-Length", length if request.command == "HEAD" and length else str(len(body)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(body)
    request.wfile.flush()
