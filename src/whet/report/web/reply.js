// ---- what is said of a reply: right or wrong, and its place among the replies to the same problem ------------------

const guttered = [];
const otherTexts = () => [];
const listNotes = () => [];
const subtitle = (one) => (one.task === one.question ? place(one) : `${place(one)} · ${one.task}`);
const together = (one, other) => one.size > 1 && ["task", "step", "phase"].every((key) => one[key] === other[key])
  && one.tags[writer][0] === other.tags[writer][0] && one.tags.split[0] === other.tags.split[0];
const group = (one) => byTask.get(one.task).filter((other) => other === one || together(one, other));

function arrow(one) {
  const partly = one.score !== null && one.score > 0 && one.score < 1 ? ` score ${Number(one.score.toPrecision(3))}` : "";
  return make("span", {}, marked(one.answer_right), partly, make("span", { class: "sr", text: ` ${word(one.answer_right)}` }));
}

// A problem with several replies is one item of the list, with a link to each of them that the filters let through.
function listItems(shown) {
  const items = [];
  for (let at = 0; at < shown.length;) {
    const one = shown[at];
    let end = at + 1;
    while (end < shown.length && together(one, shown[end])) end += 1;
    items.push(one.size > 1 ? groupItem(shown.slice(at, end)) : listItem(one));
    at = end;
  }
  return items;
}

function groupItem(replies) {
  const all = group(replies[0]);
  const right = all.filter((one) => one.answer_right).length;
  return make("li", { class: "group" }, asked(replies[0]),
    make("span", { class: "m" }, make("span", { text: `${right} of ${all.length} right` }),
      ...troubles([...new Set(replies.flatMap((one) => one.tags.trouble))]), where(replies[0])),
    make("span", { class: "tries" }, ...replies.map((one) => make("a", { href: hashFor(one.id), "data-id": one.id,
      "aria-label": `reply ${one.at} of ${one.size}, ${word(one.answer_right)}` }, marked(one.answer_right)))));
}

function headline(one) {
  const which = one.size > 1 ? `, ${one.at} of ${one.size} to this problem` : "";
  return `${one.answer_right === null ? "reply that was not graded" : `${word(one.answer_right)} reply`}${which}`;
}

function siblings(one) {
  if (one.size < 2) return null;
  return make("nav", { class: "related tries", "aria-label": "The replies to this problem in this step" },
    make("span", { text: "All replies to this problem in this step, with their credit" }),
    make("ul", {}, ...group(one).map((other) => make("li", {}, make("a", { href: hashFor(other.id), "data-id": other.id,
      "aria-current": other === one ? "true" : null }, `${other.at} `, arrow(other),
      other.credit === null ? "" : ` ${number(other.credit)}`)))));
}

function body(one) {
  const cut = one.stop.answer === "length" ? chip("watch", "! cut at the token limit") : null;
  const facts = [];
  if (one.score !== null) facts.push(["score", Number(one.score.toPrecision(3))]);
  if (one.reward !== null) facts.push(["reward", number(one.reward)]);
  if (one.credit !== null) facts.push(["credit, mean per token", number(one.credit)]);
  if (one.stop.answer && one.stop.answer !== "eos") facts.push(["ended by", one.stop.answer]);
  return [
    make("div", { class: "columns two" }, problem(one),
      column("Reply", [verdictChip(one.answer_right), cut], linesOf(one, "answer", plainLine))),
    factList(facts), ...[siblings(one)].filter(Boolean)];
}
