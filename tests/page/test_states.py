"""Empty, refused, loading, busy, unreachable and locked states, in a real Chromium."""

import json
import time

import pytest

from .browsing import Server, Visit, free_port
from .seeing import EVIL, OTHER, TEXT, expect, marked


def test_empty_states(visit):
    expect(visit.page.locator(".panel").first).to_contain_text("Labels appear here")
    assert visit.page.locator("#own").is_hidden()
    visit.write(TEXT)
    assert visit.names()
    visit.page.get_by_role("button", name="Clear", exact=True).click()
    visit.settle()
    assert visit.names() == []
    assert marked(visit.page) == []
    expect(visit.page.locator("#text")).to_be_focused()
    visit.write("zzzzz qqqqq")
    assert len(visit.names()) == 10


def test_labels_and_texts_are_never_html(visit):
    visit.page.locator("#model-0").select_option("evil")
    visit.write(f"{EVIL} {TEXT} <script>alert(2)</script>")
    assert all(name.startswith(EVIL) for name in visit.names())
    visit.row(visit.names()[0]).locator(".name").click()
    visit.row(visit.names()[0]).locator(".keep").click()
    visit.page.locator("#chooser-1").fill(EVIL)
    visit.page.get_by_role("option").first.wait_for()
    visit.settle()
    visit.go("Labels")
    visit.page.locator("tbody a").first.click()
    visit.settle()
    visit.go("Corrections")
    assert visit.page.locator("main img, main script").count() == 0


def test_refusals_of_the_server_are_shown(visit):
    visit.write("word " * 1001)
    alert = visit.page.get_by_role("alert")
    expect(alert).to_have_text("A text has 5,005 characters; the maximum is 5,000.")
    expect(alert.get_by_role("button")).to_have_count(0)
    assert visit.names() == []
    visit.write(TEXT)
    expect(alert).to_have_count(0)
    assert visit.names()


def test_models_that_are_being_loaded(visit, server):
    registry = server.service.registry
    tree = registry._served.pop("tree")
    try:
        visit.page.reload()
        expect(visit.page.locator("#notice")).to_have_text("Loading: tree.")
        assert visit.page.locator("#model-0 option[disabled]").all_text_contents() == ["tree (loading)"]
    finally:
        registry._served["tree"] = tree
    expect(visit.page.locator("#notice")).to_be_empty()
    visit.page.locator("#model-0").select_option("tree")


def test_waits_for_a_busy_server(visit, server, monkeypatch):
    from longtail.serve.problems import busy

    visit.write(TEXT)
    answer, refused = server.service.predictor.answer, []

    async def busily(body):
        if not json.loads(body).get("explain") and (not refused or refused[0] == "always"):
            refused.append(time.monotonic())
            raise busy("1,024 rows wait, the most: try again later.")
        return await answer(body)

    monkeypatch.setattr(server.service.predictor, "answer", busily)
    visit.page.fill("#text", OTHER)
    expect(visit.page.locator(".panel").first).to_contain_text("The server is busy. Retrying in 1 second.")
    expect(visit.page.locator("#results-0 .result")).to_have_count(10)
    assert len(refused) == 1
    refused[:] = ["always"]
    visit.page.fill("#text", TEXT)
    alert = visit.page.get_by_role("alert")
    expect(alert).to_contain_text("1,024 rows wait")
    assert len(refused) == 5, "asked four times, then the reader decides"
    monkeypatch.undo()
    alert.get_by_role("button", name="Try again").click()
    expect(visit.page.locator("#results-0 .result")).to_have_count(10)


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_server_that_is_gone_and_comes_back(browser, models, by_hand):
    port, served = free_port(), {"tags": models["tags"]}
    first = Server(served, port=port)
    with first, Visit(browser, first) as visit:
        if by_hand:  # the page would be faster now and then
            visit.page.route("**/healthz", lambda route: route.abort())
        visit.write(TEXT)
        first.stop()
        visit.page.fill("#text", OTHER)
        alert = visit.page.get_by_role("alert")
        expect(alert).to_contain_text("The server can’t be reached. The page will reconnect automatically")
        assert visit.findings() == []
        with Server(served, port=port):
            if by_hand:
                alert.get_by_role("button", name="Try again").click()
            expect(visit.page.locator("#results-0 .result")).to_have_count(10, timeout=30_000)
            expect(alert).to_have_count(0)


def test_asks_for_a_key_and_keeps_it_in_the_tab(browser, models):
    with Server({"tags": models["tags"]}, keys=["correct-horse"]) as locked, Visit(browser, locked) as visit:
        page = visit.page
        dialog = page.get_by_role("dialog", name="This server requires an API key")
        expect(dialog).to_be_visible()
        assert visit.findings() == []
        page.keyboard.type("battery-staple")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("did not accept this key")
        page.keyboard.type("correct-horse")
        page.keyboard.press("Enter")
        expect(dialog).to_be_hidden()
        visit.write(TEXT)
        assert len(visit.names()) == 10
        page.reload()
        visit.settle()
        assert len(visit.names()) == 10
        assert page.evaluate("sessionStorage.getItem('longtail.key')") == "correct-horse"
        assert "correct-horse" not in page.evaluate("JSON.stringify(localStorage)")
        page.evaluate("sessionStorage.clear()")
        page.reload()
        expect(dialog).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("alert")).to_contain_text("none was given")
        page.get_by_role("button", name="Try again").click()
        expect(dialog).to_be_visible()
