"""A headless Chromium for tests of pages, spoken to over its DevTools protocol.

Everything that the page logs, throws or requests is kept, so that a test can ask for none of it.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)
#: How far the page reaches past its window [px], and the words in charts that lie on each other.
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
OVERLAPS = """(() => { const found = [];
  for (const chart of document.querySelectorAll('svg.chart')) {
    const words = [...chart.querySelectorAll('text')];
    const boxes = words.map((t) => [t.textContent, t.getBoundingClientRect()]);
    boxes.forEach(([a, x], i) => boxes.slice(0, i).forEach(([b, y]) => {
      if (x.left < y.right - 1 && y.left < x.right - 1 && x.top < y.bottom - 1 && y.top < x.bottom - 1)
        found.push(a + ' / ' + b); }));
  } return found; })()"""
WAIT_S = 90  # a busy machine starts a browser slowly


def browser_or_skip() -> Browser:
    """Start a browser, or skip the test and say what is missing."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no Chromium on this machine (looked for {', '.join(NAMES)}); apt-get install chromium")
    pytest.importorskip("websockets", reason="websockets speaks to the browser: pip install websockets")
    return Browser(found)


class Browser:
    """One tab. ``errors`` and ``requests`` fill while pages load and controls are used."""

    def __init__(self, binary: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="dspark-sim-browser-")
        arguments = [binary, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        self._process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._stack = ExitStack()
        self._count = 0
        self.errors: list[str] = []
        self.requests: list[str] = []
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        import urllib.request

        from websockets.sync.client import connect

        port = self._port()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=WAIT_S) as answer:
            [tab] = [target for target in json.load(answer) if target["type"] == "page"]
        wire = connect(tab["webSocketDebuggerUrl"], max_size=None, open_timeout=WAIT_S, ping_interval=None)
        self._socket = self._stack.enter_context(wire)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _port(self) -> int:
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            file = Path(self._profile) / "DevToolsActivePort"
            if file.is_file() and (words := file.read_text().split()):
                return int(words[0])
            time.sleep(0.05)
        raise TimeoutError("the browser opened no debugging port")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its result; events that arrive meanwhile are noted."""
        self._count += 1
        self._socket.send(json.dumps({"id": self._count, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=WAIT_S))
            if message.get("id") == self._count:
                assert "error" not in message, message["error"]
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        what, about = message["method"], message["params"]
        if what == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(about["exceptionDetails"])[:500])
        elif what == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(about["args"])[:500])
        elif what == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.errors.append(about["entry"]["text"])
        elif what == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])

    def open(self, path: Path, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Load a file at a window size and in a colour scheme, and wait until it is drawn."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete'")
        self.frame()

    def frame(self) -> None:
        """Let the page draw: two animation frames."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def wait(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + WAIT_S
        while not self.run(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press one key where the focus is."""
        text = {"Enter": "\r", " ": " "}.get(key)
        more = {"text": text} if text else {}
        code = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more)
        self.frame()

    def point_at(self, x: float, y: float) -> None:
        """Move the pointer."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.frame()

    def screenshot(self, path: Path) -> Path:
        """Save the whole page as it looks now."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def outside_requests(self) -> list[str]:
        """Return what was requested that is neither the page's own file nor data inside it."""
        return [url for url in self.requests if not re.match(r"(file|data|blob):|about:blank", url)]

    def close(self) -> None:
        """End the browser and remove its profile."""
        self._stack.close()
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)
