// The live page: it exchanges the token of its address for a cookie, and shows the states that the server sends.
// All texts of the run become text nodes: none of them is ever read as HTML.
import { clockText, draw, make } from "./chart.js";

const SPOKEN_EVERY_MS = 10_000;
const byId = (id) => document.getElementById(id);
const count = (number) => Number(number).toLocaleString("en-US");
let source = null, plan = { scenario: "", treatments: [] }, state = null, points = [], secret = "";
let paused = false, ended = false, spokenAt = 0;

function significant(value) {
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value) || 1)));
  return value.toFixed(Math.min(digits, 6));
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "-";
  if (seconds === 0) return "0";
  const [scale, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]].find(([size]) => seconds >= size * 0.9995) ?? [1e-9, "ns"];
  return `${significant(seconds / scale)} ${unit}`;
}

function rate(value) {
  return value >= 1000 ? count(Math.round(value)) : value === 0 ? "0" : significant(value);
}

function notice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
}

// -- the connection ---------------------------------------------------------------------------------------------------

async function post(path, body, headers = {}) {
  return fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
}

async function logIn() {
  const token = new URLSearchParams(location.hash.slice(1)).get("t");
  if (!token) return;
  // Out of sight, and out of the history: what reloads has the cookie.
  history.replaceState(null, "", location.pathname);
  const answer = await post("session", { token });
  if (!answer.ok) notice(await answer.text());
}

function connect() {
  if (source || paused || ended || document.hidden) return;
  byId("connection").textContent = "Connecting ...";
  source = new EventSource("events");
  source.addEventListener("hello", (event) => {
    const hello = JSON.parse(event.data);
    secret = hello.secret;
    byId("version").textContent = hello.version;
    byId("stop").hidden = !hello.control;
    points = [];
    notice("");
    byId("connection").textContent = "Connected: the state is of this second.";
  });
  source.addEventListener("plan", (event) => {
    plan = JSON.parse(event.data);
    shortTitles(plan.treatments.map((each) => each.title)).forEach((title, place) => (plan.treatments[place].short = title));
    byId("name").textContent = plan.scenario || "Run without a name";
  });
  source.addEventListener("state", (event) => {
    state = JSON.parse(event.data);
    points.splice(state.from, Infinity, ...state.points);
    show();
  });
  source.addEventListener("end", (event) => finish(JSON.parse(event.data)));
  source.onerror = failed;
}

function disconnect(why) {
  source?.close();
  source = null;
  byId("connection").textContent = why;
}

async function failed() {
  if (ended || !source) return;
  if (source.readyState === EventSource.CONNECTING) {
    byId("connection").textContent = "The connection is lost; trying again ...";
    return;
  }
  disconnect("Not connected.");
  // The stream itself does not say why it was refused.
  try {
    const answer = await fetch("status");
    const found = answer.ok ? await answer.json() : null;
    if (!found) notice(await answer.text());
    else if (found.viewers >= found.most) notice(`${found.most} pages show this run already, which is the most: close one, and reload this page.`);
    else notice("The connection failed; reload this page.");
  } catch {
    notice("The run's master does not answer any more.");
  }
}

function showAnswer(answer) {
  byId("answer").textContent = answer;
  byId("answer").hidden = !answer;
}

function finish(how) {
  ended = true;
  showAnswer(how.answer);
  disconnect("Not connected any more: the run is over.");
  notice([`The run is over (${how.status}): ${how.line}`, ...how.reasons].join("; "));
  byId("pause").disabled = byId("stop").disabled = true;
  byId("confirm").close();
  document.title = `${how.status} - ${plan.scenario || "run"} - Weighbridge`;
}

// -- what is shown ----------------------------------------------------------------------------------------------------

function fill(table, rows, running = () => false) {
  const body = byId(table).tBodies[0];
  const heads = [...byId(table).tHead.rows[0].cells];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, place) => {
    const line = body.rows[place] ?? body.insertRow();
    line.classList.toggle("running", running(place));
    row.forEach((words, column) => {
      let cell = line.cells[column];
      if (!cell) {
        cell = document.createElement(column === 0 ? "th" : "td");
        if (column === 0) cell.scope = "row";
        cell.className = heads[column].className;
        line.append(cell);
      }
      if (cell.textContent !== words) cell.textContent = words;
    });
  });
}

function more(table, rows) {
  const hidden = state.hidden[table];
  if (hidden) rows.push([`and ${count(hidden)} more`, ...Array(byId(table).tHead.rows[0].cells.length - 1).fill("")]);
  return rows;
}

function finished() {
  return state.done + state.failed + state.left_out + state.lost + state.aborted;
}

function progressText() {
  const all = finished();
  if (state.planned === null) return `${count(all)} jobs`;
  const share = state.planned ? Math.floor((100 * all) / state.planned) : 0;
  return `${count(all)} of ${count(state.planned)} jobs, ${Math.min(100, share)} %`;
}

function showProgress() {
  const bar = byId("bar"), trial = state.trial;
  if (state.planned) [bar.max, bar.value] = [state.planned, Math.min(finished(), state.planned)];
  else if (trial) [bar.max, bar.value] = [trial.total, trial.number - 1];
  byId("counts").textContent = progressText();
  const warmup = trial?.warmup ? " (warm-up, not in the latencies)" : "";
  const which = trial && (state.round || `trial ${count(trial.number)} of ${count(trial.total)}`);
  byId("trial").textContent = trial ? `Now: ${which}: ${trial.title}${warmup}` : state.doing || "No trial is running.";
  if (state.noop) byId("trial").textContent += " NO-OP: nothing is executed, this is the harness's own maximum.";
  const rows = [
    ["elapsed", clockText(state.elapsed_s)],
    ["to go, by estimate", state.eta_s === null ? "not known yet" : clockText(state.eta_s)],
    ["jobs/s now", rate(state.rate_now)],
    ["jobs/s, mean", rate(state.rate_mean)],
    ["in flight", count(state.in_flight)],
    ["failed", count(state.failed), state.failed > 0],
    ...["lost", "aborted", "left_out"].filter((name) => state[name]).map((name) => [name.replace("_", " "), count(state[name]), name !== "left_out"]),
  ];
  byId("measures").replaceChildren(...rows.map(([name, value, bad]) => {
    const pair = document.createElement("div"), term = document.createElement("dt"), what = document.createElement("dd");
    [term.textContent, what.textContent] = [name, value];
    if (bad) what.className = "bad";
    pair.append(term, what);
    return pair;
  }));
  document.title = `${progressText()} - ${plan.scenario || "run"} - Weighbridge`;
}

const colourOf = (treatment) => `var(--${plan.treatments[treatment]?.hue ?? "slate"})`;
// What tells treatments apart: the values of those labels in which their titles differ.
function shortTitles(titles) {
  const words = titles.map((title) => title.split(" "));
  const common = new Set(words[0]?.filter((word) => words.every((each) => each.includes(word))));
  if (titles.length < 2 || !words.flat().every((word) => word.includes("="))) return titles;
  return words.map((each, place) => each.filter((word) => !common.has(word)).map((word) => word.split("=").slice(1).join("=")).join(" ") || titles[place]);
}

const titleOf = (treatment) => plan.treatments[treatment]?.title ?? `treatment ${treatment}`;

function showCharts() {
  const rates = points.map(([begin, end, done]) => [begin, end, done / (end - begin)]);
  const lines = [], bands = [], engines = new Map();
  const open = new Map();
  for (const [begin, end, , , rows] of points) {
    for (const [treatment, , p50, p95] of rows) {
      let pair = open.get(treatment);
      if (!pair || pair.end !== begin) {
        pair = { p50: [], p95: [] };
        open.set(treatment, pair);
        lines.push({ colour: colourOf(treatment), values: pair.p50 }, { colour: colourOf(treatment), dash: "5 3", values: pair.p95 });
      }
      pair.end = end;
      pair.p50.push([begin, end, p50]);
      pair.p95.push([begin, end, p95]);
      engines.set(plan.treatments[treatment]?.engine ?? "", colourOf(treatment));
    }
    const main = rows.reduce((most, row) => (most && most[1] >= row[1] ? most : row), null);
    if (!main) continue;
    const last = bands.at(-1);
    if (last && last.treatment === main[0] && last[1] === begin) last[1] = end;
    else bands.push(Object.assign([begin, end, plan.treatments[main[0]]?.short ?? titleOf(main[0]), colourOf(main[0])], { treatment: main[0] }));
  }
  const marks = points.filter((each) => each[3]).map(([begin, end, , failures]) => [(begin + end) / 2, `${failures} failed`]);
  const newest = rates.at(-1)?.[2] ?? 0;
  draw(byId("rate"), {
    title: "Jobs done per second", lines: [{ colour: "var(--ink)", values: rates }], bands, marks, format: rate,
    label: `Jobs done per second over time; newest ${rate(newest)}.`,
  });
  const [p50, p95] = [lines.at(-2)?.values.at(-1)?.[2], lines.at(-1)?.values.at(-1)?.[2]];
  draw(byId("latency"), {
    title: "Duration of jobs, p50 and p95", lines, bands, format: duration, mayLog: true,
    label: `Median and 95th percentile of the durations of jobs over time; newest ${duration(p50)} and ${duration(p95)}.`,
  });
  const wide = points.length ? Math.max(...points.map(([begin, end]) => end - begin)) : 1;
  const each = `each step is ${wide < 1.5 ? "a second" : `up to ${Math.round(wide)} seconds`}`;
  byId("rate").querySelector("figcaption").textContent = `Time since the run began; ${each}; × marks failed jobs. Where nobody looked there is no line.`;
  byId("latency").querySelector("figcaption").textContent = `Jobs that were done in each step, without warm-up, rounded by less than 2 %. Lower is better.`;
  byId("legend").replaceChildren(
    ...[["p50", "var(--ink)", "none"], ["p95", "var(--ink)", "5 3"], ...[...engines].map(([name, colour]) => [name, colour, "none"])].map(([name, colour, dash]) => {
      const item = document.createElement("li"), sample = make("svg", { width: 28, height: 10, "aria-hidden": "true" });
      sample.append(make("path", { d: "M0 5H28", stroke: colour, "stroke-width": 2, "stroke-dasharray": dash }));
      item.append(sample, name);
      return item;
    }),
  );
}

const perSecond = (value) => value === null ? "-" : rate(value);

function showTables() {
  // Only jobs that do one operation each have rates of their own.
  byId("latencies").classList.toggle("rateless", state.latencies.every((row) => row.per_s === null));
  const errors = state.errors.map((row) => [count(row.count), row.operation, row.kind, (row.left_out ? "left out (optional): " : "") + row.message]);
  fill("errors", more("errors", errors));
  byId("no-errors").hidden = errors.length > 0;
  byId("errors").parentElement.hidden = byId("errors-note").hidden = errors.length === 0;
  fill("hosts", more("hosts", state.hosts.map((row) => [
    row.worker, row.host, row.environment, row.state, `${row.running} of ${row.slots}`,
    row.cpu_percent === null ? "-" : `${Math.round(row.cpu_percent)} %`, row.lag_ms === null ? "-" : `${row.lag_ms.toFixed(1)} ms`, row.at,
  ])));
  fill("latencies", more("latencies", state.latencies.map((row) => [
    titleOf(row.treatment), row.operation, count(row.n), count(row.errors), perSecond(row.per_s), perSecond(row.mb_per_s),
    duration(row.p50_s), duration(row.p95_s), duration(row.p99_s), duration(row.max_s),
  ])), (place) => state.trial !== null && state.latencies[place]?.treatment === state.trial.treatment);
}

function show() {
  showProgress();
  showAnswer(state.answer);
  showCharts();
  showTables();
  if (state.stopping) {
    byId("stop").disabled = true;
    byId("stop").textContent = "Stopping ...";
  }
  const now = performance.now();
  if (now - spokenAt >= SPOKEN_EVERY_MS || !spokenAt) {
    spokenAt = now;
    const left = state.eta_s === null ? "" : `, ${clockText(state.eta_s)} to go`;
    byId("spoken").textContent = `${progressText()}, ${count(state.failed)} failed${left}`;
  }
}

// -- buttons ----------------------------------------------------------------------------------------------------------

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").textContent = paused ? "Go on" : "Pause";
  if (paused) disconnect("Paused: this page asks for nothing.");
  else connect();
});

let confirmation = null;

byId("stop").addEventListener("click", async () => {
  const answer = await post("stop", {}, { "X-Weighbridge": secret });
  if (!answer.ok) return notice(await answer.text());
  confirmation = (await answer.json()).confirm;
  byId("confirm").showModal();
});

byId("keep").addEventListener("click", () => byId("confirm").close());

byId("really").addEventListener("click", async () => {
  byId("confirm").close();
  const answer = await post("stop", { confirm: confirmation }, { "X-Weighbridge": secret });
  if (!answer.ok) return notice(await answer.text());
  byId("stop").disabled = true;
  byId("stop").textContent = "Stopping ...";
});

document.addEventListener("visibilitychange", () => {
  if (document.hidden && !ended && !paused) disconnect("Hidden: this page asks for nothing.");
  else connect();
});
new ResizeObserver(() => state && showCharts()).observe(byId("rate"));

window.addEventListener("hashchange", () => logIn().then(connect));
logIn().then(connect);
