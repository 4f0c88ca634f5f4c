"""The contract with Dynamo's counts, beside the newest PyTorch of the default tier."""

from __future__ import annotations

from tests.contract.test_dynamo import *  # noqa: F403  (the same tests; contract has the other releases)
