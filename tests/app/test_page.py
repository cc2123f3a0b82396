"""The page of `longtail serve`, in a real Chromium: every flow, both themes, keyboard, phone, errors, accessibility."""

import asyncio
import json
import time

import numpy as np
import pytest

from longtail import LabelTree, Model, OneVsRest, Popularity, TextLearner, Tfidf, datasets
from longtail.corpus import load

from .browsing import DESKTOP, PHONE, Server, Visit, free_port, start_browser

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client"):
    pytest.importorskip(needed, reason="needs the extra serve")
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python")

ROWS = 1500
TEXT = "A small tiling window manager for X, written in C and driven by the keyboard."
OTHER = "A Perl module that reads and writes comma-separated files, with documentation."
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """One-vs-rest, calibrated; a tree, not calibrated; no explanations; features; names that are HTML."""
    tags = datasets.load("debian-tags", "train")
    texts, Y, names = tags.texts[:ROWS], tags.Y[:ROWS], tags.label_names
    place = tmp_path_factory.mktemp("models")

    def text_model(learner, **features):
        return Model(TextLearner(features=Tfidf(**features), learner=learner).fit(texts, Y), label_names=names)

    made = {"tags": text_model(OneVsRest(), ngrams=2), "tree": text_model(LabelTree())}
    made["popular"] = text_model(Popularity())
    made["tags"].recipe = "dismec"
    made["tags"].calibrate(tags.take(np.arange(ROWS, 2 * ROWS)))
    made["features"] = Model(OneVsRest().fit(Tfidf().fit_transform(texts), Y), label_names=names)
    made["evil"] = Model(made["tree"].learner, label_names=[f"{EVIL}{name}" for name in names])
    for name, model in made.items():
        model.save(place / name)
    return {name: place / name for name in made}


@pytest.fixture(scope="module")
def server(models):
    with Server(models, text_characters=5000) as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        browser = start_browser(started)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, server):
    with Visit(browser, server) as opened:
        yield opened


def percents(chances):
    """Chances as the page writes them: none is ever certain."""
    ends = {True: "<\u202f1\u202f%", False: ">\u202f99\u202f%"}
    return [f"{round(100 * one)}\u202f%" if 0.01 <= one <= 0.99 else ends[one < 0.5] for one in chances]


def marked(page, kind=""):
    return page.locator(f"#marks mark{kind}").all_text_contents()


def expect(locator):
    return playwright.expect(locator)


def test_ranks_labels_with_chances_and_frequencies(visit, server):
    visit.write(TEXT)
    truth = server.predict(text=TEXT, k=10)
    assert visit.names() == [one["name"] for one in truth]
    assert visit.values() == percents([one["probability"] for one in truth])
    for one in truth[:4]:
        assert visit.row(one["name"]).locator(".facts").inner_text().split()[:2] == [
            one["group"],
            f"{one['training_rows']:,}",
        ]
    visit.page.get_by_role("button", name="More labels").click()
    visit.settle()
    assert visit.names() == [one["name"] for one in server.predict(text=TEXT, k=20)]


def test_says_what_it_found_to_those_who_listen(visit, server):
    visit.write(TEXT)
    first = server.predict(text=TEXT, k=1)[0]
    live = visit.page.locator("#live")
    expect(live).to_contain_text(f"tags: 10 labels. First is {first['name']}")
    assert live.get_attribute("aria-live") == "polite"


def test_words_are_marked_where_they_stand(visit, server):
    text = "🪟 İ A tiling window manager. 𝄞 Window manager!"
    visit.write(text)
    name = "x11::window-manager"
    visit.row(name).locator(".name").click()
    visit.settle()
    label = server.get("/v1/labels", q=name)["labels"][0]["label"]
    why = server.predict(text=text, k=1, only=[label], explain=True, parts=60)[0]["explanation"]
    pushed = {text[span["start"] : span["end"]] for span in why["spans"] if span["contribution"] > 0.05}
    assert {"window", "Window"} <= pushed
    assert "".join(visit.page.locator("#marks").all_text_contents()) == f"{text}\n"
    ups = " ".join(marked(visit.page, ".up"))
    assert all(word in ups for word in ("window", "Window", "manager"))
    assert "🪟" not in ups
    assert "𝄞" not in ups
    expect(visit.page.locator("#legend")).to_contain_text(name)


def test_marks_stand_exactly_behind_the_words(visit):
    """The text and its marks are two layers: the second must break its lines as the first does."""
    visit.write("\n\n".join([TEXT, OTHER * 12, TEXT]))
    page = visit.page
    sizes = page.evaluate(
        """() => { const [a, b] = ["text", "marks"].map((id) => document.getElementById(id));
        return [a.scrollHeight, b.scrollHeight, a.clientWidth, b.clientWidth, a.scrollHeight - a.clientHeight] }"""
    )
    assert sizes[0] == sizes[1]
    assert sizes[2] == sizes[3]
    assert sizes[4] == 0


def test_why_a_label(visit, server):
    visit.write(TEXT)
    first = server.predict(text=TEXT, k=1, explain=True)[0]
    row = visit.row(first["name"])
    button = row.get_by_role("button", expanded=False)
    assert button.count() == 1
    button.click()
    visit.settle()
    assert row.get_by_role("button", expanded=True).count() == 1
    up = [one["feature"] for one in first["explanation"]["parts"] if one["contribution"] > 0]
    down = [one["feature"] for one in first["explanation"]["parts"] if one["contribution"] < 0]
    assert row.locator(".words li.up bdi").all_text_contents() == up[:10]
    assert row.locator(".words li.down bdi").all_text_contents()[:4] == down[:4]
    assert row.locator(".near bdi").all_text_contents()[:5] == [one["name"] for one in first["explanation"]["nearest"]]
    row.locator(".name").click()
    expect(row.locator(".why")).to_be_hidden()


def test_the_dial_ranks_anew_and_chances_stay(visit, server):
    visit.write(TEXT)
    before = dict(zip(visit.names(), visit.values(), strict=True))
    dial = visit.page.locator("#dial-1")
    dial.focus()
    visit.page.keyboard.press("End")
    visit.settle()
    assert visit.names() == [one["name"] for one in server.predict(text=TEXT, k=10, tail=1)]
    assert visit.names() != list(before)
    truth = {one["name"]: one["probability"] for one in server.predict(text=TEXT, k=500)}
    assert visit.values() == percents([truth[name] for name in visit.names()])
    visit.page.reload()
    visit.settle()
    assert visit.names() == [one["name"] for one in server.predict(text=TEXT, k=10, tail=1)]
    visit.page.get_by_role("button", name="Reset the tail dial").click()
    visit.settle()
    assert dict(zip(visit.names(), visit.values(), strict=True)) == before
    expect(visit.page.locator("output").first).to_have_text("as trained")


def test_only_the_last_position_of_the_dial_is_waited_for(visit, server, monkeypatch):
    visit.write(TEXT)
    asked, answer = [], server.service.predictor.answer

    async def slowly(body):
        asked.append(json.loads(body))
        await asyncio.sleep(0.3)
        return await answer(body)

    monkeypatch.setattr(server.service.predictor, "answer", slowly)
    dial = visit.page.locator("#dial-1")
    dial.focus()
    for _ in range(12):
        visit.page.keyboard.press("ArrowRight")
        visit.page.wait_for_timeout(60)
    visit.settle()
    assert len(visit.failed) >= 5, "requests that were overtaken are given up"
    assert {request.failure for request in visit.failed} == {"net::ERR_ABORTED"}
    monkeypatch.undo()
    assert visit.names() == [one["name"] for one in server.predict(text=TEXT, k=10, tail=0.24)]
    assert any(one.get("tail") == 0.24 for one in asked)


def test_a_file_is_read_or_refused(visit, server, tmp_path):
    page = visit.page
    (tmp_path / "text.txt").write_text(OTHER, "utf-8")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose a file").click()
    chooser.value.set_files(tmp_path / "text.txt")
    visit.settle()
    assert page.input_value("#text") == OTHER
    assert visit.names() == [one["name"] for one in server.predict(text=OTHER, k=10)]
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00\x01")
    page.set_input_files("#file", tmp_path / "binary.txt")
    expect(page.locator("#text-hint")).to_have_text("binary.txt can’t be read as text in UTF-8.")
    assert page.input_value("#text") == OTHER


def drop(page, *, file=None, text=None):
    page.evaluate(
        """([file, text]) => {
            const data = new DataTransfer();
            if (file) data.items.add(new File([file], "dropped.txt", { type: "text/plain" }));
            else data.setData("text/plain", text);
            for (const type of ["dragenter", "dragover", "drop"]) {
                const event = new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true });
                document.getElementById("drop").dispatchEvent(event);
            }
        }""",
        [file, text],
    )


def test_files_and_texts_are_dropped(visit, server):
    drop(visit.page, file=TEXT)
    visit.settle()
    assert visit.page.input_value("#text") == TEXT
    expect(visit.page.locator("#text-hint")).to_have_text("From dropped.txt.")
    assert visit.names()
    drop(visit.page, text=OTHER)
    visit.settle()
    assert visit.page.input_value("#text") == OTHER
    assert visit.names() == [one["name"] for one in server.predict(text=OTHER, k=10)]


def test_two_models_side_by_side(visit, server):
    visit.write(TEXT)
    visit.go("Compare")
    visit.settle()
    left, right = (server.predict(text=TEXT, k=10, model=name) for name in ("tags", "tree"))
    assert visit.names(0) == [one["name"] for one in left]
    assert visit.names(1) == [one["name"] for one in right]
    boxes = [visit.page.locator(f"#results-{at}").bounding_box() for at in (0, 1)]
    assert boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    places = {one["name"]: at for at, one in enumerate(right, start=1)}
    for one in left:
        note = visit.row(one["name"]).locator(".elsewhere").inner_text()
        place = places.get(one["name"])
        assert note.startswith("below 10th" if place is None else str(place)), (one["name"], note)
    visit.row(right[1]["name"], 1).locator(".name").click()
    visit.settle()
    expect(visit.page.locator("#legend")).to_have_text(f"Words that push {right[1]['name']} up or down in tree")
    visit.page.locator("#model-1").select_option("popular")
    visit.settle()
    assert visit.names(1) == [one["name"] for one in server.predict(text=TEXT, k=10, model="popular")]
    visit.go("Text")
    visit.settle()
    assert visit.page.locator(".elsewhere").count() == 0


def test_scores_without_calibration_are_no_percentages(visit, server):
    visit.write(TEXT)
    visit.page.locator("#model-0").select_option("tree")
    visit.settle()
    assert not [value for value in visit.values() if "%" in value]
    first = server.predict(text=TEXT, k=1, model="tree")[0]
    assert float(visit.values()[0].replace("−", "-")) == pytest.approx(first["score"], rel=1e-2)
    assert visit.page.locator("#results-0 .bar:visible").count() == 0
    expect(visit.page.locator(".columns")).to_contain_text("Score")
    expect(visit.page.locator(".panel .note").first).to_contain_text("not calibrated")


def test_the_way_through_a_tree(visit, server):
    visit.write(TEXT)
    visit.page.locator("#model-0").select_option("tree")
    visit.settle()
    name = visit.names()[0]
    visit.row(name).locator(".name").click()
    visit.settle()
    found = server.predict(text=TEXT, k=1, model="tree", explain=True)[0]["explanation"]["path"]
    steps = visit.row(name).locator(".path li bdi").all_text_contents()
    assert steps == [*(step["name"] for step in found["steps"]), name]


def test_a_model_without_explanations_says_so(visit):
    visit.write(TEXT)
    visit.page.locator("#model-0").select_option("popular")
    visit.settle()
    row = visit.row(visit.names()[0])
    row.locator(".name").click()
    visit.settle()
    expect(row.locator(".why")).to_be_visible()
    assert row.locator(".notice").count() == 0
    assert marked(visit.page) == []


def test_a_model_of_features_says_what_it_takes(visit):
    visit.write(TEXT)
    visit.page.locator("#model-0").select_option("features")
    visit.settle()
    assert visit.names() == []
    expect(visit.page.locator(".panel").first).to_contain_text("takes rows of features, not texts")
    assert not visit.failed
    visit.go("Labels")
    expect(visit.page.locator("tbody tr").first).to_be_visible()


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
    torso = sorted((one["name"] for one in everything if one["group"] == "torso"), key=str.casefold)
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
    expect(page.locator("#view-labels .status")).to_have_text("No label is like that.")


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


def test_a_text_without_a_kept_label_is_not_downloaded(visit, tmp_path):
    page = visit.page
    visit.write(TEXT)
    visit.row(visit.names()[0]).locator(".reject").click()
    visit.go("Corrections")
    expect(page.get_by_role("button", name="Download JSONL")).to_be_disabled()
    expect(page.locator("#view-corrections")).to_contain_text("1 text without a label that you kept or added")
    visit.go("Text")
    visit.write(OTHER)
    kept = visit.names()[0]
    visit.row(kept).locator(".keep").click()
    visit.go("Corrections")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download JSONL").click()
    download.value.save_as(tmp_path / "rows.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text("utf-8").splitlines()]
    assert rows == [{"text": OTHER, "labels": [kept], "rejected": []}]


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


def test_what_the_server_refuses_is_said(visit):
    visit.write("word " * 1001)
    alert = visit.page.get_by_role("alert")
    expect(alert).to_contain_text("5,005")
    expect(alert).to_contain_text("5,000 characters")
    assert visit.names() == []
    visit.write(TEXT)
    expect(alert).to_have_count(0)
    assert visit.names()


def test_models_that_are_being_loaded(visit, server):
    registry = server.service.registry
    tree = registry._served.pop("tree")
    try:
        visit.page.reload()
        expect(visit.page.locator("#notice")).to_have_text("Being loaded: tree.")
        assert visit.page.locator("#model-0 option[disabled]").all_text_contents() == ["tree (loading)"]
    finally:
        registry._served["tree"] = tree
    expect(visit.page.locator("#notice")).to_be_empty()
    visit.page.locator("#model-0").select_option("tree")


def test_waits_for_a_busy_server(visit, server, monkeypatch):
    from longtail.app.serve.problems import busy

    visit.write(TEXT)
    answer, refused = server.service.predictor.answer, []

    async def busily(body):
        if not json.loads(body).get("explain") and (not refused or refused[0] == "always"):
            refused.append(time.monotonic())
            raise busy("1,024 rows wait, the most: try again later.")
        return await answer(body)

    monkeypatch.setattr(server.service.predictor, "answer", busily)
    visit.page.fill("#text", OTHER)
    expect(visit.page.locator(".panel").first).to_contain_text("The server is busy. It is asked again in 1 second.")
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


def test_a_server_that_is_gone_and_comes_back(browser, models):
    port, served = free_port(), {"tags": models["tags"]}
    first = Server(served, port=port)
    with first, Visit(browser, first) as visit:
        visit.write(TEXT)
        first.stop()
        visit.page.fill("#text", OTHER)
        alert = visit.page.get_by_role("alert")
        expect(alert).to_contain_text("The server can’t be reached")
        assert visit.findings() == []
        with Server(served, port=port):
            alert.get_by_role("button", name="Try again").click()
            expect(visit.page.locator("#results-0 .result")).to_have_count(10)
            expect(alert).to_have_count(0)


def test_asks_for_a_key_and_keeps_it_in_the_tab(browser, models):
    with Server({"tags": models["tags"]}, keys=["correct-horse"]) as locked, Visit(browser, locked) as visit:
        page = visit.page
        dialog = page.get_by_role("dialog", name="This server asks for a key")
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
        last, panel = (visit.page.locator(name).bounding_box() for name in ("#own", "#results-0"))
        assert last["y"] > panel["y"] + panel["height"]


def test_files_of_the_page_are_small_and_hold_nothing_inline(server):
    from longtail.app.serve.pages import page_files

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
