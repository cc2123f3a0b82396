"""Labels of a model, in a real Chromium: the list, and the view of one."""

from .seeing import expect


def test_browsing_labels(visit, server):
    page = visit.page
    visit.go("Labels")
    rows = page.locator("tbody tr")
    names = page.locator("tbody th")
    everything = server.get("/v1/labels", limit=1000)["labels"]
    expect(names).to_have_text([one["name"] for one in everything[:50]])
    page.get_by_role("button", name="More labels").click()
    expect(rows).to_have_count(100)
    page.get_by_label("Order").select_option("Rarest first")
    rarest = sorted(everything, key=lambda one: (one["training_rows"], one["label"]))
    expect(names).to_have_text([one["name"] for one in rarest[:50]])
    page.get_by_label("Order").select_option("By name")
    page.get_by_text("torso", exact=True).first.click()
    torso = sorted((one["name"] for one in everything if one["bin"] == "torso"), key=str.casefold)
    expect(names).to_have_text(torso[:50])
    page.get_by_text("all", exact=True).click()
    page.get_by_label("Name").fill("WINDOW")
    expect(names).to_have_text(["x11::window-manager"])
    page.get_by_label("Name").fill("")
    page.get_by_label("Rows from").fill("5")
    page.get_by_label("to", exact=True).fill("6")
    few = sorted((one["name"] for one in everything if one["training_rows"] in (5, 6)), key=str.casefold)
    expect(names).to_have_text(few[:50])
    page.get_by_label("Name").fill("nothing like that")
    expect(page.locator("#view-labels .status")).to_have_text("No label matches.")


def test_a_label_of_its_own(visit, server):
    page = visit.page
    label = server.get("/v1/labels", q="window")["labels"][0]["label"]
    truth = server.get(f"/v1/labels/{label}", nearest=15, words=30)
    page.goto(f"{server.url}/#/labels/tags/{label}")
    expect(page.get_by_role("heading", level=1, name=truth["name"])).to_be_visible()
    expect(page.locator(".figures")).to_contain_text(f"{truth['training_rows']} training rows")
    expect(page.locator(".weights bdi")).to_have_text([one["feature"] for one in truth["words"]])
    expect(page.locator(".near bdi")).to_have_text([one["name"] for one in truth["nearest"]])
    page.locator(".near a").first.click()
    expect(page.get_by_role("heading", level=1, name=truth["nearest"][0]["name"])).to_be_focused()
    page.goto(f"{server.url}/#/labels/tags/99999")
    expect(page.get_by_role("alert")).to_contain_text("There is no label 99999")
