"""A listing on the deployed stack: what is new in it, what differs, and what two of them in a row lack."""

import json

from test_line import SCHEDULED
from world import wait_until


def listing(world, names):
    lines = [json.dumps({"uri": f"{world.upstream.url}/listed/{name}", "version": version}) for name, version in names.items()]
    return world.upstream.hold("/listing.jsonl", "".join(line + "\n" for line in lines))


def look(world, changes):
    """Looks once, and waits for what it leads to."""
    world.apply([{**world.listed, "poll": {"every_s": 3600 + len(world.looks)}}])
    world.looks.append(world.invoke("PollerFunction", SCHEDULED))
    return world.drained("listed", changes)


def test_a_listing_is_followed_and_a_gap_of_one_look_is_no_deletion(world):
    hold = lambda name, body: world.upstream.hold(f"/listed/{name}", body)
    [hold(name, name) for name in "abc"]
    url = listing(world, {"a": "1", "b": "1", "c": "1"})
    world.looks = []
    world.listed = {
        "id": "listed",
        "url": url,
        "allow": [f"{world.upstream.url}/listed/"],
        "allow_http": True,
        "allow_private": True,
        "listing": {"format": "json-lines"},
    }
    assert {change["change_type"] for change in look(world, 3)} == {"new"}

    hold("b", "b changed")
    world.upstream.drop("/listed/c")
    listing(world, {"b": "2", "a": "1"})
    changes = look(world, 4)
    assert [change["change_type"] for change in changes if change["revision"] == 2] == ["modified"]

    # The second listing without it: now it counts, and is confirmed where it was.
    changes = look(world, 5)
    gone = [change for change in changes if change["change_type"] == "deleted"]
    assert [change["source_uri"] for change in gone] == [f"{world.upstream.url}/listed/c"]

    # The manifest of every complete listing is in the store, under its digest.
    kept = wait_until("its state is saved", lambda: poll_state(world)["listing"]["kept"])
    assert [one["entries"] for one in kept] == [3, 2]
    for one in kept:
        key = f"artifacts/sha256/{one['sha256'][:2]}/{one['sha256']}"
        body = world.client("s3").get_object(Bucket=world.outputs["Bucket"], Key=key)["Body"].read()
        assert len(body.splitlines()) == one["entries"]
    world.verified()


def poll_state(world):
    item = world.client("dynamodb").get_item(TableName=world.outputs["SourcesTable"], Key={"id": {"S": "listed"}})["Item"]
    return json.loads(item["poll_state"]["S"])
