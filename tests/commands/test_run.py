"""The limit of a job's micro-batches, if the user gives none."""

from __future__ import annotations

import argparse

import pytest

from labs.commands.run import _records_per_batch, add_arguments
from labs.pipeline.records import LARGEST_BATCH


@pytest.mark.bench
def test_only_a_source_of_one_partition_has_a_limit_by_default(broker, topic):
    def limit(source: str, *given: str) -> int | None:
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        options = ["--bootstrap-servers", broker.bootstrap_servers, "--source-topic", source, *given]
        return _records_per_batch(parser.parse_args(options))

    one, two = topic(partitions=1), topic(partitions=2)
    assert limit(one) == LARGEST_BATCH
    assert limit(two) is None
    assert limit("there is none") is None
    assert limit(one, "--records-per-batch", "80") == limit(two, "--records-per-batch", "80") == 80
