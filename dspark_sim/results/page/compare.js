// The comparison: changes against load, and both sides in a table.
"use strict";

const comparison = JSON.parse(byId("data").textContent);
const hidden = new Set();
const charts = [];
let all = false; // columns
const pairs = comparison.arms.map((arm, i) => ({ ...arm, look: `p${i}` }));
const pairOf = Object.fromEntries(pairs.map((pair) => [pair.key, pair]));
const visible = (row) => !hidden.has(row.key);
const axis = comparison.axis || "users";
const place = (row) => row.x ?? row.load; // where a row lies along the axis
const words = (row) => number(place(row), comparison.axis ? 1 : 0);
const inPoints = (id) => (comparison.points || []).includes(id); // a difference of percentages, no ratio
const unitOf = (id) => (inPoints(id) ? "points" : "%");
const moved = (id, triple) => (inPoints(id) ? signed(triple).replace(" %", " points") : signed(triple));

function tipOf(row) {
  const tip = [[axis, words(row)]];
  for (const [id, name] of Object.entries(comparison.changes)) tip.push([name, moved(id, row.change[id])]);
  for (const { id, name, unit, digits } of comparison.sides) {
    tip.push([name, `${number(row.a[id][0], digits)} → ${number(row.b[id][0], digits)} ${unit}`]);
  }
  return tip;
}

function change(id) {
  const rows = comparison.rows.filter(visible);
  const values = rows.flatMap((row) => row.change[id]).filter((value) => value !== null);
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  const room = 0.06 * (high - low) || 1;
  const places = [...new Set(comparison.rows.map(place))].sort((x, y) => x - y);
  const [first, last] = [places[0], places[places.length - 1]];
  const log = !comparison.axis && last > 16 * first;
  return {
    label: `Change of ${comparison.changes[id]} against ${axis}`,
    x: { name: axis, min: log ? first : 0, max: comparison.axis ? 1.04 * last : last, log, ticks: comparison.axis ? null : places },
    y: { name: `change of ${comparison.changes[id]} [${unitOf(id)}]`, min: low - room, max: high + room, zero: true },
    series: pairs.filter(visible).map((pair) => ({
      ...pair,
      points: comparison.rows
        .filter((row) => row.key === pair.key && row.change[id][0] !== null)
        .map((row) => {
          const [y, from, to] = row.change[id];
          return { x: place(row), y, low: from, high: to, tip: tipOf(row) };
        }),
    })),
  };
}

function table() {
  const [a, b] = comparison.names;
  const first = Object.keys(comparison.changes)[0];
  const heads = [["policy", ""], [axis, ""], [`change of ${comparison.changes[first]}`, unitOf(first)]];
  const shown = comparison.sides.filter((side) => all || side.first);
  for (const { name, unit } of shown) heads.push([name, unit]);
  const rows = comparison.rows.filter(visible).map((row) => {
    const sides = shown.map(({ id, digits }) => {
      const [before, after] = [row.a[id], row.b[id]].map((triple) => spread(triple, digits));
      return el("td", {}, el("small", {}, before), before === after ? "" : after);
    });
    return el("tr", {}, named(pairOf[row.key]), el("td", {}, words(row)), cell(row.change[first], 1, true), ...sides);
  });
  const head = heads.map(([name, unit], i) => el("th", { scope: "col", class: i ? null : "left" }, name, el("small", {}, unit || "\u00a0")));
  const caption = el("caption", {}, el("span", {}, `Small, above: ${a}. Below, where it differs: ${b}.`));
  byId("table").replaceChildren(el("table", {}, caption, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)));
  more.textContent = all ? "Fewer columns" : `All ${comparison.sides.length} columns`;
  more.setAttribute("aria-expanded", String(all));
}

const more = byId("columns");
more.hidden = comparison.sides.every((side) => side.first);
more.addEventListener("click", () => {
  all = !all;
  table();
});

function redraw() {
  charts.forEach((chart) => chart.draw());
  table();
}

themeButton(byId("theme"));
policyChips(pairs, hidden, redraw);
for (const id of Object.keys(comparison.changes)) if (byId(id)) charts.push(new Chart(byId(id), () => change(id)));
redraw();
