"use strict";
const token = new URLSearchParams(location.search).get("token");
const $ = (id) => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const address = (path, more = {}) => path + "?" + new URLSearchParams({ token, ...more });
const VIEWS = ["both", "source", "result", "matte"];
const NAMES = { box: "Rectangle", ellipse: "Ellipse", polygon: "Polygon" };

let video = null;       // the answer of /state
let regions = [];       // as in /state; "kept": its number in the file, null when it is new or changed
let selected = null;    // a region
let frame = 0;
let saved = "";         // the entries of the file
let saving = false;
const past = [];        // regions before each change
const chosen = { tool: "box", action: "hide", view: "both" };

let failing = null;     // work whose error is shown
function say(text, failed = null) {
  failing = failed;
  $("message").textContent = text;
  $("message").className = failed ? "wrong" : "";
}

function succeeded(work) {
  if (failing === work) say("");
}

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  let answer;
  try { answer = await fetch(address(path), options); }
  catch { throw new Error("bgsoft does not answer"); }
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error);
  return value;
}

// Only the newest of what is asked for is done, one after another.
function newest(work) {
  let wanted = null, working = false;
  return async (...args) => {
    wanted = args;
    if (working) return;
    working = true;
    while (wanted) {
      const now = wanted;
      wanted = null;
      try { await work(...now, () => wanted !== null); succeeded(work); }
      catch (error) { if (!wanted) say(error.message, work); }
    }
    working = false;
  };
}

// --- regions ---------------------------------------------------------------------------------

const isFixed = (region) => region.follow || region.keys.length > 1;
const shownUntil = (number) => video.times[number + 1] ?? video.end;
// A region holds from the frame on that is shown when it begins.
const holds = (region, number) => (region.from <= video.times[number] || region.from < shownUntil(number))
  && (region.to === null || video.times[number] < region.to);

function lengths(text) {
  return text.split(/[\s,]+/).filter(Boolean).map((part, at) => {
    const whole = at % 2 ? video.height : video.width;
    return part.endsWith("%") ? parseFloat(part) * whole / 100 : parseFloat(part);
  });
}

// Numbers of a region's place at a time: left, top, width, height; or x, y of each corner.
function place(region, seconds) {
  const after = region.keys.findIndex((key) => key.at > seconds);
  if (after <= 0) return lengths(region.keys.at(after ? -1 : 0).place);
  const [one, other] = [region.keys[after - 1], region.keys[after]];
  const share = (seconds - one.at) / (other.at - one.at);
  const end = lengths(other.place);
  return lengths(one.place).map((value, at) => value + share * (end[at] - value));
}

function entry(region) {
  if (region.kept !== null) return region.kept;
  const table = { action: region.action, [region.shape]: region.keys[0].place };
  if (region.from > 0) table.from = region.from;
  if (region.to !== null) table.to = region.to;
  if (region.follow) table.follow = true;
  return table;
}

const entries = () => regions.map(entry);

// Does a change of regions, which can be undone.
function change(work) {
  past.push(JSON.stringify(regions));
  work();
  succeeded(change);
  changed();
}

function edit(region, values) {
  change(() => Object.assign(region, values, { kept: null }));
}

function undo() {
  if (!past.length || saving) return;
  const at = regions.indexOf(selected);
  regions = JSON.parse(past.pop());
  selected = regions[at] ?? null;
  changed();
}

function mark() {
  const dirty = JSON.stringify(entries()) !== saved;
  $("save").disabled = !dirty;
  $("undo").disabled = !past.length || saving;
  document.title = (dirty ? "• " : "") + video.name;
}

function changed() {
  mark();
  draw();
  list();
  render();
}

function add(shape, text) {
  const region = { action: chosen.action, shape, keys: [{ at: 0, place: text }], from: 0, to: null, follow: false, kept: null };
  change(() => { regions.push(region); selected = region; });
}

function remove(region) {
  const at = regions.indexOf(region);
  if (at < 0) return;
  change(() => { regions.splice(at, 1); selected = regions[Math.min(at, regions.length - 1)] ?? null; });
}

function beginHere() {
  if (!selected || isFixed(selected)) return;
  const from = video.times[frame];
  edit(selected, { from, to: selected.to !== null && selected.to <= from ? null : selected.to });
}

// The shown frame is the last one: a region ends before the frame of its end.
function endHere() {
  if (!selected || isFixed(selected)) return;
  const to = video.times[frame + 1] ?? null;
  edit(selected, { to, from: to !== null && selected.from >= to ? 0 : selected.from });
}

function clock(seconds) {
  const minutes = Math.floor(seconds / 60), rest = (seconds - 60 * minutes).toFixed(3).padStart(6, "0");
  return minutes < 60 ? `${minutes}:${rest}` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}

function seconds(text) {
  const parts = text.trim().split(":").map(Number);
  return parts.length > 3 || !text.trim() ? NaN : parts.reduce((sum, part) => 60 * sum + part, 0);
}

function times(region) {
  if (!region.from && region.to === null) return "always";
  return `${clock(region.from)} to ${region.to === null ? "the end" : clock(region.to)}`;
}

function element(tag, values = {}, ...children) {
  const made = document.createElement(tag);
  Object.assign(made, values);
  made.append(...children);
  return made;
}

function list() {
  $("regions").replaceChildren(...regions.map(card));
  $("empty").hidden = regions.length > 0;
}

function card(region, number) {
  const title = element("button", { type: "button", className: "title" });
  const name = `${region.action[0].toUpperCase()}${region.action.slice(1)} ${NAMES[region.shape].toLowerCase()}`;
  title.append(element("b", { textContent: name }), " ", element("span", { textContent: times(region) }));
  title.setAttribute("aria-expanded", region === selected);
  const gone = element("button", { type: "button", textContent: "Delete", title: "Delete (Del)" });
  gone.setAttribute("aria-label", `Delete region ${number + 1}`);
  gone.addEventListener("click", (event) => { event.stopPropagation(); remove(region); });
  const item = element("li", { className: region === selected ? "here" : "" }, element("div", {}, element("i"), title, gone));
  item.dataset.action = region.action;
  item.addEventListener("click", (event) => { if (!event.target.closest(".more")) select(region); });
  if (region !== selected) return item;
  if (isFixed(region)) {
    const how = region.follow ? "It follows what it shows at its begin; here it rests where it was drawn." : `It moves between ${region.keys.length} key frames.`;
    item.append(element("p", { textContent: `${how} It stays in the file as it is.` }));
    return item;
  }
  const more = element("div", { className: "more" });
  const field = (label, value, take, button) => {
    const input = element("input", { value, spellcheck: false });
    input.id = `field-${label.toLowerCase()}`;
    input.addEventListener("change", () => take(input.value));
    if (!button) input.className = "wide";
    more.append(element("label", { textContent: label, htmlFor: input.id }), input, ...(button ? [button] : []));
  };
  const here = (work, key) => {
    const button = element("button", { type: "button", textContent: "Here", title: `At the shown frame (${key})` });
    button.addEventListener("click", work);
    return button;
  };
  const actions = element("select", { className: "wide", id: "field-action" }, ...["hide", "keep", "drop"].map((each) => element("option", { value: each, textContent: each })));
  actions.value = region.action;
  actions.addEventListener("change", () => edit(region, { action: actions.value }));
  more.append(element("label", { textContent: "Action", htmlFor: actions.id }), actions);
  field("Place", region.keys[0].place, (text) => edit(region, { keys: [{ at: 0, place: text.trim() }] }));
  const time = (text, none) => text.trim() === none || !text.trim() ? null : seconds(text);
  const take = (key, none) => (text) => {
    const value = time(text, none);
    if (Number.isNaN(value)) { say(`a time is seconds or M:SS, not ${text}`, change); list(); return; }
    edit(region, { [key]: key === "from" ? value ?? 0 : value });
  };
  field("From", clock(region.from), take("from", "begin"), here(beginHere, "["));
  field("To", region.to === null ? "end" : clock(region.to), take("to", "end"), here(endHere, "]"));
  item.append(more);
  return item;
}

function select(region) {
  if (selected === region) return;
  selected = region;
  draw();
  list();
}

// --- the pictures ----------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";
let drawing = null;     // { shape, points } while the mouse draws
let dragging = null;    // { region, handle, start, numbers }

function svg(tag, values) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(values)) made.setAttribute(name, value);
  return made;
}

function outline(shape, numbers) {
  if (shape === "polygon") return svg("polygon", { points: numbers.join(" ") });
  const [x, y, width, height] = numbers;
  if (shape === "box") return svg("rect", { x, y, width, height });
  return svg("ellipse", { cx: x + width / 2, cy: y + height / 2, rx: width / 2, ry: height / 2 });
}

function corners(shape, numbers) {
  if (shape === "polygon") return numbers.reduce((pairs, value, at) => (at % 2 ? pairs.at(-1).push(value) : pairs.push([value]), pairs), []);
  const [x, y, width, height] = numbers;
  return [[x, y], [x + width, y], [x + width, y + height], [x, y + height]];
}

function draw() {
  const now = video.times[frame];
  for (const overlay of all(".overlay")) {
    const scale = video.width / (overlay.clientWidth || video.width);
    overlay.replaceChildren(...regions.flatMap((region, number) => {
      const shape = outline(region.shape, place(region, now));
      const away = holds(region, frame) ? "" : " away";
      if (away && region !== selected) return [];
      shape.setAttribute("class", `shape${away}${region === selected ? " here" : ""}`);
      shape.dataset.action = region.action;
      shape.dataset.number = number;
      if (region !== selected || isFixed(region) || chosen.tool !== "select") return [shape];
      return [shape, ...corners(region.shape, place(region, now)).map(([cx, cy], handle) => {
        const dot = svg("circle", { cx, cy, r: 5 * scale, class: "handle" });
        Object.assign(dot.dataset, { action: region.action, number, handle });
        return dot;
      })];
    }));
    if (drawing && drawing.points.length > 1) {
      const shape = drawing.shape === "polygon" ? svg("polyline", { points: drawing.points.join(" ") }) : outline(drawing.shape, spanned(drawing.points));
      shape.setAttribute("class", "shape here");
      shape.dataset.action = chosen.action;
      overlay.append(shape);
    }
  }
  spans();
}

const spanned = ([[x0, y0], [x1, y1]]) => [Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0)];

function point(event, overlay) {
  const { left, top, width, height } = overlay.getBoundingClientRect();
  const x = (event.clientX - left) / width * video.width, y = (event.clientY - top) / height * video.height;
  return [clamp(Math.round(x), 0, video.width), clamp(Math.round(y), 0, video.height)];
}

const text = (shape, numbers) => shape === "polygon"
  ? corners(shape, numbers.map(Math.round)).map((pair) => pair.join(",")).join(" ")
  : numbers.map(Math.round).join(",");

function closePolygon() {
  const points = drawing.points.slice(0, -1);  // the last one follows the mouse
  drawing = null;
  if (points.length >= 3) { add("polygon", points.map((pair) => pair.join(",")).join(" ")); choose("tool", "select"); }
  else draw();
}

// The numbers of a dragged region, within the frame.
function moved({ region, handle, start, numbers }, [x, y]) {
  const by = [x - start[0], y - start[1]];
  const pairs = corners(region.shape, numbers);
  if (handle === null) {
    for (const side of [0, 1]) {
      const whole = side ? video.height : video.width, values = pairs.map((pair) => pair[side]);
      by[side] = clamp(by[side], -Math.min(...values), Math.max(whole - Math.max(...values), 0));
    }
    return region.shape === "polygon" ? numbers.map((value, at) => value + by[at % 2]) : [numbers[0] + by[0], numbers[1] + by[1], numbers[2], numbers[3]];
  }
  if (region.shape !== "polygon") {
    const [, , width, height] = spanned([pairs[(handle + 2) % 4], [x, y]]);
    return width < 2 || height < 2 ? null : spanned([pairs[(handle + 2) % 4], [x, y]]);
  }
  pairs[handle] = [x, y];
  return pairs.flat();
}

for (const overlay of all(".overlay")) {
  overlay.addEventListener("pointerdown", (event) => {
    if (event.button || !video) return;
    event.preventDefault();
    document.activeElement?.blur();
    const at = point(event, overlay), { number, handle } = event.target.dataset;
    if (chosen.tool === "select") {
      select(number === undefined ? null : regions[number]);
      if (!selected || isFixed(selected)) return;
      const numbers = place(selected, video.times[frame]);
      dragging = { region: selected, handle: handle === undefined ? null : Number(handle), start: at, numbers, before: JSON.stringify(regions), old: selected.keys };
    } else if (chosen.tool !== "polygon") {
      drawing = { shape: chosen.tool, points: [at, at] };
    } else if (!drawing) {
      drawing = { shape: "polygon", points: [at, at] };
    } else {
      const near = 8 * video.width / overlay.clientWidth, [x, y] = drawing.points[0];
      const last = drawing.points.at(-2);
      if (drawing.points.length > 3 && Math.hypot(at[0] - x, at[1] - y) <= near) return closePolygon();
      if (Math.hypot(at[0] - last[0], at[1] - last[1]) > near / 4) drawing.points.splice(-1, 1, at, at);
    }
    overlay.setPointerCapture(event.pointerId);
    draw();
  });
  overlay.addEventListener("pointermove", (event) => {
    const at = point(event, overlay);
    if (drawing) { drawing.points[drawing.points.length - 1] = at; draw(); }
    else if (dragging) {
      const numbers = moved(dragging, at);
      if (numbers) { dragging.region.keys = [{ at: 0, place: text(dragging.region.shape, numbers) }]; draw(); }
    }
  });
  overlay.addEventListener("pointerup", () => {
    if (drawing && drawing.shape !== "polygon") {
      const { shape, points } = drawing, numbers = spanned(points);
      drawing = null;
      if (numbers[2] < 2 || numbers[3] < 2) return draw();
      add(shape, numbers.join(","));
      choose("tool", "select");
    } else if (dragging) {
      const { region, old, before } = dragging;
      dragging = null;
      if (region.keys === old) return;
      past.push(before);
      region.kept = null;
      changed();
    }
  });
  overlay.addEventListener("dblclick", () => { if (drawing?.shape === "polygon") closePolygon(); });
}

// --- frames ----------------------------------------------------------------------------------

const loadSource = newest(async (number) => {
  const answer = await fetch(address("source", { number })).catch(() => { throw new Error("bgsoft does not answer"); });
  if (!answer.ok) throw new Error((await answer.json()).error);
  const old = $("source").src;
  $("source").src = URL.createObjectURL(await answer.blob());
  await $("source").decode();
  if (old) URL.revokeObjectURL(old);
});

const loadResult = newest(async (number, wanted, isOld) => {
  await pause(80);  // another change may follow
  if (isOld()) return;
  $("busy").value = "…";
  try {
    const made = await ask("result", { number, version: video.version, regions: wanted });
    for (const view of ["result", "matte"]) $(view).src = "data:image/jpeg;base64," + made[view];
    $("notices").textContent = made.notices.join(" ");
    if (!isOld()) $("stage").classList.remove("stale");
  } finally { if (!isOld()) { $("busy").value = ""; document.body.dataset.shown = number; } }
});

function render() {
  $("stage").classList.add("stale");
  loadResult(frame, entries());
}

function seek(number) {
  number = clamp(number, 0, video.times.length - 1);
  if (number === frame) return;
  frame = number;
  show();
}

function show() {
  const count = video.times.length;
  $("playhead").style.left = `${100 * (frame + 0.5) / count}%`;
  $("clock").value = `${clock(video.times[frame])}  ·  frame ${frame} of ${count}`;
  $("timeline").setAttribute("aria-valuenow", frame);
  $("timeline").setAttribute("aria-valuetext", `frame ${frame}, ${clock(video.times[frame])}`);
  draw();
  loadSource(frame);
  render();
}

// The first frame at or after a time.
function frameAt(wanted) {
  let low = 0, high = video.times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (video.times[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low;
}

// The frame that is shown at a time, or the next one.
function shownAt(seconds) {
  const after = frameAt(seconds);
  return after > 0 && seconds < shownUntil(after - 1) ? after - 1 : after;
}

function step(by) {
  if (!String(by).endsWith("s")) return seek(frame + Number(by));
  const to = frameAt(video.times[frame] + parseFloat(by));
  seek(by.startsWith("-") ? Math.min(to, frame - 1) : Math.max(to, frame + 1));
}

// --- the timeline ----------------------------------------------------------------------------

function spans() {
  const count = video.times.length, lanes = [];
  $("spans").replaceChildren(...regions.map((region) => {
    const first = shownAt(region.from), end = region.to === null ? count : frameAt(region.to);
    let lane = lanes.findIndex((last) => last <= first);
    if (lane < 0) lane = lanes.length;
    lanes[lane] = Math.max(end, first + 1);
    const bar = element("i", { title: `${region.action}, ${times(region)}`, className: region === selected ? "here" : "" });
    bar.dataset.action = region.action;
    Object.assign(bar.style, { left: `${100 * first / count}%`, width: `${100 * Math.max(end - first, 0) / count}%`, top: `${7 * lane}px` });
    return bar;
  }));
  $("spans").style.height = `${Math.max(7 * lanes.length, 7) + 3}px`;
}

function fit() {
  const curves = $("curves").firstElementChild;
  if (!curves) return;
  const { width, height } = curves.viewBox.baseVal;
  curves.setAttribute("preserveAspectRatio", "none");
  curves.style.setProperty("--squeeze", (curves.clientHeight / height) / (curves.clientWidth / width));
  if (video) draw();
}
addEventListener("resize", fit);

async function watch() {
  for (let seen = -1; ; await pause(1000)) {
    if (document.hidden) continue;
    try {
      const { svg, frames, failure } = await ask("timeline");
      succeeded(watch);
      if (frames !== seen) { $("curves").innerHTML = svg; fit(); }
      seen = frames;
      const done = frames >= video.times.length;
      $("scanned").value = done ? "" : `timeline ${Math.floor(100 * frames / video.times.length)} %`;
      if (failure) say(`the timeline ends early: ${failure}`, watch);
      if (done || failure) return;
    } catch (error) { say(error.message, watch); }
  }
}

let scrubbing = false;
function scrub(event) {
  const { left, width } = $("timeline").getBoundingClientRect();
  seek(Math.floor((event.clientX - left) / width * video.times.length));
}
$("timeline").addEventListener("pointerdown", (event) => {
  if (event.button || event.target.closest("a")) return;
  scrubbing = true;
  $("timeline").setPointerCapture(event.pointerId);
  scrub(event);
});
$("timeline").addEventListener("pointermove", (event) => { if (scrubbing) scrub(event); });
$("timeline").addEventListener("pointerup", () => { scrubbing = false; });
$("timeline").addEventListener("click", (event) => {
  const dot = event.target.closest("a");
  if (!dot) return;
  event.preventDefault();
  seek(Number(dot.getAttribute("href").slice(1)));
});

// --- tools, keys and the file ----------------------------------------------------------------

function choose(what, value) {
  chosen[what] = value;
  if (what === "view") $("stage").dataset.view = value;
  if (what === "tool") { drawing = null; document.querySelector("main").dataset.tool = value; }
  for (const button of all(`[data-${what}][role=radio]`)) button.setAttribute("aria-checked", button.dataset[what] === value);
  if (video) draw();
}

// What changes meanwhile stays, and is not saved yet.
const write = newest(async () => {
  if ($("save").disabled) return;
  const sent = regions.map((region) => [region, JSON.stringify(entry(region))]);
  saving = true;
  try {
    mark();
    const state = await ask("save", { version: video.version, regions: entries() });
    while (dragging) await pause(20);
    sent.forEach(([region, text], at) => { if (JSON.stringify(entry(region)) === text) region.kept = at; });
    saved = JSON.stringify(sent.map((_, at) => at));
    video = state;
    past.length = 0;
    render();
    say(sent.length ? `Saved. Render with --regions ${video.file}` : `Saved: no regions, so ${video.file} was removed.`);
  } finally { saving = false; mark(); }
});

function save() {
  succeeded(change);
  document.activeElement?.blur();  // a field takes effect when it is left
  if (failing !== change) write();
}

const KEYS = {
  ArrowLeft: (shift) => step(shift ? "-1s" : -1), ArrowRight: (shift) => step(shift ? "1s" : 1),
  Home: () => seek(0), End: () => seek(Infinity),
  v: () => choose("tool", "select"), r: () => choose("tool", "box"), e: () => choose("tool", "ellipse"), p: () => choose("tool", "polygon"),
  h: () => choose("action", "hide"), k: () => choose("action", "keep"), d: () => choose("action", "drop"),
  "[": beginHere, "]": endHere,
  Delete: () => remove(selected), Backspace: () => remove(selected),
  Escape: () => { if (drawing) { drawing = null; draw(); } else select(null); },
  Enter: () => drawing?.shape === "polygon" && closePolygon(),
  ...Object.fromEntries(VIEWS.map((view, at) => [at + 1, () => choose("view", view)])),
};
addEventListener("keydown", (event) => {
  if (!video || event.altKey) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.ctrlKey || event.metaKey) {
    const work = { s: save, z: undo }[key];
    if (work && !(key === "z" && event.target.matches("input"))) { event.preventDefault(); work(); }
    return;
  }
  if (event.target.matches("input, select") || !KEYS[key]) return;
  if (key === "Enter" && event.target.matches("button")) return;
  event.preventDefault();
  KEYS[key](event.shiftKey);
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button || !video) return;
  const { tool, action, view } = button.dataset;
  if (tool) choose("tool", tool);
  else if (action && button.matches("[role=radio]")) choose("action", action);
  else if (view) choose("view", view);
  else if (button.dataset.step) step(button.dataset.step);
});
$("save").addEventListener("click", save);
$("undo").addEventListener("click", undo);
$("add").addEventListener("click", () => {
  add("box", text("box", [video.width / 3, video.height / 3, video.width / 3, video.height / 3]));
  choose("tool", "select");
  $("field-place").focus();
});
addEventListener("beforeunload", (event) => { if (!$("save").disabled) event.preventDefault(); });

(async () => {
  for (const [what, value] of Object.entries(chosen)) choose(what, value);
  try { video = await ask("state"); }
  catch (error) { say(error.message, ask); return; }
  regions = video.regions.map((region, number) => ({ ...region, kept: number }));
  saved = JSON.stringify(entries());
  frame = video.start;
  $("name").textContent = video.name;
  $("file").textContent = video.file.split("/").at(-1);
  $("file").title = video.file;
  $("stage").style.setProperty("--aspect", video.width / video.height);
  $("timeline").setAttribute("aria-valuemax", video.times.length - 1);
  for (const overlay of all(".overlay")) overlay.setAttribute("viewBox", `0 0 ${video.width} ${video.height}`);
  changed();
  show();
  watch();
})();
