"use strict";
// Everything that a model wrote reaches the page through textContent, never as markup.
const DATA = JSON.parse(document.getElementById("data").textContent);

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

// ---- curves ---------------------------------------------------------------------------------------------------------

async function unpackPlotly() {
  const packed = document.getElementById("plotly");
  const bytes = Uint8Array.from(atob(packed.textContent), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  document.head.append(make("script", { text: await new Response(stream).text() }));
  packed.remove();
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function stepName(panel, x) {
  if (!panel.staged) return `step ${x}`;
  const band = DATA.curves.bands.find(({ start, end }) => x >= start && x <= end && (x > start || start === 0));
  return band ? `${band.name}, step ${x - band.start}` : "";
}

function plotSeries(panel, series) {
  const accompanied = panel.series.some((other) => other.kind !== "train" && other.name === series.name);
  const faint = series.kind === "train" && accompanied;
  const value = panel.unit === "percent" ? "%{y:.1%}" : "%{y:.4~g}";
  const kind = { train: "", mean: ", running mean", validation: ", validation" }[series.kind];
  return {
    type: "scatter", x: series.x, y: series.y, name: series.name, connectgaps: false,
    mode: series.kind === "validation" ? "lines+markers" : "lines", opacity: faint ? 0.3 : 1,
    line: { color: colour(series.colour), width: faint ? 1 : 1.8 },
    marker: { size: 6, color: colour(series.colour), line: { width: 1.5, color: colour("card") } },
    text: series.x.map((x) => stepName(panel, x)),
    hovertemplate: `${value}  ${series.name}${kind}<br>%{text}<extra></extra>`,
  };
}

function plotLayout(panel) {
  const { bands, ticks } = DATA.curves;
  const axis = { gridcolor: colour("grid"), linecolor: colour("rule"), zeroline: false, tickcolor: colour("rule"),
    tickfont: { size: 11, color: colour("soft") }, fixedrange: true, automargin: true };
  const line = (x, dash, tone) => ({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, layer: "below",
    line: { color: colour(tone), width: 1, dash } });
  const layout = {
    margin: { l: 40, r: 10, t: 20, b: 24 }, showlegend: false, hovermode: "closest", dragmode: false,
    paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { family: colour("sans"), color: colour("ink") },
    hoverlabel: { bgcolor: colour("ink"), bordercolor: colour("ink"), font: { color: colour("paper"), size: 12 } },
    xaxis: { ...axis, showgrid: false, showline: true, ticks: "outside", ticklen: 4 },
    yaxis: { ...axis, nticks: 6, rangemode: panel.from_zero ? "tozero" : "normal",
      tickformat: panel.unit === "percent" ? ".3~%" : "~g" },
  };
  if (!panel.staged || !bands.length) return layout;
  const end = bands[bands.length - 1].end;
  Object.assign(layout.xaxis, { range: [0, end * 1.015], tickvals: ticks.at, ticktext: ticks.text });
  layout.shapes = bands.slice(1).map(({ start }) => line(start, "solid", "grey"));
  const kept = bands.filter((band) => band.kept !== null);
  layout.shapes.push(...kept.map((band) => line(band.start + band.kept, "dot", "grey")));
  layout.annotations = bands.map((band) => ({ x: band.start, xanchor: "left", xshift: 4, yref: "paper", y: 1,
    yanchor: "bottom", text: band.name, showarrow: false, font: { size: 11.5, color: colour("soft") } }));
  return layout;
}

function panelCard(panel) {
  const names = [...new Map(panel.series.map((series) => [series.name, series.colour]))];
  const legend = names.map(([name, tone]) => {
    const swatch = make("i");
    swatch.style.background = `var(--${tone})`;
    return make("li", {}, swatch, name);
  });
  return make("figure", { class: "panel" },
    make("h3", {}, panel.title, " ", make("small", { text: panel.note })),
    make("ul", { class: "legend" }, ...legend),
    make("div", { class: "plot", role: "img", "aria-label": `${panel.title}: ${names.map(([name]) => name).join(", ")}` }));
}

async function drawCurves() {
  const host = document.getElementById("panels");
  if (!host) return;
  const cards = DATA.curves.panels.map(panelCard);
  host.append(...cards);
  document.getElementById("kept-note").hidden = DATA.curves.bands.every((band) => band.kept === null);
  if (typeof DecompressionStream === "undefined") {
    host.replaceChildren(make("p", { class: "empty",
      text: "This browser is too old to draw the curves; their numbers are in metrics.jsonl." }));
    return;
  }
  await unpackPlotly();
  const draw = () => DATA.curves.panels.forEach((panel, index) => {
    const plot = cards[index].querySelector(".plot");
    const series = panel.series.map((one) => plotSeries(panel, one));
    Plotly.react(plot, series, plotLayout(panel), { displayModeBar: false, responsive: true });
  });
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  document.documentElement.dataset.curves = "drawn";
}

// ---- exchanges: state ------------------------------------------------------------------------------------------------

const { facets, exchanges } = DATA.traces;
const state = { picked: {}, query: "", trace: null };
const byId = new Map(exchanges.map((exchange) => [exchange.id, exchange]));
const byTask = new Map();
for (const one of exchanges) byTask.set(one.task, [...(byTask.get(one.task) || []), one]);
const haystack = new Map(exchanges.map((one) => [one.id,
  [one.task, one.question, one.answer, one.critique, one.refinement].join("\n").toLowerCase()]));
const [criticTitle, , changeTitle, , troubleTitle] = facets.map(({ options }) =>
  new Map(options.map(({ value, label }) => [value, label])));

function readHash() {
  const hash = location.hash.slice(1);
  if (!hash.includes("=")) return false;
  const given = new URLSearchParams(hash);
  for (const { key, options } of facets) {
    const known = new Set(options.map(({ value }) => value));
    state.picked[key] = new Set((given.get(key) || "").split(",").filter((value) => known.has(value)));
  }
  state.query = given.get("q") || "";
  state.trace = byId.has(given.get("trace")) ? given.get("trace") : null;
  return true;
}

function hashFor(trace) {
  const parts = facets.filter(({ key }) => state.picked[key].size)
    .map(({ key }) => `${key}=${[...state.picked[key]].map(encodeURIComponent).join(",")}`);
  if (state.query) parts.push(`q=${encodeURIComponent(state.query)}`);
  return `#${[...parts, `trace=${trace || ""}`].join("&")}`;
}

function startingView() {
  for (const { key } of facets) state.picked[key] = new Set();
  const has = (critic, split) => exchanges.some((one) => one.tags.critic[0] === critic && one.tags.split[0] === split);
  const critics = facets[0].options.map(({ value }) => value).reverse();
  for (const { value: split } of facets[1].options) {
    const critic = critics.find((name) => has(name, split));
    if (critic === undefined) continue;
    state.picked.critic.add(critic);
    state.picked.split.add(split);
    return;
  }
}

function passes(one, except) {
  if (state.query && !haystack.get(one.id).includes(state.query.toLowerCase())) return false;
  return facets.every(({ key }) => key === except || !state.picked[key].size
    || one.tags[key].some((value) => state.picked[key].has(value)));
}

// ---- exchanges: words ------------------------------------------------------------------------------------------------

const symbol = (right) => (right === null ? "?" : right ? "✓" : "✗");
const word = (right) => (right === null ? "not graded" : right ? "right" : "wrong");
const tone = (right) => (right === null ? "watch" : right ? "right" : "wrong");
const marked = (right) => make("span", { class: `${tone(right)}-text`, text: symbol(right) });
const chip = (kind, text) => make("span", { class: `chip ${kind}`, text });
const verdictChip = (right) => chip(tone(right), `${symbol(right)} ${word(right)}`);

function arrow(one) {
  const before = marked(one.answer_right);
  if (one.refinement === null) return make("span", {}, before, make("span", { class: "sr", text: word(one.answer_right) }));
  return make("span", {}, before, " → ", marked(one.refinement_right),
    make("span", { class: "sr", text: `${word(one.answer_right)} to ${word(one.refinement_right)}` }));
}

function place(one) {
  return `${criticTitle.get(one.tags.critic[0])}, ${one.tags.split[0]}${one.step ? `, step ${one.step}` : ""}`;
}

function critiqueChip(one) {
  const verdict = one.tags.verdict[0];
  if (verdict === "unparsed") return chip("watch", "? no readable verdict");
  if (!one.says) return null;
  const says = `says ${one.says === "correct" ? "right" : "wrong"}`;
  return verdict ? chip(verdict, `${verdict === "right" ? "✓" : "✗"} ${says}, ${verdict === "right" ? "rightly" : "mistakenly"}`)
    : chip("", says);
}

function number(value) {
  return `${value > 0 ? "+" : ""}${Number(value.toPrecision(3))}`;
}

// ---- exchanges: list and filters --------------------------------------------------------------------------------------

let found = [];

function buildFilters() {
  const host = document.getElementById("filters");
  for (const { key, title, options } of facets) {
    const buttons = options.map(({ value, label }) => {
      const button = make("button", { type: "button", "data-facet": key, "data-value": value }, label,
        make("span", { class: "count" }));
      button.addEventListener("click", () => {
        const picked = state.picked[key];
        if (!picked.delete(value)) picked.add(value);
        moved();
      });
      return button;
    });
    host.append(make("div", { class: "facet", role: "group", "aria-label": title }, make("span", { text: title }), ...buttons));
  }
}

function showFilters() {
  for (const { key, options } of facets) {
    const pool = exchanges.filter((one) => passes(one, key));
    for (const { value } of options) {
      const button = document.querySelector(`button[data-facet="${key}"][data-value="${CSS.escape(value)}"]`);
      const count = pool.filter((one) => one.tags[key].includes(value)).length;
      button.setAttribute("aria-pressed", String(state.picked[key].has(value)));
      button.dataset.empty = String(count === 0);
      button.lastChild.textContent = count.toLocaleString("en");
    }
  }
}

function listItem(one) {
  const notes = [];
  if (one.tags.verdict[0] === "wrong") notes.push(make("span", { class: "wrong-text", text: "wrong verdict" }));
  if (one.tags.verdict[0] === "unparsed") notes.push(make("span", { class: "watch-text", text: "unparsed" }));
  if (one.tags.trouble.length) notes.push(make("span", { class: "watch-text", text: one.tags.trouble.map((value) => troubleTitle.get(value)).join(", ") }));
  const where = state.picked.critic.size === 1 && state.picked.split.size === 1 ? one.step && `step ${one.step}` : place(one);
  return make("li", {}, make("a", { href: hashFor(one.id), "data-id": one.id },
    make("span", { class: "q", text: one.question.split("\n").join(" ") || one.task }),
    make("span", { class: "m" }, arrow(one), ...notes, make("span", { class: "where", text: where || "" }))));
}

function showList() {
  found = exchanges.filter((one) => passes(one));
  const all = exchanges.length.toLocaleString("en");
  document.getElementById("hits").textContent = `${found.length.toLocaleString("en")} of ${all}`;
  document.getElementById("list").replaceChildren(...found.map(listItem));
}

function showCurrent() {
  for (const link of document.querySelectorAll("#list a[aria-current]")) link.removeAttribute("aria-current");
  const link = document.querySelector(`#list a[data-id="${state.trace}"]`);
  if (!link) return;
  link.setAttribute("aria-current", "true");
  const list = document.getElementById("list");
  const top = link.offsetTop;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + link.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = top + link.offsetHeight - list.clientHeight;
}

// ---- exchanges: one of them -------------------------------------------------------------------------------------------

function wordsMarked(line, old) {
  const [now, then] = [line.split(/(\s+)/), old.split(/(\s+)/)];
  let start = 0;
  while (start < now.length && start < then.length && now[start] === then[start]) start += 1;
  let end = 0;
  while (end < now.length - start && end < then.length - start && now.at(-1 - end) === then.at(-1 - end)) end += 1;
  const middle = now.slice(start, now.length - end).join("");
  return [now.slice(0, start).join(""), middle ? make("mark", { text: middle }) : "", now.slice(now.length - end).join("")];
}

function textLine(kind, mark, hint, ...content) {
  return make("span", { class: `line ${kind}` }, mark ? make("span", { class: "gutter", "aria-hidden": "true", text: mark }) : null,
    hint ? make("span", { class: "sr", text: `${hint}: ` }) : null, ...content);
}

function answerLines(one) {
  const gone = new Set(one.gone);
  return one.answer.split("\n").map((line, index) => textLine(gone.has(index) ? "gone" : "", "", "", line));
}

function critiqueLines(one) {
  const flagged = new Set(one.flagged);
  return one.critique.split("\n").map((line, index) => {
    if (flagged.has(index)) return textLine("flagged", "✗", "called wrong", line);
    return textLine(line.startsWith("Correctness of the final answer") ? "verdict" : "", "", "", line);
  });
}

function refinementLines(one) {
  const changed = new Map(one.changed);
  const old = one.answer.split("\n");
  return one.refinement.split("\n").map((line, index) => {
    if (!changed.has(index)) return textLine("", "", "", line);
    const before = changed.get(index);
    if (before < 0) return textLine("changed", "+", "added", line);
    return textLine("changed", "~", "changed", ...wordsMarked(line, old[before]));
  });
}

function column(title, about, lines, ...rest) {
  return make("section", { class: "column" }, make("header", {}, make("h4", { text: title }), ...about),
    make("div", { class: `text ${["Critique", "Refinement"].includes(title) ? "guttered" : ""}` }, ...lines), ...rest);
}

function columns(one) {
  const cut = (part) => (one.stop[part] === "length" ? chip("watch", "! cut at the token limit") : null);
  const none = (text) => [make("span", { class: "none", text })];
  return make("div", { class: "columns" },
    column("Problem", [], one.question.split("\n").map((line) => textLine("", "", "", line)),
      make("div", { class: "reference" }, make("span", { text: "reference " }), make("b", { text: one.reference || "–" }))),
    column("Answer", [verdictChip(one.answer_right), cut("answer")], answerLines(one)),
    column("Critique", one.critique === null ? [] : [critiqueChip(one), cut("critique")],
      one.critique === null ? none("No critique was written.") : critiqueLines(one)),
    column("Refinement", one.refinement === null ? [] : [verdictChip(one.refinement_right), cut("refinement")],
      one.refinement === null ? none("No refinement was written.") : refinementLines(one)));
}

function pay(one) {
  const facts = [];
  if (one.reward !== null) facts.push(["reward", number(one.reward)]);
  for (const [name, value] of Object.entries(one.rewards)) facts.push([`of which ${name}`, number(value)]);
  if (one.credit !== null) facts.push(["credit", number(one.credit)]);
  const stops = Object.entries(one.stop).filter(([, reason]) => reason !== "eos");
  for (const [part, reason] of stops) facts.push([`${part} ended by`, reason]);
  return make("dl", { class: "pay" }, ...facts.map(([name, value]) => make("div", {}, make("dt", { text: name }), make("dd", { text: value }))));
}

function related(one) {
  const others = byTask.get(one.task).filter((other) => other !== one).slice(0, 12);
  if (!others.length) return null;
  return make("nav", { class: "related", "aria-label": "The same problem elsewhere" }, "The same problem elsewhere",
    make("ul", {}, ...others.map((other) => make("li", {}, make("a", { href: hashFor(other.id), "data-id": other.id },
      arrow(other), `  ${place(other)}${other.credit === null ? "" : `, credit ${number(other.credit)}`}`)))));
}

function headline(one) {
  if (one.tags.change.length) return changeTitle.get(one.tags.change[0]);
  if (one.refinement !== null) return `${word(one.answer_right)} → ${word(one.refinement_right)}`;
  return `${word(one.answer_right)} answer, ${one.critique === null ? "no critique" : "not refined"}`;
}

function showDetail() {
  const host = document.getElementById("detail");
  const one = byId.get(state.trace);
  if (!one) {
    host.replaceChildren(make("p", { class: "empty", text: "Nothing on this page fits these filters." }));
    return;
  }
  const at = found.indexOf(one);
  const button = (label, key, by) => {
    const node = make("button", { type: "button", "aria-keyshortcuts": key }, label, make("kbd", { text: key }));
    node.addEventListener("click", () => step(by));
    return node;
  };
  const title = headline(one);
  host.replaceChildren(
    make("div", { class: "head" },
      make("div", {}, make("h3", { text: title[0].toUpperCase() + title.slice(1) }),
        make("p", { text: `${place(one)} · ${one.task}` })),
      make("div", { class: "nav" },
        one.outcome === "ok" ? null : chip("watch", `! ${one.outcome.split("_").join(" ")}`),
        make("span", { text: at < 0 ? "outside these filters" : `${at + 1} of ${found.length}` }), button("previous", "k", -1), button("next", "j", 1))),
    columns(one), pay(one),
    make("p", { class: "key" }, make("span", {}, make("b", { class: "wrong-text", text: "✗ " }), "a step that the critique calls wrong"),
      make("span", {}, make("b", { text: "~ " }), "changed against the answer"), make("span", {}, make("b", { text: "+ " }), "added")),
    ...[related(one)].filter(Boolean));
  if (host.getBoundingClientRect().top < 0) host.scrollIntoView({ behavior: "instant" });
}

// ---- exchanges: moving about ------------------------------------------------------------------------------------------

function moved() {
  showFilters();
  showList();
  if (!found.some((one) => one.id === state.trace)) state.trace = found.length ? found[0].id : null;
  history.replaceState(null, "", hashFor(state.trace));
  showCurrent();
  showDetail();
}

function openTrace(trace) {
  state.trace = trace;
  history.replaceState(null, "", hashFor(trace));
  showCurrent();
  showDetail();
}

function step(by) {
  if (!found.length) return;
  const at = found.findIndex((one) => one.id === state.trace);
  openTrace(found[Math.min(Math.max(at + by, 0), found.length - 1)].id);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const act = { j: () => step(1), k: () => step(-1), "/": () => document.getElementById("search").focus() }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

function fromHash(event) {
  if (!readHash()) return;
  document.getElementById("search").value = state.query;
  showFilters();
  showList();
  if (!state.trace && found.length) state.trace = found[0].id;
  history.replaceState(null, "", hashFor(state.trace)); // so that the same link, followed again, is a change again
  showCurrent();
  showDetail();
  document.getElementById("traces").scrollIntoView({ behavior: event ? "auto" : "instant" });
}

function startBrowser() {
  const browser = document.getElementById("browser");
  if (!browser) return;
  browser.hidden = false;
  startingView();
  buildFilters();
  const search = document.getElementById("search");
  search.addEventListener("input", () => { state.query = search.value.trim(); moved(); });
  document.getElementById("clear").addEventListener("click", () => {
    for (const { key } of facets) state.picked[key].clear();
    state.query = search.value = "";
    moved();
  });
  browser.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-id]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    openTrace(link.dataset.id);
  });
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", fromHash);
  showFilters();
  showList();
  state.trace = found.length ? found[0].id : null;
  showCurrent();
  showDetail();
  fromHash();
}

drawCurves(); // first: its empty panels give the page the height that a permalink scrolls by
startBrowser();
