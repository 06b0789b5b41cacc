// --- Left: the processes, each with its buttons

const GONE = ["killed", "fenced", "refused", "ended"];
const AIMS = [["rows", "aim_rows"], ["before", "aim_before"], ["commit", "aim_commit"]];

function livesPart(room) {
  const { texts, signs } = room.words;
  const group = (title) => {
    const rows = made("div", { class: "eo-rows" });
    return { rows, element: made("div", { class: "eo-group", role: "group", "aria-label": title }, made("div", { class: "eo-subtitle" }, title), rows) };
  };
  const [drivers, brokers] = [group(texts.drivers), group(texts.brokers)];

  // A row: name, state with its sign, batch and epoch, and its buttons.
  function row(kind, orders) {
    const node = made("div", { class: "eo-actor" });
    node.parts = {
      name: made("span", { class: "eo-name" }),
      state: made("span", { class: "eo-state" }),
      at: made("span", { class: "eo-soft eo-at" }),
      buttons: orders.map((names) => orderButton(room, names, () => (room.words.orders[names[0]].takes ? { [kind]: node.number } : {}))),
    };
    const { name, state, at, buttons } = node.parts;
    node.append(made("div", { class: "eo-who" }, name, state, at), made("div", { class: "eo-row eo-orders" }, ...buttons));
    return node;
  }
  function show(node, kind, each, state, at) {
    if (node.number !== undefined && (node.number !== each.number || (node.dataset.state !== each.state && STRUCK.includes(each.state)))) pulse(node);
    node.number = each.number;
    const [sign, word] = signs[`${kind}s`][each.state];
    mark(node, "data-state", each.state);
    say(node.parts.name, filled(texts[kind], each));
    say(node.parts.state, `${sign} ${word}`);
    say(node.parts.at, at);
    node.parts.buttons.forEach((button) => allow(room, button, state, each));
  }
  const at = (each) => [each.batch !== null && filled(texts.driver_at, each), each.epoch !== null && filled(texts.epoch, each)].filter(Boolean).join(" · ");

  const aims = AIMS.map(([moment, label]) => {
    const button = orderButton(room, ["kill-driver"], () => ({ at: moment }), label);
    button.dataset.at = moment;
    return button;
  });
  const second = orderButton(room, ["start-driver"]);
  const spare = orderButton(room, ["keep-spare"], () => ({ on: spare.getAttribute("aria-pressed") !== "true" }));
  const gone = made("ul", { class: "eo-gone" });
  const fold = made("details", { class: "eo-fold" }, made("summary"), gone);
  drivers.rows.classList.add("eo-slots");
  drivers.element.append(made("div", { class: "eo-row eo-orders" }, ...aims, second, spare), fold);

  // One line with its button, for a part of which there is only one.
  function single(title, ...names) {
    const line = made("span", { class: "eo-state" });
    const button = orderButton(room, names);
    const element = made("div", { class: "eo-actor eo-single", role: "group", "aria-label": title },
      made("div", { class: "eo-who" }, made("span", { class: "eo-name" }, title), line), made("div", { class: "eo-row eo-orders" }, button));
    return { line, button, element };
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
      // Who lives has a place, and who has ended is folded away: so no row moves when a driver is killed.
      const living = state.drivers.filter((each) => !GONE.includes(each.state)).map((each, place) => ({ ...each, place }));
      const dead = state.drivers.filter((each) => GONE.includes(each.state));
      keep(drivers.rows, living, (each) => each.place, () => row("driver", [["kill-driver"], ["freeze-driver", "wake-driver"]]), (node, each) => show(node, "driver", each, state, at(each)));
      keep(brokers.rows, state.brokers, (each) => each.number, () => row("broker", [["kill-broker", "start-broker"], ["freeze-broker", "wake-broker"]]), (node, each) => show(node, "broker", each, state, ""));
      say(fold.firstChild, dead.length ? filled(texts.gone_drivers, { number: dead.length }) : living.length ? texts.no_gone_drivers : texts.no_drivers);
      keep(gone, dead, (each) => each.number, () => made("li"), (node, each) => {
        mark(node, "data-state", each.state);
        say(node, [`${filled(texts.driver, each)} ${signs.drivers[each.state].join(" ")}`, at(each)].filter(Boolean).join(" · "));
      });
      for (const button of [second, spare, ...aims]) allow(room, button, state, living[0] ?? null);
      mark(spare, "aria-pressed", !!state.spare);
      say(executors.line, filled(state.executors.wanted ? texts.executors_running : texts.no_executors, state.executors));
      const { cut, hold, held_epoch } = state.network;
      say(network.line, cut ? texts.cut : texts.connected);
      const held = held_epoch === null ? texts.hold_held_nameless : texts.hold_held;
      say(commit.line, { "": texts.hold, waiting: texts.hold_waiting, held: filled(held, state.network) }[hold]);
      const states = new Map([[network, cut ? "cut" : "connected"], [commit, hold || "free"], [executors, ""], [memory, ""]]);
      for (const [each, name] of states) {
        mark(each.element, "data-state", name);
        allow(room, each.button, state, { state: name });
      }
    },
  };
}

const STRUCK = ["frozen", "killed"];

// Lets an element pulse once; the style does so only for who has nothing against motion.
function pulse(element) {
  element.classList.remove("eo-pulse");
  void element.offsetWidth; // so that the animation begins again
  element.classList.add("eo-pulse");
}
