"""Many at once: handlers on one identity, readers beside writers, publishers beside publishers."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

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


def test_readers_miss_nothing_while_writers_commit_and_publishers_race(world):
    world.webhook_source("busy")
    first = world.upstream.hold("/busy/first.json", "first")
    assert world.deliver("busy", first, "busy_first") == 202
    world.drained("busy", 1)
    message = message_of(world, "busy_first")
    urls = [world.upstream.hold(f"/busy/{n}.json", f"{n}") for n in range(5 * WRITERS)]
    messages = [message_like(message, url, n) for n, url in enumerate(urls)]
    stop, pages = threading.Event(), []

    def read():
        seen, cursor = [], 0
        while True:
            last = stop.is_set()
            status, body = world.call("GET", f"/v1/changes?cursor={cursor}&limit=7")
            assert status == 200
            changes = json.loads(body)["changes"]
            seen += [change["index"] for change in changes]
            cursor = seen[-1] if seen else 0
            if last and not changes:
                break
        pages.append(seen)

    def publish():
        while not stop.is_set():
            world.invoke("PublisherFunction", SCHEDULED)

    threads = [threading.Thread(target=read) for _ in range(2)] + [threading.Thread(target=publish) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            write = lambda pair: world.invoke("HandlerFunction", {"Records": [record(pair[1], pair[0])]})
            answers = list(pool.map(write, enumerate(messages)))
        assert all(answer == {"batchItemFailures": []} for answer in answers), answers
        world.drained("busy", 1 + len(urls))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    whole = [change["index"] for change in world.feed()]
    assert pages == [whole, whole]


def test_with_the_stream_switched_off_the_sweep_publishes_everything(world):
    client = world.client("lambda")
    mappings = client.list_event_source_mappings(FunctionName=world.outputs["PublisherFunction"])["EventSourceMappings"]
    assert len(mappings) == 1 and "stream" in mappings[0]["EventSourceArn"]
    client.update_event_source_mapping(UUID=mappings[0]["UUID"], Enabled=False)
    try:
        world.webhook_source("swept")
        urls = [world.upstream.hold(f"/swept/{n}.json", f"{n}") for n in range(40)]
        for n, url in enumerate(urls):
            assert world.deliver("swept", url, f"swept_{n}") == 202
        wait_until("all are handled", lambda: world.waiting() == 0)
        # Lost replies and two publishers at once do not matter either.
        world.proxy.disturb("TransactWriteItems", "drop", 0.3, seed=7)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: world.invoke("PublisherFunction", SCHEDULED), range(4)))
        world.proxy.leave_alone()
        world.invoke("PublisherFunction", SCHEDULED)
        assert len(world.changes_of("swept")) == 40
    finally:
        client.update_event_source_mapping(UUID=mappings[0]["UUID"], Enabled=True)
