"""Chromium without a window, driven over its own debugging protocol: pages as people see them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    """Chromium's path; KIMI_TUNE_BROWSER names another."""
    named = os.environ.get("KIMI_TUNE_BROWSER")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page: what it asked of the network, what its console said, and what is on it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, loop: asyncio.AbstractEventLoop) -> None:
        self._socket, self._loop, self._number = socket, loop, 0
        self.requests: list[str] = []
        self.console: list[str] = []
        self._loaded = False
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """One command of the protocol."""
        return self._loop.run_until_complete(self._call(method, params))

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = await asyncio.wait_for(self._socket.receive_json(), 60)
            if message.get("id") == number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return message["result"]
            self._event(message)

    def _event(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                self.console.append(" ".join(str(a.get("value", a)) for a in params["args"]))
            case "Runtime.exceptionThrown":
                self.console.append(json.dumps(params["exceptionDetails"])[:500])
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.console.append(params["entry"]["text"])
            case "Page.loadEventFired":
                self._loaded = True

    def open(self, url: str) -> None:
        """Go there and wait until it is loaded."""
        self._loaded = False
        self.call("Page.navigate", url=url)
        self.wait(lambda: self._loaded)

    def wait(self, ready: Callable[[], Any], seconds: float = 30.0) -> None:
        """Wait until something holds."""
        for _ in range(round(seconds / 0.1)):
            if ready():
                return
            self._loop.run_until_complete(asyncio.sleep(0.1))
            self.call("Runtime.evaluate", expression="0")
        raise AssertionError("the page did not get there")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def look(self, width: int, height: int = 900, *, dark: bool = False, media: str = "") -> None:
        """Another window size, another palette, or print."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[feature])

    def shoot(self, path: Path, *, whole: bool = True) -> None:
        """A picture of the page."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def tree(self) -> list[tuple[str, str]]:
        """What a screen reader is told: role and name of every node."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node.get("role", {}).get("value", ""), node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored")
        ]


@contextlib.contextmanager
def browser_tab(browser: str) -> Iterator[Tab]:
    """A fresh browser with one page; gone with the block."""
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory(prefix="kimi-tune-browser-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--disable-extensions", "--hide-scrollbars", "--remote-debugging-port=0",
             f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            port = loop.run_until_complete(_port(Path(folder), process))
            session, socket = loop.run_until_complete(_attach(port))
            try:
                yield Tab(socket, loop)
            finally:
                loop.run_until_complete(session.close())
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            loop.close()


async def _port(folder: Path, process: subprocess.Popen[bytes]) -> int:
    for _ in range(600):
        with contextlib.suppress(OSError, ValueError):
            return int((folder / "DevToolsActivePort").read_text().splitlines()[0])
        assert process.poll() is None, "the browser ended"
        await asyncio.sleep(0.1)
    raise AssertionError("the browser did not open its port")


async def _attach(port: int) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
    session = aiohttp.ClientSession()
    for _ in range(100):
        async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            pages = [page for page in await answer.json() if page["type"] == "page"]
        if pages:
            return session, await session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
        await asyncio.sleep(0.1)
    raise AssertionError("the browser has no page")
