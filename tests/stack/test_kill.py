"""Functions are killed while they work: nothing is lost, nothing happens twice, nothing is left half done."""

import os
import random
import signal
import time

import pytest

from world import HANDLER_TIMEOUT_S

MESSAGES = 300
KILLS_MIN = 20


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_functions_lose_nothing(world, seed):
    """Replay with the seed in the test's name."""
    source = f"killed.{seed}"
    dice = random.Random(seed)
    world.webhook_source(source)
    urls = [world.upstream.hold(f"/killed/{seed}/{n}.json", f"{seed}/{n}") for n in range(MESSAGES)]
    for n, url in enumerate(urls):
        assert world.deliver(source, url, f"k{seed}_{n}") == 202
    kills = 0
    names = [world.outputs["HandlerFunction"], world.outputs["PublisherFunction"]]
    until = time.monotonic() + 60
    while kills < KILLS_MIN and time.monotonic() < until:
        running = sorted(process for name in names for process in world.emulator.functions(name))
        if running and world.waiting() > 0:
            os.kill(dice.choice(running), signal.SIGKILL)
            kills += 1
        time.sleep(dice.uniform(0.02, 0.3))
    assert kills >= KILLS_MIN, f"only {kills} kills found something to kill"
    # What a killed function had in hand comes back when its visibility ends.
    changes = world.drained(source, MESSAGES, seconds=20 * HANDLER_TIMEOUT_S)
    assert sorted(change["entity_id"] for change in changes) == sorted(urls)
    world.verified()

