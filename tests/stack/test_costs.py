"""Requests make the bill: how many a change and an unchanged look take, by service. The runbook says the same."""

import re
from collections import Counter

from test_line import SCHEDULED, polled
from world import REPO, wait_until

CHANGES = 40


def by_service(counts, number):
    total = Counter()
    for (service, operation), count in counts.items():
        total[(service, operation)] += count / number
    return total


def documented(heading):
    """The table under a heading of the runbook: operation -> requests."""
    text = (REPO / "infra/README.md").read_text()
    part = text.split(f"<!-- counted: {heading} -->")[1].split("<!-- end -->")[0]
    return {name: float(count) for name, count in re.findall(r"\| `(\w+)` \| ([\d.]+) \|", part)}


def compare(heading, counted):
    said = documented(heading)
    names = {operation for _, operation in counted}
    for (_, operation), count in counted.items():
        assert abs(said.get(operation, 0) - count) <= max(0.15, 0.15 * count), f"{heading}: {operation} {count:.2f}, and the runbook says {said.get(operation)}"
    assert set(said) <= names | {name for name, count in said.items() if count < 0.15}


def test_requests_of_a_change(world):
    world.webhook_source("priced")
    urls = [world.upstream.hold(f"/priced/{n}.json", f"{n}") for n in range(CHANGES)]
    world.proxy.count()
    for n, url in enumerate(urls):
        assert world.deliver("priced", url, f"priced_{n}") == 202
    wait_until("all are handled", lambda: world.waiting() == 0)
    wait_until("all are published", lambda: len(world.changes_of("priced")) == CHANGES, every=1)
    counts = Counter({key: count for key, count in world.proxy.count().items()})
    print(by_service(counts, CHANGES))
    compare("a change", by_service(counts, CHANGES))


def test_requests_of_an_unchanged_look(world):
    sources = [polled(world, f"quiet.{n}", world.upstream.hold(f"/quiet/{n}.json", f"{n}")) for n in range(CHANGES)]
    for source in sources:
        source["poll"] = {"every_s": 3600, "min_s": 3600, "max_s": 3600}
    world.apply(sources)
    world.invoke("PollerFunction", SCHEDULED)
    wait_until("all are there", lambda: sum(change["source"].startswith("quiet.") for change in world.feed()) == CHANGES)
    dynamo = world.client("dynamodb")
    for source in sources:
        dynamo.update_item(
            TableName=world.outputs["SourcesTable"],
            Key={"id": {"S": source["id"]}},
            UpdateExpression="SET due_at = :now",
            ExpressionAttributeValues={":now": {"N": "1"}},
        )
    world.proxy.count()
    world.invoke("PollerFunction", SCHEDULED)
    counts = world.proxy.count()
    print(by_service(counts, CHANGES))
    compare("an unchanged look", by_service(counts, CHANGES))
