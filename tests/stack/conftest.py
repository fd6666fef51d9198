"""One deployed stack for all tests; each test has sources of its own."""

import pytest

from world import World


@pytest.fixture(scope="session")
def world():
    world = World()
    yield world
    world.stop()


@pytest.fixture(autouse=True)
def undisturbed(world):
    """Whatever a test did to the connection ends with it."""
    yield
    world.proxy.leave_alone()
