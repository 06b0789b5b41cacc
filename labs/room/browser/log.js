// --- The heart: the log of the sink's topic by offset, and below it what two readers see

const MOST = 48; // entries that the state holds
const READER_SHOWS = 32;

// Entries that lie together and belong together: a transaction with the control record that ends it.
function grouped(entries) {
  const groups = [];
  let last = null;
  for (const entry of entries) {
    const ends = entry.kind === "commit" || entry.kind === "abort";
    const alike = last && !last.ended && last.producer === entry.producer &&
      (ends || ["epoch", "state", "batch", "copy"].every((key) => last[key] === entry[key]));
    if (!alike) {
      last = { ...entry, first: entry.offset, entries: [] };
      groups.push(last);
    }
    last.entries.push(entry);
    last.ended = ends;
  }
  return groups;
}

function entryWords(room, entry) {
  const { texts, signs } = room.words;
  const control = signs.entries[entry.kind];
  const state = control ? control[1] : signs.entries[entry.state][1];
  const template = entry.kind !== "row" ? texts.control : entry.state === "plain" ? texts.plain_row : texts.row;
  return filled(template, { ...entry, state }) + (entry.copy ? texts.copy : "");
}

function newCell() {
  const node = made("div", { class: "eo-cell" });
  node.parts = { count: made("span", { class: "eo-cell-count" }), client: made("span", { class: "eo-cell-client" }) };
  node.append(node.parts.count, node.parts.client);
  return node;
}

function showCell(room, node, entry) {
  const seen = [entry.kind, entry.state, entry.copy, entry.count, entry.ip, entry.window, entry.epoch, entry.batch].join();
  if (node.seen === seen) return;
  node.seen = seen;
  mark(node, "data-kind", entry.kind);
  mark(node, "data-state", entry.state);
  mark(node, "data-copy", entry.copy);
  mark(node, "title", entryWords(room, entry));
  const control = room.words.signs.entries[entry.kind];
  say(node.parts.count, control ? control[0] : entry.count ?? "·");
  const client = control || !entry.ip ? "" : `.${entry.ip.split(".").pop()}`;
  say(node.parts.client, entry.copy ? `${client} ${room.words.texts.again}` : client);
}

function logPart(room) {
  const { texts, signs } = room.words;
  const bands = made("div", { class: "eo-layer" });
  const cells = made("div", { class: "eo-layer" });
  const stable = made("div", { class: "eo-stable" }, made("span"));
  const numbers = made("div", { class: "eo-layer" });
  const map = made("div", { class: "eo-map", role: "img" }, bands, cells, numbers, stable);
  const marker = made("span", { class: "eo-marker" });
  const readers = ["committed", "uncommitted"].map((name) => {
    const count = made("span", { class: "eo-reader-count" });
    const chips = made("div", { class: "eo-chips", "aria-hidden": "true" });
    const label = made("div", { class: "eo-reader-name" }, made("code", {}, texts[name]), " ", count);
    return { name, count, chips, element: made("div", { class: `eo-reader eo-reader-${name}` }, label, chips) };
  });
  const element = part("log", texts.log, map, ...readers.map((each) => each.element));
  element.firstChild.classList.add("eo-row", "eo-log-head");
  element.firstChild.replaceChildren(made("span", {}, made("b", {}, texts.log), ` ${texts.log_hint}`), marker);
  let columns = 24;
  let lines = 3;


  // Where an offset lies: lines of as many columns as there is room for, the newest line at the bottom.
  function draw(state) {
    const { end, entries } = state.log;
    const top = Math.max(0, Math.floor(end / columns) - lines + 1);
    const at = (offset) => [Math.floor(offset / columns) - top, offset % columns];
    const shown = entries.filter((entry) => entry.offset >= top * columns).slice(-MOST);

    keep(cells, shown, (entry) => entry.offset, newCell, (node, entry) => {
      showCell(room, node, entry);
      const [line, column] = at(entry.offset);
      node.style.gridRow = line * 3 + 2;
      node.style.gridColumn = column + 1;
    });
    const pieces = grouped(shown).flatMap((group) => {
      const found = [];
      for (const { offset } of group.entries) {
        const [line, column] = at(offset);
        const piece = found.at(-1);
        if (piece?.line === line && piece.column + piece.span === column) piece.span += 1;
        else found.push({ group, line, column, span: 1, offset, first: !found.length });
      }
      (found.find((piece) => piece.span > 1) ?? found[0]).named = true;
      found.at(-1).last = group.ended || group.state !== "open";
      return found;
    });
    keep(bands, pieces, (piece) => piece.offset, () => made("div", { class: "eo-band" }, made("span")), (node, piece) => {
      const { group, span, first, last, named } = piece;
      node.style.gridRow = `${piece.line * 3 + 1} / span 2`;
      node.style.gridColumn = `${piece.column + 1} / span ${span}`;
      mark(node, "data-state", group.state);
      mark(node, "data-first", first);
      mark(node, "data-last", !!last);
      const [sign, name] = signs.entries[group.state];
      const kind = group.state === "plain" ? "plain" : "transaction";
      const size = span < 4 ? "_short" : group.batch === null ? "_of_none" : span < 8 ? "_shorter" : "";
      say(node.firstChild, named && span > 1 ? filled(texts[kind + size], { ...group, sign, state: name }) : "");
    });
    const starts = [...Array(lines).keys()].map((line) => (top + line) * columns).filter((offset) => offset <= end);
    keep(numbers, starts, (offset) => offset, (offset) => made("span", { class: "eo-offset" }, offset), (node, offset) => {
      node.style.gridRow = at(offset)[0] * 3 + 3;
      node.style.gridColumn = "1 / span 2";
    });
    drawStable(state.log, at, top);

    const now = grouped(shown).at(-1);
    const last = now ? filled(texts[now.batch === null ? "transaction_of_none" : "transaction"], { ...now, sign: "", state: signs.entries[now.state][1] }) : texts.log_empty;
    mark(map, "aria-label", filled(texts.log_words, { ...state.log, last }));
    say(marker, state.marker ? filled(texts.marker, state.marker) : texts.no_marker);
    drawReaders(state);
  }

  function drawStable(log, at, top) {
    const [line, column] = at(Math.max(log.stable, top * columns));
    stable.style.gridRow = `${line * 3 + 2} / span 2`;
    stable.style.gridColumn = `${column + 1}`;
    mark(stable, "data-behind", log.stable < log.end);
    mark(stable, "data-flip", column > columns / 2);
    say(stable.firstChild, filled(texts.stable, log));
  }

  function drawReaders(state) {
    const rows = state.log.entries.filter((entry) => entry.kind === "row");
    const seen = {
      committed: rows.filter((entry) => entry.offset < state.log.stable && (entry.state === "plain" || entry.state === "committed")),
      uncommitted: rows,
    };
    for (const { name, count, chips } of readers) {
      say(count, filled(texts.sees, { count: state.readers[name] }));
      keep(chips, seen[name].slice(-READER_SHOWS).reverse(), (entry) => entry.offset, newCell, (node, entry) => showCell(room, node, entry));
    }
  }

  const sizes = new ResizeObserver(() => {
    const em = parseFloat(getComputedStyle(map).fontSize);
    const fits = map.clientWidth / (em * 2.3);
    columns = [24, 16, 12].find((each) => each <= fits) ?? 8;
    lines = Math.ceil(MOST / columns) + 1;
    map.style.setProperty("--columns", columns);
    map.style.setProperty("--lines", lines);
    room.redraw("log");
  });
  sizes.observe(map);
  return { element, keys: ["log", "readers", "marker"], draw, end: () => sizes.disconnect() };
}
