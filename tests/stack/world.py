"""The shipped template, deployed with `sam deploy` onto the emulator with IAM on, and everything around it."""

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import boto3
from botocore.config import Config

from proxy import Proxy
from upstream import Upstream

REPO = pathlib.Path(__file__).resolve().parents[2]
TOOLS = pathlib.Path(sys.executable).parent
REGION = "us-east-1"
# The emulator's root, who deploys; functions get the keys of their own roles.
ROOT = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION}
# Short, so that what a killed function had in hand comes back while the test waits. The ratio is the shipped one.
HANDLER_TIMEOUT_S = 10
SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes....").decode()
START_S = 60
DEPLOY_S = 300


def wait_until(what, condition, seconds=60, every=0.1):
    """The first true answer of `condition`; fails with `what` when there is none in time."""
    until = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"not in {seconds} s: {what() if callable(what) else what}")
        time.sleep(every)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Emulator:
    """MiniStack with IAM enforcement, on a port of its own. Functions reach it through the proxy."""

    def __init__(self, proxy):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.home = tempfile.mkdtemp(prefix="tidemark-stack-")
        self.log = open(os.path.join(self.home, "emulator.log"), "wb")
        environment = {
            "PATH": f"{TOOLS}:/usr/local/bin:/usr/bin:/bin",
            "HOME": self.home,
            "TMPDIR": self.home,
            "GATEWAY_PORT": str(self.port),
            "BIND_HOST": "127.0.0.1",
            "AUTH": "true",
            "AWS_ENDPOINT_URL": proxy.url,
            # What a function logs at warning and above is worth reading when a test fails.
            "RUST_LOG": "warn",
        }
        # The shell ends the whole group, functions included, when our end of the pipe closes, however we end.
        script = '"$0" & cat >/dev/null; kill -9 0'
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", script, TOOLS / "ministack"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        proxy.upstream = self.port
        wait_until("the emulator answers", self.healthy, START_S)

    def healthy(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/_ministack/health")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def functions(self, name=None):
        """The processes of functions, by id: their environment. Only children of this emulator."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or os.getpgid(int(entry.name)) != self.process.pid:
                    continue
                if not os.readlink(entry / "exe").endswith("/bootstrap"):
                    continue
                raw = (entry / "environ").read_bytes().split(b"\0")
                environment = dict(pair.decode().split("=", 1) for pair in raw if b"=" in pair)
            except OSError:
                continue
            if name is None or environment.get("AWS_LAMBDA_FUNCTION_NAME") == name:
                found[int(entry.name)] = environment
        return found


class World:
    """One deployed stack with its upstream."""

    def __init__(self, name="tide", **parameters):
        self.name = name
        self.upstream = Upstream()
        self.proxy = Proxy()
        self.emulator = Emulator(self.proxy)
        # People have a way of their own: what they ask is neither counted nor disturbed.
        self.door = Proxy()
        self.door.upstream = self.emulator.port
        self.session = boto3.Session("test", "test", region_name=REGION)
        self.client("s3").create_bucket(Bucket="deployments")
        self.deploy(**parameters)

    def client(self, service):
        config = Config(retries={"max_attempts": 5}, s3={"addressing_style": "path"}, max_pool_connections=80)
        return self.session.client(service, endpoint_url=self.door.url, config=config)

    def environment(self):
        return {
            **ROOT,
            "PATH": f"{TOOLS}:{os.environ['PATH']}",
            "HOME": self.emulator.home,
            "AWS_ENDPOINT_URL": self.door.url,
            "SAM_CLI_TELEMETRY": "0",
            "__SAM_CLI_APP_DIR": str(TOOLS.parent / "sam"),
        }

    def deploy(self, **parameters):
        short = {"HandlerTimeoutSeconds": HANDLER_TIMEOUT_S, "QueueVisibilitySeconds": 6 * HANDLER_TIMEOUT_S}
        parameters = {**short, "FeedAuthorization": "NONE", **parameters}
        command = [TOOLS / "sam", "deploy", "--template-file", REPO / "infra/template.yaml", "--stack-name", self.name]
        command += ["--config-env", "none", "--s3-bucket", "deployments", "--capabilities", "CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "--region", REGION]
        command += ["--no-confirm-changeset", "--no-fail-on-empty-changeset", "--no-progressbar"]
        command += ["--parameter-overrides", *(f"{name}={value}" for name, value in parameters.items())]
        done = subprocess.run(command, env=self.environment(), cwd=self.emulator.home, capture_output=True, text=True, timeout=DEPLOY_S)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        stack = self.client("cloudformation").describe_stacks(StackName=self.name)["Stacks"][0]
        self.outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

    # What a person does.

    def tidemark(self, *words, code=0):
        """Runs the command line on this stack; returns what it says, as JSON where asked for."""
        program = pathlib.Path(os.environ.get("TIDEMARK", REPO / "target/lambda/tidemark/bootstrap"))
        done = subprocess.run(
            [program, "--stack", self.name, *words], env=self.environment(), cwd=self.emulator.home, capture_output=True, text=True, timeout=600
        )
        assert code is None or done.returncode == code, f"tidemark {words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout) if "--json" in words else done.stdout

    def apply(self, sources, prune=False):
        path = os.path.join(self.emulator.home, "sources.yaml")
        with open(path, "w") as file:
            json.dump({"sources": sources}, file)  # JSON is YAML
        return self.tidemark("apply", path, *(["--prune"] if prune else []))

    def secret(self, name="provider", value=SECRET):
        client = self.client("secretsmanager")
        try:
            client.create_secret(Name=f"{self.name}/{name}", SecretString=value)
        except client.exceptions.ResourceExistsException:
            client.put_secret_value(SecretId=f"{self.name}/{name}", SecretString=value)
        return f"secretsmanager:{self.name}/{name}"

    def webhook_source(self, source, reference=None):
        """Registers a source whose provider calls us about anything that the upstream holds."""
        plan = {"scheme": "standard-webhooks", "secrets": [reference or self.secret()], "uri_pointer": "/uri"}
        self.apply([{"id": source, "allow": [self.upstream.url + "/"], "allow_http": True, "allow_private": True, "webhook": plan}])

    # What a provider does.

    def api_host(self):
        """The name under which the emulator serves the deployed HTTP API."""
        api = self.outputs["ApiUrl"].split("://")[1].split(".")[0]
        return f"{api}.execute-api.localhost:{self.emulator.port}"

    def call(self, method, path, body=b"", headers=None):
        """A request to the deployed HTTP API."""
        connection = http.client.HTTPConnection("127.0.0.1", self.emulator.port, timeout=60)
        connection.request(method, path, body=body, headers={"Host": self.api_host(), **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def deliver(self, source, uri, delivery, secret=SECRET):
        """A signed delivery; returns its status."""
        body = json.dumps({"uri": uri}).encode()
        stamp = str(int(time.time()))
        key = base64.b64decode(secret.removeprefix("whsec_"))
        tag = base64.b64encode(hmac.new(key, f"{delivery}.{stamp}.".encode() + body, hashlib.sha256).digest()).decode()
        signed = {"webhook-id": delivery, "webhook-timestamp": stamp, "webhook-signature": f"v1,{tag}", "content-type": "application/json"}
        return self.call("POST", f"/v1/webhooks/{source}", body, signed)[0]

    # What there is.

    def feed(self):
        """All changes, by index, read page by page over HTTP."""
        changes, cursor = [], 0
        while True:
            status, body = self.call("GET", f"/v1/changes?cursor={cursor}&limit=100")
            assert status == 200, (status, body)
            page = json.loads(body)
            changes += page["changes"]
            if not page["next_cursor"]:
                return changes
            cursor = page["next_cursor"]

    def waiting(self):
        """Messages in the work queue, in hand included."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"]
        attributes = self.client("sqs").get_queue_attributes(QueueUrl=self.outputs["QueueUrl"], AttributeNames=names)["Attributes"]
        return sum(int(attributes[name]) for name in names)

    def changes_of(self, source):
        """The changes of one source, from a feed that is whole."""
        return [change for change in once_each(self.feed()) if change["source"] == source]

    def drained(self, source, changes, seconds=120):
        """Waits until nothing waits and the feed has this many changes of `source`; returns them."""
        wait_until(lambda: f"the queue is empty ({self.waiting()} wait)", lambda: self.waiting() == 0, seconds, every=0.5)
        # The stream wakes the publisher a moment after the commit.
        enough = lambda: len(self.changes_of(source)) >= changes
        wait_until(lambda: f"{changes} changes of {source} ({len(self.changes_of(source))})", enough, seconds, every=0.5)
        return self.changes_of(source)

    @contextlib.contextmanager
    def handling_paused(self):
        """Messages wait in the queue until the end of the block."""
        client = self.client("lambda")
        (mapping,) = client.list_event_source_mappings(FunctionName=self.outputs["HandlerFunction"])["EventSourceMappings"]
        client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
        try:
            yield
        finally:
            client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)

    def invoke(self, function, event):
        """Invokes a deployed function with the input that its trigger sends."""
        answer = self.client("lambda").invoke(FunctionName=self.outputs[function], Payload=json.dumps(event).encode())
        body = answer["Payload"].read()
        assert "FunctionError" not in answer, body
        return json.loads(body or b"null")

    def metrics(self, function):
        """Every metrics line that a function has logged."""
        lines = []
        pages = self.client("logs").get_paginator("filter_log_events")
        for page in pages.paginate(logGroupName=f"/aws/lambda/{self.outputs[function]}"):
            for event in page["events"]:
                for line in event["message"].splitlines():
                    if '"_aws"' in line:
                        lines.append(json.loads(line[line.index("{") :]))
        return lines

    def verified(self):
        """`tidemark verify` finds nothing wrong."""
        report = self.tidemark("verify", "--json")
        assert report["problems"] == [], report
        return report

    def stop(self):
        self.emulator.stop()


def once_each(changes):
    """Indexes have no gaps, and no change is there twice."""
    assert [change["index"] for change in changes] == list(range(1, len(changes) + 1))
    runs = [change["run_id"] for change in changes]
    assert len(set(runs)) == len(runs)
    return changes
