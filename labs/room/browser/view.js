// --- The whole view

const KEYS = "time stage traffic counted batches drivers spare brokers executors network log marker readers verdict evidence waiting chronicle possible message report".split(" ");

function render({ model, el }) {
  const recording = model.get("recording");
  const waiting = new Set();
  let state = {};
  let frame = 0;
  const room = {
    words: model.get("words"),
    live: model.get("live"),
    history: historyOf(),
    seconds: recording && Math.max(recording.seconds, recording.frames.at(-1)[0]),
    send: (order) => model.send(order),
    sample: (known) => rates.sample(known),
    show(known, changed) {
      state = known;
      changed.forEach((key) => room.redraw(key));
    },
    // Any number of changes is drawn at once, in the browser's next frame.
    redraw(key) {
      waiting.add(key);
      frame ||= requestAnimationFrame(draw);
    },
  };

  const rates = ratesPart(room);
  const parts = {
    verdict: verdictPart(room),
    evidence: evidencePart(room),
    stage: stagePart(room),
    traffic: trafficPart(room),
    messages: messagePart(room),
    lives: livesPart(room),
    log: logPart(room),
    batches: batchesPart(room),
    rates,
    strikes: strikesPart(room),
  };
  if (recording) parts.player = playerPart(room, recording);
  else if (room.live) parts.intro = introPart(room);
  const role = document.querySelector("main, [role=main]") ? "group" : "main";
  const root = made("div", { class: "eo-room", role, "aria-label": room.words.texts.title });
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab's own keys would act on its cells
  const takeLive = () => {
    root.classList.toggle("eo-live", (room.live = model.get("live")));
    room.redraw("stage");
  };
  takeLive();
  const box = (name, ...names) => made("div", { class: name }, ...names.flatMap((each) => parts[each]?.element ?? []));
  parts.work = { element: box("eo-work", "batches", "rates"), keys: [], draw() {} };
  const top = box("eo-top", "intro", "traffic", "verdict", "evidence", "stage");
  const body = made("div", { class: "eo-body" }, box("eo-left", "lives"), box("eo-right", "strikes", "log", "work"));
  root.append(made("div", { class: "eo-inner" }, made("div", { class: "eo-sheet" }, box("eo-bar", "player"), top, body), parts.messages.element));

  function draw() {
    frame = 0;
    const changed = [...waiting];
    waiting.clear();
    if (!("log" in state)) return;
    for (const each of Object.values(parts)) if (each.keys.some((key) => changed.includes(key))) each.draw(state);
  }

  const listeners = KEYS.map((key) => {
    const event = `change:now_${key}`;
    const take = () => {
      state[key] = model.get(`now_${key}`);
      if (key === "log") room.history.take(state.log);
      if (key === "traffic") root.toggleAttribute("data-sent", state.traffic.sent > 0);
      room.redraw(key);
    };
    if (!recording) {
      take();
      model.on(event, take);
    }
    return [event, take];
  });
  listeners.push(["change:live", takeLive]);
  model.on("change:live", takeLive);
  el.append(root);
  parts.player?.begin(model.get("start"));
  return () => {
    cancelAnimationFrame(frame);
    Object.values(parts).forEach((each) => each.end?.());
    listeners.forEach(([event, take]) => model.off(event, take));
  };
}

export default { render };
