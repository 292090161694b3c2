"""Behaves like the docker command: `run` starts a server in a session of its own and stays attached to it.

Containers are files NAME in the folder DOCKER_STANDIN, holding the server's pid; every call is noted in
`calls`. DOCKER_STANDIN_STUBBORN makes `stop` fail.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

PLACE = Path(os.environ["DOCKER_STANDIN"])


def run(words: list[str]) -> int:
    name = words[words.index("--name") + 1]
    environment = {"PATH": os.environ["PATH"]}  # a container inherits nothing
    for index, word in enumerate(words):
        if word == "-e":
            key, _, value = words[index + 1].partition("=")
            environment[key] = value
    image = next(index for index, word in enumerate(words) if word.startswith("vllm/"))
    command = [sys.executable, "-S", str(Path(__file__).parent / "standin.py"), "serve", *words[image + 1 :]]
    server = subprocess.Popen(command, env=environment, start_new_session=True)
    (PLACE / name).write_text(str(server.pid))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the client's end is not the container's
    return server.wait()


def kill(name: str, number: int) -> int:
    try:
        os.kill(int((PLACE / name).read_text()), number)
    except (OSError, ValueError):
        return 1
    return 0


def main() -> int:
    verb, *words = sys.argv[1:]
    with (PLACE / "calls").open("a") as calls:
        calls.write(json.dumps([verb, *words]) + "\n")
    if verb == "run":
        return run(words)
    if verb == "stop":
        return 1 if "DOCKER_STANDIN_STUBBORN" in os.environ else kill(words[-1], signal.SIGTERM)
    if verb == "kill":
        return kill(words[-1], signal.SIGKILL)
    if verb == "rm":
        kill(words[-1], signal.SIGKILL)
        (PLACE / words[-1]).unlink(missing_ok=True)
        return 0
    if verb == "top":
        print("PID\n" + (PLACE / words[0]).read_text())
        return 0
    return 2


if __name__ == "__main__":
    sys.exit(main())
