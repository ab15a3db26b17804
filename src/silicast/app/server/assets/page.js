"use strict";
/* The page of Silicast: setups in, predictions with intervals out. No library, no outside request;
   all state stands in the address, so that a link is the whole question. */

const MOST = 5;
const FIRST = {
  model: "Llama-3.1-8B", device: "H100-SXM-80GB", engine: "vllm", dtype: "", tp: "1", price: "", pp: "1",
};
const USUAL = {input_len: "1024", output_len: "128", ttft: "1000", tpot: "50"};
const FIELDS = Object.keys(FIRST);
const $ = (id) => document.getElementById(id);
const form = $("form");
let setups = [{...FIRST}];
let running = 0;
let leaving = new AbortController();
/* A page that was written to a file holds its answers; no server is asked. */
const held = $("held") ? JSON.parse($("held").textContent) : null;

/* ---- small things ---- */

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "color") node.style.setProperty("--color", value);
    else if (value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function drawn(name, attributes = {}, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text) node.textContent = text;
  return node;
}

const colour = (index) => `var(--s${index})`;
const short = (value) => {
  if (!Number.isFinite(value)) return "–";
  if (value !== 0 && (value >= 1e6 || value < 1e-4)) return value.toExponential(1);
  return Number(value.toPrecision(3)).toLocaleString("en", {maximumSignificantDigits: 3});
};
const belief = (b, unit = "") => (b ? `${short(b.estimate)} [${short(b.p05)}–${short(b.p95)}]${unit}` : "–");
const label = (setup) => {
  const plan = ["tp", "pp"].filter((name) => Number(setup[name]) > 1).map((name) => `, ${name} ${setup[name]}`);
  return `${setup.model} on ${setup.device}${plan.join("")}${setup.dtype ? `, ${setup.dtype}` : ""}, ${setup.engine}`;
};

/* ---- state in the address ---- */

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const read = given.getAll("s").slice(0, MOST).map((text) => {
    const values = text.split("~");
    return Object.fromEntries(FIELDS.map((name, at) => [name, (values[at] ?? FIRST[name]).slice(0, 200)]));
  });
  setups = read.length ? read : [{...FIRST}];
  for (const name of Object.keys(USUAL)) form.elements[name].value = given.get(name) ?? USUAL[name];
  return read.length > 0;
}

function writeAddress() {
  const stated = new URLSearchParams();
  for (const setup of setups) stated.append("s", FIELDS.map((name) => setup[name].replaceAll("~", "")).join("~"));
  for (const name of Object.keys(USUAL)) stated.set(name, form.elements[name].value);
  history.replaceState(null, "", `#${stated}`);
}

/* ---- the form ---- */

const INPUTS = [
  ["model", "Model", {list: "models", required: true, maxlength: 200}],
  ["device", "Device", {list: "devices", required: true, maxlength: 200}],
  ["engine", "Engine", ["vllm", "sglang", "trtllm"]],
  ["dtype", "Format", ["", "bf16", "fp8", "nvfp4", "int4_wo"]],
  ["tp", "Devices (tensor parallel)", ["1", "2", "4", "8", "16"]],
  ["pp", "Pipeline stages", ["1", "2", "4", "8"]],
  ["price", "USD per device and hour", {type: "number", min: "0", step: "0.01", placeholder: "none"}],
];

function control(setup, at, name, kind) {
  const id = `${name}_${at}`;
  let node;
  if (Array.isArray(kind)) {
    const values = kind.includes(setup[name]) ? kind : [...kind, setup[name]];
    node = element("select", {id}, ...values.map((value) => {
      const text = value || (name === "dtype" ? "as the checkpoint" : value);
      return element("option", {value, selected: value === setup[name]}, text);
    }));
  } else {
    node = element("input", {id, ...kind});
    node.value = setup[name];
  }
  node.addEventListener("input", () => { setup[name] = node.value; });
  return node;
}

function showSetups() {
  const box = $("setups");
  box.replaceChildren(...setups.map((setup, at) => {
    const row = element("div", {class: "setup", color: colour(at), role: "group", "aria-label": `Setup ${at + 1}`});
    for (const [name, text, kind] of INPUTS) row.append(element("label", {}, text, control(setup, at, name, kind)));
    if (setups.length > 1) {
      const remove = element("button", {type: "button", "aria-label": `Remove setup ${at + 1}`}, "Remove");
      remove.addEventListener("click", () => { setups.splice(at, 1); showSetups(); $("add").focus(); });
      row.append(remove);
    }
    return row;
  }));
  $("add").disabled = setups.length >= MOST;
}

/* ---- asking ---- */

async function casesOf(setup, asked, signal) {
  const {input_len, output_len} = asked;
  const {model, device, engine, dtype} = setup;
  const price = setup.price === "" ? null : Number(setup.price);
  return post("v1/setup", {model, device, engine, dtype, tp: Number(setup.tp), pp: Number(setup.pp), price, input_len, output_len}, signal);
}

const LANES = 4;
let free = LANES;
const waiting = [];

/* At most LANES requests at a time: a server refuses what it cannot answer soon. */
async function inTurn(work) {
  if (free > 0) free -= 1;
  else await new Promise((resolve) => { waiting.push(resolve); });
  try {
    return await work();
  } finally {
    const next = waiting.shift();
    if (next) next();
    else free += 1;
  }
}

async function send(path, content, signal) {
  const headers = {"content-type": "application/json"};
  const token = form.elements.token.value;
  if (token) headers.authorization = `Bearer ${token}`;
  const body = JSON.stringify(content);
  const response = await inTurn(() => fetch(path, {method: "POST", headers, body, signal}));
  if (response.status === 401) {
    $("token_row").hidden = false;
    form.elements.token.focus();
  }
  return response;
}

async function post(path, content, signal) {
  const response = await send(path, content, signal);
  try {
    return await response.json();
  } catch {
    throw new Error(`the server answered with status ${response.status}`);
  }
}

/* ---- what answers say ---- */

function carried(served, asked, pick) {
  let most = 0;
  for (const {load, answer} of served) {
    const [ttft, tpot] = [answer.metrics.ttft_p99_ms, answer.metrics.tpot_p99_ms];
    if (!ttft || !tpot || pick(ttft) > asked.ttft || pick(tpot) > asked.tpot) break;
    most = load;
  }
  return most;
}

const GROUND = {in: "inside measured ground", near: "near measured ground", out: "outside measured ground"};

/* How near measured ground the answers are: of one user alone, and of the least sure load if it is another. */
function sureness(fit, served) {
  const order = Object.keys(GROUND);
  const [least] = served.map(({answer}) => answer).sort((a, b) => order.indexOf(b.domain) - order.indexOf(a.domain));
  const texts = [fit.tier, GROUND[fit.domain]];
  if (least && (least.domain !== fit.domain || least.tier !== fit.tier)) texts.push(`under load: ${least.tier}, ${GROUND[least.domain]}`);
  return texts.map((text) => element("span", {class: "chip"}, text));
}

/* Reasons of refusals, each once with the loads that it is of. */
function reasons(refused) {
  const loads = new Map();
  for (const {load, text} of refused) loads.set(text, [...(loads.get(text) ?? []), load]);
  return [...loads].map(([text, some]) => `${some.sort((a, b) => a - b).join(", ")} user${some.length > 1 || some[0] > 1 ? "s" : ""}: ${text}`);
}

const kneeOf = (served) => served.find(({answer}) => answer.why.knee)?.answer.why.knee;

function usersLine({served, loads, refused}, asked) {
  const knee = kneeOf(served);
  const most = carried(served, asked, (b) => b.estimate);
  const sure = carried(served, asked, (b) => b.p95);
  const perhaps = carried(served, asked, (b) => b.p05);
  const last = served.length ? served[served.length - 1].load : 0;
  if (!served.length) {
    return refused.length
      ? element("p", {class: "verdict no"}, "Carries no user: none of the loads can be served")
      : element("p", {class: "soft"}, "No load is answered yet.");
  }
  const at = (value) => (value === last ? `${value} and more` : `${value}`);
  const next = served.find(({load}) => load > most)?.load;
  const text = most
    ? `Carries ${most === last ? `${most} and more users` : users(most)} at once${next ? `; ${next} are too many` : ""}`
    : "Carries no user within these limits";
  return element("div", {},
    element("p", {class: `verdict ${most ? "yes" : "no"}`}, text),
    knee ? element("p", {class: "soft"}, `Knee: about ${short(knee.concurrency)} users at once; beyond it waits grow faster than throughput.`) : null,
    element("p", {class: "soft"}, `by the interval ${sure} to ${at(perhaps)}; 99 of 100 first tokens within `
      + `${short(asked.ttft)} ms, further tokens within ${short(asked.tpot)} ms; loads tried: ${loads.join(", ")}`));
}

const isTooLarge = (answer) => answer.warnings.find((line) => line.startsWith("does not fit"));

function fitLine(answer) {
  const memory = answer.metrics.memory_gb;
  const excess = isTooLarge(answer);
  return element("div", {}, element("p", {class: `verdict ${excess ? "no" : "yes"}`},
    `${excess ? "Does not fit" : "Fits"}: ${belief(memory, " GB")} a device`),
  excess ? element("p", {class: "alert"}, excess) : null);
}

/* ---- drawings ---- */

let WIDE = 560;
const HIGH = 300, LEFT = 58, RIGHT = 16, TOP = 14, BOTTOM = 44, LABEL = 30;

function scale(low, high, from, to, isLog) {
  const f = isLog ? Math.log : (x) => x;
  const [a, b] = [f(low), f(high)];
  return (value) => from + ((f(value) - a) / (b - a || 1)) * (to - from);
}

function ticks(low, high, isLog) {
  if (isLog) {
    const all = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const digit of [1, 2, 5]) all.push(digit * 10 ** power);
    }
    const inside = all.filter((value) => value >= low * 0.999 && value <= high * 1.001);
    return inside.length > 8 ? inside.filter((value) => /^1(e|0*$)|^0\.0*1$/.test(String(value))) : inside;
  }
  const step = 10 ** Math.floor(Math.log10((high - low) / 4 || 1));
  const wide = [1, 2, 5, 10].map((n) => n * step).find((each) => (high - low) / each <= 6);
  const from = Math.ceil(low / wide);
  return Array.from({length: Math.floor(high / wide) - from + 1}, (_, n) => (from + n) * wide);
}

function chart(title, across, up, series, {logX = false, logY = false, limit = null, xs = null, hasKnees = false, front = null} = {}) {
  const points = series.flatMap((each) => each.points);
  const svg = drawn("svg", {viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": `${title}; the table below has the figures`});
  if (!points.length) return svg;
  const values = (name, pick) => points.flatMap((p) => pick(p[name]));
  const all = (b) => [b.p05, b.p95];
  let [lowX, highX] = [Math.min(...values("x", all)), Math.max(...values("x", all))];
  const tails = points.flatMap((p) => (p.tail ? [p.tail.estimate] : []));
  let [lowY, highY] = [Math.min(...values("y", all)), Math.max(...values("y", all), ...tails, limit ?? 0)];
  if (!logX) lowX = 0;
  if (!logY) lowY = 0;
  if (logY) { lowY = Math.max(lowY * 0.8, 1e-6); highY *= 1.25; } else highY *= 1.06;
  if (!logX) highX *= 1.04;
  const x = scale(lowX, highX, LEFT, WIDE - RIGHT, logX);
  const y = scale(lowY, highY, HIGH - BOTTOM, TOP, logY);
  const marks = xs ?? ticks(lowX, highX, logX);
  const apart = (x(marks[marks.length - 1]) - x(marks[0])) / (marks.length - 1 || 1);
  const every = Math.max(1, Math.ceil(LABEL / Math.max(apart, 1)));
  marks.forEach((value, at) => {
    svg.append(drawn("line", {class: "axis", x1: x(value), x2: x(value), y1: TOP, y2: HIGH - BOTTOM}));
    if ((marks.length - 1 - at) % every) return;
    svg.append(drawn("text", {x: x(value), y: HIGH - BOTTOM + 16, "text-anchor": "middle"}, short(value)));
  });
  for (const value of ticks(lowY, highY, logY)) {
    svg.append(drawn("line", {class: "axis", x1: LEFT, x2: WIDE - RIGHT, y1: y(value), y2: y(value)}));
    svg.append(drawn("text", {x: LEFT - 6, y: y(value) + 4, "text-anchor": "end"}, short(value)));
  }
  svg.append(drawn("text", {x: (LEFT + WIDE) / 2, y: HIGH - 8, "text-anchor": "middle"}, across));
  svg.append(drawn("text", {x: 12, y: HIGH / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${HIGH / 2})`}, up));
  if (limit !== null) {
    svg.append(drawn("line", {x1: LEFT, x2: WIDE - RIGHT, y1: y(limit), y2: y(limit), stroke: "var(--bad)", "stroke-dasharray": "6 4"}));
  }
  if (front) {
    const best = front(points);
    svg.append(drawn("polyline", {points: best.map((p) => `${x(p.x.estimate)},${y(p.y.estimate)}`).join(" "), fill: "none", stroke: "var(--soft)", "stroke-dasharray": "2 4", "stroke-width": 1.5}));
    for (const p of best) svg.append(drawn("circle", {cx: x(p.x.estimate), cy: y(p.y.estimate), r: 7, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5}));
  }
  for (const {color, points: own, name, knee} of series) {
    if (hasKnees && knee >= lowX && knee <= highX) {
      const line = drawn("line", {x1: x(knee), x2: x(knee), y1: TOP, y2: HIGH - BOTTOM, stroke: color, "stroke-width": 2, "stroke-dasharray": "2 5"});
      line.append(drawn("title", {}, `${name}: knee at ${short(knee)} users`));
      svg.append(line);
    }
    const steady = own.every((p) => p.x.p05 === p.x.p95);
    if (steady && own.length > 1) {
      const band = [...own.map((p) => [p.x.estimate, p.y.p95]), ...[...own].reverse().map((p) => [p.x.estimate, p.y.p05])];
      svg.append(drawn("polygon", {points: band.map(([a, b]) => `${x(a)},${y(Math.max(b, lowY || b))}`).join(" "), fill: color, opacity: 0.16}));
    }
    svg.append(drawn("polyline", {points: own.map((p) => `${x(p.x.estimate)},${y(p.y.estimate)}`).join(" "), fill: "none", stroke: color, "stroke-width": 2}));
    const late = own.filter((p) => p.tail);
    if (late.length > 1) {
      const line = drawn("polyline", {points: late.map((p) => `${x(p.x.estimate)},${y(p.tail.estimate)}`).join(" "), fill: "none", stroke: color, "stroke-width": 1.2, "stroke-dasharray": "7 3"});
      line.append(drawn("title", {}, `${name}: 99 of 100 within`));
      svg.append(line);
    }
    for (const p of own) {
      if (!steady) {
        svg.append(drawn("line", {x1: x(p.x.p05), x2: x(p.x.p95), y1: y(p.y.estimate), y2: y(p.y.estimate), stroke: color, opacity: 0.45}));
        svg.append(drawn("line", {x1: x(p.x.estimate), x2: x(p.x.estimate), y1: y(Math.max(p.y.p05, lowY || p.y.p05)), y2: y(p.y.p95), stroke: color, opacity: 0.45}));
      }
      const dot = drawn("circle", {cx: x(p.x.estimate), cy: y(p.y.estimate), r: 4, fill: color});
      dot.append(drawn("title", {}, `${name}, ${users(p.load)}: ${belief(p.y)}`));
      svg.append(dot);
    }
  }
  return svg;
}

/* Pieces of a whole; a limit within it is drawn as a line. */
function stacked(title, pieces, unit, whole, limit) {
  const total = whole ?? pieces.reduce((sum, piece) => sum + piece.value, 0);
  const box = element("div", {});
  const svg = drawn("svg", {viewBox: `0 0 ${WIDE} 26`, role: "img", "aria-label": `${title}: ${pieces.map((p) => `${p.name} ${short(p.value)} ${unit}`).join(", ")}`});
  let from = 0;
  svg.append(drawn("rect", {x: 0, y: 0, width: WIDE, height: 26, fill: "none", stroke: "var(--line)"}));
  pieces.forEach((piece, at) => {
    const width = Math.max(0, (WIDE * piece.value) / total);
    const rect = drawn("rect", {x: from, y: 0, width, height: 26, fill: colour(at % 5), opacity: at < 5 ? 1 : 0.55});
    rect.append(drawn("title", {}, `${piece.name}: ${short(piece.value)} ${unit}`));
    svg.append(rect);
    from += width;
  });
  if (limit < total) {
    const line = drawn("line", {x1: (WIDE * limit) / total, x2: (WIDE * limit) / total, y1: -5, y2: 31, stroke: "var(--bad)", "stroke-width": 2.5});
    line.append(drawn("title", {}, `limit: ${short(limit)} ${unit}`));
    svg.append(line);
  }
  const keys = element("p", {class: "soft keys"}, ...pieces.map((piece, at) => element("span", {},
    element("span", {class: "key", color: colour(at % 5)}), `${piece.name} ${short(piece.value)} ${unit}`)));
  box.append(svg, keys);
  return box;
}

/* The points that no other beats in both directions, from left to right. */
function frontOf(points) {
  const beats = (a, b) => a.x.estimate >= b.x.estimate && a.y.estimate >= b.y.estimate
    && (a.x.estimate > b.x.estimate || a.y.estimate > b.y.estimate);
  return points.filter((p) => !points.some((other) => beats(other, p))).sort((a, b) => a.x.estimate - b.x.estimate);
}

const users = (load) => `${load} user${load === 1 ? "" : "s"}`;

/* The median request at some loads: it waits for its first token, then its tokens come. */
function timeline(served) {
  const shown = served.filter(({answer}) => answer.metrics.ttft_p50_ms && answer.metrics.e2e_p50_ms);
  if (!shown.length) return [];
  const some = shown.filter((_, at) => at % 2 === 0 || at === shown.length - 1);
  const [row, from] = [22, 78];
  const most = Math.max(...some.map(({answer}) => answer.metrics.e2e_p50_ms.p95));
  const x = scale(0, most, from, WIDE - RIGHT, false);
  const said = some.map(({load, answer: {metrics: m}}) => `${users(load)}: first token ${belief(m.ttft_p50_ms, " ms")}, last ${belief(m.e2e_p50_ms, " ms")}`);
  const high = some.length * row + 22;
  const svg = drawn("svg", {class: "timeline", viewBox: `0 0 ${WIDE} ${high}`, role: "img", "aria-label": `A request over time. ${said.join("; ")}`});
  some.forEach(({load, answer: {metrics: m}}, at) => {
    const [top, first, last] = [at * row + 3, x(m.ttft_p50_ms.estimate), x(m.e2e_p50_ms.estimate)];
    svg.append(drawn("text", {x: from - 6, y: top + 12, "text-anchor": "end"}, users(load)));
    for (const [a, b, fill] of [[from, first, "var(--s1)"], [first, Math.max(first, last), "var(--s0)"]]) {
      svg.append(drawn("rect", {x: a, y: top, width: Math.max(0, b - a), height: row - 8, fill}));
    }
    const middle = top + (row - 8) / 2;
    svg.append(drawn("line", {x1: x(m.e2e_p50_ms.p05), x2: x(m.e2e_p50_ms.p95), y1: middle, y2: middle, stroke: "var(--ink)", "stroke-width": 1.5}));
  });
  const marks = ticks(0, most, false);
  for (const value of WIDE < 400 ? marks.filter((_, at) => at % 2 === 0) : marks) {
    svg.append(drawn("text", {x: x(value), y: high - 4, "text-anchor": "middle"}, short(value)));
  }
  return [element("h3", {}, "A request over time, ms, median"), svg,
    element("p", {class: "soft"}, element("span", {class: "key", color: "var(--s1)"}), "until the first token  ",
      element("span", {class: "key", color: "var(--s0)"}), "until the last; the line is the 90 % interval of its end")];
}

/* One answer as a page of its own, to keep, print or send on. */
function reports(entry) {
  if (held) return [];
  const choice = element("select", {"aria-label": "Answer that the report is of"},
    element("option", {value: "0"}, "one user alone"),
    ...entry.served.map(({load}) => element("option", {value: String(entry.loads.indexOf(load) + 1)}, users(load))));
  const button = element("button", {type: "button"}, "Save its report");
  const told = element("span", {role: "status"});
  button.addEventListener("click", async () => {
    try {
      const response = await send("v1/report", entry.cases[Number(choice.value)]);
      if (!response.ok) throw new Error(problemOf(await response.json()));
      const link = element("a", {href: URL.createObjectURL(await response.blob()), download: `${label(entry.setup).replace(/[^\w.-]+/g, "_")}.html`});
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60000);
      told.textContent = "The report is saved.";
    } catch (error) {
      told.textContent = error.message;
    }
  });
  return [element("p", {class: "actions report"}, choice, button, told)];
}

function timeBars(answer, asked) {
  const bars = [];
  for (const part of answer.why.parts ?? []) {
    const inner = [...(part.parts ?? [])].sort((a, b) => b.exposed_ms - a.exposed_ms);
    const shown = inner.slice(0, 6).map((each) => ({name: each.name.replaceAll("_", " "), value: each.exposed_ms}));
    const left = inner.slice(6).reduce((sum, each) => sum + each.exposed_ms, 0);
    if (left > 0) shown.push({name: "others", value: left});
    if (shown.length) bars.push(element("h3", {}, `${part.name}${part.name === "decode" ? ` of ${asked.output_len - 1} tokens` : ""}: ${short(part.exposed_ms)} ms`), stacked(part.name, shown, "ms"));
  }
  return bars;
}

function memoryBar(answer) {
  const {usable, excess, ...held} = answer.why.memory_gb ?? {};
  const pieces = Object.entries(held).filter(([, value]) => value > 0)
    .map(([name, value]) => ({name: name.replaceAll("_", " "), value}));
  if (!pieces.length) return [];
  const used = pieces.reduce((sum, piece) => sum + piece.value, 0);
  const room = answer.why.room?.concurrency;
  return [element("h3", {}, `Memory of a device: ${short(used)} of ${short(usable)} GB that can be used`),
    stacked("memory", pieces, "GB", Math.max(usable ?? 0, used), usable),
    room ? element("p", {class: "soft"}, `Room for ${room} such requests at once, limited by ${String(answer.why.room.concurrency_limited_by).replaceAll("_", " ")}.`) : ""];
}

function table(entries) {
  const isPriced = entries.some(({served}) => served.some(({answer}) => answer.metrics.cost_per_million_output_tokens));
  const head = ["users", "first token, ms", "further token, ms", "tokens/s a user", "tokens/s a device", ...(isPriced ? ["USD a million tokens"] : [])];
  const bodies = entries.map(({setup, served, at}) => element("tbody", {},
    element("tr", {}, element("th", {scope: "rowgroup", colspan: String(head.length)}, element("span", {class: "fit"}, element("span", {class: "key", color: colour(at)}), label(setup)))),
    ...served.map(({load, answer: {metrics: m}}) => {
      const speed = m.tpot_p50_ms && {estimate: 1000 / m.tpot_p50_ms.estimate, p05: 1000 / m.tpot_p50_ms.p95, p95: 1000 / m.tpot_p50_ms.p05};
      const cells = [belief(m.ttft_p50_ms), belief(m.tpot_p50_ms), belief(speed), belief(m.output_tokens_per_s_per_gpu),
        ...(isPriced ? [belief(m.cost_per_million_output_tokens)] : [])];
      return element("tr", {}, element("th", {scope: "row"}, String(load)), ...cells.map((text) => element("td", {}, text)));
    })));
  return element("div", {class: "wide", tabindex: "0", role: "region", "aria-label": "All figures"},
    element("table", {}, element("caption", {class: "soft"}, element("span", {class: "fit"}, "Medians, each with its 90 % interval; simulated with four requests a user, sixteen at least")),
      element("thead", {}, element("tr", {}, ...head.map((text) => element("th", {scope: "col"}, text)))), ...bodies));
}

/* ---- putting it together ---- */

function setupCard(entry, at, asked) {
  const {setup, fit, served, refused, error} = entry;
  const card = element("section", {class: "card setup-card", color: colour(at), "aria-label": label(setup)},
    element("h2", {}, label(setup)));
  if (error || !fit) {
    card.append(element("p", {class: error ? "alert" : "soft"}, error || "Waiting for the first answer…"));
    return card;
  }
  card.append(element("p", {}, ...sureness(fit, served)), fitLine(fit), usersLine(entry, asked));
  card.append(element("p", {}, `${isTooLarge(fit) ? "If it did, one" : "One"} user alone: first token ${belief(fit.metrics.prefill_ms, " ms")}, `
    + `each further ${belief(fit.metrics.decode_step_ms, " ms")}.`));
  card.append(...memoryBar(fit), ...timeBars(fit, asked), ...timeline(served), ...reports(entry));
  const warnings = [...new Set([...fit.warnings.filter((line) => !line.startsWith("does not fit")), ...(served[0]?.answer.warnings ?? []), ...reasons(refused)])].slice(0, 6);
  for (const line of warnings) card.append(element("p", {class: "warning"}, line));
  return card;
}

function show(entries, asked) {
  WIDE = Math.max(250, Math.min(560, $("results").clientWidth - 28)); /* so that words keep their size on a phone */
  const good = entries.filter((each) => each.served.length);
  const series = (pickX, pickY, tail) => good.map(({setup, served, at}) => ({
    name: label(setup), color: colour(at), knee: kneeOf(served)?.concurrency,
    points: served.map(({load, answer: {metrics}}) => ({load, x: pickX(load, metrics), y: pickY(metrics), tail: metrics[tail]})).filter((p) => p.x && p.y),
  }));
  const exactly = (value) => ({estimate: value, p05: value, p95: value});
  const speed = (_, m) => m.tpot_p50_ms && {estimate: 1000 / m.tpot_p50_ms.estimate, p05: 1000 / m.tpot_p50_ms.p95, p95: 1000 / m.tpot_p50_ms.p05};
  const nodes = [element("div", {class: "cards"}, ...entries.map((each) => setupCard(each, each.at, asked)))];
  if (good.length) {
    const load = {logX: true, logY: true, xs: good[0].loads, hasKnees: true};
    const costs = good.some(({served}) => served.some(({answer}) => answer.metrics.cost_per_million_output_tokens));
    const drawings = [
      ["Each further token against load", "users at once", "ms", (n) => exactly(n), (m) => m.tpot_p50_ms, {...load, limit: asked.tpot, tail: "tpot_p99_ms"}],
      ["First token against load", "users at once", "ms", (n) => exactly(n), (m) => m.ttft_p50_ms, {...load, limit: asked.ttft, tail: "ttft_p99_ms"}],
      ["Throughput of a device against speed of a user", "tokens/s that a user sees", "output tokens/s a device", speed, (m) => m.output_tokens_per_s_per_gpu, {front: frontOf}],
      ...(costs ? [["Cost against load", "users at once", "USD a million output tokens", (n) => exactly(n), (m) => m.cost_per_million_output_tokens, {...load}]] : []),
    ];
    const remarks = ({front, tail}) => (front ? "Ringed: no other answer is as fast for a user and carries more."
      : `${tail ? "Line and band: the median and its interval. Dashed line: 99 of 100 requests, which must stay below your limit (level). " : ""}Dotted upright: the knee.`);
    nodes.push(element("p", {}, ...good.flatMap(({setup, at}) => [element("span", {class: "key", color: colour(at)}), `${label(setup)}  `])));
    const box = element("div", {class: "cards"});
    for (const [title, across, up, pickX, pickY, options] of drawings) {
      box.append(element("section", {class: "card"}, element("h2", {}, title), chart(title, across, up, series(pickX, pickY, options.tail), options),
        element("p", {class: "soft"}, remarks(options))));
    }
    nodes.push(box, element("section", {class: "card"}, element("h2", {}, "All figures"), table(good)));
  }
  $("results").replaceChildren(...nodes);
}

function problemOf({error}) {
  return [error.field, error.message].filter(Boolean).join(": ") + (error.hint ? ` (${error.hint})` : "");
}

/* The setup's answers as they come: whether it fits first, then load after load. */
async function predictOne(entry, asked, changed, signal) {
  try {
    const own = held?.[entry.at];
    const cases = own ? own.cases : await casesOf(entry.setup, asked, signal);
    if (!Array.isArray(cases)) {
      entry.error = problemOf(cases);
      return;
    }
    const ask = async (at) => (own ? own.answers[at] : post("v1/batch", cases[at], signal));
    entry.cases = cases;
    entry.loads = cases.slice(1).map((each) => each.id);
    entry.fit = await ask(0);
    if (!entry.fit.ok) {
      entry.error = problemOf(entry.fit);
      return;
    }
    changed();
    await Promise.all(entry.loads.map(async (load, at) => {
      const answer = await ask(at + 1);
      if (answer.ok) entry.served.push({load, answer});
      else entry.refused.push({load, text: problemOf(answer)});
      entry.served.sort((a, b) => a.load - b.load);
      changed();
    }));
  } catch (error) {
    entry.error = error.message;
  }
}

async function run() {
  const asked = Object.fromEntries(Object.keys(USUAL).map((name) => [name, Number(form.elements[name].value)]));
  writeAddress();
  running += 1;
  const mine = running;
  leaving.abort();
  leaving = new AbortController();
  $("status").textContent = "Predicting…";
  const entries = setups.map((setup, at) => ({setup: {...setup}, at, fit: null, cases: [], loads: [], served: [], refused: [], error: ""}));
  let drawnAt = 0;
  const changed = () => {
    if (mine === running && performance.now() - drawnAt > 150) { show(entries, asked); drawnAt = performance.now(); }
  };
  await Promise.all(entries.map((entry) => predictOne(entry, asked, changed, leaving.signal)));
  if (mine !== running) return;
  show(entries, asked);
  $("status").textContent = entries.some((each) => each.error) ? "Some setups were not answered." : "Done.";
}

async function fillNames() {
  if (held) return;
  for (const kind of ["models", "devices"]) {
    try {
      const response = await fetch(`v1/catalog/${kind}`);
      if (!response.ok) continue;
      const names = await response.json();
      $(kind).replaceChildren(...names.map((value) => element("option", {value})));
    } catch { /* names can be typed as well */ }
  }
}

$("add").addEventListener("click", () => {
  if (setups.length < MOST) setups.push({...setups[setups.length - 1]});
  showSetups();
  $(`model_${setups.length - 1}`).focus();
});
$("share").addEventListener("click", async () => {
  writeAddress();
  try {
    await navigator.clipboard.writeText(location.href);
    $("status").textContent = "The link is copied.";
  } catch {
    $("status").textContent = "The address of this page is the link.";
  }
});
form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
window.addEventListener("hashchange", () => { if (readAddress() && !held) { showSetups(); run(); } });

const isShared = readAddress();
if (held) {
  setups = held.map(({setup}) => ({...FIRST, ...setup, tp: String(setup.tp), pp: String(setup.pp), price: setup.price === null ? "" : String(setup.price)}));
  for (const name of ["input_len", "output_len"]) form.elements[name].value = held[0].setup[name];
}
showSetups();
if (held) {
  for (const node of form.querySelectorAll("#setups input, #setups select, #setups button, #add, [name=input_len], [name=output_len]")) node.disabled = true;
  $("go").textContent = "Judge by these limits";
}
fillNames();
if (held || isShared || location.pathname === "/") run();
