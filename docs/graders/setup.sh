#!/usr/bin/env bash
# Gradescope runs this once, when it builds the image: choose one with Python 3.11 or newer, such as Ubuntu 24.04.
# The zip file that you upload holds this file, run_autograder, and the repository as the directory `lab`.
set -euo pipefail

apt-get update
apt-get install --yes --no-install-recommends make python3-venv
cd /autograder/source/lab
make setup
rm -r labs/exercises/solutions # what runs here could read them
