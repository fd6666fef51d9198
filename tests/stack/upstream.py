"""Something to watch: a web server on loopback whose pages change when a test says so."""

import hashlib
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Upstream:
    def __init__(self):
        self.pages = {}
        self.refusing = {}
        self.requests = Counter()
        # Called with the path of every GET, before it is answered.
        self.told = None
        self.lock = threading.Lock()
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def answer(self):
                upstream.answer(self)

            do_GET = do_HEAD = answer

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

    def hold(self, path, body):
        """From now on `path` has these bytes. Returns its URL."""
        with self.lock:
            self.pages[path] = body if isinstance(body, bytes) else body.encode()
        return self.url + path

    def drop(self, path):
        with self.lock:
            self.pages.pop(path, None)

    def refuse(self, path, status):
        """Answers `status` at `path`; None answers as before."""
        with self.lock:
            self.refusing[path] = status

    def answer(self, request):
        if self.told and request.command == "GET":
            self.told(request.path)
        with self.lock:
            self.requests[(request.command, request.path)] += 1
            body, status = self.pages.get(request.path), self.refusing.get(request.path)
        headers = {}
        if status is None:
            status = 404 if body is None else 200
        if status == 200:
            headers["ETag"] = '"' + hashlib.md5(body).hexdigest() + '"'
            headers["Content-Type"] = "application/json"
            if request.headers.get("If-None-Match") == headers["ETag"]:
                status, body = 304, b""
        else:
            body = b"no"
        request.send_response_only(status)
        for name, value in headers.items():
            request.send_header(name, value)
        if status != 304:
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command == "GET" and status != 304:
            request.wfile.write(body)
