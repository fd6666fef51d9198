"""Notifications of a bucket by every way that there is on AWS: EventBridge, a queue, a topic before a queue. Awkward keys, delete
markers and ends for good included; what comes by two ways is one change."""

import json

import pytest

from world import REGION, World, wait_until

ACCOUNT = "000000000000"
KEY = "drops/a file+ü%41.csv"


class Wired(World):
    """A stack that listens to EventBridge and to a queue."""

    def deploy(self, **parameters):
        sqs = self.client("sqs")
        self.dead = sqs.create_queue(QueueName="objects-dead")["QueueUrl"]
        redrive = {"deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:objects-dead", "maxReceiveCount": 2}
        self.queue_arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:objects"
        senders = {"Service": ["s3.amazonaws.com", "sns.amazonaws.com"]}
        statement = {"Effect": "Allow", "Principal": senders, "Action": "sqs:SendMessage", "Resource": self.queue_arn}
        policy = {"Version": "2012-10-17", "Statement": [statement]}
        attributes = {"VisibilityTimeout": "3", "RedrivePolicy": json.dumps(redrive), "Policy": json.dumps(policy)}
        self.queue = sqs.create_queue(QueueName="objects", Attributes=attributes)["QueueUrl"]
        self.inbox = f"{self.name}-inbox-{ACCOUNT}"
        super().deploy(EventBridgeBuckets=self.inbox, ObjectQueueArn=self.queue_arn, **parameters)

    def notify(self, **configuration):
        """From now on the inbox notifies in this way, and in no other."""
        self.client("s3").put_bucket_notification_configuration(Bucket=self.inbox, NotificationConfiguration=configuration)

    def story(self, source):
        """An object comes, comes again, changes, and goes; the changes that this makes."""
        s3 = self.client("s3")
        self.apply([{"id": source, "allow": [f"s3://{self.inbox}/{source}/"]}])
        key = f"{source}/{KEY}"
        s3.put_object(Bucket=self.inbox, Key=key, Body=b"1\n")
        s3.put_object(Bucket=self.inbox, Key=f"elsewhere/{KEY}", Body=b"1\n")
        assert [change["change_type"] for change in self.drained(source, 1)] == ["new"]
        s3.put_object(Bucket=self.inbox, Key=key, Body=b"1\n")
        s3.put_object(Bucket=self.inbox, Key=key, Body=b"2\n")
        self.drained(source, 2)
        marker = s3.delete_object(Bucket=self.inbox, Key=key)["VersionId"]
        self.drained(source, 3)
        # Without the marker the version before it is there again; and one that is not current may end for good.
        s3.delete_object(Bucket=self.inbox, Key=key, VersionId=marker)
        self.drained(source, 4)
        oldest = min(s3.list_object_versions(Bucket=self.inbox, Prefix=key)["Versions"], key=lambda version: version["LastModified"])
        s3.delete_object(Bucket=self.inbox, Key=key, VersionId=oldest["VersionId"])
        return self.drained(source, 4)


@pytest.fixture(scope="module")
def world():
    world = Wired()
    yield world
    world.stop()


EXPECTED = ["new", "modified", "deleted", "new"]


def kinds(changes):
    return [change["change_type"] for change in changes]


def test_events_through_eventbridge_make_the_same_changes(world):
    world.notify(EventBridgeConfiguration={})
    assert kinds(world.story("bridged")) == EXPECTED


def test_notifications_through_a_queue_make_the_same_changes(world):
    world.notify(QueueConfigurations=[{"QueueArn": world.queue_arn, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}])
    assert kinds(world.story("queued")) == EXPECTED
    # `s3:TestEvent` was among them; nothing is left, and nothing was given up.
    assert depth(world, world.queue) == 0 and depth(world, world.dead) == 0


def test_a_notification_in_a_message_of_a_topic_in_a_queue_is_found(world):
    s3, sns = world.client("s3"), world.client("sns")
    topic = sns.create_topic(Name="objects")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=world.queue_arn)
    world.notify()
    world.apply([{"id": "told", "allow": [f"s3://{world.inbox}/told/"]}])
    s3.put_object(Bucket=world.inbox, Key="told/a b.csv", Body=b"1\n")
    record = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": world.inbox}, "object": {"key": "told/a+b.csv", "sequencer": "01"}}}
    for _ in range(3):
        sns.publish(TopicArn=topic, Message=json.dumps({"Records": [record]}))
    assert kinds(world.drained("told", 1)) == ["new"]
    assert depth(world, world.dead) == 0


def test_poison_in_the_queue_goes_its_own_way_and_takes_nobody_along(world):
    s3, sqs = world.client("s3"), world.client("sqs")
    world.notify()
    world.apply([{"id": "mixed", "allow": [f"s3://{world.inbox}/mixed/"]}])
    entries = []
    for n in range(4):
        s3.put_object(Bucket=world.inbox, Key=f"mixed/{n}", Body=b"%d" % n)
        record = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": world.inbox}, "object": {"key": f"mixed/{n}", "sequencer": f"{n}"}}}
        entries.append(json.dumps({"Records": [record]}))
    entries[2:2] = ["not json", '{"Records":[{}]}', "[" * 10_000]
    sqs.send_message_batch(QueueUrl=world.queue, Entries=[{"Id": str(n), "MessageBody": body} for n, body in enumerate(entries)])
    assert len(world.drained("mixed", 4)) == 4
    wait_until("the three others are given up", lambda: depth(world, world.dead) == 3, 60, every=0.5)
    assert depth(world, world.queue) == 0
    world.verified()


def depth(world, queue):
    """Messages in a queue, once nobody has any in hand."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]

    def count():
        attributes = world.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
        return int(attributes[names[0]]), int(attributes[names[1]])

    wait_until("nothing is in hand", lambda: count()[1] == 0, 60, every=0.5)
    return count()[0]
