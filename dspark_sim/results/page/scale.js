// From values to pixels: scales with round marks, where words above a plot go, paths.
"use strict";

const path = (at) => at.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const steps = (at) => at.map(([x, y], i) => (i ? `H${x.toFixed(1)}V${y.toFixed(1)}` : `M${x.toFixed(1)} ${y.toFixed(1)}`)).join("");

// axis: {min, max, log, ticks, percent}; returns value -> pixel, with ticks and their words.
function scale(axis, from, to) {
  const turn = axis.log ? (value) => Math.log2(Math.max(value, axis.min)) : (value) => value;
  const low = turn(axis.min);
  const span = turn(axis.max) - low || 1;
  const place = (value) => from + ((turn(value) - low) / span) * (to - from);
  const room = Math.abs(to - from) / (from < to ? 62 : 44);
  place.ticks = axis.ticks || (axis.log ? logTicks(axis.min, axis.max, room) : roundTicks(axis.min, axis.max, room));
  const step = place.ticks.length > 1 ? Math.abs(place.ticks[1] - place.ticks[0]) : 1;
  const digits = (value) => (axis.log ? digitsOf(value) : axis.percent || axis.ticks ? 0 : digitsOf(step));
  place.words = (value) => (axis.percent ? `${number(100 * value)} %` : number(value, digits(value)));
  return place;
}

const digitsOf = (step) => Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));

function roundTicks(min, max, count) {
  const rough = (max - min) / Math.max(2, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const first = Math.ceil(min / step - 1e-9);
  const last = Math.floor(max / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

// 1, 2, 5 of every power of ten; 1 alone where there is no room for them.
function logTicks(min, max, count) {
  const powers = Array.from({ length: 24 }, (_, i) => 10 ** (i - 9));
  const inside = (factors) => powers.flatMap((p) => factors.map((f) => f * p)).filter((v) => v >= 0.999 * min && v <= 1.001 * max);
  return [[1, 2, 5], [1, 3], [1]].map(inside).find((ticks, i) => i === 2 || ticks.length <= count);
}

// An axis of times that differ by more than a page can show from zero is logarithmic, and says so.
const FAR = 40;
function timeAxis(name, values) {
  const known = values.filter((value) => Number.isFinite(value) && value > 0);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  if (!known.length) return { name, min: 0, max: 1 };
  if (high < FAR * low) return { name, min: 0, max: 1.06 * high };
  return { name: `${name}, logarithmic`, min: low / 1.15, max: 1.15 * high, log: true };
}

// Rows of the words above the plot, the rightmost lowest, so that no line crosses words to its left.
function anchorRows(uprights, axis, place, width) {
  const start = uprights.map((u) => Math.min(place(Math.min(u.x, axis.max)) + 5, width - WORD * u.label.length - 2));
  const row = new Array(uprights.length).fill(0);
  for (let i = uprights.length - 1; i >= 0; i -= 1) {
    for (let j = i + 1; j < uprights.length; j += 1) {
      if (start[i] + WORD * uprights[i].label.length + 8 > start[j]) row[i] = Math.max(row[i], row[j] + 1);
    }
  }
  return { start, row, count: uprights.length ? 1 + Math.max(...row) : 0 };
}
