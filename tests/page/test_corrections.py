"""Decisions about labels, in a real Chromium: kept, rejected, added, downloaded."""

import json

from longtail import Model
from longtail.data import load

from .seeing import OTHER, TEXT, expect


def test_corrections_are_collected_kept_and_downloaded(visit, server, tmp_path):
    page = visit.page
    visit.write(TEXT)
    kept, rejected = visit.names()[0], visit.names()[1]
    page.get_by_role("button", name=f"Keep {kept}", exact=True).click()
    page.get_by_role("button", name=f"Reject {rejected}", exact=True).click()
    assert page.get_by_role("button", name=f"Keep {kept}", exact=True).get_attribute("aria-pressed") == "true"
    field = page.get_by_role("combobox", name="Add a label that is missing")
    field.fill("game")
    page.get_by_role("option").filter(has_text="New label").wait_for()
    found = server.get("/v1/labels", q="game", limit=8)["labels"]
    assert page.get_by_role("option").locator("bdi").all_text_contents() == [*(one["name"] for one in found), "game"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("#own .chosen bdi").all_text_contents() == [kept, found[0]["name"]]
    visit.write(OTHER)
    assert page.locator("#own .chosen bdi").all_text_contents() == []
    second = visit.names()[0]
    visit.row(second).locator(".keep").click()
    expect(page.locator("#count")).to_have_text("2")
    page.reload()
    visit.settle()
    expect(page.locator("#count")).to_have_text("2")
    assert page.input_value("#text") == OTHER
    assert visit.row(second).get_attribute("data-verdict") == "kept"
    visit.go("Corrections")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download JSONL").click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    assert path.name == "corrections.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert rows == [
        {"text": TEXT, "labels": [kept, found[0]["name"]], "rejected": [rejected]},
        {"text": OTHER, "labels": [second], "rejected": []},
    ]
    assert load(path).texts == [TEXT, OTHER]
    page.get_by_role("button", name="Open: A small").click()
    visit.settle()
    assert page.input_value("#text") == TEXT
    assert visit.row(rejected).get_attribute("data-verdict") == "rejected"
    visit.go("Corrections")
    page.get_by_role("button", name="Remove: A small").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.locator("#count")).to_have_text("1")
    page.get_by_role("button", name="Clear all").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert len(visit.kept()) == 1
    page.get_by_role("button", name="Clear all").click()
    page.get_by_role("dialog").get_by_role("button", name="Clear all").click()
    expect(page.locator("#view-corrections")).to_contain_text("Nothing here yet")
    assert visit.kept() == []
    expect(page.get_by_role("button", name="Download JSONL")).to_be_disabled()


def test_decisions_follow_an_edit_but_not_another_text(visit):
    page = visit.page
    visit.write(TEXT)
    name = visit.names()[0]
    visit.row(name).locator(".keep").click()
    page.locator("#text").press("End")
    page.keyboard.type(" It is fast.")
    visit.settle(writing=True)
    assert [(row["text"], row["kept"]) for row in visit.kept()] == [(f"{TEXT} It is fast.", [name])]
    visit.write(OTHER)
    assert page.locator("#own .chosen li").count() == 0
    visit.write(f"{TEXT} It is fast.")
    assert page.locator("#own .chosen bdi").all_text_contents() == [name]
    page.get_by_role("button", name=f"Remove {name}").click()
    assert visit.kept() == []


def test_two_tabs_lose_nothing(visit):
    visit.write(TEXT)
    with visit.context.expect_page() as opened:
        visit.page.evaluate("open(location.href)")
    other = opened.value
    other.fill("#text", OTHER)
    other.locator("#results-0 .keep").first.click()
    visit.page.locator("#results-0 .keep").first.click()
    expect(other.locator("#count")).to_have_text("2")
    expect(visit.page.locator("#count")).to_have_text("2")
    assert {row["text"] for row in visit.kept()} == {TEXT, OTHER}


def test_a_text_whose_labels_were_only_rejected_is_downloaded_for_update(visit, models, tmp_path):
    page = visit.page
    visit.write(TEXT)
    rejected = visit.names()[0]
    visit.row(rejected).locator(".reject").click()
    visit.go("Corrections")
    expect(page.get_by_role("button", name="Download JSONL")).to_be_enabled()
    note = "1 text with rejected labels alone: for longtail update only"
    expect(page.locator("#view-corrections")).to_contain_text(note)
    visit.go("Text")
    visit.write(OTHER)
    kept = visit.names()[0]
    visit.row(kept).locator(".keep").click()
    visit.go("Corrections")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download JSONL").click()
    download.value.save_as(tmp_path / "rows.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text("utf-8").splitlines()]
    assert rows == [
        {"text": TEXT, "labels": [], "rejected": [rejected]},
        {"text": OTHER, "labels": [kept], "rejected": []},
    ]
    corrected = load(tmp_path / "rows.jsonl", corrections=True)
    assert corrected.rejected == [[rejected], []]
    model = Model.load(models["tags"])
    before = model.label_counts.sum()
    model.update(corrected)
    assert model.label_counts.sum() > before


def test_enter_takes_the_name_as_it_is_written(visit, server):
    page = visit.page
    visit.write(TEXT)
    field = page.get_by_role("combobox", name="Add a label that is missing")
    short = "devel::lang:r"  # part of devel::lang:ruby, and a name of its own or none
    field.fill(short)
    page.get_by_role("option").first.wait_for()
    page.keyboard.press("Enter")
    assert page.locator("#own .chosen bdi").all_text_contents() == [short]
    field.fill("role::prog")
    page.get_by_role("option").first.wait_for()
    page.keyboard.type("x")
    page.keyboard.press("Enter")  # the list is still that of role::prog
    assert page.locator("#own .chosen bdi").all_text_contents() == [short]
    page.get_by_role("option").filter(has_text="role::progx").wait_for()
    page.keyboard.press("Enter")
    assert page.locator("#own .chosen bdi").all_text_contents() == [short, "role::progx"]
