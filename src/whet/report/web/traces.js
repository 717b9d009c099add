// ---- traces: state ---------------------------------------------------------------------------------------------------
// What is said of one trace comes from exchange.js, reply.js or dialogue.js, whichever the page has.

const { facets, exchanges, recorded } = DATA.traces;
const state = { picked: {}, query: "", trace: null };
const byId = new Map(exchanges.map((exchange) => [exchange.id, exchange]));
const byTask = new Map();
for (const one of exchanges) byTask.set(one.task, [...(byTask.get(one.task) || []), one]);
const haystack = new Map(exchanges.map((one) => [one.id,
  [one.task, one.question, one.answer, ...otherTexts(one)].join("\n").toLowerCase()]));
const titles = new Map(facets.map(({ key, options }) => [key, new Map(options.map(({ value, label }) => [value, label]))]));
const titleOf = (facet, value) => titles.get(facet).get(value);
const writer = facets[0].key;
const counted = (count) => count.toLocaleString("en");

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Not URLSearchParams: a comma within a name is escaped, one between names is not.
function readHash() {
  const hash = location.hash.slice(1);
  if (!hash.includes("=")) return false;
  const given = new Map(hash.split("&").map((part) => [part.split("=", 1)[0], part.slice(part.indexOf("=") + 1)]));
  for (const { key, options } of facets) {
    const known = new Set(options.map(({ value }) => value));
    const values = given.has(key) ? given.get(key).split(",").map(decoded) : [];
    state.picked[key] = new Set(values.filter((value) => known.has(value)));
  }
  state.query = decoded(given.get("q") || "");
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
  if (DATA.traces.whole) return;
  const has = (name, split) => exchanges.some((one) => one.tags[writer][0] === name && one.tags.split[0] === split);
  const writers = facets[0].options.map(({ value }) => value).reverse();
  for (const { value: split } of facets[1].options) {
    const last = writers.find((name) => has(name, split));
    if (last === undefined) continue;
    state.picked[writer].add(last);
    state.picked.split.add(split);
    return;
  }
}

const fits = (tags, except) => facets.every(({ key }) => key === except || !state.picked[key].size
  || tags[key].some((value) => state.picked[key].has(value)));

function passes(one, except) {
  if (state.query && !haystack.get(one.id).includes(state.query.toLowerCase())) return false;
  return fits(one.tags, except);
}

function place(one) {
  return `${titleOf(writer, one.tags[writer][0])}, ${one.tags.split[0]}${one.step ? `, step ${one.step}` : ""}`;
}

// ---- traces: list and filters ----------------------------------------------------------------------------------------

let found = [];
const buttons = new Map();

function buildFilters() {
  const host = document.getElementById("filters");
  for (const { key, title, options } of facets) {
    buttons.set(key, new Map());
    for (const { value, label } of options) {
      const button = make("button", { type: "button", "data-facet": key, "data-value": value }, make("bdi", { text: label }),
        make("span", { class: "count" }));
      buttons.get(key).set(value, button);
      button.addEventListener("click", () => {
        const picked = state.picked[key];
        if (!picked.delete(value)) picked.add(value);
        moved();
      });
    }
    host.append(make("div", { class: "facet", role: "group", "aria-label": title }, make("span", { text: title }),
      ...buttons.get(key).values()));
  }
}

function showFilters() {
  for (const { key, options } of facets) {
    const pool = exchanges.filter((one) => passes(one, key));
    for (const { value } of options) {
      const button = buttons.get(key).get(value);
      const count = pool.filter((one) => one.tags[key].includes(value)).length;
      button.setAttribute("aria-pressed", String(state.picked[key].has(value)));
      button.dataset.empty = String(count === 0);
      button.lastChild.textContent = counted(count);
    }
  }
}

const asked = (one) => make("span", { class: "q", text: one.question.slice(0, 300).split("\n").join(" ") || one.task });

function where(one) {
  const alone = state.picked[writer].size === 1 && state.picked.split.size === 1;
  return make("span", { class: "where", text: (alone ? one.step && `step ${one.step}` : place(one)) || "" });
}

function troubles(values) {
  if (!values.length) return [];
  return [make("span", { class: "watch-text", text: values.map((value) => titleOf("trouble", value)).join(", ") })];
}

function listItem(one) {
  return make("li", {}, make("a", { href: hashFor(one.id), "data-id": one.id },
    asked(one), make("span", { class: "m" }, arrow(one), ...listNotes(one), ...troubles(one.tags.trouble), where(one))));
}

// How many were found, and of how many: of those on the page, or of those recorded where not all of them were kept.
function hits() {
  if (state.query) return `${counted(found.length)} of ${counted(exchanges.length)}`;
  const all = recorded.filter(({ tags }) => fits(tags)).reduce((sum, { count }) => sum + count, 0);
  return found.length < all ? `${counted(found.length)} of ${counted(all)} kept` : counted(all);
}

function showList() {
  found = exchanges.filter((one) => passes(one));
  document.getElementById("hits").textContent = hits();
  document.getElementById("list").replaceChildren(...listItems(found));
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

// ---- traces: one of them ---------------------------------------------------------------------------------------------

function textLine(kind, mark, hint, ...content) {
  return make("span", { class: `line ${kind}` }, mark ? make("span", { class: "gutter", "aria-hidden": "true", text: mark }) : null,
    hint ? make("span", { class: "sr", text: `${hint}: ` }) : null, ...content);
}

function column(title, about, lines, ...rest) {
  return make("section", { class: "column" }, make("header", {}, make("h4", { text: title }), ...about),
    make("div", { class: `text ${guttered.includes(title) ? "guttered" : ""}` }, ...lines), ...rest);
}

function gapNote(gap, where) {
  if (!gap) return null;
  const ends = gap.lines ? `, ${counted(gap.lines)} line ends among them,` : "";
  return make("span", { class: "cut",
    text: `… ${counted(gap.chars)} characters${ends} are left out ${where}; the whole text is in traces/ …` });
}

// The lines of a text, with a note where the page leaves some of it out.
function textLines(text, gap, toLine) {
  const lines = text.split("\n").map(toLine);
  const note = gapNote(gap, "here");
  if (note) lines.splice(gap.after, 0, note);
  return lines;
}

const linesOf = (one, part, toLine) => textLines(one[part], one.gaps[part], toLine);
const plainLine = (line) => textLine("", "", "", line);

function problem(one) {
  const reference = make("div", { class: "reference" }, make("span", { text: "reference " }),
    make("b", { text: one.reference || "–" }), gapNote(one.gaps.reference, "of it"));
  return column("Problem", [], linesOf(one, "question", plainLine), one.turns && !one.reference ? null : reference);
}

function factList(facts) {
  return make("dl", { class: "pay" },
    ...facts.map(([name, value]) => make("div", {}, make("dt", { text: name }), make("dd", { text: value }))));
}

function related(one) {
  const others = byTask.get(one.task).filter((other) => other !== one && !together(one, other)).slice(0, 12);
  if (!others.length) return null;
  return make("nav", { class: "related", "aria-label": "The same problem elsewhere" }, "The same problem elsewhere",
    make("ul", {}, ...others.map((other) => make("li", {}, make("a", { href: hashFor(other.id), "data-id": other.id },
      arrow(other), `  ${place(other)}${other.credit === null ? "" : `, credit ${number(other.credit)}`}`)))));
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
        make("p", { text: subtitle(one) })),
      make("div", { class: "nav" },
        one.outcome === "ok" ? null : chip("watch", `! ${one.outcome.split("_").join(" ")}`),
        make("span", { text: at < 0 ? "outside these filters" : `${at + 1} of ${found.length}` }), button("previous", "k", -1), button("next", "j", 1))),
    ...body(one), ...[related(one)].filter(Boolean));
  if (host.getBoundingClientRect().top < 0) host.scrollIntoView({ behavior: "instant" });
}

// ---- traces: moving about --------------------------------------------------------------------------------------------

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
