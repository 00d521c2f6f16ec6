"""One process writes to a folder; the second says who; what killed processes leave is removed, nothing else is."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading

import pytest

from tests.forks import environment, python
from transductor.one_writer import LOCK_FILE, FolderInUseError, FolderLostError, only_writer, remove_leftovers
from transductor.results import write_atomically

HOLDS = """
import os, sys, time
from pathlib import Path
from transductor.one_writer import only_writer, unfinished_file
with only_writer(sys.argv[1]):
    unfinished_file(Path(sys.argv[1]) / "state.json")
    print(os.getpid(), flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder, and is writing a file to it; its number."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [*python(), "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, **pipes, env=environment(), text=True) as process:
        process.number = int(process.stdout.readline())
        yield process
        process.kill()


def test_the_second_writer_says_who_holds_the_folder(tmp_path, holder):
    with pytest.raises(FolderInUseError, match=rf"in use by process {holder.number} on .+, since 20\d\d-"):
        only_writer(tmp_path).__enter__()
    remove_leftovers(tmp_path)
    assert len(list(tmp_path.glob(".state.json.*.unfinished"))) == 1  # it is still being written


def test_a_lock_dies_with_its_process_and_leaves_nothing(tmp_path, holder):
    os.kill(holder.number, signal.SIGKILL)
    holder.wait()
    assert len(list(tmp_path.iterdir())) == 2
    with only_writer(tmp_path, wait=5):  # the killed process may not be gone yet when its starter is
        assert [path.name for path in tmp_path.iterdir()] == [LOCK_FILE]
    assert not list(tmp_path.iterdir())


def test_one_that_waits_gets_the_folder_when_it_is_free(tmp_path, holder):
    threading.Timer(0.2, lambda: (holder.stdin.write("\n"), holder.stdin.flush())).start()
    with only_writer(tmp_path, wait=20):
        assert (tmp_path / LOCK_FILE).exists()


def test_a_thread_may_enter_again_and_another_may_not(tmp_path):
    refused = []

    def other():
        try:
            only_writer(tmp_path).__enter__()
        except FolderInUseError as error:
            refused.append(str(error))

    with only_writer(tmp_path), only_writer(tmp_path / "." / "sub" / ".."):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert f"process {os.getpid()}" in refused[0]
    with only_writer(tmp_path):
        pass


@pytest.mark.parametrize("content", ["", "[", "[]", '{"process": "x"}', '{"process": 1}', "9" * 5000])
def test_a_damaged_lock_file_still_names_another_process(tmp_path, holder, content):
    (tmp_path / LOCK_FILE).write_text(content)
    with pytest.raises(FolderInUseError, match="in use by another process"):
        only_writer(tmp_path).__enter__()


def test_a_deleted_folder_is_told(tmp_path):
    folder = tmp_path / "run"
    with only_writer(folder):
        shutil.rmtree(folder)
        with pytest.raises(FolderLostError, match="deleted or replaced"), only_writer(folder):
            pass
        folder.mkdir()  # somebody begins again there
        with pytest.raises(FolderLostError), only_writer(folder):
            pass


def test_a_folder_that_cannot_be_written_to_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    for folder, words in (
        ("file", "cannot be written to: it must be a folder"),
        ("file/sub", "cannot be written to: Not a directory"),
    ):
        with pytest.raises(OSError, match=words), only_writer(tmp_path / folder):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_only_our_own_leftovers_are_removed(tmp_path):
    names = [".hidden", "a.unfinished", ".a.unfinished", ".a.json.short.unfinished", ".a.json.abcd1234.unfinished"]
    for name in names:
        (tmp_path / name).write_text("x")
    (tmp_path / ".b.json.abcd1234.unfinished").symlink_to(tmp_path / ".hidden")
    (tmp_path / ".c.json.abcd1234.unfinished").mkdir()
    remove_leftovers(tmp_path)
    kept = [*names[:-1], ".b.json.abcd1234.unfinished", ".c.json.abcd1234.unfinished"]
    assert {path.name for path in tmp_path.iterdir()} == set(kept)


def test_a_failed_write_leaves_nothing(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomically(tmp_path / "a", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
