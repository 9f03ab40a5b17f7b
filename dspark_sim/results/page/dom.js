// Small helpers: elements, numbers, intervals. Text goes in as text, never as markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);
const byId = (id) => document.getElementById(id);

const NONE = "–";

function number(value, digits = 0) {
  if (value === null || value === undefined) return NONE;
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// [mean, low, high] as "mean ± half"; the mean alone where one replication cannot say.
function spread(triple, digits = 0) {
  if (!triple || triple[0] === null) return NONE;
  const half = triple[1] === null ? "" : ` ± ${number((triple[2] - triple[1]) / 2, digits)}`;
  return number(triple[0], digits) + half;
}

function signed(triple) {
  if (!triple || triple[0] === null) return NONE;
  return (triple[0] >= 0 ? "+" : "−") + spread([Math.abs(triple[0]), triple[1], triple[2]], 1) + " %";
}

// Marker outlines around (0, 0), in the letters that the still pictures use.
const MARKERS = {
  s: "M-4-4H4V4H-4Z",
  D: "M0-5.5 5.5 0 0 5.5-5.5 0Z",
  v: "M-5-4H5L0 5.5Z",
  "^": "M-5 4H5L0-5.5Z",
  "<": "M4-5V5L-5.5 0Z",
  ">": "M-4-5V5L5.5 0Z",
  X: "M-5-3-3-5 0-2 3-5 5-3 2 0 5 3 3 5 0 2-3 5-5 3-2 0Z",
  P: "M-2-5H2V-2H5V2H2V5H-2V2H-5V-2H-2Z",
  o: "M-4.6 0A4.6 4.6 0 1 0 4.6 0 4.6 4.6 0 1 0-4.6 0Z",
  "*": "M0-6 1.6-2 6-1.9 2.6.9 3.7 5 0 2.6-3.7 5-2.6.9-6-1.9-1.6-2Z",
  p: "M0-5.5 5.2-1.7 3.2 4.5H-3.2L-5.2-1.7Z",
  d: "M0-6 3.6 0 0 6-3.6 0Z",
  H: "M-5.5 0-2.75-4.8H2.75L5.5 0 2.75 4.8H-2.75Z",
  8: "M-2-5H2L5-2V2L2 5H-2L-5 2V-2Z",
  h: "M0-5.5 4.8-2.75V2.75L0 5.5-4.8 2.75V-2.75Z",
};

const glyph = (marker, attributes = {}) => svg("path", { d: MARKERS[marker] || MARKERS.o, ...attributes });

function swatch(series) {
  return svg(
    "svg",
    { class: `swatch ${series.look}`, viewBox: "-16 -8 32 16", "aria-hidden": "true" },
    svg("path", { d: "M-16 0H16", class: "line", "stroke-dasharray": series.dash }),
    glyph(series.marker, { class: "dot" }),
  );
}

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// Theme: as the system says until the button says otherwise.
function themeButton(button) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const now = () => document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  const name = () => (button.textContent = now() === "dark" ? "Light" : "Dark");
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = now() === "dark" ? "light" : "dark";
    name();
  });
  dark.addEventListener("change", name);
  name();
}
