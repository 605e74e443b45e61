"""The programs of the compiled module, as the command lines of the wheel start them."""

import json
import signal
import subprocess
import sys

import pytest
from conftest import CORA


def _line(name, *arguments):
    return [sys.executable, "-c", f"from grappa import programs; programs.{name}()", *map(str, arguments)]


def _run(name, *arguments):
    return subprocess.run(_line(name, *arguments), capture_output=True, text=True)


def test_results_are_on_stdout_and_warnings_on_stderr(tmp_path):
    edges = tmp_path / "edges.csv"
    edges.write_text("user,item\n1,2\n2,3\n")
    made = _run("ingest", "--edges", edges, "--out", tmp_path / "x.grappa", "--ids", "string", "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["edges"] == 3
    assert made.stderr.lstrip().startswith(f"WARN {edges}:1: the first line") and "--header yes" in made.stderr
    shown = _run("store", "export", tmp_path / "x.grappa", "--edges", "-")
    assert shown.stdout.splitlines()[0] == "source\ttarget" and len(shown.stdout.splitlines()) == 4, shown.stderr
    verified = _run("store", "verify", tmp_path / "x.grappa", "--quiet")
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("name", "arguments", "code", "message"),
    [
        ("store", ["info", "nowhere.grappa"], 1, "error: nowhere.grappa: there is no such store"),
        ("gen", ["er", "--scale", "99"], 2, "99 is not in 0..=40"),
        ("store", ["inf"], 2, "similar subcommand exists: 'info'"),
        ("ingest", [], 2, "Usage: grappa-ingest"),
    ],
)
def test_failures_have_the_exit_codes_of_programs(name, arguments, code, message):
    ended = _run(name, *arguments)
    assert ended.returncode == code, ended.stderr
    assert message in ended.stderr and "Traceback" not in ended.stderr and ended.stdout == ""


def test_ctrl_c_ends_a_program_and_says_what_is_kept(tmp_path):
    options = ["rmat", "--scale", "24", "--edge-factor", "64", "--memory", "256MiB", "--threads", "1", "--out", tmp_path / "x.grappa"]
    process = subprocess.Popen(_line("gen", *options), stderr=subprocess.PIPE, text=True)
    while not any(tmp_path.glob("*.partial")):
        assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130 and told.startswith("interrupted") and "Traceback" not in told, told


def test_a_closed_pipe_is_no_error(tmp_path):
    assert _run("ingest", "--edges", CORA / "edges.tsv", "--out", tmp_path / "x.grappa", "--quiet").returncode == 0
    export = subprocess.Popen(
        _line("store", "export", tmp_path / "x.grappa", "--edges", "-"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert export.stdout.readline().count("\t") == 1
    export.stdout.close()
    assert export.stderr.read() == "" and export.wait() == 0
