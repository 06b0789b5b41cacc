"""`python -m labs` itself: its help, and what it says about wrong arguments."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys

import pytest

from labs.commands.main import COMMANDS, GROUPS, main


def test_alone_it_prints_its_commands_in_groups(capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    groups = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert groups == [*GROUPS, "options"]
    indented = [line.split()[0] for line in lines if line.startswith("  ")]
    assert [word for word in indented if word in COMMANDS] == list(COMMANDS)


@pytest.mark.parametrize(
    "arguments", [["count", "a.log", "--colour"], ["doctor", "now"], ["generate", "--requests", "many"]]
)
def test_wrong_argument_shows_the_usage_of_its_command(capsys, arguments):
    with pytest.raises(SystemExit):
        main(arguments)
    said = capsys.readouterr().err
    assert said.startswith(f"usage: python -m labs {arguments[0]} ")
    assert arguments[-1] in said


def test_a_reader_that_ends_before_the_output_gets_no_traceback():
    program = "import sys, labs.commands.doctor as doctor; from labs.commands.main import main; "
    program += "doctor.run = lambda arguments: print('a line that Python keeps until its end') or 0; "
    command = shlex.join([sys.executable, "-c", program + "sys.exit(main(['doctor']))"])
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    ran = subprocess.run(["sh", "-c", f"{command} | true"], capture_output=True, text=True, env=buffered)
    assert ran.stderr == ""


def test_unknown_command_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["fly"])
    assert "'fly'" in capsys.readouterr().err


# Interrupts the program as soon as it looks for a certain module.
AT_AN_IMPORT = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED_AT"]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
"""
FIRST = "labs.commands.main"


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        (["demo"], FIRST),
        (["demo"], "labs.commands.demo"),
        (["count", "no.log"], "labs.commands.count"),
        (["run"], "pyspark"),
        (["broker"], "labs.commands.broker"),
        (["judge", "no-job"], "labs.judging.strikes"),
    ],
)
def test_ctrl_c_while_a_command_is_imported_leaves_no_traceback(tmp_path, arguments, module):
    (tmp_path / "sitecustomize.py").write_text(AT_AN_IMPORT)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "INTERRUPTED_AT": module}
    ended = subprocess.run(
        [sys.executable, "-m", "labs", *arguments], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")
