"""Functions are killed while they work: nothing is lost, nothing happens twice, nothing is left half done."""

import os
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from world import HANDLER_TIMEOUT_S

MESSAGES = 300
KILLS_MIN, KILLS_MAX = 20, 30
# Of the fetches, this share ends with a kill, at a moment between its request and well after its commit.
CHANCE = 0.15
DELAY_S_MAX = 0.25


class Killer:
    """Kills functions that are at work: it is told of every fetch, from inside of the upstream that is asked."""

    def __init__(self, world, seed):
        self.world, self.dice, self.kills = world, random.Random(seed), 0
        self.lock = threading.Lock()
        self.names = [world.outputs["HandlerFunction"], world.outputs["PublisherFunction"]]

    def fetched(self, path):
        with self.lock:
            if not path.startswith("/killed/") or self.dice.random() > CHANCE:
                return
            threading.Timer(self.dice.uniform(0, DELAY_S_MAX), self.kill).start()

    def kill(self):
        with self.lock:
            running = sorted(process for name in self.names for process in self.world.emulator.functions(name))
            if running and self.kills < KILLS_MAX:
                os.kill(self.dice.choice(running), signal.SIGKILL)
                self.kills += 1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_functions_lose_nothing(world, seed):
    """The seed is in the test's name; what runs at the same time as a kill is up to the machine."""
    source = f"killed.{seed}"
    world.webhook_source(source)
    urls = [world.upstream.hold(f"/killed/{seed}/{n}.json", f"{seed}/{n}") for n in range(MESSAGES)]
    with world.handling_paused(), ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda pair: world.deliver(source, pair[1], f"k{seed}_{pair[0]}"), enumerate(urls))) == {202}
        assert world.waiting() == MESSAGES
    killer = Killer(world, seed)
    world.upstream.told = killer.fetched
    # What a killed function had in hand comes back when its visibility ends.
    changes = world.drained(source, MESSAGES, seconds=30 * HANDLER_TIMEOUT_S)
    world.upstream.told = None
    assert killer.kills >= KILLS_MIN, f"only {killer.kills} kills found something to kill"
    assert sorted(change["entity_id"] for change in changes) == sorted(urls)
    world.verified()
