"""Many at once: handlers on one identity, readers beside writers, publishers beside publishers."""

import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from test_line import SCHEDULED
from world import HANDLER_TIMEOUT_S, wait_until

WRITERS = 32


def message_of(world, delivery):
    """The work message of a delivery, as the replay log keeps it."""
    told = world.tidemark("explain", delivery, "--json")
    return told["sightings"][0]["observation"]["message"]


def message_like(message, url, number):
    """Another work message of the same source, about `url`."""
    return {**message, "entity_id": url, "source_uri": url, "change_event_id": f"{message['change_event_id'][:-6]}{number:06x}"}


def record(body, number):
    return {
        "messageId": f"race-{number}",
        "receiptHandle": f"race-{number}",
        "body": json.dumps(body),
        "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "0", "SenderId": "x", "ApproximateFirstReceiveTimestamp": "0"},
        "messageAttributes": {},
        "md5OfBody": "",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:race",
        "awsRegion": "us-east-1",
    }


def test_64_handlers_on_one_identity_make_one_change(world):
    world.webhook_source("raced")
    url = world.upstream.hold("/raced.json", "A")
    assert world.deliver("raced", url, "raced_1") == 202
    world.drained("raced", 1)
    message = message_of(world, "raced_1")
    world.upstream.hold("/raced.json", "B")
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda n: world.invoke("HandlerFunction", {"Records": [record(message, n)]}), range(64)))
    assert len(world.drained("raced", 2)) == 2
    world.verified()


def test_a_commit_that_arrives_after_its_handler_is_dead_and_replaced_is_refused(world):
    world.webhook_source("stale")
    for name, moves_on in (("same", False), ("newer", True)):
        url = world.upstream.hold(f"/stale/{name}.json", f"{name} A")
        held = world.proxy.hold("TransactWriteItems", "unpublished", url)
        assert world.deliver("stale", url, f"stale_{name}") == 202
        assert held.caught.wait(30), "no handler came to its commit"
        message = message_of(world, f"stale_{name}")
        if moves_on:
            world.upstream.hold(f"/stale/{name}.json", f"{name} B")

        # The next handler waits until the claim of the first has ended, unless what it finds is another step.
        def handled():
            world.invoke("HandlerFunction", {"Records": [record(message, name)]})
            return any(change["entity_id"] == url for change in world.changes_of("stale"))

        wait_until("another handler commits", handled, 4 * HANDLER_TIMEOUT_S, every=1)
        assert held.release() == 400, "the late commit was taken"
        changes = [change for change in world.changes_of("stale") if change["entity_id"] == url]
        assert len(changes) == 1
    world.verified()


@contextlib.contextmanager
def stream_switched_off(world):
    """Nothing wakes the publisher: only the sweep finds what is to be published."""
    client = world.client("lambda")
    mappings = client.list_event_source_mappings(FunctionName=world.outputs["PublisherFunction"])["EventSourceMappings"]
    assert len(mappings) == 1 and "stream" in mappings[0]["EventSourceArn"]
    client.update_event_source_mapping(UUID=mappings[0]["UUID"], Enabled=False)
    try:
        yield
    finally:
        client.update_event_source_mapping(UUID=mappings[0]["UUID"], Enabled=True)


class Reader(threading.Thread):
    """Reads the feed page by page, always after the last index it has, and once more after `stop`."""

    def __init__(self, world, stop):
        super().__init__()
        self.world, self.stop, self.seen, self.failure = world, stop, [], None
        self.start()

    def run(self):
        cursor = 0
        while True:
            last = self.stop.is_set()
            status, body = self.world.call("GET", f"/v1/changes?cursor={cursor}&limit=7")
            if status != 200:
                self.failure = (status, body)
                return
            changes = json.loads(body)["changes"]
            self.seen += [change["index"] for change in changes]
            cursor = self.seen[-1] if self.seen else 0
            if last and not changes:
                return


class Publisher(threading.Thread):
    """Sweeps again and again until `stop`. A sweep may fail when its replies are lost; the next one goes on."""

    def __init__(self, world, stop):
        super().__init__()
        self.world, self.stop, self.sweeps = world, stop, 0
        self.start()

    def run(self):
        while not self.stop.is_set():
            self.world.client("lambda").invoke(FunctionName=self.world.outputs["PublisherFunction"], Payload=json.dumps(SCHEDULED).encode())
            self.sweeps += 1


@pytest.mark.parametrize("replies", ["arrive", "are lost"])
@pytest.mark.parametrize("woken", ["by the stream", "by the sweep only"])
def test_readers_miss_nothing_while_writers_commit_and_publishers_race(world, woken, replies):
    source = f"busy.{woken}.{replies}".replace(" ", "_")
    world.webhook_source(source)
    first = world.upstream.hold(f"/{source}/first.json", "first")
    assert world.deliver(source, first, f"{source}_first") == 202
    world.drained(source, 1)
    message = message_of(world, f"{source}_first")
    urls = [world.upstream.hold(f"/{source}/{n}.json", f"{source} {n}") for n in range(5 * WRITERS)]
    messages = [message_like(message, url, n) for n, url in enumerate(urls)]

    def write(pair):
        """As SQS does: a message that was not done comes again."""
        number, body = pair
        for _ in range(10):
            if world.invoke("HandlerFunction", {"Records": [record(body, number)]}) == {"batchItemFailures": []}:
                return True
        return False

    stop = threading.Event()
    with stream_switched_off(world) if woken == "by the sweep only" else contextlib.nullcontext():
        fault = world.proxy.disturb("TransactWriteItems", "drop", 0.2, seed=7) if replies == "are lost" else None
        readers = [Reader(world, stop) for _ in range(2)]
        publishers = [Publisher(world, stop) for _ in range(2)]
        try:
            with ThreadPoolExecutor(WRITERS) as pool:
                assert all(pool.map(write, enumerate(messages)))
            world.drained(source, 1 + len(urls))
        finally:
            world.proxy.leave_alone()
            stop.set()
            for thread in readers + publishers:
                thread.join()
    assert fault is None or fault.hits > 0, "no reply was lost"
    assert all(publisher.sweeps > 0 for publisher in publishers)
    whole = [change["index"] for change in world.feed()]
    assert whole == list(range(1, len(whole) + 1))
    assert [reader.failure for reader in readers] == [None, None]
    assert [reader.seen for reader in readers] == [whole, whole]
    assert sorted(change["entity_id"] for change in world.changes_of(source)) == sorted([first, *urls])
