"""A headless Chromium, driven by Selenium."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple
from urllib.parse import urljoin

from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
"""The colour schemes that users can prefer."""
_PROGRAMS = ("chromium", "chromedriver")
_CONTRAST = """
const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function luminance() {
  const [red, green, blue] = Array.from(context.getImageData(0, 0, 1, 1).data, value => value / 255)
    .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
function paint(color) {
  context.fillStyle = color;
  context.fillRect(0, 0, 1, 1);
}
function contrast(element, color) {
  const ancestors = [];
  for (let each = element; each; each = each.parentElement) ancestors.unshift(each);
  paint("white");
  for (const each of ancestors) paint(getComputedStyle(each).backgroundColor);
  const ground = luminance();
  paint(color);
  const [dark, light] = [ground, luminance()].sort((one, other) => one - other);
  return (light + 0.05) / (dark + 0.05);
}
return Array.from(document.querySelectorAll(arguments[0]))
  .filter(each => each.checkVisibility() && (arguments[1] !== "color" || each.matches("input, textarea, select")
    || Array.from(each.childNodes).some(node => node.nodeType === Node.TEXT_NODE && node.data.trim())))
  .map(each => [`${each.tagName} ${each.className.baseVal ?? each.className} ${each.textContent.trim().slice(0, 40)}`,
    contrast(each, getComputedStyle(each)[arguments[1]])]);
"""


class Node(NamedTuple):
    """A node of the accessibility tree."""

    role: str
    name: str
    properties: dict[str, Any]


class Chromium:
    """A browser with one window.

    :ivar driver: Selenium's driver
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self._url = ""
        self._scripts: list[str] = []

    def open(self, url: str, path: str = "/") -> None:
        """Open the address of a console, with its token.

        :param path: page to show instead of the first
        """
        address, _, token = url.partition("?")
        self._url = address
        self.driver.get(urljoin(address, f"{path}{'&' if '?' in path else '?'}{token}"))

    @property
    def path(self) -> str:
        """The address after the host."""
        return f"/{self.driver.current_url.removeprefix(self._url)}"

    def run(self, script: str, *arguments: Any) -> Any:
        """Return the result of JavaScript."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str = "body") -> str:
        """Return the visible text of an element as soon as it is there."""
        script = "const found = document.querySelector(arguments[0]); return found && [found.innerText]"
        (text,) = self.wait(lambda: self.run(script, selector))
        return str(text)

    def wait(self, condition: Callable[[], Any], seconds: float = 20) -> Any:
        """Wait until a condition holds, and return its value. It may use elements that the page replaces."""
        wait = WebDriverWait(self.driver, seconds, 0.05, [StaleElementReferenceException, NoSuchElementException])
        return wait.until(lambda _: condition())

    def click(self, by: str, value: str) -> None:
        """Click an element as soon as it is there, also while the page replaces its content."""

        def clicked() -> bool:
            self.driver.find_element(by, value).click()
            return True

        self.wait(clicked)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, where the focus is."""
        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def resize(self, width: int, height: int = 800) -> None:
        self._command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def prefer(self, scheme: Scheme) -> None:
        """Set the colour scheme that the user prefers."""
        self._command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def allow_scripts(self, allowed: bool) -> None:
        """Set whether pages can run JavaScript; `run` always can."""
        self._command("Emulation.setScriptExecutionDisabled", value=not allowed)

    def run_first(self, script: str) -> None:
        """Run JavaScript at the start of each page that is opened from now on."""
        self._scripts.append(
            self._command("Page.addScriptToEvaluateOnNewDocument", source=f"{{ {script} }}")["identifier"]
        )

    def contrasts(self, selector: str = "body *", style: str = "color") -> list[tuple[str, float]]:
        """Return elements, and the contrast ratio (WCAG) of a colour to their background.

        :param selector: selects the elements
        :param style: the style that has the colour; for `color`, only elements with text of their own are returned
        """
        return [(name, ratio) for name, ratio in self.run(_CONTRAST, selector, style)]

    def accessible(self) -> list[Node]:
        """Return what assistive technology sees."""
        return [
            Node(
                node["role"]["value"],
                node.get("name", {}).get("value", ""),
                {each["name"]: each["value"].get("value") for each in node.get("properties", ())},
            )
            for node in self._command("Accessibility.getFullAXTree")["nodes"]
            if not node["ignored"]
        ]

    def problems(self) -> list[str]:
        """Return the warnings and errors in the browser's log since the last call."""
        return [each["message"] for each in self.driver.get_log("browser") if each["level"] in ("WARNING", "SEVERE")]

    def reset(self) -> None:
        """Forget cookies, settings and scripts, and show an empty page."""
        self.allow_scripts(True)
        while self._scripts:
            self._command("Page.removeScriptToEvaluateOnNewDocument", identifier=self._scripts.pop())
        self.reset_settings()
        self._command("Network.clearBrowserCookies")
        self.driver.get("about:blank")

    def reset_settings(self) -> None:
        """Return to the usual size and colour scheme."""
        self._command("Emulation.clearDeviceMetricsOverride")
        self._command("Emulation.setEmulatedMedia", features=[])

    def hide_scrollbars(self) -> None:
        self._command("Emulation.setScrollbarsHidden", hidden=True)

    def _command(self, name: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, parameters)


def missing_programs() -> str | None:
    """Return what must be installed for a browser to run; `None` if nothing is missing."""
    if all(map(shutil.which, _PROGRAMS)):
        return None
    return "a browser is not there: run scripts/setup, or install chromium and chromedriver (Debian: chromium-driver)"


@contextmanager
def headless_chromium() -> Iterator[Chromium]:
    """Run a browser with a new profile."""
    os.environ["SE_OFFLINE"] = "true"  # Selenium must not download another browser or driver
    chromium, chromedriver = (shutil.which(name) or name for name in _PROGRAMS)
    options = ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else ())):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with TemporaryDirectory(ignore_cleanup_errors=True) as directory:  # Chromium leaves files in it
        driver = Chrome(options, Service(chromedriver, env={**os.environ, "TMPDIR": directory}))
        try:
            yield Chromium(driver)
        finally:
            driver.quit()
