"""The whole line as deployed: API Gateway, S3 notification, schedule and SQS in; one change each out."""

import itertools
import json
from concurrent.futures import ThreadPoolExecutor

import jsonschema

from world import REPO, SECRET, wait_until

SCHEDULED = {"version": "0", "source": "aws.events", "detail-type": "Scheduled Event", "detail": {}, "resources": []}


def polled(world, source, url):
    """A source that is due at every look."""
    return {"id": source, "url": url, "allow_http": True, "allow_private": True, "poll": {"every_s": 1, "min_s": 1, "max_s": 1}}


def look_until(world, source, changes):
    """The schedule's input, until the source has this many changes."""

    def enough():
        world.invoke("PollerFunction", SCHEDULED)
        return len(world.changes_of(source)) >= changes

    wait_until(f"{changes} changes of {source}", enough, 60, every=0.5)
    return world.changes_of(source)


def test_each_delivery_makes_one_change_however_often_it_is_sent(world):
    world.webhook_source("calls")
    urls = [world.upstream.hold(f"/calls/{n}.json", f'{{"n":{n}}}') for n in range(20)]
    deliveries = [(url, f"msg_{n}") for n, url in enumerate(urls) for _ in range(5)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda pair: world.deliver("calls", *pair), deliveries))
    assert set(answers) <= {200, 202} and answers.count(202) >= 20, answers
    changes = world.drained("calls", 20)
    assert sorted(change["entity_id"] for change in changes) == sorted(urls)
    # The same deliveries again, and again new ones about the same bytes: nothing happens.
    assert {world.deliver("calls", url, f"msg_{n}") for n, url in enumerate(urls)} == {200}
    assert {world.deliver("calls", url, f"again_{n}") for n, url in enumerate(urls)} == {202}
    assert len(world.drained("calls", 20)) == 20
    told = json.dumps(world.tidemark("explain", "again_3", "--json"))
    assert "same_as_head" in told
    # SQS delivers at least once: the same messages again, out of order.
    messages = [world.tidemark("explain", f"msg_{n}", "--json")["sightings"][0]["observation"]["message"] for n in (7, 3, 7)]
    for message in messages:
        world.client("sqs").send_message(QueueUrl=world.outputs["QueueUrl"], MessageBody=json.dumps(message))
    assert len(world.drained("calls", 20)) == 20


def test_a_delivery_that_is_not_signed_by_the_provider_is_refused(world):
    world.webhook_source("strict")
    url = world.upstream.hold("/strict.json", "1")
    other = "whsec_" + "A" * 43 + "="
    assert world.deliver("strict", url, "msg_1", secret=other) == 401
    assert world.call("POST", "/v1/webhooks/strict", b"{}")[0] == 401
    assert world.deliver("nobody", url, "msg_1") == 404
    assert world.deliver("strict", "https://elsewhere.example/", "msg_2") == 422
    assert world.deliver("strict", url, "msg_3") == 202
    assert len(world.drained("strict", 1)) == 1


def test_a_rotated_secret_and_the_one_before_are_both_valid(world):
    world.webhook_source("rotating", world.secret("rotating"))
    url = world.upstream.hold("/rotating.json", "1")
    assert world.deliver("rotating", url, "old") == 202
    new = "whsec_" + "QkJC" * 10 + "QkI="
    world.secret("rotating", new)
    # Secrets are cached for a short while.
    wait_until("the new secret is valid", lambda: world.deliver("rotating", url, "new", secret=new) in (200, 202), 90, every=2)
    assert world.deliver("rotating", url, "old again", secret=SECRET) == 202
    world.drained("rotating", 1)


def test_upstream_that_goes_to_and_fro_ends_where_it_is(world):
    url = world.upstream.hold("/fro.json", "A")
    world.apply([polled(world, "fro", url)])
    for expected, body in enumerate(["A", "B", "A"], start=1):
        world.upstream.hold("/fro.json", body)
        changes = look_until(world, "fro", expected)
    digests = [change["object_identity"]["sha256"] for change in changes]
    assert digests[0] == digests[2] != digests[1] and len(changes) == 3
    # Nothing new: the looks cost a request each, and nothing else.
    world.invoke("PollerFunction", SCHEDULED)
    assert len(world.changes_of("fro")) == 3


def test_an_object_in_a_watched_bucket_is_a_change_and_its_removal_too(world):
    bucket, s3 = world.outputs["InboxBucket"], world.client("s3")
    world.apply([{"id": "inbox", "allow": [f"s3://{bucket}/drops/"]}])
    key = "drops/a file+ü.csv"
    s3.put_object(Bucket=bucket, Key=key, Body=b"1,2\n")
    s3.put_object(Bucket=bucket, Key="elsewhere/b.csv", Body=b"1,2\n")
    assert world.drained("inbox", 1)[0]["change_type"] == "new"
    s3.put_object(Bucket=bucket, Key=key, Body=b"1,2\n")  # other version, same bytes
    s3.put_object(Bucket=bucket, Key=key, Body=b"1,3\n")
    assert [change["change_type"] for change in world.drained("inbox", 2)] == ["new", "modified"]
    s3.delete_object(Bucket=bucket, Key=key)
    assert [change["change_type"] for change in world.drained("inbox", 3)] == ["new", "modified", "deleted"]


def test_poison_goes_to_the_dead_letters_with_its_reason_and_no_innocent_with_it(world):
    world.webhook_source("mixed")
    sqs, queue = world.client("sqs"), world.outputs["QueueUrl"]
    urls = [world.upstream.hold(f"/mixed/{n}.json", f"{n}") for n in range(8)]
    deep = "[" * 100_000 + "]" * 100_000
    for poison in ["not json", "{}", deep, '{"source":"mixed"}']:
        sqs.send_message(QueueUrl=queue, MessageBody=poison)
    for n, url in enumerate(urls):
        assert world.deliver("mixed", url, f"mixed_{n}") == 202
    # A source that refuses for good: its message dies with the reason of its upstream.
    refused = world.upstream.hold("/mixed/refused.json", "x")
    world.upstream.refuse("/mixed/refused.json", 403)
    assert world.deliver("mixed", refused, "mixed_refused") == 202
    assert len(world.drained("mixed", 8)) == 8
    letters = wait_until("five dead letters", lambda: len(found := dead(world)) == 5 and found)
    assert letters.count("worker.unreadable") == 4, letters
    listed = world.tidemark("dlq", "list")
    assert all(cause in listed for cause in letters), listed
    assert any(source["id"] == "mixed" and source["standing"] == "failing" for source in world.tidemark("status", "--json")["sources"])
    # The cause is removed, and the message goes its way.
    world.upstream.refuse("/mixed/refused.json", None)
    world.tidemark("dlq", "redrive", "--source", "mixed")
    assert len(world.drained("mixed", 9)) == 9
    assert len(dead(world)) == 4
    world.client("sqs").purge_queue(QueueUrl=world.outputs["DeadLetterUrl"])


def dead(world):
    """The cause of every dead letter."""
    causes = world.tidemark("dlq", "list", "--json")["causes"]
    return [cause["code"] for cause in causes for _ in cause["ids"]]


def test_every_invocation_writes_one_line_of_metrics(world):
    world.webhook_source("measured")
    url = world.upstream.hold("/measured.json", "1")
    assert world.deliver("measured", url, "m1") == 202
    world.drained("measured", 1)
    world.apply([polled(world, "measured.poll", url)])
    look_until(world, "measured.poll", 1)
    world.invoke("PollerFunction", SCHEDULED)
    schema = json.loads((REPO / "schemas/metrics/1.0.0.json").read_text())
    lines = {function: world.metrics(f"{function}Function") for function in ("Webhook", "Poller", "Handler", "Publisher", "Feed")}
    for line in itertools.chain(*lines.values()):
        jsonschema.validate(line, schema)
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        assert all(isinstance(line[metric["Name"]], (int, float)) for metric in directive["Metrics"]), line
        assert all(isinstance(line[name], str) for name in directive["Dimensions"][0]), line
        assert url not in json.dumps(line)
    some = lambda function, name: any(line.get(name) for line in lines[function])
    assert some("Webhook", "Accepted") and some("Handler", "Changes") and some("Publisher", "Published")
    assert some("Poller", "NotModified") and some("Poller", "Modified") and some("Poller", "BytesSaved")
    assert all(0 <= line["FreshnessLagMs"] < 600_000 and line["DigestCoverage"] == 1 for line in lines["Handler"] if line.get("Changes"))
    # The alarm about freshness watches a metric that the handler really writes.
    alarms = world.client("cloudwatch").describe_alarms()["MetricAlarms"]
    (freshness,) = [alarm for alarm in alarms if alarm["MetricName"] == "FreshnessLagMs"]
    watched = {dimension["Name"]: dimension["Value"] for dimension in freshness["Dimensions"]}
    line = next(line for line in lines["Handler"] if "FreshnessLagMs" in line)
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == freshness["Namespace"]
    assert watched == {name: line[name] for name in directive["Dimensions"][0]}


def test_a_person_sees_on_a_stack_what_the_embedded_store_shows(world):
    world.webhook_source("seen")
    url = world.upstream.hold("/seen.json", "1")
    world.deliver("seen", url, "seen_1")
    index = world.drained("seen", 1)[0]["index"]
    assert "seen" in world.tidemark("changes")
    assert "seen" in world.tidemark("sources")
    assert "s3://" in world.tidemark("show", str(index))
    assert "committed" in world.tidemark("explain", "seen_1")
    assert "waiting" in world.tidemark("status")
    assert world.tidemark("changes", "--source", "seen", "--json")
    world.upstream.hold("/seen/polled.json", "2")
    world.apply([polled(world, "seen.polled", world.upstream.url + "/seen/polled.json")])
    assert "new" in world.tidemark("check", "seen.polled")
    world.verified()
