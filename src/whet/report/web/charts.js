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
  if (panel.axis) return panel.axis === "level" ? `level ${x}` : `${Math.round(x).toLocaleString("en")} ${panel.axis}`;
  if (!panel.staged) return `step ${x}`;
  const band = DATA.curves.bands.find(({ start, end }) => x >= start && x <= end && (x > start || start === 0));
  return band ? `${band.name ? `${band.name}, ` : ""}step ${x - band.start}` : "";
}

function plotBand(panel, series) {
  const edge = { type: "scatter", x: series.x, mode: "lines", line: { width: 0, color: colour(series.colour) }, name: series.name,
    text: series.x.map((x) => stepName(panel, x)) };
  const shown = panel.unit === "percent" ? "%{y:.1%}" : "%{y:.4~g}";
  return [
    { ...edge, y: series.low, hovertemplate: `${shown}  ${series.name}, low<br>%{text}<extra></extra>` },
    { ...edge, y: series.y, fill: "tonexty", fillcolor: `${colour(series.colour)}30`,
      hovertemplate: `${shown}  ${series.name}, high<br>%{text}<extra></extra>` },
  ];
}

function plotReference(series) {
  return [{ type: "scatter", x: series.x, y: series.y, mode: "lines", name: series.name,
    line: { color: colour("soft"), width: 1.2, dash: "dash" },
    hovertemplate: `%{y:.3~g}  ${series.name}<extra></extra>` }];
}

function plotStrategy(panel, series) {
  const spread = series.low && { type: "data", symmetric: false, array: series.high.map((y, i) => y - series.y[i]),
    arrayminus: series.y.map((y, i) => y - series.low[i]), thickness: 1, width: 2, color: `${colour(series.colour)}80` };
  return [{ type: "scatter", x: series.x, y: series.y, name: series.name, mode: "lines+markers", error_y: spread,
    line: { color: colour(series.colour), width: 1.8, dash: series.dash },
    marker: { size: 5, color: colour(series.colour) }, text: series.x.map((x) => stepName(panel, x)),
    hovertemplate: `%{y:.1%}  ${series.name}<br>%{text}<extra></extra>` }];
}

function plotSeries(panel, series) {
  if (series.kind === "strategy") return plotStrategy(panel, series);
  if (series.kind === "band") return plotBand(panel, series);
  if (series.kind === "reference") return plotReference(series);
  const accompanied = panel.series.some((other) => ["mean", "validation"].includes(other.kind) && other.name === series.name);
  const faint = series.kind === "train" && accompanied;
  const value = series.raw ? "%{customdata:.3~g}" : panel.unit === "percent" ? "%{y:.1%}" : "%{y:.4~g}";
  const kind = { train: "", points: "", mean: ", running mean", validation: ", validation" }[series.kind];
  // A stage of one step is a point without a neighbour, which no line shows.
  const isLone = series.y.map((y, i) => y !== null && (series.y[i - 1] ?? null) === null && (series.y[i + 1] ?? null) === null);
  const lines = isLone.some(Boolean) ? "lines+markers" : "lines";
  const mode = { validation: "lines+markers", points: "markers" }[series.kind] || lines;
  const size = ["validation", "points"].includes(series.kind) ? 6 : isLone.map((lone) => (lone ? 6 : 0));
  return [{
    type: "scatter", x: series.x, y: series.y, name: series.name, connectgaps: false,
    mode, opacity: faint ? 0.3 : 1, customdata: series.raw,
    line: { color: colour(series.colour), width: faint ? 1 : 1.8, dash: series.dash || "solid" },
    marker: { size, color: colour(series.colour), line: { width: 1.5, color: colour("card") } },
    text: series.x.map((x) => stepName(panel, x)),
    hovertemplate: `${value}  ${series.name}${kind}<br>%{text}<extra></extra>`,
  }];
}

function logAxis(panel) {
  const values = panel.series.flatMap((one) => [...one.y, ...(one.low || [])]).filter((y) => y > 0);
  const spread = Math.max(...values) / Math.min(...values);
  return { type: "log", rangemode: "normal", ...(spread > 30 ? { dtick: 1 } : spread > 4 ? { dtick: "D2" } : {}) };
}

// Of a share that was always 0 the axis would reach below it.
const isNeverNegative = (panel) => panel.series.every((one) => [...(one.y || []), ...(one.low || [])].every((y) => y === null || y >= 0));

// A stage too short for its name goes without: names would stand on each other. Pointing at a step tells it.
const hasRoom = (band, end) => 270 * (band.end - band.start) / end > 6.2 * band.name.length + 4;

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
    yaxis: { ...axis, nticks: 6, rangemode: panel.from_zero ? "tozero" : isNeverNegative(panel) ? "nonnegative" : "normal",
      tickformat: panel.unit === "percent" ? ".3~%" : "~g", ...(panel.log ? logAxis(panel) : {}) },
  };
  if (panel.axis) Object.assign(layout.xaxis, panel.axis === "level" ? { tickvals: panel.ticks.at, ticktext: panel.ticks.text }
    : { type: "log", dtick: "D2", tickformat: ",~d" });  // budgets double, as a rule
  if (!panel.staged || !bands.length) return layout;
  const end = bands[bands.length - 1].end;
  Object.assign(layout.xaxis, { range: [0, end * 1.015], tickvals: ticks.at, ticktext: ticks.text });
  layout.shapes = bands.slice(1).map(({ start }) => line(start, "solid", "grey"));
  const kept = bands.filter((band) => band.kept !== null);
  layout.shapes.push(...kept.map((band) => line(band.start + band.kept, "dot", "grey")));
  const named = bands.filter((band) => band.name && hasRoom(band, end));
  if (!named.length) layout.margin.t = 8;
  layout.annotations = named.map((band) => ({ x: band.start, xanchor: "left", xshift: 4, yref: "paper", y: 1,
    yanchor: "bottom", text: band.name, showarrow: false, font: { size: 11.5, color: colour("soft") } }));
  return layout;
}

function panelCard(panel) {
  const names = [...new Map(panel.series.map((series) => [series.name, series]))];
  const legend = names.map(([name, { kind, dash, colour: tone }]) => {
    const swatch = make("i", { class: dash ? `${kind} ${dash}` : kind });
    swatch.style.color = `var(--${tone})`;
    return make("li", {}, swatch, name);
  });
  return make("figure", { class: "panel" },
    make("h3", {}, panel.title, " ", make("small", { text: panel.note })),
    panel.says ? make("p", { class: "says", text: panel.says }) : null,
    make("ul", { class: "legend" }, ...legend),
    make("div", { class: "plot", role: "img", "aria-label": `${panel.title}: ${names.map(([name]) => name).join(", ")}` }));
}

async function drawCurves() {
  const parts = [["panels", DATA.curves.panels], ["off-policy-panels", DATA.curves.off_policy], ["strategy-panels", DATA.curves.strategies]]
    .map(([id, panels]) => [document.getElementById(id), panels]).filter(([host]) => host);
  if (!parts.length) return;
  const drawn = parts.flatMap(([host, panels]) => panels.map((panel) => {
    const card = panelCard(panel);
    host.append(card);
    return [panel, card.querySelector(".plot")];
  }));
  const note = document.getElementById("kept-note");
  if (note) note.hidden = DATA.curves.bands.every((band) => band.kept === null);
  if (typeof DecompressionStream === "undefined") {
    for (const [host] of parts) host.replaceChildren(make("p", { class: "empty",
      text: "This browser is too old to draw the curves; their numbers are in metrics.jsonl." }));
    return;
  }
  await unpackPlotly();
  const draw = () => drawn.forEach(([panel, plot]) => {
    const series = panel.series.flatMap((one) => plotSeries(panel, one));
    Plotly.react(plot, series, plotLayout(panel), { displayModeBar: false, responsive: true });
  });
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  document.documentElement.dataset.curves = "drawn";
}
