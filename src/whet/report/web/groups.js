// ---- traces that are read beside those of the same problem: lone replies, episodes of many turns ----------------------

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
      "aria-label": `${noun} ${one.at} of ${one.size}, ${word(one.answer_right)}` }, marked(one.answer_right)))));
}

function headline(one) {
  const which = one.size > 1 ? `, ${one.at} of ${one.size} to this problem` : "";
  return `${one.answer_right === null ? `${noun} that was not graded` : `${word(one.answer_right)} ${noun}`}${which}`;
}

function siblings(one) {
  if (one.size < 2) return null;
  return make("nav", { class: "related tries", "aria-label": `The ${nouns} of this problem in this step` },
    make("span", { text: `All ${nouns} of this problem in this step, with their credit` }),
    make("ul", {}, ...group(one).map((other) => make("li", {}, make("a", { href: hashFor(other.id), "data-id": other.id,
      "aria-current": other === one ? "true" : null }, `${other.at} `, arrow(other),
      other.credit === null ? "" : ` ${number(other.credit)}`)))));
}
