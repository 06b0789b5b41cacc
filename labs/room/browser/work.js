// --- The work: batches, and the rates of the last minute

const SHOWN_BATCHES = 5;
const SPAN = 60; // seconds that a chart shows
const [CHART_WIDTH, CHART_HEIGHT] = [240, 44];

function batchesPart(room) {
  const { texts, signs } = room.words;
  const strip = made("div", { class: "eo-batches" });
  const none = made("p", { class: "eo-soft eo-none" });
  const make = () => {
    const node = made("div", { class: "eo-batch" });
    node.parts = ["eo-name", "eo-state", "eo-soft", "eo-runs"].map((name) => made("span", { class: name }));
    node.append(...node.parts);
    return node;
  };
  return {
    element: part("batchwork", texts.batches, strip, none),
    keys: ["batches"],
    draw({ batches }) {
      say(none, batches.length ? "" : texts.no_batches);
      keep(strip, batches.slice(-SHOWN_BATCHES), (each) => each.number, make, (node, each) => {
        const [sign, word] = signs.batches[each.state];
        const [name, state, by, runs] = node.parts;
        mark(node, "data-state", each.state);
        mark(node, "data-repeated", each.runs > 1);
        say(name, filled(texts.batch, each));
        say(state, `${sign} ${word}`);
        say(by, each.driver ? filled(texts.batch_by, each) : "");
        say(runs, each.runs > 1 ? filled(texts.runs, each) : "");
        mark(runs, "title", filled(texts.begun, each));
      });
    },
  };
}

function ratesPart(room) {
  const { texts } = room.words;
  const samples = []; // {time, sent, counted, behind} of the last minute
  const charts = [["sent", texts.per_second], ["counted", texts.per_second], ["behind", ""]].map(([name, unit]) => {
    const number = made("span", { class: "eo-figure" });
    const most = made("span", { class: "eo-soft eo-most" });
    const area = drawn("path", { class: "eo-area" });
    const line = drawn("path", { class: "eo-line" });
    const picture = drawn("svg", { viewBox: `0 0 ${CHART_WIDTH} ${CHART_HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, area, line);
    const label = made("div", { class: "eo-chart-label" }, made("span", { class: "eo-label" }, texts[name]), " ", number, unit);
    return { name, number, most, area, line, element: made("div", { class: `eo-chart eo-chart-${name}` }, label, picture, most) };
  });

  function sample({ time, traffic, counted }) {
    while (samples.length && (samples[0].time < time - SPAN || samples.at(-1).time > time)) {
      if (samples.at(-1).time > time) samples.length = 0;
      else samples.shift();
    }
    const last = samples.at(-1);
    const now = { time, sent: traffic.per_second, counted: counted.per_second, behind: counted.behind };
    if (last && time - last.time < 0.2) Object.assign(last, now, { time: last.time });
    else samples.push(now);
  }

  return {
    element: part("rates", texts.rates, made("div", { class: "eo-charts" }, ...charts.map((each) => each.element))),
    keys: ["time", "traffic", "counted"],
    sample,
    draw(state) {
      sample(state);
      for (const { name, number, most, area, line } of charts) {
        const highest = Math.max(1, ...samples.map((each) => each[name]));
        const x = (time) => decimal(CHART_WIDTH * (1 - (state.time - time) / SPAN));
        const y = (value) => decimal(CHART_HEIGHT - 2 - (CHART_HEIGHT - 4) * (value / highest));
        const points = samples.map((each) => `${x(each.time)} ${y(each[name])}`).join(" L ");
        mark(line, "d", `M ${points}`);
        mark(area, "d", `M ${x(samples[0].time)} ${CHART_HEIGHT} L ${points} L ${x(samples.at(-1).time)} ${CHART_HEIGHT} Z`);
        say(number, rounded(samples.at(-1)[name]));
        say(most, filled(texts.most, { most: rounded(highest) }));
      }
    },
  };
}
