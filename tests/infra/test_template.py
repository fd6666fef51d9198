"""What the emulator cannot show, read from the template itself: permissions, retention, lifecycle, limits, alarms.

Every check is a function that returns what is wrong. Each is run on the shipped template, where it must find nothing,
and on a copy with one thing spoilt, where it must find something: a check that cannot fail does not pass.
"""

import copy
import re
from pathlib import Path

import pytest
from cfnlint.decode import cfn_yaml

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = cfn_yaml.load(str(ROOT / "infra/template.yaml"))
TABLES = (ROOT / "shared/aws/src/tables.rs").read_text()
FUNCTIONS = {"Webhook", "Poller", "Sse", "S3Event", "Handler", "Publisher", "Feed"}
ATTEMPTS_MAX = 8  # of the handler, before it gives up by itself


def plain(value):
    """Without cfn-lint's node classes, so that it can be copied, compared and spoilt."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value


@pytest.fixture
def template():
    return copy.deepcopy(plain(TEMPLATE))


def of(template, kind):
    return {name: r for name, r in template["Resources"].items() if r["Type"] == kind}


def arn(name):
    return {"Fn::GetAtt": [name, "Arn"]}


def references(value):
    """Every name that `value` refers to, also inside texts."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "Ref":
                yield inner
            elif key == "Fn::GetAtt":
                yield inner[0] if isinstance(inner, list) else inner.split(".")[0]
            elif key == "Fn::Sub":
                text = inner if isinstance(inner, str) else inner[0]
                own = set() if isinstance(inner, str) else set(inner[1])
                yield from (n.split(".")[0] for n in re.findall(r"\$\{([^!}]+)\}", text) if n not in own)
                if not isinstance(inner, str):
                    yield from references(inner[1])
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


# ---- The checks


def permissions(template):
    """Each trigger that calls a function needs a permission that names the function, the service and the trigger."""
    wrong, granted, needed = [], [], []
    for name, r in of(template, "AWS::Lambda::Permission").items():
        p = r["Properties"]
        if p["Action"] != "lambda:InvokeFunction" or "SourceArn" not in p:
            wrong.append(f"{name} is too wide")
        granted.append((p["FunctionName"].get("Ref"), p["Principal"], p.get("SourceArn")))
    for name, r in of(template, "AWS::Events::Rule").items():
        for target in r["Properties"]["Targets"]:
            needed.append((target["Arn"]["Fn::GetAtt"][0], "events.amazonaws.com", arn(name)))
    for name, r in of(template, "AWS::S3::Bucket").items():
        p = r["Properties"]
        for trigger in p.get("NotificationConfiguration", {}).get("LambdaConfigurations", []):
            source = {"Fn::Sub": ["arn:${AWS::Partition}:s3:::${Name}", {"Name": p.get("BucketName")}]}
            needed.append((trigger["Function"]["Fn::GetAtt"][0], "s3.amazonaws.com", source))
            # S3 tries the permission while the bucket is made.
            if r.get("DependsOn") not in of(template, "AWS::Lambda::Permission"):
                wrong.append(f"{name} does not wait for its permission")
    # Of API Gateway, the pattern of the permission must match the route.
    for name, r in of(template, "AWS::ApiGatewayV2::Route").items():
        integration = re.fullmatch(r"integrations/\$\{(\w+)\}", r["Properties"]["Target"]["Fn::Sub"])[1]
        function = template["Resources"][integration]["Properties"]["IntegrationUri"]["Fn::GetAtt"][0]
        method, path = r["Properties"]["RouteKey"].split(" ")
        base = "arn:${AWS::Partition}:execute-api:${AWS::Region}:${AWS::AccountId}:${Api}"
        called = f"{base}/$default/{method}{path}"
        patterns = [s["Fn::Sub"] for f, p, s in granted if (f, p) == (function, "apigateway.amazonaws.com")]
        if not any(re.fullmatch(".*".join(map(re.escape, p.split("*"))), called) for p in patterns):
            wrong.append(f"{name} may not call {function}")
        if not all(p.startswith(f"{base}/") for p in patterns):
            wrong.append(f"{function} may be called by another API")
    return wrong + [f"{f} may not be called by {p} {s}" for f, p, s in needed if (f, p, s) not in granted]


def routes(template):
    """The public paths, and that only webhooks and the health check are open to all."""
    found = {r["Properties"]["RouteKey"]: r["Properties"]["AuthorizationType"] for r in of(template, "AWS::ApiGatewayV2::Route").values()}
    feed = {"Ref": "FeedAuthorization"}
    wanted = {f"{method} /v1/webhooks/{{source}}": "NONE" for method in ("POST", "GET", "OPTIONS")} | {"GET /healthz": "NONE"}
    paths = ["changes", "changes/{id}", "explain/{id}", "sources", "documents/{key+}", "artifacts/{sha256}"]
    wanted |= {f"GET /v1/{path}": feed for path in paths}
    default = template["Parameters"]["FeedAuthorization"]["Default"]
    return [f"{found} is not {wanted}"] * (found != wanted) + ["the feed is open by default"] * (default != "AWS_IAM")


def retained(template):
    """Data survives deletion and replacement."""
    data = {**of(template, "AWS::DynamoDB::Table"), **of(template, "AWS::S3::Bucket")}
    data |= {name: r for name, r in of(template, "AWS::SQS::Queue").items() if name != "WorkQueue"}
    missing = {"LedgerTable", "ReplayTable", "SourcesTable", "Bucket", "RestrictedBucket", "InboxBucket", "DeadLetterQueue"} - set(data)
    policies = ("DeletionPolicy", "UpdateReplacePolicy")
    return list(missing) + [f"{name}: {p}" for name, r in data.items() for p in policies if r.get(p) != "Retain"]


def buckets(template):
    """Encrypted, versioned, closed to the public, TLS only, and nothing temporary stays."""
    wrong = []
    policies = {p["Properties"]["Bucket"]["Ref"]: p["Properties"]["PolicyDocument"] for p in of(template, "AWS::S3::BucketPolicy").values()}
    for name, r in of(template, "AWS::S3::Bucket").items():
        p = r["Properties"]
        block = p.get("PublicAccessBlockConfiguration", {})
        rules = [rule for rule in p.get("LifecycleConfiguration", {}).get("Rules", []) if rule["Status"] == "Enabled"]
        everywhere = [rule for rule in rules if "Prefix" not in rule]
        staging = [rule for rule in rules if rule.get("Prefix") == "staging/"]
        others = [rule for rule in rules if rule not in staging]
        deny = [
            s
            for s in policies.get(name, {}).get("Statement", [])
            if (s["Effect"], s["Principal"], s["Action"]) == ("Deny", "*", "s3:*")
            and s["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
            and s["Resource"] == [arn(name), {"Fn::Sub": f"${{{name}.Arn}}/*"}]
        ]
        facts = {
            "encrypted": bool(p.get("BucketEncryption")),
            "versioned": p.get("VersioningConfiguration") == {"Status": "Enabled"},
            "not public": len(block) == 4 and all(value is True for value in block.values()),
            "TLS only": len(deny) == 1,
            "uploads aborted after a day": any(
                rule.get("AbortIncompleteMultipartUpload") == {"DaysAfterInitiation": 1} for rule in everywhere
            ),
            "noncurrent expire": any("NoncurrentVersionExpiration" in rule for rule in everywhere),
            "staging expires after two days": name == "InboxBucket" or any(rule.get("ExpirationInDays") == 2 for rule in staging),
            "nothing else expires": not any("ExpirationInDays" in rule or "ExpirationDate" in rule for rule in others),
        }
        wrong += [f"{name} is not: {fact}" for fact, holds in facts.items() if not holds]
    return wrong


def declared_tables():
    """Tables as `tables.rs` declares them: keys with types, indexes."""
    key = r'\("(\w+)", "([SN])"\)'
    for body in re.findall(r"pub const \w+: Table = Table \{(.*?)\n\};", TABLES, re.S):
        name = re.search(r'name: "(\w+)",\n\s+partition', body)[1]
        partition = re.search(rf"\n\s+partition: {key}", body).groups()
        sort = re.search(rf"\n\s+sort: Some\({key}\)", body)
        indexes = {
            i[0]: [i[1:3], i[3:5]] for i in re.findall(rf'Index \{{ name: "(\w+)", partition: {key}, sort: {key} \}}', body)
        }
        yield name, [partition, *([sort.groups()] if sort else [])], indexes


def tables(template):
    """Keys and indexes are those of the code; recovery and encryption are on; nobody plans capacity."""
    wrong = []
    declared = {name: (keys, indexes) for name, keys, indexes in declared_tables()}
    found = of(template, "AWS::DynamoDB::Table")
    if set(declared) != set(found) or len(declared) != TABLES.count(": Table = Table {"):
        wrong.append(f"tables: {set(declared)} declared, {set(found)} in the template")
    for name in set(declared) & set(found):
        p = found[name]["Properties"]
        types = {a["AttributeName"]: a["AttributeType"] for a in p["AttributeDefinitions"]}

        def keys(schema):
            ordered = sorted(schema, key=lambda k: k["KeyType"])  # HASH, RANGE
            return [(k["AttributeName"], types.get(k["AttributeName"])) for k in ordered]

        indexes = {i["IndexName"]: keys(i["KeySchema"]) for i in p["GlobalSecondaryIndexes"]}
        facts = {
            "keys as declared": keys(p["KeySchema"]) == declared[name][0],
            "indexes as declared": indexes == declared[name][1],
            "keys only": all(i["Projection"] == {"ProjectionType": "KEYS_ONLY"} for i in p["GlobalSecondaryIndexes"]),
            "on demand": p["BillingMode"] == "PAY_PER_REQUEST",
            "recoverable": p.get("PointInTimeRecoverySpecification") == {"PointInTimeRecoveryEnabled": True},
            "encrypted": p.get("SSESpecification") == {"SSEEnabled": True},
        }
        wrong += [f"{name} is not: {fact}" for fact, holds in facts.items() if not holds]
    if found["LedgerTable"]["Properties"].get("StreamSpecification") != {"StreamViewType": "NEW_IMAGE"}:
        wrong.append("the ledger does not wake the publisher")
    if found["ReplayTable"]["Properties"].get("TimeToLiveSpecification") != {"AttributeName": "ttl", "Enabled": True}:
        wrong.append("hints do not expire")
    return wrong


def chosen(template, value):
    """A value, or the default of the parameter that it refers to."""
    return template["Parameters"][value["Ref"]]["Default"] if isinstance(value, dict) else value


def queues(template):
    """A message is not seen twice while it is worked on, comes back if the worker dies, and is never dropped."""
    resources = template["Resources"]
    work, dead = resources["WorkQueue"]["Properties"], resources["DeadLetterQueue"]["Properties"]
    mapping = resources["WorkMapping"]["Properties"]
    handler = resources["HandlerFunction"]["Properties"]
    stream = resources["UnpublishedMapping"]["Properties"]
    facts = {
        "visibility at least six timeouts": chosen(template, work["VisibilityTimeout"]) >= 6 * chosen(template, handler["Timeout"]) + mapping.get("MaximumBatchingWindowInSeconds", 0),
        "the backstop is well above the handler's own limit": work["RedrivePolicy"]["maxReceiveCount"] > 2 * ATTEMPTS_MAX,
        "what fails goes to the dead letters": work["RedrivePolicy"]["deadLetterTargetArn"] == arn("DeadLetterQueue"),
        "dead letters are kept for 14 days": dead["MessageRetentionPeriod"] == 14 * 24 * 3600,
        "encrypted": all(q["Properties"].get("SqsManagedSseEnabled") is True for q in of(template, "AWS::SQS::Queue").values()),
        "the handler is mapped": (mapping["FunctionName"], mapping["EventSourceArn"]) == ({"Ref": "HandlerFunction"}, arn("WorkQueue")),
        "only failed messages come back": mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"],
        "batches of ten": mapping["BatchSize"] == 10,
        "bounded by the mapping": "MaximumConcurrency" in mapping["ScalingConfig"],
        "not by reserved concurrency": "ReservedConcurrentExecutions" not in handler,
        "the stream is bounded": stream["BisectBatchOnFunctionError"] is True and stream["MaximumRetryAttempts"] <= 10,
        "the stream wakes for unpublished changes only": stream["FilterCriteria"]["Filters"]
        == [{"Pattern": '{"dynamodb":{"NewImage":{"open":{"S":["unpublished"]}}}}'}],
    }
    objects = resources["ObjectQueueMapping"]
    facts |= {
        "the queue of objects is mapped only where there is one": objects["Condition"] == "HasObjectQueue",
        "of its batches only failed messages come back": objects["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"],
        "it is bounded by its mapping": "MaximumConcurrency" in objects["Properties"]["ScalingConfig"],
    }
    return [fact for fact, holds in facts.items() if not holds]


def objects(template):
    """Events of objects come only from the buckets and the queue that were named; without any, nobody else may call or be read."""
    resources = template["Resources"]
    rule, policy = resources["ObjectRule"], resources["ObjectQueuePolicy"]
    conditions = template["Conditions"]
    facts = {
        "the rule hears of named buckets only": rule["Properties"]["EventPattern"]
        == {
            "source": ["aws.s3"],
            "detail-type": ["Object Created", "Object Deleted"],
            "detail": {"bucket": {"name": {"Ref": "EventBridgeBuckets"}}},
        },
        "no buckets, no rule": {rule["Condition"], resources["S3EventFromRule"]["Condition"]} == {"HasEventBridgeBuckets"},
        "no queue, no permission": policy["Condition"] == "HasObjectQueue",
        "the permission is there before the mapping": resources["ObjectQueueMapping"].get("DependsOn") == "ObjectQueuePolicy",
        "none by default": all(template["Parameters"][name]["Default"] == "" for name in ("EventBridgeBuckets", "ObjectQueueArn")),
        "empty means none": conditions["HasObjectQueue"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "ObjectQueueArn"}, ""]}]}
        and conditions["HasEventBridgeBuckets"] == {"Fn::Not": [{"Fn::Equals": [{"Fn::Join": ["", {"Ref": "EventBridgeBuckets"}]}, ""]}]},
        "it may take from that queue and no other": policy["Properties"]["PolicyDocument"]["Statement"]
        == [
            {
                "Sid": "ObjectQueue",
                "Effect": "Allow",
                "Action": ["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"],
                "Resource": {"Ref": "ObjectQueueArn"},
            }
        ],
        "no other policy stands outside of its role": set(of(template, "AWS::IAM::Policy")) == {"ObjectQueuePolicy"}
        and policy["Properties"]["Roles"] == [{"Ref": "S3EventRole"}],
    }
    return [fact for fact, holds in facts.items() if not holds]


ONLY_HINTS = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["H#*"]}}


def roles(template):
    """A role for each function, used by no other, with no wildcard that AWS does not force on us."""
    wrong = []
    functions = of(template, "AWS::Serverless::Function")
    used = [f["Properties"]["Role"]["Fn::GetAtt"][0] for f in functions.values()]
    if {f"{name}Function" for name in FUNCTIONS} != set(functions) or len(set(used)) != len(functions):
        wrong.append(f"roles {used} for {set(functions)}")
    if set(used) != set(of(template, "AWS::IAM::Role")):
        wrong.append("there is a role that no function has")
    for name, role in of(template, "AWS::IAM::Role").items():
        p = role["Properties"]
        if "ManagedPolicyArns" in p:
            wrong.append(f"{name} takes a policy that is not written here")
        trust = [s["Principal"] for s in p["AssumeRolePolicyDocument"]["Statement"]]
        if trust != [{"Service": "lambda.amazonaws.com"}]:
            wrong.append(f"{name} may be assumed by {trust}")
        for s in (s for policy in p["Policies"] for s in policy["PolicyDocument"]["Statement"]):
            where = f"{name}/{s.get('Sid')}"
            actions = s["Action"] if isinstance(s["Action"], list) else [s["Action"]]
            resources = s["Resource"] if isinstance(s["Resource"], list) else [s["Resource"]]
            wrong += [f"{where}: {a}" for a in actions if "*" in a or not re.fullmatch(r"[a-z0-9]+:[A-Z]\w+", a)]
            if any(a == "dynamodb:DeleteItem" for a in actions) and s.get("Condition") != ONLY_HINTS:
                wrong.append(f"{where}: deletes more than hints")
            if s["Effect"] != "Allow" or {"NotAction", "NotResource"} & set(s):
                wrong.append(f"{where}: only plain permissions")
            for r in resources:
                text = r if isinstance(r, str) else (r.get("Fn::Sub") or "")
                text = text if isinstance(text, str) else text[0]
                # A star may only stand for the rest of a key or of a secret's name.
                if isinstance(r, str) or ("*" in text and not re.search(r"(Arn\}/\w+/\*|\$\{Name\}/\*|\$\{Prefix\}/\*)$", text)):
                    wrong.append(f"{where}: resource {r}")
    feed = template["Resources"]["FeedRole"]["Properties"]["Policies"]
    for s in (s for policy in feed for s in policy["PolicyDocument"]["Statement"] if s["Sid"] != "Logs"):
        actions = s["Action"] if isinstance(s["Action"], list) else [s["Action"]]
        wrong += [f"the feed writes: {a}" for a in actions if not re.search(r":(Get|BatchGet|Query|Scan|List)", a)]
    return wrong


def functions(template):
    """Where the code is, how long it may run, where it logs, and what it is told."""
    wrong = []
    told = set(template["Globals"]["Function"]["Environment"]["Variables"])
    names = {"LEDGER_TABLE", "REPLAY_TABLE", "SOURCES_TABLE", "QUEUE_URL", "DEAD_LETTER_URL", "BUCKET", "SECRET_PREFIX", "CONTACT"}
    wrong += sorted(names - told)
    for name, f in of(template, "AWS::Serverless::Function").items():
        p = f["Properties"]
        binary = re.fullmatch(r"\.\./target/lambda/([\w-]+)/", p["CodeUri"])[1]
        manifest = (ROOT / "functions/Cargo.toml").read_text()
        if f'name = "{binary}"' not in manifest:
            wrong.append(f"{name}: nothing builds {binary}")
        group = template["Resources"].get(p["LoggingConfig"]["LogGroup"]["Ref"], {}).get("Properties", {})
        if group.get("LogGroupName", {}).get("Fn::Sub") != "/aws/lambda/" + p["FunctionName"]["Fn::Sub"]:
            wrong.append(f"{name}: logs elsewhere")
        if group.get("RetentionInDays") != {"Ref": "LogRetentionDays"}:
            wrong.append(f"{name}: logs stay for ever")
    for name in ("WebhookFunction", "FeedFunction"):
        if template["Resources"][name]["Properties"]["Timeout"] >= 30:
            wrong.append(f"{name} outlives the request")
    return wrong


def alarms(template):
    """Each thing that can go wrong has an alarm, and each alarm watches something that exists."""
    wrong, watched = [], set()
    for name, r in of(template, "AWS::CloudWatch::Alarm").items():
        p = r["Properties"]
        dimension, *others = p["Dimensions"]
        (target,) = references(dimension["Value"])
        kinds = {"AWS/SQS": "AWS::SQS::Queue", "AWS/Lambda": "AWS::Serverless::Function"}
        if p["Namespace"] == "Tidemark":
            # As the functions write them; without one of the two there is no such metric.
            function = {"FreshnessLagMs": "handler", "Silent": "sse", "SourcesFailing": "poller"}[p["MetricName"]]
            if (dimension["Name"], target) != ("Stack", "AWS::StackName") or others != [{"Name": "Function", "Value": function}]:
                wrong.append(f"{name} watches {p['Dimensions']}")
        elif others or template["Resources"].get(target, {}).get("Type") != kinds[p["Namespace"]]:
            wrong.append(f"{name} watches {target}")
        topic = {"Fn::If": ["HasAlarmTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
        if p.get("AlarmActions") != topic:
            wrong.append(f"{name} tells nobody")
        watched.add((target, p["MetricName"]))
    wanted = {(f"{f}Function", metric) for f in FUNCTIONS for metric in ("Errors", "Throttles")}
    wanted |= {("DeadLetterQueue", "ApproximateNumberOfMessagesVisible"), ("UndeliveredQueue", "ApproximateNumberOfMessagesVisible")}
    wanted |= {("WorkQueue", "ApproximateAgeOfOldestMessage"), ("AWS::StackName", "FreshnessLagMs"), ("AWS::StackName", "Silent")}
    wanted |= {("AWS::StackName", "SourcesFailing")}
    return wrong + [f"no alarm for {w}" for w in sorted(wanted - watched)]


def outputs(template):
    """What the command line, the tests and people look up by name."""
    names = {"LedgerTable", "ReplayTable", "SourcesTable", "QueueUrl", "DeadLetterUrl", "Bucket", "RestrictedBucket", "InboxBucket"}
    names |= {"ApiUrl", "EventBus"} | {f"{f}Function" for f in FUNCTIONS}
    return sorted(names - set(template["Outputs"]))


def dangling(template):
    """References to what is not there; cfn-lint finds those as well, but not inside a dashboard's text."""
    known = set(template["Resources"]) | set(template["Parameters"])
    return sorted({n for n in references(template) if n not in known and not n.startswith("AWS::")})


# ---- Each check on the template as it is, and on one that is spoilt


CHECKS = [permissions, routes, retained, buckets, tables, queues, objects, roles, functions, alarms, outputs, dangling]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_template_is_right(template, check):
    assert check(template) == []


def statement(template, role, sid):
    policies = template["Resources"][role]["Properties"]["Policies"]
    return next(s for p in policies for s in p["PolicyDocument"]["Statement"] if s["Sid"] == sid)


def without(*path):
    """Removes what `path` leads to."""

    def spoil(template):
        for step in path[:-1]:
            template = template[step]
        del template[path[-1]]

    return spoil


def having(value, *path):
    """Puts `value` where `path` leads."""

    def spoil(template):
        for step in path[:-1]:
            template = template[step]
        template[path[-1]] = value

    return spoil


R, P = "Resources", "Properties"
PLANTED = [
    *((permissions, without(R, name)) for name in plain(TEMPLATE)[R] if plain(TEMPLATE)[R][name]["Type"] == "AWS::Lambda::Permission"),
    *((permissions, without(R, name, P, "SourceArn")) for name in ("PollerFromSchedule", "SseFromSchedule", "S3EventFromInbox")),
    (permissions, having({"Ref": "FeedFunction"}, R, "PollerFromSchedule", P, "FunctionName")),
    (permissions, having(arn("SweepSchedule"), R, "PollerFromSchedule", P, "SourceArn")),
    (permissions, having("POST /v2/webhooks/{source}", R, "WebhookRoute", P, "RouteKey")),
    (permissions, without(R, "InboxBucket", "DependsOn")),
    (routes, having("NONE", R, "ChangesRoute", P, "AuthorizationType")),
    (routes, without(R, "ExplainRoute")),
    (routes, without(R, "WebhookHandshakeRoute")),
    (routes, having("NONE", "Parameters", "FeedAuthorization", "Default")),
    *((retained, without(R, name, "DeletionPolicy")) for name in ("LedgerTable", "RestrictedBucket", "DeadLetterQueue")),
    (retained, having("Delete", R, "InboxBucket", "UpdateReplacePolicy")),
    (buckets, without(R, "RestrictedBucketPolicy")),
    (buckets, without(R, "Bucket", P, "LifecycleConfiguration", "Rules", 0)),
    (buckets, without(R, "Bucket", P, "LifecycleConfiguration", "Rules", 1)),
    (buckets, without(R, "InboxBucket", P, "LifecycleConfiguration", "Rules", 1)),
    (buckets, having(30, R, "Bucket", P, "LifecycleConfiguration", "Rules", 0, "ExpirationInDays")),
    (buckets, having(False, R, "Bucket", P, "PublicAccessBlockConfiguration", "BlockPublicPolicy")),
    (buckets, without(R, "InboxBucket", P, "VersioningConfiguration")),
    (buckets, having("true", R, "BucketPolicy", P, "PolicyDocument", "Statement", 0, "Condition", "Bool", "aws:SecureTransport")),
    (tables, without(R, "SourcesTable", P, "PointInTimeRecoverySpecification")),
    (tables, having("S", R, "LedgerTable", P, "AttributeDefinitions", 3, "AttributeType")),
    (tables, without(R, "ReplayTable", P, "GlobalSecondaryIndexes", 3)),
    (tables, without(R, "SourcesTable", P, "GlobalSecondaryIndexes", 1)),
    (tables, having("ALL", R, "ReplayTable", P, "GlobalSecondaryIndexes", 0, "Projection", "ProjectionType")),
    (tables, without(R, "LedgerTable", P, "StreamSpecification")),
    (queues, having(301, R, "HandlerFunction", P, "Timeout")),
    (queues, having(ATTEMPTS_MAX, R, "WorkQueue", P, "RedrivePolicy", "maxReceiveCount")),
    (queues, having([], R, "WorkMapping", P, "FunctionResponseTypes")),
    (queues, having([], R, "ObjectQueueMapping", P, "FunctionResponseTypes")),
    (objects, having([{"exists": True}], R, "ObjectRule", P, "EventPattern", "detail", "bucket", "name")),
    (objects, having("*", R, "ObjectQueuePolicy", P, "PolicyDocument", "Statement", 0, "Resource")),
    (objects, having([{"Ref": "HandlerRole"}], R, "ObjectQueuePolicy", P, "Roles")),
    (objects, without(R, "ObjectQueueMapping", "DependsOn")),
    (objects, having("HasAlarmTopic", R, "ObjectQueuePolicy", "Condition")),
    (roles, having(arn("FeedRole"), R, "WebhookFunction", P, "Role")),
    (roles, lambda t: statement(t, "HandlerRole", "Ledger").update(Action="dynamodb:*")),
    (roles, lambda t: statement(t, "HandlerRole", "Ledger").update(Resource="*")),
    (roles, lambda t: statement(t, "HandlerRole", "ForgetHint").pop("Condition")),
    (roles, lambda t: statement(t, "FeedRole", "Indexes").update(Resource={"Fn::Sub": "${LedgerTable.Arn}/*"})),
    (roles, lambda t: statement(t, "FeedRole", "Tables").update(Action="dynamodb:PutItem")),
    (roles, having(["arn:aws:iam::aws:policy/AmazonS3FullAccess"], R, "FeedRole", P, "ManagedPolicyArns")),
    (functions, having("../target/lambda/handlr/", R, "HandlerFunction", P, "CodeUri")),
    (functions, without(R, "FeedLogGroup")),
    (functions, without("Globals", "Function", "Environment", "Variables", "BUCKET")),
    (alarms, without(R, "DeadLettersAlarm")),
    (alarms, without(R, "PublisherThrottlesAlarm")),
    (alarms, having({"Ref": "Gone"}, R, "FeedErrorsAlarm", P, "Dimensions", 0, "Value")),
    (alarms, without(R, "FreshnessAlarm", P, "AlarmActions")),
    (alarms, without(R, "FreshnessAlarm", P, "Dimensions", 1)),
    (alarms, without(R, "SilenceAlarm")),
    (alarms, having("handler", R, "SilenceAlarm", P, "Dimensions", 1, "Value")),
    (alarms, without(R, "SourcesFailingAlarm")),
    (outputs, without("Outputs", "DeadLetterUrl")),
    (dangling, having({"Fn::Sub": '{"widgets": ["${Gone.QueueName}"]}'}, R, "Dashboard", P, "DashboardBody")),
]


@pytest.mark.parametrize("number", range(len(PLANTED)), ids=lambda n: f"{PLANTED[n][0].__name__}-{n}")
def test_a_spoilt_template_is_noticed(template, number):
    check, spoil = PLANTED[number]
    spoil(template)
    assert check(template) != []
