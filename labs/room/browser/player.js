// --- A recording: frames of [time, changes], played without a kernel

const SPEEDS = [0.5, 1, 2, 4];

function playerPart(room, recording) {
  const { frames } = recording;
  const seconds = room.seconds;
  const { texts } = room.words;
  const play = made("button", { type: "button", class: "eo-order eo-play" });
  const [previous, next] = ["previous", "next"].map((name) => made("button", { type: "button", class: "eo-order" }, texts[name]));
  const slider = made("input", { type: "range", class: "eo-seek", min: "0", max: `${seconds}`, step: "0.1", "aria-label": texts.position });
  const clock = made("span", { class: "eo-clock" });
  const speeds = made("div", { class: "eo-row eo-speeds", role: "group", "aria-label": texts.speed });
  const heading = `${texts.recording}: ${recording.title}`;
  const element = part("player", heading, made("div", { class: "eo-row" }, play, previous, next, slider, clock, speeds, sizeButtons(room)));
  if (!document.querySelector("h1")) element.firstChild.replaceWith(made("h1", { class: "eo-title" }, heading));
  const strikes = firstSeen(frames);
  let [state, shown, at, speed, playing, ticked] = [{}, -1, 0, 1, 0, 0]; // shown: the last frame; playing: the browser's number

  for (const each of SPEEDS) {
    const button = made("button", { type: "button", class: "eo-order" }, filled(texts.times, { speed: each }));
    onPress(button, () => {
      speed = each;
      draw();
    });
    speeds.append(button);
  }

  // Shows the state at a time. To go back, it applies all frames from the start, since a frame holds only changes.
  function show(time) {
    at = Math.min(seconds, Math.max(0, time));
    if (shown >= 0 && frames[shown][0] > at) [state, shown] = [{}, -1];
    const changed = new Set();
    const again = shown < 0;
    while (shown + 1 < frames.length && (shown < 0 || frames[shown + 1][0] <= at)) {
      shown += 1;
      Object.assign(state, frames[shown][1]);
      if (frames[shown][1].log) room.history.take(frames[shown][1].log);
      Object.keys(frames[shown][1]).forEach((key) => changed.add(key));
      if (frames[shown][0] > at - SPAN) room.sample(state);
    }
    room.show(state, again ? Object.keys(state) : [...changed]);
    draw();
  }

  function draw() {
    say(play, playing ? texts.pause : texts.play);
    mark(play, "data-playing", !!playing);
    slider.value = at;
    const said = filled(texts.at, { time: decimal(at), seconds: decimal(seconds) });
    mark(slider, "aria-valuetext", said);
    say(clock, said);
    [...speeds.children].forEach((button, n) => mark(button, "aria-pressed", SPEEDS[n] === speed));
    mark(previous, "aria-disabled", !strikes.some((time) => time < at));
    mark(next, "aria-disabled", !strikes.some((time) => time > at));
  }

  function tick(now) {
    const passed = Math.min(now - ticked, 250); // a tab that was out of sight goes on where it was
    ticked = now;
    playing = at < seconds ? requestAnimationFrame(tick) : 0;
    show(at + (passed / 1000) * speed);
  }

  function pause() {
    cancelAnimationFrame(playing);
    playing = 0;
    draw();
  }

  function start() {
    if (at >= seconds) show(0);
    ticked = performance.now();
    playing = requestAnimationFrame(tick);
    draw();
  }

  function step(time) {
    pause();
    show(time);
  }

  onPress(play, () => (playing ? pause() : start()));
  slider.addEventListener("input", () => show(Number(slider.value)));
  onPress(next, () => step(strikes.find((time) => time > at)));
  onPress(previous, () => step(strikes.findLast((time) => time < at)));
  return { element, keys: [], draw() {}, begin: (strike) => show(justBefore(frames, strike)), end: pause };
}

// A second before the first strike of a name; the start if there is none.
function justBefore(frames, strike) {
  const first = frames.find(([, { chronicle = [] }]) => chronicle.some((each) => each.strike === strike));
  return first ? first[0] - 1 : 0;
}

// The times at which each strike first appears in the chronicle.
function firstSeen(frames) {
  const times = new Map();
  for (const [time, { chronicle = [] }] of frames) {
    for (const { number } of chronicle) if (!times.has(number)) times.set(number, time);
  }
  return [...new Set(times.values())];
}
