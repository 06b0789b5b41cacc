// --- Above the log: the strikes on an axis of time, and their consequences; the newest is the log's caption

const SHORTEST = 60; // seconds that the axis shows at least
const widest = ({ number }) => 0.9 + 0.55 * (2 * `${number}`.length + 1); // em: a mark such as 10–12

// Groups strikes whose marks would overlap; each group has one mark: 3–5.
function together(chronicle, left, em) {
  const groups = [];
  for (const each of chronicle) {
    const last = groups.at(-1);
    if (last && left(each.time) - left(last[0].time) < em * widest(each)) last.push(each);
    else groups.push([each]);
  }
  return groups;
}

function strikesPart(room) {
  const { texts } = room.words;
  const marks = made("div", { class: "eo-marks" });
  const now = made("div", { class: "eo-now" });
  const [from, to] = [made("span"), made("span")];
  const axis = made("div", { class: "eo-axis" }, made("div", { class: "eo-axis-line" }), marks, now);
  const list = made("ol", { class: "eo-chronicle", "aria-live": "polite", "aria-relevant": "additions text", "aria-label": texts.chronicle, tabindex: "0" });
  const none = made("p", { class: "eo-soft eo-none" });
  const line = made("div", { class: "eo-time eo-soft", "aria-hidden": "true" }, from, axis, to);
  const element = part("strikes", texts.chronicle, line, none, list);

  const item = () => {
    const node = made("li");
    node.parts = ["eo-number", "eo-when", "eo-what", "eo-consequence"].map((name) => made("span", { class: name }));
    node.append(...node.parts);
    return node;
  };
  return {
    element,
    keys: ["time", "chronicle"],
    draw({ time, chronicle }) {
      const span = Math.max(SHORTEST, room.seconds ?? time);
      const left = (at) => (100 * Math.min(at, span)) / span;
      const em = (100 * parseFloat(getComputedStyle(axis).fontSize)) / axis.clientWidth; // in percent of the axis
      now.style.left = `${decimal(left(time))}%`;
      say(from, filled(texts.strike, { time: 0 }));
      say(to, filled(texts.strike, { time: rounded(span) }));
      keep(marks, together(chronicle, left, em), (group) => group[0].number, () => made("span", { class: "eo-mark" }), (node, group) => {
        const [first, last] = [group[0], group.at(-1)];
        node.style.left = `${decimal(left(first.time))}%`;
        say(node, first === last ? first.number : `${first.number}–${last.number}`);
        mark(node, "title", group.map((each) => each.words).join("; "));
      });
      say(none, chronicle.length ? "" : texts.no_strikes);
      const newest = [...chronicle].sort((a, b) => b.number - a.number);
      keep(list, newest, (each) => each.number, item, (node, each) => {
        const [number, when, what, consequence] = node.parts;
        say(number, each.number);
        say(when, filled(texts.strike, { time: decimal(each.time) }));
        say(what, each.words);
        if (node.told === "" && each.consequence) pulse(node);
        node.told = each.consequence;
        say(consequence, each.consequence ? `→ ${each.consequence}` : texts.pending);
      });
    },
  };
}
