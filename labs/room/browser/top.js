// --- Top: the verdict, the stage, the traffic

function verdictPart(room) {
  const { texts, signs, numbers } = room.words;
  const sign = made("span", { class: "eo-sign", "aria-hidden": "true" });
  const word = made("span", { class: "eo-word" });
  const counts = made("div", { class: "eo-counts" });
  const figures = Object.fromEntries(numbers.map((name) => [name, made("span", { class: "eo-figure" })]));
  const expected = made("span", { class: "eo-soft" });
  for (const name of numbers) {
    const count = made("div", { class: `eo-count eo-count-${name}` }, figures[name], made("span", { class: "eo-label" }, name));
    counts.append(count);
  }
  const why = made("p", { class: "eo-why" });
  const head = made("div", { class: "eo-verdict-word", role: "status" }, sign, word);
  counts.append(expected);
  const element = part("verdict", texts.verdict, made("div", { class: "eo-verdict-line" }, head, counts, why));
  return {
    element,
    keys: ["verdict"],
    draw({ verdict }) {
      const [symbol, name] = signs.verdicts[verdict.word];
      mark(element, "data-word", verdict.word);
      say(sign, symbol);
      say(word, name);
      for (const each of numbers) {
        say(figures[each], verdict[each]);
        mark(figures[each].parentNode, "data-none", verdict[each] === 0);
      }
      say(expected, filled(texts.expected, verdict));
      say(why, verdict.why);
    },
  };
}

function stagePart(room) {
  const { texts, orders } = room.words;
  const steps = made("div", { class: "eo-stages" });
  const act = made("span", { class: "eo-soft eo-act" });
  const element = part("stage", texts.stage, steps);
  element.firstChild.append(act);
  return {
    element,
    keys: ["stage", "possible"],
    draw(state) {
      say(act, filled(texts.act, state.stage));
      const possible = state.possible.includes("choose-stage");
      const make = (name) => {
        if (!room.live) return made("span", { class: "eo-stage-step" }, name);
        const button = made("button", { type: "button", class: "eo-stage-step", "data-order": "choose-stage" }, name);
        onPress(button, () => room.send({ do: "choose-stage", stage: name }));
        return button;
      };
      keep(steps, state.stage.names, (name) => name, make, (button, name) => {
        const here = name === state.stage.name;
        if (!room.live && here) mark(button, "aria-current", "step");
        else button.removeAttribute("aria-current");
        if (!room.live) return;
        mark(button, "aria-pressed", here);
        mark(button, "aria-disabled", here || !possible);
        mark(button, "title", orders["choose-stage"].hint);
      });
    },
  };
}

function trafficPart(room) {
  const { texts, orders } = room.words;
  const start = orderButton(room, "start-traffic");
  const stop = orderButton(room, "stop-traffic");
  const rate = made("input", { type: "number", class: "eo-rate", min: "0", max: "10000", "aria-label": orders["set-rate"].hint });
  rate.addEventListener("change", () => {
    if (rate.value && rate.checkValidity()) room.send({ do: "set-rate", rate: Number(rate.value) });
  });
  const asked = made("span", { class: "eo-soft" });
  const finish = orderButton(room, "finish");
  const folder = made("input", { type: "text", class: "eo-folder", "aria-label": texts.folder, placeholder: texts.folder });
  const save = orderButton(room, "save", () => ({ folder: folder.value }));
  const element = part(
    "traffic",
    texts.traffic,
    made("div", { class: "eo-row eo-orders" }, start, stop, made("label", { class: "eo-row" }, rate, orders["set-rate"].label)),
    asked,
    made("div", { class: "eo-row eo-orders" }, finish, folder, save),
  );
  return {
    element,
    keys: ["traffic", "possible"],
    draw(state) {
      const target = { state: state.traffic.on ? "on" : "off" };
      for (const button of [start, stop, finish, save]) allow(room, button, state, target);
      if (rate.getRootNode().activeElement !== rate) rate.value = state.traffic.rate;
      say(asked, filled(state.traffic.on ? texts.traffic_on : texts.traffic_off, state.traffic));
    },
  };
}

// The room's line, and the auditor's last word.
function messagePart(room) {
  const { texts } = room.words;
  const message = made("p", { class: "eo-message", role: "status" });
  const report = made("p", { class: "eo-report", role: "status" });
  return {
    element: made("div", { class: "eo-messages" }, message, report),
    keys: ["message", "report"],
    draw(state) {
      say(message, state.message);
      const [sign] = room.words.signs.verdicts[state.report?.verdict] ?? [""];
      say(report, state.report ? filled(texts.reported, { ...state.report, sign, numbers: filled(texts.numbers, state.report) }) : "");
      mark(report, "data-word", state.report?.verdict ?? "");
    },
  };
}
