"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const BATCH = 200, RESULTS = 20, PLACES = 6;
  const starts = (first, counts) => {
    const found = new Int32Array(counts.length + 1);
    found[0] = first;
    counts.forEach((count, at) => { found[at + 1] = found[at] + count; });
    return found;
  };
  const childStarts = starts(data.begins, data.children), labelStarts = starts(0, data.holds);
  const parents = new Int32Array(data.nodes.length).fill(-1);
  for (let node = 0; node < data.nodes.length; node++) parents.fill(node, childStarts[node], childStarts[node + 1]);
  const roots = Int32Array.from(parents, (parent, node) => node);
  roots.forEach((_, node) => { if (parents[node] >= 0) roots[node] = roots[parents[node]]; });

  const written = new Intl.NumberFormat("en");
  const many = (count, thing) => `${written.format(count)} ${thing}${count === 1 ? "" : "s"}`;
  const make = (kind, name, ...inside) => {
    const made = document.createElement(kind);
    if (name) made.className = name;
    made.append(...inside);
    return made;
  };
  const button = (name, ...inside) => Object.assign(make("button", name, ...inside), { type: "button" });
  const treeName = node => data.trees > 1 && data.nodes[roots[node]] < data.trees ? `tree ${data.nodes[roots[node]]}, ` : "";

  // A list of which only some items are there, with buttons that add those before and after.
  function fill(list, first, last, item, more) {
    const shown = { from: first, to: first };
    const before = make("li", "others", button("more")), after = make("li", "others", button("more"));
    const place = (from, to) => {
      const items = document.createDocumentFragment();
      for (let at = from; at < to; at++) items.append(item(at));
      return items;
    };
    const label = () => {
      before.hidden = shown.from === first;
      after.hidden = shown.to === last;
      before.firstChild.textContent = `${many(shown.from - first, more)} before`;
      after.firstChild.textContent = `${many(last - shown.to, more)} more`;
    };
    const show = (from, to) => {
      if (from > shown.to || to < shown.from) {
        while (before.nextSibling !== after) before.nextSibling.remove();
        shown.from = shown.to = from;
      }
      if (from < shown.from) { before.after(place(from, shown.from)); shown.from = from; }
      if (to > shown.to) { after.before(place(shown.to, to)); shown.to = to; }
      label();
    };
    before.firstChild.addEventListener("click", () => {
      const to = shown.from, from = Math.max(first, to - BATCH);
      show(from, to);
      focusOn(before.nextSibling);
    });
    after.firstChild.addEventListener("click", () => {
      const from = shown.to, old = after.previousSibling;
      show(from, Math.min(last, from + BATCH));
      focusOn(old.nextSibling);
    });
    list.append(before, after);
    show(first, Math.min(last, first + BATCH));
    return at => {
      if (at < shown.from || at >= shown.to) {
        const from = Math.max(first, at - BATCH / 2);
        show(from, Math.min(last, from + BATCH));
      }
    };
  }

  const focusOn = line => { (line.querySelector(":scope > .row") || line).focus(); };

  const opened = new Map();  // what was made under a node: its element, and functions that make an item be there

  function labelLine(at) {
    const label = data.labels[at];
    const line = make("li", "", data.names[label], " ", make("small", "", `(${written.format(data.counts[label])})`));
    line.tabIndex = -1;
    line.id = `label-${at}`;
    return line;
  }

  function nodeLine(node) {
    const title = make("span", "title");
    data.leading[node].forEach((label, at, all) => {
      const name = make("span", "name", data.names[label]);
      if (at + 1 < all.length) name.append(make("span", "between", " ·"));
      title.append(name, " ");
    });
    if (!data.leading[node].length) title.append("no labels");
    const bar = make("span", "bar");
    if (parents[node] >= 0) {
      const whole = data.recorded[parents[node]];
      bar.append(make("span"));
      bar.firstChild.style.width = `${whole ? 100 * data.recorded[node] / whole : 0}%`;
    }
    const facts = make(
      "small", "facts",
      make("span", "", `${parents[node] < 0 ? treeName(node) : ""}node ${data.nodes[node]}`), " ", bar,
      make("span", "", many(data.sizes[node], "label")), " ",
      make("span", "", `${written.format(data.recorded[node])}\u00d7`),
    );
    const row = button("row", make("span", "arrow"), title, " ", facts);
    row.setAttribute("aria-expanded", "false");
    row.id = `node-${node}`;
    row.addEventListener("click", () => toggle(node));
    return make("li", "", row);
  }

  const rowOf = node => document.getElementById(`node-${node}`);
  const isOpen = node => rowOf(node).getAttribute("aria-expanded") === "true";

  function open(node) {
    const row = rowOf(node);
    if (!opened.has(node) || !opened.get(node).element.isConnected) {
      const element = make("div", "under"), made = { element };
      if (data.holds[node]) {
        const list = make("ul", "labels");
        made.label = fill(list, labelStarts[node], labelStarts[node + 1], labelLine, "label");
        element.append(list);
      }
      if (data.children[node]) {
        const list = make("ul", "nodes");
        made.node = fill(list, childStarts[node], childStarts[node + 1], nodeLine, "node");
        element.append(list);
      }
      row.after(element);
      opened.set(node, made);
    }
    opened.get(node).element.hidden = false;
    row.setAttribute("aria-expanded", "true");
    return opened.get(node);
  }

  function close(node) {
    if (opened.has(node)) opened.get(node).element.hidden = true;
    rowOf(node).setAttribute("aria-expanded", "false");
  }

  const toggle = node => { isOpen(node) ? close(node) : open(node); };

  function openTo(node) {
    const way = [node];
    while (parents[way[0]] >= 0) way.unshift(parents[way[0]]);
    showRoot(way[0]);
    way.slice(1).forEach((next, at) => open(way[at]).node(next));
    return open(node);
  }

  function mark(element, alone) {
    if (alone) document.querySelectorAll(".found").forEach(old => old.classList.remove("found"));
    element.classList.add("found");
  }

  function goTo(element) {
    element.focus({ preventScroll: true });
    reveal(element);
  }

  function reveal(element) {
    const box = element.getBoundingClientRect();
    if (box.top < 160 || box.bottom > innerHeight - 40) element.scrollIntoView({ block: "center" });
  }

  function showPlace(at, alone = true) {
    openTo(holder(at)).label(at);
    const line = document.getElementById(`label-${at}`);
    mark(line, alone);
    return line;
  }

  function holder(at) {
    let low = 0, high = data.nodes.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (labelStarts[middle] <= at) low = middle; else high = middle;
    }
    return low;
  }

  function placesOf(label) {
    const places = [];
    for (let at = data.labels.indexOf(label); at >= 0; at = data.labels.indexOf(label, at + 1)) places.push(at);
    return places.sort((one, other) => roots[holder(one)] - roots[holder(other)] || one - other);
  }

  // Keys in the tree: the lines are the buttons of nodes, the labels, and the buttons that show more.
  const tree = document.getElementById("tree");
  const showRoot = fill(tree, 0, data.begins, nodeLine, "tree");
  const lines = () => [...tree.querySelectorAll("button, .labels > li[tabindex]")].filter(one => one.offsetParent);
  tree.addEventListener("keydown", event => {
    const line = event.target.closest("button, li[tabindex]");
    if (!line || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const node = line.classList.contains("row") ? Number(line.id.slice(5)) : -1;
    let next = null;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const all = lines();
      next = all[all.indexOf(line) + (event.key === "ArrowDown" ? 1 : -1)];
    } else if (event.key === "Home" || event.key === "End") {
      next = lines().at(event.key === "Home" ? 0 : -1);
    } else if (event.key === "ArrowRight") {
      if (node >= 0 && !isOpen(node)) open(node);
      else if (node >= 0) next = lines()[lines().indexOf(line) + 1];
    } else if (event.key === "ArrowLeft") {
      if (node >= 0 && isOpen(node)) close(node);
      else next = line.closest(".under")?.previousSibling;
    } else return;
    event.preventDefault();
    if (next) next.focus();
  });

  // The search.
  const wanted = document.getElementById("wanted"), said = document.getElementById("said");
  const results = document.getElementById("results");
  const folded = text => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
  let names = null, waiting = 0;

  function find(text) {
    names ??= data.names.map(folded);
    const words = folded(text).split(/\s+/).filter(Boolean), whole = words.join(" ");
    const exact = [], first = [], others = [];
    let count = 0;
    if (words.length) names.forEach((name, label) => {
      if (!words.every(word => name.includes(word))) return;
      count++;
      const kind = name === whole ? exact : name.startsWith(whole) ? first : others;
      if (kind.length < RESULTS) kind.push(label);
    });
    return { count, labels: [...exact, ...first, ...others].slice(0, RESULTS) };
  }

  function choose(at) {
    results.replaceChildren();
    said.textContent = "";
    goTo(showPlace(at));
  }

  function result(label) {
    const places = placesOf(label);
    const whole = button("", data.names[label], " ", make("small", "", `(${written.format(data.counts[label])})`));
    whole.addEventListener("click", () => choose(places[0]));
    const line = make("li", "", whole);
    if (places.length > 1) places.slice(0, PLACES).forEach(at => {
      const place = button("place", `${treeName(holder(at))}node ${data.nodes[holder(at)]}`);
      place.addEventListener("click", () => choose(at));
      line.append(place);
    });
    if (places.length > PLACES) line.append(make("small", "", `and ${places.length - PLACES} others`));
    return line;
  }

  function search() {
    const text = wanted.value.trim(), { count, labels } = find(text);
    results.replaceChildren(...labels.map(result));
    const rest = count > labels.length ? `, the first ${labels.length} here: type more of the name` : "";
    said.textContent = text ? (count ? `${many(count, "label")} found${rest}.` : "No label has this in its name.") : "";
  }

  wanted.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 120); });
  wanted.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === "ArrowDown") {
      event.preventDefault();
      clearTimeout(waiting);
      search();
      const first = results.querySelector("button");
      if (first) event.key === "Enter" ? first.click() : first.focus();
    } else if (event.key === "Escape") {
      wanted.value = "";
      search();
    }
  });
  results.addEventListener("keydown", event => {
    const all = [...results.querySelectorAll("button")], at = all.indexOf(event.target);
    if (event.key === "ArrowDown") (all[at + 1] || event.target).focus();
    else if (event.key === "ArrowUp") (all[at - 1] || wanted).focus();
    else if (event.key === "Escape") wanted.focus();
    else return;
    event.preventDefault();
  });

  // What is open at first: the ways to labels that were asked for, or the first tree.
  const asked = data.open.flatMap(label => placesOf(label)).map(at => showPlace(at, false));
  if (asked.length) reveal(asked[0]);
  else if (data.nodes.length) open(0);
})();
