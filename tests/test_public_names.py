"""What `import rocketstream` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import rocketstream


@pytest.mark.parametrize("name", rocketstream.__all__)
def test_every_public_name_can_be_imported(name):
    assert getattr(rocketstream, name) is not None
    assert name in dir(rocketstream)


def test_a_wrong_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = rocketstream.Nonsense


def test_the_version_is_the_packages():
    assert rocketstream.__version__ == version("rocketstream")


def test_importing_the_package_or_its_plugin_loads_no_client():
    program = (
        "import sys, rocketstream, rocketstream.testing.plugin;"
        "print([name for name in ('asyncio', 'ssl', 'pyspark', 'rocketstream.remoting') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "[]\n"
