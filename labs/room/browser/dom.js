// The operations room. It shows the state that Python hands it, in Python's words, and decides nothing.
// First, what all parts are made with. Nodes are kept and changed where they stand, so that none is lost while it is used.

function made(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function drawn(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function say(element, text) {
  if (element.textContent !== `${text}`) element.textContent = text;
}

function mark(element, name, value) {
  if (element.getAttribute(name) !== `${value}`) element.setAttribute(name, value);
}

// "{delivered} of {expected}" with values in the place of the names; none is shown as a dash.
function filled(template, values) {
  return template.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "–");
}

// One child for each item, in their order. A child stays as long as its item's key does.
function keep(parent, items, keyOf, make, update) {
  const kept = (parent.kept ??= new Map());
  const wanted = new Set(items.map(keyOf));
  for (const [key, child] of kept) {
    if (wanted.has(key)) continue;
    child.remove();
    kept.delete(key);
  }
  items.forEach((item, n) => {
    const key = keyOf(item);
    if (!kept.has(key)) kept.set(key, make(item));
    const child = kept.get(key);
    if (parent.children[n] !== child) parent.insertBefore(child, parent.children[n] ?? null);
    update(child, item);
  });
}

const decimal = (number) => (Math.round(number * 10) / 10).toFixed(1);
const rounded = (number) => `${Math.round(number)}`;

// A part of the view: a titled group.
function part(name, title, ...children) {
  const heading = made("div", { class: "eo-title" }, title);
  return made("div", { class: `eo-part eo-${name}`, role: "group", "aria-label": title }, heading, ...children);
}

// A button that is disabled stays where it is and keeps the focus, but does nothing. One that moves while it is held
// down is pressed all the same.
function onPress(button, act) {
  button.addEventListener("click", () => {
    if (button.getAttribute("aria-disabled") !== "true") act();
  });
  button.addEventListener("pointerdown", (event) => button.setPointerCapture(event.pointerId));
}

// A button that gives an order.
function orderButton(room, name, argumentsOf = () => ({})) {
  const button = made("button", { type: "button", class: "eo-order", "data-order": name }, room.words.orders[name].label);
  onPress(button, () => room.send({ do: name, ...argumentsOf() }));
  return button;
}

// Whether the button can be used: the order is possible, and its target (if it has one) is in a state that it is for.
function allow(room, button, state, target = null) {
  const order = room.words.orders[button.dataset.order];
  const fits = !order.states.length || order.states.includes(target?.state);
  const possible = fits && state.possible.includes(button.dataset.order);
  const hint = filled(order.hint, target ?? {});
  const said = possible ? hint : filled(room.words.texts.impossible, { hint });
  mark(button, "data-fits", fits);
  mark(button, "aria-disabled", !possible);
  mark(button, "title", said);
  mark(button, "aria-label", `${order.label}: ${said}`);
}
