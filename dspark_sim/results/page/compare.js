// The comparison: changes against users, and both sides in a table.
"use strict";

const comparison = JSON.parse(byId("data").textContent);
const hidden = new Set();
const charts = [];
const pairs = comparison.arms.map((arm, i) => ({ ...arm, look: `p${i}` }));
const pairOf = Object.fromEntries(pairs.map((pair) => [pair.key, pair]));
const visible = (row) => !hidden.has(row.key);

function tipOf(row) {
  const tip = [["users", number(row.load)]];
  for (const [id, name] of Object.entries(comparison.changes)) tip.push([name, signed(row.change[id])]);
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
  const [first, last] = [comparison.loads[0], comparison.loads[comparison.loads.length - 1]];
  const log = last > 16 * first;
  return {
    label: `Change of ${comparison.changes[id]} against users`,
    x: { name: "users", min: log ? first : 0, max: last, log, ticks: comparison.loads },
    y: { name: `change of ${comparison.changes[id]} [%]`, min: low - room, max: high + room, zero: true },
    series: pairs.filter(visible).map((pair) => ({
      ...pair,
      points: comparison.rows
        .filter((row) => row.key === pair.key)
        .map((row) => {
          const [y, from, to] = row.change[id];
          return { x: row.load, y, low: from, high: to, tip: tipOf(row) };
        }),
    })),
  };
}

function table() {
  const [a, b] = comparison.names;
  const heads = [["users", ""], ["policy", ""], ["throughput change", "%"]];
  for (const { name, unit } of comparison.sides) heads.push([`${name}: ${a}`, unit], [b, unit]);
  const rows = comparison.rows.filter(visible).map((row) => {
    const pair = pairOf[row.key];
    const sides = comparison.sides.flatMap(({ id, digits }) => [row.a[id], row.b[id]].map((triple) => el("td", {}, spread(triple, digits))));
    return el(
      "tr",
      {},
      el("td", {}, number(row.load)),
      el("td", { class: `left named ${pair.look}` }, swatch(pair), ` ${pair.name}`),
      el("td", {}, signed(row.change.gpu)),
      ...sides,
    );
  });
  const head = heads.map(([name, unit], i) => el("th", { scope: "col", class: i === 1 ? "left" : null }, name, el("small", {}, unit || "\u00a0")));
  byId("table").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)));
}

function redraw() {
  [...byId("chips").children].forEach((chip, i) => chip.setAttribute("aria-pressed", String(!hidden.has(pairs[i].key))));
  charts.forEach((chart) => chart.draw());
  table();
}

function begin() {
  themeButton(byId("theme"));
  const buttons = pairs.map((pair) => {
    const button = el("button", { type: "button", class: `chip ${pair.look}`, "aria-pressed": "true" }, swatch(pair), pair.name);
    button.addEventListener("click", () => {
      if (!hidden.delete(pair.key)) hidden.add(pair.key);
      if (hidden.size === pairs.length) hidden.clear();
      redraw();
    });
    return button;
  });
  byId("chips").replaceChildren(...buttons);
  for (const id of ["gpu", "tau", "step"]) charts.push(new Chart(byId(id), () => change(id)));
  redraw();
}

begin();
