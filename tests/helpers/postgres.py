"""A PostgreSQL of its own for a test, from the system's packages."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


def programs() -> Path | None:
    """The folder that has initdb and postgres; None where PostgreSQL is not installed."""
    folders = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    if found := shutil.which("initdb"):
        folders.append(Path(found).resolve().parent)
    return next((f for f in folders if (f / "initdb").exists() and (f / "postgres").exists()), None)


@dataclass
class Database:
    """A server on a port of 127.0.0.1 that can be stopped and started again."""

    folder: Path
    bin: Path
    port: int
    user: str | None
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As users write it."""
        return f"postgresql://tuner@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.process = subprocess.Popen(
            [
                self.bin / "postgres", "-D", self.folder / "data", "-p", str(self.port),
                "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.folder}",
                "-c", "fsync=off",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self.user,
            cwd=self.folder,
        )  # fmt: skip
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
                return
            except OSError:
                time.sleep(0.1)
        raise TimeoutError("PostgreSQL does not answer")

    def stop(self, *, at_once: bool = False) -> None:
        """End it: sessions cut off, or (`at_once`) as if the machine had lost its power."""
        if self.process is not None:
            self.process.kill() if at_once else self.process.send_signal(2)
            self.process.wait(timeout=60)
            self.process = None


@contextmanager
def database() -> Iterator[Database]:
    """A fresh server; PostgreSQL refuses root, so that root runs it as another user."""
    binaries = programs()
    assert binaries is not None
    user = None
    if os.geteuid() == 0:
        names = {entry.pw_name for entry in pwd.getpwall()}
        user = "postgres" if "postgres" in names else "nobody"
    folder = Path(tempfile.mkdtemp(prefix="kimi-tune-postgres-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
        subprocess.run(
            [binaries / "initdb", "-D", folder / "data", "-A", "trust", "-U", "tuner", "--no-sync"],
            check=True,
            capture_output=True,
            user=user,
            cwd=folder,
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = Database(folder, binaries, port, user)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
