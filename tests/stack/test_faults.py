"""Replies are lost after the effect, calls are throttled, calls fail: the same changes, once each."""

from concurrent.futures import ThreadPoolExecutor

import pytest

OPERATIONS = ["PutItem", "UpdateItem", "TransactWriteItems", "PutObject", "SendMessage"]
KINDS = ["drop", "throttle", "error"]
MESSAGES = 12
CHANCE = 0.35


def delivered(world, source, url, delivery):
    """A provider delivers again until it is told that we have it."""
    for _ in range(20):
        status = world.deliver(source, url, delivery)
        if status in (200, 202):
            return
        assert status >= 500, status
    raise AssertionError(f"{delivery} was never accepted")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_disturbed_connection_changes_nothing(world, operation, kind):
    source = f"{operation}.{kind}".lower()
    world.webhook_source(source)
    urls = [world.upstream.hold(f"/{source}/{n}.json", f"{source}/{n}") for n in range(MESSAGES)]
    fault = world.proxy.disturb(operation, kind, CHANCE, seed=1)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda pair: delivered(world, source, pair[1], f"{source}_{pair[0]}"), enumerate(urls)))
    changes = world.drained(source, MESSAGES, seconds=180)
    world.proxy.leave_alone()
    assert fault.hits > 0, "nothing was disturbed"
    assert sorted(change["entity_id"] for change in changes) == sorted(urls)
    world.verified()
