"""The peer of `make bench`: verifies a Standard Webhooks signature and commits the delivery to SQLite,
synchronous=FULL, before it answers 202. As plain and as fast as FastAPI makes it: one uvicorn process,
uvloop, httptools, prepared statements, WAL."""
import base64
import hashlib
import hmac
import sqlite3
import sys
import time

import uvicorn
from fastapi import FastAPI, Request, Response

SECRET = base64.b64decode(sys.argv[2].removeprefix("whsec_"))
DB = sqlite3.connect(sys.argv[3], isolation_level=None, check_same_thread=False)
DB.execute("PRAGMA journal_mode=WAL")
DB.execute("PRAGMA synchronous=FULL")
DB.execute("CREATE TABLE deliveries (id TEXT PRIMARY KEY, received_at REAL, body BLOB)")
app = FastAPI()


@app.post("/v1/webhooks/{source}")
async def receive(source: str, request: Request) -> Response:
    body = await request.body()
    headers = request.headers
    stamp = headers["webhook-timestamp"]
    if abs(time.time() - int(stamp)) > 300:
        return Response(status_code=401)
    signed = b".".join([headers["webhook-id"].encode(), stamp.encode(), body])
    expected = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
    if not any(hmac.compare_digest("v1," + expected, given) for given in headers["webhook-signature"].split()):
        return Response(status_code=401)
    DB.execute("INSERT OR IGNORE INTO deliveries VALUES (?, ?, ?)", (headers["webhook-id"], time.time(), body))
    return Response(status_code=202)


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", loop="uvloop", http="httptools")
