"""A local AWS for tests and for `make local-aws`: MiniStack with IAM enforced and TLS, and `sam deploy` onto it.

TLS is not for show: the buckets refuse plain HTTP, and the emulator enforces that too. Nothing listens on anything but
the loopback address, nothing of the caller's environment reaches the functions, and the emulator ends with its caller.
"""

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
REGION = "us-east-1"
START_SECONDS = 60


class Emulator:
    """Runs from `with Emulator(folder) as aws:` to the end of the block. Certificate and logs are in `folder`."""

    def __init__(self, folder, port=None, extra_env=None):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.url = f"https://localhost:{self.port}"
        self.certificate = self.folder / "certificate.pem"
        self.log = self.folder / "emulator.log"
        self.extra_env = extra_env or {}
        self.process = None

    def __enter__(self):
        make_certificate(self.certificate, self.folder / "key.pem")
        with open(self.log, "wb") as log:
            # The shell ends the emulator when our end of the pipe closes, however we end.
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", '"$0" & pid=$!; cat >/dev/null; kill -9 $pid', str(BIN / "ministack")],
                env=self.server_env(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wait()
        return self

    def __exit__(self, *_):
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        # Functions are the emulator's children; they must not outlive it.
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def server_env(self):
        """The environment of the emulator. Functions inherit all of it, so it says where AWS is and whom to trust."""
        return {
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "GATEWAY_PORT": str(self.port),
            "BIND_HOST": "127.0.0.1",
            "AUTH": "true",
            "USE_SSL": "1",
            "MINISTACK_SSL_CERT": str(self.certificate),
            "MINISTACK_SSL_KEY": str(self.folder / "key.pem"),
            "AWS_ENDPOINT_URL": self.url,
            "SSL_CERT_FILE": str(self.certificate),
            **self.extra_env,
        }

    def client_env(self):
        """What a program needs to talk to this emulator as the account's owner."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_CA_BUNDLE": str(self.certificate),
            "SSL_CERT_FILE": str(self.certificate),
        }

    def wait(self):
        """Until it answers its health check."""
        trust = ssl.create_default_context(cafile=str(self.certificate))
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/_ministack/health", timeout=5, context=trust).close()
                return
            except (OSError, urllib.error.URLError) as error:
                if self.process.poll() is not None or time.monotonic() > until:
                    self.__exit__()
                    raise RuntimeError(f"the emulator did not start ({error}); see {self.log}") from error
                time.sleep(0.1)

    def client(self, service, **options):
        """A boto3 client of the account's owner."""
        import boto3

        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            verify=str(self.certificate),
            **options,
        )

    def sam(self, *arguments):
        """Runs sam against this emulator only. Its words are the error's text when it fails."""
        env = {
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "SAM_CLI_TELEMETRY": "0",
            "SAM_CLI_POLL_DELAY": "1",
            **self.client_env(),
        }
        done = subprocess.run([str(BIN / "sam"), *arguments], env=env, cwd=ROOT, text=True, capture_output=True)
        if done.returncode != 0:
            raise RuntimeError(f"sam {' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def deploy(self, stack="tidemark", template=ROOT / "infra/template.yaml", **parameters):
        """`sam deploy` of the shipped template; again for an update. Returns the outputs."""
        arguments = ["deploy", "--template-file", str(template), "--stack-name", stack, "--no-fail-on-empty-changeset"]
        if parameters:
            arguments += ["--parameter-overrides", *(f"{name}={value}" for name, value in parameters.items())]
        self.sam(*arguments)
        outputs = self.outputs(stack)
        self.restore_numbers(outputs["HandlerFunction"])
        return outputs

    def restore_numbers(self, function):
        """The emulator keeps the text of a parameter where AWS makes it a number, and then cannot compare it."""
        functions = self.client("lambda")
        for mapping in functions.list_event_source_mappings(FunctionName=function)["EventSourceMappings"]:
            if scaling := mapping.get("ScalingConfig"):
                whole = {"MaximumConcurrency": int(scaling["MaximumConcurrency"])}
                functions.update_event_source_mapping(UUID=mapping["UUID"], ScalingConfig=whole)

    def delete(self, stack="tidemark"):
        """`sam delete`. Data stays."""
        return self.sam("delete", "--stack-name", stack, "--region", REGION, "--no-prompts")

    def outputs(self, stack="tidemark"):
        """The outputs of a stack, by name."""
        stacks = self.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
        return {output["OutputKey"]: output["OutputValue"] for output in stacks[0].get("Outputs", [])}

    def api_host(self, outputs):
        """The `Host` header under which the emulator serves the stack's API."""
        api = outputs["ApiUrl"].removeprefix("https://").split(".")[0]
        return f"{api}.execute-api.localhost:{self.port}"


def free_port():
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_certificate(certificate, key):
    """A certificate for localhost that is its own authority, made once per folder."""
    if certificate.exists() and key.exists():
        return
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=localhost"]
        + ["-keyout", str(key), "-out", str(certificate)]
        + ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "extendedKeyUsage=serverAuth"]
        + ["-addext", "subjectAltName=DNS:localhost,DNS:*.execute-api.localhost,DNS:*.localhost,IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )
