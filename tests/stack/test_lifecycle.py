"""Updating the stack under load loses nothing; deleting it keeps the data. Last: it takes the stack away."""

import threading

from world import World, wait_until


def test_an_update_under_load_loses_nothing_and_a_deletion_keeps_the_data():
    world = World("brief")
    try:
        world.webhook_source("steady")
        urls = [world.upstream.hold(f"/steady/{n}.json", f"{n}") for n in range(200)]
        accepted, stop = [], threading.Event()

        def provider():
            for n, url in enumerate(urls):
                while not stop.is_set():
                    try:
                        if world.deliver("steady", url, f"steady_{n}") in (200, 202):
                            accepted.append(url)
                            break
                    except OSError:
                        pass  # it delivers again

        calling = threading.Thread(target=provider)
        calling.start()
        wait_until("deliveries come in", lambda: len(accepted) > 10)
        world.deploy(MaximumConcurrency=7, LogRetentionDays=30)
        calling.join(120)
        stop.set()
        assert len(accepted) == 200
        assert len(world.drained("steady", 200)) == 200
        world.verified()
        before = world.client("dynamodb").scan(TableName=world.outputs["LedgerTable"], Select="COUNT")["Count"]

        world.client("cloudformation").delete_stack(StackName=world.name)
        gone = lambda: world.outputs["HandlerFunction"] not in {
            function["FunctionName"] for function in world.client("lambda").list_functions()["Functions"]
        }
        wait_until("the functions are gone", gone, 120)
        for table in ("LedgerTable", "ReplayTable", "SourcesTable"):
            assert world.client("dynamodb").describe_table(TableName=world.outputs[table])
        assert world.client("dynamodb").scan(TableName=world.outputs["LedgerTable"], Select="COUNT")["Count"] == before
        for bucket in ("Bucket", "RestrictedBucket", "InboxBucket"):
            world.client("s3").head_bucket(Bucket=world.outputs[bucket])
        assert world.client("s3").list_objects_v2(Bucket=world.outputs["Bucket"], Prefix="artifacts/")["KeyCount"] == 200
    finally:
        world.stop()
