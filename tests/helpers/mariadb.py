"""A MariaDB of its own for a test, from the system's packages."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


def server() -> str | None:
    """The server's program; None where it is not installed."""
    return shutil.which("mariadbd", path=_PATH)


@contextmanager
def mysql() -> Iterator[str]:
    """The address of a fresh, empty database, with a password."""
    program = server()
    assert program is not None
    folder = Path(tempfile.mkdtemp(prefix="kimi-tune-mariadb-"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data, as_user = folder / "data", ["--user=root"] if os.geteuid() == 0 else []
    try:
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db",
             "--auth-root-authentication-method=normal", *as_user],
            check=True, capture_output=True, cwd=folder,
        )  # fmt: skip
        start = folder / "start.sql"
        start.write_text(
            "CREATE DATABASE optuna;\n"
            "CREATE USER tuner@'127.0.0.1' IDENTIFIED BY 'mariadb-secret';\n"
            "GRANT ALL ON optuna.* TO tuner@'127.0.0.1';\n"
        )
        process = subprocess.Popen(
            [program, "--no-defaults", f"--datadir={data}", f"--port={port}", "--bind-address=127.0.0.1",
             f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}", f"--init-file={start}",
             "--skip-name-resolve", *as_user],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder,
        )  # fmt: skip
        try:
            _wait_for(port, process)
            yield f"mysql://tuner:mariadb-secret@127.0.0.1:{port}/optuna"
        finally:
            process.terminate()
            process.wait(timeout=60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("MariaDB does not answer")
