"""The console's pages in a browser: what users can see and do with a mouse, a keyboard or assistive technology."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import pairwise
from urllib.parse import quote

import pytest
from selenium.webdriver.common.keys import Keys
from tests.browser import SCHEMES, Chromium, Scheme
from tests.console_runs import ADDRESSES, CUSTOMER, LETTER, ShopConsole
from tests.plugins.test_console import job_named
from tests.plugins.test_console_stages import staged_console

from amadou import AmadouError
from amadou.plugins import Run, RunSummary
from amadou_plugins.console import Console
from amadou_plugins.console._pages import PAGES

HOSTILE = "<script>alert(1)</script><img src='/nothing' onerror='alert(2)'>"
NAMED = {"button", "combobox", "heading", "image", "link", "navigation", "region", "searchbox", "textbox"}
"""Roles that need an accessible name."""
FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex='0']"


@pytest.fixture(scope="module")
def shop() -> Iterator[ShopConsole]:
    shop = ShopConsole(datetime.now(timezone.utc))
    yield shop
    shop.end()


@pytest.fixture
def own_shop() -> Iterator[ShopConsole]:
    """A console that the test may end."""
    shop = ShopConsole(datetime.now(timezone.utc))
    yield shop
    shop.end()


PAGE_ADDRESSES = [*ADDRESSES.values(), LETTER, f"{LETTER}/test", "/nothing"]
"""The last one is the page for errors."""
PAGES_FOR_THE_KEYBOARD = [
    pytest.param(each, marks=() if each == ADDRESSES["/letters"] else pytest.mark.qualify) for each in PAGE_ADDRESSES
]
"""The page with the most elements, and in qualification the others."""


@pytest.fixture(scope="module", params=PAGE_ADDRESSES)
def address(request: pytest.FixtureRequest) -> str:
    """The address of a page. Tests of a page run one after another."""
    return str(request.param)


def unexpected_problems(chromium: Chromium, address: str) -> list[str]:
    """The warnings and errors in the browser's log, without those that a page which does not exist brings."""
    return [each for each in chromium.problems() if address != "/nothing" or "404" not in each]


@pytest.fixture
def page(address: str, shop: ShopConsole, _chromium: Chromium) -> Iterator[Chromium]:
    """A browser in which a page is open. Several tests can use a page without loading it again."""
    if _chromium.path != address:
        _chromium.reset()
        _chromium.problems()
        _chromium.open(shop.url, address)
    yield _chromium
    _chromium.reset_settings()
    assert unexpected_problems(_chromium, address) == []


@pytest.fixture
def new_page(page: Chromium) -> Chromium:
    """A browser in which a page has just been loaded, so that nothing has the focus."""
    page.driver.refresh()
    return page


@pytest.fixture(
    params=[AmadouError(f"cannot read {'a' * 300}\n{HOSTILE}"), RunSummary("done")], ids=["failed", "ended"]
)
def finished(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a console that shows a run that has finished, while another one goes on."""
    console = Console()
    runs = [Run(name, job_named(name), "spark", f"/{name}") for name in ("goes on", HOSTILE)]
    for run in runs:
        console.amadou_run_started(run)
    end = console.amadou_run_failed if isinstance(request.param, Exception) else console.amadou_run_ended
    end(runs[1], request.param)
    assert console.url is not None
    yield console.url
    console.amadou_run_ended(runs[0], RunSummary("goes on"))


def faint(contrasts: list[tuple[str, float]], least: float = 4.5) -> list[tuple[str, float]]:
    """Return what has too little contrast; the limits are those of WCAG 2.2, level AA."""
    return [each for each in contrasts if each[1] < least]


def width_beyond_window(chromium: Chromium) -> int:
    return int(chromium.run("const page = document.documentElement; return page.scrollWidth - page.clientWidth"))


def tab_to(identifier: str, chromium: Chromium) -> None:
    """Press Tab until an element has the focus."""

    def has_focus() -> bool:
        chromium.press(Keys.TAB)
        return bool(chromium.run("return document.activeElement.id === arguments[0]", identifier))

    chromium.wait(has_focus)


def open_with_fast_refreshes(url: str, path: str, chromium: Chromium) -> None:
    """Open a page that comes to refresh itself 20 times as often as for users, and counts how often it does."""
    chromium.run_first(
        "const original = window.setTimeout; window.turns = 0;"
        "window.setTimeout = (call, time) => original(() => { window.turns++; call(); }, time / 20);"
    )
    chromium.open(url, path)


def wait_for_turns(chromium: Chromium) -> None:
    turns = chromium.run("return window.turns")
    chromium.wait(lambda: chromium.run("return window.turns") >= turns + 3)


def mark_content(chromium: Chromium) -> None:
    """Mark the content of the page; when the page refreshes itself, the mark disappears."""
    chromium.run("document.querySelector('h1').dataset.mark = 1")


def is_marked(chromium: Chromium) -> bool:
    return bool(chromium.run("return 'mark' in document.querySelector('h1').dataset"))


def shown_batches(chromium: Chromium) -> int:
    """Return the number of the newest batch on the page Batches."""
    return int(chromium.text("tbody th").replace(",", ""))


def test_a_page_opens_by_the_address_with_the_token(address: str, page: Chromium) -> None:
    assert page.path == address
    problems = page.problems()
    assert any("404" in problem for problem in problems) == (address == "/nothing")
    assert [problem for problem in problems if "404" not in problem] == []
    assert page.driver.title.endswith(" – amadou")
    current = page.run("return Array.from(document.querySelectorAll('[aria-current=page]'), each => each.innerText)")
    assert current == [PAGES[path] for path in PAGES if ADDRESSES[path] == address]


@pytest.mark.parametrize("width", [360, 1600])
def test_nothing_is_wider_than_the_window(width: int, page: Chromium) -> None:
    page.resize(width)
    assert width_beyond_window(page) == 0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_and_charts_are_readable(scheme: Scheme, page: Chromium) -> None:
    page.prefer(scheme)
    texts = page.contrasts()
    assert len(texts) > len(PAGES)
    assert faint(texts) == []
    assert faint(page.contrasts("polyline", "stroke") + page.contrasts("input", "borderTopColor"), 3) == []


def test_the_colours_are_those_that_the_user_prefers(shop: ShopConsole, chromium: Chromium) -> None:
    chromium.open(shop.url)
    grounds = []
    for scheme in SCHEMES:
        chromium.prefer(scheme)
        grounds.append(chromium.run("return getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(255, 255, 255)", "rgb(21, 23, 27)"]


def test_a_run_that_has_finished_is_readable(finished: str, chromium: Chromium) -> None:
    chromium.open(finished)
    chromium.resize(360)
    assert width_beyond_window(chromium) == 0
    for scheme in SCHEMES:
        chromium.prefer(scheme)
        assert faint(chromium.contrasts()) == []


def test_a_page_has_what_assistive_technology_needs(page: Chromium) -> None:
    nodes = page.accessible()
    roles = Counter(node.role for node in nodes)
    assert (roles["banner"], roles["navigation"], roles["main"]) == (1, 1, 1)
    levels = [node.properties["level"] for node in nodes if node.role == "heading"]
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert [node for node in nodes if node.role in NAMED and not node.name] == []
    assert page.run("return document.documentElement.lang") == "en"
    assert roles["image"] == page.run("return document.querySelectorAll('main svg:not([aria-hidden=true])').length")


def test_tables_have_header_cells(page: Chromium) -> None:
    without = """return Array.from(document.querySelectorAll("table")).filter(table =>
        table.querySelectorAll("thead th[scope=col]").length !== table.rows[0].cells.length
        || Array.from(table.tBodies[0].rows).some(row => !row.querySelector("th[scope=row]"))).length"""
    assert page.run(without) == 0


@pytest.mark.parametrize("address", PAGES_FOR_THE_KEYBOARD, indirect=True)
def test_the_keyboard_reaches_all_elements_in_order_and_shows_the_focus(new_page: Chromium) -> None:
    find = f"const all = Array.from(document.querySelectorAll({FOCUSABLE!r})).filter(each => each.checkVisibility());"
    texts = new_page.run(f"{find} return all.map(each => each.innerText)")
    assert texts[: len(PAGES) + 1] == ["Skip to the content", *PAGES.values()]
    for position in range(len(texts)):
        assert next_position(find, new_page) == position
        x, bottom, outline = new_page.run(
            "const box = document.activeElement.getBoundingClientRect();"
            "return [box.x, box.bottom, getComputedStyle(document.activeElement).outlineStyle]"
        )
        assert (x >= 0, bottom > 0, outline) == (True, True, "solid")
        for scheme in SCHEMES:
            new_page.prefer(scheme)
            assert faint(new_page.contrasts(":focus", "outlineColor"), 3) == []


def next_position(find: str, chromium: Chromium) -> int:
    """Press Tab until one of the elements that are found has the focus, and return its position."""

    def position() -> int:
        chromium.press(Keys.TAB)
        return int(chromium.run(f"{find} return all.indexOf(document.activeElement) + 1"))

    return int(chromium.wait(position)) - 1


@pytest.mark.parametrize("address", PAGES_FOR_THE_KEYBOARD, indirect=True)
def test_the_first_link_skips_to_the_content(new_page: Chromium) -> None:
    new_page.press(Keys.TAB)
    assert new_page.run("return document.activeElement.innerText") == "Skip to the content"
    new_page.press(Keys.ENTER)
    assert new_page.run("return document.activeElement.tagName") == "MAIN"


def test_a_page_refreshes_itself_without_loading_again(shop: ShopConsole, chromium: Chromium) -> None:
    for path in ("/batches", "/"):
        open_with_fast_refreshes(shop.url, path, chromium)
        chromium.run("window.marker = 1")
        number = shop.add()
        shown = f"{number if path == '/batches' else number + 1:,}"
        chromium.wait(lambda shown=shown: shown in chromium.text("main"))
        assert chromium.run("return window.marker") == 1


def test_a_page_stays_as_it_is_while_text_is_selected(shop: ShopConsole, chromium: Chromium) -> None:
    open_with_fast_refreshes(shop.url, "/batches", chromium)
    chromium.run("getSelection().selectAllChildren(document.querySelector('h1'))")
    number = shop.add()
    wait_for_turns(chromium)
    assert (shown_batches(chromium), chromium.run("return getSelection().toString()")) == (number - 1, "shop running")
    chromium.run("getSelection().removeAllRanges()")
    chromium.wait(lambda: shown_batches(chromium) == number)


def test_a_page_stays_as_it_is_while_a_field_has_the_focus(shop: ShopConsole, chromium: Chromium) -> None:
    open_with_fast_refreshes(shop.url, "/state", chromium)
    tab_to("key", chromium)
    chromium.press("custo")
    mark_content(chromium)
    wait_for_turns(chromium)
    chromium.press("mer")
    assert chromium.run("return document.activeElement.value") == "customer"
    assert is_marked(chromium)
    chromium.run("document.activeElement.blur()")
    chromium.wait(lambda: not is_marked(chromium))


@pytest.mark.qualify  # the test before it has a field with the focus
def test_a_page_stays_as_it_is_if_a_field_gets_the_focus_during_a_refresh(
    shop: ShopConsole, chromium: Chromium
) -> None:
    chromium.run_first(
        "const original = window.fetch; const slow = new Promise(resolve => { window.answer = resolve; });"
        "window.fetch = async (...given) => { window.asked = true; await slow; return original(...given); };"
    )
    open_with_fast_refreshes(shop.url, "/state", chromium)
    mark_content(chromium)
    chromium.wait(lambda: chromium.run("return window.asked"))
    tab_to("key", chromium)
    chromium.press("customer")
    chromium.run("window.answer()")
    wait_for_turns(chromium)
    assert chromium.run("return document.activeElement.value") == "customer"


def test_the_keyboard_pauses_and_resumes_refreshes(shop: ShopConsole, chromium: Chromium) -> None:
    open_with_fast_refreshes(shop.url, "/batches", chromium)
    tab_to("refresh", chromium)
    chromium.press(Keys.SPACE)
    assert ("button", "Resume") in buttons(chromium)
    number = shop.add()
    wait_for_turns(chromium)
    assert shown_batches(chromium) == number - 1
    chromium.press(Keys.ENTER)
    chromium.wait(lambda: shown_batches(chromium) == number)
    assert ("button", "Pause") in buttons(chromium)


def buttons(chromium: Chromium) -> list[tuple[str, str]]:
    return [(node.role, node.name) for node in chromium.accessible()]


def test_a_refresh_keeps_the_focus_what_is_open_and_what_is_scrolled(shop: ShopConsole, chromium: Chromium) -> None:
    chromium.resize(360)
    open_with_fast_refreshes(shop.url, "/batches", chromium)
    chromium.run("document.querySelector('details').open = true; document.querySelector('.wide').scrollLeft = 70")
    chromium.run("document.querySelector('summary').focus()")
    mark_content(chromium)
    number = shop.add()
    chromium.wait(lambda: not is_marked(chromium) and shown_batches(chromium) == number)
    assert "KeyError: 'cents'" in chromium.text("details[open] pre")
    assert chromium.run("return document.querySelector('.wide').scrollLeft") == 70
    assert chromium.run("return document.activeElement.tagName") == "SUMMARY"
    chromium.run("document.getElementById('main').focus()")
    mark_content(chromium)
    chromium.wait(lambda: not is_marked(chromium))
    assert chromium.run("return document.activeElement.tagName") == "MAIN"


def test_a_dead_letter_leads_to_its_test(shop: ShopConsole, chromium: Chromium) -> None:
    chromium.open(shop.url, "/letters")
    chromium.click("link text", "KeyError: 'cents'")
    chromium.wait(lambda: "State before" in chromium.text("main"))
    assert "line 48, in on_event" in chromium.text("main")
    chromium.click("xpath", "//button[text()='Show a test that fails with this error']")
    chromium.wait(lambda: "def test_on_event_without_key_error" in chromium.text("main"))
    link = chromium.driver.find_element("link text", "Download test_dead_letter.py")
    assert "def test_on_event" in chromium.run(
        "return fetch(arguments[0]).then(answer => answer.text())", link.get_attribute("href")
    )


def test_a_page_says_that_the_console_does_not_answer(own_shop: ShopConsole, chromium: Chromium) -> None:
    open_with_fast_refreshes(own_shop.url, "/", chromium)
    assert "does not answer" not in chromium.text()
    own_shop.end()
    chromium.wait(lambda: "The console does not answer. The run may have ended." in chromium.text())
    assert "shop" in chromium.text("h1")
    for scheme in SCHEMES:
        chromium.prefer(scheme)
        assert faint(chromium.contrasts("#lost")) == []
    chromium.driver.get("about:blank")
    assert all("ERR_CONNECTION_REFUSED" in problem for problem in chromium.problems())


def test_a_key_is_found_with_the_keyboard(shop: ShopConsole, chromium: Chromium) -> None:
    chromium.open(shop.url, "/state")
    tab_to("key", chromium)
    chromium.press(CUSTOMER, Keys.ENTER)
    chromium.wait(lambda: chromium.path == ADDRESSES["/state"])
    text = chromium.text("main")
    assert f"'{CUSTOMER}'" in text
    assert "{'20533': 5450}" in text


def test_text_from_data_is_not_executed(shop: ShopConsole, chromium: Chromium) -> None:
    open_with_fast_refreshes(shop.url, f"/state?key={quote(HOSTILE)}", chromium)
    assert f"Nothing is stored for the key {HOSTILE}." in chromium.text()
    mark_content(chromium)
    chromium.wait(lambda: not is_marked(chromium))
    assert f"Nothing is stored for the key {HOSTILE}." in chromium.text()
    assert chromium.run("return document.querySelectorAll('main script, main img').length") == 0


def test_pages_work_without_javascript(shop: ShopConsole, chromium: Chromium) -> None:
    chromium.allow_scripts(False)
    chromium.open(shop.url)
    for title in PAGES.values():
        chromium.click("link text", title)
        chromium.wait(lambda title=title: chromium.text("[aria-current=page]") == title)
        assert "shop" in chromium.text("h1")
        assert not chromium.run("return document.getElementById('refresh').checkVisibility()")
    chromium.click("link text", "State")
    chromium.driver.find_element("id", "key").send_keys(CUSTOMER)
    chromium.click("css selector", "form button")
    chromium.wait(lambda: "{'20533': 5450}" in chromium.text("main"))


@pytest.fixture(scope="module")
def with_stages() -> Iterator[str]:
    """The address of a console with a job of several stages."""
    with staged_console() as console:
        assert console.url is not None
        yield console.url


@pytest.mark.parametrize(
    "path", ["/pipeline", *(pytest.param(each, marks=pytest.mark.qualify) for each in ("/", "/letters", "/state"))]
)
def test_the_pages_of_a_job_with_stages_are_readable(path: str, with_stages: str, chromium: Chromium) -> None:
    chromium.open(with_stages, path)
    for width in (360, 1600):
        chromium.resize(width)
        assert width_beyond_window(chromium) == 0
    levels = [node.properties["level"] for node in chromium.accessible() if node.role == "heading"]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for scheme in SCHEMES:
        chromium.prefer(scheme)
        assert faint(chromium.contrasts()) == []


def test_a_port_of_the_pipeline_leads_to_the_stage_that_reads_it(with_stages: str, chromium: Chromium) -> None:
    chromium.open(with_stages, "/pipeline")
    chromium.driver.find_element("link text", "stage top").click()
    assert chromium.path == "/pipeline#stage-top"
    assert chromium.run("return document.querySelector(':target').innerText") == "top"
    edges = chromium.run("return Array.from(document.querySelectorAll('.edge'), each => each.innerText.trim())")
    assert len(edges) == 6
    assert edges[1] == edges[3] != "0 per second"  # from the port to the stage, on both sides
