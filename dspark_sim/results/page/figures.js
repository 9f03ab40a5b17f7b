// What every chart of a report shows, from the document in the page and what the reader chose.
"use strict";

const report = JSON.parse(byId("data").textContent);
const state = { hidden: new Set(), load: report.loads[report.loads.length - 1], sla: 0 };
const charts = [];
const arms = report.arms.map((arm, i) => ({ ...arm, look: `p${i}` }));
const armOf = Object.fromEntries(arms.map((arm) => [arm.key, arm]));
const units = Object.fromEntries(report.columns.map((column) => [column.id, column]));

const shown = (row) => !state.hidden.has(row.key);
const inUnit = (id, triple) => `${spread(triple, units[id].digits)} ${units[id].unit}`.trim();
const most = (values) => Math.max(...values.filter((value) => Number.isFinite(value)), 0);
const rowsOf = (key) => report.points.filter((row) => row.key === key).sort((a, b) => a.load - b.load);
const here = () => report.points.filter((row) => shown(row) && row.load === state.load);

// The end of an axis: the ends of intervals too, unless they are far out.
function reach(rows, id) {
  const means = most(rows.map((row) => row[id][0]));
  return 1.05 * Math.min(1.2 * means, Math.max(means, most(rows.map((row) => row[id][2] ?? 0)))) || 1;
}

function facts(row) {
  const tip = [["users", number(row.load)]];
  for (const id of ["gpu", "user", "tau", "budget", "step"]) tip.push([units[id].name, inUnit(id, row[id])]);
  if (row.vs[0] !== null && armOf[row.key].policy !== report.baseline) {
    tip.splice(2, 0, [`throughput against ${report.baseline}`, signed(row.vs)]);
  }
  tip.push(["output", armOf[row.key].lossless]);
  return tip;
}

function frontier() {
  const rows = report.points.filter(shown);
  const series = arms.filter(shown).map((arm) => ({
    ...arm,
    points: rowsOf(arm.key)
      .map((row) => ({
        x: row.user[0], left: row.user[1], right: row.user[2],
        y: row.gpu[0], low: row.gpu[1], high: row.gpu[2],
        faint: !row.strong, tip: facts(row),
      }))
      .sort((a, b) => a.x - b.x),
  }));
  return {
    label: "Throughput per GPU against the speed of each user",
    x: { name: "speed of each user [tok/s/user]", min: 0, max: reach(rows, "user") },
    y: { name: "throughput [tok/s/GPU]", min: 0, max: reach(rows, "gpu") },
    series,
    uprights: report.slas.map((sla, i) => ({
      x: sla.sla, label: `SLA ${sla.sla}`, selected: i === state.sla, select: () => selectSla(i),
    })),
  };
}

function againstLoad(id, label) {
  const rows = report.points.filter(shown);
  const [first, last] = [report.loads[0], report.loads[report.loads.length - 1]];
  const series = arms.filter(shown).map((arm) => ({
    ...arm,
    band: true,
    points: rowsOf(arm.key).map((row) => ({
      x: row.load, y: row[id][0], low: row[id][1], high: row[id][2], tip: facts(row),
    })),
  }));
  const log = last > 16 * first;
  return {
    label,
    x: { name: "users", min: log ? first : 0, max: last, log, ticks: report.loads },
    y: { name: `${units[id].name} [${units[id].unit}]`, min: 0, max: reach(rows, id) },
    series,
  };
}

function share() {
  const { x } = againstLoad("gpu", "");
  const series = arms.filter(shown).map((arm) => ({
    ...arm,
    band: true,
    points: rowsOf(arm.key)
      .filter((row) => row.share[0] !== null)
      .map((row) => ({
        x: row.load, y: row.share[0], low: row.share[1], high: row.share[2],
        tip: [["users", number(row.load)], ["share of the gain", `${spread(row.share.map((v) => (v === null ? v : 100 * v)), 1)} %`]],
      })),
  }));
  const least = Math.min(0, ...series.flatMap((one) => one.points.map((point) => point.y)));
  return {
    label: "Share of the gain that an upper bound leaves",
    x,
    y: { name: "share of the gain", min: Math.max(-1, 1.1 * least), max: 1, percent: true, zero: true },
    series,
  };
}

function stairs() {
  const { cost } = report.evidence;
  const rows = here();
  const end = Math.min(most(cost.tokens), 1.06 * most([...rows.flatMap((row) => row.bins.map((bin) => bin[1])), 16]));
  const points = cost.tokens
    .map((tokens, i) => ({ x: tokens, y: cost.ms[i] }))
    .filter((point) => point.x <= end)
    .map((point) => ({ ...point, tip: [["batch tokens", number(point.x)], ["forward pass", `${number(point.y, 2)} ms`]] }));
  const lanes = rows.map((row) => ({
    ...armOf[row.key],
    mean: row.tokens[0],
    bins: row.bins,
    tip: [
      ["users", number(row.load)],
      ["mean step", inUnit("tokens", row.tokens)],
      ["largest step", `${number(row.bins[row.bins.length - 1][1])} tok`],
      ["past capture", inUnit("eager", row.eager)],
      ["mean step time", inUnit("step", row.step)],
    ],
  }));
  const limit = cost.limit ? [{ x: cost.limit, label: `capture limit ${number(cost.limit)}` }] : [];
  return {
    label: "Cost of a forward pass by batch tokens",
    x: { name: "batch tokens [tok/step]", min: 0, max: end },
    y: { name: "forward pass [ms]", min: 0, max: 1.08 * most(points.map((point) => point.y)) },
    series: [{ key: "cost", name: "forward pass", look: "plain", points }],
    uprights: limit,
    lanes,
  };
}

function byPosition(series, name, gamma) {
  return {
    label: name,
    x: { name: "draft position", min: 0.7, max: gamma + 0.3, ticks: Array.from({ length: gamma }, (_, i) => i + 1) },
    y: { name: "share", min: 0, max: 1, percent: true },
    series,
  };
}

const DRAFTER_LOOKS = [["plain", "o"], ["soft", "s"], ["plain", "D"], ["soft", "v"]];

function conditional() {
  const drafters = Object.entries(report.evidence.drafters);
  const series = drafters.map(([name, drafter], i) => ({
    key: name,
    name,
    look: DRAFTER_LOOKS[i % 4][0],
    marker: DRAFTER_LOOKS[i % 4][1],
    points: drafter.conditional
      .map(([y, low, high], j) => ({ x: j + 1, y, low, high }))
      .filter((point) => point.y !== null)
      .map((point) => ({
        ...point,
        tip: [
          ["position", number(point.x)],
          ["accepted", `${number(100 * point.y, 1)} % (${number(100 * point.low, 1)} to ${number(100 * point.high, 1)})`],
          ["rounds", number(drafter.rounds)],
        ],
      })),
  }));
  return byPosition(series, "Conditional acceptance by position", Math.max(...drafters.map(([, d]) => d.gamma)));
}

function positions() {
  const rows = here().filter((row) => row.verified.some((share) => share > 0));
  const series = rows.flatMap((row) =>
    ["verified", "accepted"].map((what) => ({
      ...armOf[row.key],
      name: `${armOf[row.key].name}: ${what}`,
      dash: what === "accepted" ? "3 3" : null,
      points: row[what]
        .map((share, i) => ({
          x: i + 1, y: share, tip: [["position", number(i + 1)], [what, `${number(100 * share, 1)} % of rounds`]],
        }))
        .filter((_, i) => row.verified[i] > 0),
    })),
  );
  const gamma = Math.max(1, ...here().map((row) => row.verified.length));
  return byPosition(series, "Verified and accepted share by position", gamma);
}

function reliability() {
  const drafters = Object.entries(report.evidence.drafters).filter(([, drafter]) => drafter.reliability);
  const series = drafters.flatMap(([drafter, { reliability: found }]) =>
    [["raw", "soft", "s", "4 3"], ["calibrated", "plain", "o", null]].map(([how, look, marker, dash]) => ({
      key: `${drafter} ${how}`,
      name: `${drafter}, ${how}`,
      look, marker, dash,
      points: found[how].bins.map((bin) => ({
        x: bin.predicted, y: bin.observed, low: bin.low, high: bin.high,
        tip: [
          ["predicted", `${number(100 * bin.predicted, 1)} %`],
          ["survived", `${number(100 * bin.observed, 1)} % (${number(100 * bin.low, 1)} to ${number(100 * bin.high, 1)})`],
          ["positions", number(bin.rounds)],
        ],
      })),
    })),
  );
  const axis = { min: 0, max: 1, percent: true };
  return {
    label: "Predicted against observed survival",
    x: { ...axis, name: "predicted survival" },
    y: { ...axis, name: "observed" },
    series,
    diagonal: true,
  };
}

function latency() {
  const rows = here().filter((row) => row.tpot_ms.length);
  const series = rows.map((row) => ({
    ...armOf[row.key],
    points: row.tpot_ms.map((triple, i) => ({
      x: triple[0], left: triple[1], right: triple[2], y: report.shares[i],
      tip: [["share of requests", `${number(100 * report.shares[i])} %`], ["time per output token", `${spread(triple, 2)} ms`]],
    })),
  }));
  return {
    label: "Distribution of the time per output token",
    x: { name: "time per output token [ms]", min: 0, max: 1.05 * most(rows.map((row) => row.tpot_ms[row.tpot_ms.length - 1][0])) || 1 },
    y: { name: "share of requests", min: 0, max: 1, percent: true },
    series,
  };
}
