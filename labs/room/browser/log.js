// --- Centre: the log of the sink's topic by offset, and below it the results that two readers see

const REMEMBERED = 5000; // entries of the log that can be scrolled back to
const READER_SHOWS = 48;
const LINE = 5.1; // em: the height of a line of the log, as in the style

// The entries that were seen, by offset: the state has only the newest ones.
function historyOf() {
  const entries = new Map();
  let end = 0;
  return {
    get: (offset) => entries.get(offset),
    add: (found) => found.forEach((entry) => entries.has(entry.offset) || entries.set(entry.offset, entry)),
    take(log) {
      if (log.end < end) entries.clear(); // another act, or an earlier moment of a recording
      end = log.end;
      log.entries.forEach((entry) => entries.set(entry.offset, entry));
      for (const offset of entries.keys()) {
        if (entries.size <= REMEMBERED) break;
        entries.delete(offset);
      }
    },
  };
}

// Groups neighbours that belong together: the records of a transaction, and the control record that ends it.
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

function newCell(arrives = false) {
  const node = made("div", { class: arrives ? "eo-cell eo-arrives" : "eo-cell" });
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
  say(node.parts.client, entry.copy ? room.words.texts.again : client); // both are wider than a cell
}

function logPart(room) {
  const { texts, signs } = room.words;
  const bands = made("div", { class: "eo-layer" });
  const cells = made("div", { class: "eo-layer" });
  const stable = made("div", { class: "eo-stable" }, made("span"));
  const numbers = made("div", { class: "eo-layer" });
  const map = made("div", { class: "eo-map", role: "img" }, bands, cells, numbers, stable);
  const view = made("div", { class: "eo-window" }, map);
  const marker = made("span", { class: "eo-marker" });
  const [earlier, later, newest] = ["earlier", "later", "newest"].map((name) => made("button", { type: "button", class: `eo-${name}` }, texts[name]));
  const readers = ["committed", "uncommitted"].map((name) => {
    const count = made("span", { class: "eo-reader-count" });
    const chips = made("div", { class: "eo-chips", "aria-hidden": "true" });
    const label = made("div", { class: "eo-reader-name" }, made("code", {}, texts[name]), " ", count);
    return { name, count, chips, element: made("div", { class: `eo-reader eo-reader-${name}` }, label, chips) };
  });
  const key = made("dl", {}, ...room.words.key.flatMap(([term, tip]) => [made("dt", {}, term), made("dd", {}, tip)]));
  const element = part("log", texts.log, view, ...readers.map((each) => each.element), made("details", { class: "eo-key" }, made("summary", {}, texts.key), key));
  element.firstChild.classList.add("eo-row", "eo-log-head");
  element.firstChild.replaceChildren(made("span", {}, made("b", {}, texts.log), ` ${texts.log_hint}`), marker, made("div", { class: "eo-row eo-scroll" }, earlier, later, newest));
  let columns = 24;
  let lines = 4;
  let from = null; // the offset that is shown first; null: the newest are shown
  let found = new Set(); // the offsets of the evidence that was asked for
  let [top, lastTop, end, seen] = [0, 0, 0, Infinity]; // lines; offsets

  // A copy and its original flash together.
  function flash(cell) {
    cell.classList.remove("eo-flash");
    requestAnimationFrame(() => cell.classList.add("eo-flash"));
  }

  function scrollTo(line) {
    from = line >= lastTop ? null : Math.max(0, line) * columns;
    room.redraw("log");
  }
  onPress(earlier, () => scrollTo(top - Math.max(1, lines - 1)));
  onPress(later, () => scrollTo(top + Math.max(1, lines - 1)));
  onPress(newest, () => scrollTo(Infinity));

  // Shows the first record of a piece of evidence, the next one if it is pressed again; without any, the newest records.
  let turn = 0;
  room.showInLog = (entries) => {
    room.history.add(entries);
    const offsets = [...new Set(entries.map((entry) => entry.offset))].sort((a, b) => a - b);
    const again = offsets.length && offsets.length === found.size && offsets.every((offset) => found.has(offset));
    turn = again ? (turn + 1) % offsets.length : 0;
    found = new Set(offsets);
    scrollTo(offsets.length ? Math.floor(offsets[turn] / columns) - 1 : Infinity);
  };

  // The place of an offset: each line has as many columns as fit. The newest line is at the bottom.
  function draw(state) {
    if (state.log.end < end) [from, found, seen] = [null, new Set(), Infinity];
    end = state.log.end;
    lastTop = Math.max(0, Math.floor(end / columns) - lines + 1);
    top = from === null ? lastTop : Math.min(lastTop, Math.floor(from / columns));
    const at = (offset) => [Math.floor(offset / columns) - top, offset % columns];
    const after = Math.min(end, (top + lines) * columns);
    const shown = [];
    for (let offset = top * columns; offset < after; offset += 1) if (room.history.get(offset)) shown.push(room.history.get(offset));

    keep(cells, shown, (entry) => entry.offset, (entry) => newCell(entry.offset >= seen), (node, entry) => {
      showCell(room, node, entry);
      mark(node, "data-found", found.has(entry.offset));
      const [line, column] = at(entry.offset);
      node.style.gridRow = line * 3 + 2;
      node.style.gridColumn = column + 1;
    });
    for (const copy of shown.filter((entry) => entry.copy && entry.offset >= seen)) {
      for (const entry of shown) if (entry.window === copy.window && entry.ip === copy.ip) flash(cells.kept.get(entry.offset));
    }
    seen = end;
    mark(earlier, "aria-disabled", top === 0);
    mark(later, "aria-disabled", from === null);
    mark(newest, "aria-disabled", from === null);
    say(newest, from === null ? texts.newest : filled(texts.newer, { number: end - after }));
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
    drawStable(state.log, at);

    const now = grouped(shown).at(-1);
    const last = now ? filled(texts[now.batch === null ? "transaction_of_none" : "transaction"], { ...now, sign: "", state: signs.entries[now.state][1] }) : texts.log_empty;
    mark(map, "aria-label", filled(texts.log_words, { ...state.log, last }));
    const without = state.stage.name === room.words.with_marker ? texts.no_marker_yet : texts.no_marker;
    say(marker, state.marker ? filled(texts.marker, state.marker) : without);
    drawReaders(state);
  }

  function drawStable(log, at) {
    const [line, column] = at(Math.max(log.stable, top * columns));
    mark(stable, "data-hidden", line >= lines);
    if (line >= lines) return;
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
      keep(chips, seen[name].slice(-READER_SHOWS).reverse(), (entry) => entry.offset, () => newCell(), (node, entry) => showCell(room, node, entry));
    }
  }

  // The log has as many lines as its place has room for.
  const sizes = new ResizeObserver(() => {
    const em = parseFloat(getComputedStyle(map).fontSize);
    const fits = map.clientWidth / (em * 2.3);
    columns = [32, 24, 16, 12].find((each) => each <= fits) ?? 8;
    lines = Math.max(2, Math.floor((view.clientHeight + 2) / (em * LINE)));
    map.style.setProperty("--columns", columns);
    map.style.setProperty("--lines", lines);
    room.redraw("log");
  });
  sizes.observe(view);
  return { element, keys: ["log", "readers", "marker", "stage"], draw, end: () => sizes.disconnect() };
}
