"""Java's own push consumer pops from the embedded broker: everything once, what fails once more, nothing left out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from rocketstream.broker.embedded import EmbeddedBroker
from rocketstream.broker.pop import Pop
from rocketstream.testing.jars import resolve_jars
from rocketstream.testing.java import find_java
from rocketstream.testing.node import JAVA_17_DOORS
from rocketstream.testing.plugin import require_real
from tests.bare_client import eventually

PROGRAM = Path(__file__).with_name("java_pop") / "JavaPop.java"
COUNT = 100


def test_a_java_consumer_pops(tmp_path: Path) -> None:
    """(Its orderly consumer never does: it pulls whatever it is told.)"""
    require_real("5.5.0")
    with EmbeddedBroker(data=tmp_path / "data") as broker:
        node = broker._node
        assert node is not None
        done = subprocess.run(
            [
                *(str(find_java().executable), *JAVA_17_DOORS, "-Xmx200m", f"-Duser.home={tmp_path}"),
                *("-cp", resolve_jars("5.5.0").classpath, str(PROGRAM)),
                *(node.name_server_address, node.address, "popped", "java", str(COUNT)),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        (pop,) = (service for service in node.services if isinstance(service, Pop))
        eventually(lambda: len(pop.leases) == 0)
    times = json.loads(done.stdout.splitlines()[-1])
    assert times == {str(number): 1 + (number % 10 == 7) for number in range(COUNT)}
