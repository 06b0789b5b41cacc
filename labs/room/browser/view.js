// --- All of it

const KEYS = "time stage traffic counted batches drivers spare brokers executors network log marker readers verdict chronicle possible message report".split(" ");

function render({ model, el }) {
  const recording = model.get("recording");
  const waiting = new Set();
  let state = {};
  let frame = 0;
  const room = {
    words: model.get("words"),
    live: model.get("live"),
    seconds: recording && Math.max(recording.seconds, recording.frames.at(-1)[0]),
    send: (order) => model.send(order),
    sample: (known) => rates.sample(known),
    show(known, changed) {
      state = known;
      changed.forEach((key) => room.redraw(key));
    },
    // However much has changed since, the browser draws once a frame.
    redraw(key) {
      waiting.add(key);
      frame ||= requestAnimationFrame(draw);
    },
  };

  const rates = ratesPart(room);
  const parts = {
    verdict: verdictPart(room),
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
  const root = made("div", { class: "eo-room", role: "group", "aria-label": room.words.texts.title });
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab's own keys would act on its cells
  const takeLive = () => root.classList.toggle("eo-live", (room.live = model.get("live")));
  takeLive();
  const box = (name, ...names) => made("div", { class: name }, ...names.flatMap((each) => parts[each]?.element ?? []));
  const top = box("eo-top", "verdict", "traffic", "stage");
  const right = box("eo-right", "log");
  right.append(box("eo-work", "batches", "rates"), parts.strikes.element);
  const body = box("eo-body", "lives");
  body.append(right);
  root.append(made("div", { class: "eo-inner" }, top, box("eo-bar", "player"), parts.messages.element, body));

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
  parts.player?.begin();
  return () => {
    cancelAnimationFrame(frame);
    Object.values(parts).forEach((each) => each.end?.());
    listeners.forEach(([event, take]) => model.off(event, take));
  };
}

export default { render };
