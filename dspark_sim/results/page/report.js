// The report page: readings, table, controls.
"use strict";

function readings() {
  const sla = report.slas[state.sla];
  if (!sla) return;
  const heads = ["policy", "best [tok/s/GPU]", `vs ${report.baseline}`, "at users", "speed at that throughput [tok/s/user]", ""];
  const rows = sla.rows.filter(shown).sort((a, b) => (b.gpu[0] ?? -1) - (a.gpu[0] ?? -1));
  const body = rows.map((row, i) =>
    el(
      "tr",
      { class: i === 0 && row.gpu[0] !== null ? "best" : null },
      named(armOf[row.key]),
      cell(row.gpu, 0),
      cell(row.vs, 1, true),
      el("td", {}, number(row.concurrency, Number.isInteger(row.concurrency) ? 0 : 1)),
      el("td", {}, row.matched_user === null ? NONE : `${number(row.matched_user, 1)} (${signed(row.matched_vs)})`),
      el("td", { class: "left" }, row.gpu[0] === null ? `not met: fastest is ${number(row.fastest, 1)}` : row.at_end ? "highest load simulated" : ""),
    ),
  );
  const head = el("tr", {}, ...heads.map((name, i) => el("th", { scope: "col", class: i ? null : "left" }, name)));
  const caption = `Read at ${sla.sla} tok/s/user; last number: each user's best speed at the throughput of ${report.baseline} there`;
  byId("readings").replaceChildren(
    el("div", { class: "wide", tabindex: 0 }, el("table", {}, el("caption", {}, el("span", {}, caption)), el("thead", {}, head), el("tbody", {}, ...body))),
  );
}

const numbers = new Numbers({
  rows: () => report.points.filter(shown),
  columns: report.columns,
  armOf,
  against: report.baseline,
  lead: { name: "users", unit: "", title: "users", words: (load) => number(load), value: String },
});
const csv = () => numbers.csv();

function selectSla(index) {
  state.sla = index;
  refresh();
}

function refresh() {
  document.querySelectorAll("button.sla").forEach((button, i) => button.setAttribute("aria-pressed", String(i === state.sla)));
  charts.forEach((chart) => chart.draw());
  readings();
  numbers.draw();
}

function start() {
  themeButton(byId("theme"));
  policyChips(arms, state.hidden, refresh);
  byId("load").append(...report.loads.map((load) => el("option", { value: load }, `${number(load)} users`)));
  byId("load").value = String(state.load);
  byId("load").addEventListener("change", (event) => {
    state.load = Number(event.target.value);
    refresh();
  });
  document.querySelectorAll("button.sla").forEach((button, i) => button.addEventListener("click", () => selectSla(i)));
  const all = {
    frontier,
    throughput: () => againstLoad("gpu", "Throughput per GPU against users"),
    budget: () => againstLoad("budget", "Verification budget against users"),
    share, stairs, conditional, positions, reliability, latency,
  };
  for (const [id, spec] of Object.entries(all)) if (byId(id)) charts.push(new Chart(byId(id), spec));
  refresh();
}

start();
