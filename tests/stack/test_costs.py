"""Requests make the bill: how many a change and an unchanged look take, by operation. The runbook says the same."""

import contextlib
import re
from collections import Counter

from test_line import SCHEDULED, polled
from world import REPO, wait_until

MANY = 40
ALONE = 10


@contextlib.contextmanager
def undisturbed_by_schedules(world, stream=True):
    """Nothing runs but what the test causes; without `stream`, not even the publisher."""
    events, functions = world.client("events"), world.client("lambda")
    rules = [rule["Name"] for rule in events.list_rules()["Rules"] if rule["Name"].startswith(world.name)]
    mappings = functions.list_event_source_mappings(FunctionName=world.outputs["PublisherFunction"])["EventSourceMappings"]
    scheduled = {"PollSchedule", "StreamSchedule", "SweepSchedule"}
    assert scheduled <= {rule.split("-")[1] for rule in rules} and len(mappings) == 1
    for rule in rules:
        events.disable_rule(Name=rule)
    functions.update_event_source_mapping(UUID=mappings[0]["UUID"], Enabled=stream)
    try:
        yield
    finally:
        for rule in rules:
            events.enable_rule(Name=rule)
        functions.update_event_source_mapping(UUID=mappings[0]["UUID"], Enabled=True)


def item(world, table, pk, sk):
    """One item, read by the way that is not counted."""
    key = {"pk": {"S": pk}, "sk": {"S": sk}}
    return world.client("dynamodb").get_item(TableName=world.outputs[table], Key=key, ConsistentRead=True).get("Item", {})


def feed_end(world):
    return int(item(world, "LedgerTable", "C#feed", "end").get("idx", {"N": "0"})["N"])


def settled(world, source):
    """How many sightings of a source are settled: the last thing that handling does."""
    table = world.client("dynamodb").query(
        TableName=world.outputs["ReplayTable"],
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": f"T#{source}"}},
        ConsistentRead=True,
    )
    return sum(int(part.get(state, {"N": "0"})["N"]) for part in table["Items"] for state in ("committed", "no_op"))


def documented(heading):
    """The table under a heading of the runbook: operation -> requests."""
    text = (REPO / "infra/README.md").read_text()
    part = text.split(f"<!-- counted: {heading} -->")[1].split("<!-- end -->")[0]
    return {name: float(count) for name, count in re.findall(r"\| `(\w+)` \| ([\d.]+) \|", part)}


def compare(world, heading, number):
    """What was asked of AWS since the last count is what the runbook says, a request in ten up or down."""
    counted = Counter({operation: count / number for (_, operation), count in world.proxy.count().items()})
    said = documented(heading)
    print(heading, dict(counted))
    for operation in said.keys() | counted.keys():
        assert abs(said.get(operation, 0) - counted[operation]) <= max(0.11, 0.1 * counted[operation]), (heading, operation, said, counted)


def test_requests_of_a_change(world):
    world.webhook_source("priced")
    # The secret, the day of the replay log and the first process of each function are not what is counted.
    world.deliver("priced", world.upstream.hold("/priced/warm.json", "warm"), "priced_warm")
    world.drained("priced", 1)
    with undisturbed_by_schedules(world):
        wait_until("nothing is under way", lambda: world.waiting() == 0)
        world.proxy.count()
        for n in range(ALONE):
            end = feed_end(world)
            assert world.deliver("priced", world.upstream.hold(f"/priced/alone/{n}.json", f"{n}"), f"alone_{n}") == 202
            wait_until("it is published", lambda: feed_end(world) > end and settled(world, "priced") == n + 2)
        compare(world, "a change by itself", ALONE)


def test_requests_of_a_change_among_many(world):
    world.webhook_source("crowd")
    with undisturbed_by_schedules(world, stream=False):
        end = feed_end(world)
        world.proxy.count()
        for n in range(MANY):
            assert world.deliver("crowd", world.upstream.hold(f"/crowd/{n}.json", f"{n}"), f"crowd_{n}") == 202
        wait_until("all are handled", lambda: settled(world, "crowd") == MANY)
        world.invoke("PublisherFunction", SCHEDULED)
        assert feed_end(world) == end + MANY
        compare(world, "a change among many", MANY)
    sizes(world)


def sizes(world):
    """Writes are paid by the kilobyte: the runbook's prices hold for items up to these sizes."""
    sighting = world.tidemark("explain", "crowd_0", "--json")["sightings"][0]["observation"]["event"]["change_event_id"]
    run = world.changes_of("crowd")[0]["run_id"]
    url = world.upstream.url + "/crowd/0.json"
    found = {
        "sighting": (item(world, "ReplayTable", f"O#{sighting}", "o"), 2048),
        "run": (item(world, "LedgerTable", f"R#{run[:6]}", run), 3072),
        "head": (item(world, "LedgerTable", f"E#crowd|{url}", "head"), 1024),
    }
    for name, (stored, limit) in found.items():
        size = sum(len(key) + len(next(iter(value.values()))) for key, value in stored.items())
        print(name, size)
        assert 0 < size <= limit, (name, size)


def test_requests_of_an_unchanged_look(world):
    sources = [polled(world, f"quiet.{n}", world.upstream.hold(f"/quiet/{n}.json", f"{n}")) for n in range(MANY)]
    for source in sources:
        source["poll"] = {"every_s": 3600, "min_s": 3600, "max_s": 3600}
    world.apply(sources)
    world.invoke("PollerFunction", SCHEDULED)
    wait_until("all are there", lambda: sum(change["source"].startswith("quiet.") for change in world.feed()) == MANY)
    with undisturbed_by_schedules(world):
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
        compare(world, "an unchanged look", MANY)
