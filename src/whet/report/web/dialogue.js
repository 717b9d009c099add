// ---- what is said of an episode: turn by turn, what was done and what came back -----------------------------------------

const [noun, nouns] = ["episode", "episodes"];
const guttered = [];
const otherTexts = (one) => one.turns.map((turn) => turn.text);
const isOwn = (turn) => !["observation", "proposal", "reviewer"].includes(turn.role);

// What a policy thinks is read past, what it does is what one looks for.
function turnLines(turn) {
  let part = "";
  return textLines(turn.text, turn.gap, (line) => {
    const begins = /^\s*(Thought|Action)\s*:/.exec(line);
    if (begins) part = begins[1].toLowerCase();
    return textLine(part, "", "", line);
  });
}

function turnFacts(turn) {
  const facts = [];
  if (turn.note) facts.push(chip("watch", `! ${turn.note}`));
  if (turn.stop === "length") facts.push(chip("watch", "! cut at the token limit"));
  if (turn.reward !== null) facts.push(make("span", { text: `reward ${number(turn.reward)}` }));
  if (turn.credit !== null) facts.push(make("span", { text: `credit ${number(turn.credit)}` }));
  return facts;
}

// A policy's turns are counted, for that is what a limit of turns counts; what comes back has its turn's number, as has
// what was proposed and sent back by a critic before anything was done.
function turnItems(one) {
  let count = 0;
  return one.turns.map((turn) => {
    if (isOwn(turn)) count += 1;
    return make("li", { class: `turn ${isOwn(turn) ? "own" : "observed"}`, id: isOwn(turn) ? `turn-${count}` : null },
      make("div", { class: "who" }, make("b", { text: isOwn(turn) ? `${count}` : "" }),
        make("span", { text: turn.role.split("_").join(" ") }), ...turnFacts(turn)),
      ...[pictureOf(turn)].filter(Boolean), make("div", { class: "text" }, ...(isOwn(turn) ? turnLines(turn) : textLines(turn.text, turn.gap, plainLine))));
  });
}

// The world from above, before the turn's action.
function pictureOf(turn) {
  if (!turn.picture.length) return null;
  const marks = { wall: "", "": "", goal: "★", key: "⚷", ball: "●", box: "■", door: "▯" };
  const facing = { up: "▲", down: "▼", left: "◀", right: "▶" };
  const cell = (name) => {
    const [kind, ...rest] = name.split(" ").reverse();
    const [first, second] = name.split(" ");
    if (first === "agent") return make("i", { class: "agent", title: name, text: facing[second] || "◆" });
    const colour = rest.length ? rest.at(-1) : null;
    return make("i", { class: name === "wall" ? "wall" : "", title: name || null, "data-colour": colour,
      text: marks[kind] ?? kind.slice(0, 1) });
  };
  return make("div", { class: "picture", role: "img", "aria-label": "The world from above" },
    ...turn.picture.map((row) => make("div", {}, ...row.map(cell))));
}

// One cell a turn, to see where it went wrong and to go there.
function strip(one) {
  const own = one.turns.filter(isOwn);
  if (own.length < 2) return null;
  const kind = (turn) => (turn.note || turn.stop === "length" ? "watch" : turn.reward > 0 ? "right" : turn.reward < 0 ? "wrong" : "");
  const cells = own.map((turn, at) => {
    const about = [`turn ${at + 1}`, turn.note, turn.reward === null ? "" : `reward ${number(turn.reward)}`].filter(Boolean).join(", ");
    const cell = make("button", { type: "button", class: kind(turn), title: about, "aria-label": about, text: `${at + 1}` });
    cell.addEventListener("click", () => {
      document.getElementById("turns").scrollTop = document.getElementById(`turn-${at + 1}`).offsetTop;
    });
    return cell;
  });
  return make("nav", { class: "strip", "aria-label": "Turns" }, ...cells);
}

function body(one) {
  const facts = [["turns", counted(one.turns.filter(isOwn).length)]];
  if (one.score !== null) facts.push(["score", Number(one.score.toPrecision(3))]);
  if (one.reward !== null) facts.push(["reward", number(one.reward)]);
  for (const [name, value] of Object.entries(one.rewards)) facts.push([`of which ${name}`, number(value)]);
  if (one.credit !== null) facts.push(["credit, mean per token", number(one.credit)]);
  if (one.reason) facts.push(["because", one.reason]);
  return [
    make("div", { class: "columns two long" }, problem(one),
      make("section", { class: "column" },
        make("header", {}, make("h4", { text: "Turns" }), verdictChip(one.answer_right)), ...[strip(one)].filter(Boolean),
        make("ol", { class: "turns", id: "turns", tabindex: "0", "aria-label": "Turns of the episode" }, ...turnItems(one)))),
    factList(facts), ...[siblings(one)].filter(Boolean)];
}
