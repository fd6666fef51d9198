"""`make local-aws`: the shipped template on an emulator on this machine, and something that changes while you watch."""

import itertools
import json
import os
import signal
import sys
import time

from proxy import Proxy
from world import REPO, World

CHANGE_EVERY_S = 20
# The emulator's own schedules take a minute to begin; a person would not wait that long.
LOOK_EVERY_S = 5
SCHEDULED = {"version": "0", "source": "aws.events", "detail-type": "Scheduled Event", "detail": {}, "resources": []}

TALK = """
The stack `{name}` runs on an emulator on this machine; nothing leaves it. In another terminal:

  export AWS_ENDPOINT_URL={door} AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
  export TIDEMARK_STACK={name}; alias tidemark={program}

  tidemark status                                       how every source stands
  tidemark webhook send example.push --to {api}     a provider calls
  tidemark explain example.push                         what became of it
  curl '{api}/v1/changes'                           the feed, as readers see it

`example.poll` changes every {every} seconds. Ctrl-C ends all of it.
"""


def main():
    # A stop by `kill` tidies up like one by Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("Starting the emulator and deploying infra/template.yaml with `sam deploy` ...", flush=True)
    world = World("tidemark", HandlerTimeoutSeconds=60, QueueVisibilitySeconds=360)
    try:
        register(world)
        api = Proxy(world.api_host())
        api.upstream = world.emulator.port
        program = os.environ.get("TIDEMARK", REPO / "target/lambda/tidemark/bootstrap")
        talk = TALK.format(name=world.name, door=world.door.url, api=api.url, program=program, every=CHANGE_EVERY_S)
        print(talk, flush=True)
        watch(world)
    except KeyboardInterrupt:
        print()
    finally:
        world.stop()


def register(world):
    trusted = {"allow_http": True, "allow_private": True}
    plan = {"scheme": "standard-webhooks", "secrets": [world.secret("example")], "uri_pointer": "/uri"}
    polled = {"id": "example.poll", "url": world.upstream.hold("/tide.json", "{}"), "poll": {"every_s": LOOK_EVERY_S, "min_s": LOOK_EVERY_S}}
    pushed = {"id": "example.push", "url": world.upstream.hold("/pushed.json", "{}"), "webhook": plan}
    world.apply([{**polled, **trusted}, {**pushed, **trusted}])


def watch(world):
    """Upstream changes, the poller looks, and every new change is printed."""
    seen = 0
    for turn in itertools.count():
        if turn % (CHANGE_EVERY_S // LOOK_EVERY_S) == 0:
            world.upstream.hold("/tide.json", json.dumps({"tide": turn}))
        world.invoke("PollerFunction", SCHEDULED)
        for change in world.feed()[seen:]:
            seen = change["index"]
            print(f"{change['index']:>5}  {change['source']}  {change['change_type']}  {change['object_identity'].get('sha256', '')[:12]}", flush=True)
        time.sleep(LOOK_EVERY_S)


main()
