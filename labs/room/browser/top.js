// --- Top: what the room is for, the verdict and its evidence, the stage, the traffic

const SIZES = [0.7, 0.8, 0.9, 1, 1.15, 1.3, 1.5, 1.75]; // times the size that fits the width
const UNDO = 3; // seconds in which a new act can be cancelled

function sizeButtons(room) {
  const { texts } = room.words;
  let size = SIZES.indexOf(1);
  const buttons = [["smaller", -1], ["larger", 1]].map(([name, step]) => {
    const button = made("button", { type: "button", title: texts[name], "aria-label": texts[name] }, texts[`${name}_sign`]);
    onPress(button, () => {
      size = Math.min(SIZES.length - 1, Math.max(0, size + step));
      button.closest(".eo-room").style.setProperty("--eo-scale", SIZES[size]);
    });
    return button;
  });
  return made("div", { class: "eo-row eo-sizes", role: "group", "aria-label": texts.size }, ...buttons);
}

// Title, purpose and three steps. It is the page's first heading, unless the page has one.
function introPart(room) {
  const { texts } = room.words;
  const heading = made(document.querySelector("h1") ? "h2" : "h1", { class: "eo-heading" }, texts.title);
  const steps = ["step_start", "step_strike", "step_watch"].map((name) => {
    const sign = made("span", { class: "eo-number", "aria-hidden": "true" });
    return { sign, element: made("li", {}, sign, texts[name]) };
  });
  const list = made("ol", { class: "eo-steps", "aria-label": texts.steps }, ...steps.map((each) => each.element));
  const purpose = made("p", { class: "eo-purpose" }, texts.purpose);
  return {
    element: made("div", { class: "eo-intro" }, made("div", {}, heading, purpose), list, sizeButtons(room)),
    keys: ["traffic", "chronicle"],
    draw({ traffic, chronicle }) {
      const done = [traffic.sent > 0, chronicle.some((each) => each.strike === "kill-driver"), false];
      const now = done.indexOf(false);
      steps.forEach(({ sign, element }, n) => {
        mark(element, "data-step", n === now ? "now" : done[n] ? "done" : "later");
        say(sign, done[n] ? "✓" : n + 1);
        if (n === now) mark(element, "aria-current", "step");
        else element.removeAttribute("aria-current");
      });
    },
  };
}

// The running verdict with what it waits for; once the auditor has judged, the auditor's.
function verdictPart(room) {
  const { texts, tips, signs, numbers } = room.words;
  const sign = made("span", { class: "eo-sign", "aria-hidden": "true" });
  const word = made("span", { class: "eo-word" });
  const counts = made("div", { class: "eo-counts" });
  const figures = Object.fromEntries(numbers.map((name) => [name, made("span", { class: "eo-figure" })]));
  const expected = made("span", { class: "eo-soft" });
  for (const name of numbers) {
    const button = made("button", { type: "button", class: `eo-count eo-count-${name}`, title: tips[name] });
    button.append(figures[name], made("span", { class: "eo-label" }, name));
    onPress(button, () => room.showEvidence(name));
    counts.append(button);
  }
  const why = made("p", { class: "eo-why" });
  const waits = made("p", { class: "eo-waits" });
  const head = made("div", { class: "eo-verdict-word", role: "status" }, sign, word);
  counts.append(expected);
  const element = part("verdict", texts.verdict, made("div", { class: "eo-verdict-line" }, head, counts), made("div", { class: "eo-reasons" }, why, waits));
  return {
    element,
    keys: ["verdict", "waiting", "report"],
    draw({ verdict, waiting, report }) {
      const judged = report ?? verdict;
      const name = report?.verdict ?? verdict.word;
      const shown = { ...judged, awaited: report && name !== "unknown" ? 0 : verdict.awaited };
      say(element.firstChild, report ? texts.final : texts.verdict);
      mark(element, "data-word", name);
      mark(element, "data-final", !!report);
      mark(element, "data-waits", !report && !!waiting);
      say(sign, signs.verdicts[name][0]);
      say(word, report ? signs.verdicts[name][1] : texts[`so_far_${name}`]);
      for (const each of numbers) {
        say(figures[each], shown[each]);
        mark(figures[each].parentNode, "data-none", shown[each] === 0);
        mark(figures[each].parentNode, "aria-label", filled(texts.count, { number: shown[each], name: each, tip: tips[each] }));
      }
      say(expected, filled(texts.expected, judged));
      say(why, report ? `${texts.judged} ${report.why}` : verdict.why);
      const template = !waiting ? texts.awaited : verdict.awaited ? texts.waits : texts.waits_alone;
      say(waits, report || (!waiting && !verdict.awaited) ? "" : filled(template, { ...verdict, waiting }));
    },
  };
}

// The first pieces of evidence of one kind; each leads to its records in the log.
function evidencePart(room) {
  const { texts, tips, flaws } = room.words;
  const list = made("ol", { class: "eo-pieces" });
  const none = made("p", { class: "eo-soft eo-none" });
  const element = part("evidence", texts.evidence, none, list);
  let asked = null;
  let known = [];
  room.showEvidence = (kind) => {
    asked = kind;
    room.redraw("evidence");
    const first = known.find((each) => each.kind === kind && each.entries.length);
    room.showInLog(first?.entries ?? []);
  };
  const make = () => {
    const button = made("button", { type: "button", class: "eo-piece" });
    onPress(button, () => room.showInLog(button.entries));
    return made("li", {}, button);
  };
  return {
    element,
    keys: ["evidence", "verdict", "stage"],
    draw({ evidence, verdict }) {
      known = evidence;
      const kind = asked ?? flaws.find((each) => evidence.some((piece) => piece.kind === each)) ?? flaws[0];
      const shown = evidence.filter((each) => each.kind === kind).map((each, n) => ({ ...each, n }));
      say(element.firstChild, filled(texts.evidence_of, { kind, tip: tips[kind] }));
      mark(element, "data-kind", kind);
      say(none, shown.length ? "" : verdict[kind] ? texts.not_kept : texts.no_evidence);
      keep(list, shown, (each) => each.n, make, (node, each) => {
        node.firstChild.entries = each.entries;
        say(node.firstChild, each.words);
        mark(node.firstChild, "aria-disabled", !each.entries.length);
        mark(node.firstChild, "title", each.entries.length ? filled(texts.show_records, each) : each.words);
      });
    },
  };
}

function stagePart(room) {
  const { texts, orders } = room.words;
  const steps = made("div", { class: "eo-stages" });
  const act = made("span", { class: "eo-soft eo-act", role: "status" });
  const cancel = made("button", { type: "button", class: "eo-cancel" }, texts.cancel);
  const element = part("stage", texts.stage, steps);
  element.firstChild.append(made("span", { class: "eo-coming" }, act, cancel));
  let [sent, left, chosen, timer] = [0, 0, null, 0];

  // A new act throws this one away: there is time to cancel it, if there is anything to lose.
  function choose(name) {
    clearInterval(timer);
    if (!sent) return room.send({ do: "choose-stage", stage: name });
    [chosen, left] = [name, UNDO];
    timer = setInterval(() => {
      left -= 1;
      if (!left) {
        room.send({ do: "choose-stage", stage: chosen });
        stop();
      }
      room.redraw("stage");
    }, 1000);
    room.redraw("stage");
  }
  function stop() {
    clearInterval(timer);
    chosen = null;
    room.redraw("stage");
  }
  onPress(cancel, stop);

  return {
    element,
    keys: ["stage", "traffic", "possible", "report"],
    draw(state) {
      if (!room.live && chosen !== null) stop();
      sent = state.traffic.sent;
      say(act, chosen === null ? filled(texts.act, state.stage) : filled(texts.coming, { left }));
      mark(cancel, "data-hidden", chosen === null);
      mark(cancel, "aria-disabled", chosen === null);
      const possible = state.possible.includes("choose-stage");
      const make = (name) => {
        if (!room.live) return made("span", { class: "eo-stage-step" }, name);
        const button = made("button", { type: "button", class: "eo-stage-step", "data-order": "choose-stage" }, name);
        onPress(button, () => choose(name));
        return button;
      };
      keep(steps, state.stage.names, (name) => name, make, (button, name) => {
        const here = name === state.stage.name;
        if (!room.live && here) mark(button, "aria-current", "step");
        else button.removeAttribute("aria-current");
        if (button.tagName !== "BUTTON") return;
        mark(button, "aria-pressed", here);
        mark(button, "aria-disabled", !room.live || (here && !state.report) || !possible);
        mark(button, "title", orders["choose-stage"].hint);
      });
    },
    end: () => clearInterval(timer),
  };
}

function trafficPart(room) {
  const { texts, orders, most_rate } = room.words;
  const toggle = orderButton(room, ["start-traffic", "stop-traffic"]);
  const rate = made("input", { type: "number", class: "eo-rate", min: "0", max: `${most_rate}`, step: "any", "aria-label": orders["set-rate"].hint });
  let [typing, waits, before] = [false, false, {}]; // waits: for the room's answer
  rate.addEventListener("input", () => ([typing, waits] = [true, false]));
  rate.addEventListener("change", () => {
    typing = waits = rate.value !== "";
    if (waits) room.send({ do: "set-rate", rate: Number(rate.value) });
    else room.redraw("traffic");
  });
  const asked = made("span", { class: "eo-soft eo-asked" });
  const finish = orderButton(room, ["finish"]);
  const folder = made("input", { type: "text", class: "eo-folder", "aria-label": texts.folder, placeholder: texts.folder });
  const save = orderButton(room, ["save"], () => ({ folder: folder.value }));
  const label = made("label", { class: "eo-row" }, rate, orders["set-rate"].label);
  const row = made("div", { class: "eo-row" }, made("div", { class: "eo-row eo-orders" }, toggle, label), asked, made("div", { class: "eo-row eo-orders eo-end" }, finish, folder, save));
  return {
    element: part("traffic", texts.traffic, row),
    keys: ["traffic", "possible", "message"],
    draw(state) {
      allow(room, toggle, state, { state: state.traffic.on ? "on" : "off" });
      for (const button of [finish, save]) allow(room, button, state);
      // The room takes a rate, or says why it does not. Then the field shows the room's rate.
      const { traffic, message } = state;
      if (waits && (traffic.rate !== before.rate || (message && message !== before.message))) typing = waits = false;
      before = { rate: traffic.rate, message };
      if (!typing && rate.value !== `${traffic.rate}`) rate.value = traffic.rate;
      say(asked, filled(state.traffic.on ? texts.traffic_on : texts.traffic_off, state.traffic));
    },
  };
}

// The room's message lies over the page, so that nothing moves.
function messagePart(room) {
  const text = made("span");
  const close = made("button", { type: "button", "aria-label": room.words.texts.dismiss, title: room.words.texts.dismiss }, "×");
  const message = made("p", { class: "eo-message", role: "status", "data-hidden": true }, text, close);
  onPress(close, () => mark(message, "data-hidden", true));
  return {
    element: made("div", { class: "eo-messages" }, message),
    keys: ["message"],
    draw(state) {
      if (text.textContent !== state.message) mark(message, "data-hidden", !state.message);
      say(text, state.message);
    },
  };
}
