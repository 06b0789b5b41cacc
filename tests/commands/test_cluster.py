"""`python -m labs cluster`: prints where the cluster is, and leaves nothing behind."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import next_line

pytestmark = pytest.mark.long


def test_cluster_runs_until_it_is_told_to_end_and_cleans_up():
    command = [sys.executable, "-m", "labs", "cluster", "--workers", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = next_line(process.stdout)
            said = [next_line(process.stderr) for _ in range(3)]
            process.send_signal(signal.SIGTERM)
            _, rest = process.communicate(timeout=60)
        finally:
            process.kill()
    assert re.fullmatch(r"spark://127\.0\.0\.1:\d+\n", address), (said, rest)
    logs = [Path(line.strip().removeprefix("Log: ")) for line in said[:2]]
    assert [log.name for log in logs] == ["master.log", "worker-0.log"]
    assert not any(log.parents[1].exists() for log in logs)
    assert rest == "stopped\n"
    assert process.returncode == 0


def test_cluster_that_cannot_start_says_why_in_one_line():
    ran = subprocess.run([sys.executable, "-m", "labs", "cluster", "--workers", "0"], capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr == "python -m labs cluster: a cluster has one worker or more, not 0\n"
