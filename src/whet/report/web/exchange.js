// ---- what is said of an exchange: answer, critique, refinement -------------------------------------------------------

const guttered = ["Critique", "Refinement"];
const otherTexts = (one) => [one.critique, one.refinement];
const together = () => false;
const subtitle = (one) => `${place(one)} · ${one.task}`;
const listItems = (shown) => shown.map(listItem);

function listNotes(one) {
  if (one.tags.verdict[0] === "wrong") return [make("span", { class: "wrong-text", text: "wrong verdict" })];
  if (one.tags.verdict[0] === "unparsed") return [make("span", { class: "watch-text", text: "unparsed" })];
  return [];
}

function arrow(one) {
  const before = marked(one.answer_right);
  if (one.refinement === null) return make("span", {}, before, make("span", { class: "sr", text: word(one.answer_right) }));
  return make("span", {}, before, " → ", marked(one.refinement_right),
    make("span", { class: "sr", text: `${word(one.answer_right)} to ${word(one.refinement_right)}` }));
}

function critiqueChip(one) {
  const verdict = one.tags.verdict[0];
  if (verdict === "unparsed") return chip("watch", "? no readable verdict");
  if (!one.says) return null;
  const says = `says ${one.says === "correct" ? "right" : "wrong"}`;
  return verdict ? chip(verdict, `${verdict === "right" ? "✓" : "✗"} ${says}, ${verdict === "right" ? "rightly" : "mistakenly"}`)
    : chip("", says);
}

function wordsMarked(line, old) {
  const [now, then] = [line.split(/(\s+)/), old.split(/(\s+)/)];
  let start = 0;
  while (start < now.length && start < then.length && now[start] === then[start]) start += 1;
  let end = 0;
  while (end < now.length - start && end < then.length - start && now.at(-1 - end) === then.at(-1 - end)) end += 1;
  const middle = now.slice(start, now.length - end).join("");
  return [now.slice(0, start).join(""), middle ? make("mark", { text: middle }) : "", now.slice(now.length - end).join("")];
}

function answerLines(one) {
  const gone = new Set(one.gone);
  return linesOf(one, "answer", (line, index) => textLine(gone.has(index) ? "gone" : "", "", "", line));
}

function critiqueLines(one) {
  const flagged = new Set(one.flagged);
  return linesOf(one, "critique", (line, index) => {
    if (flagged.has(index)) return textLine("flagged", "✗", "called wrong", line);
    return textLine(line.startsWith("Correctness of the final answer") ? "verdict" : "", "", "", line);
  });
}

function refinementLines(one) {
  const changed = new Map(one.changed);
  const old = one.answer.split("\n");
  return linesOf(one, "refinement", (line, index) => {
    if (!changed.has(index)) return textLine("", "", "", line);
    const before = changed.get(index);
    if (before < 0) return textLine("changed", "+", "added", line);
    return textLine("changed", "~", "changed", ...wordsMarked(line, old[before]));
  });
}

function columns(one) {
  const cut = (part) => (one.stop[part] === "length" ? chip("watch", "! cut at the token limit") : null);
  const none = (text) => [make("span", { class: "none", text })];
  return make("div", { class: "columns" },
    problem(one),
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
  if (one.reason) facts.push(["because", one.reason]);
  const stops = Object.entries(one.stop).filter(([, reason]) => reason !== "eos");
  for (const [part, reason] of stops) facts.push([`${part} ended by`, reason]);
  return factList(facts);
}

function headline(one) {
  if (one.tags.change.length) return titleOf("change", one.tags.change[0]);
  if (one.refinement !== null) return `${word(one.answer_right)} → ${word(one.refinement_right)}`;
  return `${word(one.answer_right)} answer, ${one.critique === null ? "no critique" : "not refined"}`;
}

function body(one) {
  return [columns(one), pay(one),
    make("p", { class: "key" }, make("span", {}, make("b", { class: "wrong-text", text: "✗ " }), "a step that the critique calls wrong"),
      make("span", {}, make("b", { text: "~ " }), "changed against the answer"), make("span", {}, make("b", { text: "+ " }), "added"))];
}
