"""For everybody, in a real Chromium: keyboard alone, both themes, a phone, accessibility, small files."""

import pytest

from .browsing import DESKTOP, PHONE, Visit
from .seeing import TEXT, expect


def focused(page):
    return page.evaluate(
        """() => { const at = document.activeElement;
        return (at.getAttribute("aria-label") || at.labels?.[0]?.textContent || at.textContent).trim() }"""
    )


def tab_to(page, wanted, key="Tab"):
    for _ in range(60):
        page.keyboard.press(key)
        if focused(page).startswith(wanted):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            around = page.evaluate("!!document.activeElement.closest('.editor, .choice')")
            assert outline != "none" or around, f"nobody sees that {wanted} has the focus"
            return
    pytest.fail(f"Tab doesn't reach {wanted}")


def test_by_keyboard_alone(visit, server):
    page, press = visit.page, visit.page.keyboard.press
    press("Tab")
    assert focused(page) == "Skip to the content"
    press("Enter")
    tab_to(page, "Text")
    page.keyboard.type(TEXT)
    visit.settle(writing=True)
    tab_to(page, "Tail dial")
    for _ in range(3):
        press("ArrowRight")
    visit.settle()
    ranked = [one["name"] for one in server.predict(text=TEXT, k=10, tail=0.06)]
    assert visit.names() == ranked
    tab_to(page, f"1{ranked[0]}")
    press("k")
    press("ArrowDown")
    press("Enter")
    visit.settle()
    assert visit.row(ranked[1]).locator(".words").count()
    press("r")
    assert (visit.kept()[0]["kept"], visit.kept()[0]["rejected"]) == ([ranked[0]], [ranked[1]])
    tab_to(page, f"Keep {ranked[1]}")
    press("Space")
    assert visit.kept()[0]["kept"] == ranked[:2]
    tab_to(page, "Add a label that is missing", "Shift+Tab")
    page.keyboard.type("perl")
    page.get_by_role("option").first.wait_for()
    press("ArrowDown")
    press("ArrowDown")
    press("Escape")
    expect(page.get_by_role("listbox")).to_have_count(0)
    tab_to(page, "Labels", "Shift+Tab")
    press("Enter")
    expect(page.get_by_role("heading", level=1, name="Labels")).to_be_focused()
    tab_to(page, "Name")
    page.keyboard.type("window")
    expect(page.locator("tbody tr")).to_have_count(1)
    tab_to(page, "x11::window-manager")
    press("Enter")
    expect(page.get_by_role("heading", level=1, name="x11::window-manager")).to_be_focused()
    tab_to(page, "Corrections", "Shift+Tab")
    press("Enter")
    tab_to(page, "Clear all")
    press("Enter")
    tab_to(page, "Clear all")
    press("Enter")
    expect(page.locator("#view-corrections")).to_contain_text("Nothing here yet")
    assert visit.kept() == []


VIEWS = ["#/", "#/compare", "#/labels", "#/labels/tree/589", "#/corrections"]


@pytest.mark.parametrize(("scheme", "window"), [("light", DESKTOP), ("dark", PHONE)])
def test_accessible_in_every_view(browser, server, scheme, window):
    with Visit(browser, server, color_scheme=scheme, viewport=window) as visit:
        visit.write(TEXT)
        visit.row(visit.names()[0]).locator(".name").click()
        visit.row(visit.names()[0]).locator(".keep").click()
        visit.row(visit.names()[1]).locator(".reject").click()
        for view in VIEWS:
            visit.page.goto(f"{server.url}/{view}")
            visit.settle()
            assert visit.findings() == [], view
        paper = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (max(map(int, paper[4:-1].split(","))) < 60) == (scheme == "dark")


def test_every_view_fits_a_phone(browser, server):
    with Visit(browser, server, viewport={"width": 320, "height": 640}, has_touch=True) as visit:
        visit.write(f"{TEXT} {'long' * 60}")
        visit.row(visit.names()[0]).locator(".name").click()
        visit.row(visit.names()[0]).locator(".keep").click()
        for view in VIEWS:
            visit.page.goto(f"{server.url}/{view}")
            visit.settle()
            assert visit.overflow() <= 0, view
        visit.go("Text")
        places = [visit.page.locator(name) for name in ("#own", "#results-0")]
        for place in places:
            expect(place).to_be_visible()
        last, panel = (place.bounding_box() for place in places)
        assert last["y"] > panel["y"] + panel["height"]


def test_captions_of_the_dial_keep_apart_on_a_phone(browser, server):
    with Visit(browser, server, viewport=PHONE) as visit:
        visit.page.goto(f"{server.url}/#/compare")
        visit.write(TEXT)
        ends = visit.page.locator(".ends:visible")
        assert ends.count() == 2
        for at in range(2):
            left, right = (one.bounding_box() for one in ends.nth(at).locator("span").all())
            apart = right["x"] - left["x"] - left["width"] >= 8
            assert apart or right["y"] >= left["y"] + left["height"]


def test_files_of_the_page_are_small_and_hold_nothing_inline(server):
    from longtail.serve.pages import page_files

    files = page_files()
    assert sum(len(file.content) for path, file in files.items() if path != "/") < 150_000
    html = files["/"].content.decode()
    assert "<style" not in html
    assert " style=" not in html
    assert " on" + "click" not in html
    for path, file in files.items():
        text = file.content.decode()
        assert len(text.splitlines()) < 500, path
        if path.endswith(".js"):
            for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
                assert way not in text, path
        if not path.endswith(".svg"):
            assert "://" not in text.replace("http://www.w3.org/2000/svg", ""), path
