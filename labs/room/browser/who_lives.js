// --- Left: who lives, each with what can be done to it

function livesPart(room) {
  const { texts, signs } = room.words;
  const group = (title) => {
    const rows = made("div", { class: "eo-rows" });
    const none = made("p", { class: "eo-soft eo-none" });
    return { rows, none, element: made("div", { class: "eo-group", role: "group", "aria-label": title }, made("div", { class: "eo-subtitle" }, title), rows, none) };
  };
  const [drivers, brokers] = [group(texts.drivers), group(texts.brokers)];

  // A row: name, state with its sign, what it is at, and its buttons.
  function row(kind, orders) {
    const node = made("div", { class: "eo-actor" });
    node.parts = {
      name: made("span", { class: "eo-name" }),
      state: made("span", { class: "eo-state" }),
      at: made("span", { class: "eo-soft eo-at" }),
      buttons: orders.map((name) => orderButton(room, name, () => (room.words.orders[name].takes ? { [kind]: node.number } : {}))),
    };
    const { name, state, at, buttons } = node.parts;
    node.append(made("div", { class: "eo-who" }, name, state, at), made("div", { class: "eo-row eo-orders" }, ...buttons));
    return node;
  }
  function show(node, kind, each, state, at) {
    node.number = each.number;
    const [sign, word] = signs[`${kind}s`][each.state];
    mark(node, "data-state", each.state);
    say(node.parts.name, filled(texts[kind], each));
    say(node.parts.state, `${sign} ${word}`);
    say(node.parts.at, at);
    node.parts.buttons.forEach((button) => allow(room, button, state, each));
  }

  const second = orderButton(room, "start-driver");
  const spare = orderButton(room, "keep-spare", () => ({ on: spare.getAttribute("aria-pressed") !== "true" }));
  drivers.element.append(made("div", { class: "eo-row eo-orders" }, second, spare));

  // What there is one of: a line and its buttons.
  function single(title, ...names) {
    const line = made("span", { class: "eo-state" });
    const buttons = names.map((name) => orderButton(room, name));
    const element = made("div", { class: "eo-actor eo-single", role: "group", "aria-label": title },
      made("div", { class: "eo-who" }, made("span", { class: "eo-name" }, title), line), made("div", { class: "eo-row eo-orders" }, ...buttons));
    return { line, buttons, element };
  }
  const executors = single(texts.executors, "kill-executor");
  const network = single(texts.network, "cut-network", "heal-network");
  const commit = single(texts.commit, "hold-commit", "deliver-commit");
  const memory = single(texts.memory, "delete-checkpoint");
  const singles = [executors, network, commit, memory].map((each) => each.element);

  return {
    element: part("lives", texts.lives, drivers.element, brokers.element, made("div", { class: "eo-group" }, ...singles)),
    keys: ["drivers", "spare", "brokers", "executors", "network", "possible"],
    draw(state) {
      const byNumber = (each) => each.number;
      keep(drivers.rows, state.drivers, byNumber, () => row("driver", ["kill-driver", "freeze-driver", "wake-driver"]), (node, each) => {
        const at = [each.batch !== null && filled(texts.driver_at, each), each.epoch !== null && filled(texts.epoch, each)];
        show(node, "driver", each, state, at.filter(Boolean).join(" · "));
      });
      keep(brokers.rows, state.brokers, byNumber, () => row("broker", ["kill-broker", "freeze-broker", "wake-broker", "start-broker"]), (node, each) => show(node, "broker", each, state, ""));
      say(drivers.none, state.drivers.length ? "" : texts.no_drivers);
      say(brokers.none, state.brokers.length ? "" : texts.no_brokers);
      allow(room, second, state);
      allow(room, spare, state);
      mark(spare, "aria-pressed", !!state.spare);
      say(executors.line, filled(state.executors.wanted ? texts.executors_running : texts.no_executors, state.executors));
      const { cut, hold, held_epoch } = state.network;
      say(network.line, cut ? texts.cut : texts.connected);
      const held = held_epoch === null ? texts.hold_held_nameless : texts.hold_held;
      say(commit.line, { "": texts.hold, waiting: texts.hold_waiting, held: filled(held, state.network) }[hold]);
      say(memory.line, texts.checkpoint);
      const states = new Map([[network, cut ? "cut" : "connected"], [commit, hold || "free"], [executors, ""], [memory, ""]]);
      for (const [each, name] of states) {
        mark(each.element, "data-state", name);
        each.buttons.forEach((button) => allow(room, button, state, { state: name }));
      }
    },
  };
}
