// ---- what is said of a reply: right or wrong -------------------------------------------------------------------------

const [noun, nouns] = ["reply", "replies"];
const guttered = [];
const otherTexts = () => [];

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
