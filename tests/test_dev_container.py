"""The dev container has keys that are known, and names versions, commands, files and ports that there are.

The reference of containers.dev is not asked: the keys and their shapes are kept here by hand.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import pytest

from labs.commands.main import COMMANDS

ROOT = Path(__file__).parents[1]
CONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
PORT = {
    "type": "object",
    "properties": {
        "label": {"type": "string"},
        "onAutoForward": {"enum": ["notify", "openBrowser", "openBrowserOnce", "openPreview", "silent", "ignore"]},
        "requireLocalPort": {"type": "boolean"},
    },
    "additionalProperties": False,
}
SHAPE = {
    "type": "object",
    "required": ["name", "image", "postCreateCommand", "forwardPorts"],
    "properties": {
        "name": {"type": "string"},
        "image": {"type": "string", "pattern": r"^mcr\.microsoft\.com/devcontainers/python:3\.1[1-4]-\w+$"},
        "hostRequirements": {
            "type": "object",
            "properties": {
                "cpus": {"type": "integer", "minimum": 2},
                "memory": {"type": "string", "pattern": r"^\d+([tgmk]b)?$"},
            },
            "additionalProperties": False,
        },
        "postCreateCommand": {"type": "string"},
        "postAttachCommand": {"type": "string"},
        "forwardPorts": {"type": "array", "items": {"type": "integer", "maximum": 65535}},
        "portsAttributes": {
            "type": "object",
            "patternProperties": {r"^\d+$": {**PORT, "required": ["label", "requireLocalPort"]}},
            "additionalProperties": False,
        },
        "otherPortsAttributes": {**PORT, "properties": {"onAutoForward": {"const": "ignore"}}},
        "customizations": {"type": "object", "required": ["vscode", "codespaces"]},
    },
    "additionalProperties": False,
}


def findings(container: dict) -> Iterator[str]:
    """Yield what is wrong with the dev container, one line each."""
    yield from (each.message for each in jsonschema.Draft202012Validator(SHAPE).iter_errors(container))
    if {str(port) for port in container["forwardPorts"]} != container["portsAttributes"].keys():
        yield "a port is forwarded that is not described, or the other way round"
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    said = " && ".join(container[key] for key in ("postCreateCommand", "postAttachCommand"))
    said += " && " + " && ".join(re.findall(r"\((.*?)\)", str(container["portsAttributes"])))
    for command in said.split(" && "):
        words = command.split()
        if not (words[0] == "make" and words[1] in targets) and not ("labs" in words and COMMANDS.keys() & set(words)):
            yield f"there is no {command}"
    for file in container["customizations"]["codespaces"]["openFiles"]:
        if not (ROOT / file.replace("my-lab/", "notebooks/")).exists():  # the desk is laid out of the notebooks
            yield f"there is no {file} to be opened"


def test_dev_container_is_whole():
    assert list(findings(CONTAINER)) == []


SPOILED: dict[str, Callable[[dict], object]] = {
    "'runArgs' was unexpected": lambda container: container.update(runArgs=["--privileged"]),
    "python:3.15-bookworm": lambda container: container.update(
        image="mcr.microsoft.com/devcontainers/python:3.15-bookworm"
    ),
    "a port is forwarded": lambda container: container["forwardPorts"].append(9092),
    "'ignore' was expected": lambda container: container["otherPortsAttributes"].update(onAutoForward="notify"),
    "there is no make everything": lambda container: container.update(postCreateCommand="make everything"),
    "there is no my-lab/attic.ipynb": lambda container: container["customizations"]["codespaces"].update(
        openFiles=["my-lab/attic.ipynb"]
    ),
}


@pytest.mark.parametrize("finding", SPOILED)
def test_spoiled_copy_is_found(finding):
    spoiled = copy.deepcopy(CONTAINER)
    SPOILED[finding](spoiled)
    assert finding in "\n".join(findings(spoiled))
