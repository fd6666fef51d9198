"""Replies are lost after the effect, calls are throttled, calls fail: the same changes, once each."""

import pytest

OPERATIONS = ["PutItem", "UpdateItem", "TransactWriteItems", "PutObject", "SendMessage"]
KINDS = ["drop", "throttle", "error"]
MESSAGES = 12
CHANCE = 0.35


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_disturbed_connection_changes_nothing(world, operation, kind):
    source = f"{operation}.{kind}".lower()
    world.webhook_source(source)
    urls = [world.upstream.hold(f"/{source}/{n}.json", f"{source}/{n}") for n in range(MESSAGES)]
    fault = world.proxy.disturb(operation, kind, CHANCE, seed=1)
    for n, url in enumerate(urls):
        # A provider delivers again until it is told that we have it.
        answers = [world.deliver(source, url, f"{source}_{n}")]
        while answers[-1] not in (200, 202):
            assert answers[-1] >= 500 and len(answers) < 20, answers
            answers.append(world.deliver(source, url, f"{source}_{n}"))
    changes = world.drained(source, MESSAGES, seconds=180)
    world.proxy.leave_alone()
    assert fault.hits > 0, "nothing was disturbed"
    assert sorted(change["entity_id"] for change in changes) == sorted(urls)
    world.verified()
