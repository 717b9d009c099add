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

// ---- words ----------------------------------------------------------------------------------------------------------

const symbol = (right) => (right === null ? "?" : right ? "✓" : "✗");
const word = (right) => (right === null ? "not graded" : right ? "right" : "wrong");
const tone = (right) => (right === null ? "watch" : right ? "right" : "wrong");
const marked = (right) => make("span", { class: `${tone(right)}-text`, text: symbol(right) });
const chip = (kind, text) => make("span", { class: `chip ${kind}`, text });
const verdictChip = (right) => chip(tone(right), `${symbol(right)} ${word(right)}`);

function number(value) {
  return `${value > 0 ? "+" : ""}${Number(value.toPrecision(3))}`;
}
