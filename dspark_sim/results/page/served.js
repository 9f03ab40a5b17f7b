// The page of served requests: latencies, objectives and queues by offered rate, and one rate at a time.
"use strict";

const report = JSON.parse(byId("data").textContent);
const scales = report.rates.map((rate) => rate.scale);
const state = { hidden: new Set(), load: scales[scales.length - 1], quantile: "99" };
const charts = [];
const arms = report.arms.map((arm, i) => ({ ...arm, look: `p${i}` }));
const armOf = Object.fromEntries(arms.map((arm) => [arm.key, arm]));
const units = Object.fromEntries(report.columns.map((column) => [column.id, column]));
const offered = Object.fromEntries(report.rates.map((rate) => [rate.scale, rate.offered]));

const shown = (row) => !state.hidden.has(row.key);
const here = () => report.points.filter((row) => shown(row) && row.load === state.load);
const inUnit = (id, triple) => `${spread(triple, units[id].digits)} ${units[id].unit}`.trim();
const most = (values) => Math.max(...values.filter((value) => Number.isFinite(value)), 0);
const rateWords = (scale) => (offered[scale] === null ? "all at once" : `${number(offered[scale], 1)} requests/s`);
const limits = (metric) => report.slos.filter((slo) => slo.metric === metric);
const limitWords = (slo) => `${slo.name.replace("_", " ")} ≤ ${number(slo.limit_ms)} ms`;
const NAMES = { ttft: "TTFT", tpot: "TPOT", e2e: "E2E", queue: "queue", itl: "ITL" };

function facts(row) {
  const tip = [["offered", rateWords(row.load)]];
  const ids = ["within", "good", "gpu", "ttft99", "tpot50", "tpot99", "e2e99", "waiting", "preempted", "kvmost", "tau"];
  for (const id of ids) if (units[id]) tip.push([units[id].name, inUnit(id, row[id])]);
  if (row.knee) tip.push(["past the load knee", row.seeds > 1 ? `in ${row.knee} of ${row.seeds} replications` : "yes"]);
  tip.push(["output", armOf[row.key].lossless]);
  return tip;
}

// A column against the offered rate: bands are intervals over replications.
function againstRate(id, { top, levels = [], time = false } = {}) {
  const rows = report.points.filter(shown);
  const { name, unit } = units[id];
  const words = unit ? `${name} [${unit}]` : name;
  const means = rows.map((row) => row[id][0]);
  const reach = 1.05 * Math.min(1.2 * most(means), Math.max(most(means), most(rows.map((row) => row[id][2] ?? 0)))) || 1;
  const near = levels.filter((level) => level.y < 3 * most(means)).map((level) => level.y);
  const flat = { name: words, min: 0, max: top || Math.max(reach, 1.15 * most(near)) };
  const y = time ? timeAxis(words, [...means, ...near]) : flat;
  const least = y.log ? y.min : -Infinity;
  return {
    label: `${name} against the offered rate`,
    x: { name: "offered rate [requests/s]", min: 0, max: 1.04 * most(Object.values(offered)) },
    y,
    levels: levels.filter((level) => level.y <= y.max),
    series: arms.filter(shown).map((arm) => ({
      ...arm,
      band: true,
      points: rows
        .filter((row) => row.key === arm.key && row[id][0] !== null)
        .map((row) => ({
          x: offered[row.load], y: row[id][0], tip: facts(row), high: row[id][2],
          low: row[id][1] === null ? null : Math.max(row[id][1], least, 0),
        })),
    })),
  };
}

const bounded = (metric) =>
  againstRate(metric + state.quantile, {
    time: true,
    levels: limits(metric).map((slo) => ({ y: slo.limit_ms, label: limitWords(slo) })),
  });

// Share of the requests that took at most so long, at the chosen rate; objectives are upright lines.
function distribution(metric) {
  const rows = here().filter((row) => row[`${metric}_ms`].length);
  const times = rows.flatMap((row) => row[`${metric}_ms`].map((triple) => triple[0]));
  const near = limits(metric).filter((slo) => slo.limit_ms < 3 * most(times));
  const x = timeAxis(`${NAMES[metric]} [ms]`, [...times.filter((time) => time > 0.02), ...near.map((slo) => slo.limit_ms)]);
  const series = rows.map((row) => ({
    ...armOf[row.key],
    points: row[`${metric}_ms`].map((triple, i) => ({
      x: Math.max(x.min, triple[0]), y: report.shares[i],
      tip: [["share of requests", `${number(100 * report.shares[i])} %`], [`${NAMES[metric]} at most`, `${spread(triple, 1)} ms`]],
    })),
  }));
  return {
    label: `Distribution of ${NAMES[metric]} at ${rateWords(state.load)}`,
    x,
    y: { name: metric === "itl" ? "share of gaps" : "share of requests", min: 0, max: 1, percent: true },
    uprights: near.map((slo) => ({ x: slo.limit_ms, label: limitWords(slo) })),
    series,
  };
}

// The first replication over time at the chosen rate.
function overTime(what, name, unit, factor = 1) {
  const rows = here().filter((row) => row.over_time && row.over_time[what]);
  const series = rows.map((row) => {
    const values = row.over_time[what];
    const width = row.over_time.end_s / values.length;
    return {
      ...armOf[row.key],
      marker: null,
      points: values.map((value, i) => ({
        x: (i + 0.5) * width, y: factor * value,
        tip: [["time", `${number((i + 0.5) * width, 1)} s`], [name, `${number(factor * value, 1)} ${unit}`]],
      })),
    };
  });
  const top = most(series.flatMap((one) => one.points.map((point) => point.y)));
  return {
    label: `${name} over time at ${rateWords(state.load)}`,
    x: { name: "time [s]", min: 0, max: most(rows.map((row) => row.over_time.end_s)) || 1 },
    y: { name: `${name} [${unit}]`, min: 0, max: 1.08 * Math.max(top, 1) },
    series,
  };
}

// Every policy at the chosen rate: who keeps the objectives for most requests first, then who writes fastest.
// Goodput would rank policies that serve the same traffic by chance.
function readings() {
  const wanted = ["within", "good", "gpu", "ttft99", "tpot50", "vstpot", "tpot99"].filter((id) => units[id]);
  const kept = (row) => (units.within ? row.within[0] ?? 0 : 0);
  const rows = here().sort((a, b) => kept(b) - kept(a) || (a.tpot50[0] ?? 0) - (b.tpot50[0] ?? 0));
  const verdict = (row) => (!report.slos.length ? "" : row.met === row.seeds ? "met" : row.met ? `met in ${row.met} of ${row.seeds}` : "missed");
  const knee = (row) => (row.knee * 2 > row.seeds ? el("small", {}, "past its load knee") : null);
  const told = report.slos.length || rows.some(knee);
  const body = rows.map((row) =>
    el(
      "tr",
      {},
      named(armOf[row.key]),
      ...(told ? [el("td", { class: row.met === row.seeds ? "left" : "left bad" }, verdict(row), knee(row))] : []),
      ...wanted.map((id) => cell(row[id], units[id].digits, units[id].change)),
    ),
  );
  const heads = [["policy", ""], ...(told ? [[report.slos.length ? "objectives" : "load", ""]] : [])];
  for (const id of wanted) heads.push([units[id].name, numbers.unit(units[id])]);
  const head = heads.map(([name, unit], i) =>
    el("th", { scope: "col", class: i === 0 || (told && i === 1) ? "left" : null }, name, el("small", {}, unit || "\u00a0")));
  const caption = el("caption", {}, el("span", {}, `${offered[state.load] === null ? "All at once" : `At ${rateWords(state.load)}`}${report.points.some((row) => row.seeds > 1) ? "; ± is half the 95% interval over replications" : "; one replication, no intervals"}`));
  byId("readings").replaceChildren(
    el("div", { class: "wide", tabindex: 0 }, el("table", {}, caption, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body))),
  );
}

const numbers = new Numbers({
  rows: () => report.points.filter(shown),
  columns: report.columns,
  armOf,
  against: report.baseline,
  lead: {
    name: "offered", unit: "requests/s", title: "offered [requests/s]",
    words: (load) => (offered[load] === null ? "at once" : number(offered[load], 1)),
    value: (load) => (offered[load] === null ? "" : String(offered[load])),
  },
});
const csv = () => numbers.csv();

function refresh() {
  document.querySelectorAll("button.sla").forEach((button, i) => button.setAttribute("aria-pressed", String(scales[i] === state.load)));
  byId("load").value = String(state.load);
  charts.forEach((chart) => chart.draw());
  readings();
  numbers.draw();
}

function choose(scale) {
  state.load = scale;
  refresh();
}

function begin() {
  themeButton(byId("theme"));
  policyChips(arms, state.hidden, refresh);
  byId("load").append(...scales.map((scale) => el("option", { value: scale }, rateWords(scale))));
  byId("load").addEventListener("change", (event) => choose(Number(event.target.value)));
  document.querySelectorAll("button.sla").forEach((button, i) => button.addEventListener("click", () => choose(scales[i])));
  if (byId("quantile")) {
    byId("quantile").addEventListener("change", (event) => {
      state.quantile = event.target.value;
      refresh();
    });
  }
  const all = {
    within: () => againstRate("within", { top: 103 }),
    goodput: () => againstRate("good"),
    throughput: () => againstRate("gpu"),
    ttft: () => bounded("ttft"), tpot: () => bounded("tpot"), e2e: () => bounded("e2e"), queue: () => bounded("queue"),
    waiting: () => againstRate("waiting", { time: true }),
    preempted: () => againstRate("preempted"), kv: () => againstRate("kvmost", { top: 103 }),
    "ttft-d": () => distribution("ttft"), "tpot-d": () => distribution("tpot"), "e2e-d": () => distribution("e2e"),
    "itl-d": () => distribution("itl"),
    "waiting-t": () => overTime("waiting", "waiting", "requests"), "users-t": () => overTime("users", "running", "requests"),
    "kv-t": () => overTime("kv", "KV in use", "%", 100),
  };
  for (const [id, spec] of Object.entries(all)) if (byId(id)) charts.push(new Chart(byId(id), spec));
  refresh();
}

begin();
