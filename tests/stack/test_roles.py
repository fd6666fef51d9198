"""Every function is denied what it does not need. The keys are those that the deployed function itself was given."""

import boto3
import botocore.exceptions
import pytest
from botocore.config import Config

from test_line import SCHEDULED
from world import REGION, wait_until

DENIED = {
    "AccessDenied",
    "AccessDeniedException",
    "403",
    "AuthorizationError",
    "UnauthorizedOperation",
    "AWS.SimpleQueueService.AccessDenied",
}


def wake(world, function):
    """Makes a process of the function run, so that its keys can be read."""
    events = {
        "PollerFunction": SCHEDULED,
        "SseFunction": SCHEDULED,
        "PublisherFunction": SCHEDULED,
        "HandlerFunction": {"Records": []},
        "S3EventFunction": {"Records": []},
    }
    if function in events:
        world.invoke(function, events[function])
    else:
        world.call("POST" if function == "WebhookFunction" else "GET", "/v1/webhooks/x" if function == "WebhookFunction" else "/healthz")
    environments = world.emulator.functions(world.outputs[function])
    return next(iter(environments.values()))


def calls(world):
    """Actions by name; each function is allowed a few of them, named below."""
    names = world.outputs
    key = {"pk": {"S": "x"}, "sk": {"S": "x"}}
    ledger, replay, sources = names["LedgerTable"], names["ReplayTable"], names["SourcesTable"]
    item = {"Key": key, "UpdateExpression": "SET x = :x", "ExpressionAttributeValues": {":x": {"S": "x"}}}
    return {
        "ledger.get": ("dynamodb", lambda c: c.get_item(TableName=ledger, Key=key)),
        "ledger.update": ("dynamodb", lambda c: c.update_item(TableName=ledger, **item)),
        "ledger.delete": ("dynamodb", lambda c: c.delete_item(TableName=ledger, Key=key)),
        "ledger.drop": ("dynamodb", lambda c: c.delete_table(TableName=ledger)),
        "replay.get": ("dynamodb", lambda c: c.get_item(TableName=replay, Key=key)),
        "replay.update": ("dynamodb", lambda c: c.update_item(TableName=replay, **item)),
        "replay.delete": ("dynamodb", lambda c: c.delete_item(TableName=replay, Key=key)),
        "replay.scan": ("dynamodb", lambda c: c.scan(TableName=replay)),
        "sources.update": ("dynamodb", lambda c: c.update_item(TableName=sources, **{**item, "Key": {"id": {"S": "x"}}})),
        "sources.get": ("dynamodb", lambda c: c.get_item(TableName=sources, Key={"id": {"S": "x"}})),
        "sources.put": ("dynamodb", lambda c: c.put_item(TableName=sources, Item={"id": {"S": "x"}})),
        "sources.delete": ("dynamodb", lambda c: c.delete_item(TableName=sources, Key={"id": {"S": "x"}})),
        "tables.list": ("dynamodb", lambda c: c.list_tables()),
        "queue.send": ("sqs", lambda c: c.send_message(QueueUrl=names["QueueUrl"], MessageBody="{}")),
        "queue.receive": ("sqs", lambda c: c.receive_message(QueueUrl=names["QueueUrl"])),
        "queue.purge": ("sqs", lambda c: c.purge_queue(QueueUrl=names["QueueUrl"])),
        "dead.send": ("sqs", lambda c: c.send_message(QueueUrl=names["DeadLetterUrl"], MessageBody="{}")),
        "dead.receive": ("sqs", lambda c: c.receive_message(QueueUrl=names["DeadLetterUrl"])),
        "artifact.put": ("s3", lambda c: c.put_object(Bucket=names["Bucket"], Key="artifacts/x", Body=b"x")),
        "artifact.delete": ("s3", lambda c: c.delete_object(Bucket=names["Bucket"], Key="artifacts/x")),
        "run.delete": ("s3", lambda c: c.delete_object(Bucket=names["Bucket"], Key="runs/x")),
        "other.put": ("s3", lambda c: c.put_object(Bucket=names["Bucket"], Key="other/x", Body=b"x")),
        "bucket.drop": ("s3", lambda c: c.delete_bucket(Bucket=names["Bucket"])),
        "restricted.put": ("s3", lambda c: c.put_object(Bucket=names["RestrictedBucket"], Key="artifacts/x", Body=b"x")),
        "inbox.put": ("s3", lambda c: c.put_object(Bucket=names["InboxBucket"], Key="x", Body=b"x")),
        "secret.get": ("secretsmanager", lambda c: c.get_secret_value(SecretId=f"{world.name}/provider")),
        "secret.put": ("secretsmanager", lambda c: c.put_secret_value(SecretId=f"{world.name}/provider", SecretString="x")),
        "secret.list": ("secretsmanager", lambda c: c.list_secrets()),
        "function.invoke": ("lambda", lambda c: c.invoke(FunctionName=names["HandlerFunction"], Payload=b"{}")),
        "role.list": ("iam", lambda c: c.list_roles()),
        "stack.delete": ("cloudformation", lambda c: c.delete_stack(StackName="no-such-stack")),
    }


# What each may do of the above; all else must be refused.
ALLOWED = {
    "WebhookFunction": {"sources.get", "sources.update", "replay.get", "replay.update", "queue.send", "secret.get"},
    # Manifests of listings are artifacts.
    "PollerFunction": {"sources.get", "sources.update", "ledger.get", "replay.get", "replay.update", "queue.send", "artifact.put"},
    "SseFunction": {"sources.update", "replay.get", "replay.update", "queue.send"},
    "S3EventFunction": {"replay.get", "replay.update", "queue.send"},
    # Of the replay log it may only delete hints. The emulator does not read that condition; the test of the template does.
    "HandlerFunction": {"ledger.get", "ledger.update", "replay.get", "replay.update", "replay.delete", "sources.get", "queue.receive"}
    | {"dead.send", "artifact.put"},
    "PublisherFunction": {"ledger.get", "ledger.update"},
    "FeedFunction": {"ledger.get", "replay.get", "sources.get"},
}


def attempt(world, environment, service, call):
    """Was the call refused for want of a permission?"""
    client = boto3.client(
        service,
        endpoint_url=world.door.url,
        region_name=REGION,
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        aws_session_token=environment["AWS_SESSION_TOKEN"],
        config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}),
    )
    try:
        call(client)
        return False
    except botocore.exceptions.ClientError as error:
        return error.response["Error"]["Code"] in DENIED


@pytest.mark.parametrize("function", sorted(ALLOWED))
def test_a_function_is_denied_what_it_does_not_need(world, function):
    world.webhook_source("roles")
    environment = wait_until("its process runs", lambda: wake(world, function))
    other = {name: call for name, call in calls(world).items() if name not in ALLOWED[function]}
    refused = {name for name, (service, call) in other.items() if attempt(world, environment, service, call)}
    assert set(other) - refused == set(), f"{function} may do what it does not need"
    assert len(refused) >= 10
    # The same keys are good for what it does need: the refusals are about the action, not about the keys.
    needed = next(name for name in sorted(ALLOWED[function]) if name.endswith(".get"))
    assert not attempt(world, environment, *calls(world)[needed])
