"""Predictions for a text, in a real Chromium: labels, highlighted words, explanations, the dial, two models."""

import asyncio
import json

import pytest

from .seeing import OTHER, TEXT, expect, marked, percents


def test_ranks_labels_with_chances_and_frequencies(visit, server):
    visit.write(TEXT)
    truth = server.predict(text=TEXT, k=10)
    assert visit.names() == [one["name"] for one in truth]
    assert visit.values() == percents([one["probability"] for one in truth])
    for one in truth[:4]:
        assert visit.row(one["name"]).locator(".facts").inner_text().split()[:2] == [
            one["bin"],
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


def test_the_dial_reranks_and_keeps_probabilities(visit, server):
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
    expect(visit.page.locator("#legend")).to_have_text(f"Words that move {right[1]['name']} up or down in tree")
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
